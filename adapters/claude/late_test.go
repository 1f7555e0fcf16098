package claude

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge/turn"
	"sandboxagent.dev/sandbox-agent/internal/process"
)

// An interrupt that the program has not answered ends with its turn, so that nothing of it
// is left when the next one begins.
func TestNudge_EndsWithItsTurn(t *testing.T) {
	for name, c := range map[string]struct {
		stops bool
		e     *event
	}{
		"the turn begins, and is to end": {true, &event{Type: "stream_event", Event: &streamEvent{Type: "message_start"}}},
		"credentials that are bad":       {false, &event{Type: "system", Subtype: "api_retry", Error: errAuth}},
	} {
		t.Run(name, func(t *testing.T) {
			// It repeats what Claude Code is told.
			child, err := bridge.Start(t.Context(), process.Spec{Path: "/bin/cat"}, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = child.End(process.Ladder{}) }()
			a := &agent{peer: struct{ acp.Peer }{}, log: slog.New(slog.DiscardHandler)}
			s := a.newSession("S", t.TempDir())
			s.child = child
			begun, over := make(chan *turn.Turn[work], 1), make(chan *schema.PromptResponse, 1)
			stopping := make(chan struct{})
			go func() {
				r, _ := s.turns.Prompt(context.Background(), turn.Script[work]{
					Gone: s.ended, Log: s.log, Bound: cancelBound,
					Begin: func(_ *turn.Waiting, t *turn.Turn[work]) error { begun <- t; return nil },
					Stop:  func(ctx context.Context, _ *turn.Turn[work]) { close(stopping); <-ctx.Done() },
				})
				over <- r
			}()
			first := <-begun
			if c.stops {
				first.Stop()
				<-stopping
			}
			s.observe(c.e)
			if line, err := child.ReadLine(); err != nil {
				t.Errorf("it is told %s, %v", line, err)
			}
			first.Settle(turn.Verdict{Reason: schema.StopReasonEndTurn})
			<-over
			s.mu.Lock()
			if n := len(s.calls); n > 0 {
				t.Errorf("%d interrupts go on behind their turn", n)
			}
			s.mu.Unlock()
			s.stop()
			s.work.Wait()
		})
	}
}

// told is a client that is told whether Claude Code does something by itself.
type told struct {
	acp.Peer
	works func()
}

func (c told) Notify(context.Context, string, any) error {
	c.works()
	return nil
}

// An early version does not say whose end a result is. That of what it did by itself, for which a prompt waits, is not the end of
// that prompt.
func TestSettle_EndsNoPromptThatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// The prompt begins as soon as its client is told that nothing runs any more.
		a := &agent{peer: told{works: synctest.Wait}, log: slog.New(slog.DiscardHandler)}
		s := a.newSession("S", t.TempDir())
		defer s.stop()
		s.observe(&event{Type: "stream_event", Event: &streamEvent{Type: "message_start"}})
		begun, over := make(chan *turn.Turn[work], 1), make(chan *schema.PromptResponse, 1)
		go func() {
			r, _ := s.turns.Prompt(context.Background(), turn.Script[work]{
				Gone: s.ended, Log: s.log, Bound: cancelBound,
				Begin: func(_ *turn.Waiting, t *turn.Turn[work]) error { begun <- t; return nil },
			})
			over <- r
		}()
		synctest.Wait()
		s.settle(&event{Type: "result"})
		one := <-begun
		if s.turns.Current() != one {
			t.Error("the prompt is over")
		}
		one.Settle(turn.Verdict{Reason: schema.StopReasonEndTurn})
		<-over
	})
}

// asked is a client that is asked, and answers nothing.
type asked struct {
	acp.Peer
	questions chan struct{}
}

func (asked) Update(context.Context, schema.SessionID, any) error { return nil }

func (c asked) Ask(ctx context.Context, _ string, _, _ any) error {
	c.questions <- struct{}{}
	<-ctx.Done()
	return ctx.Err()
}

