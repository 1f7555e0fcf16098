//go:build unix

package main_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// What is asked for a node as soon as the hub is back waits for it. What was run through the hub has ended with it, and its client
// is told so.
func TestRestarted_AtOnce(t *testing.T) {
	f := startHub(t)
	f.startNode("box", "")
	file := filepath.Join(t.TempDir(), "pid")
	run := make(chan string, 1)
	go func() {
		out, err := f.agent("box", f.admin, "process", "run", "--", "sh", "-c", "echo $$ >"+file+".new && mv "+file+".new "+file+" && sleep 1000")
		run <- fmt.Sprint(err, "\n", out)
	}()
	var pid int
	for deadline := time.Now().Add(patience); pid == 0 && time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		b, _ := os.ReadFile(file) // it may not be there yet
		pid, _ = strconv.Atoi(strings.TrimSpace(string(b)))
	}
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		f.kill(sig)
		f.start()
		if out, err := f.agent("box", f.admin, "process", "run", "--", "echo", "ran"); err != nil || !strings.Contains(out, "ran") {
			t.Errorf("when it was ended by %v: %v\n%s", sig, err, out)
		}
	}
	if out := <-run; !strings.Contains(out, "is ended with it") {
		t.Errorf("what was run: %s", out)
	}
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("process %d runs on: %v", pid, err)
	}
}
