//go:build unix

package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sandboxagent.dev/sandbox-agent/internal/claim"
)

// A daemon that lets go of its data directory by no signal is not waited for without end, and not by who has had enough.
func TestDaemon_StopOfWhatDoesNotEnd(t *testing.T) {
	program := exec.Command(os.Args[0], "-test.run=^$") // whose number stays its own until it is waited for
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = program.Wait() }()
	pid := program.Process.Pid
	d := &daemon{dataDir: t.TempDir()}
	lock, err := os.Create(filepath.Join(d.dataDir, "lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if _, err := lock.WriteString(strconv.Itoa(pid)); err != nil {
		t.Fatal(err)
	}
	if err := claim.File(lock); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		if err := d.stop(t.Context(), &daemonState{PID: pid}, daemonStopBound); err == nil || !strings.Contains(err.Error(), "process "+strconv.Itoa(pid)+" does not end") {
			t.Errorf("%v", err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(daemonFrozenBound+daemonPoll*5/2, func() { cancel(errInterrupted) }) // when it was killed
		if err := d.stop(ctx, &daemonState{PID: pid}, daemonFrozenBound); !errors.Is(err, errInterrupted) {
			t.Errorf("%v", err)
		}
	})
}
