package agents

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/internal/memory"
	"sandboxagent.dev/sandbox-agent/runtime/observe"
)

// quick is an agent that answers initialize and nothing else. What Open and Close do
// can be replaced. It takes no message of the method unread, and its process ends with exit.
type quick struct {
	open   func(ctx context.Context) error
	close  func()
	unread string
	exit   error
	shelf  *shelf // has its program; nil when it needs none
	mu     sync.Mutex
	n      int
	last   string // path of the program that it was opened with last
}

// shelf is an installer that has every version of a program, and one of them in use.
type shelf struct{ inUse string }

func (s *shelf) Find(_, version string) (adapters.Program, bool) {
	version = cmp.Or(version, s.inUse)
	return adapters.Program{Path: "/agents/quick/" + version, Version: version}, version != ""
}

func (s *shelf) Install(context.Context, string, string, func(adapters.InstallProgress)) (adapters.Program, error) {
	return adapters.Program{}, errors.ErrUnsupported
}

func (s *shelf) Keep(context.Context, adapters.Program) func() { return func() {} }

func (a *quick) Info() adapters.Info {
	if a.shelf != nil {
		return adapters.Info{ID: "quick", Program: "quick"}
	}
	return adapters.Info{ID: "quick"}
}

func (a *quick) Open(ctx context.Context, o adapters.Options) (acp.Conn, error) {
	a.mu.Lock()
	a.n++
	a.last = o.Program.Path
	a.mu.Unlock()
	if a.open != nil {
		if err := a.open(ctx); err != nil {
			return nil, err
		}
	}
	return &quickConn{a: a, out: make(chan acp.Message, 8), end: make(chan struct{})}, nil
}

func (a *quick) opened() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.n
}

type quickConn struct {
	a    *quick
	out  chan acp.Message
	end  chan struct{}
	once sync.Once
}

func (c *quickConn) Read(context.Context) (acp.Message, error) {
	select {
	case m := <-c.out:
		return m, nil
	case <-c.end:
		if c.a.exit != nil {
			return acp.Message{}, c.a.exit
		}
		return acp.Message{}, io.EOF
	}
}

func (c *quickConn) Write(_ context.Context, m acp.Message) error {
	if c.a.unread == m.Method() {
		return syscall.EPIPE
	}
	if m.Method() == acp.MethodInitialize {
		c.out <- acp.NewResult(m.ID(), []byte(`{}`))
	}
	return nil
}

func (c *quickConn) Close() error {
	if c.a.close != nil {
		c.a.close()
	}
	c.once.Do(func() { close(c.end) })
	return nil
}

// inSet runs f with the agents of a.
func inSet(t *testing.T, a *quick, f func(t *testing.T, set *Set, agent *Agent)) {
	synctest.Test(t, func(t *testing.T) {
		var tasks Tasks
		var programs adapters.Installer
		if a.shelf != nil {
			programs = a.shelf
		}
		set, err := NewSet(Options{
			Adapters: []adapters.Adapter{a}, Observer: observe.Nobody{}, Logger: slog.New(slog.DiscardHandler), Tasks: &tasks, RequestTimeout: time.Minute, Memory: memory.NewBound(0),
			Connection: func(*Process, *acp.Message) {}, Ended: func(*Process) {}, Installer: programs,
		})
		if err != nil {
			t.Fatal(err)
		}
		f(t, set, set.Find("quick"))
		if err := set.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if err := tasks.Wait(t.Context()); err != nil {
			t.Error(err)
		}
		if n := len(set.Find("quick").all()); n != 0 {
			t.Errorf("%d processes are left", n)
		}
	})
}

var needs = Needs{Capabilities: []byte("{}")}

// A process can be dead before it is written to: whoever asked it learns how it died, not that
// its input is closed.
func TestProcess_DiesBeforeItReads(t *testing.T) {
	died := &adapters.ExitError{Code: 3, Stderr: adapters.Stderr{Tail: "cannot open config", TotalLines: 1}}
	for _, method := range []string{acp.MethodInitialize, acp.MethodSessionNew} {
		t.Run(method, func(t *testing.T) {
			inSet(t, &quick{unread: method, exit: died}, func(t *testing.T, _ *Set, a *Agent) {
				p, err := a.Process(t.Context(), needs)
				if err == nil {
					_, err = p.Ask(t.Context(), acp.MethodSessionNew, []byte("{}"))
					p.Release()
				}
				if exit, ok := errors.AsType[*adapters.ExitError](err); !ok || exit != died {
					t.Errorf("%v, want how the process died", err)
				}
			})
		})
	}
}

