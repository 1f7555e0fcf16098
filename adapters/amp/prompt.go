package amp

import (
	"context"
	"errors"
	"slices"
	"syscall"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge/turn"
)

// cancelBound limits how long a cancelled turn may go on; then the process is
// ended. Tests lower it.
var cancelBound = 10 * time.Second

// maxPrompt bounds a prompt in bytes. The program takes more without a word, and on a
// busy machine never answers one of 1 MiB; it answers half of that.
const maxPrompt = 256 << 10

// cutPause is how long an error may take to follow a message that was cut short.
const cutPause = 500 * time.Millisecond

// maxCutPauses bounds how many of them a turn waits for the reason.
const maxCutPauses = 10

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
	return s.turns.Prompt(ctx, turn.Script[work]{
		Gone: s.ctx.Done(), Exit: func() error { return bridge.NotFound(r.SessionID) }, Log: s.log,
		Begin: func(w *turn.Waiting, t *turn.Turn[work]) error { return s.begin(w, t, r.Prompt, parts) },
		Stop: func(_ context.Context, t *turn.Turn[work]) {
			s.asks.WithdrawAll()
			s.interrupt(t.Work.p)
		},
		Bound: cancelBound, Kill: func(t *turn.Turn[work]) { t.Work.p.halt() },
		End: s.over,
	})
}

// begin gives the program a prompt, and starts one where none takes prompts.
func (s *session) begin(w *turn.Waiting, t *turn.Turn[work], prompt []schema.ContentBlock, parts []any) error {
	p, err := s.spawn(w.Context())
	if err == nil {
		err = s.begun(w.Context(), p, w.Cancelled)
	}
	if err == nil {
		err = w.Check()
	}
	if err != nil {
		return err
	}
	s.emit(func(*translator) []schema.SessionUpdate { return s.title.Of(prompt) })
	t.Serve(p.ended, func() error { return p.exit })
	s.mu.Lock()
	now := time.Now()
	t.Work.p, t.Work.given, p.heard, p.well, p.untold = p, now, now, false, p.goesOn
	s.mu.Unlock()
	line, err := schema.Encode(map[string]any{
		"type": "user", "message": map[string]any{"role": "user", "content": parts},
	})
	if err == nil {
		ctx, given := w.Giving(cancelBound)
		defer given()
		err = s.a.conn.Give(string(s.name()), p.child.Process, func() error { return p.child.WriteLine(ctx, line) })
	}
	if errors.Is(err, bridge.ErrUnwritten) {
		<-p.ended // which is the turn's end
		return nil
	}
	return err
}

// interrupt tells a process to end its turn. It takes no further prompt then, and
// has to write its thread before it ends.
func (s *session) interrupt(p *proc) {
	s.mu.Lock()
	p.over, p.well = true, true
	s.mu.Unlock()
	if err := p.child.Signal(syscall.SIGINT); err != nil {
		s.log.Debug("interrupt amp", "session", s.name(), "err", err)
	}
}

// over closes what a turn has left open.
func (s *session) over(_ *turn.Turn[work], v turn.Verdict) turn.Verdict {
	well := v.Err == nil && v.Reason != schema.StopReasonCancelled
	s.emit(func(t *translator) []schema.SessionUpdate { return t.abandoned(well) })
	s.keep()
	s.out.Lock()
	defer s.out.Unlock()
	v.Usage = s.tr.ofTurn()
	return v
}

// Cancel has nothing to do: prompts watch acp.TurnCancelled, and nothing else
// runs. What a program goes on with that was left in a turn, it does in the next
// prompt's, since only that starts it.
func (a *agent) Cancel(_ context.Context, n *schema.CancelNotification) error {
	_, err := a.sessions.Get(n.SessionID)
	return err
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
