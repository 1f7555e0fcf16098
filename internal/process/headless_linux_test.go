package process

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	goruntime "runtime"
	"syscall"
	"testing"
	"time"
)

// init is run by the first thread of a program, which ends here in a child that is asked for it; others live on.
func init() {
	if os.Getenv("TEST_CHILD") != "headless" {
		return
	}
	goruntime.LockOSThread()
	go func() {
		for !headless(os.Getpid()) {
			time.Sleep(time.Millisecond)
		}
		fmt.Println("ready")
		time.Sleep(time.Hour)
	}()
	_, _, _ = syscall.RawSyscall(syscall.SYS_EXIT, 0, 0, 0)
}

func headless(pid int) bool {
	f := stat(pid, nil)
	return f != nil && string(f[0]) == "Z" && !ended(f)
}

// A process whose first thread has ended lives as long as its others do, and is found by its environment as they are.
func TestKillMarked_FirstThreadEnded(t *testing.T) {
	const mark = "TEST_MARK=headless"
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), "TEST_CHILD=headless", mark)
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || !headless(c.Process.Pid) {
		t.Fatalf("%q, %v", line, err)
	}
	killMarked(mark)
	if headless(c.Process.Pid) {
		t.Error("it lives on")
	}
}
