package codex

import (
	"context"
	"encoding/json"
	"io"
	"log"
	"log/slog"
	"net"
	"testing"

	"github.com/sourcegraph/jsonrpc2"

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
			near, far := net.Pipe()
			quiet := jsonrpc2.SetLogger(log.New(io.Discard, "", 0))
			codex := reluctant{make(chan struct{}, 2*len(interruptPauses))}
			there := jsonrpc2.NewConn(context.Background(), jsonrpc2.NewPlainObjectStream(far), codex, quiet)
			client := latecomer{asked: make(chan struct{}, 1), may: make(chan struct{})}
			a := &agent{peer: client, log: slog.New(slog.DiscardHandler)}
			srv := &server{a: a, log: a.log, ended: make(chan struct{})}
			srv.rpc = jsonrpc2.NewConn(context.Background(), jsonrpc2.NewPlainObjectStream(near), handler{srv}, quiet)
			defer func() {
				_ = srv.rpc.Close()
				<-srv.rpc.DisconnectNotify()
				_ = there.Close()
				<-there.DisconnectNotify()
			}()
			got := &opened{}
			got.Thread.ID = "T"
			s := a.newSession(srv, "S", got, &setup{Setup: &bridge.Setup{Cwd: t.TempDir()}})
			defer s.stop()
			prompt := func() (*turn.Turn[work], <-chan *schema.PromptResponse) {
				begun, over := make(chan *turn.Turn[work], 1), make(chan *schema.PromptResponse, 1)
				go func() {
					r, _ := s.turns.Prompt(context.Background(), turn.Script[work]{
						Work: work{ids: map[string]bool{}, started: make(chan struct{})},
						Gone: srv.ended, Log: s.log, Bound: cancelBound, Stop: s.stopTurn,
						Begin: func(_ *turn.Waiting, t *turn.Turn[work]) error { begun <- t; return nil },
					})
					over <- r
				}()
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
