package fleet_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/fleet"
	"sandboxagent.dev/sandbox-agent/fleet/join"
	"sandboxagent.dev/sandbox-agent/fleet/store"
)

// movesLost has a hub move the sessions of nodes that are lost, at once.
func movesLost() fleet.Options {
	return fleet.Options{Replicate: true, Bundles: true, OnLoss: []fleet.OnLoss{{}}, LossGrace: 100 * time.Millisecond}
}

// Nodes are lost. Sessions of those that a rule is for go on at others that it is for, and their
// clients with them; those of the rest wait, and so does what somebody has closed.
func TestOnLoss_SessionsGoOn(t *testing.T) {
	t.Parallel() // it waits more than it computes
	h := startHubThat(t, "hub", store.Options{Dir: t.TempDir()}, fleet.Options{
		Replicate: true, Bundles: true, OnLoss: []fleet.OnLoss{{Labels: map[string]string{"pool": "ci"}}}, LossGrace: 100 * time.Millisecond,
	})
	ci := map[string]string{"pool": "ci"}
	lost := []*node{h.join("ci-1", h.joinToken(), ci, newBox(t)), h.join("desk", h.joinToken(), nil, newBox(t))}
	h.box("spare", nil)
	c := h.hello(adminToken)
	on, stays, closed := c.session("ci-1"), c.session("desk"), c.session("ci-1")
	for _, s := range []string{on, stays, closed} {
		c.says(s, "first")
	}
	c.must("session/close", `{"sessionId":"`+closed+`"}`)
	h.bundled(on, "ci-1")
	h.bundled(stays, "desk")
	h.bundled(closed, "ci-1")
	h.await("it is known to be closed", func() bool { return h.session(closed).State == "closed" })
	for _, n := range lost {
		n.leave()
		<-n.done
	}
	h.awaitState("ci-1", fleet.StateOffline)
	h.box("ci-2", ci) // before there was nowhere to go
	c.moved(on)
	c.says(on, "second")
	if got := c.heard(on); !slices.Equal(got, []string{"first", "second"}) {
		t.Errorf("the client heard %q", got)
	}
	h.knows(on, "ci-2", 1) // its clients are told first
	for s, node := range map[string]string{on: "ci-2", stays: "desk", closed: "ci-1"} {
		if nodes := h.listed(s); !slices.Equal(nodes, []string{node}) {
			t.Errorf("it is listed at %v, want %s", nodes, node)
		}
	}
}

// A session that cannot go is no reason for the others of its node to stay: of one that began when the copies had no room the hub
// has what its agent keeps, and no event.
func TestOnLoss_OneCannotGo(t *testing.T) {
	t.Parallel() // it waits more than it computes
	h := startHubThat(t, "hub", store.Options{Dir: t.TempDir(), LogBytes: 16 << 10}, movesLost())
	n := h.join("lost", h.joinToken(), nil, newBox(t))
	c := h.hello(adminToken)
	var first, last string
	for copied := true; copied; {
		last = c.session("lost")
		c.says(last, "first")
		var rec *store.Session
		h.await("it is copied, or has no room", func() bool {
			all := h.store.SessionsNamed(last)
			if len(all) == 1 && all[0].Bundled > 0 && all[0].Bundled >= all[0].Info.EventCount {
				rec = all[0]
			}
			return rec != nil && (rec.Trouble != "" || rec.Through >= rec.Info.EventCount)
		})
		end, err := h.store.End(t.Context(), rec.ReplicaID)
		if err != nil {
			t.Fatal(err)
		}
		if copied = end.Last > 0; first == "" {
			first = last
		}
	}
	if first == last {
		t.Fatal("not even the first session has room")
	}
	h.loses(n, "lost")
	h.box("spare", nil)
	c.moved(first)
	c.says(first, "second")
	if s := h.session(last); s.Node != "lost" || s.State != fleet.SessionOffline {
		t.Errorf("the one that cannot go: %+v", s)
	}
}

