package process

import (
	"context"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"sandboxagent.dev/sandbox-agent/internal/process"
)

// whenTaken has this program wait until all was read that stands in the pipe of a number.
const whenTaken = "when-taken"

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == whenTaken {
		if err := awaitTaken(os.Args[2]); err != nil {
			panic(err)
		}
		return
	}
	// As the gateway does: what a program left belongs to nobody else.
	died := make(chan os.Signal, 1)
	signal.Notify(died, process.ChildEnded)
	go process.ReapOrphans(died, nil)
	// The thread that starts processes lives as long as the program.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("sandboxagent.dev/sandbox-agent/internal/process.ReapOrphans"),
		goleak.IgnoreTopFunction("os/signal.signal_recv"), goleak.IgnoreTopFunction("os/signal.loop"), goleak.IgnoreAnyFunction("sandboxagent.dev/sandbox-agent/internal/process.startAll"))
}

// service returns a service that has ended everything when the test ends.
func service(t *testing.T, change ...func(*Limits)) *Service {
	t.Helper()
	l := DefaultLimits()
	l.StopMs = 300
	for _, f := range change {
		f(&l)
	}
	s, err := New(Options{Limits: l})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Close(context.Background())
		waitFor(t, func() bool { return len(zombies(t)) == 0 })
	})
	return s
}

// zombies are the children of this process that nobody has waited for.
func zombies(t *testing.T) []string {
	t.Helper()
	var out []string
	names, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		rest := strings.Fields(string(b)[strings.LastIndexByte(string(b), ')')+1:])
		if len(rest) > 1 && rest[0] == "Z" && rest[1] == strconv.Itoa(os.Getpid()) {
			out = append(out, string(b))
		}
	}
	return out
}

func shell(line string) Spec { return Spec{Command: "sh", Args: []string{"-c", line}, Dir: "/"} }

func start(t *testing.T, s *Service, spec Spec) *Process {
	t.Helper()
	p, err := s.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// await reads a process's output until it holds text, and returns all of it.
func await(t *testing.T, p *Process, text string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var got strings.Builder
	for after := uint64(0); ; {
		part := p.Output(after, 1<<20)
		for _, c := range part.Chunks {
			got.Write(c.Data)
		}
		after = part.Next
		if text != "" && strings.Contains(got.String(), text) {
			return got.String()
		}
		if part.Ended {
			if text != "" {
				t.Fatalf("the output ended without %q: %q", text, got.String())
			}
			return got.String()
		}
		select {
		case <-part.More:
		case <-ctx.Done():
			t.Fatalf("no %q in %q", text, got.String())
		}
	}
}

func send(t *testing.T, p *Process, text string) {
	t.Helper()
	if _, err := p.Write(t.Context(), []byte(text), false); err != nil {
		t.Fatal(err)
	}
}

func ended(t *testing.T, p *Process) Info {
	t.Helper()
	select {
	case <-p.Done():
	case <-time.After(time.Minute):
		t.Fatal("the process does not end")
	}
	return p.Info()
}

func wantCode(t *testing.T, err error, c Code) {
	t.Helper()
	e, ok := err.(*Error)
	if !ok || e.Code != c {
		t.Errorf("error %v, want one of code %d", err, c)
	}
}

// gone waits until a process is gone.
func gone(t *testing.T, pid string) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for {
		b, err := os.ReadFile("/proc/" + strings.TrimSpace(pid) + "/stat")
		if err != nil || strings.Contains(string(b), ") Z ") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("process %s is still there: %s", pid, b)
		}
		time.Sleep(5 * time.Millisecond) // nobody tells of processes that are not ours
	}
}
