package process

import (
	"io"
	"os"
	"os/exec"
	"os/signal"
	goruntime "runtime"
	"sync"
	"syscall"
	"time"
)

// GuardArg is the first argument by which the gateway's binary runs as guard.
const GuardArg = "process-guard"

var guard struct {
	sync.Mutex
	program string         // "" when no guard is wanted
	pipe    io.WriteCloser // held open as long as the gateway lives; nil without a guard
	process *os.Process
	ended   chan struct{} // closed when the guard has ended, and was waited for
}

// UseGuard makes each start of a process also start program with
// [GuardArg], unless that runs: it waits until this process is gone and then ends everything
// that carries its mark. program's main function must call [RunGuard].
func UseGuard(program string) {
	guard.Lock()
	defer guard.Unlock()
	guard.program = program
}

func startGuard() {
	guard.Lock()
	defer guard.Unlock()
	if guard.program == "" {
		return
	}
	if guard.pipe != nil {
		select {
		case <-guard.ended: // somebody has killed it
			_ = guard.pipe.Close()
			guard.pipe = nil
		default:
			return
		}
	}
	cmd := guardCommand(guard.program)
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	cmd.SysProcAttr = apart()
	in, err := cmd.StdinPipe()
	if err != nil {
		return
	}
	if cmd.Start() != nil {
		return // ending children at our own death then rests on the death signal
	}
	claim(cmd.Process.Pid)
	ended := make(chan struct{})
	guard.pipe, guard.process, guard.ended = in, cmd.Process, ended
	go func() { // until the guard ends, which StopGuard sees to
		defer close(ended)
		_ = cmd.Wait()
		forget(cmd.Process.Pid)
	}()
}

// guardScript does what RunGuard does in a tenth of the memory, where there is a
// shell to run it.
const guardScript = `trap '' TERM INT HUP PIPE
read -r _
i=0
while [ $i -lt 50 ]; do
	found=
	for f in $(grep -lasF "$1" /proc/[0-9]*/environ); do
		found=1
		p=${f#/proc/}
		kill -KILL "${p%/environ}" 2>/dev/null
	done
	[ -n "$found" ] || exit 0
	i=$((i + 1))
done`

func guardCommand(program string) *exec.Cmd {
	const shell = "/bin/sh"
	_, shErr := os.Stat(shell)
	_, grepErr := exec.LookPath("grep")
	if goruntime.GOOS == "linux" && shErr == nil && grepErr == nil {
		return exec.Command(shell, "-c", guardScript, "sandbox-agent-guard", OwnerVar+"="+owner)
	}
	return exec.Command(program, GuardArg, owner)
}

// guardEnds is how long the guard may take to find that there is nothing left to end. One that somebody has
// suspended would take for ever.
const guardEnds = 3 * time.Second

// StopGuard ends the guard. Call it when every process was stopped.
func StopGuard() {
	guard.Lock()
	defer guard.Unlock()
	if guard.pipe == nil {
		return
	}
	process := guard.process
	_ = guard.pipe.Close()
	late := time.AfterFunc(guardEnds, func() { _ = process.Kill() })
	<-guard.ended
	late.Stop()
	guard.pipe = nil
}

// RunGuard is the guard's whole program: it returns when the process that
// started it is gone and nothing of it is left.
func RunGuard(mark string, stdin io.Reader) {
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGPIPE)
	_, _ = io.Copy(io.Discard, stdin)
	if mark != "" {
		killMarked(OwnerVar + "=" + mark)
	}
	os.Exit(0)
}
