package runtime

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/runtime/agents"
)

// following reads the changes of a list.
type following struct {
	t    *testing.T
	next func() (SessionChange, error, bool)
}

func follow(t *testing.T, r *Runtime, after uint64) *following {
	ctx, cancel := context.WithCancel(t.Context())
	next, stop := iter.Pull2(r.FollowSessions(ctx, after))
	t.Cleanup(func() { cancel(); stop() })
	return &following{t, next}
}

func (f *following) one() SessionChange {
	f.t.Helper()
	c, err, ok := f.next()
	if err != nil || !ok {
		f.t.Fatalf("the changes ended: %v", err)
	}
	return c
}

// until reads up to the first change that is meant.
func (f *following) until(what string, is func(c SessionChange) bool) SessionChange {
	f.t.Helper()
	for range 2000 {
		if c := f.one(); is(c) {
			return c
		}
	}
	f.t.Fatalf("no change is %s", what)
	return SessionChange{}
}

func (f *following) state(id string, s State) SessionChange {
	f.t.Helper()
	return f.until(fmt.Sprintf("%s %s", id, s), func(c SessionChange) bool { return c.SessionID == id && c.Session != nil && c.Session.State == s })
}

// A list is followed through all that happens to a session, and gone on with from the
// position of any change, also of the list itself.
func TestChanges_TellOfEverythingThatAListShows(t *testing.T) {
	a := &fakeAgent{}
	r := newRuntime(t, t.TempDir(), a)
	tc := connect(t, r, "")
	old := tc.session()
	f := follow(t, r, 0)
	if c := f.one(); c.Type != ChangeReset || c.Session != nil {
		t.Fatalf("it begins with %+v", c)
	}
	if c := f.one(); c.Type != ChangeSession || c.SessionID != old || c.Session.State != StateIdle {
		t.Fatalf("the snapshot has %+v", c)
	}
	f.until("current", func(c SessionChange) bool { return c.Type == ChangeCurrent })
	list, err := r.Sessions(t.Context(), SessionFilter{})
	if err != nil {
		t.Fatal(err)
	}

	s := tc.session()
	f.state(s, StateIdle)
	id := tc.request("session/prompt", prompt(s, "First line\nand more"))
	p := a.conn().next(t, "session/prompt")
	if c := f.state(s, StateRunning); c.Session.Gist != "First line" || c.Session.Clients != 1 {
		t.Errorf("running: %+v", c.Session)
	}
	native := rawjson.MemberString(p.Params(), "sessionId")
	a.conn().send(`{"jsonrpc":"2.0","id":7,"method":"session/request_permission","params":{"sessionId":"` + native + `","toolCall":{"toolCallId":"t"},"options":[{"optionId":"y","name":"Y","kind":"allow_once"}]}}`)
	if c := f.state(s, StateWaiting); c.Session.Pending != 1 {
		t.Errorf("waiting: %+v", c.Session)
	}
	a.conn().send(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"` + native + `","update":{"sessionUpdate":"usage_update","used":1,"size":2,"cost":{"amount":0.25,"currency":"USD"}}}}`)
	a.conn().send(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"` + native + `","update":{"sessionUpdate":"session_info_update","title":"Titled"}}}`)
	a.conn().result(p, `{"stopReason":"end_turn","usage":{"totalTokens":15,"inputTokens":10,"outputTokens":5,"thoughtTokens":2,"cachedReadTokens":7}}`)
	tc.until(id)
	c := f.until("titled and paid", func(c SessionChange) bool {
		return c.SessionID == s && c.Session.Title == "Titled" && c.Session.Cost != nil && len(c.Session.Usage) > 0 && c.Session.Usage[0].Turns > 0
	})
	if len(c.Session.Usage) != 1 {
		t.Fatalf("usage %+v", c.Session.Usage)
	}
	use := c.Session.Usage[0]
	if _, err := time.Parse(time.DateOnly, use.Day); err != nil || *use.Cost != (Cost{Amount: 0.25, Currency: "USD"}) {
		t.Errorf("usage %+v, cost %+v: %v", use, use.Cost, err)
	}
	use.Day, use.Cost = "", nil
	if use != (Use{Turns: 1, InputTokens: 10, OutputTokens: 5, ThoughtTokens: 2, CachedReadTokens: 7}) {
		t.Errorf("usage %+v", use)
	}
	if *c.Session.Cost != (Cost{Amount: 0.25, Currency: "USD"}) {
		t.Errorf("cost %+v", c.Session.Cost)
	}
	tc.call("_sandboxagent/session/set_metadata", `{"sessionId":"`+s+`","metadata":{"k":1}}`)
	f.until("with metadata", func(c SessionChange) bool { return c.Session != nil && string(c.Session.Metadata) == `{"k":1}` })
	tc.call("session/close", `{"sessionId":"`+s+`"}`)
	closed := f.state(s, StateClosed)
	tc.call("session/delete", `{"sessionId":"`+s+`"}`)
	f.until("deleted", func(c SessionChange) bool { return c.Type == ChangeDeleted && c.SessionID == s })

	for name, after := range map[string]uint64{"list": list.Position, "change": closed.Position} {
		f := follow(t, r, after)
		if c := f.one(); c.Type != ChangeDeleted || c.SessionID != s {
			t.Errorf("behind the position of a %s: %+v", name, c)
		}
		if c := f.one(); c.Type != ChangeCurrent {
			t.Errorf("behind that: %+v", c)
		}
	}
}

