package codex

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/sourcegraph/jsonrpc2"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge/turn"
	"sandboxagent.dev/sandbox-agent/internal/process"
)

// latecomer is a client that cancels when it may.
type latecomer struct {
	acp.Peer
	asked, may chan struct{}
}

func (latecomer) Update(context.Context, schema.SessionID, any) error { return nil }

func (latecomer) Notify(context.Context, string, any) error { return nil }

func (c latecomer) Ask(_ context.Context, _ string, _, result any) error {
	c.asked <- struct{}{}
	<-c.may
	if r, ok := result.(*acp.QuestionResponse); ok {
		r.Outcome = acp.QuestionCancelled
	}
	return nil // nothing is selected
}

// reluctant is an app-server that has no turn to interrupt yet.
type reluctant struct{ interrupted chan struct{} }

func (r reluctant) Handle(ctx context.Context, c *jsonrpc2.Conn, q *jsonrpc2.Request) {
	r.interrupted <- struct{}{}
	_ = c.ReplyWithError(ctx, q.ID, &jsonrpc2.Error{Code: acp.CodeInvalidRequest, Message: "no active turn to interrupt"})
}

// between returns a session of a client at an app-server.
func between(t *testing.T, client acp.Peer, codex jsonrpc2.Handler) *session {
	s, _ := connected(t, client, codex)
	return s
}

// connected is between with the app-server's end of the connection.
func connected(t *testing.T, client acp.Peer, codex jsonrpc2.Handler) (*session, *jsonrpc2.Conn) {
	near, far := net.Pipe()
	quiet := jsonrpc2.SetLogger(log.New(io.Discard, "", 0))
	there := jsonrpc2.NewConn(context.Background(), jsonrpc2.NewPlainObjectStream(far), codex, quiet)
	a := &agent{peer: client, log: slog.New(slog.DiscardHandler), opening: map[string]*opening{}, store: newStore("")}
	srv := &server{a: a, log: a.log, ended: make(chan struct{})}
	srv.rpc = jsonrpc2.NewConn(context.Background(), jsonrpc2.NewPlainObjectStream(near), handler{srv}, quiet)
	got := &opened{}
	got.Thread.ID = "T"
	s := a.newSession(srv, "S", got, &setup{Setup: &bridge.Setup{Cwd: t.TempDir()}})
	t.Cleanup(func() {
		s.stop()
		_ = srv.rpc.Close()
		<-srv.rpc.DisconnectNotify()
		_ = there.Close()
		<-there.DisconnectNotify()
	})
	return s, there
}

// prompted runs a turn of which codex is not told.
func prompted(s *session) (begun <-chan *turn.Turn[work], over <-chan *schema.PromptResponse) {
	begins, ends := make(chan *turn.Turn[work], 1), make(chan *schema.PromptResponse, 1)
	go func() {
		r, _ := s.turns.Prompt(context.Background(), turn.Script[work]{
			Work: work{ids: map[string]bool{}, begins: map[string]string{}, started: make(chan struct{})},
			Gone: s.srv.ended, Log: s.log, Bound: cancelBound, Stop: s.stopTurn, End: s.tidy,
			Begin: func(_ *turn.Waiting, t *turn.Turn[work]) error {
				s.known(t, "")
				begins <- t
				return nil
			},
		})
		ends <- r
	}()
	return begins, ends
}

// scripted is an app-server.
type scripted func(context.Context, *jsonrpc2.Conn, *jsonrpc2.Request)

func (f scripted) Handle(ctx context.Context, c *jsonrpc2.Conn, q *jsonrpc2.Request) { f(ctx, c, q) }

// What codex does by itself may end while it is cancelled. The prompt that waits for that begins
// when codex has answered.
func TestCancel_InterruptsNoPromptThatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s *session
		var begun <-chan *turn.Turn[work]
		s = between(t, latecomer{}, scripted(func(ctx context.Context, c *jsonrpc2.Conn, q *jsonrpc2.Request) {
			s.turns.OwnOver("own")
			synctest.Wait()
			if len(begun) > 0 {
				t.Error("a turn has begun, which this interrupts")
			}
			_ = c.Reply(ctx, q.ID, struct{}{})
		}))
		s.turns.Own("own")
		begun, over := prompted(s)
		synctest.Wait()
		if err := s.interrupt(s.ctx, nil); err != nil {
			t.Error(err)
		}
		(<-begun).Settle(turn.Verdict{Reason: schema.StopReasonEndTurn})
		<-over
	})
}

