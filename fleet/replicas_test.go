package fleet_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/fleet"
	"sandboxagent.dev/sandbox-agent/fleet/store"
	"sandboxagent.dev/sandbox-agent/runtime"
	"sandboxagent.dev/sandbox-agent/runtime/session"
)

// some are n events, of which those in large have a text of so many bytes.
func some(n int, large map[int]int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = said(i+1, fmt.Sprintf("piece %d ", i+1)+strings.Repeat("x", large[i+1]))
	}
	return out
}

// list returns the sessions that a query selects.
func (h *hub) list(token, query string) fleet.SessionList {
	h.t.Helper()
	status, body := h.ask(http.MethodGet, "/v2/sessions"+query, token, nil)
	var l fleet.SessionList
	if err := json.Unmarshal(body, &l); status != http.StatusOK || err != nil {
		h.t.Fatalf("list %s: %d %s", query, status, body)
	}
	return l
}

func (h *hub) session(at string) fleet.Session {
	h.t.Helper()
	status, body := h.ask(http.MethodGet, "/v2/sessions/"+at, adminToken, nil)
	var s fleet.Session
	if err := json.Unmarshal(body, &s); status != http.StatusOK || err != nil {
		h.t.Fatalf("session %s: %d %s", at, status, body)
	}
	return s
}

// lines returns all events that the hub has of a session, in pages of limit, as they were sent.
func (h *hub) lines(at string, limit int) []string {
	h.t.Helper()
	out := []string{}
	after := uint64(0)
	for {
		id, q, _ := strings.Cut(at, "?")
		status, body := h.ask(http.MethodGet, fmt.Sprintf("/v2/sessions/%s/events?after=%d&limit=%d&%s", id, after, limit, q), adminToken, nil)
		var page struct {
			Events  []json.RawMessage
			HasMore bool
		}
		if err := json.Unmarshal(body, &page); status != http.StatusOK || err != nil {
			h.t.Fatalf("events of %s after %d: %d %.300s", at, after, status, body)
		}
		for _, raw := range page.Events {
			var e runtime.Event
			if err := json.Unmarshal(raw, &e); err != nil || e.Seq <= after {
				h.t.Fatalf("event %d stands behind event %d: %v", e.Seq, after, err)
			}
			after = e.Seq
			out = append(out, string(raw))
		}
		if !page.HasMore || len(page.Events) == 0 {
			return out
		}
	}
}

// Of a node that is lost at work the hub knows what it was told, and says that this may not be all.
func TestReplicas_LostAtWork(t *testing.T) {
	h := startCopier(t)
	g := newGateway()
	g.tellState("works", runtime.StateRunning, begun, 2, some(2, nil)...)
	g.put("rests", begun, some(2, nil)...)
	n := h.join("box", h.joinToken(), nil, g)
	h.copied("works", 2)
	h.copied("rests", 2)
	if s := h.session("works"); s.Replica.MayMiss {
		t.Errorf("while the node is there: %+v", s.Replica)
	}
	n.leave()
	h.awaitState("box", fleet.StateOffline)
	for id, want := range map[string]bool{"works": true, "rests": false} {
		if r := h.session(id).Replica; r.MayMiss != want || r.Missing != 0 || r.LastSeq != 2 {
			t.Errorf("%s: %+v", id, r)
		}
		status, text := h.ask(http.MethodGet, "/v2/sessions/"+id+"/transcript", adminToken, nil)
		if status != http.StatusOK || strings.Contains(string(text), "it was lost at work") != want {
			t.Errorf("the transcript of %s: %d %s", id, status, text)
		}
	}
}

// Who takes streams and pages is given pages; who takes streams alone is given the node's while it is there.
func TestReplicas_EventsForAnyClient(t *testing.T) {
	h := startCopier(t)
	g := newGateway()
	g.put("s", begun, some(2, nil)...)
	n := h.join("box", h.joinToken(), nil, g)
	h.copied("s", 2)
	n.leave()
	h.awaitState("box", fleet.StateOffline)
	for accept, want := range map[string]int{"application/json, text/event-stream": http.StatusOK, "text/event-stream, */*": http.StatusOK, "text/event-stream": http.StatusNotImplemented} {
		req := must(http.NewRequestWithContext(t.Context(), http.MethodGet, h.url+"/v2/sessions/s/events", nil))
		req.Header.Set("Authorization", "Bearer "+adminToken)
		req.Header.Set("Accept", accept)
		resp, err := plain.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s: %s", accept, resp.Status)
		}
	}
}

