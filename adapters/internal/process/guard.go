package process

import (
	"io"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
)

// GuardArg is the first argument by which the gateway's binary runs as guard.
const GuardArg = "process-guard"

var guard struct {
	sync.Mutex
	program string         // "" when no guard is wanted
	pipe    io.WriteCloser // held open as long as the gateway lives
	cmd     *exec.Cmd
}

// UseGuard makes the first start of a process also start program with
// [GuardArg]: it waits until this process is gone and then ends everything
// that carries its mark. program's main function must call [RunGuard].
func UseGuard(program string) {
	guard.Lock()
	defer guard.Unlock()
	guard.program = program
}

func startGuard() {
	guard.Lock()
	defer guard.Unlock()
	if guard.program == "" || guard.pipe != nil {
		return
	}
	cmd := exec.Command(guard.program, GuardArg, owner)
	cmd.Env = []string{"GODEBUG=madvdontneed=1"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // a signal for the terminal's group spares it
	in, err := cmd.StdinPipe()
	if err != nil {
		return
	}
	if cmd.Start() != nil {
		return // ending children at our own death then rests on the death signal
	}
	claim(cmd.Process.Pid)
	guard.pipe, guard.cmd = in, cmd
}

// StopGuard ends the guard. Call it when every process was stopped.
func StopGuard() {
	guard.Lock()
	defer guard.Unlock()
	if guard.pipe == nil {
		return
	}
	_ = guard.pipe.Close()
	_ = guard.cmd.Wait()
	forget(guard.cmd.Process.Pid)
	guard.pipe, guard.cmd = nil, nil
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