// Of turns that come by hundreds in a second not each is told, which takes more than the turn.
// That a session works, and how it is in the end, is told soon.
func TestChanges_OfShortTurnsAreFew(t *testing.T) {
	a := &fakeAgent{}
	r := newRuntime(t, t.TempDir(), a)
	tc := connect(t, r, "")
	s := tc.session()
	turn := func(while func()) {
		id := tc.request("session/prompt", prompt(s, "again"))
		p := a.conn().next(t, "session/prompt")
		while()
		a.conn().result(p, `{"stopReason":"end_turn"}`)
		tc.until(id)
	}
	turn(func() {}) // which gives the session a name
	changes := make(chan SessionChange, 2000)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	began, from := time.Now(), r.sessions.Position()
	go func() {
		for c := range r.FollowSessions(ctx, from) {
			changes <- c
		}
	}()
	await := func(what string, is func(i *SessionInfo) bool) (told int) {
		for {
			select {
			case c := <-changes:
				if told++; c.Session != nil && is(c.Session) {
					return told
				}
			case <-time.After(time.Minute):
				t.Fatalf("that it is %s is not told", what)
			}
		}
	}
	for range 500 {
		turn(func() {})
	}
	tc.call("_sandboxagent/session/set_metadata", `{"sessionId":"`+s+`","metadata":{"done":true}}`)
	told := await("done", func(i *SessionInfo) bool { return len(i.Metadata) > 0 })
	// Each 50 ms, each second what it has used, and what is told besides.
	if took := time.Since(began); told > 5+int(took/(50*time.Millisecond))+int(took/time.Second) {
		t.Errorf("%d changes were told in %v", told, took)
	}
	turn(func() { await("running", func(i *SessionInfo) bool { return i.State == StateRunning }) })
	await("idle", func(i *SessionInfo) bool { return i.State == StateIdle })
}

// A position of an earlier gateway, and one from nowhere, begin with everything.
func TestChanges_OfAnotherGatewayBeginAnew(t *testing.T) {
	dir := t.TempDir()
	r := newRuntime(t, dir, &fakeAgent{})
	s := connect(t, r, "").session()
	list, err := r.Sessions(t.Context(), SessionFilter{})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	again := newRuntime(t, dir, &fakeAgent{})
	for _, after := range []uint64{0, list.Position, 1 << 62} {
		f := follow(t, again, after)
		if c := f.one(); c.Type != ChangeReset {
			t.Errorf("after %d: %+v", after, c)
		}
		if c := f.one(); c.Session == nil || c.SessionID != s || c.Session.State != StateDormant {
			t.Errorf("after %d: %+v", after, c)
		}
	}
}