// A process that answers initialize and dies at its login, which it is given before anything
// else, has not started: who waits for it is told how it died, and the next start is delayed.
func TestProcess_DiesBehindInitialize(t *testing.T) {
	died := &adapters.ExitError{Code: 4, Stderr: adapters.Stderr{Tail: "the key is damaged", TotalLines: 1}}
	agent := &quick{unread: acp.MethodAuthenticate, exit: died}
	inSet(t, agent, func(t *testing.T, _ *Set, a *Agent) {
		a.LoggedIn(acp.MethodAuthenticate, []byte(`{"methodId":"key"}`), nil)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		agent.open = func(context.Context) error {
			if agent.opened() > 2 {
				cancel()
			}
			return nil
		}
		for starts := 1; starts <= 2; starts++ {
			began := time.Now()
			_, err := a.Process(ctx, needs)
			if exit, ok := errors.AsType[*adapters.ExitError](err); !ok || exit != died {
				t.Errorf("%v, want how the process died", err)
			}
			if n := agent.opened(); n != starts {
				t.Errorf("%d starts, want %d", n, starts)
			}
			if starts > 1 && time.Since(began) < backoffFirst {
				t.Errorf("the next start is made after %v", time.Since(began))
			}
		}
		if got := a.Describe().LastError; !strings.Contains(got, "code 4") {
			t.Errorf("the last failure is %q", got)
		}
	})
}

// Who needs a process when another version is in use gets one of that version. Those who have
// the other keep it, and who names a version is not concerned.
func TestProcess_ProgramReplaced(t *testing.T) {
	agent := &quick{shelf: &shelf{inUse: "1"}}
	inSet(t, agent, func(t *testing.T, set *Set, a *Agent) {
		process := func(n Needs, starts int, program string) *Process {
			t.Helper()
			p, err := a.Process(t.Context(), n)
			if err != nil {
				t.Fatal(err)
			}
			if agent.opened() != starts || agent.last != "/agents/quick/"+program {
				t.Errorf("%d starts, the last of %s; want %d, of %s", agent.opened(), agent.last, starts, program)
			}
			return p
		}
		named := needs
		named.Version = "1"
		one := process(needs, 1, "1")
		process(needs, 1, "1").Release()
		other := process(named, 2, "1")
		agent.shelf.inUse = "2"
		if one.TakesNew() || !other.TakesNew() {
			t.Errorf("of the old program takes sessions: %t, of the named one: %t", one.Takes(), other.Takes())
		}
		two := process(needs, 3, "2")
		process(named, 3, "2").Release() // none was started
		agent.shelf.inUse = ""           // it is removed: what runs goes on
		process(needs, 3, "2").Release()
		one.Release()
		time.Sleep(2 * linger)
		set.EndUnused()
		synctest.Wait()
		if one.Alive() || !two.Alive() || !other.Alive() {
			t.Errorf("alive: %t, %t, %t; want all but the first", one.Alive(), two.Alive(), other.Alive())
		}
		two.Release()
		other.Release()
	})
}

