package opencode

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge/turn"
)

// latecomer is a client that cancels when it may.
type latecomer struct {
	acp.Peer
	asked, may chan struct{}
}

func (latecomer) Update(context.Context, schema.SessionID, any) error { return nil }

func (c latecomer) Ask(_ context.Context, _ string, _, result any) error {
	close(c.asked)
	<-c.may
	switch r := result.(type) {
	case *acp.QuestionResponse:
		r.Outcome = acp.QuestionCancelled
	case *schema.RequestPermissionResponse:
		r.Outcome.Cancelled = &schema.RequestPermissionOutcomeCancelled{}
	}
	return nil
}

// beside returns a session of a client at a server.
func beside(t *testing.T, client acp.Peer, opencode http.Handler) *session {
	there := httptest.NewServer(opencode)
	t.Cleanup(there.Close)
	a := &agent{
		peer: client, conn: &bridge.Conn{}, abortBound: abortBound, log: slog.New(slog.DiscardHandler),
		store:    &bridge.Store[record]{Dir: t.TempDir(), Valid: func(string) bool { return true }},
		sessions: map[schema.SessionID]*session{}, natives: map[string]*session{},
	}
	a.guard = newGuard(t.TempDir(), a.log)
	srv := &server{a: a, log: a.log, http: there.Client(), prompts: there.Client(), base: there.URL, ended: make(chan struct{})}
	srv.ctx, srv.stop = context.WithCancel(t.Context())
	s := a.newSession(srv, "S", &setup{Setup: &bridge.Setup{Cwd: t.TempDir()}}, &catalog{})
	if err := a.register(s); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.quit)
	return s
}

// prompted runs a turn of which OpenCode is not told.
func prompted(s *session, stop func(context.Context, *turn.Turn[work])) (*turn.Turn[work], <-chan *schema.PromptResponse) {
	begun, over := make(chan *turn.Turn[work], 1), make(chan *schema.PromptResponse, 1)
	go func() {
		r, _ := s.turns.Prompt(context.Background(), turn.Script[work]{
			Work: work{posted: make(chan struct{}), shown: make(chan struct{})},
			Gone: s.srv.ended, Exit: func() error { return bridge.ErrClosed }, Log: s.log, Stop: stop, Bound: cancelBound,
			Begin: func(_ *turn.Waiting, t *turn.Turn[work]) error { begun <- t; return nil },
		})
		over <- r
	}()
	return <-begun, over
}

// settles ends a turn that is to stop.
func settles(_ context.Context, t *turn.Turn[work]) { t.Settle(turn.Verdict{}) }

// A question can be cancelled when its turn is over, or when there was none. Then no turn ends,
// and OpenCode, which would list the question for ever, is told.
func TestAsked_LateCancelRejects(t *testing.T) {
	for name, c := range map[string]struct {
		of   bool // it is asked in a turn
		ask  ask
		want string
	}{
		"a permission, without a turn":   {false, ask{ID: "per_1", Permission: "bash", Patterns: []string{"true"}}, "/permission/per_1/reply"},
		"a permission, its turn is over": {true, ask{ID: "per_1", Permission: "bash", Patterns: []string{"true"}}, "/permission/per_1/reply"},
		"a question, without a turn":     {false, ask{ID: "que_1", Questions: []question{{Question: "Well?"}}}, "/question/que_1/reject"},
		"a question, its turn is over":   {true, ask{ID: "que_1", Questions: []question{{Question: "Well?"}}}, "/question/que_1/reject"},
	} {
		t.Run(name, func(t *testing.T) {
			told := make(chan string, 8)
			client := latecomer{asked: make(chan struct{}), may: make(chan struct{})}
			s := beside(t, client, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				told <- r.URL.Path
				w.WriteHeader(http.StatusNoContent)
			}))
			prompt := func() (*turn.Turn[work], <-chan *schema.PromptResponse) { return prompted(s, settles) }
			ask := func() {
				s.asked(&event{Session: "S", ask: c.ask})
				<-client.asked
			}
			if !c.of {
				ask()
			}
			first, over := prompt()
			if c.of {
				ask()
				first.Settle(turn.Verdict{Reason: schema.StopReasonEndTurn})
				<-over
				first, over = prompt()
			}
			close(client.may)
			s.work.Wait()
			close(told)
			var got []string
			for path := range told {
				got = append(got, path)
			}
			if d := cmp.Diff([]string{c.want}, got); d != "" {
				t.Error(d)
			}
			first.Settle(turn.Verdict{Reason: schema.StopReasonEndTurn})
			if r := <-over; r.StopReason != schema.StopReasonEndTurn {
				t.Errorf("the turn that runs ended with %s", r.StopReason)
			}
		})
	}
}

// An abort that comes before a turn has begun breaks nothing off, and OpenCode would go on with it for nobody: the
// session ends when it has begun and was broken off.
func TestEnd_InATurnThatHasNotBegun(t *testing.T) {
	begun := make(chan *turn.Turn[work], 1)
	var aborts atomic.Int32
	s := beside(t, latecomer{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/session/S/abort" {
			if aborts.Add(1) == 3 {
				one := <-begun
				close(one.Work.posted)
				close(one.Work.shown)
			}
		}
		w.WriteHeader(http.StatusNoContent)
	}))
	one, over := prompted(s, s.abort)
	begun <- one
	s.end(t.Context())
	if n := aborts.Load(); n != 3 {
		t.Errorf("it was broken off %d times, and had begun at the third", n)
		close(s.srv.ended)
	}
	if r := <-over; r.StopReason != schema.StopReasonCancelled {
		t.Errorf("the turn ended with %s", r.StopReason)
	}
}
