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
			there := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				told <- r.URL.Path
				w.WriteHeader(http.StatusNoContent)
			}))
			defer there.Close()
			client := latecomer{asked: make(chan struct{}), may: make(chan struct{})}
			a := &agent{peer: client, log: slog.New(slog.DiscardHandler)}
			srv := &server{a: a, log: a.log, http: there.Client(), base: there.URL, ended: make(chan struct{})}
			s := a.newSession(srv, "S", &setup{Setup: &bridge.Setup{Cwd: t.TempDir()}}, &catalog{})
			defer s.quit()
			prompt := func() (*turn.Turn[work], <-chan *schema.PromptResponse) {
				begun, over := make(chan *turn.Turn[work], 1), make(chan *schema.PromptResponse, 1)
				go func() {
					r, _ := s.turns.Prompt(context.Background(), turn.Script[work]{
						Gone: srv.ended, Log: s.log, Stop: func(_ context.Context, t *turn.Turn[work]) { t.Settle(turn.Verdict{}) },
						Begin: func(_ *turn.Waiting, t *turn.Turn[work]) error { begun <- t; return nil },
					})
					over <- r
				}()
				return <-begun, over
			}
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
	there := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/session/S/abort" {
			if aborts.Add(1) == 3 {
				one := <-begun
				close(one.Work.posted)
				close(one.Work.shown)
			}
		}
		w.WriteHeader(http.StatusNoContent)
	}))
	defer there.Close()
	a := &agent{peer: latecomer{}, abortBound: abortBound, log: slog.New(slog.DiscardHandler)}
	srv := &server{a: a, log: a.log, http: there.Client(), base: there.URL, ended: make(chan struct{})}
	s := a.newSession(srv, "S", &setup{Setup: &bridge.Setup{Cwd: t.TempDir()}}, &catalog{})
	over := make(chan *schema.PromptResponse, 1)
	running := make(chan bool)
	go func() {
		r, _ := s.turns.Prompt(context.Background(), turn.Script[work]{
			Work: work{posted: make(chan struct{}), shown: make(chan struct{})}, Gone: srv.ended, Exit: func() error { return bridge.ErrClosed }, Log: s.log, Stop: s.abort, Bound: cancelBound,
			Begin: func(_ *turn.Waiting, t *turn.Turn[work]) error {
				begun <- t
				close(running)
				return nil
			},
		})
		over <- r
	}()
	<-running
	s.end(t.Context())
	if n := aborts.Load(); n != 3 {
		t.Errorf("it was broken off %d times, and had begun at the third", n)
		close(srv.ended)
	}
	if r := <-over; r.StopReason != schema.StopReasonCancelled {
		t.Errorf("the turn ended with %s", r.StopReason)
	}
}
