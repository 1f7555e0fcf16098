package docs_test

import (
	"context"
	"errors"
	"fmt"
	"io"
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

	"sandboxagent.dev/sandbox-agent/internal/freeport"
	"sandboxagent.dev/sandbox-agent/internal/programs"
)

const standardPort = "2468"

var buildDir string

func TestMain(m *testing.M) {
	if file := os.Getenv(settingsVariable); file != "" {
		if err := beEditor(file); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", file, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	dir, err := os.MkdirTemp("", "sandbox-agent-docs-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	buildDir = dir
	programs.AsUsers()
	code := m.Run()
	printJourneys(os.Stdout)
	if err := os.RemoveAll(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

// binary builds the programs once and returns the gateway's path.
var binary = sync.OnceValues(func() (string, error) {
	return filepath.Join(buildDir, programs.Gateway), programs.Build(buildDir, false, programs.Gateway, programs.Hub)
})

func isShell(b block) bool { return b.lang == "sh" || b.lang == "bash" }

func TestShell_Marked(t *testing.T) {
	for _, p := range pages(t) {
		for i, b := range p.blocks {
			reason, not := strings.CutPrefix(b.mark, "not run:")
			switch {
			case b.mark == "output":
				if i == 0 || !isShell(p.blocks[i-1]) || !runs(p.blocks[i-1]) {
					t.Errorf("%s: there is no block before this output that is run", b.where(p))
				}
			case !isShell(b):
			case not && strings.TrimSpace(reason) == "":
				t.Errorf("%s: the reason is missing for which it is not run", b.where(p))
			case !not && !runs(b):
				t.Errorf("%s: the comment before this block must be {/* run */}, {/* run: background */} or {/* not run: REASON */}, not %q", b.where(p), b.mark)
			}
			if isShell(b) {
				cmd := exec.CommandContext(t.Context(), "bash", "-n")
				cmd.Stdin = strings.NewReader(b.text)
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Errorf("%s: %v\n%s", b.where(p), err, out)
				}
			}
		}
	}
}

var (
	background = regexp.MustCompile(`(?m)[^&]&( [A-Z]+=\$!)?$`)
	waits      = regexp.MustCompile(`(?m)^until .*$`)
	intoFile   = regexp.MustCompile(`(?:extract-env|daemon unit)[^>\n]*> (\S+)`)
)

// A block comes to its end also where one of its commands has failed: it waits for no program that has ended, and what a
// reader has from an earlier run is not emptied for what does not come.
func TestShell_Fails(t *testing.T) {
	for _, p := range pages(t) {
		for _, b := range p.blocks {
			if at := background.FindStringIndex(b.text); at != nil && isShell(b) {
				for _, line := range waits.FindAllString(b.text[at[1]:], -1) {
					if !strings.Contains(line, "|| ! kill -0 $") {
						t.Errorf("%s: it waits for ever when the program before it has ended: %s", b.where(p), line)
					}
				}
			}
			for _, m := range intoFile.FindAllStringSubmatch(b.text, -1) {
				if !strings.Contains(b.text, "mv "+m[1]+" ") {
					t.Errorf("%s: %s is emptied before the command has done its work", b.where(p), m[1])
				}
			}
		}
	}
}

// ownPort is the port of a server that the block itself names.
var ownPort = regexp.MustCompile(`\bhttp\.server (\d+)`)

func runs(b block) bool { return b.mark == "run" || b.mark == "run: background" }

func TestShell_Runs(t *testing.T) {
	if testing.Short() {
		t.Skip("blocks of all pages are run in full runs only")
	}
	bin, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pages(t) {
		if p.name == "quickstart.mdx" || !slices.ContainsFunc(p.blocks, runs) {
			continue
		}
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			home := t.TempDir()
			if g, ok := guideOf(p); ok {
				s := stage{dir: home, home: home, env: newcomer(t, p, filepath.Dir(bin))}
				if g.prepare != nil {
					g.prepare(t, p, &s)
				}
				runPage(t, p, s)
				return
			}
			runPage(t, p, stage{dir: home, home: home, env: append(environment(), "PATH="+filepath.Dir(bin)+":"+os.Getenv("PATH"))})
		})
	}
}

// stage is what a page's blocks find when they are run.
type stage struct {
	dir, home string
	env       []string // all of it, but HOME and what is about ports
	// real are what the page calls things that are elsewhere, each with what it is here. The
	// standard port is one of them.
	real map[string]string
	// alone says that there is no gateway but those that the page starts, and that the shell has no
	// address of one.
	alone bool
	// before are lines for the shell that come before all blocks, after those that come behind
	// a block; none of them are the reader's. They have the variable BLOCKS, a folder.
	before string
	after  func(i int, b block) string
}

// daemonPages are those whose commands find the gateway that daemon start has left running,
// without an address.
var daemonPages = []string{"adding-an-agent.mdx", "ci.mdx", "resume.mdx"}

// prologue is what the blocks of a page find. address waits until a file has
// the address of a server on a port.
const prologue = `set -euo pipefail
trap 'code=$?; trap - EXIT; trap "" TERM; kill 0; wait; exit $code' EXIT
now() { echo "${EPOCHREALTIME:-}" >>$BLOCKS/times; }
address() { timeout 60 grep -m1 -q "https\?://127.0.0.1:$2" <(tail -n +1 -F "$1" 2>/dev/null); }
`

