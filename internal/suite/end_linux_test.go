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
// session of its own, and what no longer has the environment.
func TestEndAll(t *testing.T) {
	files(t, map[string]string{"sh": `
trap '' INT
setsid sleep 300 & echo $! >>pids
env -i /bin/sleep 300 & echo $! >>pids
(sleep 300 & echo $! >>pids)
echo $$ >>pids
sleep 300 & echo $! >>pids
wait; wait; wait; sleep 300
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
	for len(pids) < 5 {
		time.Sleep(10 * time.Millisecond)
		b, _ := os.ReadFile("pids")
		pids = strings.Fields(string(b))
	}
	cancel()
	endAll(mark, 200*time.Millisecond)
	if err := <-done; err == nil {
		t.Error("the program that was killed succeeded")
	}
	for _, p := range pids {
		stat, err := os.ReadFile("/proc/" + p + "/stat")
		if err == nil && !strings.Contains(string(stat), ") Z ") {
			t.Errorf("process %s is left: %s", p, stat)
			_ = syscall.Kill(must(strconv.Atoi(p)), syscall.SIGKILL)
		}
	}
}