// A list that takes long is given up with its client, and with the gateway.
func TestList_IsGivenUp(t *testing.T) {
	r := newRuntime(t, t.TempDir(), &fakeAgent{})
	connect(t, r, "").session()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Sessions(ctx, SessionFilter{}); !errors.Is(err, context.Canceled) {
		t.Errorf("its client is gone: %v", err)
	}
	if err := r.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Sessions(t.Context(), SessionFilter{}); !errors.Is(err, agents.ErrShutdown) {
		t.Errorf("the gateway has ended: %v", err)
	}
}

// A hub that was away while sessions were deleted is told so by the next gateway of the same data directory, but not
// of one that is there again.
func TestChanges_DeletedBeforeTheStart(t *testing.T) {
	dir := t.TempDir()
	joined := func() *Runtime {
		return openRuntime(t, Options{DataDir: dir, Adapters: adaptersOf(&fakeAgent{id: "fake"}), DefaultAgent: "fake", Stored: true})
	}
	r := joined()
	c := connect(t, r, "")
	kept, gone, back := c.session(), c.session(), c.session()
	sessions := filepath.Join(dir, "sessions")
	if err := r.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(filepath.Join(dir, "aside"), os.DirFS(sessions)); err != nil {
		t.Fatal(err)
	}
	r = joined()
	for _, s := range []string{gone, back} {
		if _, err := r.DeleteSession(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, "aside", back), filepath.Join(sessions, back)); err != nil {
		t.Fatal(err)
	}
	before := time.Now().Add(-time.Hour)
	for i := range 1100 { // of which some are too many
		old := filepath.Join(dir, "deleted", fmt.Sprint("old-", i))
		if err := errors.Join(os.WriteFile(old, nil, 0o600), os.Chtimes(old, before, before)); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // it is not forgotten by being told
		r = joined()
		f := follow(t, r, 0)
		told, old := map[string]ChangeType{}, 0
		f.until("current", func(c SessionChange) bool {
			switch {
			case strings.HasPrefix(c.SessionID, "old-"):
				old++
			case c.SessionID != "":
				told[c.SessionID] = c.Type
			}
			return c.Type == ChangeCurrent
		})
		if old < 990 || old > 999 {
			t.Errorf("%d of before are remembered", old)
		}
		if want := map[string]ChangeType{kept: ChangeSession, back: ChangeSession, gone: ChangeDeleted}; !maps.Equal(told, want) {
			t.Errorf("told %v, want %v", told, want)
		}
		if err := r.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// A reader that takes nothing holds nobody up and is told the end, not the way there. One
// that has missed more deletions than are remembered begins anew.
func TestChanges_SlowReader(t *testing.T) {
	a := &fakeAgent{id: "fake"}
	r := openRuntime(t, Options{Adapters: adaptersOf(a), DefaultAgent: "fake", Ephemeral: true})
	tc := connect(t, r, "")
	s := tc.session()
	f := follow(t, r, 0)
	f.until("current", func(c SessionChange) bool { return c.Type == ChangeCurrent })
	for i := range 50 {
		tc.call("_sandboxagent/session/set_metadata", fmt.Sprintf(`{"sessionId":"%s","metadata":{"n":%d}}`, s, i))
	}
	told := 0
	f.until("the last", func(c SessionChange) bool { told++; return string(c.Session.Metadata) == `{"n":49}` })
	if told > 3 {
		t.Errorf("%d changes of one session were told to who took none", told)
	}
	before, err := r.Sessions(t.Context(), SessionFilter{})
	if err != nil {
		t.Fatal(err)
	}
	for range 4097 {
		tc.call("session/delete", `{"sessionId":"`+tc.session()+`"}`)
	}
	other := follow(t, r, before.Position)
	if c := other.one(); c.Type != ChangeReset {
		t.Errorf("after 4097 deletions: %+v", c)
	}
	if c := other.one(); c.SessionID != s || c.Session == nil {
		t.Errorf("then %+v", c)
	}
	if c := other.one(); c.Type != ChangeCurrent {
		t.Errorf("sessions that it was never told of are told as deleted: %+v", c)
	}
	f.until("reset", func(c SessionChange) bool { return c.Type == ChangeReset })
}

func TestList_SortsByActivityFiltersAndSearches(t *testing.T) {
	a := &fakeAgent{shared: make(chan sent, 8)}
	dir := t.TempDir()
	r := newRuntime(t, dir, a)
	tc := connect(t, r, "")
	first, second, third := tc.session(), tc.newWith(`{"title":"A ZEBRA of stripes"}`), tc.session()
	say := func(s, words string, chunks ...string) {
		id := tc.request("session/prompt", prompt(s, words))
		m := a.nextOf(t, "session/prompt")
		for _, c := range chunks {
			m.to.chunk(rawjson.MemberString(m.m.Params(), "sessionId"), c)
		}
		a.answer(m, `{"stopReason":"end_turn"}`)
		tc.until(id)
	}
	say(third, "what is a Giraffe?", "It is a tall ani", "mal, with a ", "LONG neck")
	say(first, "a zebra?", "no")
	tc.call("session/close", `{"sessionId":"`+third+`"}`)
	check := func(what string, f SessionFilter, want ...string) []SessionInfo {
		t.Helper()
		list, err := r.Sessions(t.Context(), f)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		var got []string
		for _, s := range list.Sessions {
			got = append(got, s.ID)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
		return list.Sessions
	}
	check("by creation", SessionFilter{Order: ByCreation}, third, second, first)
	check("by activity", SessionFilter{States: []State{StateIdle}}, first, second)
	check("closed or running", SessionFilter{States: []State{StateClosed, StateRunning}}, third)
	check("agent", SessionFilter{Agent: "other"})
	if found := check("words of title and of a prompt", SessionFilter{Query: "zebra", Order: ByCreation}, second, first); len(found) == 2 {
		if m := found[0].Match; m.Seq != 0 || m.Text != "A ZEBRA of stripes" {
			t.Errorf("found at %+v", m)
		}
		if m := found[1].Match; m.Seq == 0 || m.Text != "a zebra?" {
			t.Errorf("found at %+v", m)
		}
	}
	check("words cut by chunks", SessionFilter{Query: "Animal, with a long"}, third)
	check("words of two messages", SessionFilter{Query: "giraffe?It"})
	check("nothing", SessionFilter{Query: "zebrafish"})
	// One after the other, whether they match or not.
	f, got := SessionFilter{Query: "zebra", Limit: 1}, ""
	for {
		list, err := r.Sessions(t.Context(), f)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range list.Sessions {
			got += s.ID + " "
		}
		if f.Cursor = list.NextCursor; f.Cursor == "" {
			break
		}
	}
	if want := first + " " + second + " "; got != want {
		t.Errorf("page by page: %s, want %s", got, want)
	}
	for _, f := range []SessionFilter{{Order: "size"}, {States: []State{"asleep"}}, {Query: strings.Repeat("x", 300)}, {Cursor: "zz"}, {Limit: 2000}} {
		if _, err := r.Sessions(t.Context(), f); problem.From(err).Kind != problem.InvalidRequest {
			t.Errorf("%+v: %v", f, err)
		}
	}

	// What a list shows is there after the gateway's end.
	want, err := r.Sessions(t.Context(), SessionFilter{Query: "zebra"})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	after, err := newRuntime(t, dir, &fakeAgent{}).Sessions(t.Context(), SessionFilter{Query: "zebra"})
	if err != nil || len(after.Sessions) != 2 || after.Sessions[0].Gist != "a zebra?" || !after.Sessions[0].UpdatedAt.Equal(want.Sessions[0].UpdatedAt) {
		t.Errorf("after a restart: %+v, %v", after.Sessions, err)
	}
}

// One log that cannot be read keeps nobody from finding what the others have, and who searches is told of it.
func TestList_SearchesPastALogThatCannotBeRead(t *testing.T) {
	dir := t.TempDir()
	a := &fakeAgent{shared: make(chan sent, 8)}
	r := newRuntime(t, dir, a)
	tc := connect(t, r, "")
	for _, s := range []string{"first", "broken", "last"} {
		tc.newWith(`{"requestedSessionId":"` + s + `"}`)
		id := tc.request("session/prompt", prompt(s, "a zebra"))
		a.answer(a.nextOf(t, "session/prompt"), `{"stopReason":"end_turn"}`)
		tc.until(id)
	}
	tc.close()
	if err := r.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "sessions", "broken", "log.journal"), []byte("sandbox-agent journal 3\nx"), 0o600); err != nil {
		t.Fatal(err)
	}
	r = newRuntime(t, dir, a)
	for limit, want := range map[int]string{0: "last first 1", 1: "last 0"} {
		list, err := r.Sessions(t.Context(), SessionFilter{Query: "zebra", Order: ByCreation, Limit: limit})
		got := ""
		for _, s := range list.Sessions {
			got += s.ID + " "
		}
		if got += fmt.Sprint(list.Unsearched); got != want || err != nil {
			t.Errorf("%d at most: %q, want %q, %v", limit, got, want, err)
		}
	}
}

// A session that is looked at, in all the ways there are, has the events and the time
// that it had.
func TestLook_ChangesNothing(t *testing.T) {
	a := &fakeAgent{caps: reopening, shared: make(chan sent, 8)}
	r := newRuntime(t, t.TempDir(), a)
	tc := connect(t, r, "")
	s := tc.session()
	id := tc.request("session/prompt", prompt(s, "x"))
	a.answer(a.nextOf(t, "session/prompt"), `{"stopReason":"end_turn"}`)
	tc.until(id)
	before, err := r.Session(s)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		other := connect(t, r, "")
		for _, look := range []struct{ method, params string }{
			{"session/load", `{"sessionId":"` + s + `","cwd":"/tmp","mcpServers":[]}`},
			{"session/resume", `{"sessionId":"` + s + `","cwd":"/tmp"}`},
			{"session/list", `{}`},
			{"_sandboxagent/session/get", `{"sessionId":"` + s + `"}`},
			{"_sandboxagent/session/events", `{"sessionId":"` + s + `","after":0}`},
			{"_sandboxagent/session/pending", `{"sessionId":"` + s + `"}`},
			{"_sandboxagent/session/list_models", `{"sessionId":"` + s + `"}`},
			{"_sandboxagent/session/detach", `{"sessionId":"` + s + `"}`},
		} {
			other.call(look.method, look.params)
			now, err := r.Session(s)
			if err != nil || now.EventCount != before.EventCount || !now.UpdatedAt.Equal(before.UpdatedAt) {
				t.Errorf("%s: %d events, %s; before it %d, %s (%v)", look.method, now.EventCount, now.UpdatedAt, before.EventCount, before.UpdatedAt, err)
			}
		}
		other.close()
	}
}

// Of many sessions the first are kept, whatever the order in which they are looked at.
func TestRows_KeepTheFirst(t *testing.T) {
	const many, most = 1000, 7
	order := rand.Perm(many)
	var got rows
	for _, i := range order {
		// Half of them at the same times: then their ids decide.
		got = got.with(row{at: cursorAt{Time: time.UnixMilli(int64(i / 2)), ID: fmt.Sprintf("%04d", i)}}, most)
		if len(got) > 2*most {
			t.Fatalf("%d rows are kept", len(got))
		}
	}
	heap.Init(&got)
	for n := range most {
		i := many - 2 - n/2*2 + n%2
		if at := heap.Pop(&got).(row).at; at.ID != fmt.Sprintf("%04d", i) {
			t.Fatalf("row %d is %s, want %04d", n, at.ID, i)
		}
	}
}
