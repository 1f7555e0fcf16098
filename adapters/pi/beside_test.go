package pi

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge/turn"
	"sandboxagent.dev/sandbox-agent/internal/process"
	"sandboxagent.dev/sandbox-agent/internal/scriptedmodel"
)

// listener is a client that is told, and not asked.
type listener struct{ acp.Peer }

func (listener) Update(context.Context, schema.SessionID, any) error { return nil }

func (listener) Notify(context.Context, string, any) error { return nil }

// noticed is a latecomer that is told, too.
type noticed struct{ latecomer }

func (noticed) Notify(context.Context, string, any) error { return nil }

// A run that begins before Pi has answered a prompt is Pi's own, unless a command did it.
func TestPrompt_RunBeside(t *testing.T) {
	const (
		begins  = `{"type":"agent_start"}`
		fails   = `{"type":"message_end","message":{"role":"assistant","stopReason":"error","errorMessage":"why","usage":{"input":1,"output":1}}}`
		says    = `{"type":"message_end","message":{"role":"assistant","stopReason":"stop","usage":{"input":1,"output":1}}}`
		settles = `{"type":"agent_settled"}`
		over    = "over" // what an early version is asked for
		begun   = `{"success":true,"data":{"disposition":"started"}}`
		handled = `{"success":true,"data":{"disposition":"handled"}}`
		taken   = `{"success":true}` // of an early version
		refused = `{"success":false,"error":"busy"}`
	)
	for _, tt := range []struct {
		name, prompt string
		lines        []string
		want         string
		used         uint64 // tokens
	}{
		{"a command waits for its run, which fails", "/ext", []string{begins, fails, settles, handled}, "why", 0},
		{"a command waits for its run", "/ext", []string{begins, says, settles, handled}, "end_turn", 2},
		{"a command does not wait for its run", "/ext", []string{begins, handled, fails, settles}, "why", 0},
		{"a run beside a command of the user's fails", "/bash ls", []string{begins, fails, `{"success":true,"data":{"output":"","exitCode":0}}`}, "end_turn", 0},
		{"a run beside a command of the user's", "/bash ls", []string{begins, says, `{"success":true,"data":{"output":"","exitCode":0}}`}, "end_turn", 0},
		{"a run beside a compaction fails", "/compact", []string{begins, fails, `{"success":true,"data":{}}`}, "end_turn", 0},
		{"a run before a prompt fails", "go", []string{begins, fails, settles, begun, begins, says, settles}, "end_turn", 2},
		{"early: a command waits for its run, which fails", "/ext", []string{begins, fails, over, taken}, "why", 0},
		{"early: a command does not wait for its run", "/ext", []string{begins, taken, fails, over}, "why", 0},
		{"early: a run before a prompt fails", "go", []string{begins, fails, over, taken, begins, says, over}, "end_turn", 2},
		{"early: a prompt is refused behind its answer", "go", []string{begins, taken, refused, fails, over}, "pi refused the prompt: busy", 0},
		{"early: a run begins before a prompt is refused behind its answer", "go", []string{taken, begins, refused, fails, over}, "pi refused the prompt: busy", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			// It repeats what Pi is told.
			child, err := bridge.Start(t.Context(), process.Spec{Path: "/bin/cat"}, nil)
			if err != nil {
				t.Fatal(err)
			}
			a := &agent{peer: listener{}, log: slog.New(slog.DiscardHandler), conn: new(bridge.Conn)}
			a.sessions = bridge.NewSessions((*session).end)
			s := a.newSession(&launch{Setup: &bridge.Setup{Cwd: t.TempDir()}, mode: modeDefault})
			s.name("S")
			p := &program{child: child, calls: map[string]call{}, ended: make(chan struct{})}
			s.served, s.prog = true, p
			if err := a.sessions.Add("S", s); err != nil {
				t.Fatal(err)
			}
			state := json.RawMessage(`{"isStreaming":true}`)
			if tt.lines[len(tt.lines)-1] == taken {
				state = json.RawMessage(`{}`)
			}

			given, read := make(chan string, 1), make(chan struct{})
			go func() {
				defer close(read)
				child.Each(func(line []byte) error {
					if id := rawjson.MemberString(line, "id"); rawjson.MemberString(line, "type") != "get_state" {
						given <- id
					} else {
						p.answered(&event{Type: "response", ID: id, Success: true, Data: state})
					}
					return nil
				}, func([]byte, error) {})
			}()
			type end struct {
				r   *schema.PromptResponse
				err error
			}
			ended := make(chan end, 1)
			go func() {
				r, err := a.Prompt(t.Context(), &schema.PromptRequest{SessionID: "S", Prompt: []schema.ContentBlock{schema.TextBlock(tt.prompt)}})
				ended <- end{r, err}
			}()
			id := <-given
			for _, line := range tt.lines {
				if line == over {
					s.mu.Lock()
					s.runOverLocked(false)
					s.mu.Unlock()
					continue
				}
				e, err := parse([]byte(line))
				if err != nil {
					t.Fatal(err)
				}
				if e.Type == "" {
					e.Type, e.ID = "response", id
					p.answered(e)
				} else {
					s.take(p, e)
				}
			}
			var got end
			select {
			case got = <-ended:
			case <-time.After(10 * time.Second):
				t.Fatal("it does not end")
			}
			var said string
			var used uint64
			if e, ok := errors.AsType[*acp.Error](got.err); ok {
				said = e.Message
			} else {
				said = string(got.r.StopReason)
				if u := got.r.Usage; u != nil {
					used = u.TotalTokens
				}
			}
			if said != tt.want || used != tt.used {
				t.Errorf("ended with %q, %d tokens; want %q, %d", said, used, tt.want, tt.used)
			}
			if s.turns.Owns(ownRun) && tt.lines[len(tt.lines)-1] == over {
				t.Error("a run that is over goes on")
			}
			s.stop()
			_ = child.End(process.Ladder{})
			<-read
			close(p.ended)
			s.work.Wait()
		})
	}
}