// What the hub has of sessions is read, searched and filtered when their node is gone, byte for
// byte, and it says what it has not.
func TestReplicas_WithoutTheNode(t *testing.T) {
	h := startCopier(t)
	g := newGateway()
	one := some(250, map[int]int{7: 1300 << 10, 8: 600 << 10, 250: 700 << 10})
	g.put("one/of:2", begun, one...)
	g.put("two", begun.Add(time.Hour), said(1, "find the nee"), said(2, "dle here"))
	g.tell("three", begun.Add(-time.Hour), 12, some(10, nil)...)
	n := h.join("box", h.joinToken(), map[string]string{"team": "a"}, g)
	h.copied("one/of:2", 250)
	h.copied("two", 2)
	h.copied("three", 12)
	if s := h.session("two"); s.State != runtime.StateIdle || s.Node != "box" || s.Replica.LastSeq != 2 || s.Replica.Missing != 0 {
		t.Errorf("while the node is there: %+v", s)
	}
	g.put("two", begun.Add(time.Hour), said(1, "find the nee"), said(2, "dle here"), said(3, "!"))
	h.copied("two", 3)
	// The node says that there are more, and is gone before it gives them.
	gave := make(chan struct{}, 1)
	g.mu.Lock()
	g.page = func(w http.ResponseWriter, _ string) bool {
		select {
		case gave <- struct{}{}:
		default:
		}
		panic(http.ErrAbortHandler)
	}
	g.mu.Unlock()
	g.tell("two", begun.Add(time.Hour), 9)
	<-gave
	n.leave()
	h.awaitState("box", fleet.StateOffline)

	if s := h.session("two"); s.State != fleet.SessionOffline || s.Replica.LastSeq != 3 || s.Replica.Missing != 6 || s.EventCount != 9 {
		t.Errorf("without the node: %+v", s)
	}
	if s := h.session("three"); s.Replica.LastSeq != 12 || s.Replica.Missing != 0 {
		t.Errorf("numbers without events: %+v", s)
	}
	if diff := cmp.Diff(one, h.lines("one%2Fof:2", 100)); diff != "" {
		t.Errorf("the events, -want +got:\n%.2000s", diff)
	}
	for query, want := range map[string]string{
		"":                          "two one/of:2 three",
		"?sort=created&limit=2":     "two one/of:2",
		"?q=NEEDLE":                 "two",
		"?q=piece+249":              "one/of:2",
		"?q=about+t":                "two three",
		"?node=box&label=team=a":    "two one/of:2 three",
		"?node=other":               "",
		"?label=team=b":             "",
		"?agent=claude":             "",
		"?cwd=/elsewhere":           "",
		"?state=offline&agent=mock": "two one/of:2 three",
		"?state=idle":               "",
	} {
		var got []string
		for _, s := range h.list(adminToken, query).Sessions {
			got = append(got, s.ID)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %q, want %q", query, strings.Join(got, " "), want)
		}
	}
	first := h.list(adminToken, "?limit=1")
	second := h.list(adminToken, "?limit=1&cursor="+first.NextCursor)
	third := h.list(adminToken, "?limit=1&cursor="+second.NextCursor)
	if first.Sessions[0].ID != "two" || second.Sessions[0].ID != "one/of:2" || third.Sessions[0].ID != "three" || third.NextCursor != "" {
		t.Errorf("pages: %+v, %+v, %+v", first, second, third)
	}
	if m := h.list(adminToken, "?q=needle").Sessions[0].Match; m == nil || m.Seq != 2 || !strings.Contains(m.Text, "needle here") {
		t.Errorf("the match: %+v", m)
	}
	status, body := h.ask(http.MethodGet, "/v2/sessions/two/transcript", adminToken, nil)
	if status != http.StatusOK || !strings.Contains(string(body), "find the needle here!") || !strings.Contains(string(body), "6 events at the end") {
		t.Errorf("the transcript: %d %s", status, body)
	}
	// A hub that is killed may have added events without noting it with the session.
	id := store.ReplicaID{Node: "box", Session: "three", Epoch: 1}
	end, err := h.store.End(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.store.Append(t.Context(), id, end, store.Batch{First: 13, Last: 13, Lines: []byte(said(13, " the late one") + "\n")}); err != nil {
		t.Fatal(err)
	}
	if s := h.session("three"); s.EventCount != 13 || s.Replica.LastSeq != 13 || s.Replica.Missing != 0 {
		t.Errorf("with an event that was not noted: %+v", s)
	}
	if _, body := h.ask(http.MethodGet, "/v2/sessions/three/transcript", adminToken, nil); !strings.Contains(string(body), "the late one") {
		t.Error("the transcript lacks the event that was not noted")
	}
	status, body = h.ask(http.MethodPost, "/nodes/box/v2/rpc", adminToken, map[string]string{})
	if status != http.StatusServiceUnavailable || kindOf(body) != "node_offline" || !strings.Contains(string(body), "/v2/sessions?node=box") {
		t.Errorf("a prompt: %d %s", status, body)
	}
	for query, want := range map[string]int{
		"/v2/sessions?limit=0": 400, "/v2/sessions?limit=1001": 400, "/v2/sessions?sort=up": 400, "/v2/sessions?state=lost": 400, "/v2/sessions?cursor=x": 400,
		"/v2/sessions?label=a": 400, "/v2/sessions?q=" + strings.Repeat("a", 201): 400, "/v2/sessions/two?epoch=0": 400, "/v2/sessions/two?epoch=9": 404,
		"/v2/sessions/two/events?after=-1": 400, "/v2/sessions/two/events?limit=0": 400, "/v2/sessions/two/events?acp=3": 400, "/v2/sessions/two/events?acp=2": 501, "/v2/sessions/two/transcript?format=pdf": 400,
		"/v2/sessions/two/transcript?thoughts=x": 400, "/v2/sessions/two/transcript?redact=(": 400, "/v2/sessions/none": 404,
	} {
		if status, body := h.ask(http.MethodGet, query, adminToken, nil); status != want {
			t.Errorf("%s: %d %s, want %d", query, status, body, want)
		}
	}
}

// A hub that ends in the middle has a beginning, and the next one goes on behind it.
func TestNodes_SayWhatTheirSessionsDo(t *testing.T) {
	h := startCopier(t)
	g := newGateway()
	g.page = func(_ http.ResponseWriter, id string) bool {
		if id == "behind" {
			panic(http.ErrAbortHandler) // it says that there are events, and gives none
		}
		return false
	}
	g.put("quiet", begun, said(1, "a"))
	g.put("behind", begun, some(5, nil)...)
	n := h.join("box", h.joinToken(), nil, g)
	node := func() fleet.Node {
		var list struct{ Nodes []fleet.Node }
		status, body := h.ask(http.MethodGet, "/v2/nodes", adminToken, nil)
		if err := json.Unmarshal(body, &list); err != nil || status != http.StatusOK || len(list.Nodes) != 1 {
			t.Fatalf("%d %s: %v", status, body, err)
		}
		return list.Nodes[0]
	}
	h.await("the node's sessions are counted", func() bool {
		n := node()
		return n.Sessions[runtime.StateIdle] == 2 && len(n.Sessions) == 1 && n.Lag == 5
	})
	var one fleet.Node
	if _, body := h.ask(http.MethodGet, "/v2/nodes/box", adminToken, nil); json.Unmarshal(body, &one) != nil || one.Sessions[runtime.StateIdle] != 2 || one.Lag != 5 {
		t.Errorf("by its name: %s", body)
	}
	g.forget("quiet", true)
	h.await("a deleted one is not counted", func() bool { return node().Sessions[runtime.StateIdle] == 1 })
	n.leave()
	h.awaitState("box", fleet.StateOffline)
	if n := node(); n.Sessions[fleet.SessionOffline] != 1 || len(n.Sessions) != 1 {
		t.Errorf("offline: %v", n.Sessions)
	}
}

// Clients tell a hub from a gateway, and learn what their token may do.
func TestVersion_SaysWhatTheTokenMay(t *testing.T) {
	h := startHub(t)
	if _, body := h.ask(http.MethodGet, "/v2/health", "", nil); !strings.Contains(string(body), `"role":"hub"`) {
		t.Errorf("health: %s", body)
	}
	for _, scope := range []store.Scope{store.ScopeRead, store.ScopeDrive, store.ScopeAdmin} {
		token := h.token(fleet.NewToken{Kind: store.KindClient, Scope: scope})
		if _, body := h.ask(http.MethodGet, "/v2/version", token, nil); !strings.Contains(string(body), `"role":"hub","scope":"`+string(scope)+`"`) {
			t.Errorf("%s: %s", scope, body)
		}
	}
}

func TestReplicas_HubEndsInTheMiddle(t *testing.T) {
	dir := t.TempDir()
	h := startCopierOn(t, "one", store.Options{Dir: dir})
	g := newGateway()
	want := some(700, map[int]int{50: 1 << 20, 650: 1 << 20})
	held := make(chan struct{}, 1)
	g.page = func(w http.ResponseWriter, _ string) bool {
		if g.pagesAsked() < 2 {
			return false
		}
		select {
		case held <- struct{}{}:
		default:
		}
		panic(http.ErrAbortHandler)
	}
	g.put("s", begun, want...)
	h.join("box", h.joinToken(), nil, g)
	<-held
	h.stop()
	g.mu.Lock()
	g.page = nil
	asked := g.asked
	g.mu.Unlock()

	h = startCopierOn(t, "two", store.Options{Dir: dir})
	if s := h.session("s"); s.State != fleet.SessionOffline || s.Replica.LastSeq == 0 || s.Replica.Missing != 700-s.Replica.LastSeq {
		t.Errorf("after the restart, without the node: %+v", s)
	}
	h.join("box", h.joinToken(), nil, g)
	h.copied("s", 700)
	if diff := cmp.Diff(want, h.lines("s", 1000)); diff != "" {
		t.Errorf("the events, -want +got:\n%.2000s", diff)
	}
	if g.pagesAsked() == asked {
		t.Error("the second hub asked for nothing, so nothing was tried")
	}
}

// A node whose disk was restored has less than the hub, which shows that at once. What it says then is not put behind what
// it had said before, however fast it comes to where it was, and also where a kill has it leave out the numbers in between.
func TestReplicas_GoesOnFromEarlier(t *testing.T) {
	t.Parallel() // it waits more than it computes
	h := startCopier(t)
	g := newGateway()
	before := some(5, nil)
	goesOn := map[string][]int{"nothing": nil, "less": {4}, "same": {4, 5}, "more": {4, 5, 6, 7, 8}, "behind": {9, 10}, "next": {6}}
	for id := range goesOn {
		g.put(id, begun, before...)
	}
	n := h.join("box", h.joinToken(), nil, g)
	for id := range goesOn {
		h.copied(id, 5)
	}
	h.loses(n, "box")
	for id := range goesOn {
		g.put(id, begun, before[:3]...)
	}
	h.join("box", h.joinToken(), nil, g)
	for id, seqs := range goesOn {
		h.copied(id, 3)
		if diff := cmp.Diff(before[:3], h.lines(id, 100)); diff != "" {
			t.Errorf("%s when the node is back, -want +got:\n%s", id, diff)
		}
		after := slices.Clone(before[:3])
		for _, seq := range seqs {
			after = append(after, said(seq, "another"))
			g.tell(id, begun, seq, after...)
			h.copied(id, seq)
		}
		if diff := cmp.Diff(after, h.lines(id, 100)); diff != "" {
			t.Errorf("%s, -want +got:\n%s", id, diff)
		}
		if diff := cmp.Diff(before, h.lines(id+"?epoch=1", 100)); diff != "" {
			t.Errorf("%s as it was, -want +got:\n%s", id, diff)
		}
	}
}

// A move has another state of a session take the place of one while the node is connected, with an end of its own. What
// comes is not put behind that end.
func TestReplicas_AnotherTakesItsPlace(t *testing.T) {
	h := startCopier(t)
	g := newGateway()
	before := some(5, nil)
	g.put("s", begun, before...)
	h.join("box", h.joinToken(), nil, g)
	h.copied("s", 5)
	after := append(slices.Clone(before[:3]), said(20, "it has moved"), said(21, "another"))
	g.tell("s", begun, 21, after...)
	h.copied("s", 21)
	if diff := cmp.Diff(after, h.lines("s", 100)); diff != "" {
		t.Errorf("now, -want +got:\n%s", diff)
	}
	if diff := cmp.Diff(before, h.lines("s?epoch=1", 100)); diff != "" {
		t.Errorf("as it was, -want +got:\n%s", diff)
	}
}

// What a node says of the same numbers, or the same id, is kept apart when it is not the same.
func TestReplicas_OtherHistories(t *testing.T) {
	t.Parallel() // it waits more than it computes
	h := startCopier(t)
	g := newGateway()
	before := some(5, nil)
	g.put("restored", begun, before...)
	g.put("again", begun, before...)
	g.put("lost", begun, before...)
	g.put("deleted", begun, before...)
	g.put("unheard", begun, before...)
	g.put("upgraded", begun, before...)
	g.put("unplugged", begun, before...)
	newer := make([]string, len(before))
	for i, line := range before {
		newer[i] = strings.Replace(line, `"direction"`, `"note":1,"direction"`, 1)
	}
	n := h.join("box", h.joinToken(), nil, g)
	for _, id := range []string{"restored", "again", "lost", "deleted", "unheard", "upgraded", "unplugged"} {
		h.copied(id, 5)
	}
	// Of the same gateway: what it has no more was deleted, heard or not.
	g.forget("deleted", true)
	h.await("the deleted session goes", func() bool { return len(h.list(adminToken, "").Sessions) == 6 })
	g.forget("unheard", false)
	h.hub.Moved("box", "another") // the tunnel ends, and the same gateway joins again
	h.await("the unheard one goes, too", func() bool { return len(h.list(adminToken, "").Sessions) == 5 })

	// Of another run, with a disk that is not the same.
	h.loses(n, "box")
	g.forget("lost", false)
	after := append(some(3, nil), said(4, "another fourth"), said(5, "another fifth"), said(6, "sixth"))
	// This one was opened by a newer gateway, which says more of each event.
	g.put("upgraded", begun, append(newer, said(6, "sixth"))...)
	// The machine of this one lost its power: the end of the log is not there, and its numbers
	// are not used again. To the hub that is as if an earlier state of the disk was put back.
	g.tell("unplugged", begun, 10, append(slices.Clone(before[:3]), said(9, "ninth"), said(10, "tenth"))...)
	g.put("restored", begun, after...)
	g.put("again", begun.Add(time.Minute), after...)
	h.join("box", h.joinToken(), nil, g)
	h.copied("restored", 6)
	h.copied("again", 6)
	h.copied("upgraded", 6)
	h.copied("unplugged", 10)
	if diff := cmp.Diff(append(slices.Clone(before[:3]), said(9, "ninth"), said(10, "tenth")), h.lines("unplugged", 10)); diff != "" {
		t.Errorf("the unplugged one, -want +got:\n%s", diff)
	}
	if diff := cmp.Diff(before, h.lines("unplugged?epoch=1", 10)); diff != "" {
		t.Errorf("the unplugged one as it was, -want +got:\n%s", diff)
	}
	if got := h.lines("upgraded", 10); h.session("upgraded").Epoch != 1 || len(got) != 6 || got[4] != before[4] {
		t.Errorf("the upgraded one has %d events and epoch %d", len(got), h.session("upgraded").Epoch)
	}
	h.await("the lost one is gone", func() bool { return h.session("lost").State == fleet.SessionGone })
	for _, id := range []string{"restored", "again"} {
		if s := h.session(id); s.Epoch != 2 || s.State != runtime.StateIdle {
			t.Errorf("%s: %+v", id, s)
		}
		if s := h.session(id + "?epoch=1"); s.State != fleet.SessionGone || s.Replica.Gone == nil {
			t.Errorf("%s as it was: %+v", id, s)
		}
		if diff := cmp.Diff(before, h.lines(id+"?epoch=1", 100)); diff != "" {
			t.Errorf("%s as it was, -want +got:\n%s", id, diff)
		}
		if diff := cmp.Diff(after, h.lines(id, 100)); diff != "" {
			t.Errorf("%s, -want +got:\n%s", id, diff)
		}
	}
	if status, body := h.ask(http.MethodDelete, "/v2/sessions/again", adminToken, nil); status != http.StatusNotFound || kindOf(body) != "" { // as this gateway answers
		t.Errorf("delete a session that its node has: %d %s", status, body)
	}
	for _, at := range []string{"lost", "again?epoch=1"} {
		if status, body := h.ask(http.MethodDelete, "/v2/sessions/"+at, adminToken, nil); status != http.StatusNoContent {
			t.Errorf("remove %s: %d %s", at, status, body)
		}
		if status, _ := h.ask(http.MethodGet, "/v2/sessions/"+at, adminToken, nil); status != http.StatusNotFound {
			t.Errorf("%s after it was removed: %d", at, status)
		}
	}
	// Two nodes may have the same id, and neither says anything about the other's.
	other := newGateway()
	other.put("again", begun, said(1, "of the other"))
	h.join("other", h.joinToken(), map[string]string{"team": "b"}, other)
	h.copied("again", 1)
	if status, body := h.ask(http.MethodGet, "/v2/sessions/again", adminToken, nil); status != http.StatusConflict || !strings.Contains(string(body), "box, other") {
		t.Errorf("an id of two nodes: %d %s", status, body)
	}
	if got := h.lines("again?node=other", 10); len(got) != 1 || got[0] != said(1, "of the other") {
		t.Errorf("by the node: %v", got)
	}
	// Who may see one of them does not learn of the other.
	token := h.token(fleet.NewToken{Kind: store.KindClient, Labels: map[string]string{"team": "b"}})
	if status, body := h.ask(http.MethodGet, "/v2/sessions/again", token, nil); status != http.StatusOK || !strings.Contains(string(body), `"node":"other"`) {
		t.Errorf("for one of the nodes: %d %s", status, body)
	}
	if l := h.list(token, ""); len(l.Sessions) != 1 || l.Sessions[0].Node != "other" {
		t.Errorf("the list for one of the nodes: %+v", l)
	}
}

// What the node let go of before it was copied is missing, and the hub says so.
func TestReplicas_Gap(t *testing.T) {
	h := startCopier(t)
	g := newGateway()
	all := some(30, nil)
	g.put("s", begun, all[:10]...)
	n := h.join("box", h.joinToken(), nil, g)
	h.copied("s", 10)
	h.loses(n, "box")
	g.put("s", begun, all...)
	g.mu.Lock()
	g.sessions["s"].oldest = 21
	g.mu.Unlock()
	h.join("box", h.joinToken(), nil, g)
	h.copied("s", 30)
	status, body := h.ask(http.MethodGet, "/v2/sessions/s/events", adminToken, nil)
	if status != http.StatusOK || strings.Count(string(body), "piece") != 10 || !strings.Contains(string(body), `"hasMore":true`) {
		t.Errorf("up to the gap: %d %s", status, body)
	}
	status, body = h.ask(http.MethodGet, "/v2/sessions/s/events?after=10", adminToken, nil)
	var p struct{ OldestSeq int }
	if err := json.Unmarshal(body, &p); status != http.StatusGone || kindOf(body) != "events_expired" || err != nil || p.OldestSeq != 21 {
		t.Errorf("behind the gap: %d %s", status, body)
	}
	if status, body := h.ask(http.MethodGet, "/v2/sessions/s/events?after=20", adminToken, nil); status != http.StatusOK || strings.Count(string(body), "piece") != 10 {
		t.Errorf("after the gap: %d %s", status, body)
	}
	if _, body := h.ask(http.MethodGet, "/v2/sessions/s/transcript", adminToken, nil); !strings.Contains(string(body), "- events 11 to 20, which its log has no more") || !strings.Contains(string(body), "Missing here: events 11 to 20, which the log has no more.\n\n## Agent\n\npiece 21") {
		t.Errorf("the transcript: %s", body)
	}
}

// What a node's log had lost before it was copied is told to who reads the copy, in its place.
func TestReplicas_DamagedLog(t *testing.T) {
	h := startCopier(t)
	g := newGateway()
	all := some(10, nil)
	all[4] = `{"seq":5,"time":"2026-01-02T03:04:05Z","direction":"gateway","message":{"jsonrpc":"2.0","method":"_sandboxagent/session/events_damaged","params":{"sessionId":"s","firstSeq":5,"lastSeq":5}}}`
	g.put("s", begun, all...)
	n := h.join("box", h.joinToken(), nil, g)
	h.copied("s", 10)
	h.loses(n, "box")
	c := h.hello(adminToken)
	if res := c.must("session/load", `{"sessionId":"s","cwd":"/tmp","mcpServers":[]}`); !strings.Contains(string(res), `"historyIncomplete":true`) {
		t.Errorf("it was loaded with %s", res)
	}
	var told []string
	c.mu.Lock()
	for _, m := range c.got {
		if text := saidIn(&m); text != "" {
			told = append(told, text)
		} else if strings.HasSuffix(m.Method(), "events_damaged") {
			told = append(told, "lost")
		}
	}
	c.mu.Unlock()
	if got := strings.Join(told, ", "); got != "piece 1 , piece 2 , piece 3 , piece 4 , lost, piece 6 , piece 7 , piece 8 , piece 9 , piece 10 " {
		t.Errorf("it shows %s", got)
	}
	_, body := h.ask(http.MethodGet, "/v2/sessions/s/transcript", adminToken, nil)
	before, behind, ok := strings.Cut(string(body), "> Missing here: event 5, which the log has no more.")
	if !ok || !strings.HasSuffix(strings.TrimSpace(before), "piece 4") || !strings.Contains(behind, "piece 6") || !strings.Contains(behind, "- event 5, which its log has no more") {
		t.Errorf("the transcript: %s", body)
	}
}

// What the node let go of and what its log had lost is one place where they meet, and what an agent says itself to be lost is not.
func TestReplicas_GapBesideADamagedLog(t *testing.T) {
	h := startCopier(t)
	g := newGateway()
	damaged := func(seq int, from string, first, last int) string {
		return fmt.Sprintf(`{"seq":%d,"time":"2026-01-02T03:04:05Z","direction":%q,"message":{"jsonrpc":"2.0","method":"_sandboxagent/session/events_damaged","params":{"sessionId":"s","firstSeq":%d,"lastSeq":%d}}}`, seq, from, first, last)
	}
	all := append(some(10, nil), damaged(24, "gateway", 15, 24))
	all = append(all, some(30, nil)[24:]...)
	all = append(all, damaged(31, "agent", 1, 31), damaged(32, "agent", 1, 4_000_000_000), damaged(33, "gateway", 1, 33))
	g.put("s", begun, all[:10]...)
	n := h.join("box", h.joinToken(), nil, g)
	h.copied("s", 10)
	h.loses(n, "box")
	g.put("s", begun, all...)
	g.mu.Lock()
	g.sessions["s"].oldest = 21
	g.mu.Unlock()
	n = h.join("box", h.joinToken(), nil, g)
	h.copied("s", 33)
	h.loses(n, "box")
	_, body := h.ask(http.MethodGet, "/v2/sessions/s/transcript", adminToken, nil)
	want := []string{"events 11 to 24", "event 33"}
	var places, list []string
	for line := range strings.Lines(string(body)) {
		if rest, ok := strings.CutPrefix(line, "> Missing here: "); ok {
			places = append(places, strings.TrimSuffix(rest, ", which the log has no more.\n"))
		} else if rest, ok := strings.CutSuffix(line, ", which its log has no more\n"); ok {
			list = append(list, strings.TrimPrefix(rest, "- "))
		}
	}
	if !slices.Equal(places, want) || !slices.Equal(list, want) {
		t.Errorf("the transcript names %q in their places, and %q at the end, want %q", places, list, want)
	}
	// A line that this hub does not know is no reason to show nothing.
	id := h.store.SessionsNamed("s")[0].ReplicaID
	for _, line := range []string{`{"seq":34,"of":"a hub to come"}`, said(35, "behind it")} {
		end := must(h.store.End(t.Context(), id))
		must(h.store.Append(t.Context(), id, end, store.Batch{First: end.Last + 1, Last: end.Last + 1, Lines: []byte(line + "\n")}))
	}
	c := h.hello(adminToken)
	if res := c.must("session/load", `{"sessionId":"s","cwd":"/tmp","mcpServers":[]}`); !strings.Contains(string(res), `"historyIncomplete":true`) {
		t.Errorf("it was loaded with %s", res)
	}
	var told []string
	c.mu.Lock()
	defer c.mu.Unlock()
	if last := c.got[len(c.got)-2]; saidIn(&last) != "behind it" { // before the answer
		t.Errorf("it ends with %s", last.Frame())
	}
	for _, m := range c.got {
		if strings.HasSuffix(m.Method(), "events_damaged") {
			first, _ := rawjson.Member(m.Params(), "firstSeq")
			last, _ := rawjson.Member(m.Params(), "lastSeq")
			told = append(told, fmt.Sprintf("%s to %s", first, last))
		}
	}
	if want := []string{"11 to 24", "33 to 33"}; !slices.Equal(told, want) {
		t.Errorf("it tells of %q, want %q", told, want)
	}
}

// A node that answers what no gateway does is told apart from others: what was good of it is
// kept, why there is no more stands with the session, and other sessions are copied.
func TestReplicas_NodeIsNotTrusted(t *testing.T) {
	h := startCopier(t)
	g := newGateway()
	answers := map[string]string{
		"order":  `{"events":[` + said(1, "a") + "," + said(3, "b") + "," + said(2, "c") + `],"hasMore":false}`,
		"twice":  `{"events":[` + said(1, "a") + "," + said(1, "a") + `],"hasMore":false}`,
		"two":    `{"events":[{"seq":1,"Seq":7,"time":"2026-01-02T03:04:05Z","direction":"agent","message":{}}],"hasMore":false}`,
		"nobody": `{"events":[{"seq":1,"time":"2026-01-02T03:04:05Z","direction":"<script>","message":{}}],"hasMore":false}`,
		"list":   `[]`,
		"text":   `{"events":[` + said(1, "a") + `,nonsense`,
		"short":  `{"events":[` + said(1, "a"),
		"more":   `{"events":[],"hasMore":true}`,
		"page":   `<html>`,
	}
	g.page = func(w http.ResponseWriter, id string) bool {
		_, _ = w.Write([]byte(answers[id])) // the hub may have had enough
		return answers[id] != ""
	}
	for id := range answers {
		g.put(id, begun, some(5, nil)...)
	}
	g.put("good", begun, "{\n"+said(1, "lines")[1:])
	h.join("box", h.joinToken(), nil, g)
	h.copied("good", 1)
	h.await("all are known", func() bool { return len(h.list(adminToken, "").Sessions) == len(answers)+1 })
	if got := h.lines("good", 10); len(got) != 1 || got[0] != strings.ReplaceAll(said(1, "lines"), `", "`, `","`) {
		t.Errorf("an event with line ends: %q", got)
	}
	for id, first := range map[string]int{"order": 2, "twice": 1, "two": 0, "nobody": 0, "list": 0, "text": 1, "more": 0, "page": 0} {
		h.await(id+" is in trouble", func() bool { return h.session(id).Replica.Trouble != "" })
		s := h.session(id)
		if !strings.Contains(s.Replica.Trouble, "does not answer as a gateway does") || len(h.lines(id, 10)) != first || s.Replica.Missing == 0 {
			t.Errorf("%s: %+v with %d events", id, s.Replica, len(h.lines(id, 10)))
		}
	}
	if s := h.session("short"); s.Replica.Trouble != "" {
		t.Errorf("an answer that was cut off is no fault: %+v", s.Replica)
	}
	_, body := h.ask(http.MethodGet, "/metrics", adminToken, nil)
	if !strings.Contains(string(body), "sandbox_hub_sessions 10") || strings.Contains(string(body), "sandbox_hub_replication_lag_entries 0") {
		t.Errorf("the metrics do not say that the hub is behind")
	}
}

// A session that was deleted while the hub was away is deleted at the hub, too, when it is back: also when the gateway
// was started again in between.
func TestReplicas_DeletedWhileAway(t *testing.T) {
	h := startCopier(t)
	dir := t.TempDir()
	ids := map[string]string{"deleted": "", "kept": ""}
	t.Run("the first gateway", func(t *testing.T) {
		box := newBoxIn(t, dir, session.Async, nil, nil)
		n := h.join("one", h.joinToken(), nil, box)
		c := h.hello(adminToken)
		for name := range ids {
			ids[name] = c.session("one")
			c.says(ids[name], "first")
			h.knows(ids[name], "one", 1)
		}
		c.stop()
		h.loses(n, "one")
		answer := httptest.NewRecorder()
		box.ServeHTTP(answer, httptest.NewRequest(http.MethodDelete, "http://127.0.0.1/v2/sessions/"+ids["deleted"], nil))
		if answer.Code != http.StatusNoContent {
			t.Errorf("delete: %d %s", answer.Code, answer.Body)
		}
	})
	h.join("one", h.joinToken(), nil, newBoxIn(t, dir, session.Async, nil, nil))
	h.await("the one that was kept is there, and nothing of the other", func() bool {
		all := h.store.Sessions()
		return len(all) == 1 && all[0].Session == ids["kept"] && all[0].Gone == nil && h.session(ids["kept"]).State == runtime.StateDormant
	})
}

// A node that was forgotten takes its sessions along to nobody: who joins by its name has others, also those with the
// same id.
func TestReplicas_NameIsUsedAgain(t *testing.T) {
	for _, former := range []string{"former", "main"} {
		t.Run(former+" before main", func(t *testing.T) {
			h := startCopier(t)
			g := newGateway()
			g.put(former, begun, said(1, "of team a"), said(2, "all of it"))
			n := h.join("box", h.joinToken(), map[string]string{"team": "a"}, g)
			h.copied(former, 2)
			h.loses(n, "box")
			if status, body := h.ask(http.MethodDelete, "/v2/nodes/box", adminToken, nil); status != http.StatusNoContent {
				t.Fatalf("forget the node: %d %s", status, body)
			}
			other := newGateway()
			own := begun.Add(time.Hour)
			other.put("main", own, said(1, "of team b"))
			h.join("box", h.joinToken(), map[string]string{"team": "b"}, other)
			h.await("the session of the node that is there is copied", func() bool {
				return slices.ContainsFunc(h.store.SessionsNamed("main"), func(s *store.Session) bool { return s.Info.CreatedAt.Equal(own) && s.Through == 1 })
			})
			for team, want := range map[string]struct {
				listed, at string
				says       []string
			}{
				"a": {former + " gone", former, []string{said(1, "of team a"), said(2, "all of it")}},
				"b": {"main idle", "main", []string{said(1, "of team b")}},
			} {
				token := h.token(fleet.NewToken{Kind: store.KindClient, Labels: map[string]string{"team": team}})
				l := h.list(token, "")
				if len(l.Sessions) != 1 || l.Sessions[0].ID+" "+string(l.Sessions[0].State) != want.listed {
					t.Errorf("team %s sees %+v, want %s", team, l.Sessions, want.listed)
				}
				epochs := []string{""}
				for epoch := 1; epoch < 4; epoch++ {
					epochs = append(epochs, fmt.Sprint("&epoch=", epoch))
				}
				seen := 0
				for _, epoch := range epochs {
					status, body := h.ask(http.MethodGet, "/v2/sessions/"+want.at+"/events?after=0"+epoch, token, nil)
					var page struct{ Events []json.RawMessage }
					if status != http.StatusOK || json.Unmarshal(body, &page) != nil {
						continue
					}
					seen++
					var got []string
					for _, e := range page.Events {
						got = append(got, string(e))
					}
					if diff := cmp.Diff(want.says, got); diff != "" {
						t.Errorf("team %s reads with %q, -want +got:\n%s", team, epoch, diff)
					}
				}
				if seen != 2 { // as the newest, and by its epoch
					t.Errorf("team %s reads in %d ways, want 2", team, seen)
				}
			}
		})
	}
}

// A store that is full takes no more, and says what to do; when there is room again the copies
// go on.
func TestReplicas_StoreIsFull(t *testing.T) {
	t.Parallel() // it waits more than it computes
	h := startCopierOn(t, "hub", store.Options{Dir: t.TempDir(), LogBytes: 2 << 20})
	g := newGateway()
	g.put("large", begun, some(1, map[int]int{1: 900 << 10})...)
	h.join("box", h.joinToken(), nil, g)
	h.copied("large", 1)
	want := some(3, map[int]int{2: 400 << 10})
	g.put("next", begun, want...)
	h.await("the session has no room", func() bool {
		list := h.list(adminToken, "?sort=created").Sessions
		return len(list) == 2 && strings.Count(list[1].Replica.Trouble, "--replica-bytes") == 1
	})
	if s := h.session("large"); s.Replica.Missing != 0 || s.Replica.Trouble != "" {
		t.Errorf("the one before: %+v", s.Replica)
	}
	g.forget("large", true)
	h.await("the session before is removed", func() bool { return len(h.list(adminToken, "").Sessions) == 1 })
	g.put("next", begun, want...)
	h.copied("next", 3)
	if diff := cmp.Diff(want, h.lines("next", 10)); diff != "" {
		t.Errorf("the events, -want +got:\n%.500s", diff)
	}
}

// Of a stream that goes on is copied what the node has told of, and not each event by itself as it comes:
// that would take more than the stream.
func TestReplicas_StreamIsNotChased(t *testing.T) {
	h := startCopier(t)
	g := newGateway()
	given := 0
	g.page = func(w http.ResponseWriter, id string) bool {
		if id != "stream" {
			return false
		}
		given++ // one page is asked for at a time
		fmt.Fprintf(w, `{"events":[%s],"hasMore":true}`, said(given, "more"))
		return true
	}
	g.tellState("stream", runtime.StateRunning, begun, 3)
	h.join("box", h.joinToken(), nil, g)
	h.copied("stream", 3)
	g.put("other", begun, some(2, nil)...)
	h.copied("other", 2)
	if asked := g.pagesAsked(); asked > 4 {
		t.Errorf("%d pages were asked for", asked)
	}
	g.tellState("stream", runtime.StateRunning, begun, 5) // the node tells of it again, and the copy goes on
	h.copied("stream", 5)
}

// A node that does not come to the end of its answers holds an eighth of the places in which a hub copies,
// however many sessions it has, and others are copied.
func TestReplicas_SlowNode(t *testing.T) {
	h := startCopier(t)
	slow, good := newGateway(), newGateway()
	done := make(chan struct{})
	defer close(done)
	var held atomic.Int64
	slow.page = func(w http.ResponseWriter, _ string) bool {
		fmt.Fprint(w, `{"events":[`)
		_ = http.NewResponseController(w).Flush()
		held.Add(1)
		<-done
		return true
	}
	for i := range 40 {
		slow.put(fmt.Sprintf("slow-%d", i), begun, some(1, nil)...)
	}
	h.join("slow", h.joinToken(), nil, slow)
	h.await("it holds what it can", func() bool { return held.Load() == 4 })
	for i := range 10 {
		good.put(fmt.Sprintf("good-%d", i), begun, some(2, nil)...)
	}
	h.join("good", h.joinToken(), nil, good)
	for i := range 10 {
		h.copied(fmt.Sprintf("good-%d", i), 2)
	}
	if n := held.Load(); n != 4 {
		t.Errorf("it holds %d places", n)
	}
}

// A node that fills the store with all it may leaves room for the others, and is told so.
func TestReplicas_GreedyNode(t *testing.T) {
	h := startCopierOn(t, "hub", store.Options{Dir: t.TempDir(), LogBytes: 4 << 20})
	greedy, good := newGateway(), newGateway()
	greedy.put("much", begun, some(6, map[int]int{1: 900 << 10, 2: 900 << 10, 3: 900 << 10, 4: 900 << 10, 5: 900 << 10})...)
	h.join("greedy", h.joinToken(), nil, greedy)
	h.await("the greedy node is refused", func() bool {
		list := h.list(adminToken, "").Sessions
		return len(list) == 1 && strings.Count(list[0].Replica.Trouble, "--replica-bytes is reached for this node") == 1
	})
	want := some(3, map[int]int{2: 400 << 10})
	good.put("little", begun, want...)
	h.join("good", h.joinToken(), nil, good)
	h.copied("little", 3)
	if diff := cmp.Diff(want, h.lines("little", 10)); diff != "" {
		t.Errorf("the events, -want +got:\n%.500s", diff)
	}
}

// Of two hubs that share a store one copies, the one with the tunnel, and both can read. When the
// node comes to the other one, that goes on where the first has ended.
func TestReplicas_TwoHubs(t *testing.T) {
	address := natsServer(t)
	one, two := startCopierOn(t, "one", store.Options{URL: address}), startCopierOn(t, "two", store.Options{URL: address})
	g := newGateway()
	want := some(20, map[int]int{3: 1300 << 10})
	g.put("s", begun, want[:5]...)
	n := one.join("box", one.joinToken(), nil, g)
	two.copied("s", 5)
	two.awaitState("box", fleet.StateOnline)
	if s := two.session("s"); s.State != runtime.StateIdle || s.Replica.Missing != 0 {
		t.Errorf("at the hub without the tunnel: %+v", s)
	}
	two.loses(n, "box")
	g.put("s", begun, want...)
	two.join("box", two.joinToken(), nil, g)
	one.copied("s", 20)
	for _, h := range []*hub{one, two} {
		if diff := cmp.Diff(want, h.lines("s", 7)); diff != "" {
			t.Errorf("the events, -want +got:\n%.500s", diff)
		}
	}
	if asked := g.pagesAsked(); asked > 4 { // what one hub copied the other one does not copy again
		t.Errorf("%d pages were asked for", asked)
	}
}

// A node that says something else of its newest event at each look has no record for each: they are kept.
func TestReplicas_RestlessNode(t *testing.T) {
	h := startCopier(t)
	g := newGateway()
	var looks atomic.Int64
	g.page = func(w http.ResponseWriter, _ string) bool {
		fmt.Fprintf(w, `{"events":[%s],"hasMore":false}`, said(1, fmt.Sprint("text ", looks.Add(1))))
		return true
	}
	h.join("bad", h.joinToken(), nil, g)
	count := 1
	h.await("it was looked at often", func() bool {
		count++
		g.tell("s", begun, count, said(1, "x"))
		return looks.Load() > 12
	})
	if n := len(h.store.SessionsNamed("s")); n > 2 {
		t.Errorf("%d records", n)
	}
	h.await("it is said why", func() bool { return strings.Contains(h.session("s").Replica.Trouble, "something else") })
}

// A look at what a node has fails as it comes back with another history of the same length: it is looked at again.
func TestReplicas_OtherHistoryAtTheSecondLook(t *testing.T) {
	h := startCopier(t)
	g := newGateway()
	g.put("s", begun, said(1, "a"), said(2, "b"))
	n := h.join("box", h.joinToken(), nil, g)
	h.copied("s", 2)
	h.loses(n, "box")
	g.put("s", begun, said(1, "a"), said(2, "other"))
	g.mu.Lock()
	g.sessions["s"].info.UpdatedAt = begun.Add(time.Hour)
	g.feed = nil
	failed := false
	g.page = func(w http.ResponseWriter, _ string) bool {
		if !failed {
			failed = true
			problem.Write(w, problem.New(problem.TooManyRequests, "too many of them"))
			return true
		}
		return false
	}
	g.mu.Unlock()
	h.join("box", h.joinToken(), nil, g)
	h.await("the hub has what the node has", func() bool { return strings.Contains(strings.Join(h.lines("s", 10), "\n"), "other") })
}
