// Package group runs programs that start others, so that all of them end together. It is for the tools of this
// repository; the gateway has internal/process.
package group

import "os/exec"

// Run runs a command that ends with its context, in a process group of its own. What is left of the group is killed when
// the context ends, and when the command has ended. What left the group lives on: with a WaitDelay it does not hold Run
// by a stream that it keeps open.
func Run(cmd *exec.Cmd) error {
	lead(cmd)
	cmd.Cancel = func() error { return kill(cmd) }
	if err := cmd.Start(); err != nil {
		return err
	}
	err := cmd.Wait()
	_ = kill(cmd)
	return err
}
