package fleet_test

import (
	"net/http"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"sandboxagent.dev/sandbox-agent/fleet"
	"sandboxagent.dev/sandbox-agent/fleet/store"
	"sandboxagent.dev/sandbox-agent/internal/patient"
	"sandboxagent.dev/sandbox-agent/runtime"
)

// kept are the nodes and sessions that a hub knows.
func (h *hub) kept() (out []string) {
	for _, n := range h.store.Nodes() {
		out = append(out, "node "+n.Name)
	}
	for _, s := range h.store.Sessions() {
		out = append(out, s.Session+" of "+s.Node)
	}
	slices.Sort(out)
	return out
}

// keeps returns when a hub knows certain nodes and sessions, and nothing else.
func (h *hub) keeps(want ...string) {
	h.t.Helper()
	if !patient.Until(patience, func() bool { return slices.Equal(want, h.kept()) }) {
		h.t.Fatalf("not within %v what it is to know, -want +got:\n%s", patience, cmp.Diff(want, h.kept()))
	}
}

// Nodes that do not come back are forgotten, with the copies of their sessions and what their agents keep: one that
// has left, and one whose hub was killed before it could note that. What a node that is there has stays, however old.
func TestForget_NodesThatAreAway(t *testing.T) {
	t.Parallel() // it waits more than it computes
	dir := t.TempDir()
	killed, err := store.Open(t.Context(), store.Options{Dir: dir, Hub: "killed"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := killed.Join(t.Context(), store.Node{Name: "silent", Version: "test", Instance: "instance"}, func(store.Node) error { return nil }); err != nil {
		t.Fatal(err)
	}
	killed.Close()
	h := startHubThat(t, "hub", store.Options{Dir: dir}, fleet.Options{Replicate: true, ForgetAfter: 400 * time.Millisecond})
	stays, goes := newGateway(), newGateway()
	stays.put("old", begun, some(3, nil)...)
	goes.put("left", begun, some(3, nil)...)
	goes.put("right", begun, some(3, nil)...)
	h.join("stays", h.joinToken(), nil, stays)
	n := h.join("goes", h.joinToken(), nil, goes)
	for _, s := range []string{"old", "left", "right"} {
		h.copied(s, 3)
	}
	n.leave()
	<-n.done
	h.keeps("node stays", "old of stays")
	if got := h.lines("old", 10); len(got) != 3 {
		t.Errorf("what stays has %d events", len(got))
	}
	if status, _ := h.ask(http.MethodGet, "/v2/sessions/left/events", adminToken, nil); status != http.StatusNotFound {
		t.Errorf("the events of what is forgotten: %d", status)
	}
	h.await("that is counted", func() bool {
		return h.metric(`sandbox_hub_forgotten_total{what="session"}`) == 2 && h.metric(`sandbox_hub_forgotten_total{what="node"}`) == 2
	})
	// It is known as any other when it comes back.
	h.join("goes", h.joinToken(), nil, goes)
	h.copied("left", 3)
}

// A hub of an earlier version than another one of its store cannot read all that this has written. What it cannot read is
// not what nobody has come back for.
func TestForget_NodesOfNewerHub(t *testing.T) {
	t.Parallel() // it waits more than it computes
	shared := store.Options{URL: natsServer(t), Advertise: advertised}
	one := startHubThat(t, "one", shared, fleet.Options{Replicate: true})
	for _, name := range []string{"newer", "goes"} {
		g := newGateway()
		g.put("in-"+name, begun, some(2, nil)...)
		n := one.join(name, one.joinToken(), nil, g)
		one.copied("in-"+name, 2)
		n.leave()
		<-n.done
		one.await(name+" is away", func() bool { n, _ := one.store.Node(name); return !n.Connected })
	}
	conn, err := nats.Connect(shared.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	nodes, err := js.KeyValue(t.Context(), "sa_nodes")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := nodes.PutString(t.Context(), "newer", `{"name":{"of":"another form"}}`); err != nil {
		t.Fatal(err)
	}
	two := startHubThat(t, "two", shared, fleet.Options{Replicate: true, ForgetAfter: 400 * time.Millisecond})
	two.keeps("in-newer of newer")
}

// Two hubs forget the same at the same time. A node that comes back, to the other one, is known again with what it has, and
// stays as long as it is there.
func TestForget_TwoHubs(t *testing.T) {
	t.Parallel() // it waits more than it computes
	shared := store.Options{URL: natsServer(t), Advertise: advertised}
	does := fleet.Options{Replicate: true, ForgetAfter: 400 * time.Millisecond}
	one, two := startHubThat(t, "one", shared, does), startHubThat(t, "two", shared, does)
	g := newGateway()
	var want []string
	for _, s := range []string{"a", "b", "c", "d", "e"} {
		g.put(s, begun, some(2, nil)...)
		want = append(want, s+" of box")
	}
	n := one.join("box", one.joinToken(), nil, g)
	want = append(want, "node box")
	for _, h := range []*hub{one, two} {
		h.keeps(want...)
	}
	n.leave()
	<-n.done
	one.keeps()
	two.keeps()
	two.join("box", two.joinToken(), nil, g)
	for _, h := range []*hub{two, one} {
		h.keeps(want...)
		h.copied("e", 2)
	}
	forgotten := func() int {
		return one.metric(`sandbox_hub_forgotten_total{what="session"}`) + two.metric(`sandbox_hub_forgotten_total{what="session"}`)
	}
	if n := forgotten(); n < 5 || n > 10 {
		t.Errorf("%d sessions are counted as forgotten", n)
	}
}

// A session that no node has is forgotten when nothing has happened in it for the time.
func TestForget_SessionsWithoutNode(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	before, err := store.Open(t.Context(), store.Options{Dir: dir, Hub: "before"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	for session, silent := range map[string]time.Duration{"old": 25 * time.Hour, "young": 23 * time.Hour, "ahead": -48 * time.Hour} {
		id := store.ReplicaID{Node: "box", Session: session, Epoch: 1}
		if err := before.UpdateSession(t.Context(), id, func(*store.Session) *store.Session {
			return &store.Session{NodeJoined: now, Info: runtime.SessionInfo{ID: session, UpdatedAt: now.Add(-silent)}}
		}); err != nil {
			t.Fatal(err)
		}
	}
	before.Close()
	h := startHubThat(t, "hub", store.Options{Dir: dir}, fleet.Options{Replicate: true, ForgetAfter: 24 * time.Hour, Settled: 200 * time.Millisecond})
	h.keeps("ahead of box", "young of box")
}
