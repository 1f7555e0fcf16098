package runtime

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/runtime/viewer"
)

func TestDelete_MeetsAStart(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"delete", "close"} {
		t.Run(how, func(t *testing.T) {
			_, g, tc, s := dormantSession(t)
			turn := tc.request("session/prompt", prompt(s, "x"))
			<-g.starting
			ended := tc.request("session/"+how, `{"sessionId":"`+s+`"}`)
			// The two answers travel beside each other.
			answered := func(id acp.ID, seen []acp.Message) *acp.Message {
				for i := range seen {
					if seen[i].IsResponse() && seen[i].ID() == id {
						return &seen[i]
					}
				}
				return nil
			}
			var seen []acp.Message
			for answered(turn, seen) == nil {
				seen = append(seen, tc.next())
			}
			if res := answered(turn, seen); !strings.Contains(string(res.Frame()), "cancelled") {
				t.Errorf("the prompt was answered %s", res.Frame())
			}
			g.let <- nil
			for answered(ended, seen) == nil {
				seen = append(seen, tc.next())
			}
			select { // the process that was started ends as any that nobody needs
			case <-awaitConn(t, g, 2).end:
			case <-time.After(wait):
				t.Fatal("a process without a session lives on")
			}
		})
	}
}

func TestStream_KeepsNothingOfDeletedSessions(t *testing.T) {
	a := &fakeAgent{}
	a.handle = func(c *fakeConn, m acp.Message) {
		switch m.Method() {
		case "session/new":
			c.newSession(m)
		case "session/prompt":
			for range 64 {
				c.chunk(m.Session(), strings.Repeat("x", 4<<10))
			}
			c.result(m, `{"stopReason":"end_turn"}`)
		default:
			if m.IsRequest() {
				c.result(m, `{}`)
			}
		}
	}
	r := newRuntime(t, t.TempDir(), a)
	tc := connect(t, r, "")
	for range 50 {
		s := tc.session()
		tc.call("session/prompt", prompt(s, "x"))
		tc.call("session/delete", `{"sessionId":"`+s+`"}`)
	}
	tc.close() // the stream is read no more
	if kept := tc.st.(*viewer.Stream).Kept(); kept > 3 {
		t.Errorf("%d cursors are kept of 50 deleted sessions", kept)
	}
}

func TestStream_GoesOnWhenASessionIsDeleted(t *testing.T) {
	a := &fakeAgent{}
	a.handle = func(c *fakeConn, m acp.Message) {
		switch m.Method() {
		case "session/new":
			c.newSession(m)
		case "session/prompt":
			go func() {
				for range 200 {
					c.chunk(m.Session(), "x")
				}
				c.result(m, `{"stopReason":"end_turn"}`)
			}()
		default:
			if m.IsRequest() {
				c.result(m, `{}`)
			}
		}
	}
	r := newRuntime(t, t.TempDir(), a)
	tc, other := connect(t, r, ""), connect(t, r, "")
	stays := tc.session()
	for range 20 {
		s := tc.session()
		tc.request("session/prompt", prompt(s, "x"))
		other.call("session/delete", `{"sessionId":"`+s+`"}`)
	}
	if got := tc.call("session/prompt", prompt(stays, "x")); !strings.Contains(got, "end_turn") {
		t.Errorf("the session that stays: %s", got)
	}
}

// Whoever follows a session's events learns of its deletion by their end.
func TestDelete_EndsWhoFollows(t *testing.T) {
	a := &fakeAgent{}
	r := newRuntime(t, t.TempDir(), a)
	tc := connect(t, r, "")
	s := tc.session()
	ended := make(chan error, 1)
	go func() {
		var last error
		for _, err := range r.FollowEvents(t.Context(), s, 0) {
			last = err
		}
		ended <- last
	}()
	tc.call("session/delete", fmt.Sprintf(`{"sessionId":%q}`, s))
	select {
	case err := <-ended:
		if err != nil && problem.From(err).Kind != problem.SessionNotFound { // it was quicker
			t.Errorf("the events end with %v", err)
		}
	case <-time.After(wait):
		t.Fatal("the events do not end")
	}
}

