//go:build unix && !linux

package process

import (
	"os/exec"
	"syscall"
)

func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func startChild(cmd *exec.Cmd) error {
	startGuard()
	return cmd.Start()
}
