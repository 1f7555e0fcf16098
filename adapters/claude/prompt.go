package claude

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/google/uuid"

	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge/turn"
	"sandboxagent.dev/sandbox-agent/internal/process"
)

// cancelBound limits how long a cancelled turn may go on; then the process is
// ended, since nothing else ends the turn. Tests lower it.
var cancelBound = 20 * time.Second

// Prompt runs one turn. Prompts of a session run one after another: the program
// would fold a second one into the running turn.
func (a *agent) Prompt(ctx context.Context, r *schema.PromptRequest) (*schema.PromptResponse, error) {
	s, err := a.sessions.Get(r.SessionID)
	if err != nil {
		return nil, err
	}
	content, err := content.Parts(r.Prompt)
	if err != nil {
		return nil, err
	}
	return s.turns.Prompt(ctx, turn.Script[work]{
		Work: work{uuid: uuid.NewString()},
		Gone: s.ended, Exit: func() error { return s.exit }, Log: s.log,
		Begin: func(w *turn.Waiting, t *turn.Turn[work]) error {
			left := s.leftBehind()
			s.mu.Lock()
			t.Work.left = left
			s.mu.Unlock()
			s.emit(func(*translator) []schema.SessionUpdate { return s.title.Of(r.Prompt) })
			line := map[string]any{
				"type": "user", "uuid": t.Work.uuid, "session_id": "", "parent_tool_use_id": nil,
				"message": map[string]any{"role": "user", "content": content},
			}
			ctx, given := w.Giving(cancelBound)
			defer given()
			err := a.conn.Give(string(s.id), s.child.Process, func() error { return s.send(ctx, line) })
			if errors.Is(err, bridge.ErrUnwritten) {
				return s.exit
			}
			return err
		},
		Untaken: s.goesOn,
		Stop:    s.interrupt, Bound: cancelBound, Kill: func(*turn.Turn[work]) { s.halt() },
		End: s.over,
	})
}

// over ends what a turn has left.
func (s *session) over(t *turn.Turn[work], v turn.Verdict) turn.Verdict {
	s.asks.AwaitWithdrawn() // those of its subagents
	s.goesOn(t)
	return v
}

// goesOn notes what the program still runs at the end of a turn: it began by itself before it had read the prompt.
func (s *session) goesOn(t *turn.Turn[work]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t.Settle(turn.Verdict{}) // unless it has one
	if s.runs {
		s.turns.Own("")
	}
}

// halt ends a program that cannot be talked to any more.
func (s *session) halt() { s.child.Stop(process.Ladder{Term: process.DefaultLadder.Term}) }

// interrupt ends a turn. When the program had not begun with the prompt, and took
// it out of its queue, there is no result. What it runs then began by itself, and ends with it.
func (s *session) interrupt(ctx context.Context, t *turn.Turn[work]) {
	s.spare(t)
	raw, err := s.control(ctx, map[string]string{"subtype": "cancel_async_message", "message_uuid": t.Work.uuid})
	if err == nil && rawjson.MemberBool(raw, "cancelled") {
		s.mu.Lock()
		runs := s.runs
		s.mu.Unlock()
		if runs {
			s.breakOff(ctx)
		}
		t.Settle(turn.Verdict{Reason: schema.StopReasonCancelled})
		return
	}
	s.breakOff(ctx)
}

// Cancel ends a turn that nobody prompted. Prompts watch acp.TurnCancelled. What turns have left in the background goes on.
func (a *agent) Cancel(_ context.Context, n *schema.CancelNotification) error {
	s, err := a.sessions.Get(n.SessionID)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.work.Go(func() { // what is cancelled next does not wait for it
		s.turns.StopOwn(s.ctx, cancelBound, s.breakOff, func() {
			s.log.Warn("what claude does by itself did not end, so its process is ended", "session", s.id)
			s.halt()
		})
	})
	return nil
}

// leftBehind returns the tasks that go on: subagents, and commands that take long.
func (s *session) leftBehind() map[string]bool {
	s.out.Lock()
	defer s.out.Unlock()
	left := map[string]bool{}
	for task, call := range s.tr.tasks {
		if c := s.tr.tools[call]; c != nil && !c.over {
			left[task] = true
		}
	}
	return left
}

// take acts on a line of the program. It runs on the reader, in order.
func (s *session) take(e *event) {
	switch e.Type {
	case "control_request":
		s.asked(e)
		return
	case "control_response":
		s.controlled(e.Response)
		return
	case "control_cancel_request":
		s.asks.Withdraw(e.RequestID)
		return
	}
	s.observe(e)
	s.emit(func(t *translator) []schema.SessionUpdate { return t.translate(e) })
	s.remember(e)
	s.serversNow(e)
	switch {
	case e.Type == "system" && e.Subtype == "elicitation_complete":
		s.elicited(e.ElicitationID)
	case e.Type == "result":
		s.settle(e)
	case e.Type == "system" && e.Subtype == "session_state_changed" && e.CommandState == "idle":
		s.rests()
	case e.Type == "command_lifecycle" && e.CommandState == "cancelled":
		s.dropped(e.CommandUUID)
	}
}

