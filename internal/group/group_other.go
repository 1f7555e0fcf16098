//go:build !unix

package group

import "os/exec"

func lead(*exec.Cmd) {}

// kill kills the command only: groups are not known here.
func kill(cmd *exec.Cmd) error { return cmd.Process.Kill() }