// What the turn asks ends with it, and not what a subagent asks, which may not be named.
func TestAsked_EndsWithItsTurn(t *testing.T) {
	for name, c := range map[string]struct {
		tasks   map[string]string
		call    string
		remains bool
	}{
		"of the turn":                    {nil, "call", false},
		"of the turn, beside a subagent": {map[string]string{"task": "agent"}, "call", false},
		"of a subagent":                  {map[string]string{"task": "agent"}, "another", true},
	} {
		t.Run(name, func(t *testing.T) {
			// It repeats what Claude Code is told.
			child, err := bridge.Start(t.Context(), process.Spec{Path: "/bin/cat"}, nil)
			if err != nil {
				t.Fatal(err)
			}
			client := asked{questions: make(chan struct{}, 1)}
			a := &agent{peer: client, log: slog.New(slog.DiscardHandler)}
			s := a.newSession("S", t.TempDir())
			s.child = child
			for task, call := range c.tasks {
				s.tr.tasks[task] = call
			}
			begun, over := make(chan *turn.Turn[work], 1), make(chan struct{})
			go func() {
				defer close(over)
				_, _ = s.turns.Prompt(context.Background(), turn.Script[work]{
					Gone: s.ended, Log: s.log, Bound: cancelBound,
					Begin: func(_ *turn.Waiting, t *turn.Turn[work]) error { begun <- t; return nil },
				})
			}()
			one := <-begun
			s.emit(func(t *translator) []schema.SessionUpdate { return t.announce("call", "Bash", nil, "", "m") })
			s.asked(&event{RequestID: "q", Request: []byte(`{"subtype":"can_use_tool","tool_name":"Bash","input":{"command":"ls"},"tool_use_id":"` + c.call + `"}`)})
			<-client.questions
			one.Settle(turn.Verdict{Reason: schema.StopReasonEndTurn})
			<-over
			if s.asks.Open() != c.remains {
				t.Errorf("it is open: %t", !c.remains)
			}
			s.stop()
			s.work.Wait()
			_ = child.End(process.Ladder{})
		})
	}
}

// decides is a client that is asked, and cancels that when it may.
type decides struct {
	acp.Peer
	asked, may chan struct{}
}

func (decides) Update(context.Context, schema.SessionID, any) error { return nil }

func (c decides) Ask(context.Context, string, any, any) error {
	c.asked <- struct{}{}
	<-c.may
	return nil // nothing is selected
}

// Clients cancel all that is asked with a turn, and gateways for them. A subagent that an earlier turn has left behind goes on then, also
// where the answer comes behind the turn. When nobody prompts it is what the cancel is meant for.
func TestAsked_CancelledBesideATurn(t *testing.T) {
	for name, c := range map[string]struct {
		agent     string // that asks
		turn      string // what becomes of the turn before the answer comes, "" for none
		interrupt bool
	}{
		"in the turn":                    {"left", "runs", false},
		"behind the cancelled turn":      {"left", "cancelled", false},
		"behind a turn that ended":       {"left", "ended", true},
		"nobody prompts":                 {"left", "", true},
		"of a subagent of the turn":      {"new", "runs", true},
		"in the turn, not named":         {"", "runs", true},
		"behind the turn, and not named": {"", "ended", true},
	} {
		t.Run(name, func(t *testing.T) {
			// It repeats what Claude Code is told.
			child, err := bridge.Start(t.Context(), process.Spec{Path: "/bin/cat"}, nil)
			if err != nil {
				t.Fatal(err)
			}
			client := decides{asked: make(chan struct{}, 1), may: make(chan struct{})}
			a := &agent{peer: client, log: slog.New(slog.DiscardHandler)}
			s := a.newSession("S", t.TempDir())
			s.child = child
			begin := func(task, call string) {
				s.emit(func(t *translator) []schema.SessionUpdate {
					t.announce(call, "Agent", []byte(`{"prompt":"look"}`), "", "m")
					return t.taskStarted(&event{TaskID: task, ToolUse: call})
				})
			}
			begin("left", "call of left")
			begun, over := make(chan *turn.Turn[work], 1), make(chan struct{})
			stopping := make(chan struct{})
			var one *turn.Turn[work]
			if c.turn != "" {
				go func() {
					defer close(over)
					_, _ = s.turns.Prompt(context.Background(), turn.Script[work]{
						Work: work{left: s.leftBehind()},
						Gone: s.ended, Log: s.log, Bound: cancelBound,
						Begin: func(_ *turn.Waiting, t *turn.Turn[work]) error { begun <- t; return nil },
						Stop:  func(_ context.Context, t *turn.Turn[work]) { s.spare(t); close(stopping) },
					})
				}()
				one = <-begun
				begin("new", "call of new")
			}
			s.asked(&event{RequestID: "q", Request: []byte(`{"subtype":"can_use_tool","tool_name":"Bash","input":{"command":"ls"},"tool_use_id":"call","agent_id":"` + c.agent + `"}`)})
			<-client.asked
			if c.turn == "cancelled" {
				one.Stop()
				<-stopping
			}
			ends := func() {
				one.Settle(turn.Verdict{Reason: schema.StopReasonEndTurn})
				<-over
			}
			if c.turn == "cancelled" || c.turn == "ended" {
				ends()
			}
			close(client.may)
			line, err := child.ReadLine()
			if err != nil || strings.Contains(string(line), `"interrupt":true`) != c.interrupt || !strings.Contains(string(line), `"behavior":"deny"`) {
				t.Errorf("it is told %s, %v", line, err)
			}
			if c.turn == "runs" {
				ends()
			}
			s.stop()
			s.work.Wait()
			_ = child.End(process.Ladder{})
		})
	}
}

