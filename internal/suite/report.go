package main

import (
	"bufio"
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"sandboxagent.dev/sandbox-agent/internal/agentcache"
	"sandboxagent.dev/sandbox-agent/internal/programs"
)

// startsVar names the file in which the programs of a run note the starts of processes.
const startsVar = "SANDBOX_AGENT_TEST_STARTS"

// result is how one test ended.
type result struct {
	kind    string
	name    string // folder and test
	outcome string // pass, fail or skip
	why     string // what it said, whole lines
}

func (s *suite) note(r result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.results = append(s.results, r)
}

// mostOfWhy bounds what is kept of why a test of Node or Python failed. All of it stands in the output of its part.
const mostOfWhy = 8 << 10

// begin returns the beginning of a text, as whole lines.
func begin(text string) string {
	text = strings.TrimSpace(text)
	if len(text) > mostOfWhy {
		text = strings.ToValidUTF8(text[:mostOfWhy], "") + "\n... the rest stands above"
	}
	if text == "" {
		return ""
	}
	return text + "\n"
}

var (
	//go:embed floors.txt
	floorsFile string
	//go:embed skips.txt
	skipsFile string
)

// report prints what ran and returns what is wrong with it, besides tests that
// failed.
func (s *suite) report(w io.Writer, startsFile string) error {
	ran, outcomes := map[string]int{}, map[string]int{}
	var wrong []error
	allowed, err := readSkips(skipsFile)
	if err != nil {
		return err
	}
	fine := map[string]int{} // skips that are allowed, by their reasons
	for _, r := range s.results {
		outcomes[r.outcome]++
		if r.outcome != "skip" {
			ran[r.kind]++
			continue
		}
		if !s.long && strings.Contains(r.why, agentcache.LongTier) {
			fine["it is of the long tier"]++
			continue
		}
		i := slices.IndexFunc(allowed, func(s skip) bool { return s.tests.MatchString(r.name) })
		if i >= 0 {
			fine[allowed[i].reason]++
		} else {
			fmt.Fprintf(w, "skipped: %s\n%s", r.name, r.why)
			if os.Getenv("CI") == "true" {
				wrong = append(wrong, fmt.Errorf("%s was skipped, and skips.txt does not allow it", r.name))
			}
		}
	}
	floors, err := readFloors(floorsFile)
	if err != nil {
		return err
	}
	for kind, floor := range floors {
		if ran[kind] < floor {
			wrong = append(wrong, fmt.Errorf("%d tests of kind %q ran, and floors.txt asks for %d: tests no longer run, or the floor is old", ran[kind], kind, floor))
		}
	}
	var kinds []string
	for _, kind := range slices.Sorted(maps.Keys(ran)) {
		kinds = append(kinds, fmt.Sprintf("%d %s", ran[kind], kind))
		if floors[kind] == 0 {
			wrong = append(wrong, fmt.Errorf("floors.txt has no line for tests of kind %q", kind))
		}
	}
	starts, err := readStarts(startsFile)
	if err != nil {
		return err
	}
	for _, r := range s.results {
		if r.outcome != "fail" || slices.ContainsFunc(s.results, func(o result) bool {
			return o.outcome == "fail" && strings.HasPrefix(o.name, r.name+"/")
		}) {
			continue // what failed is a part of it
		}
		fmt.Fprintf(w, "failed: %s\n%s", r.name, firstLines(r.why, 40))
	}
	fmt.Fprintf(w, "starts of real agents: %s\n", starts)
	fmt.Fprintf(w, "most of it in: %s\n", strings.Join(starts.dearest(10), ", "))
	fmt.Fprintf(w, "ran: %s\n", strings.Join(kinds, ", "))
	fmt.Fprintln(w, allowedSkips(fine))
	fmt.Fprintf(w, "tests: %d passed, %d failed, %d skipped\n", outcomes["pass"], outcomes["fail"], outcomes["skip"])
	return errors.Join(wrong...)
}

// allowedSkips says how many skips each reason has allowed, the most frequent first.
func allowedSkips(reasons map[string]int) string {
	all := 0
	names := slices.SortedFunc(maps.Keys(reasons), func(a, b string) int {
		return cmp.Or(reasons[b]-reasons[a], strings.Compare(a, b))
	})
	for i, reason := range names {
		all += reasons[reason]
		names[i] = fmt.Sprintf("; %d: %s", reasons[reason], reason)
	}
	return fmt.Sprintf("skipped as allowed: %d%s", all, strings.Join(names, ""))
}

// firstLines is the beginning of a test's output, where its errors are: logs of
// what it ran come behind them.
func firstLines(text string, n int) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if n--; n < 0 {
			b.WriteString("    ... the rest stands above\n")
			break
		}
		b.WriteString(line)
	}
	return b.String()
}

// table reads lines of a value and text, tab between them; # begins a comment.
func table(file string, line func(first, rest string) error) error {
	lines := bufio.NewScanner(strings.NewReader(file))
	for lines.Scan() {
		if t := strings.TrimSpace(lines.Text()); t == "" || strings.HasPrefix(t, "#") {
			continue
		}
		first, rest, _ := strings.Cut(lines.Text(), "\t")
		if err := line(first, strings.TrimSpace(rest)); err != nil {
			return fmt.Errorf("line %q: %w", lines.Text(), err)
		}
	}
	return nil
}