// observe notes what a line means for the turn, before it is shown.
func (s *session) observe(e *event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	begins := e.Type == "stream_event" && e.Parent == "" && e.Event != nil && e.Event.Type == "message_start"
	starts := begins || e.Type == "system" && e.Subtype == "init" // the model may let its first message wait for long
	s.runs = starts || s.runs && e.Type != "result"
	t := s.turns.Current()
	switch {
	case t == nil && starts:
		s.turns.Own("")
	case t == nil:
		if e.Type == "result" && e.IsError && len(s.calls) > 0 {
			s.failed = strings.Join(e.Errors, "; ")
		}
	case begins && t.Stopping():
		// The interrupt came before the turn had begun.
		s.nudge(t)
	case e.Subtype == "api_retry" && e.Error == errAuth && e.Attempt < s.tries:
	default:
		had := t.Work.failure
		t.Work.note(e)
		if t.Work.failure == errAuth && had != errAuth && e.Subtype == "api_retry" {
			s.nudge(t) // further attempts would fail as well
		}
	}
}

// nudge interrupts a turn without waiting for it: the reader must not write. Behind the
// turn it would interrupt the next one.
func (s *session) nudge(t *turn.Turn[work]) { t.Go(s.breakOff) }

// breakOff interrupts whatever runs.
func (s *session) breakOff(ctx context.Context) {
	if _, err := s.control(ctx, map[string]string{"subtype": "interrupt"}); err != nil {
		s.log.Debug("interrupt claude", "session", s.id, "err", err)
	}
}

// settle ends the turn that a result belongs to.
func (s *session) settle(e *event) {
	s.out.Lock()
	used := s.tr.usage.ofTurn()
	s.out.Unlock()
	t := s.turns.Current() // a prompt that waits may begin as soon as what runs by itself is over
	s.dropOwn()
	s.turns.OwnOver("")
	s.mu.Lock()
	defer s.mu.Unlock()
	if t != nil && t.Work.answers(e) {
		v := t.Work.judge(e)
		v.Usage = used
		t.Settle(v)
	}
}

// rests notes that the program does nothing. What it has begun by itself may end without a result.
func (s *session) rests() {
	s.mu.Lock()
	s.runs = false
	s.mu.Unlock()
	s.dropOwn()
	s.turns.OwnOver("")
}

// dropped ends a turn whose prompt the program gave up without a result.
func (s *session) dropped(uuid string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.turns.Current(); t != nil && t.Work.uuid == uuid {
		s.runs = false // it may have begun with it
		t.Settle(turn.Verdict{Reason: schema.StopReasonCancelled})
	}
}

// remember keeps what the program forgets when it ends: what was chosen, what it
// cost, and the native id that the conversation has now. Clearing it makes a new
// one.
func (s *session) remember(e *event) {
	s.out.Lock()
	native, cost := s.tr.session, s.tr.usage.cost
	s.out.Unlock()
	renamed := native != "" && native != s.native
	if !renamed && e.Type != "result" {
		return
	}
	s.native = native
	s.keep(func(r *record) {
		if native != "" {
			r.renamed(string(s.id), native)
		}
		if cost != nil {
			r.Cost = *cost
		}
	})
}

// keep edits the session's record. It is not worth failing for.
func (s *session) keep(edit func(r *record)) {
	if err := s.a.store.change(string(s.id), s.cwd, edit); err != nil {
		s.log.Warn("remember a session", "session", s.id, "err", err)
	}
}

// content makes the API's blocks of a prompt's. Resources have no kind of their
// own there: links are text.
var content = bridge.Content{
	Agent: "claude", Files: "images, PDF and text",
	Text: func(text string) any { return map[string]any{"type": "text", "text": text} },
	Image: func(mime, data string) any {
		return map[string]any{"type": "image", "source": base64Source(mime, data)}
	},
	ImageAt: func(i *schema.ImageContent) (any, error) {
		return map[string]any{"type": "image", "source": map[string]any{"type": "url", "url": *i.URI}}, nil
	},
	File: func(mime, uri, data string) ([]any, bool) {
		kind := "image"
		switch {
		case strings.HasPrefix(mime, "image/"):
		case mime == "application/pdf":
			kind = "document"
		default:
			return nil, false
		}
		return []any{
			map[string]any{"type": "text", "text": bridge.Link("", uri)},
			map[string]any{"type": kind, "source": base64Source(mime, data)},
		}, true
	},
}

func base64Source(mime, data string) any {
	return map[string]any{"type": "base64", "media_type": mime, "data": data}
}
