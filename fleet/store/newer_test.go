package store_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/fleet/store"
)

// Hubs of two versions can share a store while one after the other is brought up to date. What the newer one has written
// in a form that this one does not know is left alone, and who needs it is told at once.
func TestStore_RecordOfNewerVersion(t *testing.T) {
	t.Parallel()
	server := startNATS(t)
	s := open(t, "hub-1", store.Options{URL: server.ClientURL()}, nil)
	t.Cleanup(s.Close)
	js := streamsOf(t, server.ClientURL())
	bucket, err := js.KeyValue(t.Context(), "sa_nodes")
	if err != nil {
		t.Fatal(err)
	}
	const newer = `{"name":{"of":"another form"}}`
	if _, err := bucket.PutString(t.Context(), "a", newer); err != nil {
		t.Fatal(err)
	}
	// It is told of changes in their order.
	if _, err := bucket.PutString(t.Context(), "b", `{"name":"b"}`); err != nil {
		t.Fatal(err)
	}
	await(t, "the records", func() bool { _, known := s.Node("b"); return known })
	if _, err := s.Join(t.Context(), store.Node{Name: "a", Instance: "i"}, anybody); err == nil || !strings.Contains(err.Error(), "newer version") {
		t.Errorf("a node of that name joins: %v", err)
	}
	if e, err := bucket.Get(t.Context(), "a"); err != nil || string(e.Value()) != newer {
		t.Errorf("the record: %v, %v", e, err)
	}
	if _, err := bucket.PutString(t.Context(), "a", `{"name":"a"}`); err != nil {
		t.Fatal(err)
	}
	await(t, "a record of this version", func() bool { _, known := s.Node("a"); return known })
	if _, err := s.Join(t.Context(), store.Node{Name: "a", Instance: "i"}, anybody); err != nil {
		t.Errorf("a node whose record can be read does not join: %v", err)
	}
}

// What a newer version has written of a node or a session is no reason to forget what belongs to it.
func TestStore_WhatBelongsToRecordOfNewerVersionStays(t *testing.T) {
	t.Parallel()
	server := startNATS(t)
	s := open(t, "hub-1", store.Options{URL: server.ClientURL()}, nil)
	t.Cleanup(s.Close)
	js := streamsOf(t, server.ClientURL())
	write := func(name, key, text string) {
		t.Helper()
		bucket, err := js.KeyValue(t.Context(), name)
		if err == nil {
			_, err = bucket.PutString(t.Context(), key, text)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	write("sa_nodes", "newer", `{"name":{"of":"another form"}}`)
	write("sa_nodes", "b", `{"name":"b"}`)
	await(t, "the nodes", func() bool { _, known := s.Node("b"); return known })

	now := time.Now().UTC()
	for what, o := range map[string]store.Owner{
		"it owns a session":                   {Node: "newer", Term: 2},
		"it has something of one":             {Node: "none", Term: 2, Others: []store.Other{{Node: "newer", Term: 1}}},
		"it is to learn that one was deleted": {Node: "none", Term: 2, Others: []store.Other{{Node: "newer", Term: 1}}, Deleted: &now},
	} {
		line := store.Line{Session: "s", Created: now}
		if _, err := s.UpdateOwner(t.Context(), line, func(*store.Owner) (*store.Owner, error) { return &o, nil }); err != nil {
			t.Fatal(err)
		}
		if err := s.ForgetOwner(t.Context(), line); err != nil || s.Owner(line) == nil {
			t.Errorf("%s, and that is forgotten: %v", what, err)
		}
	}

	r := store.ReplicaID{Node: "b", Session: "s", Epoch: 1}
	if err := s.UpdateSession(t.Context(), r, func(*store.Session) *store.Session { return &store.Session{} }); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Append(t.Context(), r, store.Place{}, store.Batch{First: 1, Last: 1, Lines: []byte("{}\n")}); err != nil {
		t.Fatal(err)
	}
	s.OnRemoved(func(*store.Session) { t.Error("it is told that a session was removed, which is there") })
	write("sa_sessions", "b.s.1", `{"node":{"of":"another form"}}`)
	await(t, "the session's record", func() bool { return s.Session(r) == nil })
	if named := s.SessionsNamed("s"); len(named) > 0 {
		t.Errorf("a session without a record: %v", named)
	}
	line := store.Line{Session: "s", Created: now.Add(time.Second)}
	if _, err := s.UpdateOwner(t.Context(), line, func(*store.Owner) (*store.Owner, error) { return &store.Owner{Node: "none", Term: 2}, nil }); err != nil {
		t.Fatal(err)
	}
	if err := s.ForgetOwner(t.Context(), line); err != nil || s.Owner(line) == nil {
		t.Errorf("who has the session is forgotten: %v", err)
	}
	if err := s.RemoveSession(t.Context(), r); !errors.Is(err, store.ErrUnreadable) {
		t.Errorf("it is removed: %v", err)
	}
	if at, err := s.End(t.Context(), r); err != nil || at.Last != 1 {
		t.Errorf("its log ends at %+v, %v", at, err)
	}
	write("sa_sessions", "b.s.1", `{"node":"b","session":"s","epoch":1}`)
	await(t, "a record of this version", func() bool { return len(s.SessionsNamed("s")) == 1 })
	s.OnRemoved(func(*store.Session) {})
	if err := s.RemoveSession(t.Context(), r); err != nil || len(s.SessionsNamed("s")) > 0 {
		t.Errorf("it stays: %v", err)
	}
}
