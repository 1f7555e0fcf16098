package main

import (
	"context"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// What a run started ends with it: also what ignores the interrupt, what has a
// session of its own, what no longer has the environment, and a process whose first thread has ended.
func TestEndAll(t *testing.T) {
	files(t, map[string]string{"sh": `
trap '' INT
setsid sleep 300 & echo $! >>pids
env -i /bin/sleep 300 & echo $! >>pids
(sleep 300 & echo $! >>pids)
(python3 headless.py &)
echo $$ >>pids
sleep 300 & echo $! >>pids
wait; wait; wait; sleep 300
`, "headless.py": `
import ctypes, os, threading, time
def live():
    while ") Z " not in open("/proc/self/stat").read():
        time.sleep(0.001)
    with open("pids", "a") as f:
        print(os.getpid(), file=f)
    time.sleep(300)
threading.Thread(target=live).start()
ctypes.CDLL(None).pthread_exit(None)
`})
	mark := "TEST_RUN=" + strconv.Itoa(os.Getpid())
	t.Setenv("TEST_RUN", strconv.Itoa(os.Getpid()))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := new(suite).command(ctx, ".", nil, "sh", "sh")
		done <- err
	}()
	var pids []string
	for late := time.After(time.Minute); len(pids) < 6; {
		select {
		case err := <-done:
			t.Fatalf("the program has ended, and %d processes run: %v", len(pids), err)
		case <-late:
			t.Fatalf("%d of 6 processes run", len(pids))
		case <-time.After(10 * time.Millisecond):
		}
		b, _ := os.ReadFile("pids")
		pids = strings.Fields(string(b))
	}
	cancel()
	endAll(mark, 200*time.Millisecond)
	if err := <-done; err == nil {
		t.Error("the program that was killed succeeded")
	}
	for _, p := range pids {
		if stat := living(p); stat != nil {
			t.Errorf("process %s is left: %s", p, stat)
			_ = syscall.Kill(must(strconv.Atoi(p)), syscall.SIGKILL)
		}
	}
}

// What a run leaves that ends by itself is told and ended.
func TestEndMarked_TellsWhatIsLeft(t *testing.T) {
	id := strconv.Itoa(os.Getpid())
	t.Setenv("TEST_RUN", id)
	t.Chdir(t.TempDir())
	var out strings.Builder
	s := suite{out: &out}
	end := s.endMarked(t.Context(), "TEST_RUN="+id, time.Minute)
	if _, err := s.command(t.Context(), ".", nil, "sh", "-c", "setsid sleep 300 >/dev/null 2>&1 & echo $! >pid"); err != nil {
		t.Fatal(err)
	}
	pid := strings.TrimSpace(string(must(os.ReadFile("pid"))))
	end()
	if want := "left by the run, and ended: " + pid + " sleep 300\n"; out.String() != want {
		t.Errorf("it says %q, want %q", out.String(), want)
	}
	if stat := living(pid); stat != nil {
		t.Errorf("process %s is left: %s", pid, stat)
		_ = syscall.Kill(must(strconv.Atoi(pid)), syscall.SIGKILL)
	}
}
