package fleet_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats-server/v2/server"

	"sandboxagent.dev/sandbox-agent/acp/sse"
	control "sandboxagent.dev/sandbox-agent/control/client"
	"sandboxagent.dev/sandbox-agent/fleet"
	hubclient "sandboxagent.dev/sandbox-agent/fleet/client"
	"sandboxagent.dev/sandbox-agent/fleet/store"
	"sandboxagent.dev/sandbox-agent/runtime"
)

// following is a client that follows the list of sessions.
type following struct {
	t     testing.TB
	who   string
	told  chan fleet.SessionChange
	ended chan error // has why the stream ended
	leave func()

	all  []fleet.SessionChange // what was read
	last uint64                // the newest position
}

// follow begins to follow the list behind a position.
func (h *hub) follow(who, token string, after uint64) *following {
	h.t.Helper()
	resp := h.open(http.MethodGet, fmt.Sprintf("/v2/sessions/changes?after=%d", after), token, nil)
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != sse.ContentType {
		b, _ := io.ReadAll(resp.Body)
		h.t.Fatalf("%s follows: %s %s", who, resp.Status, b)
	}
	f := &following{t: h.t, who: who, told: make(chan fleet.SessionChange, 10_000), ended: make(chan error, 1)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.ended <- f.read(resp.Body)
	}()
	f.leave = func() { resp.Body.Close(); <-done }
	h.t.Cleanup(f.leave)
	return f
}

func (f *following) read(body io.Reader) error {
	for dec := sse.NewDecoder(body, 1<<20); ; {
		ev, err := dec.Next()
		if err != nil {
			return err
		}
		if ev.Type == "error" {
			return errors.New(kindOf(ev.Data))
		}
		var c fleet.SessionChange
		if err := json.Unmarshal(ev.Data, &c); err != nil {
			return err
		}
		if id := fmt.Sprint(c.Position); ev.ID != id {
			return fmt.Errorf("the position %s has the id %s", id, ev.ID)
		}
		f.told <- c
	}
}

// until reads up to a change for which ok says so.
func (f *following) until(what string, ok func(fleet.SessionChange) bool) fleet.SessionChange {
	f.t.Helper()
	for {
		select {
		case c := <-f.told:
			if c.Position > 0 {
				if c.Position < f.last {
					f.t.Fatalf("%s: position %d behind %d", f.who, c.Position, f.last)
				}
				f.last = c.Position
			}
			if f.all = append(f.all, c); ok(c) {
				return c
			}
		case <-time.After(patience):
			f.t.Fatalf("%s is not told %s; it was told\n%s", f.who, what, text(f.all))
		}
	}
}

