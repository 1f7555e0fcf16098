package opencode

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
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
