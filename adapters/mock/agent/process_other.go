//go:build !unix

package agent

import "syscall"

func detached() *syscall.SysProcAttr { return nil }
