// Command doublefork leaves processes behind as a daemon does: each in a session
// of its own, with a parent that has ended and an environment without any mark.
//
//	doublefork FIFO   leaves one process that ignores signals and never ends, and
//	                  one that ends with what is written to FIFO; then it is done
//
// Under the name sleep it only waits, for systems that have no such program.
package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
)

func main() {
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	if filepath.Base(os.Args[0]) == "sleep" {
		wait()
	}
	var err error
	switch role, fifo := os.Args[1], os.Args[len(os.Args)-1]; role {
	case "fork": // the first child: it starts the second one and ends
		err = again(false, os.Args[2:]...)
	case "stay":
		wait()
	case "read":
		var f *os.File
		if f, err = os.Open(fifo); err == nil {
			_, err = io.Copy(io.Discard, f)
		}
	default:
		if err = again(true, "fork", "stay"); err == nil {
			err = again(true, "fork", "read", fifo)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "doublefork:", err)
		os.Exit(1)
	}
}

// again runs this program in a session of its own with nothing of ours open.
func again(wait bool, args ...string) error {
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Env = []string{}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if wait {
		return cmd.Run()
	}
	return cmd.Start()
}

func wait() {
	for {
		_ = syscall.Pause() // until a signal that is not ignored
	}
}
