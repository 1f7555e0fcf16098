//go:build unix

package main

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// notifyResized tells c when the terminal has another size.
func notifyResized(c chan<- os.Signal) { signal.Notify(c, syscall.SIGWINCH) }

// signalNumber returns the number of a signal, 0 if there is none of that name.
func signalNumber(name string) int { return int(unix.SignalNum(name)) }
