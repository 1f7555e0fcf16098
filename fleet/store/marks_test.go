package store

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// held returns how many messages of a stream the store holds.
func (s *Store) held(t *testing.T, name string) uint64 {
	t.Helper()
	stream, err := s.js.Stream(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	info, err := stream.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return info.State.Msgs
}

// What was removed leaves no mark for ever: else a hub would take longer to start with each sandbox that there ever was.
func TestStore_MarksOfWhatWasRemoved(t *testing.T) {
	o := Options{Dir: t.TempDir(), Hub: "hub"}
	s, err := Open(t.Context(), o, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { s.Close() }()
	made := func() Token {
		token, _, err := s.CreateToken(t.Context(), Token{Kind: KindJoin})
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	stays := made()
	const many = dropMarks + 20
	var removed []ReplicaID
	for i := range many {
		if err := s.RevokeToken(t.Context(), made().ID); err != nil {
			t.Fatal(err)
		}
		if i >= 10 {
			continue
		}
		id := ReplicaID{Node: "box", Session: fmt.Sprint("s", i), Epoch: 1}
		if err := s.UpdateSession(t.Context(), id, func(*Session) *Session { return &Session{} }); err != nil {
			t.Fatal(err)
		}
		if _, err := s.PutBundle(t.Context(), id, 1, bytes.NewReader([]byte("x"))); err != nil {
			t.Fatal(err)
		}
		if err := s.RemoveSession(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		removed = append(removed, id)
	}
	again := removed[3] // there once more: it is no mark
	if err := s.UpdateSession(t.Context(), again, func(*Session) *Session { return &Session{} }); err != nil {
		t.Fatal(err)
	}
	if got := s.held(t, "OBJ_"+bundleBucket); got > 0 {
		t.Errorf("%d messages are left of bundles", got)
	}
	// A hub that has just begun knows the marks of before.
	s.Close()
	if s, err = Open(t.Context(), o, nil); err != nil {
		t.Fatal(err)
	}
	for range 1 + many/dropMarks {
		if err := s.dropMarks(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"KV_sa_tokens", "KV_sa_sessions"} {
		if got := s.held(t, name); got != 1 {
			t.Errorf("%s holds %d messages, want one record", name, got)
		}
	}
	if _, ok := s.tokens.get(stays.ID); !ok || len(s.Tokens()) != 1 || s.Session(again) == nil || s.SessionCount() != 1 {
		t.Errorf("there are %d tokens and %d sessions", len(s.Tokens()), s.SessionCount())
	}
	if about, err := s.bundles.List(t.Context()); err == nil || len(about) > 0 {
		t.Errorf("bundles: %v, %v, want %v", about, err, jetstream.ErrNoObjectsFound)
	}
}

// At the bound a token that has expired makes room for a new one.
func TestTokens_ThatHaveExpired(t *testing.T) {
	s, err := Open(t.Context(), Options{Dir: t.TempDir(), Hub: "hub"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	now := time.Now()
	for id, ago := range map[string]time.Duration{"first": time.Hour, "lately": time.Minute, "to-come": -time.Hour} {
		at := now.Add(-ago)
		if _, err := s.tokens.put(t.Context(), id, kept{Token{ID: id, Kind: KindJoin, Expires: &at}, ""}, 0); err != nil {
			t.Fatal(err)
		}
	}
	make := func() error {
		_, _, err := s.CreateToken(t.Context(), Token{Kind: KindJoin})
		return err
	}
	stay := func(want ...string) {
		t.Helper()
		var got []string
		for _, id := range []string{"first", "lately", "to-come"} {
			if _, ok := s.tokens.get(id); ok {
				got = append(got, id)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("there are %v, want %v", got, want)
		}
	}
	if err := make(); err != nil {
		t.Fatal(err)
	}
	stay("first", "lately", "to-come")
	// As if there were MaxTokens of them.
	s.tokens.mu.Lock()
	s.tokens.there = MaxTokens
	s.tokens.mu.Unlock()
	for _, want := range [][]string{{"lately", "to-come"}, {"to-come"}} {
		if err := make(); err != nil {
			t.Error(err)
		}
		stay(want...)
	}
	if err := make(); err == nil {
		t.Error("there are more than may be")
	}
	stay("to-come")
}

// A hub whose node another one has noted to be away, since it was cut off, ends the tunnel: the node joins again.
func TestNodes_PresumedAway(t *testing.T) {
	var ended []string
	s := &Store{hub: "one", left: func(node, hub string) { ended = append(ended, node+" of "+hub) }}
	for _, n := range []Node{
		{Name: "mine", Hub: "one", Connected: true},
		{Name: "left", Hub: "one"},
		{Name: "presumed", Hub: "one", Presumed: true},
		{Name: "taken", Hub: "two", Connected: true},
		{Name: "theirs", Hub: "two", Presumed: true},
	} {
		s.nodeChanged(n.Name, true, n)
	}
	if got := fmt.Sprint(ended); got != "[presumed of one taken of two]" {
		t.Errorf("ended are %s", got)
	}
}
