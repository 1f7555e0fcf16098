package claude

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
	"sandboxagent.dev/sandbox-agent/internal/process"
)

// cancelBound limits how long a cancelled turn may go on; then the process is
// ended, since nothing else ends the turn. Tests lower it.
var cancelBound = 20 * time.Second

// Prompt runs one turn. Prompts of a session run one after another: the program
// would fold a second one into the running turn.
func (a *agent) Prompt(ctx context.Context, r *acp.PromptRequest) (*acp.PromptResponse, error) {
	s, err := a.session(r.SessionID)
	if err != nil {
		return nil, err
	}
	content, err := promptContent(r.Prompt)
	if err != nil {
		return nil, err
	}
	cancelled := acp.TurnCancelled(ctx)
	stopped := &acp.PromptResponse{StopReason: acp.StopReasonCancelled}
	select {
	case s.slot <- struct{}{}:
		defer func() { <-s.slot }()
	case <-cancelled:
		return stopped, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-s.ended:
		return nil, s.exit
	}
	t, idle := s.begin()
	for idle != nil { // a turn runs that nobody prompted
		select {
		case <-idle:
		case <-cancelled:
			return stopped, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-s.ended:
			return nil, s.exit
		}
		t, idle = s.begin()
	}
	defer s.over(t)
	select {
	case <-cancelled:
		return stopped, nil
	default:
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
	v := s.await(ctx, t, cancelled)
	if v.err != nil {
		return nil, v.err
	}
	return &acp.PromptResponse{StopReason: v.reason, Usage: v.usage}, nil
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
		return verdict{reason: acp.StopReasonCancelled}
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
		return verdict{reason: acp.StopReasonCancelled}
	}
	return verdict{err: s.exit}
}

// interrupt ends a turn. It reports whether the program had not begun with the
// prompt and took it out of its queue: there is no result then.
func (s *session) interrupt(ctx context.Context, t *turn) (removed bool) {
	raw, err := s.control(ctx, map[string]string{"subtype": "cancel_async_message", "message_uuid": t.uuid})
	if err == nil && acp.MemberBool(raw, "cancelled") {
		return true
	}
	if _, err := s.control(ctx, map[string]string{"subtype": "interrupt"}); err != nil {
		s.log.Debug("interrupt claude", "session", s.id, "err", err)
	}
	return false
}

// Cancel ends a turn that nobody prompted. Prompts watch acp.TurnCancelled.
func (a *agent) Cancel(_ context.Context, n *acp.CancelNotification) error {
	s, err := a.session(n.SessionID)
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
	s.emit(func(t *translator) []acp.SessionUpdate { return t.translate(e) })
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
		t.done <- verdict{reason: acp.StopReasonCancelled}
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
func (s *session) entitle(prompt []acp.ContentBlock) {
	s.mu.Lock()
	first := !s.titled
	s.titled = true
	s.mu.Unlock()
	if first {
		s.emit(func(*translator) []acp.SessionUpdate { return bridge.Entitled(prompt) })
	}
}

// promptContent turns a prompt's blocks into the API's. Resources have no kind of
// their own there: links are text, embedded texts follow the words.
func promptContent(prompt []acp.ContentBlock) ([]any, error) {
	type object = map[string]any
	var out, context []any
	say := func(s string) { out = append(out, object{"type": "text", "text": s}) }
	for _, b := range prompt {
		switch {
		case b.Text != nil:
			say(b.Text.Text)
		case b.Image != nil && b.Image.Data != "":
			out = append(out, object{"type": "image", "source": object{"type": "base64", "media_type": b.Image.MimeType, "data": b.Image.Data}})
		case b.Image != nil && b.Image.URI != nil:
			out = append(out, object{"type": "image", "source": object{"type": "url", "url": *b.Image.URI}})
		case b.ResourceLink != nil:
			say(bridge.Link(b.ResourceLink.Name, b.ResourceLink.URI))
		case b.Resource != nil && b.Resource.Resource.TextResourceContents != nil:
			r := b.Resource.Resource.TextResourceContents
			say(bridge.Link("", r.URI))
			context = append(context, object{"type": "text", "text": fmt.Sprintf("\n<context ref=%q>\n%s\n</context>", r.URI, r.Text)})
		case b.Resource != nil && b.Resource.Resource.BlobResourceContents != nil:
			block, err := blobBlock(b.Resource.Resource.BlobResourceContents)
			if err != nil {
				return nil, err
			}
			say(bridge.Link("", b.Resource.Resource.BlobResourceContents.URI))
			context = append(context, block)
		default:
			return nil, acp.Errorf(acp.CodeInvalidParams, "claude takes text, images, resource links and embedded resources in a prompt, no other content")
		}
	}
	if len(out) == 0 {
		return nil, acp.Errorf(acp.CodeInvalidParams, "the prompt is empty")
	}
	return slices.Concat(out, context), nil
}

// blobBlock turns an embedded file into what the API takes of files.
func blobBlock(r *acp.BlobResourceContents) (any, error) {
	mime := ""
	if r.MimeType != nil {
		mime = *r.MimeType
	}
	source := map[string]any{"type": "base64", "media_type": mime, "data": r.Blob}
	switch {
	case strings.HasPrefix(mime, "image/"):
		return map[string]any{"type": "image", "source": source}, nil
	case mime == "application/pdf":
		return map[string]any{"type": "document", "source": source}, nil
	case strings.HasPrefix(mime, "text/") || mime == "application/json":
		b, err := base64.StdEncoding.DecodeString(r.Blob)
		if err != nil {
			return nil, acp.Errorf(acp.CodeInvalidParams, "resource %s: %v", r.URI, err)
		}
		return map[string]any{"type": "text", "text": fmt.Sprintf("\n<context ref=%q>\n%s\n</context>", r.URI, b)}, nil
	}
	return nil, acp.Errorf(acp.CodeInvalidParams, "claude cannot be given resource %s of type %q: images, PDF and text can be embedded", r.URI, mime)
}