// runPage runs a page's blocks, one after the other, in one shell.
func runPage(t *testing.T, p page, s stage) {
	t.Helper()
	port, out := strconv.Itoa(freeport.Of(t)), t.TempDir()
	names := []string{standardPort, port}
	for name, here := range s.real {
		names = append(names, name, strings.ReplaceAll(here, ":"+standardPort, ":"+port))
	}
	here := strings.NewReplacer(names...)
	slices.Reverse(names)
	asShown := strings.NewReplacer(names...)
	var script strings.Builder
	script.WriteString(prologue)
	s.alone = s.alone || slices.Contains(daemonPages, p.name)
	own := slices.ContainsFunc(p.blocks, func(b block) bool {
		return b.mark == "run: background" && (strings.Contains(b.text, "sandbox-agent server") || strings.Contains(b.text, "sandbox-hub serve"))
	})
	if !own && !s.alone {
		script.WriteString("sandbox-agent server --no-token --default-agent mock >$BLOCKS/gateway 2>&1 &\naddress $BLOCKS/gateway $PORT\n")
	}
	script.WriteString(s.before)
	script.WriteString("now\n")
	for i, b := range p.blocks {
		text := here.Replace(b.text)
		fmt.Fprintf(&script, "echo %d >$BLOCKS/at\n", i)
		file, copied := strings.CutPrefix(b.mark, "file: ")
		switch {
		case copied:
			file = strings.Replace(file, "~", "$HOME", 1)
			fmt.Fprintf(&script, "mkdir -p \"$(dirname \"%s\")\"; cat >\"%[1]s\" <<'END-OF-%d'\n%sEND-OF-%[2]d\n", file, i, text)
		case b.mark == "run":
			fmt.Fprintf(&script, "{\n%s} >$BLOCKS/%d 2>&1 </dev/null\n", text, i)
		case b.mark == "run: background":
			at := port
			if m := ownPort.FindStringSubmatch(text); m != nil {
				at = m[1]
			}
			fmt.Fprintf(&script, "{\n%s} >$BLOCKS/%d 2>&1 </dev/null &\naddress $BLOCKS/%[2]d %s\n", text, i, at)
		default:
			continue
		}
		if s.after != nil {
			script.WriteString(s.after(i, b))
		}
	}
	script.WriteString("now\necho end >$BLOCKS/at\n")

	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", script.String())
	cmd.Dir = s.dir
	cmd.Env = append(s.env, "HOME="+s.home, "BLOCKS="+out, "PORT="+port, "SANDBOX_AGENT_PORT="+port)
	if !s.alone {
		cmd.Env = append(cmd.Env, "SANDBOX_AGENT_ENDPOINT=http://127.0.0.1:"+port)
	}
	cmd.SysProcAttr = ownGroup()
	cmd.Cancel = func() error { return endGroup(cmd.Process.Pid) }
	cmd.WaitDelay = 10 * time.Second
	// All processes of the page hold the other end until they have ended.
	alive, held, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer alive.Close()
	cmd.ExtraFiles = []*os.File{held}
	said, err := cmd.CombinedOutput()
	held.Close()
	if err := alive.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := alive.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("%s: processes are left over: %v", p.name, err)
	}
	read := func(name string) string {
		b, _ := os.ReadFile(filepath.Join(out, name)) // what was not run has printed nothing
		return asShown.Replace(string(b))
	}
	if err != nil {
		at := strings.TrimSpace(read("at"))
		line := 0
		if i, err := strconv.Atoi(at); err == nil {
			line = p.blocks[i].line
		}
		t.Fatalf("%s:%d: %v\n%s\n%s\nthe gateway said:\n%s", p.name, line, err, read(at), said, read("gateway"))
	}
	times, _ := os.ReadFile(filepath.Join(out, "times")) // without one the time is not known
	noteJourney(p, string(times))
	for i, b := range p.blocks {
		if b.mark == "output" {
			if missing := lacks(read(strconv.Itoa(i-1)), b.text); missing != "" {
				t.Errorf("%s: the block before did not print %q, but:\n%s", b.where(p), missing, read(strconv.Itoa(i-1)))
			}
		}
	}
}

// environment is the test's own without what concerns the program.
func environment() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return strings.HasPrefix(name, "SANDBOX_AGENT_") || strings.HasPrefix(name, "SANDBOX_HUB_") || strings.HasPrefix(name, "XDG_") ||
			strings.HasSuffix(name, "_API_KEY") || name == "HOME" || name == "PATH"
	})
}

// lacks returns the first line of want that got does not have behind the line
// before it, "" if it has all. "..." stands for anything.
func lacks(got, want string) string {
	lines := strings.Split(got, "\n")
	for line := range strings.SplitSeq(strings.TrimSpace(want), "\n") {
		if strings.TrimSpace(line) == "..." {
			continue
		}
		pattern := "^" + strings.ReplaceAll(regexp.QuoteMeta(strings.TrimRight(line, " ")), `\.\.\.`, ".*") + `\s*$`
		i := slices.IndexFunc(lines, regexp.MustCompile(pattern).MatchString)
		if i < 0 {
			return line
		}
		lines = lines[i+1:]
	}
	return ""
}

func TestLacks(t *testing.T) {
	got := "one\ntwo 2\nthree\n"
	for want, missing := range map[string]string{"one\nthree\n": "", "two ...": "", "...\nthree": "", "three\none": "one", "tw": "tw"} {
		if s := lacks(got, want); s != missing {
			t.Errorf("lacks(%q) = %q, want %q", want, s, missing)
		}
	}
}