func text(all []fleet.SessionChange) string {
	var b strings.Builder
	for _, c := range all {
		fmt.Fprintf(&b, "%d %s %s", c.Position, c.Type, c.SessionID)
		if c.Session != nil {
			fmt.Fprintf(&b, "%s at %s: %s, %d events, %q", c.Session.ID, c.Session.Node, c.Session.State, c.Session.EventCount, c.Session.Title)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// current reads up to where all was told that there was.
func (f *following) current() *following {
	f.t.Helper()
	f.until("that this is all", func(c fleet.SessionChange) bool { return c.Type == runtime.ChangeCurrent })
	return f
}

// sees reads up to a session in a state.
func (f *following) sees(id, node string, state runtime.State) fleet.SessionChange {
	f.t.Helper()
	return f.until(fmt.Sprintf("that %s at %s is %s", id, node, state), func(c fleet.SessionChange) bool {
		return c.Type == runtime.ChangeSession && c.Session.ID == id && c.Session.Node == node && c.Session.State == state
	})
}

// each reads up to where all of some sessions were told to be in a state.
func (f *following) each(state runtime.State, ids ...string) {
	f.t.Helper()
	f.until(fmt.Sprint("that they are ", state, ": ", ids), func(c fleet.SessionChange) bool {
		ids = slices.DeleteFunc(ids, func(id string) bool { return c.Session != nil && c.Session.ID == id && c.Session.State == state })
		return len(ids) == 0
	})
}

func (f *following) deleted(id string) {
	f.t.Helper()
	f.until("that "+id+" is gone", func(c fleet.SessionChange) bool { return c.Type == runtime.ChangeDeleted && c.SessionID == id })
}

// count returns how many of the changes that were read are so.
func (f *following) count(ok func(fleet.SessionChange) bool) (n int) {
	for _, c := range f.all {
		if ok(c) {
			n++
		}
	}
	return n
}

func of(kind runtime.ChangeType) func(fleet.SessionChange) bool {
	return func(c fleet.SessionChange) bool { return c.Type == kind }
}

func about(id string) func(fleet.SessionChange) bool {
	return func(c fleet.SessionChange) bool {
		return c.SessionID == id || c.Session != nil && c.Session.ID == id
	}
}

// What happens to sessions, and to their node, is told, in order and from where the list was read.
func TestFeed_WhatHappens(t *testing.T) {
	h := startCopier(t)
	g := newGateway()
	g.put("before", begun, said(1, "one"))
	n := h.join("box", h.joinToken(), nil, g)
	h.copied("before", 1)
	anew := h.follow("who knows nothing", adminToken, 0)
	if first := anew.until("anything", func(fleet.SessionChange) bool { return true }); first.Type != runtime.ChangeReset || first.Position != 0 {
		t.Errorf("first it is told %+v", first)
	}
	anew.sees("before", "box", runtime.StateIdle)
	anew.current()
	position := h.list(adminToken, "").Position
	f := h.follow("who has the list", adminToken, position).current()
	if f.count(of(runtime.ChangeReset)) > 0 {
		t.Errorf("a position of the list is not known:\n%s", text(f.all))
	}
	g.put("s", begun.Add(time.Hour), said(1, "one"))
	made := f.sees("s", "box", runtime.StateIdle)
	if made.Session.Title != "about s" || made.Session.Epoch == 0 {
		t.Errorf("%+v", made.Session)
	}
	g.tellState("s", runtime.StateWaiting, begun.Add(time.Hour), 2, said(1, "one"), said(2, "two"))
	f.sees("s", "box", runtime.StateWaiting)
	n.leave()
	f.each(fleet.SessionOffline, "s", "before")
	g.tellState("s", runtime.StateIdle, begun.Add(time.Hour), 2, said(1, "one"), said(2, "two"))
	<-n.done
	h.join("box", h.joinToken(), nil, g)
	f.sees("s", "box", runtime.StateIdle)
	g.forget("s", true)
	f.deleted("s")
	// A later one knows it from before it all.
	late := h.follow("who comes later", adminToken, position)
	late.deleted("s")
	late.current()
	if late.count(of(runtime.ChangeReset)) > 0 || late.count(func(c fleet.SessionChange) bool { return about("s")(c) && c.Session != nil }) > 0 {
		t.Errorf("it is told\n%s", text(late.all))
	}
	status, body := h.ask(http.MethodGet, "/v2/sessions/changes?after=x", adminToken, nil)
	if status != http.StatusBadRequest {
		t.Errorf("%d %s", status, body)
	}
	if status, body := h.ask(http.MethodHead, "/v2/sessions/changes", adminToken, nil); status != http.StatusOK || len(body) > 0 {
		t.Errorf("%d %s", status, body)
	}
}

// Go programs follow the list with the hub's client.
func TestFeed_Client(t *testing.T) {
	h := startCopier(t)
	h.box("one", nil)
	s := h.hello(adminToken).session("one")
	api, err := hubclient.New(h.url, control.Options{Token: adminToken})
	if err != nil {
		t.Fatal(err)
	}
	ready := false
	for c, err := range api.FollowSessions(t.Context(), 0, func() { ready = true }) {
		if err != nil {
			t.Fatal(err)
		}
		if c.Session != nil && c.Session.ID == s && c.Session.Node == "one" {
			if !ready {
				t.Error("it was not said that there is a stream")
			}
			return
		}
	}
	t.Error("the session is not told")
}

// Each token is told of its own nodes' sessions, and of no other, also when labels change.
func TestFeed_ScopesOfTokens(t *testing.T) {
	h := startCopier(t)
	one, two := newGateway(), newGateway()
	one.put("s1", begun, said(1, "one"))
	two.put("s2", begun, said(1, "one"))
	n := h.join("one", h.joinToken(), map[string]string{"team": "a"}, one)
	h.join("two", h.joinToken(), map[string]string{"team": "b"}, two)
	h.copied("s1", 1)
	h.copied("s2", 1)
	client := func(n fleet.NewToken) string {
		n.Kind = store.KindClient
		return h.token(n)
	}
	all := h.follow("who sees all", client(fleet.NewToken{}), 0).current()
	a := h.follow("team a", client(fleet.NewToken{Labels: map[string]string{"team": "a"}}), 0).current()
	b := h.follow("team b", client(fleet.NewToken{Labels: map[string]string{"team": "b"}}), 0).current()
	named := h.follow("who has node two", client(fleet.NewToken{Node: "two"}), 0).current()
	two.tell("s2", begun, 2, said(1, "one"), said(2, "two"))
	for _, f := range []*following{all, b, named} {
		f.until("the second event", func(c fleet.SessionChange) bool { return about("s2")(c) && c.Session.EventCount == 2 })
	}
	// The node goes over to the other team.
	n.leave()
	all.sees("s1", "one", fleet.SessionOffline)
	<-n.done
	h.join("one", h.joinToken(), map[string]string{"team": "b"}, one)
	a.deleted("s1")
	b.sees("s1", "one", runtime.StateIdle)
	all.sees("s1", "one", runtime.StateIdle)
	two.forget("s2", true)
	for _, f := range []*following{all, b, named} {
		f.deleted("s2")
	}
	one.tell("s1", begun, 2, said(1, "one"), said(2, "two"))
	b.until("the second event", func(c fleet.SessionChange) bool { return about("s1")(c) && c.Session.EventCount == 2 })
	again := h.follow("team a again", client(fleet.NewToken{Labels: map[string]string{"team": "a"}}), a.last).current()
	for _, tt := range []struct {
		f       *following
		foreign string
		most    int
	}{{a, "s2", 0}, {again, "s2", 0}, {again, "s1", 0}, {named, "s1", 0}} {
		if n := tt.f.count(about(tt.foreign)); n > tt.most {
			t.Errorf("%s is told of %s:\n%s", tt.f.who, tt.foreign, text(tt.f.all))
		}
	}
	if all.count(of(runtime.ChangeDeleted)) != 1 {
		t.Errorf("%s is told\n%s", all.who, text(all.all))
	}
}

// A session that moves is at another node for who may see both, gone for who sees the first one, and new for
// who sees the second one. It is the same with another hub.
func TestFeed_Moves(t *testing.T) {
	one, two := peers(t)
	one.box("one", map[string]string{"size": "small"})
	one.box("two", nil)
	two.awaitState("one", fleet.StateOnline)
	two.awaitState("two", fleet.StateOnline)
	c := one.hello(adminToken)
	s := c.session("one")
	c.says(s, "first")
	one.knows(s, "one", 1)
	two.knows(s, "one", 1)
	for _, h := range []*hub{one, two} {
		from, to := "one", "two"
		if h == two {
			from, to = to, from
		}
		h.await("it is listed at "+from, func() bool { return slices.Equal(h.listed(s), []string{from}) })
		all := h.follow("who sees both", adminToken, h.list(adminToken, "").Position).current()
		first := h.follow("who sees "+from, h.token(fleet.NewToken{Kind: store.KindClient, Node: from}), 0).current()
		second := h.follow("who sees "+to, h.token(fleet.NewToken{Kind: store.KindClient, Node: to}), 0).current()
		if first.count(about(s)) == 0 || second.count(about(s)) > 0 {
			t.Errorf("before, it is told\n%sand\n%s", text(first.all), text(second.all))
		}
		h.move(s, fleet.MoveRequest{Node: to})
		there := func(c fleet.SessionChange) bool {
			return about(s)(c) && c.Session != nil && c.Session.Node == to && c.Session.Moves != nil && c.Session.Moves.Node == to && c.Session.Moves.To == ""
		}
		all.until("that it is at "+to, there)
		second.until("that it is at "+to, there)
		first.deleted(s)
		if n := all.count(of(runtime.ChangeDeleted)); n > 0 {
			t.Errorf("who sees both is told that it is gone:\n%s", text(all.all))
		}
		c.says(s, "at "+to)
		said := h.session(s).EventCount
		second.until("what is said there", func(c fleet.SessionChange) bool { return there(c) && c.Session.EventCount >= said })
		// What is done there is nothing for who sees only where it was.
		again := h.follow(first.who, h.token(fleet.NewToken{Kind: store.KindClient, Node: from}), first.last).current()
		if again.count(about(s)) > 0 {
			t.Errorf("%s is told\n%s", again.who, text(again.all))
		}
	}
}

// The store tells of a move before the node that has the session does: until then it is shown as moved, and is
// not gone.
func TestFeed_MoveIsKnownFirst(t *testing.T) {
	h := startCopier(t)
	one, two := newGateway(), newGateway()
	one.put("s", begun, said(1, "one"))
	h.join("one", h.joinToken(), nil, one)
	h.join("two", h.joinToken(), nil, two)
	h.copied("s", 1)
	all := h.follow("who sees both", adminToken, 0).current()
	first := h.follow("who sees one", h.token(fleet.NewToken{Kind: store.KindClient, Node: "one"}), 0).current()
	if _, err := h.store.UpdateOwner(t.Context(), store.Line{Session: "s", Created: begun}, func(*store.Owner) (*store.Owner, error) {
		return &store.Owner{Node: "two", Term: 2, Since: time.Now(), Others: []store.Other{{Node: "one", Term: 1, LastSeq: 1}}}, nil
	}); err != nil {
		t.Fatal(err)
	}
	if got := all.sees("s", "one", fleet.SessionMoved); got.Session.Moves == nil || got.Session.Moves.Node != "two" {
		t.Errorf("%+v", got.Session)
	}
	two.put("s", begun, said(1, "one"))
	all.sees("s", "two", runtime.StateIdle)
	first.deleted("s")
	if all.count(of(runtime.ChangeDeleted)) > 0 {
		t.Errorf("it is told\n%s", text(all.all))
	}
}

// Of two sessions with one id one is told, and the other one when that is gone.
func TestFeed_OneIDAtTwoNodes(t *testing.T) {
	h := startCopier(t)
	one, two := newGateway(), newGateway()
	one.put("s", begun, said(1, "one"))
	two.put("s", begun.Add(time.Hour), said(1, "one"))
	h.join("one", h.joinToken(), nil, one)
	h.join("two", h.joinToken(), nil, two)
	h.await("both are there", func() bool { return len(h.store.SessionsNamed("s")) == 2 })
	f := h.follow("a client", adminToken, 0).current()
	second := h.follow("who sees two", h.token(fleet.NewToken{Kind: store.KindClient, Node: "two"}), 0).current()
	for of, node := range map[*following]string{f: "one", second: "two"} {
		if got := of.all[len(of.all)-2]; got.Session == nil || got.Session.Node != node {
			t.Errorf("%s is told\n%s", of.who, text(of.all))
		}
	}
	one.forget("s", true)
	f.sees("s", "two", runtime.StateIdle)
	two.forget("s", true)
	f.deleted("s")
	second.deleted("s")
	if f.count(of(runtime.ChangeDeleted)) != 1 {
		t.Errorf("it is told\n%s", text(f.all))
	}
}

// All hubs of a store tell the same. A position of one is none at another one, as when the one has ended and
// its clients come there.
func TestFeed_OtherHub(t *testing.T) {
	one, two := peers(t)
	g := newGateway()
	var all []string
	for i := range 100 { // more than are looked at together
		all = append(all, fmt.Sprint("s", i))
		g.put(all[i], begun.Add(time.Duration(i)*time.Second), said(1, "one"))
	}
	n := one.join("box", one.joinToken(), nil, g)
	for _, id := range all {
		two.copied(id, 1)
	}
	two.awaitState("box", fleet.StateOnline)
	here, there := one.follow("a client of one", adminToken, 0).current(), two.follow("a client of two", adminToken, 0).current()
	g.tell("s7", begun.Add(7*time.Second), 2, said(1, "one"), said(2, "two"))
	second := func(c fleet.SessionChange) bool { // which is also when this gateway has been asked for the bundle
		return about("s7")(c) && c.Session.EventCount == 2 && c.Session.Replica.LastSeq == 2 && c.Session.Replica.BundleTrouble != ""
	}
	if diff := cmp.Diff(here.until("the event", second).Session, there.until("the event", second).Session); diff != "" {
		t.Errorf("hubs tell it in two ways:\n%s", diff)
	}
	// A client of the hub that holds the node goes on at the other one.
	n.leave()
	<-n.done
	one.stop()
	if err := <-here.ended; !errors.Is(err, io.EOF) {
		t.Errorf("the stream of a hub that ends: %v", err)
	}
	there.each(fleet.SessionOffline, slices.Clone(all)...)
	moved := two.follow("a client of one at two", adminToken, here.last).current()
	ids := map[string]bool{}
	for _, c := range moved.all {
		if c.Session != nil {
			ids[c.Session.ID] = true
		}
	}
	if moved.all[0].Type != runtime.ChangeReset || len(ids) != 100 {
		t.Errorf("there are %d sessions:\n%s", len(ids), text(moved.all[:3]))
	}
	// What is known at the same hub is not told again.
	same := two.follow("a client of two again", adminToken, moved.last).current()
	if len(same.all) != 1 {
		t.Errorf("it is told again\n%s", text(same.all))
	}
}

// The hub that holds a node lives no more: its sessions are offline at the others.
func TestFeed_HubOfTheNodeIsGone(t *testing.T) {
	shared := store.Options{URL: natsServer(t)}
	h := startCopierOn(t, "alive", shared)
	shared.Hub = "dead"
	dead, err := store.Open(t.Context(), shared, nil)
	if err != nil {
		t.Fatal(err)
	}
	end := sync.OnceFunc(dead.Close)
	defer end()
	held, err := dead.Join(t.Context(), store.Node{Name: "box", Version: "test", Instance: "instance"}, func(store.Node) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	f := h.follow("a client", adminToken, h.list(adminToken, "").Position).current()
	id := store.ReplicaID{Node: "box", Session: "s", Epoch: 1}
	if err := dead.UpdateSession(t.Context(), id, func(*store.Session) *store.Session {
		return &store.Session{NodeJoined: held.Node().Joined, Info: runtime.SessionInfo{ID: "s", State: runtime.StateRunning, CreatedAt: begun}}
	}); err != nil {
		t.Fatal(err)
	}
	f.sees("s", "box", runtime.StateRunning)
	end()
	if got := f.sees("s", "box", fleet.SessionOffline); !got.Session.Replica.MayMiss {
		t.Errorf("%+v", got.Session)
	}
}

// A client that takes little is told in the end how all is now; it holds up nobody, nor does one that takes nothing, and not the end of the hub.
func TestFeed_SlowFollower(t *testing.T) {
	t.Parallel() // it waits more than it computes
	h := startCopier(t)
	g := newGateway()
	h.join("box", h.joinToken(), nil, g)
	const sessions, rounds = 80, 8
	large := json.RawMessage(`"` + strings.Repeat("x", 15<<10) + `"`)
	fill := func(round int) {
		for i := range sessions {
			info := runtime.SessionInfo{ID: fmt.Sprint("s", i), Agent: "mock", Title: fmt.Sprint("round ", round), State: runtime.StateIdle, CreatedAt: begun, UpdatedAt: begun.Add(time.Duration(round) * time.Second), Metadata: large}
			g.mu.Lock()
			g.sessions[info.ID] = &held{info: info, oldest: 1}
			g.addLocked(runtime.SessionChange{Type: runtime.ChangeSession, Session: &info})
			g.mu.Unlock()
		}
	}
	// What the system keeps for a client is little, so that it is not seen to take nothing while it empties that.
	front := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.hub.ServeHTTP(w, r) }))
	front.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		if err := c.(*net.TCPConn).SetWriteBuffer(64 << 10); err != nil {
			t.Error(err)
		}
		return ctx
	}
	front.Start()
	t.Cleanup(front.Close)
	slow := func() io.Reader {
		conn := must(net.Dial("tcp", front.Listener.Addr().String()))
		t.Cleanup(func() { conn.Close() })
		if _, err := fmt.Fprintf(conn, "GET /v2/sessions/changes HTTP/1.1\r\nHost: hub\r\nAuthorization: Bearer %s\r\n\r\n", adminToken); err != nil {
			t.Fatal(err)
		}
		r := bufio.NewReader(conn)
		resp, err := http.ReadResponse(r, nil)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%+v %v", resp, err)
		}
		return resp.Body
	}
	body := slow()
	slow() // takes nothing to the end
	quick := h.follow("a quick client", adminToken, 0).current()
	var taken bytes.Buffer
	stop, slowly := make(chan struct{}), make(chan error, 1)
	go func() { // who takes nothing for a minute is dropped, and a round may take longer than that
		tick := time.NewTicker(5 * time.Second)
		defer tick.Stop()
		for some := make([]byte, 16<<10); ; {
			select {
			case <-tick.C:
				n, err := io.ReadFull(body, some)
				if taken.Write(some[:n]); err != nil {
					slowly <- err
					return
				}
			case <-stop:
				slowly <- nil
				return
			}
		}
	}()
	for round := range rounds {
		fill(round)
		left := map[string]bool{}
		for i := range sessions {
			left[fmt.Sprint("s", i)] = true
		}
		quick.until(fmt.Sprint("round ", round), func(c fleet.SessionChange) bool {
			if c.Session != nil && c.Session.Title == fmt.Sprint("round ", round) {
				delete(left, c.Session.ID)
			}
			return len(left) == 0
		})
	}
	close(stop)
	if err := <-slowly; err != nil {
		t.Fatal(err)
	}
	f := &following{t: t, who: "a slow client", told: make(chan fleet.SessionChange, 10_000), ended: make(chan error, 1)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.ended <- f.read(io.MultiReader(&taken, body))
	}()
	now := map[string]string{}
	f.until("the last round", func(c fleet.SessionChange) bool {
		if c.Session != nil {
			now[c.Session.ID] = c.Session.Title
		}
		last := 0
		for _, title := range now {
			if title == fmt.Sprint("round ", rounds-1) {
				last++
			}
		}
		return last == sessions
	})
	if n := f.count(of(runtime.ChangeSession)); n >= sessions*rounds {
		t.Errorf("it was told %d changes of %d", n, sessions*rounds)
	}
	began := time.Now()
	h.stop()
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("the hub has ended after %v", took)
	}
	<-done
}

