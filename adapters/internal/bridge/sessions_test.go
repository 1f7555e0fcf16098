package bridge_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

type endable struct{ ends atomic.Int32 }

func (e *endable) end() { e.ends.Add(1) }

func TestSessions_OneForAnID(t *testing.T) {
	open := bridge.NewSessions((*endable).end)
	first, second := new(endable), new(endable)
	if err := open.Add("a", first); err != nil {
		t.Fatal(err)
	}
	if err := open.Add("a", second); err == nil || !strings.Contains(err.Error(), "open already") {
		t.Errorf("opened twice: %v", err)
	}
	if second.ends.Load() != 1 || first.ends.Load() != 0 {
		t.Error("the second is to be ended, and only that")
	}
	if _, err := open.Claim(t.Context(), "a"); err == nil {
		t.Error("a is not free")
	}
	if !open.Has("a", first) || open.Has("a", second) || open.Has("b", nil) {
		t.Error("a is the first, and b is none")
	}
	if got, err := open.Get("a"); err != nil || got != first {
		t.Errorf("got %v, %v", got, err)
	}
	if !open.Remove(t.Context(), "a") || first.ends.Load() != 1 {
		t.Error("what is removed is ended")
	}
	if open.Remove(t.Context(), "a") {
		t.Error("it was removed already")
	}
	if _, err := open.Get("a"); err == nil {
		t.Error("it is gone")
	}
	if _, err := open.Claim(t.Context(), "a"); err != nil {
		t.Error(err)
	}
}

// However sessions are opened and removed while the table is closed: each one is
// ended once, and none is left open.
func TestSessions_CloseLeavesNone(t *testing.T) {
	for range 200 {
		open := bridge.NewSessions((*endable).end)
		all := make([]endable, 8)
		var work sync.WaitGroup
		for i := range all {
			id := schema.SessionID(rune('a' + i))
			work.Go(func() {
				if open.Add(id, &all[i]) == nil && i%2 == 0 {
					open.Remove(t.Context(), id)
				}
			})
		}
		work.Go(open.Close)
		work.Wait()
		for i := range all {
			if n := all[i].ends.Load(); n != 1 {
				t.Fatalf("session %d was ended %d times", i, n)
			}
		}
	}
}

// Who opens a session again waits until what ends it has ended.
func TestSessions_FreeBehindTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ending := make(chan struct{})
		open := bridge.NewSessions(func(*endable) { <-ending })
		if err := open.Add("a", new(endable)); err != nil {
			t.Fatal(err)
		}
		removed, free := make(chan bool, 1), make(chan error, 1)
		go func() { removed <- open.Remove(context.Background(), "a") }()
		synctest.Wait()
		go func() {
			over, err := open.Claim(context.Background(), "a")
			over()
			free <- err
		}()
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := open.Claim(gone, "a"); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "session a is still being opened, closed or deleted") {
			t.Errorf("nobody waits any more: %v", err)
		}
		synctest.Wait()
		if len(free) > 0 {
			t.Error("it is free, and has not ended")
		}
		close(ending)
		if err := <-free; err != nil || !<-removed {
			t.Error(err)
		}
	})
}

// What an agent keeps of a session is removed behind all that ends it, and before it is opened again.
func TestSessions_EraseBehindTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ending, erasing := make(chan struct{}), make(chan struct{})
		open := bridge.NewSessions(func(*endable) { <-ending })
		if err := open.Add("a", new(endable)); err != nil {
			t.Fatal(err)
		}
		ctx := context.Background()
		removed, again, erased, free := make(chan bool, 1), make(chan bool, 1), make(chan error, 1), make(chan error, 1)
		go func() { removed <- open.Remove(ctx, "a") }()
		synctest.Wait()
		began := false
		go func() {
			erased <- open.Erase(ctx, "a", func() error {
				began = true
				<-erasing
				return nil
			})
		}()
		synctest.Wait()
		if began {
			t.Error("it is erased, and has not ended")
		}
		close(ending)
		if !<-removed {
			t.Error("it was not open")
		}
		synctest.Wait()
		if !began {
			t.Error("it has ended, and is not erased")
		}
		go func() { again <- open.Remove(ctx, "a") }()
		go func() {
			over, err := open.Claim(ctx, "a")
			over()
			free <- err
		}()
		synctest.Wait()
		if len(again) > 0 || len(free) > 0 {
			t.Error("it is gone, and is being erased")
		}
		close(erasing)
		if err := errors.Join(<-erased, <-free); err != nil || <-again {
			t.Error(err)
		}
	})
}

// A session is deleted behind an opening that is under way, and two openings come one behind the other.
func TestSessions_EraseBehindAnOpening(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		open, ctx := bridge.NewSessions((*endable).end), context.Background()
		opened, err := open.Claim(ctx, "a")
		if err != nil {
			t.Fatal(err)
		}
		erased, again := make(chan error, 1), make(chan error, 1)
		go func() { erased <- open.Erase(ctx, "a", func() error { return nil }) }()
		synctest.Wait()
		go func() {
			over, err := open.Claim(ctx, "a")
			if err == nil {
				over()
			}
			again <- err
		}()
		synctest.Wait()
		one := new(endable)
		if len(erased) > 0 || len(again) > 0 || open.Add("a", one) != nil {
			t.Error("it is deleted, or opened once more, while it is opened")
		}
		opened()
		if err := <-erased; err != nil || one.ends.Load() != 1 {
			t.Errorf("it was deleted: %v, and ended %d times", err, one.ends.Load())
		}
		if err := <-again; err != nil && !strings.Contains(err.Error(), "open already") {
			t.Error(err)
		}
	})
}
