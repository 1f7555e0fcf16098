package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/adapters/all"
)

// The gateways of these tests run in the test's own process, and their mock
// agents are the test binary.
func init() {
	if code, ok := all.RunChild(os.Args[1:]); ok {
		os.Exit(code)
	}
}

// patience bounds what would otherwise wait for ever: on a slow machine that does other work, too, a
// start of an agent can take half a minute.
const patience = 2 * time.Minute

// screen is an output that can be read while it is written to.
type screen struct {
	mu   sync.Mutex
	b    bytes.Buffer
	more chan struct{} // holds a token after a write
}

func newScreen() *screen { return &screen{more: make(chan struct{}, 1)} }

func (s *screen) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.b.Write(b)
	select {
	case s.more <- struct{}{}:
	default:
	}
	return len(b), nil
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// await waits until pattern is on the screen and returns its first match.
func (s *screen) await(t *testing.T, pattern string) string {
	t.Helper()
	re := regexp.MustCompile(pattern)
	limit := time.After(patience)
	for {
		if m := re.FindString(s.String()); m != "" {
			return m
		}
		select {
		case <-s.more:
		case <-limit:
			t.Fatalf("%s did not appear in:\n%s", pattern, s)
		}
	}
}

// start runs the server command until the test ends and returns its address.
func start(t *testing.T, args ...string) (url string, log *screen) {
	t.Helper()
	for _, name := range []string{"ENDPOINT", "TOKEN", "TOKEN_FILE"} {
		if os.Getenv("SANDBOX_AGENT_"+name) != "" {
			t.Setenv("SANDBOX_AGENT_"+name, "")
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	log = newScreen()
	done := make(chan int, 1)
	if !slices.Contains(args, "--data-dir") {
		args = append(args, "--ephemeral")
	}
	go func() {
		done <- run(ctx, append([]string{"server", "--port", "0"}, args...), stdio{in: strings.NewReader(""), out: io.Discard, err: log})
	}()
	t.Cleanup(func() {
		cancel()
		if code := <-done; code != 0 {
			t.Errorf("the server ended with %d:\n%s", code, log)
		}
	})
	return log.await(t, `https?://[\w.\[\]:]+:\d+`), log
}

// tool runs a command and returns what it wrote.
func tool(t *testing.T, stdin string, args ...string) (code int, out, errOut string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	o, e := newScreen(), newScreen()
	code = run(ctx, args, stdio{in: strings.NewReader(stdin), out: o, err: e})
	return code, o.String(), e.String()
}