// Who cancels what codex does by itself does not wait for its answer: what comes on the connection comes behind that.
func TestCancel_WaitsForNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := make(chan string, 1)
		s := between(t, latecomer{}, scripted(func(_ context.Context, _ *jsonrpc2.Conn, q *jsonrpc2.Request) { asked <- q.Method }))
		s.a.sessions = map[schema.SessionID]*session{s.id: s}
		s.turns.Own("own")
		from := time.Now()
		if err := s.a.Cancel(t.Context(), &schema.CancelNotification{SessionID: s.id}); err != nil || time.Since(from) > 0 {
			t.Errorf("it took %v, %v", time.Since(from), err)
		}
		if what := <-asked; what != "turn/interrupt" {
			t.Errorf("codex was asked for %s", what)
		}
		s.finish()
		s.work.Wait()
	})
}

// What asks codex to break off a turn asks it to break off whatever turn runs. It ends with
// the turn that is meant: when a question is answered late, and while codex refuses.
func TestNudge_InterruptsNoOtherTurn(t *testing.T) {
	ask := func(method string) func(*session) {
		return func(s *session) { s.asked(jsonrpc2.ID{Num: 1}, &question{Method: method, Thread: s.thread}) }
	}
	for name, c := range map[string]struct {
		do   func(s *session)
		asks bool
		late bool // the question is answered when its turn is over
	}{
		"a permission, late": {ask("item/permissions/requestApproval"), true, true},
		"a question, late":   {ask("item/tool/requestUserInput"), true, true},
		"a permission":       {ask("item/permissions/requestApproval"), true, false},
		"a question":         {ask("item/tool/requestUserInput"), true, false},
		"credentials that are bad": {func(s *session) {
			s.observe(&event{Method: "error", Thread: s.thread, Retry: true, Error: json.RawMessage(`{"message":"no","codexErrorInfo":"unauthorized"}`)})
		}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			codex := reluctant{make(chan struct{}, 2*len(interruptPauses))}
			client := latecomer{asked: make(chan struct{}, 1), may: make(chan struct{})}
			s := between(t, client, codex)
			prompt := func() (*turn.Turn[work], <-chan *schema.PromptResponse) {
				begun, over := prompted(s)
				return <-begun, over
			}
			first, over := prompt()
			c.do(s)
			if c.asks {
				<-client.asked
			}
			if !c.late {
				close(client.may)
				<-codex.interrupted
			}
			first.Settle(turn.Verdict{Reason: schema.StopReasonEndTurn})
			<-over
			for len(codex.interrupted) > 0 { // while the first turn ran
				<-codex.interrupted
			}
			second, over := prompt()
			if c.late {
				close(client.may)
			}
			s.work.Wait()
			if n := len(codex.interrupted); n > 0 {
				t.Errorf("the second turn was interrupted %d times", n)
			}
			second.Settle(turn.Verdict{Reason: schema.StopReasonEndTurn})
			if r := <-over; r.StopReason != schema.StopReasonEndTurn {
				t.Errorf("the second turn ended with %s", r.StopReason)
			}
		})
	}
}

// Codex refuses to break off a turn that has not begun, and would go on with it for nobody: the session ends when
// it has begun and was broken off.
func TestEnd_InATurnThatHasNotBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s *session
		var asked []string
		s = between(t, latecomer{}, scripted(func(ctx context.Context, c *jsonrpc2.Conn, q *jsonrpc2.Request) {
			asked = append(asked, q.Method)
			if len(asked) < 3 { // it begins late
				_ = c.ReplyWithError(ctx, q.ID, &jsonrpc2.Error{Code: acp.CodeInvalidRequest, Message: "no active turn to interrupt"})
				return
			}
			_ = c.Reply(ctx, q.ID, struct{}{})
			if q.Method == "turn/interrupt" {
				s.settle(&turnInfo{ID: "one", Status: "interrupted"})
			}
		}))
		begun, over := prompted(s)
		<-begun
		s.observe(&event{Method: "turn/started", Thread: s.thread, Turn: &turnInfo{ID: "one"}})
		s.end(t.Context())
		if r := <-over; r.StopReason != schema.StopReasonCancelled {
			t.Errorf("the turn ended with %s", r.StopReason)
		}
		want := []string{"turn/interrupt", "turn/interrupt", "turn/interrupt", "thread/backgroundTerminals/clean", "thread/unsubscribe"}
		if d := cmp.Diff(want, asked); d != "" {
			t.Error(d)
		}
	})
}

