package store_test

import (
	"bytes"
	"errors"
	"testing"

	"sandboxagent.dev/sandbox-agent/fleet/store"
)

// A node that writes all it can is refused at its share, in however many sessions, and others go on.
func TestShares_GreedyNode(t *testing.T) {
	const most = 8 << 20
	s := open(t, "hub", store.Options{Dir: t.TempDir(), LogBytes: most}, nil)
	defer s.Close()
	lines := append(bytes.Repeat([]byte("x"), 200<<10), '\n')
	fill := func(node string, batches int) (written int, err error) {
		for _, session := range []string{"a", "b", "c"} {
			id := store.ReplicaID{Node: node, Session: session, Epoch: 1}
			at, err := s.End(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.UpdateSession(t.Context(), id, func(had *store.Session) *store.Session {
				return &store.Session{Bytes: at.Size}
			}); err != nil {
				t.Fatal(err)
			}
			for range batches {
				if at, err = s.Append(t.Context(), id, at, store.Batch{First: at.Last + 1, Last: at.Last + 1, Lines: lines}); err != nil {
					return written, err
				}
				written += len(lines)
			}
		}
		return written, nil
	}
	n, err := fill("greedy", 100)
	if !errors.Is(err, store.ErrShare) {
		t.Fatalf("after %d bytes: %v", n, err)
	}
	if n > most/2 || n < most/4 {
		t.Errorf("a node alone got %d bytes of %d", n, most)
	}
	if err := s.Room(t.Context(), "greedy"); !errors.Is(err, store.ErrShare) {
		t.Errorf("room for another session of it: %v", err)
	}
	if err := s.Room(t.Context(), "good"); err != nil {
		t.Errorf("room for one of another node: %v", err)
	}
	if _, err := fill("good", 2); err != nil {
		t.Errorf("another node: %v", err)
	}
	// Who goes on, such as another hub, reads what a replica has where it ends.
	if at, err := s.End(t.Context(), store.ReplicaID{Node: "good", Session: "a", Epoch: 1}); err != nil || at.Size < 400<<10 {
		t.Errorf("%+v, %v", at, err)
	}
}

// What a replica has is counted once, also when its record says it and it grows: a hub that begins with
// the records takes as much of a node as the one before it.
func TestShares_CountedOnce(t *testing.T) {
	dir := t.TempDir()
	id := store.ReplicaID{Node: "box", Session: "s", Epoch: 1}
	lines := append(bytes.Repeat([]byte("x"), 200<<10), '\n')
	var at store.Place
	write := func(s *store.Store, batches int) {
		t.Helper()
		for range batches {
			var err error
			if at, err = s.Append(t.Context(), id, at, store.Batch{First: at.Last + 1, Last: at.Last + 1, Lines: lines}); err != nil {
				t.Fatalf("with %d bytes of %d: %v", at.Size, 8<<20, err)
			}
		}
		if err := s.UpdateSession(t.Context(), id, func(*store.Session) *store.Session { return &store.Session{Bytes: at.Size} }); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		s := open(t, "hub", store.Options{Dir: dir, LogBytes: 8 << 20}, nil)
		end, err := s.End(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		at = end
		write(s, 9)
		s.Close()
	}
}
