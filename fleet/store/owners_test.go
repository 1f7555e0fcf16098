package store_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/fleet/store"
	"sandboxagent.dev/sandbox-agent/runtime"
)

// Who is told of sessions that are deleted sees that, and is told of each once: a record that is written again,
// as by those who were told, is no further deletion.
func TestOwner_DeletionIsToldOnce(t *testing.T) {
	s := open(t, "hub", store.Options{Dir: t.TempDir()}, nil)
	defer s.Close()
	line := store.Line{Session: "s", Created: time.Now()}
	told := make(chan bool, 10)
	s.OnDeleted(func(o *store.Owner) { told <- s.Owner(line) != nil && s.Owner(line).Deleted != nil })
	write := func(change func(store.Owner) store.Owner) {
		t.Helper()
		if _, err := s.UpdateOwner(t.Context(), line, func(had *store.Owner) (*store.Owner, error) {
			next := store.Owner{Node: "b", Term: 2, Others: []store.Other{{Node: "a", Term: 1}}}
			if had != nil {
				next = *had
			}
			next = change(next)
			return &next, nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	same := func(o store.Owner) store.Owner { return o }
	write(same)
	if err := s.SessionDeleted(t.Context(), line, "b"); err != nil {
		t.Fatal(err)
	}
	if seen := <-told; !seen {
		t.Error("it was told before it could be seen")
	}
	write(same)
	write(func(o store.Owner) store.Owner { o.Deleted = nil; return o })
	if len(told) != 0 {
		t.Error("what was written again was told again")
	}
	if err := s.SessionDeleted(t.Context(), line, "b"); err != nil {
		t.Fatal(err)
	}
	if <-told; len(told) != 0 {
		t.Error("it was told twice")
	}
}

// Somebody removes the copies of a session that was moved while its nodes are away. It is remembered which of them
// has it, until they are forgotten.
func TestOwner_StaysWhileItsNodesAreAway(t *testing.T) {
	s := open(t, "hub", store.Options{Dir: t.TempDir()}, nil)
	defer s.Close()
	line := store.Line{Session: "s", Created: time.Now().UTC()}
	for _, name := range []string{"a", "b"} {
		held, err := s.Join(t.Context(), store.Node{Name: name, Instance: name}, func(store.Node) error { return nil })
		if err == nil {
			err = s.Leave(t.Context(), held)
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := s.UpdateSession(t.Context(), store.ReplicaID{Node: name, Session: "s", Epoch: 1}, func(*store.Session) *store.Session {
			return &store.Session{Info: runtime.SessionInfo{ID: "s", CreatedAt: line.Created}}
		}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.UpdateOwner(t.Context(), line, func(*store.Owner) (*store.Owner, error) {
		return &store.Owner{Node: "b", Term: 2, Others: []store.Other{{Node: "a", Term: 1}}}, nil
	}); err != nil {
		t.Fatal(err)
	}
	for _, one := range s.SessionsNamed("s") {
		if err := s.RemoveSession(t.Context(), one.ReplicaID); err != nil {
			t.Fatal(err)
		}
	}
	if o := s.Owner(line); o == nil || o.Node != "b" {
		t.Errorf("the owner is %+v", o)
	}
	for _, name := range []string{"a", "b"} {
		if err := s.RemoveNode(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.ForgetOwner(t.Context(), line); err != nil || s.Owner(line) != nil {
		t.Errorf("%+v, %v", s.Owner(line), err)
	}
}

// A node deletes what it had of a session that went elsewhere, and then the session itself is deleted: nobody waits
// for that node.
func TestOwner_IsForgottenWhateverIsDeletedFirst(t *testing.T) {
	s := open(t, "hub", store.Options{Dir: t.TempDir()}, nil)
	defer s.Close()
	line := store.Line{Session: "s", Created: time.Now()}
	for _, name := range []string{"a", "b"} {
		if _, err := s.Join(t.Context(), store.Node{Name: name, Instance: name}, func(store.Node) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	for _, order := range [][]string{{"a", "b"}, {"b", "a"}} {
		if _, err := s.UpdateOwner(t.Context(), line, func(*store.Owner) (*store.Owner, error) {
			return &store.Owner{Node: "b", Term: 2, Others: []store.Other{{Node: "a", Term: 1}}}, nil
		}); err != nil {
			t.Fatal(err)
		}
		for _, node := range order {
			if err := s.SessionDeleted(t.Context(), line, node); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.ForgetOwner(t.Context(), line); err != nil || s.Owner(line) != nil {
			t.Errorf("deleted at %v: %+v, %v", order, s.Owner(line), err)
		}
	}
}

// A node deletes what it had of a session that goes on elsewhere. What the hub has of another one that is away stays:
// it may have events that did not go along.
func TestOwner_CopiesOfASessionThatGoesOnStay(t *testing.T) {
	s := open(t, "hub", store.Options{Dir: t.TempDir()}, nil)
	defer s.Close()
	line := store.Line{Session: "s", Created: time.Now().UTC()}
	of := func(node string) store.ReplicaID { return store.ReplicaID{Node: node, Session: "s", Epoch: 1} }
	for _, name := range []string{"a", "b", "c"} {
		held, err := s.Join(t.Context(), store.Node{Name: name, Instance: name}, func(store.Node) error { return nil })
		if err == nil && name == "c" {
			err = s.Leave(t.Context(), held)
		}
		if err == nil {
			err = s.UpdateSession(t.Context(), of(name), func(*store.Session) *store.Session {
				return &store.Session{Info: runtime.SessionInfo{ID: "s", CreatedAt: line.Created}}
			})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.UpdateOwner(t.Context(), line, func(*store.Owner) (*store.Owner, error) {
		return &store.Owner{Node: "b", Term: 3, Others: []store.Other{{Node: "c", Term: 1}, {Node: "a", Term: 2}}}, nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := s.SessionDeleted(t.Context(), line, "a"); err != nil {
		t.Fatal(err)
	}
	if s.Session(of("c")) == nil {
		t.Error("what the hub has of the node that is away is gone")
	}
	if err := s.SessionDeleted(t.Context(), line, "b"); err != nil {
		t.Fatal(err)
	}
	if s.Session(of("c")) != nil {
		t.Error("the session is deleted, and the copy of the node that is away is there")
	}
}

// A record that another hub removes as soon as it hears of it is not there any more for the one that wrote it either, though that may be
// told of the removal before it knows that it has written.
func TestOwners_RemovedAtOnce(t *testing.T) {
	url := natsServer(t)
	one, two := open(t, "one", store.Options{URL: url}, nil), open(t, "two", store.Options{URL: url}, nil)
	defer one.Close()
	defer two.Close()
	const records = 2000
	heard := make(chan store.Line, records)
	two.OnOwner(func(o *store.Owner) { heard <- o.Line })
	var own sync.WaitGroup
	var forgotten atomic.Int64
	for range 8 {
		own.Go(func() {
			for l := range heard {
				forgotten.Add(1)
				if err := two.ForgetOwner(t.Context(), l); err != nil {
					t.Error(err)
				}
			}
		})
	}
	var writers sync.WaitGroup
	for w := range 8 {
		writers.Go(func() {
			for i := range records / 8 {
				l := store.Line{Session: fmt.Sprint("s", w, "-", i), Created: time.Now()}
				if _, err := one.UpdateOwner(t.Context(), l, func(*store.Owner) (*store.Owner, error) { return &store.Owner{Node: "box"}, nil }); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()
	await(t, "the other hub has heard of all of them", func() bool { return forgotten.Load() == records })
	two.OnOwner(func(*store.Owner) {})
	close(heard)
	own.Wait()
	last := store.Line{Session: "last", Created: time.Now()}
	if _, err := two.UpdateOwner(t.Context(), last, func(*store.Owner) (*store.Owner, error) { return &store.Owner{Node: "box"}, nil }); err != nil {
		t.Fatal(err)
	}
	await(t, "what was written behind them is known", func() bool { return one.Owner(last) != nil })
	for _, o := range one.Owners() {
		if o.Session != last.Session {
			t.Errorf("%s is there still", o.Session)
		}
	}
}