// A cancelled permission of a run that began before Pi has answered the prompt ends that run,
// and neither the prompt nor a command of the user's.
func TestDialog_EndsTheRunBeside(t *testing.T) {
	// It repeats what Pi is told.
	child, err := bridge.Start(t.Context(), process.Spec{Path: "/bin/cat"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	client := latecomer{asked: make(chan struct{}), may: make(chan struct{})}
	a := &agent{peer: noticed{client}, log: slog.New(slog.DiscardHandler)}
	s := a.newSession(&launch{Setup: &bridge.Setup{Cwd: t.TempDir()}, mode: modeDefault})
	s.name("S")
	s.served, s.prog = true, &program{child: child}
	begun, over := make(chan *turn.Turn[work], 1), make(chan *schema.PromptResponse, 1)
	go func() {
		r, _ := s.turns.Prompt(t.Context(), turn.Script[work]{
			Gone: s.dead, Exit: func() error { return s.exit }, Log: s.log, Bound: cancelBound,
			Begin: func(_ *turn.Waiting, t *turn.Turn[work]) error { begun <- t; return nil },
			Stop:  s.abortUntil,
		})
		over <- r
	}()
	prompt := <-begun
	s.observe(&event{Type: "agent_start"})
	s.dialog(s.prog, &event{Type: "extension_ui_request", Method: "select", ID: "D", Title: `{"mark":"` + s.mark + `","toolCallId":"c","toolName":"bash","input":{"command":"true"}}`})
	<-client.asked
	close(client.may)
	var told []string
	for !slices.Contains(told, "extension_ui_response") {
		line, err := child.ReadLine()
		if err != nil {
			t.Fatal(err)
		}
		told = append(told, rawjson.MemberString(line, "type"))
	}
	if d := cmp.Diff([]string{"clear_queue", "abort", "extension_ui_response"}, told); d != "" {
		t.Error(d)
	}
	prompt.Settle(turn.Verdict{Reason: schema.StopReasonEndTurn})
	if r := <-over; r.StopReason != schema.StopReasonEndTurn {
		t.Errorf("ended with %s", r.StopReason)
	}
	s.stop()
	s.work.Wait()
	_ = child.End(process.Ladder{})
}

// Who cancels a permission ends the run, also when its prompt is a command that waits for it.
func TestLive_CommandWaitsForItsRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.extension("wait.js", `export default function (pi) {
  pi.registerCommand("wait", { description: "Prompts, and waits", handler: async (_args, ctx) => {
    const begun = new Promise((resolve) => pi.on("agent_start", resolve));
    pi.sendUserMessage("list");
    await begun;
    await ctx.waitForIdle();
  } });
}`)
	w.script("list", scriptedmodel.Step{scriptedmodel.Shell("echo one")}, scriptedmodel.Step{scriptedmodel.Shell("echo two")}, scriptedmodel.Step{scriptedmodel.SayResult()})
	var asked atomic.Int32
	c := w.open(schema.ClientCapabilities{}, counting(&asked, func(string, json.RawMessage) any {
		return map[string]any{"outcome": map[string]string{"outcome": "cancelled"}}
	}))
	if stop, _ := c.Turn(c.Fresh(), "/wait"); stop != schema.StopReasonCancelled || asked.Load() != 1 {
		t.Errorf("ended with %s, asked %d times\n%s", stop, asked.Load(), c.Quote())
	}
}