// Who wants to know of an answer that comes behind its time limit is told of it, for the newest of what an agent has not answered.
func TestProcess_AnswersBehindTheirTime(t *testing.T) {
	inSet(t, &quick{}, func(t *testing.T, _ *Set, a *Agent) {
		p, err := a.Process(t.Context(), needs)
		if err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		var failed, late []int
		var ids []int64
		for i := range maxExpired + 4 {
			ids = append(ids, p.Call(t.Context(), Request{
				Timeout: time.Minute, Build: func(id acp.ID) acp.Message { return acp.NewRequest(id, "_x", nil) },
				Done: func(*acp.Message, error) { mu.Lock(); failed = append(failed, i); mu.Unlock() },
				Late: func(*acp.Message) { mu.Lock(); late = append(late, i); mu.Unlock() },
			}))
			time.Sleep(time.Second)
		}
		answer := func(ids ...int64) (told []int) {
			for _, id := range ids {
				p.conn.(*quickConn).out <- acp.NewResult(acp.IntID(id), []byte(`{}`))
			}
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			told, late = late, nil
			return told
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if mu.Lock(); len(failed) != len(ids) {
			t.Errorf("%d of %d have failed", len(failed), len(ids))
		}
		mu.Unlock()
		p.mu.Lock()
		if n := len(p.pending); n != maxExpired {
			t.Errorf("%d are kept", n)
		}
		p.mu.Unlock()
		if told := answer(ids...); len(told) != maxExpired || told[0] != 4 {
			t.Errorf("it is told of %v", told)
		}
		if told := answer(ids...); len(told) > 0 {
			t.Errorf("once more it is told of %v", told)
		}
		p.Release()
	})
}

// A process that somebody holds is not ended as unused, one that waits for an answer
// neither; when nobody needs it, nobody can hold it any more.
func TestProcess_UnusedOnesEnd(t *testing.T) {
	inSet(t, &quick{}, func(t *testing.T, set *Set, a *Agent) {
		p, err := a.Process(t.Context(), needs)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		set.EndUnused()
		if !p.Alive() {
			t.Fatal("a process that is held was ended")
		}
		answered := make(chan error, 1)
		p.Call(t.Context(), Request{
			Timeout: time.Minute, Build: func(id acp.ID) acp.Message { return acp.NewRequest(id, "_x", nil) }, Done: func(_ *acp.Message, err error) { answered <- err },
		})
		p.Release()
		time.Sleep(30 * time.Second)
		set.EndUnused()
		if !p.Alive() {
			t.Fatal("a process that owes an answer was ended")
		}
		if err := <-answered; problem.From(err).Kind != problem.Timeout || !strings.Contains(err.Error(), "did not answer within 1m0s") {
			t.Errorf("the request ended with %v", err)
		}
		again, err := a.Process(t.Context(), needs)
		if err != nil || again == p {
			t.Fatalf("a process that does not answer was given again: %v", err)
		}
		set.EndUnused()
		if p.Alive() {
			t.Error("a process that does not answer lives on without need")
		}
		p = again
		again.Reserve() // for a connection
		time.Sleep(time.Minute)
		set.EndUnused()
		if !p.Alive() {
			t.Error("a process was ended that a connection is to use")
		}
		again.Unreserve()
		set.EndUnused()
		if !p.Alive() {
			t.Error("a process was ended that was needed a moment ago")
		}
		time.Sleep(linger + time.Second)
		set.EndUnused()
		if p.Alive() || p.hold() {
			t.Error("an unused process can be held")
		}
		next, err := a.Process(t.Context(), needs)
		if err != nil || next == p {
			t.Fatalf("the process that ends was given out: %v", err)
		}
		next.Release()
	})
}

// A start is made once for all who wait for it, and goes on when the first has left.
// One that fails is told to all of them, and delays the next.
func TestProcess_StartsOnce(t *testing.T) {
	let := make(chan error)
	agent := &quick{open: func(ctx context.Context) error {
		select {
		case err := <-let:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}}
	inSet(t, agent, func(t *testing.T, set *Set, a *Agent) {
		let = make(chan error) // of this bubble
		ask := func(ctx context.Context) chan error {
			ch := make(chan error, 1)
			go func() {
				p, err := a.Process(ctx, needs)
				if err == nil {
					p.Release()
				}
				ch <- err
			}()
			return ch
		}
		leaving, leave := context.WithCancel(t.Context())
		first, second := ask(leaving), ask(t.Context())
		synctest.Wait()
		leave()
		if err := <-first; !errors.Is(err, context.Canceled) {
			t.Errorf("who left was told %v", err)
		}
		let <- errors.New("no memory")
		if err := <-second; err == nil || !strings.Contains(err.Error(), "no memory") {
			t.Errorf("who stayed was told %v", err)
		}
		began := time.Now()
		third := ask(t.Context())
		let <- nil
		if err := <-third; err != nil || time.Since(began) < backoffFirst {
			t.Errorf("the next start: %v, after %v", err, time.Since(began))
		}
		if n := agent.opened(); n != 2 {
			t.Errorf("%d starts", n)
		}
	})
}

// Close ends starts as well, is bounded, says what did not end, and takes no more.
func TestSet_CloseIsBoundedAndSaysWhatIsLeft(t *testing.T) {
	release := make(chan struct{})
	inSet(t, &quick{close: func() { <-release }}, func(t *testing.T, set *Set, a *Agent) {
		release = make(chan struct{})
		p, err := a.Process(t.Context(), needs)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := set.Close(ctx); err == nil || !strings.Contains(err.Error(), "quick (1)") {
			t.Errorf("closed with %v", err)
		}
		if p.Alive() || p.Cause() != ErrShutdown {
			t.Errorf("the process ends because of %v", p.Cause())
		}
		if _, err := a.Process(t.Context(), needs); !errors.Is(err, ErrShutdown) {
			t.Errorf("a start afterwards: %v", err)
		}
		close(release)
	})
}