// Codex lets go of a thread behind the end of its session. Who opens that again waits: the thread would be unloaded
// under it.
func TestReopen_WaitsUntilItIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &agent{sessions: map[schema.SessionID]*session{}, store: newStore(t.TempDir())}
		over := a.leaving.Begin("S")
		done := make(chan error, 1)
		go func() {
			_, err := a.ResumeSession(context.Background(), &schema.ResumeSessionRequest{SessionID: "S", Cwd: "nowhere"})
			done <- err
		}()
		synctest.Wait()
		if len(done) > 0 {
			t.Error("it is opened, and has not been closed")
		}
		over()
		if err := <-done; err == nil || !strings.Contains(err.Error(), "nowhere") {
			t.Error(err)
		}
	})
}

// patient is a client that answers nothing.
type patient struct {
	latecomer
	asked chan context.Context
}

func (p patient) Ask(ctx context.Context, _ string, _, _ any) error {
	p.asked <- ctx
	<-ctx.Done()
	return ctx.Err()
}

// What codex begins by itself as it is given a prompt that it does not take goes on, and asks: before the end of the prompt, and
// behind it. The next prompt waits for that.
func TestUntaken_WhatHasBegunGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := patient{asked: make(chan context.Context, 1)}
		s := between(t, client, scripted(func(ctx context.Context, c *jsonrpc2.Conn, q *jsonrpc2.Request) { _ = c.Reply(ctx, q.ID, struct{}{}) }))
		begins := func(id string) {
			s.observe(&event{Method: "turn/started", Thread: s.thread, Turn: &turnInfo{ID: id}})
		}
		_, err := s.turns.Prompt(t.Context(), turn.Script[work]{
			Work: work{ids: map[string]bool{}, begins: map[string]string{}, started: make(chan struct{})},
			Gone: s.srv.ended, Log: s.log, Stop: s.stopTurn, End: s.tidy,
			Begin: func(_ *turn.Waiting, one *turn.Turn[work]) error {
				begins("none")
				s.settle(&turnInfo{ID: "none", Status: "failed"})
				if one.Work.ids["none"] {
					t.Error("what was over before codex was given the prompt is taken for its turn")
				}
				one.Work.given = true
				begins("one")
				s.asked(jsonrpc2.ID{Num: 1}, &question{Method: "item/tool/requestUserInput", Thread: s.thread, TurnID: "one"})
				return errors.New("why")
			},
			Untaken: func(t *turn.Turn[work]) {
				begins("short")
				s.untaken(t)
				s.settle(&turnInfo{ID: "short", Status: "completed"})
				begins("two")
			},
		})
		if err == nil || !s.turns.Owns("one") || !s.turns.Owns("two") || s.turns.Owns("short") {
			t.Errorf("%v, and codex does by itself: one %t, two %t, short %t", err, s.turns.Owns("one"), s.turns.Owns("two"), s.turns.Owns("short"))
		}
		synctest.Wait()
		asked := <-client.asked
		if asked.Err() != nil {
			t.Error("what it asks is withdrawn")
		}
		begun, over := prompted(s)
		s.settle(&turnInfo{ID: "one", Status: "completed"})
		synctest.Wait()
		if asked.Err() == nil || len(begun) > 0 {
			t.Errorf("one is over: what it asked is open: %t, the next prompt has begun: %t", asked.Err() == nil, len(begun) > 0)
		}
		s.settle(&turnInfo{ID: "two", Status: "completed"})
		(<-begun).Settle(turn.Verdict{Reason: schema.StopReasonEndTurn})
		<-over
	})
}

