package process

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	goruntime "runtime"
	"syscall"
	"testing"
	"time"
)

// init is run by the first thread of a program, which ends here in a child that is asked for it; others live on, until its stdin ends.
func init() {
	if os.Getenv("TEST_CHILD") != "headless" {
		return
	}
	goruntime.LockOSThread()
	go func() {
		for !headless(os.Getpid()) { // nothing tells of a thread's end
			time.Sleep(time.Millisecond)
		}
		fmt.Println("ready")
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	_, _, _ = syscall.Syscall(syscall.SYS_EXIT, 0, 0, 0) // a raw one would keep the processor from the others
}

func headless(pid int) bool {
	f := stat(pid, nil)
	return f != nil && string(f[0]) == "Z" && !ended(f)
}

// A process whose first thread has ended lives as long as its others do, and is found by its environment as they are.
func TestKillMarked_FirstThreadEnded(t *testing.T) {
	const mark = "TEST_MARK=headless"
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, os.Args[0])
	c.Env = append(os.Environ(), "TEST_CHILD=headless", "GOMAXPROCS=1", mark)
	if _, err := c.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cancel(); _ = c.Wait() }()
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || !headless(c.Process.Pid) {
		t.Fatalf("%q, %v", line, err)
	}
	killMarked(mark)
	if headless(c.Process.Pid) {
		t.Error("it lives on")
	}
}
