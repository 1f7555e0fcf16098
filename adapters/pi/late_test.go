package pi

import (
	"context"
	"log/slog"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
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

func (a latecomer) Ask(context.Context, string, any, any) error {
	close(a.asked)
	<-a.may
	return nil // nothing is selected
}

// A question may be answered when its turn is over and another one runs, which nobody wants to end.
func TestDialog_LateAnswerEndsNoOtherTurn(t *testing.T) {
	// It repeats what Pi is told.
	child, err := bridge.Start(t.Context(), process.Spec{Path: "/bin/cat"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	client := latecomer{asked: make(chan struct{}), may: make(chan struct{})}
	a := &agent{peer: client, log: slog.New(slog.DiscardHandler)}
	s := a.newSession(&launch{Setup: &bridge.Setup{Cwd: t.TempDir()}, mode: modeDefault})
	s.name("S")
	s.served, s.prog = true, &program{child: child}

	prompt := func() (*turn.Turn[work], <-chan *schema.PromptResponse) {
		begun, over := make(chan *turn.Turn[work], 1), make(chan *schema.PromptResponse, 1)
		go func() {
			r, _ := s.turns.Prompt(t.Context(), turn.Script[work]{
				Gone: s.dead, Exit: func() error { return s.exit }, Log: s.log, Bound: cancelBound,
				Begin: func(_ *turn.Waiting, t *turn.Turn[work]) error { begun <- t; return nil },
				Stop:  s.abortUntil,
			})
			over <- r
		}()
		return <-begun, over
	}
	first, over := prompt()
	s.dialog(s.prog, &event{Type: "extension_ui_request", Method: "select", ID: "D", Title: `{"mark":"` + s.mark + `","toolCallId":"c","toolName":"bash","input":{"command":"true"}}`})
	<-client.asked
	first.Settle(turn.Verdict{Reason: schema.StopReasonEndTurn})
	<-over
	second, over := prompt()
	close(client.may)
	// What Pi is told first is the answer: nothing is aborted.
	line, err := child.ReadLine()
	if e, bad := parse(line); err != nil || bad != nil || e.Type != "extension_ui_response" {
		t.Errorf("pi is told %s, %v", line, err)
	}
	second.Settle(turn.Verdict{Reason: schema.StopReasonEndTurn})
	if r := <-over; r.StopReason != schema.StopReasonEndTurn {
		t.Errorf("the second turn ended with %s", r.StopReason)
	}
	s.stop()
	s.work.Wait()
	_ = child.End(process.Ladder{})
}

// A turn whose end was wanted before it had begun is aborted again when it begins. The next
// one begins when Pi was told.
func TestObserve_AbortsNoOtherTurn(t *testing.T) {
	// It repeats what Pi is told.
	child, err := bridge.Start(t.Context(), process.Spec{Path: "/bin/cat"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	a := &agent{peer: latecomer{}, log: slog.New(slog.DiscardHandler)}
	s := a.newSession(&launch{Setup: &bridge.Setup{Cwd: t.TempDir()}, mode: modeDefault})
	s.name("S")
	s.served, s.prog = true, &program{child: child}
	for range 50 { // an abort beside the next turn would come in time now and then
		begun, over := make(chan *turn.Turn[work], 1), make(chan struct{})
		stopping := make(chan struct{})
		go func() {
			defer close(over)
			_, _ = s.turns.Prompt(context.Background(), turn.Script[work]{
				Gone: s.dead, Exit: func() error { return s.exit }, Log: s.log, Bound: cancelBound,
				Begin: func(_ *turn.Waiting, t *turn.Turn[work]) error { begun <- t; return nil },
				Stop:  func(ctx context.Context, _ *turn.Turn[work]) { close(stopping); <-ctx.Done() },
			})
		}()
		first := <-begun
		first.Stop()
		<-stopping
		s.taken(s.prog, first, false, &event{Success: true, Data: []byte(`{"disposition":"started"}`)})
		s.observe(&event{Type: "agent_start"})
		first.Settle(turn.Verdict{Reason: schema.StopReasonCancelled})
		<-over
		s.answer(s.prog, "next", nil)
		var told []string
		for len(told) < 4 {
			line, err := child.ReadLine()
			if err != nil {
				t.Fatal(err)
			}
			told = append(told, rawjson.MemberString(line, "type"))
		}
		if d := cmp.Diff([]string{"clear_queue", "abort_bash", "abort", "extension_ui_response"}, told); d != "" {
			t.Fatal(d)
		}
	}
	s.stop()
	s.work.Wait()
	_ = child.End(process.Ladder{})
}