// A compaction may be over, and codex do something by itself, before its answer is read: the next prompt waits for that.
func TestKnown_WhatBeginsBehindACompaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := between(t, latecomer{}, scripted(func(context.Context, *jsonrpc2.Conn, *jsonrpc2.Request) {}))
		r, err := s.turns.Prompt(t.Context(), turn.Script[work]{
			Work: work{ids: map[string]bool{}, begins: map[string]string{}, started: make(chan struct{}), given: true, compacts: true},
			Gone: s.srv.ended, Log: s.log, Stop: s.stopTurn, End: s.tidy,
			Begin: func(_ *turn.Waiting, one *turn.Turn[work]) error {
				s.observe(&event{Method: "turn/started", Thread: s.thread, Turn: &turnInfo{ID: "one"}})
				s.observe(&event{Method: "item/started", Thread: s.thread, TurnID: "one", Item: &item{Type: "contextCompaction"}})
				s.settle(&turnInfo{ID: "one", Status: "completed"})
				s.observe(&event{Method: "turn/started", Thread: s.thread, Turn: &turnInfo{ID: "two"}})
				s.known(one, "")
				return nil
			},
		})
		if err != nil || r.StopReason != schema.StopReasonEndTurn || s.turns.Owns("one") || !s.turns.Owns("two") {
			t.Errorf("%+v, %v, and codex does by itself: one %t, two %t", r, err, s.turns.Owns("one"), s.turns.Owns("two"))
		}
	})
}

// The end of what codex does by itself, for which a prompt waits, is not the end of that prompt.
func TestSettle_EndsNoPromptThatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := &restful{}
		s := between(t, client, scripted(func(context.Context, *jsonrpc2.Conn, *jsonrpc2.Request) {}))
		s.observe(&event{Method: "turn/started", Thread: s.thread, Turn: &turnInfo{ID: "own"}})
		begun, over := prompted(s)
		synctest.Wait()
		client.rests = synctest.Wait // until the prompt has begun
		s.settle(&turnInfo{ID: "own", Status: "completed"})
		one := <-begun
		if s.turns.Current() != one {
			t.Error("the prompt is over")
		}
		one.Settle(turn.Verdict{Reason: schema.StopReasonEndTurn})
		<-over
	})
}

// restful is a client that is told that codex does nothing by itself any more.
type restful struct {
	latecomer
	rests func()
}

func (c *restful) Notify(context.Context, string, any) error {
	if c.rests != nil {
		c.rests()
	}
	return nil
}

// A compaction may be broken off before codex has told anything of it. No other turn follows: that was its end. Who cancels it then does
// not wait for that long.
func TestSettle_CompactionThatWasBrokenOffAtOnce(t *testing.T) {
	for cancelled, bound := range map[bool]time.Duration{false: compactionBound, true: cancelledBound} {
		synctest.Test(t, func(t *testing.T) {
			s := between(t, latecomer{}, reluctant{make(chan struct{}, 64)})
			begun, over := prompted(s)
			one := <-begun
			one.Work.compacts = true
			s.known(one, "")
			for _, e := range []*event{
				{Method: "turn/started", Turn: &turnInfo{ID: "compaction", Root: "root"}},
				{Method: "turn/completed", Turn: &turnInfo{ID: "compaction", Root: "root", Status: "interrupted"}},
			} {
				e.Thread = s.thread
				s.take(e)
			}
			from := time.Now()
			if cancelled {
				one.Stop()
			}
			if r := <-over; r == nil || r.StopReason != schema.StopReasonCancelled {
				t.Errorf("it ended with %v", r)
			}
			if took := time.Since(from); took != bound {
				t.Errorf("cancelled %v: it took %v, not %v", cancelled, took, bound)
			}
		})
	}
}

