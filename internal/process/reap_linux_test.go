package process

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Children of package os/exec are waited for by those who started them, and
// nobody else; orphans are reaped.
func TestReapOrphans(t *testing.T) {
	died := make(chan os.Signal, 1)
	signal.Notify(died, syscall.SIGCHLD)
	defer signal.Stop(died)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		ReapOrphans(died, stop)
	}()
	defer func() { close(stop); <-done }()
	p, err := Start(t.Context(), Spec{Path: "/bin/sh", Args: []string{"-c", "cat"}, Env: os.Environ()}) // makes this a subreaper
	if err != nil {
		t.Fatal(err)
	}
	defer func() { p.Stop(Ladder{}); _ = p.Stdout.Close() }()
	var users sync.WaitGroup
	for range 4 {
		users.Go(func() {
			for range 100 {
				if err := exec.CommandContext(context.Background(), "true").Run(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	users.Wait()
	// A child of a child whose parent goes at once, and which nobody marked.
	cmd := exec.CommandContext(t.Context(), "sh", "-c", "(sleep 0.05 & echo $!)")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(string(bytes.TrimSpace(out)))
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(20 * time.Second); syscall.Kill(pid, 0) == nil; {
		if time.Now().After(deadline) {
			t.Fatalf("nobody waited for %d", pid)
		}
		time.Sleep(10 * time.Millisecond) // nobody is told
	}
}

// Commands that are left running are found in other groups and as orphans; what runs in
// the process's own group is no command of it.
func TestCommands_AreThoseInGroupsOfTheirOwn(t *testing.T) {
	before := Now()
	p, err := Start(t.Context(), Spec{Path: "/bin/sh", Args: []string{"-c", "setsid sleep 1000 & (setsid sleep 1000 &); sleep 1000 & echo started; cat"}, Env: os.Environ()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { p.Stop(Ladder{}); _ = p.Stdout.Close() }()
	if _, err := p.Stdout.Read(make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); ; {
		starts := p.Commands()
		if len(starts) == 2 && starts[0] >= before && starts[1] >= before && starts[0] <= Now() {
			break
		}
		if time.Now().After(deadline) || len(starts) > 2 {
			t.Fatalf("commands started at %v, it is %d and was %d", starts, Now(), before)
		}
		goruntime.Gosched() // setsid takes a moment
	}
}

// A guard that is suspended does not keep the gateway from ending.
func TestStopGuard_Suspended(t *testing.T) {
	UseGuard(os.Args[0])
	defer UseGuard("")
	startGuard()
	if err := guard.process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	StopGuard()
}

// What a process and its children held is free when it is done: who starts the next one
// finds no lock and no port taken.
func TestDone_NothingIsHeld(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	lock, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Close() }()
	t.Setenv("TEST_LOCK", path)
	for range 5 {
		p, out := start(t, "heirs")
		if _, err := out.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		p.Stop(Ladder{})
		if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
			t.Fatalf("a child holds its lock after the end: %v", err)
		}
		if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_UN); err != nil {
			t.Fatal(err)
		}
	}
}

// A process that has no environment is not taken for one that is about to end, and is not waited for.
func TestMarked_WithoutAnEnvironment(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "sh", "-c", "echo started; read -r _")
	cmd.Env = []string{}
	in, err := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := errors.Join(err, err2, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	if pids, ending := marked(ProcessVar + "=nobody's"); slices.Contains(append(pids, ending...), cmd.Process.Pid) {
		t.Errorf("%d is among those that end: %v %v", cmd.Process.Pid, pids, ending)
	}
	_ = in.Close()
	_ = cmd.Wait()
}