// What an agent refuses to delete is not deleted: the client is told, and can open the
// session again. What the agent does not know is deleted.
func TestDelete_TheAgentsRefusalIsTold(t *testing.T) {
	for _, dormant := range []bool{false, true} {
		t.Run(fmt.Sprint("dormant ", dormant), func(t *testing.T) {
			a := &fakeAgent{caps: `{"sessionCapabilities":{"resume":{},"delete":{}}}`}
			r := newRuntime(t, t.TempDir(), a)
			tc := connect(t, r, "")
			s := tc.session()
			about := fmt.Sprintf(`{"sessionId":%q}`, s)
			if dormant {
				tc.call("session/close", about)
			}
			for _, code := range []int64{acp.CodeInternal, acp.CodeResourceNotFound} {
				id := tc.request("session/delete", about)
				m := a.conn().next(t, "session/delete")
				a.conn().out <- acp.NewError(m.ID(), acp.Errorf(code, "it is in use"))
				_, res := tc.until(id)
				if _, err := r.Session(s); code == acp.CodeInternal {
					if res.Err() == nil || res.Err().Message != "it is in use" || err != nil {
						t.Errorf("refused: %s, and then %v", res.Frame(), err)
					}
					tc.call("session/resume", fmt.Sprintf(`{"sessionId":%q,"cwd":"/"}`, s))
				} else if res.Err() != nil || err == nil {
					t.Errorf("unknown to the agent: %s, and then %v", res.Frame(), err)
				}
			}
		})
	}
}

