//go:build unix

package install

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/acp/problem"
)

func TestNPM_CancelKillsItsChildren(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "pid")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	useNPM(t, fmt.Sprintf("trap '' TERM\nsleep 1000 &\necho $! > %s\nwait\nwait\n", fifo), "")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := newMaker(t).installer(t, Options{Sources: []Source{NPM}}).Install(ctx, Request{Agent: "codex"})
		done <- err
	}()
	pid, err := strconv.Atoi(strings.TrimSpace(readFile(t, fifo))) // waits for the child
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	cancel()
	err = <-done
	wantProblem(t, err, problem.InstallFailed, "context canceled")
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v does not unwrap to the cancellation", err)
	}
	if d := time.Since(began); d > 20*time.Second {
		t.Errorf("cancelling took %s", d)
	}
	// A zombie is dead; who reaps orphans is the program's business.
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if !errors.Is(err, fs.ErrNotExist) && !strings.Contains(string(stat), ") Z ") {
		t.Errorf("npm's child %d is still there: %s, %v", pid, stat, err)
	}
}