// knows is a client that takes its time to take notice of what is withdrawn.
type knows struct {
	acp.Peer
	asked, may chan struct{}
}

func (knows) Update(context.Context, schema.SessionID, any) error { return nil }
func (knows) Notify(context.Context, string, any) error           { return nil }

func (c knows) Ask(ctx context.Context, _ string, _, _ any) error {
	c.asked <- struct{}{}
	<-ctx.Done()
	<-c.may
	return ctx.Err()
}

// A question that is withdrawn is not open behind the end of the turn that it was asked in, nor behind that of what Claude Code does by
// itself.
func TestAsked_NotOpenBehindItsTurn(t *testing.T) {
	for _, own := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			client := knows{asked: make(chan struct{}, 1), may: make(chan struct{})}
			a := &agent{peer: client, log: slog.New(slog.DiscardHandler), store: newStore(t.TempDir())}
			s := a.newSession("S", t.TempDir())
			s.native = "S"
			over, agent := make(chan struct{}), ""
			if own {
				s.observe(&event{Type: "system", Subtype: "init"})
			} else {
				agent = "sub"
				go func() {
					defer close(over)
					_, _ = s.turns.Prompt(context.Background(), turn.Script[work]{
						Gone: s.ended, Log: s.log, Bound: cancelBound, End: s.over,
						Begin: func(*turn.Waiting, *turn.Turn[work]) error { return nil },
					})
				}()
				synctest.Wait()
			}
			s.asked(&event{RequestID: "q", Request: []byte(`{"subtype":"can_use_tool","tool_name":"Bash","input":{"command":"ls"},"tool_use_id":"call","agent_id":"` + agent + `"}`)})
			<-client.asked
			go func() {
				if own {
					s.take(&event{Type: "result"})
					return
				}
				s.take(&event{Type: "control_cancel_request", RequestID: "q"})
				s.take(&event{Type: "command_lifecycle", CommandState: "cancelled"})
			}()
			synctest.Wait()
			if own && !s.turns.Busy() {
				t.Error("what it does by itself is over before the client knows of its question")
			}
			select {
			case <-over:
				t.Error("the turn is over before the client knows of its question")
			default:
			}
			close(client.may)
			synctest.Wait()
			if s.turns.Busy() {
				t.Errorf("it is not over, own: %t", own)
			}
			s.stop()
			s.work.Wait()
		})
	}
}

// What Claude Code does by itself is over when it rests, also without a result.
func TestTake_RestsWithoutAResult(t *testing.T) {
	a := &agent{peer: told{works: func() {}}, log: slog.New(slog.DiscardHandler)}
	s := a.newSession("S", t.TempDir())
	defer s.stop()
	s.take(&event{Type: "system", Subtype: "session_state_changed", CommandState: "running"})
	s.take(&event{Type: "system", Subtype: "init"})
	if !s.turns.Alone() {
		t.Error("it does nothing")
	}
	s.take(&event{Type: "system", Subtype: "session_state_changed", CommandState: "idle"})
	if s.turns.Busy() {
		t.Error("it still works")
	}
}

// declines is a client that gives no answer to a form.
type declines struct{ acp.Peer }

func (declines) Ask(_ context.Context, _ string, _, resp any) error {
	return json.Unmarshal([]byte(`{"action":"cancel"}`), resp)
}

// The program takes an answer no more, and had withdrawn the question: the reader comes to the program's end.
func TestAsked_AnswerThatCannotBeWritten(t *testing.T) {
	child, err := bridge.Start(t.Context(), process.Spec{Path: "/bin/true"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = child.End(process.Ladder{})
	a := &agent{peer: declines{}, log: slog.New(slog.DiscardHandler)}
	s := a.newSession("S", t.TempDir())
	s.child = child
	read := make(chan struct{})
	go func() {
		defer close(read)
		s.take(&event{Type: "control_request", RequestID: "q", Request: []byte(`{"subtype":"elicitation","mcp_server_name":"x","message":"m","mode":"form"}`)})
		s.take(&event{Type: "control_cancel_request", RequestID: "q"})
		s.take(&event{Type: "system", Subtype: "session_state_changed", CommandState: "idle"})
		close(s.ended)
	}()
	select {
	case <-read:
	case <-time.After(30 * time.Second):
		t.Fatal("the reader waits for what only it can end")
	}
	s.stop()
	s.work.Wait()
}