// Who opens a session whose files are just being removed is told that there is none, not that its record
// is damaged.
func TestDelete_OpenedMeanwhile(t *testing.T) {
	dir := t.TempDir()
	a := &fakeAgent{caps: `{"loadSession":true,"sessionCapabilities":{"resume":{},"delete":{}}}`}
	a.handle = func(c *fakeConn, m acp.Message) {
		switch m.Method() {
		case "session/new":
			c.newSession(m)
		case "session/load", "session/resume":
			c.out <- acp.NewError(m.ID(), acp.Errorf(acp.CodeResourceNotFound, "no such session"))
		case "session/prompt":
			c.result(m, `{"stopReason":"end_turn"}`)
		default:
			if m.IsRequest() {
				c.result(m, `{}`)
			}
		}
	}
	r := newRuntime(t, dir, a)
	tc, other := connect(t, r, ""), connect(t, r, "")
	for range 10 {
		s := tc.session()
		tc.call("session/prompt", prompt(s, "x"))
		for i := range 300 { // that it takes a while
			if err := os.WriteFile(filepath.Join(dir, "sessions", s, fmt.Sprint("more", i)), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		id, deleted := tc.request("session/delete", fmt.Sprintf(`{"sessionId":%q}`, s)), make(chan *acp.Message, 1)
		go func() {
			_, res := tc.until(id)
			deleted <- &res
		}()
		for res := (*acp.Message)(nil); res == nil; {
			_, opened := other.until(other.request("session/resume", fmt.Sprintf(`{"sessionId":%q,"cwd":"/","mcpServers":[]}`, s)))
			if e := opened.Err(); e != nil && e.Code != acp.CodeResourceNotFound {
				t.Fatalf("who opened it was told %s", opened.Frame())
			}
			select {
			case res = <-deleted:
				if res.Err() != nil {
					t.Fatalf("%s", res.Frame())
				}
			default:
			}
		}
	}
	if left, err := os.ReadDir(filepath.Join(dir, "sessions")); err != nil || len(left) > 0 {
		t.Errorf("what is left: %v, %v", left, err)
	}
}

// A session that had ended is still so when its agent refuses to delete it.
func TestDelete_RefusedForOneThatHasEnded(t *testing.T) {
	a := &fakeAgent{caps: `{"sessionCapabilities":{"delete":{}}}`}
	r := newRuntime(t, t.TempDir(), a)
	tc := connect(t, r, "")
	s := tc.session()
	about := fmt.Sprintf(`{"sessionId":%q}`, s)
	tc.call("_sandboxagent/session/terminate", about)
	id := tc.request("session/delete", about)
	m := a.conn().next(t, "session/delete")
	a.conn().out <- acp.NewError(m.ID(), acp.Errorf(acp.CodeInternal, "it is in use"))
	if _, res := tc.until(id); res.Err() == nil || res.Err().Message != "it is in use" {
		t.Errorf("the delete was answered %s", res.Frame())
	}
	if i, err := r.Session(s); err != nil || i.State != StateEnded {
		t.Errorf("it is %s, %v", i.State, err)
	}
	events, _, err := r.Events(t.Context(), s, 0, 0)
	if err != nil || strings.Count(fmt.Sprint(messages(events)), "session/ended") != 1 {
		t.Errorf("the log has %v, %v", messages(events), err)
	}
}

// A session that has no process is deleted at its agent also when that takes its time to
// start. One that does not start at all is not waited for without end.
func TestDelete_AgentThatStartsSlowly(t *testing.T) {
	for _, how := range []string{"starts", "refuses", "hangs"} {
		synctest.Test(t, func(t *testing.T) {
			g := newGated(&fakeAgent{id: "fake", caps: `{"loadSession":true,"sessionCapabilities":{"delete":{}}}`})
			r, err := New(Options{DataDir: t.TempDir(), Adapters: []adapters.Adapter{g}, DefaultAgent: "fake"})
			if err != nil {
				t.Fatal(err)
			}
			g.let <- nil
			tc := connect(t, r, "")
			s := tc.session()
			<-g.starting
			g.conn().crash(errCrash)
			tc.nextOf("_sandboxagent/session/ended")
			id := tc.request("session/delete", `{"sessionId":"`+s+`"}`)
			<-g.starting
			if how != "hangs" {
				time.Sleep(10 * time.Second)
				g.let <- nil
				synctest.Wait()
				m := g.conn().next(t, "session/delete")
				time.Sleep(15 * time.Second) // bridges start some programs only now
				if how == "refuses" {
					g.conn().out <- acp.NewError(m.ID(), acp.Errorf(acp.CodeInternal, "no"))
				} else {
					g.conn().result(m, `{}`)
				}
			}
			if _, res := tc.until(id); (res.Err() != nil) != (how == "refuses") {
				t.Errorf("the agent %s: the delete was answered %s", how, res.Frame())
			}
			tc.close()
			if err := r.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// A session whose agent cannot be asked to delete it, because the gateway ends, is not taken from the
// agent's own list by that: it is closed, its log stays, and who asked is told why.
func TestDelete_GatewayEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, dir := newGated(&fakeAgent{id: "fake", caps: `{"loadSession":true,"sessionCapabilities":{"delete":{}}}`}), t.TempDir()
		r, err := New(Options{DataDir: dir, Adapters: []adapters.Adapter{g}, DefaultAgent: "fake"})
		if err != nil {
			t.Fatal(err)
		}
		g.let <- nil
		tc := connect(t, r, "")
		s := tc.session()
		<-g.starting
		g.conn().crash(errCrash)
		tc.nextOf("_sandboxagent/session/ended")
		id := tc.request("session/delete", `{"sessionId":"`+s+`"}`)
		<-g.starting
		down := make(chan error, 1)
		go func() { down <- r.Shutdown(t.Context()) }()
		if _, res := tc.until(id); res.Err() == nil || !strings.Contains(res.Err().Message, "shutting down") {
			t.Errorf("the delete was answered %s", res.Frame())
		}
		tc.close()
		if err := <-down; err != nil {
			t.Error(err)
		}
		if r, err = New(Options{DataDir: dir, Adapters: []adapters.Adapter{g}, DefaultAgent: "fake"}); err != nil {
			t.Fatal(err)
		}
		if i, err := r.Session(s); err != nil || i.State != StateClosed {
			t.Errorf("it is %s, %v", i.State, err)
		}
		if err := r.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A session that departs while it is being deleted is gone, as a moment later. It does not only work.
func TestDepart_WhileItIsDeleted(t *testing.T) {
	for name, row := range map[string]struct {
		answer func(a *fakeAgent, m acp.Message)
		kind   problem.Kind
	}{
		"deleted": {func(a *fakeAgent, m acp.Message) { a.conn().result(m, `{}`) }, problem.SessionNotFound},
		"kept": {func(a *fakeAgent, m acp.Message) {
			a.conn().out <- acp.NewError(m.ID(), acp.Errorf(acp.CodeInternal, "it is in use"))
		}, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			a := &fakeAgent{id: "fake", caps: `{"sessionCapabilities":{"delete":{}}}`}
			r, err := New(Options{DataDir: t.TempDir(), Adapters: adaptersOf(a), DefaultAgent: "fake"})
			if err != nil {
				t.Fatal(err)
			}
			tc := connect(t, r, "")
			s := tc.session()
			i, err := r.Session(s)
			if err != nil {
				t.Fatal(err)
			}
			id := tc.request("session/delete", `{"sessionId":"`+s+`"}`)
			m := a.conn().next(t, "session/delete")
			left := make(chan error, 1)
			go func() { left <- r.DepartSession(t.Context(), s, i.EventCount, nil, "node://two") }()
			synctest.Wait()
			select {
			case err := <-left:
				t.Fatalf("%s: it was not waited for: %v", name, err)
			default:
			}
			row.answer(a, m)
			tc.until(id)
			switch p, ok := errors.AsType[*problem.Error](<-left); {
			case row.kind != "" && (!ok || p.Kind != row.kind):
				t.Errorf("%s: it departed with %v", name, p)
			case row.kind == "" && ok && p.Kind == problem.SessionNotFound:
				t.Errorf("%s: it departed as one that is gone", name)
			}
			tc.close()
			if err := r.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestSession_CloseTerminateDeleteMetadata(t *testing.T) {
	dir := t.TempDir()
	a := &fakeAgent{caps: `{"sessionCapabilities":{"resume":{}}}`}
	r := newRuntime(t, dir, a)
	tc := connect(t, r, "")
	closed, ended, deleted := tc.session(), tc.session(), tc.session()
	tc.call("_sandboxagent/session/set_metadata", `{"sessionId":"`+closed+`","metadata":{"k":[1]}}`)
	if got := tc.call("_sandboxagent/session/get", `{"sessionId":"`+closed+`"}`); !strings.Contains(got, `"metadata":{"k":[1]}`) {
		t.Errorf("get: %s", got)
	}
	tc.call("session/close", `{"sessionId":"`+closed+`"}`)
	if e := tc.callErr("session/prompt", prompt(closed, "x")); e.Code != acp.CodeResourceNotFound || !strings.Contains(e.Message, "session/load") {
		t.Errorf("closed: %v", e)
	}
	const want = `{"alreadyEnded":false,"reason":"terminated","terminated":true,"terminatedBy":"client"}`
	id := tc.request("_sandboxagent/session/terminate", `{"sessionId":"`+ended+`"}`)
	if _, res := tc.until(id); string(res.Result()) != want {
		t.Errorf("terminate: %s", res.Frame())
	}
	if got := tc.call("_sandboxagent/session/terminate", `{"sessionId":"`+ended+`"}`); !strings.Contains(got, `"alreadyEnded":true`) {
		t.Errorf("terminate again: %s", got)
	}
	tc.call("session/delete", `{"sessionId":"`+deleted+`"}`)
	if e := tc.callErr("session/prompt", prompt(deleted, "x")); e.Code != acp.CodeResourceNotFound {
		t.Errorf("deleted: %v", e)
	}
	tc.call("session/resume", `{"sessionId":"`+closed+`","cwd":"/tmp"}`)
	pid := tc.request("session/prompt", prompt(closed, "x"))
	res := a.conn().next(t, "session/resume")
	a.conn().result(res, `{}`)
	p := a.conn().next(t, "session/prompt")
	a.conn().result(p, `{"stopReason":"end_turn"}`)
	tc.until(pid)
	page, err := r.Sessions(t.Context(), SessionFilter{})
	if err != nil || len(page.Sessions) != 2 {
		t.Errorf("%d sessions are left, %v", len(page.Sessions), err)
	}
}

func TestDetach_StopsDeliveryAndNothingElse(t *testing.T) {
	a := &fakeAgent{}
	r := newRuntime(t, t.TempDir(), a)
	tc := connect(t, r, "")
	s := tc.session()
	id := tc.request("session/prompt", prompt(s, "a"))
	p := a.conn().next(t, "session/prompt")
	tc.call("_sandboxagent/session/detach", `{"sessionId":"`+s+`"}`)
	a.conn().chunk("native-1", "unseen")
	a.conn().result(p, `{"stopReason":"end_turn"}`)
	before, _ := tc.until(id) // its response still comes
	if len(before) != 0 {
		t.Errorf("got %v", before)
	}
	events, _, err := r.Events(t.Context(), s, 0, 0)
	if err != nil || !strings.Contains(string(events[len(events)-2].Message), "unseen") {
		t.Errorf("events %v, %v", events, err)
	}
}

func TestDelete_DormantSessionIsDeletedAtItsAgentToo(t *testing.T) {
	a := &fakeAgent{caps: `{"loadSession":true,"sessionCapabilities":{"delete":{}}}`}
	r := newRuntime(t, t.TempDir(), a)
	tc := connect(t, r, "")
	s := tc.session()
	a.conn().crash(errCrash)
	tc.next()
	id := tc.request("session/delete", `{"sessionId":"`+s+`"}`)
	waitFor(t, r, s, func(SessionInfo) bool { return a.opened() == 2 })
	m := a.conn().next(t, "session/delete")
	if m.Session() != "native-1" {
		t.Errorf("deleted %s", m.Frame())
	}
	a.conn().result(m, `{}`)
	tc.until(id)
}

// Variables say where an agent keeps what it has: what is to be deleted is not found without those of the session.
func TestDelete_DormantSessionOfVariables(t *testing.T) {
	for _, perSession := range []bool{false, true} {
		a := &fakeAgent{caps: `{"loadSession":true,"sessionCapabilities":{"delete":{}}}`, info: adapters.Info{PerSession: perSession}, shared: make(chan sent, 64)}
		r := newRuntime(t, t.TempDir(), a)
		tc := connect(t, r, "")
		s := tc.newWith(`{"env":{"AGENT_HOME":"/elsewhere"}}`)
		a.conn().crash(errCrash)
		tc.next()
		id := tc.request("session/delete", `{"sessionId":"`+s+`"}`)
		m := a.nextOf(t, "session/delete")
		a.answer(m, `{}`)
		tc.until(id)
		if got := a.optionsOf(m.to).Env; !slices.Equal(got, []string{"AGENT_HOME=/elsewhere"}) {
			t.Errorf("one process for each session %v: deleted with the variables %q", perSession, got)
		}
	}
}

// An agent that could not restore its session has begun another one: what it keeps of the one before goes with the
// session, too, whether it still knows that or not.
func TestDelete_AlsoWhatTheAgentKeptBefore(t *testing.T) {
	deleted := make(chan string, 10)
	a := &fakeAgent{caps: `{"sessionCapabilities":{"delete":{}}}`}
	a.handle = func(c *fakeConn, m acp.Message) {
		switch m.Method() {
		case "session/new":
			c.result(m, fmt.Sprintf(`{"sessionId":"%d"}`, a.opened()))
		case "session/prompt":
			c.result(m, `{"stopReason":"end_turn"}`)
		case "session/delete":
			deleted <- m.Session()
			if m.Session() == "1" {
				c.out <- acp.NewError(m.ID(), acp.Errorf(acp.CodeResourceNotFound, "it is not known"))
				return
			}
			c.result(m, `{}`)
		}
	}
	dir := t.TempDir()
	r := newRuntime(t, dir, a)
	tc := connect(t, r, "")
	s := tc.session()
	for range 2 {
		a.conn().crash(errCrash)
		tc.next() // ended
		tc.until(tc.request("session/prompt", prompt(s, "x")))
	}
	tc.close()
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	if err := r.Shutdown(ctx); err != nil { // it is remembered
		t.Fatal(err)
	}
	tc = connect(t, newRuntime(t, dir, a), "")
	if _, res := tc.until(tc.request("session/delete", `{"sessionId":"`+s+`"}`)); res.Err() != nil {
		t.Errorf("%s", res.Frame())
	}
	close(deleted)
	var got []string
	for id := range deleted {
		got = append(got, id)
	}
	if !slices.Equal(got, []string{"3", "2", "1"}) { // first what it has now
		t.Errorf("the agent was to delete %q", got)
	}
}
