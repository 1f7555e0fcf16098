package amp

import (
	"context"
	"slices"
	"syscall"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
	"sandboxagent.dev/sandbox-agent/internal/process"
)

// cancelBound limits how long a cancelled turn may go on; then the process is
// ended. Tests lower it.
var cancelBound = 10 * time.Second

// maxPrompt bounds a prompt in bytes. The program takes more without a word, and on a
// busy machine never answers one of 1 MiB; it answers half of that.
const maxPrompt = 256 << 10

// cutPause is how long an error may take to follow a message that was cut short.
const cutPause = 500 * time.Millisecond

// Prompt runs one turn. Prompts of a session run one after another.
func (a *agent) Prompt(ctx context.Context, r *schema.PromptRequest) (*schema.PromptResponse, error) {
	s, err := a.sessions.Get(r.SessionID)
	if err != nil {
		return nil, err
	}
	parts, err := promptParts(r.Prompt)
	if err != nil {
		return nil, err
	}
	gone := func() error { return bridge.NotFound(r.SessionID) }
	return s.slot.Prompt(ctx, s.ctx.Done(), gone, func(w *bridge.Waiting) (*schema.PromptResponse, error) {
		return s.run(ctx, w, r.Prompt, parts)
	})
}

// run runs one turn.
func (s *session) run(ctx context.Context, w *bridge.Waiting, prompt []schema.ContentBlock, parts []any) (*schema.PromptResponse, error) {
	p, err := s.spawn(ctx)
	if err == nil {
		err = s.begun(ctx, p, w.Cancelled)
	}
	if err == nil {
		err = w.Check()
	}
	if err != nil {
		return nil, err
	}
	s.entitle(prompt)
	t := &turn{done: make(chan verdict, 1), cut: make(chan struct{}, 1), stop: make(chan struct{}, 1)}
	s.mu.Lock()
	s.turn, p.well = t, false
	s.mu.Unlock()
	line, err := schema.Encode(map[string]any{
		"type": "user", "message": map[string]any{"role": "user", "content": parts},
	})
	if err == nil {
		err = p.child.WriteLine(line)
	}
	if err != nil {
		// A program that does not read is of no use to anybody.
		p.child.Stop(process.Ladder{Term: ladder.Term})
		<-p.ended
	}
	v := s.await(ctx, t, p, w.Cancelled)
	s.mu.Lock()
	s.turn = nil
	s.mu.Unlock()
	well := v.err == nil && v.reason != schema.StopReasonCancelled
	s.emit(func(t *translator) []schema.SessionUpdate { return t.abandoned(well) })
	s.keep()
	s.out.Lock()
	used := s.tr.ofTurn()
	s.out.Unlock()
	if v.err != nil {
		return nil, v.err
	}
	return &schema.PromptResponse{StopReason: v.reason, Usage: used}, nil
}

// await waits for the end of a turn, and ends it when somebody wants that.
func (s *session) await(ctx context.Context, t *turn, p *proc, cancelled <-chan struct{}) verdict {
	var cut <-chan time.Time
	for waits := true; waits; {
		select {
		case v := <-t.done:
			return v
		case <-p.ended:
			return s.last(t, p)
		case <-t.cut:
			cut = time.After(cutPause)
		case <-cut:
			return judgeCut(s.cutReason())
		case <-cancelled:
			waits = false
		case <-t.stop:
			waits = false
		case <-ctx.Done():
			waits = false
		}
	}
	s.mu.Lock()
	t.cancelled = true
	// It takes no further prompt, and has to write its thread before it ends.
	p.over, p.well = true, true
	s.mu.Unlock()
	if err := p.child.Signal(syscall.SIGINT); err != nil {
		s.log.Debug("interrupt amp", "session", s.name(), "err", err)
	}
	limit := time.NewTimer(cancelBound)
	defer limit.Stop()
	select {
	case <-t.done:
	case <-p.ended:
	case <-limit.C:
		s.log.Warn("a cancelled turn did not end, so its process is ended", "session", s.name())
		p.child.Stop(process.Ladder{Term: ladder.Term})
		<-p.ended
	}
	return verdict{reason: schema.StopReasonCancelled}
}

// last is the verdict of a turn whose process has ended.
func (s *session) last(t *turn, p *proc) verdict {
	select {
	case v := <-t.done:
		return v
	default:
		return verdict{err: p.exit}
	}
}

// Cancel has nothing to do: prompts watch acp.TurnCancelled, and nothing else
// runs.
func (a *agent) Cancel(_ context.Context, n *schema.CancelNotification) error {
	_, err := a.sessions.Get(n.SessionID)
	return err
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

// content makes texts of a prompt's blocks, for the program takes nothing else.
var content = bridge.Content{
	Agent: "amp", Files: "only texts",
	Text: func(s string) any { return text{"text", s} },
}

type text struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

func errImage() error {
	return acp.Errorf(acp.CodeInvalidParams, "amp takes no images in a prompt: put the image into a file and name its path")
}

// promptParts turns a prompt's blocks into texts, within the program's bounds.
func promptParts(prompt []schema.ContentBlock) ([]any, error) {
	if slices.ContainsFunc(prompt, func(b schema.ContentBlock) bool { return b.Image != nil }) {
		return nil, errImage()
	}
	parts, err := content.Parts(prompt)
	if err != nil {
		return nil, err
	}
	size := 0
	for _, p := range parts {
		if t, ok := p.(text); ok {
			size += len(t.Text)
		}
	}
	if size > maxPrompt {
		return nil, acp.Errorf(acp.CodeInvalidParams, "the prompt has %d bytes, and amp answers none with more than %d: put the text into a file and name its path", size, maxPrompt)
	}
	return parts, nil
}
