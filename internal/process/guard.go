package process

import (
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
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
	pipe    io.WriteCloser // held open as long as the gateway lives
	process *os.Process
	stop    chan struct{} // closed by StopGuard; nil without a guard
	ended   chan struct{} // closed when the guard has ended behind that, and was waited for
}

// UseGuard makes the first start of a process also start program with
// [GuardArg]: it waits until this process is gone and then ends everything
// that carries its mark. program's main function must call [RunGuard]. A guard that
// ends is started again, until StopGuard.
func UseGuard(program string) {
	guard.Lock()
	defer guard.Unlock()
	guard.program = program
}

func startGuard() {
	guard.Lock()
	defer guard.Unlock()
	if guard.program == "" || guard.stop != nil {
		return
	}
	cmd := launchGuardLocked()
	if cmd == nil {
		return // ending children at our own death then rests on the death signal
	}
	guard.stop, guard.ended = make(chan struct{}), make(chan struct{})
	go keepGuard(cmd, guard.stop, guard.ended)
}

// launchGuardLocked starts the guard's process; nil when that fails.
func launchGuardLocked() *exec.Cmd {
	cmd := guardCommand(guard.program)
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	cmd.SysProcAttr = apart()
	in, err := cmd.StdinPipe()
	if err != nil || cmd.Start() != nil {
		return nil
	}
	claim(cmd.Process.Pid)
	guard.pipe, guard.process = in, cmd.Process
	return cmd
}

// A guard that ended sooner than guardSteady is started again after a pause, which grows up to guardPause.
const (
	guardSteady = 10 * time.Second
	guardPause  = time.Minute
)

// keepGuard waits for the guard, and starts it again when somebody has killed it, until stop is closed.
func keepGuard(cmd *exec.Cmd, stop <-chan struct{}, ended chan<- struct{}) {
	defer close(ended)
	var pause time.Duration
	for {
		began := time.Now()
		if cmd != nil {
			_ = cmd.Wait()
			forget(cmd.Process.Pid)
		}
		if time.Since(began) >= guardSteady {
			pause = 0
		}
		select {
		case <-stop:
			return
		case <-time.After(pause):
		}
		pause = min(max(2*pause, 100*time.Millisecond), guardPause)
		guard.Lock()
		select {
		case <-stop:
			guard.Unlock()
			return
		default:
			cmd = launchGuardLocked()
		}
		guard.Unlock()
	}
}

// guardScript does what RunGuard does in a tenth of the memory, where there is a
// shell to run it.
//
// $1 is the mark, $2 is grep.
const guardScript = `trap '' TERM INT HUP PIPE
read -r _
i=0
while [ $i -lt 50 ]; do
	found=
	for f in $("$2" -lasF "$1" /proc/[0-9]*/environ); do
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
	grep, grepErr := exec.LookPath("grep") // by its path, because the guard has another PATH
	if goruntime.GOOS == "linux" && shErr == nil && grepErr == nil && filepath.IsAbs(grep) {
		return exec.Command(shell, "-c", guardScript, "sandbox-agent-guard", OwnerVar+"="+owner, grep)
	}
	return exec.Command(program, GuardArg, owner)
}

// guardEnds is how long the guard may take to find that there is nothing left to end. One that somebody has
// suspended would take for ever.
const guardEnds = 3 * time.Second

// StopGuard ends the guard. Call it when every process was stopped.
func StopGuard() {
	guard.Lock()
	stop, ended, process := guard.stop, guard.ended, guard.process
	if stop != nil {
		close(stop)
		_ = guard.pipe.Close()
		guard.stop = nil
	}
	guard.Unlock()
	if stop == nil {
		return
	}
	late := time.AfterFunc(guardEnds, func() { _ = process.Kill() })
	<-ended
	late.Stop()
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
