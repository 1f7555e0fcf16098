package bridge_test

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"sync"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
	"sandboxagent.dev/sandbox-agent/internal/process"
)

func shell(script string) process.Spec {
	return process.Spec{Path: "/bin/sh", Args: []string{"-c", script}, Env: os.Environ()}
}

func TestOutput(t *testing.T) {
	out, err := bridge.Output(t.Context(), shell("read x; echo one; echo two >&2; echo three"))
	if out != "one\nthree\n" || err != nil {
		t.Errorf("%q, %v", out, err)
	}
	out, err = bridge.Output(t.Context(), shell("echo so far; echo why >&2; exit 3"))
	if exit, ok := errors.AsType[*adapters.ExitError](err); !ok || exit.Code != 3 || exit.Stderr.Tail != "why" || out != "so far\n" {
		t.Errorf("%q, %v", out, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := bridge.Output(ctx, shell("trap '' TERM; echo begun; sleep 1000")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a program without end: %v", err)
	}
	if _, err := bridge.Output(t.Context(), process.Spec{Path: "/no/such/program"}); err == nil {
		t.Error("a program that is not there ran")
	}
}

// TestOutput_IsNotReapedByOthers: the gateway reaps the children of whom nobody
// says that he waits for them.
func TestOutput_IsNotReapedByOthers(t *testing.T) {
	signals, stop := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(signals, process.ChildEnded)
	var reaper, runs sync.WaitGroup
	reaper.Go(func() { process.ReapOrphans(signals, stop) })
	for range 8 {
		runs.Go(func() {
			for range 20 {
				if out, err := bridge.Output(t.Context(), shell("echo here")); out != "here\n" || err != nil {
					t.Errorf("%q, %v", out, err)
				}
			}
		})
	}
	runs.Wait()
	signal.Stop(signals)
	close(stop)
	reaper.Wait()
}