// A compaction takes the place of a turn that codex has begun by itself in that moment. That one's end is not the
// compaction's.
func TestSettle_CompactionInThePlaceOfATurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := between(t, latecomer{}, scripted(func(context.Context, *jsonrpc2.Conn, *jsonrpc2.Request) {}))
		begun, over := prompted(s)
		(<-begun).Work.compacts = true
		for _, e := range []*event{
			{Method: "turn/started", Turn: &turnInfo{ID: "own"}},
			{Method: "turn/completed", Turn: &turnInfo{ID: "own", Status: "interrupted"}},
			{Method: "turn/started", Turn: &turnInfo{ID: "compaction"}},
			{Method: "item/started", TurnID: "compaction", Item: &item{Type: "contextCompaction", ID: "c"}},
		} {
			e.Thread = s.thread
			s.take(e)
		}
		synctest.Wait()
		if len(over) > 0 {
			t.Error("it is over, and has just begun")
		}
		s.take(&event{Method: "turn/completed", Thread: s.thread, Turn: &turnInfo{ID: "compaction", Status: "completed"}})
		if r := <-over; r.StopReason != schema.StopReasonEndTurn {
			t.Errorf("it ended with %s", r.StopReason)
		}
		if s.turns.Busy() {
			t.Error("something runs")
		}
	})
}

// Codex may take long to take a prompt. It is not given up: codex would do it all the same. It is when its session ends.
func TestPrompt_WaitsUntilCodexTakesIt(t *testing.T) {
	for _, ends := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			const late = time.Hour
			var s *session
			s = between(t, latecomer{}, scripted(func(ctx context.Context, c *jsonrpc2.Conn, q *jsonrpc2.Request) {
				switch {
				case q.Method != "turn/start":
					_ = c.ReplyWithError(ctx, q.ID, &jsonrpc2.Error{Code: acp.CodeInvalidRequest, Message: "no active turn to interrupt"})
				case !ends:
					time.AfterFunc(late, func() {
						s.take(&event{Method: "turn/started", Thread: s.thread, Turn: &turnInfo{ID: "one"}})
						_ = c.Reply(ctx, q.ID, json.RawMessage(`{"turn":{"id":"one"}}`))
						synctest.Wait()
						s.take(&event{Method: "turn/completed", Thread: s.thread, Turn: &turnInfo{ID: "one", Status: "completed"}})
					})
				}
			}))
			s.srv.child = &bridge.Child{Process: &process.Process{}}
			s.a.conn, s.a.sessions = &bridge.Conn{}, map[schema.SessionID]*session{s.id: s}
			if ends {
				time.AfterFunc(late, s.turns.Close)
			}
			r, err := s.a.Prompt(t.Context(), &schema.PromptRequest{SessionID: s.id, Prompt: []schema.ContentBlock{schema.TextBlock("go")}})
			want := schema.StopReasonEndTurn
			if ends {
				want = schema.StopReasonCancelled
			}
			if err != nil || r.StopReason != want {
				t.Errorf("session ends %v: it ended with %+v, %v", ends, r, err)
			}
		})
	}
}

// Codex goes on opening a thread when nobody waits for it any more. It is made to let go of that one, which no other codex could open
// else, and who opens the session again waits until it has.
func TestOpen_GivenUpLetsGoOfTheThread(t *testing.T) {
	for _, tt := range []struct {
		answer string // "" when it is refused
		byUser bool   // else codex takes longer than is waited for
		want   string
	}{
		{`{"thread":{"id":"T"}}`, true, "thread/archive thread/unarchive account/read thread/resume"},
		{`{"thread":{"id":"T"}}`, false, "thread/archive thread/unarchive account/read thread/resume"},
		{"", true, "account/read thread/resume"},
		{"", false, "account/read thread/resume"},
	} {
		synctest.Test(t, func(t *testing.T) {
			asked, may := make(chan string, 64), make(chan struct{})
			s := between(t, latecomer{}, scripted(func(ctx context.Context, c *jsonrpc2.Conn, q *jsonrpc2.Request) {
				asked <- q.Method
				switch {
				case q.Method != "thread/resume":
					_ = c.Reply(ctx, q.ID, json.RawMessage(`{"account":{"type":"apiKey"}}`))
				case tt.answer == "":
					go func() {
						<-may
						_ = c.ReplyWithError(ctx, q.ID, &jsonrpc2.Error{Code: acp.CodeInternal, Message: "not now"})
					}()
				default:
					go func() {
						<-may
						_ = c.Reply(ctx, q.ID, json.RawMessage(tt.answer))
					}()
				}
			}))
			a := s.a
			a.store, a.sessions, a.threads = newStore(t.TempDir()), map[schema.SessionID]*session{}, map[string]*session{}
			a.servers = bridge.NewServers(&bridge.Conn{}, func(context.Context, struct{}) (*server, error) { return s.srv, nil }, a.died)
			s.srv.child = &bridge.Child{}
			opened := make(chan error, 2)
			open := func(ctx context.Context) {
				_, err := a.ResumeSession(ctx, &schema.ResumeSessionRequest{SessionID: "T", Cwd: "/tmp"})
				opened <- err
			}
			ctx, giveUp := context.WithCancel(t.Context())
			go open(ctx)
			for <-asked != "thread/resume" {
				continue
			}
			if tt.byUser {
				giveUp()
			}
			if err := <-opened; err == nil {
				t.Error("it was opened")
			}
			giveUp()
			go open(t.Context())
			synctest.Wait()
			if len(asked) > 0 {
				t.Errorf("codex was asked for %s while it opens the thread", <-asked)
			}
			close(may)
			<-opened
			s.srv.work.Wait()
			var got []string
			for len(asked) > 0 && len(got) < strings.Count(tt.want, " ")+1 {
				got = append(got, <-asked)
			}
			if diff := cmp.Diff(tt.want, strings.Join(got, " ")); diff != "" {
				t.Error(diff)
			}
			for _, one := range a.sessions {
				one.stop()
			}
		})
	}
}

