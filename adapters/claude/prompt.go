package claude

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
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
	return s.slot.Prompt(ctx, s.ended, func() error { return s.exit }, func(w *bridge.Waiting) (*schema.PromptResponse, error) {
		t, idle := s.begin()
		for idle != nil { // a turn runs that nobody prompted
			if err := w.For(idle); err != nil {
				return nil, err
			}
			t, idle = s.begin()
		}
		defer s.over(t)
		if err := w.Check(); err != nil {
			return nil, err
		}
		s.entitle(r.Prompt)
		line := map[string]any{
			"type": "user", "uuid": t.uuid, "session_id": "", "parent_tool_use_id": nil,
			"message": map[string]any{"role": "user", "content": content},
		}
		if err := s.send(line); err != nil {
			// A program that does not read is of no use to anybody.
			s.child.Stop(process.Ladder{Term: process.DefaultLadder.Term})
			<-s.ended
			return nil, s.exit
		}
		v := s.await(ctx, t, w.Cancelled)
		if v.err != nil {
			return nil, v.err
		}
		return &schema.PromptResponse{StopReason: v.reason, Usage: v.usage}, nil
	})
}

// begin makes a turn the running one. While a turn runs that nobody prompted it
// returns a channel that is closed when that has ended.
func (s *session) begin() (*turn, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.alone {
		return nil, s.idle
	}
	s.turn = &turn{uuid: uuid.NewString(), done: make(chan verdict, 1)}
	return s.turn, nil
}

func (s *session) over(t *turn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.turn == t {
		s.turn = nil
	}
}

// await waits for the end of a turn, and ends it when the client wants that.
func (s *session) await(ctx context.Context, t *turn, cancelled <-chan struct{}) verdict {
	select {
	case v := <-t.done:
		return v
	case <-s.ended:
		return s.last(t)
	case <-cancelled:
	case <-ctx.Done():
	}
	s.mu.Lock()
	t.cancelled = true
	s.mu.Unlock()
	limit := time.NewTimer(cancelBound)
	defer limit.Stop()
	var asking sync.WaitGroup
	defer asking.Wait()
	stopping, cancel := context.WithCancel(s.ctx)
	defer cancel()
	removed := make(chan struct{})
	asking.Go(func() {
		if s.interrupt(stopping, t) {
			close(removed)
		}
	})
	select {
	case v := <-t.done:
		return v
	case <-removed:
		return verdict{reason: schema.StopReasonCancelled}
	case <-s.ended:
		return s.last(t)
	case <-limit.C:
	}
	s.log.Warn("a cancelled turn did not end, so its process is ended", "session", s.id)
	s.child.Stop(process.Ladder{Term: process.DefaultLadder.Term})
	<-s.ended
	return s.last(t)
}

// last is the verdict of a turn whose process has ended.
func (s *session) last(t *turn) verdict {
	select {
	case v := <-t.done:
		return v
	default:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.cancelled {
		return verdict{reason: schema.StopReasonCancelled}
	}
	return verdict{err: s.exit}
}

// interrupt ends a turn. It reports whether the program had not begun with the
// prompt and took it out of its queue: there is no result then.
func (s *session) interrupt(ctx context.Context, t *turn) (removed bool) {
	raw, err := s.control(ctx, map[string]string{"subtype": "cancel_async_message", "message_uuid": t.uuid})
	if err == nil && rawjson.MemberBool(raw, "cancelled") {
		return true
	}
	if _, err := s.control(ctx, map[string]string{"subtype": "interrupt"}); err != nil {
		s.log.Debug("interrupt claude", "session", s.id, "err", err)
	}
	return false
}

// Cancel ends a turn that nobody prompted. Prompts watch acp.TurnCancelled.
func (a *agent) Cancel(_ context.Context, n *schema.CancelNotification) error {
	s, err := a.sessions.Get(n.SessionID)
	if err != nil {
		return err
	}
	s.mu.Lock()
	alone := s.alone && s.turn == nil
	s.mu.Unlock()
	if alone {
		_, err = s.control(s.ctx, map[string]string{"subtype": "interrupt"})
	}
	return err
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
		s.withdrawn(e.RequestID)
		return
	}
	s.observe(e)
	s.emit(func(t *translator) []schema.SessionUpdate { return t.translate(e) })
	s.remember(e)
	switch {
	case e.Type == "system" && e.Subtype == "elicitation_complete":
		s.elicited(e.ElicitationID)
	case e.Type == "result":
		s.settle(e)
	case e.Type == "command_lifecycle" && e.CommandState == "cancelled":
		s.dropped(e.CommandUUID)
	}
}

// observe notes what a line means for the turn, before it is shown.
func (s *session) observe(e *event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	begins := e.Type == "stream_event" && e.Parent == "" && e.Event != nil && e.Event.Type == "message_start"
	t := s.turn
	switch {
	case t == nil && begins && !s.alone:
		s.alone, s.idle = true, make(chan struct{})
	case t == nil:
		if e.Type == "result" && e.IsError && len(s.calls) > 0 {
			s.failed = strings.Join(e.Errors, "; ")
		}
	case begins && t.cancelled:
		// The interrupt came before the turn had begun.
		s.nudge()
	case e.Subtype == "api_retry" && e.Error == errAuth && e.Attempt < s.tries:
	default:
		had := t.failure
		t.note(e)
		if t.failure == errAuth && had != errAuth && e.Subtype == "api_retry" {
			s.nudge() // further attempts would fail as well
		}
	}
}

// nudge interrupts without waiting for it: the reader must not write.
func (s *session) nudge() {
	s.work.Go(func() {
		if _, err := s.control(s.ctx, map[string]string{"subtype": "interrupt"}); err != nil {
			s.log.Debug("interrupt claude", "session", s.id, "err", err)
		}
	})
}

// settle ends the turn that a result belongs to.
func (s *session) settle(e *event) {
	s.out.Lock()
	used := s.tr.usage.ofTurn()
	s.out.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.alone {
		s.alone = false
		close(s.idle)
		s.idle = nil
	}
	t := s.turn
	if t == nil || !t.answers(e) {
		return
	}
	v := t.judge(e)
	v.usage = used
	t.done <- v
	s.turn = nil
}

// dropped ends a turn whose prompt the program gave up without a result.
func (s *session) dropped(uuid string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.turn; t != nil && t.uuid == uuid {
		t.done <- verdict{reason: schema.StopReasonCancelled}
		s.turn = nil
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

// entitle names a new session after its first prompt.
func (s *session) entitle(prompt []schema.ContentBlock) {
	s.mu.Lock()
	first := !s.titled
	s.titled = true
	s.mu.Unlock()
	if first {
		s.emit(func(*translator) []schema.SessionUpdate { return bridge.Entitled(prompt) })
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