// A stream ends with its token, and says why; one whose client leaves, and one of a hub that ends, end by themselves.
func TestFeed_Ends(t *testing.T) {
	h := startCopier(t)
	token := h.token(fleet.NewToken{Kind: store.KindClient})
	revoked, other := h.follow("who is revoked", token, 0).current(), h.follow("another one", adminToken, 0).current()
	if status, body := h.ask(http.MethodDelete, "/v2/tokens/"+idOf(token), adminToken, nil); status != http.StatusNoContent {
		t.Fatalf("revoke: %d %s", status, body)
	}
	if err := <-revoked.ended; err == nil || err.Error() != "token_invalid" {
		t.Errorf("the stream of a token that is revoked: %v", err)
	}
	gone := h.follow("who leaves", adminToken, 0).current()
	gone.leave()
	h.stop()
	if err := <-other.ended; !errors.Is(err, io.EOF) {
		t.Errorf("the stream of a hub that ends: %v", err)
	}
}

// While the store is out of reach a stream stays, and goes on when it is back.
func TestFeed_StoreIsAway(t *testing.T) {
	t.Parallel() // it waits more than it computes
	dir, port := t.TempDir(), -1
	start := func() *server.Server {
		s := must(server.NewServer(&server.Options{Host: "127.0.0.1", Port: port, JetStream: true, JetStreamMaxStore: math.MaxInt64, StoreDir: dir, NoSigs: true, NoLog: true}))
		s.Start()
		if !s.ReadyForConnections(patience) {
			t.Fatal("the NATS server is not ready")
		}
		return s
	}
	end := func(s *server.Server) { s.Shutdown(); s.WaitForShutdown() }
	s := start()
	defer func() { end(s) }()
	port = s.Addr().(*net.TCPAddr).Port
	h := startCopierOn(t, "hub", store.Options{URL: s.ClientURL()})
	defer h.stop()
	g := newGateway()
	g.put("s", begun, said(1, "one"))
	h.join("box", h.joinToken(), nil, g)
	h.copied("s", 1)
	f := h.follow("a client", adminToken, 0).current()
	end(s)
	h.await("the store is away", func() bool { return h.store.Ready() != nil })
	g.put("later", begun.Add(time.Hour), said(1, "one"))
	g.tell("s", begun, 2, said(1, "one"), said(2, "two"))
	s = start()
	left := []string{"s", "later"}
	f.until("what has happened meanwhile", func(c fleet.SessionChange) bool {
		if c.Session != nil && (c.Session.ID == "later" || c.Session.EventCount == 2) {
			left = slices.DeleteFunc(left, func(id string) bool { return id == c.Session.ID })
		}
		return len(left) == 0
	})
	if f.count(of(runtime.ChangeReset)) != 1 || f.count(of(runtime.ChangeDeleted)) > 0 {
		t.Errorf("it is told\n%s", text(f.all))
	}
}
