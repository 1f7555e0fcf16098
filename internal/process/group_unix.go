//go:build unix

package process

import (
	"os/exec"
	"syscall"
)

// group is a process with all that it starts, as far as that stays in its process group.
type group struct{ leader int }

// take makes the group that of a process that was just started.
func (g *group) take(cmd *exec.Cmd) error {
	g.leader = cmd.Process.Pid
	return nil
}

func (g *group) signal(s syscall.Signal) error { return syscall.Kill(-g.leader, s) }

// resume has a stopped group go on: one that was stopped hears nothing else.
func (g *group) resume() { _ = g.signal(syscall.SIGCONT) }

func (g *group) kill() { _ = g.signal(syscall.SIGKILL) }

func (g *group) close() {}

// leadTerminal makes a process the leader of a session with its standard input as
// terminal. Such a leader leads a group already.
func leadTerminal(a *syscall.SysProcAttr) {
	a.Setpgid = false
	a.Setsid, a.Setctty, a.Ctty = true, true, 0
}

// apart spares a process what the terminal sends to the gateway's group.
func apart() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