// A node that is connected and does not answer takes no session, and keeps none from going elsewhere. Who moves one there is told.
func TestOnLoss_ANodeHangs(t *testing.T) {
	t.Parallel() // it waits for half a minute
	h := startHubThat(t, "hub", store.Options{Dir: t.TempDir()}, movesLost())
	n := h.join("lost", h.joinToken(), nil, newBox(t))
	h.box("spare", nil)
	c := h.hello(adminToken)
	stays, sessions := c.session("spare"), []string{c.session("lost"), c.session("lost")}
	c.says(stays, "first")
	h.knows(stays, "spare", 1)
	for _, s := range sessions {
		c.says(s, "first")
		h.bundled(s, "lost")
	}
	g := newGateway()
	h.join("hangs", h.joinToken(), nil, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { // it has the least work
		if strings.HasPrefix(r.URL.Path, "/v2/sessions/mock-") {
			<-r.Context().Done()
			return
		}
		g.ServeHTTP(w, r)
	}))
	answer := make(chan string, 1)
	go func() {
		_, body := h.ask(http.MethodPost, "/v2/sessions/"+stays+"/move", adminToken, fleet.MoveRequest{Node: "hangs"})
		answer <- string(body)
	}()
	n.leave()
	<-n.done
	for _, s := range sessions {
		c.moved(s)
		c.says(s, "second")
		h.knows(s, "spare", 1)
	}
	if body := <-answer; kindOf([]byte(body)) != "node_offline" || !strings.Contains(body, "stays at spare") || !strings.Contains(body, "hangs has not answered") {
		t.Errorf("moved there: %s", body)
	}
}

// A session that cannot go, and for which its next node seems to be at fault, keeps the others of its node from going there for a
// moment at most, also where it is the first that would go.
func TestOnLoss_OneCannotGoToTheOnlyNode(t *testing.T) {
	for name, row := range map[string]struct {
		line   string // at the end of what the hub has of it
		breaks bool   // the node does not say whether it has it
		beside bool   // there is another node, with more work
	}{
		"a line that cannot be read":                {line: `{"seq":%d,"of":"a hub to come"}`},
		"a line that cannot be read, and two nodes": {line: `{"seq":%d,"of":"a hub to come"}`, beside: true},
		"no answer": {breaks: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // it waits more than it computes
			h := startHubThat(t, "hub", store.Options{Dir: t.TempDir()}, movesLost())
			n := h.join("lost", h.joinToken(), nil, newBox(t))
			c := h.hello(adminToken)
			goes, cannot := c.session("lost"), c.session("lost") // the last one is the first to go
			for _, s := range []string{goes, cannot} {
				c.says(s, "first")
				h.bundled(s, "lost")
			}
			if row.line != "" {
				id := h.store.SessionsNamed(cannot)[0].ReplicaID
				end := must(h.store.End(t.Context(), id))
				line := fmt.Appendf(nil, row.line+"\n", end.Last+1)
				must(h.store.Append(t.Context(), id, end, store.Batch{First: end.Last + 1, Last: end.Last + 1, Lines: line}))
			}
			if row.beside {
				h.box("beside", nil)
				c.says(c.session("beside"), "first")
			}
			box := newBox(t)
			h.join("spare", h.joinToken(), nil, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if row.breaks && r.URL.Path == "/v2/sessions/"+cannot {
					panic(http.ErrAbortHandler)
				}
				box.ServeHTTP(w, r)
			}))
			n.leave()
			<-n.done
			c.moved(goes)
			c.says(goes, "second")
			h.knows(goes, "spare", 1)
			if s := h.session(cannot); s.Node != "lost" || s.State != fleet.SessionOffline {
				t.Errorf("the one that cannot go: %+v", s)
			}
			for row.line != "" { // who moves it by hand is told that it is the hub's fault, and no node's
				_, body := h.ask(http.MethodPost, "/v2/sessions/"+cannot+"/move", adminToken, fleet.MoveRequest{Node: "spare"})
				if kindOf(body) == "conflict" {
					continue // the hub is at it
				}
				if kindOf(body) != "unavailable" || !strings.Contains(string(body), "cannot use what it has of it") {
					t.Errorf("moved by hand: %s", body)
				}
				break
			}
		})
	}
}

// The only node with the agent of a session does not answer once. The session waits for that node, not for minutes.
func TestOnLoss_TheNodeWithTheAgentIsSilent(t *testing.T) {
	t.Parallel() // it waits more than it computes
	h := startHubThat(t, "hub", store.Options{Dir: t.TempDir()}, movesLost())
	n := h.join("lost", h.joinToken(), nil, newBox(t))
	c := h.hello(adminToken)
	sessions := []string{c.session("lost"), c.session("lost")}
	for _, s := range sessions {
		c.says(s, "first")
		h.bundled(s, "lost")
	}
	without := must(join.New(join.Options{Hub: must(url.Parse(h.url)), TokenFile: n.tokenFile, Name: "without", Version: "test"}))
	without.SetAgents([]string{"other"})
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan struct{})
	go func() {
		defer close(left)
		without.Run(ctx)
	}()
	defer func() { leave(); <-left }()
	h.awaitState("without", fleet.StateOnline)
	box := newBox(t)
	var answers atomic.Bool
	h.join("with", h.joinToken(), nil, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if slices.Contains(sessions, strings.TrimPrefix(r.URL.Path, "/v2/sessions/")) && !answers.Swap(true) {
			panic(http.ErrAbortHandler)
		}
		box.ServeHTTP(w, r)
	}))
	n.leave()
	<-n.done
	for _, s := range sessions {
		c.moved(s)
		c.says(s, "second")
		h.knows(s, "with", 1)
	}
	if !answers.Load() {
		t.Error("the node was not asked")
	}
}

