package adaptertest

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters"
)

// awaitEnd waits until reading has ended and returns why.
func (c *client) awaitEnd() error {
	c.t.Helper()
	limit := time.NewTimer(c.s.Patience)
	defer limit.Stop()
	select {
	case <-c.ended:
	case <-limit.C:
		c.fatalf("reading did not end in time")
	}
	return c.end
}

// crashFailsPending: when the process ends, reading fails at once and for good
// with an error that says how it ended.
func (s *suite) crashFailsPending(t testing.TB) {
	c, id := s.ready(t)
	p := c.begin(id, s.Prompts.Crash.Text)
	err := c.awaitEnd()
	exit, ok := errors.AsType[*adapters.ExitError](err)
	if !ok {
		c.fatalf("reading ended with %v, want an ExitError", err)
	}
	if exit.Code != s.Crash.Code {
		c.fatalf("the exit code is %d, want %d", exit.Code, s.Crash.Code)
	}
	if !strings.Contains(exit.Stderr.Tail, s.Crash.Stderr) {
		c.fatalf("stderr ends with %q, want %q in it", exit.Stderr.Tail, s.Crash.Stderr)
	}
	for _, m := range c.between(p.from, c.seen()) {
		if m.IsResponse() && m.ID() == p.id && m.Err() == nil {
			c.fatalf("the prompt was answered with %s", m.Result())
		}
	}
	if u, ok := c.conn.(adapters.Untaker); ok && u.Untaken(string(id)) {
		c.fatalf("the prompt that the process died of counts as one that it did not get")
	}
	err = c.within("Read", func() error {
		_, err := c.conn.Read(c.ctx)
		return err
	})
	if err == nil || errors.Is(err, errPatience) {
		c.fatalf("reading again: %v, want an error", err)
	}
	s.crashed = id
	s.drop(t)
}

// closeIdempotent: Close may be called in the middle of a turn, by several at
// once and again, ends what waits, and fails writes from then on.
func (s *suite) closeIdempotent(t testing.TB) {
	c, id := s.ready(t)
	s.spawn(c, id)
	c.begin(id, s.Prompts.Run.Text).started()
	const closers = 3
	err := c.within("Close", func() error {
		var all sync.WaitGroup
		failed := make(chan error, closers)
		for range closers {
			all.Go(func() { failed <- c.conn.Close() })
		}
		all.Wait()
		close(failed)
		var errs []error
		for err := range failed {
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	})
	if err != nil {
		c.fatalf("closing from %d goroutines: %v", closers, err)
	}
	_ = c.awaitEnd() // any error will do
	if err := c.within("Close", c.conn.Close); err != nil {
		c.fatalf("closing again: %v", err)
	}
	err = c.within("Write", func() error { return c.conn.Write(c.ctx, acp.NewRequest(c.nextID(), methodProbe, nil)) })
	if err == nil || errors.Is(err, errPatience) {
		c.fatalf("writing after Close: %v, want an error", err)
	}
	s.drop(t)
}

// spawned is what a connection had started before it was closed.
type spawned struct {
	all        map[process]bool
	least      int           // how many there must be
	own        *process      // the agent's own; nil if the connection does not tell
	goroutines goleak.Option // those that ran before; nil if they cannot be told from others
}

// spawn has the agent start a process that outlives the agent's own, and notes what
// close-leaves-no-process looks for behind the connection's end.
func (s *suite) spawn(c *client, id schema.SessionID) {
	c.t.Helper()
	if !proc.known() || s.Skip["close-leaves-no-process"] != "" {
		return
	}
	got := &spawned{least: 1}
	if s.Prompts.Spawn.Text != "" {
		c.prompt(id, s.Prompts.Spawn)
	}
	got.all = proc.descendants(os.Getpid())
	maps.DeleteFunc(got.all, func(p process, _ bool) bool { return c.before[p] })
	if conn, ok := c.conn.(adapters.Process); ok {
		own, _ := proc.find(conn.PID())
		got.own = &own
		if got.all[own] {
			// Another test may have started the others.
			got.all = proc.descendants(own.pid)
			got.all[own] = true
		}
		if s.Prompts.Spawn.Text != "" {
			got.least = 2
		}
	}
	if s.shares > 1 { // what starts once and for all came with the first one
		got.goroutines = c.goroutines
	}
	s.spawned = got
}

// closeLeavesNoProcess: after Close nothing runs that the connection started,
// be it in a session of its own. The connection is that of close-idempotent.
func (s *suite) closeLeavesNoProcess(t testing.TB) {
	if !proc.known() {
		t.Skip("processes cannot be listed on this system")
	}
	if s.spawned == nil { // close-idempotent was skipped, or did not come so far
		c, id := s.ready(t)
		c.prompt(id, s.Prompts.Say)
		s.spawn(c, id)
		s.drop(t)
	}
	started := s.spawned
	if started.own != nil && !started.all[*started.own] {
		t.Fatalf("the connection's process %d is not among those that were started: %v", started.own.pid, started.all)
	}
	if len(started.all) < started.least {
		t.Fatalf("%d processes were started, want at least %d", len(started.all), started.least)
	}
	for p := range started.all {
		if now, alive := proc.find(p.pid); alive && now == p {
			t.Errorf("process %d is left: %s", p.pid, proc.command(p.pid))
		}
	}
	if started.goroutines != nil && s.Skip["no-goroutine-left"] == "" {
		s.goroutines, s.looked = goleak.Find(started.goroutines), true
	}
}

// openContext: the context of Open bounds Open and nothing else.
func (s *suite) openContext(t testing.TB) {
	c, id := s.ready(t)
	c.bound()
	c.prompt(id, s.Prompts.Say)

	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	cancel()
	conn, err := s.Adapter.Open(ctx, adapters.Options{StateDir: filepath.Join(t.TempDir(), "state"), Logger: discard})
	if err == nil {
		_ = conn.Close()
		c.fatalf("Open succeeded although its context had ended")
	}
}

// noGoroutineLeft: Close has waited for everything the connection runs. The
// connection is that of close-leaves-no-process if it was not the first one.
func (s *suite) noGoroutineLeft(t testing.TB) {
	if !s.looked {
		use := func() {
			c := s.open(t)
			c.initialize()
			c.prompt(c.newSession(), s.Prompts.Say)
			c.close()
		}
		use() // what starts once and for all is started now
		before := goleak.IgnoreCurrent()
		use()
		s.goroutines = goleak.Find(before)
	}
	if s.goroutines != nil {
		t.Errorf("after Close: %v", s.goroutines)
	}
}

// everyFrameValid: whatever the agent sent in all contracts is valid.
func (s *suite) everyFrameValid(t testing.TB) {
	if s.shared != nil || !s.heard() {
		c, id := s.ready(t)
		c.prompt(id, s.Prompts.Say)
		s.drop(t)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.frames == 0 {
		t.Errorf("no frame was seen")
	}
	for _, v := range s.violations {
		t.Error(v)
	}
}

// heard reports whether an agent has sent anything.
func (s *suite) heard() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.frames > 0
}
