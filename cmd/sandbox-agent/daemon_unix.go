//go:build unix

package main

import "syscall"

// detached keeps a child from the terminal and the signals of this program.
func detached() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
