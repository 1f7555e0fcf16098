package store_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/fleet/store"
	"sandboxagent.dev/sandbox-agent/internal/killed"
	"sandboxagent.dev/sandbox-agent/internal/patient"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 2 * time.Minute

func open(t *testing.T, name string, o store.Options, moved func(node, hub string)) *store.Store {
	t.Helper()
	o.Hub = name
	s, err := store.Open(t.Context(), o, moved)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// natsServer is a NATS server elsewhere: reached over its port only.
func natsServer(t *testing.T) string {
	t.Helper()
	return startNATS(t).ClientURL()
}

func startNATS(t *testing.T) *server.Server {
	t.Helper()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, JetStreamMaxStore: math.MaxInt64, StoreDir: t.TempDir(), NoSigs: true, NoLog: true})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(patience) {
		t.Fatal("the NATS server is not ready")
	}
	return s
}

func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	if !patient.Until(patience, ok) {
		t.Fatalf("%s: not within %v", what, patience)
	}
}

func anybody(store.Node) error { return nil }

func kindOf(err error) problem.Kind {
	if p, ok := errors.AsType[*problem.Error](err); ok {
		return p.Kind
	}
	return ""
}

func TestStore_KeepsOverRestart(t *testing.T) {
	dir := t.TempDir()
	s := open(t, "one", store.Options{Dir: dir}, nil)
	kept, text, err := s.CreateToken(t.Context(), store.Token{Kind: store.KindClient, Scope: store.ScopeDrive, Note: "kept"})
	if err != nil {
		t.Fatal(err)
	}
	gone, goneText, err := s.CreateToken(t.Context(), store.Token{Kind: store.KindJoin})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.RevokeToken(t.Context(), gone.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Join(t.Context(), store.Node{Name: "a.b", Labels: map[string]string{"x": "y"}, Instance: "i"}, anybody); err != nil {
		t.Fatal(err)
	}
	joined, _ := s.Node("a.b")
	s.Close()

	s = open(t, "two", store.Options{Dir: dir}, nil)
	defer s.Close()
	if got, _, ok := s.Verify(text); !ok || got.ID != kept.ID || got.Scope != store.ScopeDrive {
		t.Errorf("the token: %+v, %v", got, ok)
	}
	if _, _, ok := s.Verify(goneText); ok {
		t.Error("the revoked token is worth something again")
	}
	n, ok := s.Node("a.b")
	if !ok || n.Labels["x"] != "y" || !n.Joined.Equal(joined.Joined) {
		t.Errorf("the node: %+v, %v", n, ok)
	}
	if s.Online(n) {
		t.Error("a node of a hub that has ended is online")
	}
}

// A folder is one hub's: what the one before has not given back, because it was killed, nobody holds.
func TestStore_KilledHubHoldsNoNodes(t *testing.T) {
	dir := t.TempDir()
	s := open(t, "one", store.Options{Dir: dir}, nil)
	if _, err := s.Join(t.Context(), store.Node{Name: "a", Instance: "i"}, anybody); err != nil {
		t.Fatal(err)
	}
	left := killed.Folder(t, dir)
	s.Close()

	s = open(t, "two", store.Options{Dir: left}, nil)
	defer s.Close()
	if n, known := s.Node("a"); !known || !n.Connected || s.Online(n) {
		t.Errorf("known %v, online %v: %+v", known, s.Online(n), n)
	}
	if _, err := s.Join(t.Context(), store.Node{Name: "a", Instance: "another"}, anybody); err != nil {
		t.Errorf("the name is not given to another gateway: %v", err)
	}
}

// What cannot be written because the store is gone says so, and what to do.
func TestWrites_StoreIsGone(t *testing.T) {
	t.Parallel()
	nats := startNATS(t)
	s := open(t, "hub-1", store.Options{URL: nats.ClientURL()}, nil)
	t.Cleanup(s.Close)
	token, _, err := s.CreateToken(t.Context(), store.Token{Scope: store.ScopeRead})
	if err != nil {
		t.Fatal(err)
	}
	nats.Shutdown()
	nats.WaitForShutdown()
	for what, write := range map[string]func() error{
		"a token is made":    func() error { _, _, err := s.CreateToken(t.Context(), store.Token{Scope: store.ScopeRead}); return err },
		"a token is revoked": func() error { return s.RevokeToken(t.Context(), token.ID) },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			err := write()
			if p, ok := errors.AsType[*problem.Error](err); !ok || p.Kind != problem.Unavailable || !strings.Contains(p.Detail, "its store did not answer") {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestVerify_NearMisses(t *testing.T) {
	s := open(t, "one", store.Options{Dir: t.TempDir()}, nil)
	defer s.Close()
	made, text, err := s.CreateToken(t.Context(), store.Token{Kind: store.KindClient, Scope: store.ScopeAdmin})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, ok := s.Verify(text); !ok {
		t.Fatal("the token is not known")
	}
	for _, wrong := range []string{"", text + "x", text[:len(text)-1], " " + text, strings.ToLower(text), made.ID, "sah-" + made.ID, "sah-" + made.ID + "-", strings.TrimPrefix(text, "sah-"), "sah--" + text} {
		if _, _, ok := s.Verify(wrong); ok {
			t.Errorf("%q was taken for the token", wrong)
		}
	}
}

// Several hubs share a store: what one does the others know.
func TestStore_SeveralHubs(t *testing.T) {
	o := store.Options{URL: natsServer(t)}
	moved := make(chan string, 8)
	a := open(t, "a", o, func(node, hub string) { moved <- node + " to " + hub })
	b := open(t, "b", o, nil)
	defer b.Close()

	made, text, err := a.CreateToken(t.Context(), store.Token{Kind: store.KindClient, Scope: store.ScopeRead})
	if err != nil {
		t.Fatal(err)
	}
	var over context.Context
	await(t, "the token at the other hub", func() (ok bool) { _, over, ok = b.Verify(text); return ok })
	if err := a.RevokeToken(t.Context(), made.ID); err != nil {
		t.Fatal(err)
	}
	select {
	case <-over.Done():
	case <-time.After(patience):
		t.Fatal("what was begun with the token at the other hub goes on")
	}

	await(t, "the lease", func() bool { return b.Online(store.Node{Hub: "a", Connected: true}) })
	held, err := a.Join(t.Context(), store.Node{Name: "box", Instance: "same"}, anybody)
	if err != nil {
		t.Fatal(err)
	}
	await(t, "the node at the other hub", func() bool { n, ok := b.Node("box"); return ok && b.Online(n) })
	if _, err := b.Join(t.Context(), store.Node{Name: "box", Instance: "another"}, anybody); kindOf(err) != problem.Conflict {
		t.Errorf("another program took the name of a node that is online elsewhere: %v", err)
	}
	if err := b.RemoveNode(t.Context(), "box"); kindOf(err) != problem.Conflict {
		t.Errorf("a node that is online elsewhere was removed: %v", err)
	}
	if _, err := b.Join(t.Context(), store.Node{Name: "box", Instance: "same"}, anybody); err != nil {
		t.Fatal(err)
	}
	if got := <-moved; got != "box to b" {
		t.Errorf("the first hub was told %q", got)
	}
	// That it is gone from the first hub does not say that it is gone.
	if err := a.Leave(t.Context(), held); err != nil {
		t.Fatal(err)
	}
	if n, _ := b.Node("box"); !n.Connected || n.Hub != "b" {
		t.Errorf("the node is %+v", n)
	}
	// A hub that ends gives its lease back.
	a.Close()
	await(t, "the end of the lease", func() bool { return !b.Online(store.Node{Hub: "a", Connected: true}) })
}

// Of those who write at once one wins, and nobody's name is given twice.
func TestJoin_AtOnce(t *testing.T) {
	o := store.Options{URL: natsServer(t)}
	hubs := []*store.Store{open(t, "a", o, nil), open(t, "b", o, nil)}
	defer hubs[0].Close()
	defer hubs[1].Close()
	results := make(chan error, 16)
	for i := range 16 {
		go func() {
			_, err := hubs[i%2].Join(context.Background(), store.Node{Name: "box", Instance: string(rune('a' + i))}, anybody)
			results <- err
		}()
	}
	won := 0
	for range 16 {
		switch err := <-results; {
		case err == nil:
			won++
		case kindOf(err) != problem.Conflict:
			t.Error(err)
		}
	}
	// The lease of the other hub may not be known yet to the one that joins.
	if won < 1 || won > 2 {
		t.Errorf("%d of 16 programs have the name", won)
	}
}

func TestScope(t *testing.T) {
	for _, tt := range []struct {
		has, need store.Scope
		want      bool
	}{
		{"read", "read", true},
		{"read", "drive", false},
		{"drive", "read", true},
		{"drive", "admin", false},
		{"admin", "drive", true},
		{"", "read", false},
		{"root", "read", false},
		{"admin", "", false},
		{"admin", "root", false},
	} {
		if got := tt.has.Allows(tt.need); got != tt.want {
			t.Errorf("%q allows %q: %v", tt.has, tt.need, got)
		}
	}
}

// A replica grows at its end only, by one writer at a time. What was not written whole is
// not there, and is written again.
func TestLog_GrowsAtItsEnd(t *testing.T) {
	address := natsServer(t)
	s := open(t, "one", store.Options{URL: address}, nil)
	defer s.Close()
	id := store.ReplicaID{Node: "box.1", Session: "a.*>/ session", Epoch: 1}
	line := func(from, to, size int) store.Batch {
		var b strings.Builder
		for i := from; i <= to; i++ {
			fmt.Fprintf(&b, `{"seq":%d,"text":"%s"}`+"\n", i, strings.Repeat("x", size))
		}
		return store.Batch{First: uint64(from), Last: uint64(to), Lines: []byte(b.String())}
	}
	add := func(at store.Place, b store.Batch) store.Place {
		t.Helper()
		next, err := s.Append(t.Context(), id, at, b)
		if err != nil {
			t.Fatal(err)
		}
		return next
	}
	first := add(store.Place{}, line(1, 3, 10))
	second := add(first, line(4, 4, 1<<20)) // in parts
	if _, err := s.Append(t.Context(), id, first, line(4, 4, 10)); !errors.Is(err, store.ErrMoved) {
		t.Errorf("behind what is not the end: %v", err)
	}
	if _, err := s.Append(t.Context(), id, second, line(4, 5, 10)); err == nil {
		t.Error("an event was taken twice")
	}
	other := store.ReplicaID{Node: "box", Session: "1.a", Epoch: 1}
	if _, err := s.Append(t.Context(), other, store.Place{}, line(1, 1, 1)); err != nil {
		t.Fatal(err)
	}

	// Who writes the next one ends in the middle of it.
	third := add(second, line(5, 6, 700<<10))
	js := streamsOf(t, address)
	stream, err := js.Stream(t.Context(), "SA_LOG")
	if err != nil {
		t.Fatal(err)
	}
	info, err := stream.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.DeleteMsg(t.Context(), info.State.LastSeq); err != nil {
		t.Fatal(err)
	}
	at, err := s.End(t.Context(), id)
	if err != nil || at.Last != 4 || third.Last != 6 {
		t.Fatalf("the end: %+v, %v", at, err)
	}
	read := func(after uint64) string {
		t.Helper()
		var got []string
		for b, err := range s.Batches(t.Context(), id, after) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, fmt.Sprintf("%d-%d:%d", b.First, b.Last, len(b.Lines)))
		}
		return strings.Join(got, " ")
	}
	size := func(b store.Batch) int { return len(b.Lines) }
	whole := fmt.Sprintf("1-3:%d 4-4:%d", size(line(1, 3, 10)), size(line(4, 4, 1<<20)))
	if got := read(0); got != whole {
		t.Errorf("with half a batch: %s, want %s", got, whole)
	}
	at = add(at, line(5, 6, 700<<10))
	for i := 7; i <= 40; i++ {
		at = add(at, line(i, i, 5))
	}
	for after := uint64(0); after <= 41; after++ {
		got := read(after)
		last := size(line(40, 40, 5))
		switch {
		case after >= 40 && got != "",
			after < 40 && !strings.HasSuffix(got, fmt.Sprintf("40-40:%d", last)),
			after >= 6 && after < 40 && !strings.HasPrefix(got, fmt.Sprintf("%d-%d:", after+1, after+1)),
			after == 4 && !strings.HasPrefix(got, fmt.Sprintf("5-6:%d 7-7:", size(line(5, 6, 700<<10)))),
			after == 0 && strings.Count(got, "5-6:") != 1:
			t.Errorf("behind %d: %s", after, got)
		}
	}
	// Who reads as it is removed does not take what came before for all of it.
	var ended error
	for _, err := range s.Batches(t.Context(), id, 0) {
		if ended = err; err == nil {
			if err := s.RemoveSession(t.Context(), id); err != nil {
				t.Fatal(err)
			}
		}
	}
	if !errors.Is(ended, store.ErrRemoved) {
		t.Errorf("removed while it is read: %v", ended)
	}
	if at, err := s.End(t.Context(), id); err != nil || at != (store.Place{}) || read(0) != "" {
		t.Errorf("after it was removed: %+v, %v, %s", at, err, read(0))
	}
	if at, err := s.End(t.Context(), other); err != nil || at.Last != 1 {
		t.Errorf("another one went, too: %+v, %v", at, err)
	}
}

// streamsOf looks at a store beside the hubs.
func streamsOf(t *testing.T, address string) jetstream.JetStream {
	t.Helper()
	conn, err := nats.Connect(address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	return js
}
