package docs_test

import (
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// guide is a page that leads a newcomer from an empty machine to something that works.
type guide struct {
	page, does string
	// steps are the blocks that a person types or copies. A page that needs one more
	// has to say so here.
	steps int
	// prepare sets up what the page needs and no newcomer makes: doubles of what is elsewhere,
	// and who comes behind the reader and looks at what they have made.
	prepare func(*testing.T, page, *stage)
}

var guides = []guide{
	{page: "sandbox.mdx", does: "Claude Code in Docker", steps: 10},
	{page: "e2b.mdx", does: "Claude Code in E2B", steps: 12, prepare: prepareE2B},
	{page: "login.mdx", does: "logging in inside a sandbox", steps: 8},
	{page: "chat-page.mdx", does: "a chat page in 60 lines", steps: 4, prepare: prepareChatPage},
	{page: "ci.mdx", does: "CI that fixes a test", steps: 6},
	{page: "team.mdx", does: "a team behind TLS", steps: 10},
	{page: "editors.mdx", does: "Zed, JetBrains, acpx", steps: 10, prepare: prepareEditors},
	{page: "fleet.mdx", does: "many sandboxes", steps: 11},
}

func guideOf(p page) (guide, bool) {
	at := slices.IndexFunc(guides, func(g guide) bool { return g.page == p.name })
	if at < 0 {
		return guide{}, false
	}
	return guides[at], true
}

// typed tells whether a person types a block, or copies it into a file.
func typed(b block) bool {
	return b.mark != "output" && !slices.Contains([]string{"", "text", "mermaid"}, b.lang)
}

var (
	need    = regexp.MustCompile(`(?m)^You need .*(?:\n.+)*`)
	program = regexp.MustCompile("`([a-z][a-z0-9-]*)`")
)

// needed are the programs that a page says its reader must have, in the paragraph that
// begins with "You need".
func needed(p page) (names []string) {
	for _, m := range program.FindAllStringSubmatch(need.FindString(p.prose), -1) {
		names = append(names, m[1])
	}
	return names
}

// base are programs that every Linux and macOS has.
var base = strings.Fields(`awk base64 basename bash cat chmod cmp cp cut date df diff dirname du env expr false find grep gzip head hostname id
	kill ln ls mkdir mktemp mv nproc od paste printf ps pwd rm rmdir sed sh sleep sort stat tail tar tee test timeout touch tr true tty
	uname uniq wc whoami xargs`)

// newcomer is the environment of somebody who has an empty machine and what the page
// asks for: programs are the base's and those that the page names, ours in bin.
func newcomer(t *testing.T, p page, bin string) []string {
	t.Helper()
	path := t.TempDir()
	for _, name := range base {
		if from, err := exec.LookPath(name); err == nil {
			symlink(t, from, filepath.Join(path, name))
		}
	}
	for _, name := range needed(p) {
		from, err := exec.LookPath(filepath.Join(bin, name))
		if err != nil {
			from, err = exec.LookPath(name)
		}
		if err == nil && name == "python3" { // what is in PATH may be a script that chooses one by it
			var out []byte
			out, err = exec.CommandContext(t.Context(), from, "-c", "import sys; print(sys.executable)").Output()
			from = strings.TrimSpace(string(out))
		}
		if err == nil { // else only blocks need it that are not run
			symlink(t, from, filepath.Join(path, name))
		}
	}
	env := []string{"PATH=" + path, "LANG=C.UTF-8", "TERM=dumb"}
	if dir := os.Getenv("TMPDIR"); dir != "" {
		env = append(env, "TMPDIR="+dir)
	}
	return env
}

func symlink(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Symlink(from, to); err != nil {
		t.Fatal(err)
	}
}

// TestGuides_Steps holds each guide to the number of its steps, and to saying what it needs.
func TestGuides_Steps(t *testing.T) {
	all := map[string]page{}
	for _, p := range pages(t) {
		all[p.name] = p
	}
	for _, g := range guides {
		p, ok := all[g.page]
		if !ok {
			t.Errorf("there is no page %s", g.page)
			continue
		}
		steps := 0
		for _, b := range p.blocks {
			if typed(b) {
				steps++
			}
		}
		if steps != g.steps {
			t.Errorf("%s has %d steps, and guides says %d: a reader does all of them; if that must be, change the number", g.page, steps, g.steps)
		}
		if names := needed(p); !slices.Contains(names, "sandbox-agent") {
			t.Errorf("%s has no paragraph that begins with \"You need\" and names `sandbox-agent` and what else its commands use: %q", g.page, names)
		}
	}
}

// A program that a page uses and does not name is not found.
func TestGuides_NothingElse(t *testing.T) {
	p := parse("x.mdx", "You need `sandbox-agent` and\n`git`.\n\nOr `curl`.\n")
	if names := needed(p); !slices.Equal(names, []string{"sandbox-agent", "git"}) {
		t.Fatalf("needed: %q", names)
	}
	path, _ := strings.CutPrefix(newcomer(t, p, t.TempDir())[0], "PATH=")
	for name, want := range map[string]bool{"git": true, "grep": true, "curl": false, "go": false, "node": false} {
		if _, err := os.Stat(filepath.Join(path, name)); (err == nil) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

var wantJourneys = flag.Bool("journeys", false, "print what each guide asks of its reader")

// journeys are the guides that were run, with the time that their commands took.
var journeys struct {
	sync.Mutex
	took map[string]time.Duration
}

// noteJourney keeps the time between the first and the last line of times, which
// are seconds.
func noteJourney(p page, times string) {
	lines := strings.Fields(strings.ReplaceAll(times, ",", "."))
	if len(lines) < 2 { // the shell has no clock
		return
	}
	from, err1 := strconv.ParseFloat(lines[0], 64)
	to, err2 := strconv.ParseFloat(lines[len(lines)-1], 64)
	if err1 != nil || err2 != nil {
		return
	}
	journeys.Lock()
	defer journeys.Unlock()
	if journeys.took == nil {
		journeys.took = map[string]time.Duration{}
	}
	journeys.took[p.name] = time.Duration((to - from) * float64(time.Second))
}

// printJourneys prints a row for each guide, and why blocks were not run.
func printJourneys(w io.Writer) {
	if !*wantJourneys {
		return
	}
	var why strings.Builder
	fmt.Fprintf(w, "%-16s %-28s %5s %5s %8s %8s\n", "PAGE", "GUIDE", "STEPS", "RUN", "NOT RUN", "SECONDS")
	for _, g := range guides {
		text, err := os.ReadFile(g.page)
		if err != nil {
			continue // TestGuides_Steps has said so
		}
		p := parse(g.page, string(text))
		run, reasons, not := 0, map[string]int{}, 0
		for _, b := range p.blocks {
			if reason, ok := strings.CutPrefix(b.mark, "not run: "); ok && typed(b) {
				reasons[reason]++
				not++
			} else if runs(b) {
				run++
			}
		}
		seconds := "-"
		if took, ok := journeys.took[g.page]; ok {
			seconds = fmt.Sprintf("%.1f", took.Seconds())
		}
		fmt.Fprintf(w, "%-16s %-28s %5d %5d %8d %8s\n", g.page, g.does, g.steps, run, not, seconds)
		for _, reason := range slices.Sorted(maps.Keys(reasons)) {
			fmt.Fprintf(&why, "%-16s %d not run: %s\n", g.page, reasons[reason], reason)
		}
	}
	fmt.Fprintf(w, "\nSteps that are neither run nor in this list are files to copy.\n\n%s", why.String())
}