func readFloors(file string) (map[string]int, error) {
	out := map[string]int{}
	err := table(file, func(first, kind string) error {
		n, err := strconv.Atoi(first)
		if err == nil && (n < 1 || kind == "" || out[kind] != 0) {
			err = errors.New("want a number of at least 1 and a kind that has no other line")
		}
		out[kind] = n
		return err
	})
	return out, err
}

// skip is a pattern of tests that may be skipped.
type skip struct {
	tests  *regexp.Regexp
	reason string
}

func readSkips(file string) ([]skip, error) {
	var out []skip
	err := table(file, func(pattern, reason string) error {
		if reason == "" {
			return errors.New("no reason is given")
		}
		re, err := regexp.Compile(pattern)
		out = append(out, skip{re, reason})
		return err
	})
	return out, err
}

// cost is what starts of agents have taken. One that is killed with the gateway counts
// as a start, and its time is not known.
type cost struct {
	starts int
	took   time.Duration
}

func (c cost) String() string { return fmt.Sprintf("%d %.0fs", c.starts, c.took.Seconds()) }

// costs adds up what is named.
type costs map[string]cost

func (c costs) add(name string, starts int, took time.Duration) {
	was := c[name]
	c[name] = cost{was.starts + starts, was.took + took}
}

// started is how often real agents were started.
type started struct {
	all, asked cost // asked: of those that only answered a question
	agents     costs
	tests      costs // by the names in tests' folders
}

// String names the agent first that was started most often.
func (s *started) String() string {
	names := slices.SortedFunc(maps.Keys(s.agents), func(a, b string) int {
		return cmp.Or(s.agents[b].starts-s.agents[a].starts, strings.Compare(a, b))
	})
	for i, name := range names {
		names[i] = name + " " + s.agents[name].String()
	}
	return fmt.Sprintf("%d (%s), asked for a word %d times, processor %.0fs",
		s.all.starts, strings.Join(names, ", "), s.asked.starts, s.all.took.Seconds())
}

// dearest names the tests in which agents took most of the processor's time.
func (s *started) dearest(n int) []string {
	names := slices.SortedFunc(maps.Keys(s.tests), func(a, b string) int {
		return cmp.Or(cmp.Compare(s.tests[b].took, s.tests[a].took), strings.Compare(a, b))
	})
	names = names[:min(n, len(names))]
	for i, name := range names {
		names[i] = name + " " + s.tests[name].String()
	}
	return names
}

// readStarts sums up the file that tests wrote: two lines for each process, when it
// starts and when it has ended. What lies in the cache of agents is an agent, but for the gateway and the hub.
func readStarts(file string) (*started, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("count the starts of agents: %w", err)
	}
	dir := filepath.Dir(file)
	resolved, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil, fmt.Errorf("count the starts of agents: %w", err)
	}
	s := &started{agents: costs{}, tests: costs{}}
	for line := range strings.Lines(string(b)) {
		event, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		var milliseconds int
		if event == "end" {
			var took string
			took, rest, _ = strings.Cut(rest, "\t")
			if milliseconds, err = strconv.Atoi(took); err != nil {
				return nil, fmt.Errorf("count the starts of agents: %q: %w", line, err)
			}
		}
		fields := strings.Split(rest, "\t")
		if len(fields) != 3 {
			return nil, fmt.Errorf("count the starts of agents: %q has no program, argument and test", line)
		}
		arg, test := fields[1], cmp.Or(fields[2], "none")
		// The cache's own path may have an agent's name in it.
		below := ""
		for _, path := range fields[:2] {
			for _, d := range []string{dir, resolved} {
				if in, ok := strings.CutPrefix(path, d+string(filepath.Separator)); ok {
					below = in
				}
			}
		}
		if below == "" || strings.HasPrefix(below, programs.Folder+string(filepath.Separator)) {
			continue
		}
		took, starts := time.Duration(milliseconds)*time.Millisecond, 0
		switch {
		case event == "start" && asksOnly(arg):
			s.asked.starts++
		case event == "start":
			starts = 1
		}
		s.all = cost{s.all.starts + starts, s.all.took + took}
		s.agents.add(startedAgent(below), starts, took)
		s.tests.add(test, starts, took)
	}
	return s, nil
}

// asksOnly reports whether its first argument makes a program answer a question and
// end, before it is an agent: its version, its flags, whether its sandbox works here.
func asksOnly(arg string) bool {
	return slices.Contains([]string{"--version", "--help", "sandbox"}, arg)
}

// agentPrograms tells agents by a part of their program's path.
var agentPrograms = [][2]string{
	{"claude", "claude"},
	{"codex", "codex"},
	{"opencode", "opencode"},
	{"pi-coding-agent", "pi"},
	{"sourcegraph", "amp"},
	{"gemini", "gemini"},
	{"qwen", "qwen"},
	{"copilot", "copilot"},
}

// startedAgent is the agent that a line of the file of starts is about.
func startedAgent(line string) string {
	for _, p := range agentPrograms {
		if strings.Contains(line, p[0]) {
			return p[1]
		}
	}
	return "other"
}
