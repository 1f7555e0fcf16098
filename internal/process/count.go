package process

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"sync"
)

// startsVar is the variable of the environment that names the file which gets two lines for each process. When it starts:
// "start", its program, its first argument and its test. When it has ended: "end", the milliseconds of processor time
// that it and its children took, and the same. It is empty, and nothing is written, except in programs that are linked
// with another value: the run of all tests does so, and counts what real agents cost. What is compiled is the same.
var startsVar string

func countStart(p *Process) {
	if startsVar != "" {
		countLine("start\t" + named(p))
	}
}

func countEnd(p *Process) {
	if startsVar == "" {
		return
	}
	state := p.cmd.ProcessState
	took := state.UserTime() + state.SystemTime()
	countLine(fmt.Sprintf("end\t%d\t%s", took.Milliseconds(), named(p)))
}

// named tells a process by its program, its first argument and its test.
func named(p *Process) string {
	arg := ""
	if len(p.cmd.Args) > 1 {
		arg = p.cmd.Args[1]
	}
	return p.cmd.Args[0] + "\t" + arg + "\t" + testOf(p)
}

// folder is one that a test was given for its files; it bears the test's name.
var folder = sync.OnceValue(folderPattern)

func folderPattern() *regexp.Regexp { return regexp.MustCompile(`/(Test[^/]*?)\d{5,}/\d{3}(/|$)`) }

// testOf returns the name of the test in whose folders a process works or has its
// home, without slashes; "" when it has none.
func testOf(p *Process) string {
	env := p.cmd.Env
	if env == nil {
		env = os.Environ()
	}
	for _, text := range slices.Concat([]string{p.cmd.Dir}, env) {
		if m := folder().FindStringSubmatch(text); m != nil {
			return m[1]
		}
	}
	return ""
}

func countLine(line string) {
	path := os.Getenv(startsVar)
	if path == "" {
		return
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return
	}
	defer f.Close()
	_, _ = f.WriteString(line + "\n")
}
