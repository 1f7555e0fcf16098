//go:build countstarts

package process

import (
	"fmt"
	"os"
	"strings"
)

// StartsVar names the file that gets two lines for each process. When it starts:
// "start", its program and its first argument. When it has ended: "end", the
// milliseconds of processor time that it and its children took, its program, its
// first argument and its folder. Only programs that are built with the tag
// countstarts write it; the run of all tests counts with it what real agents cost.
const StartsVar = "SANDBOX_AGENT_TEST_STARTS"

func countStart(p *Process) {
	countLine("start\t" + strings.Join(p.cmd.Args[:min(2, len(p.cmd.Args))], "\t"))
}

func countEnd(p *Process) {
	state := p.cmd.ProcessState
	took := state.UserTime() + state.SystemTime()
	countLine(fmt.Sprintf("end\t%d\t%s\t%s", took.Milliseconds(), strings.Join(p.cmd.Args[:min(2, len(p.cmd.Args))], "\t"), p.cmd.Dir))
}

func countLine(line string) {
	path := os.Getenv(StartsVar)
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
