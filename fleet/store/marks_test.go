package store

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// held returns how many messages the store holds of records and bundles that are there, or were.
func (s *Store) held(t *testing.T) (n uint64) {
	t.Helper()
	for _, name := range []string{"KV_sa_tokens", "KV_sa_sessions", "OBJ_" + bundleBucket} {
		stream, err := s.js.Stream(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		info, err := stream.Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		n += info.State.Msgs
	}
	return n
}

// What was removed leaves a mark in the store, so that all hubs learn of it, and goes some days later: else a hub would
// take longer to start with each sandbox that there ever was.
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
	if got := s.held(t); got != 2+many+9 {
		t.Errorf("the store holds %d messages, want two records and %d marks: a bundle leaves none", got, many+9)
	}
	drop := func(before time.Time) {
		t.Helper()
		for range 3 {
			if err := s.dropMarks(t.Context(), before); err != nil {
				t.Fatal(err)
			}
		}
	}
	drop(time.Now().Add(-time.Hour))
	if got := s.held(t); got != 2+many+9 {
		t.Errorf("young marks are gone: %d messages", got)
	}
	// A hub that has just begun knows those of before.
	s.Close()
	if s, err = Open(t.Context(), o, nil); err != nil {
		t.Fatal(err)
	}
	drop(time.Now().Add(time.Hour))
	if got := s.held(t); got != 2 {
		t.Errorf("the store holds %d messages, want two records", got)
	}
	if _, ok := s.tokens.get(stays.ID); !ok || len(s.Tokens()) != 1 || s.Session(again) == nil || s.SessionCount() != 1 {
		t.Errorf("there are %d tokens and %d sessions", len(s.Tokens()), s.SessionCount())
	}
	if about, err := s.bundles.List(t.Context()); err == nil || len(about) > 0 {
		t.Errorf("bundles: %v, %v, want %v", about, err, jetstream.ErrNoObjectsFound)
	}
}

// Tokens that have expired make room: first those that did so long ago, and at the bound all of them.
func TestTokens_ThatHaveExpired(t *testing.T) {
	s, err := Open(t.Context(), Options{Dir: t.TempDir(), Hub: "hub"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	now := time.Now()
	for note, ago := range map[string]time.Duration{"long ago": keepExpired + time.Minute, "lately": time.Minute, "to come": -time.Hour} {
		at := now.Add(-ago)
		if _, err := s.tokens.put(t.Context(), "t-"+note[:2], kept{Token{ID: "t-" + note[:2], Kind: KindJoin, Note: note, Expires: &at}, ""}, 0); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := s.CreateToken(t.Context(), Token{Kind: KindJoin, Note: "new"}); err != nil {
		t.Fatal(err)
	}
	var notes []string
	for _, one := range s.Tokens() {
		notes = append(notes, one.Note)
	}
	if got := fmt.Sprint(notes); got != "[lately to come new]" {
		t.Errorf("there are %s", got)
	}
	// As if there were MaxTokens of them.
	s.tokens.mu.Lock()
	more := MaxTokens - s.tokens.there
	s.tokens.there += more
	s.tokens.mu.Unlock()
	if _, _, err := s.CreateToken(t.Context(), Token{Kind: KindJoin}); err != nil {
		t.Errorf("with one that has expired: %v", err)
	}
	if _, _, err := s.CreateToken(t.Context(), Token{Kind: KindJoin}); err == nil {
		t.Error("there are more than may be")
	}
	if _, ok := s.tokens.get("t-to"); !ok {
		t.Error("one that has not expired is gone")
	}
}