// The process may end between two steps of a request. Nothing is begun for it then: nobody would wait for that.
func TestOpen_OfAProcessThatHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := between(t, latecomer{}, scripted(func(context.Context, *jsonrpc2.Conn, *jsonrpc2.Request) {})).srv
		srv.exit = &adapters.ExitError{Code: 7}
		close(srv.ended)
		left, err := srv.opening(t.Context(), func(context.Context, string, any, any) error {
			t.Error("it was asked")
			return nil
		}, "thread/resume", nil, &opened{}, func(bool) { t.Error("it is late") })
		if exit, ok := errors.AsType[*adapters.ExitError](err); left || !ok || exit.Code != 7 {
			t.Errorf("%v, %v", left, err)
		}
	})
}

// knows is a client that takes its time to take notice of what is withdrawn.
type knows struct{ latecomer }

func (c knows) Ask(ctx context.Context, _ string, _, _ any) error {
	c.asked <- struct{}{}
	<-ctx.Done()
	<-c.may
	return ctx.Err()
}

// A question is not open behind the end of its turn: neither one of a subagent, which codex withdraws, nor one of a turn that nobody
// prompted.
func TestAsked_NotOpenBehindItsTurn(t *testing.T) {
	for _, own := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			client := knows{latecomer{asked: make(chan struct{}, 1), may: make(chan struct{})}}
			s := between(t, client, scripted(func(ctx context.Context, c *jsonrpc2.Conn, q *jsonrpc2.Request) {}))
			thread, over := s.thread, (<-chan *schema.PromptResponse)(nil)
			if own {
				s.take(&event{Method: "turn/started", Thread: s.thread, Turn: &turnInfo{ID: "one"}})
			} else {
				thread = "sub"
				var begun <-chan *turn.Turn[work]
				begun, over = prompted(s)
				<-begun
				s.take(&event{Method: "turn/started", Thread: s.thread, Turn: &turnInfo{ID: "one"}})
			}
			s.asked(jsonrpc2.ID{Num: 1}, &question{Method: "item/commandExecution/requestApproval", Thread: thread, TurnID: map[bool]string{false: "of sub", true: "one"}[own]})
			<-client.asked
			go func() {
				if !own {
					s.take(&event{Method: "serverRequest/resolved", Thread: thread, RequestID: json.RawMessage("1")})
				}
				s.take(&event{Method: "turn/completed", Thread: s.thread, Turn: &turnInfo{ID: "one", Status: "completed"}})
			}()
			synctest.Wait()
			if len(over) > 0 || !s.turns.Busy() {
				t.Errorf("it is over before the client knows of its question, own: %t", own)
			}
			close(client.may)
			synctest.Wait()
			if s.turns.Busy() {
				t.Errorf("it is not over, own: %t", own)
			}
			if over != nil {
				<-over
			}
			s.finish()
			_ = s.srv.rpc.Close()
			s.work.Wait()
		})
	}
}
