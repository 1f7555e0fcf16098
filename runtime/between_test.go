package runtime

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/adapters"
)

// What happens when two events meet: a start and an end, a turn's end and a
// request, a restart and an answer.

// gated is a fakeAgent whose processes start when they are let.
type gated struct {
	*fakeAgent
	starting chan struct{} // receives when a start has begun
	let      chan error    // what the start comes to
}

func newGated(a *fakeAgent) *gated {
	return &gated{fakeAgent: a, starting: make(chan struct{}, 16), let: make(chan error, 4)}
}

func (g *gated) Open(ctx context.Context, o adapters.Options) (acp.Conn, error) {
	g.starting <- struct{}{}
	select {
	case err := <-g.let:
		if err != nil {
			return nil, err
		}
		return g.fakeAgent.Open(ctx, o)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

const permission = `{"jsonrpc":"2.0","id":"p","method":"session/request_permission","params":{"sessionId":"native-1","toolCall":{"toolCallId":%q},"options":[{"optionId":"allow","name":"Allow","kind":"allow_once"}]}}`

func initialize(r *Runtime, params string) (acp.Client, error) {
	m := acp.NewRequest("0", "initialize", []byte(`{"protocolVersion":1,"clientCapabilities":{}`+params+`}`))
	c, _, err := r.Connect(context.Background(), m, acp.ConnectOptions{Shape: acp.OneStream})
	return c, err
}

func nothing(t *testing.T, c *fakeConn, what string) {
	t.Helper()
	select {
	case m := <-c.got:
		t.Errorf("%s: the agent was sent %s", what, m.Frame())
	default:
	}
}

func TestAnswer_OfAnEarlierGatewayCountsForNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := &fakeAgent{caps: `{"sessionCapabilities":{"resume":{}}}`}
	r := newRuntime(t, dir, a)
	tc := connect(t, r, "")
	s := tc.session()
	tc.request("session/prompt", prompt(s, "a"))
	a.conn().next(t, "session/prompt")
	a.conn().send(fmt.Sprintf(permission, "ls"))
	old := tc.next()
	tc.close()
	if err := r.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	b := &fakeAgent{caps: a.caps}
	tc = connect(t, newRuntime(t, dir, b), "")
	tc.request("session/prompt", prompt(s, "b"))
	b.conn().result(b.conn().next(t, "session/resume"), `{}`)
	b.conn().next(t, "session/prompt")
	b.conn().send(fmt.Sprintf(permission, "rm -rf /"))
	fresh := tc.next()
	if fresh.ID() == old.ID() {
		t.Fatalf("two requests have the id %s", old.ID())
	}
	answer := `{"jsonrpc":"2.0","id":%s,"result":{"outcome":{"outcome":"selected","optionId":"allow"}}}`
	tc.send(fmt.Sprintf(answer, old.ID()))
	tc.call("_sandboxagent/session/get", `{"sessionId":"`+s+`"}`) // behind it
	nothing(t, b.conn(), "an answer to an earlier request")
	tc.send(fmt.Sprintf(answer, fresh.ID()))
	if m := b.conn().next(t, ""); m.ID() != `"p"` {
		t.Errorf("the agent was sent %s", m.Frame())
	}
}

func TestAnswer_OfAClientThatWasNotAskedCountsForNothing(t *testing.T) {
	t.Parallel()
	a := &fakeAgent{}
	r := newRuntime(t, t.TempDir(), a)
	tc := connect(t, r, "")
	s := tc.session()
	blind, err := initialize(r, "") // it opens no stream
	if err != nil {
		t.Fatal(err)
	}
	defer blind.Close()
	send := func(frame string) {
		if err := blind.Send(t.Context(), acp.MustParse([]byte(frame))); err != nil {
			t.Fatal(err)
		}
	}
	send(`{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":` + prompt(s, "b") + `}`)
	a.conn().next(t, "session/prompt")
	a.conn().send(fmt.Sprintf(permission, "rm"))
	ask := tc.next()
	for ask.Method() != acp.MethodSessionRequestPermission {
		ask = tc.next()
	}
	answer := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"outcome":{"outcome":"selected","optionId":"allow"}}}`, ask.ID())
	send(answer)
	nothing(t, a.conn(), "an answer of who was not asked")
	tc.send(answer)
	a.conn().next(t, "")
}

func TestAsk_OutlivesItsTurn(t *testing.T) {
	for _, end := range []string{"answer", "cancel", "close", "withdrawn"} {
		t.Run(end, func(t *testing.T) {
			a := &fakeAgent{}
			r := newRuntime(t, t.TempDir(), a)
			tc := connect(t, r, `{"terminal":true}`)
			s := tc.session()
			first := tc.request("session/prompt", prompt(s, "a"))
			p := a.conn().next(t, "session/prompt")
			a.conn().send(fmt.Sprintf(permission, "ls"))
			a.conn().send(`{"jsonrpc":"2.0","id":7,"method":"terminal/wait_for_exit","params":{"sessionId":"native-1","terminalId":"t1"}}`)
			ask, terminal := tc.next(), tc.next()
			a.conn().result(p, `{"stopReason":"end_turn"}`)
			tc.until(first)
			waitFor(t, r, s, func(i SessionInfo) bool { return i.State == StateWaiting && i.Pending == 1 })
			want := map[string]string{} // what the agent is answered, by its id
			switch end {
			case "answer":
				tc.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"exitCode":0}}`, terminal.ID()))
				tc.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"outcome":{"outcome":"selected","optionId":"allow"}}}`, ask.ID()))
				want = map[string]string{"7": "exitCode", `"p"`: "allow"}
			case "cancel":
				tc.send(`{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"` + s + `"}}`)
				a.conn().next(t, "session/cancel")
				want = map[string]string{`"p"`: "cancelled"}
			case "close":
				tc.request("session/close", `{"sessionId":"`+s+`"}`)
				a.conn().next(t, "session/cancel")
				want = map[string]string{"7": "-32800", `"p"`: "cancelled"}
			case "withdrawn":
				a.conn().send(`{"jsonrpc":"2.0","method":"$/cancel_request","params":{"sessionId":"native-1","requestId":"p"}}`)
				want = map[string]string{`"p"`: "-32800"}
			}
			for range want {
				m := a.conn().next(t, "")
				if w := want[string(m.ID())]; w == "" || !strings.Contains(string(m.Frame()), w) {
					t.Errorf("the agent was sent %s, want %q", m.Frame(), want)
				}
			}
		})
	}
}

func TestShutdown_MeetsAStart(t *testing.T) {
	for _, late := range []bool{false, true} { // whether the start succeeds all the same
		t.Run(fmt.Sprint(late), func(t *testing.T) {
			g := newGated(&fakeAgent{id: "slow"})
			r, err := New(Options{DataDir: t.TempDir(), Adapters: []adapters.Adapter{&fakeAgent{id: "a"}, g}, DefaultAgent: "a"})
			if err != nil {
				t.Fatal(err)
			}
			connect(t, r, "")
			connected := make(chan error, 1)
			go func() {
				_, err := initialize(r, `,"_meta":{"sandboxagent.dev":{"agent":"slow"}}`)
				connected <- err
			}()
			<-g.starting
			if late {
				g.let <- nil
			}
			ctx, cancel := context.WithTimeout(t.Context(), wait)
			defer cancel()
			if err := r.Shutdown(ctx); err != nil {
				t.Errorf("shutdown: %v", err)
			}
			<-connected
		})
	}
}

// stuck is a fakeAgent whose processes do not end.
type stuck struct {
	*fakeAgent
	release chan struct{}
}

func (s *stuck) Open(ctx context.Context, o adapters.Options) (acp.Conn, error) {
	c, err := s.fakeAgent.Open(ctx, o)
	return &stuckConn{c.(*fakeConn), s.release}, err
}

type stuckConn struct {
	*fakeConn
	release chan struct{}
}

func (c *stuckConn) Close() error { <-c.release; return c.fakeConn.Close() }

func TestShutdown_IsBounded(t *testing.T) {
	a := &stuck{&fakeAgent{id: "a"}, make(chan struct{})}
	r, err := New(Options{DataDir: t.TempDir(), Adapters: []adapters.Adapter{a}, DefaultAgent: "a"})
	if err != nil {
		t.Fatal(err)
	}
	connect(t, r, "")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := r.Shutdown(ctx); err == nil || !strings.Contains(err.Error(), "not every agent process ended") {
		t.Errorf("shutdown beside an agent that does not end: %v", err)
	}
	close(a.release)
	if err := r.tasks.Wait(context.Background()); err != nil {
		t.Error(err)
	}
}

// dormantSession makes a session whose agent has given its process back, and
// lets the next start wait.
func dormantSession(t *testing.T) (*Runtime, *gated, *testClient, string) {
	t.Helper()
	g := newGated(&fakeAgent{id: "fake", caps: `{"sessionCapabilities":{"resume":{}}}`})
	g.let <- nil
	r := openRuntime(t, Options{DataDir: t.TempDir(), Adapters: []adapters.Adapter{g}, DefaultAgent: "fake"})
	tc := connect(t, r, "")
	<-g.starting
	s := tc.session()
	g.conn().crash(errCrash)
	waitFor(t, r, s, func(i SessionInfo) bool { return i.State == StateDormant })
	return r, g, tc, s
}

func TestCancel_MeetsAStart(t *testing.T) {
	_, g, tc, s := dormantSession(t)
	turn := tc.request("session/prompt", prompt(s, "x"))
	<-g.starting
	tc.send(`{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"` + s + `"}}`)
	if _, res := tc.until(turn); !strings.Contains(string(res.Result()), "cancelled") {
		t.Errorf("the prompt was answered %s", res.Frame())
	}
	// The start was not in vain: the next prompt gets the process.
	turn = tc.request("session/prompt", prompt(s, "y"))
	g.let <- nil
	second := awaitConn(t, g, 2)
	second.result(second.next(t, "session/resume"), `{}`)
	p := g.conn().next(t, "session/prompt")
	if !strings.Contains(string(p.Frame()), `"y"`) {
		t.Errorf("the agent was given %s", p.Frame())
	}
	g.conn().result(p, `{"stopReason":"end_turn"}`)
	tc.until(turn)
}

// awaitConn waits for the n-th process.
func awaitConn(t *testing.T, g *gated, n int) *fakeConn {
	t.Helper()
	for deadline := time.Now().Add(wait); g.opened() < n; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d processes were started", g.opened())
		}
	}
	return g.conn()
}

func TestRequestedID_IsFreeAfterAFailedStart(t *testing.T) {
	t.Parallel()
	g := newGated(&fakeAgent{id: "fake"})
	g.let <- nil
	r := openRuntime(t, Options{DataDir: t.TempDir(), Adapters: []adapters.Adapter{g}, DefaultAgent: "fake"})
	tc := connect(t, r, "")
	<-g.starting
	g.conn().crash(errCrash)
	for deadline := time.Now().Add(wait); len(r.agents.Find("fake").Processes()) > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the process lives on")
		}
	}
	params := `{"cwd":"/","mcpServers":[],"_meta":{"sandboxagent.dev":{"requestedSessionId":"mine"}}}`
	g.let <- errors.New("no memory just now")
	if e := tc.callErr("session/new", params); !strings.Contains(e.Message, "no memory just now") {
		t.Errorf("the first: %v", e)
	}
	g.let <- nil
	if got := tc.call("session/new", params); rawjson.MemberString([]byte(got), "sessionId") != "mine" {
		t.Errorf("the second: %s", got)
	}
}

func TestLoad_WhatFollowsTheAnswerIsKept(t *testing.T) {
	a := &fakeAgent{caps: `{"loadSession":true}`}
	a.handle = func(c *fakeConn, m acp.Message) {
		switch m.Method() {
		case "session/new":
			c.newSession(m)
		case "session/load":
			c.chunk(m.Session(), "replayed")
			c.result(m, `{}`)
			c.chunk(m.Session(), "behind")
		default:
			if m.IsRequest() {
				c.result(m, `{"stopReason":"end_turn"}`)
			}
		}
	}
	r := newRuntime(t, t.TempDir(), a)
	tc := connect(t, r, "")
	s := tc.session()
	for i := range 20 {
		tc.call("session/close", `{"sessionId":"`+s+`"}`)
		tc.call("session/resume", `{"sessionId":"`+s+`","cwd":"/"}`)
		before, _ := tc.until(tc.request("session/prompt", prompt(s, "x")))
		if got := texts(before); !strings.Contains(got, "behind") || strings.Contains(got, "replayed") {
			t.Fatalf("load %d showed %q", i, got)
		}
	}
}

func TestLoad_RefusedLeavesWhatIsStored(t *testing.T) {
	dir := t.TempDir()
	a := &fakeAgent{}
	r := newRuntime(t, dir, a)
	tc := connect(t, r, "")
	s := tc.session()
	id := tc.request("session/prompt", prompt(s, "precious"))
	a.conn().result(a.conn().next(t, "session/prompt"), `{"stopReason":"end_turn"}`)
	tc.until(id)
	tc.close()
	if err := r.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	log, record := filepath.Join(dir, "sessions", s, "log.journal"), filepath.Join(dir, "sessions", s, "session.json")
	before, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	clear(before[40:100]) // what the log says of the session is damaged, too
	if err := os.WriteFile(log, before, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(record, nil, 0o600); err != nil { // as after a power failure
		t.Fatal(err)
	}
	b := &fakeAgent{caps: `{"loadSession":true}`}
	b.handle = func(c *fakeConn, m acp.Message) {
		if m.IsRequest() {
			c.out <- acp.NewError(m.ID(), acp.Errorf(acp.CodeResourceNotFound, "no such session"))
		}
	}
	tc = connect(t, newRuntime(t, dir, b), "")
	e := tc.callErr("session/load", `{"sessionId":"`+s+`","cwd":"/","mcpServers":[]}`)
	if after, err := os.ReadFile(log); err != nil || string(after) != string(before) {
		t.Errorf("after a refused load the log is %q, %v", after, err)
	}
	if e.Code != acp.CodeInternal || !strings.Contains(e.Message, "cannot be read") {
		t.Errorf("the load was refused with %v", e)
	}
}

// A late answer to a load that timed out changes nothing in the one that follows:
// what is replayed stays out of the history.
func TestLoad_LateAnswerToAnEarlierOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &fakeAgent{id: "fake", caps: `{"loadSession":true}`}
		r, err := New(Options{DataDir: t.TempDir(), Adapters: adaptersOf(a), DefaultAgent: "fake", RequestTimeout: 10 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		tc := connect(t, r, "")
		s := tc.session()
		a.conn().crash(errCrash)
		tc.nextOf("_sandboxagent/session/ended")
		tc.callErr("session/prompt", prompt(s, "x")) // times out while its load is not answered
		first := a.conn().next(t, "session/load")
		a.conn().next(t, "$/cancel_request")
		id := tc.request("session/prompt", prompt(s, "y"))
		a.conn().chunk("native-1", "replayed")
		a.conn().result(first, `{}`)
		second := a.conn().next(t, "session/load")
		a.conn().chunk("native-1", "replayed")
		a.conn().result(second, `{}`)
		p := a.conn().next(t, "session/prompt")
		a.conn().result(p, `{"stopReason":"end_turn"}`)
		if before, _ := tc.until(id); texts(before) != "" {
			t.Errorf("the client was shown %q", texts(before))
		}
		tc.close()
		if err := r.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A session that is closed while its agent opens it is closed at once, can be opened
// again at once, and what the agent opens too late it is asked to close.
func TestClose_MeetsTheAgentsOpening(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &fakeAgent{id: "fake", caps: `{"loadSession":true,"sessionCapabilities":{"close":{}}}`}
		r, err := New(Options{DataDir: t.TempDir(), Adapters: adaptersOf(a), DefaultAgent: "fake"})
		if err != nil {
			t.Fatal(err)
		}
		tc := connect(t, r, "")
		s := tc.session()
		a.conn().crash(errCrash)
		tc.nextOf("_sandboxagent/session/ended")
		tc.request("session/prompt", prompt(s, "x"))
		a.awaitOpened(t, 2)
		load := a.conn().next(t, "session/load")
		began := time.Now()
		tc.call("session/close", fmt.Sprintf(`{"sessionId":%q}`, s))
		if took := time.Since(began); took > time.Second {
			t.Errorf("the close took %v", took)
		}
		a.conn().next(t, "$/cancel_request")
		a.conn().result(load, `{}`)
		closed := a.conn().next(t, "session/close")
		if closed.Session() != "native-1" {
			t.Errorf("the agent was told %s", closed.Frame())
		}
		a.conn().result(closed, `{}`)
		tc.call("session/resume", fmt.Sprintf(`{"sessionId":%q,"cwd":"/"}`, s))
		id := tc.request("session/prompt", prompt(s, "y"))
		a.conn().result(a.conn().next(t, "session/load"), `{}`)
		a.conn().result(a.conn().next(t, "session/prompt"), `{"stopReason":"end_turn"}`)
		tc.until(id)
		tc.close()
		if err := r.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A prompt that is refused because its session is closed does not attach to it: its client is shown nothing of what others do when
// they open the session again.
func TestPrompt_RefusedDoesNotAttach(t *testing.T) {
	r := newRuntime(t, t.TempDir(), &fakeAgent{})
	one, two := connect(t, r, ""), connect(t, r, "")
	s := one.session()
	of := fmt.Sprintf(`{"sessionId":%q,"cwd":"/tmp","mcpServers":[]}`, s)
	one.call("_sandboxagent/session/detach", of)
	two.call("session/close", of)
	one.callErr("session/prompt", prompt(s, "x"))
	two.call("session/resume", of)
	if i, err := r.Session(s); err != nil || i.Clients != 1 {
		t.Errorf("%d clients have the session open, not only the one that has opened it, %v", i.Clients, err)
	}
}

// To look at a session changes nothing in it.
func TestOpen_LooksOnly(t *testing.T) {
	a := &fakeAgent{}
	r := newRuntime(t, t.TempDir(), a)
	tc, other := connect(t, r, ""), connect(t, r, "")
	s := tc.session()
	id := tc.request("session/prompt", prompt(s, "x"))
	a.conn().result(a.conn().next(t, "session/prompt"), `{"stopReason":"end_turn"}`)
	tc.until(id)
	before, err := r.Session(s)
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * time.Millisecond) // the clock of the log has milliseconds
	for _, method := range []string{"session/load", "session/resume"} {
		other.call(method, fmt.Sprintf(`{"sessionId":%q,"cwd":"/","mcpServers":[]}`, s))
	}
	other.call("_sandboxagent/session/get", fmt.Sprintf(`{"sessionId":%q}`, s))
	after, err := r.Session(s)
	if err != nil || after.EventCount != before.EventCount || !after.UpdatedAt.Equal(before.UpdatedAt) {
		t.Errorf("it was %+v and is %+v, %v", before, after, err)
	}
}

// The end of the gateway does not wait for who follows events.
func TestShutdown_BesideWhoFollows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &fakeAgent{id: "fake"}
		r, err := New(Options{DataDir: t.TempDir(), Adapters: adaptersOf(a), DefaultAgent: "fake"})
		if err != nil {
			t.Fatal(err)
		}
		tc := connect(t, r, "")
		s := tc.session()
		ctx, leave := context.WithCancel(t.Context())
		left := make(chan struct{})
		go func() {
			defer close(left)
			for range r.FollowEvents(ctx, s, 0) {
			}
		}()
		synctest.Wait()
		began := time.Now()
		if err := r.Shutdown(t.Context()); err != nil || time.Since(began) > time.Second {
			t.Errorf("shutdown took %v: %v", time.Since(began), err)
		}
		leave()
		<-left
		tc.close()
	})
}

// What a client asks for on one connection happens in that order, also when others ask
// beside it: a session that is closed and loaded again is open.
func TestClose_AndLoadAtOnce(t *testing.T) {
	a := &fakeAgent{caps: `{"loadSession":true,"sessionCapabilities":{"close":{},"resume":{}}}`}
	a.handle = func(c *fakeConn, m acp.Message) {
		switch m.Method() {
		case acp.MethodSessionNew:
			c.newSession(m)
		case acp.MethodSessionClose, acp.MethodSessionLoad, acp.MethodSessionResume:
			c.result(m, `{}`)
		case acp.MethodSessionPrompt:
			c.result(m, `{"stopReason":"end_turn"}`)
		}
	}
	r := newRuntime(t, t.TempDir(), a)
	tc, other := connect(t, r, ""), connect(t, r, "")
	for range 60 {
		s := other.session()
		about := `{"sessionId":"` + s + `","cwd":"/tmp","mcpServers":[]}`
		closed := tc.request("session/close", about)
		loaded := tc.request("session/load", about)
		beside := other.request("session/load", about)
		for open := 2; open > 0; { // the answers travel beside each other
			if m := tc.next(); m.IsResponse() && (m.ID() == closed || m.ID() == loaded) {
				open--
			}
		}
		other.until(beside)
		if _, res := tc.until(tc.request("session/prompt", prompt(s, "x"))); res.Err() != nil {
			t.Fatalf("the session that was loaded takes no prompt: %s", res.Frame())
		}
	}
}