func TestParseOnLoss(t *testing.T) {
	for words, want := range map[string]string{
		"read":                               "[]",
		"":                                   "[]",
		"move":                               "[{map[]}]",
		"move:a=b move:c=d+e=f":              "[{map[a:b]} {map[c:d e:f]}]",
		"read move":                          `"read" beside others`,
		"copy":                               `"copy" is neither`,
		"move:":                              `"" is no label`,
		"move:a":                             `"a" is no label`,
		"read:a=b":                           `"read:a=b" beside others`,
		"move:a=" + strings.Repeat("x", 100): "",
	} {
		rules, err := fleet.ParseOnLoss(strings.Fields(words))
		got := fmt.Sprint(rules)
		if err != nil {
			got = err.Error()[:min(len(err.Error()), len(want))]
		}
		if want == "" {
			if err == nil {
				t.Errorf("%q: %v", words, rules)
			}
			continue
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q: %s", words, diff)
		}
	}
}

// Two hubs see that a node is lost. One of them moves its session, once.
func TestOnLoss_TwoHubs(t *testing.T) {
	t.Parallel() // it waits more than it computes
	shared := store.Options{URL: natsServer(t), Advertise: advertised}
	does := movesLost()
	one, two := startHubThat(t, "one", shared, does), startHubThat(t, "two", shared, does)
	n := one.join("lost", one.joinToken(), nil, newBox(t))
	two.boxAt(two.url, "spare", nil)
	one.awaitState("spare", fleet.StateOnline)
	c := one.hello(adminToken)
	s := c.session("lost")
	c.says(s, "first")
	one.bundled(s, "lost")
	two.knows(s, "lost", 1)
	n.leave()
	<-n.done
	c.next(0, "that it has moved", func(m *acp.Message) bool { return m.Method() == "_sandboxagent/session/moved" })
	c.says(s, "second")
	one.await("the record of the node that has it", func() bool { return one.session(s).Node == "spare" })
	if moves := one.session(s).Moves; moves == nil || moves.Term != 2 || len(moves.Before) != 1 || moves.To != "" {
		t.Errorf("%+v", moves)
	}
	if got := c.heard(s); !slices.Equal(got, []string{"first", "second"}) {
		t.Errorf("the client heard %q", got)
	}
}

// The hub that moves a session of a node that is lost ends in the middle of it. Another one does it as soon as that is known.
func TestOnLoss_TheHubThatMovesItEnds(t *testing.T) {
	t.Parallel() // it waits more than it computes
	shared := store.Options{URL: natsServer(t), Advertise: advertised}
	h := startHubThat(t, "one", shared, movesLost())
	n := h.join("lost", h.joinToken(), nil, newBox(t))
	h.box("spare", nil)
	c := h.hello(adminToken)
	second, first := c.session("lost"), c.session("lost") // in the order in which they are moved
	for _, s := range []string{second, first} {
		c.says(s, "first")
		h.bundled(s, "lost")
	}
	shared.Hub, shared.Advertise = "ends", ""
	ends, err := store.Open(t.Context(), shared, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer ends.Close()
	if _, err := ends.UpdateOwner(t.Context(), store.LineOf(h.store.SessionsNamed(first)[0].Info), func(*store.Owner) (*store.Owner, error) {
		return &store.Owner{
			Node: "lost", Term: 1, Since: time.Now(), Others: []store.Other{{Node: "spare"}},
			Moving: &store.Moving{ID: "begun", To: "spare", Hub: "ends", Since: time.Now()},
		}, nil
	}); err != nil {
		t.Fatal(err)
	}
	h.await("the move of the other hub is known", func() bool {
		m := h.session(first).Moves
		return m != nil && m.To == "spare" && h.store.HubLives("ends")
	})
	n.leave()
	<-n.done
	h.await("the other session has moved, behind a look at this one", func() bool { return h.session(second).Node == "spare" })
	ends.Close()
	h.await("it has moved", func() bool { return h.session(first).Node == "spare" })
}
