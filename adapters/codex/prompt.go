package codex

import (
	"context"
	"strings"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge/turn"
)

// cancelBound limits how long a cancelled turn may go on; then the prompt ends
// without it, and the next one waits for it. Tests lower it.
var cancelBound = 20 * time.Second

// Prompt runs one turn. Prompts of a session run one after another: codex would
// steer the running turn with a second one.
func (a *agent) Prompt(ctx context.Context, r *schema.PromptRequest) (*schema.PromptResponse, error) {
	s, err := a.session(r.SessionID)
	if err != nil {
		return nil, err
	}
	p, err := s.prompted(r.Prompt)
	if err != nil {
		return nil, err
	}
	return s.turns.Prompt(ctx, turn.Script[work]{
		Work: work{ids: map[string]bool{}, begins: map[string]string{}, started: make(chan struct{}), compacts: p.method == methodCompact},
		Gone: s.srv.ended, Exit: func() error { return s.srv.exit }, Log: s.log,
		Begin:   func(w *turn.Waiting, t *turn.Turn[work]) error { return s.begin(w, t, p, r.Prompt) },
		Untaken: s.untaken, Stop: s.stopTurn, Bound: cancelBound, End: s.tidy,
	})
}

// toolsBound limits how long a prompt waits for the session's MCP servers.
const toolsBound = 15 * time.Second

// begin gives codex a prompt.
func (s *session) begin(w *turn.Waiting, t *turn.Turn[work], p *call, prompt []schema.ContentBlock) error {
	s.mu.Lock()
	s.latest = t.Work.ids
	s.mu.Unlock()
	s.emit(func(*translator) []schema.SessionUpdate { return s.title.Of(prompt) })
	// Before its MCP servers have started a turn would begin without their tools.
	if err := w.ForAtMost(toolsBound, s.tooled); err != nil {
		return err
	}
	p.params["threadId"] = s.thread
	var started struct {
		Turn turnInfo `json:"turn"`
	}
	// Not call: a prompt that was given up would be done all the same when codex goes on, and then once more.
	ctx, given := w.Giving(cancelBound)
	defer given()
	if err := s.a.conn.Give(string(s.id), s.srv.child.Process, func() error {
		s.mu.Lock()
		t.Work.given = true
		s.mu.Unlock()
		return s.srv.ask(ctx, p.method, p.params, &started)
	}); err != nil {
		if ctx.Err() != nil && s.hung() {
			return s.srv.exit
		}
		if said := refused(err); said != "" {
			return acp.Errorf(acp.CodeInvalidParams, "codex refused the prompt: %s", said)
		}
		return err
	}
	s.known(t, started.Turn.ID)
	return nil
}

// Cancel ends turns that nobody prompted. Prompts watch acp.TurnCancelled. What turns have left in the background goes on.
func (a *agent) Cancel(_ context.Context, n *schema.CancelNotification) error {
	s, err := a.session(n.SessionID)
	if err != nil {
		return err
	}
	release, ok := s.turns.Pause() // or the next prompt's questions would be withdrawn
	if !ok {
		return nil
	}
	alone := s.turns.Alone()
	if alone {
		s.dropAsksOf(nil)
	}
	release()
	if alone {
		s.nudge(nil) // codex may take long to answer, and cancels of other sessions come behind this one
	}
	return nil
}

// call is what a prompt asks of codex.
type call struct {
	method string
	params map[string]any
}

// prompted turns a prompt into codex's request: a turn, or a command.
func (s *session) prompted(prompt []schema.ContentBlock) (*call, error) {
	if len(prompt) == 1 && prompt[0].Text != nil {
		if c, ok, err := s.command(prompt[0].Text.Text); ok || err != nil {
			return c, err
		}
	}
	inputs, err := content.Parts(prompt)
	if err != nil {
		return nil, err
	}
	for _, b := range prompt {
		if b.Text == nil {
			continue
		}
		for _, one := range s.mentioned(b.Text.Text) {
			in, err := one.input()
			if err != nil {
				return nil, err
			}
			inputs = append(inputs, in)
		}
	}
	return &call{"turn/start", map[string]any{"input": inputs}}, nil
}

// content makes codex's inputs of a prompt's blocks. Links are text; those to
// files of this machine are mentions as well.
var content = bridge.Content{
	Agent: "codex", Files: "images and text",
	Text: say,
	Image: func(mime, data string) any {
		return map[string]any{"type": "image", "url": "data:" + mime + ";base64," + data}
	},
	ImageAt: func(i *schema.ImageContent) (any, error) {
		path, ok := bridge.LocalFile(*i.URI)
		if !ok {
			return nil, acp.Errorf(acp.CodeInvalidParams, "codex takes images as data or as files on its machine, not from %s", *i.URI)
		}
		return map[string]any{"type": "localImage", "path": path}, nil
	},
	Link: func(l *schema.ResourceLink) []any {
		text := say(bridge.Link(l.Name, l.URI))
		if path, ok := bridge.LocalFile(l.URI); ok {
			return []any{map[string]any{"type": "mention", "name": bridge.FirstOf(l.Name, path), "path": path}, text}
		}
		return []any{text}
	},
	File: func(mime, uri, data string) ([]any, bool) {
		if !strings.HasPrefix(mime, "image/") {
			return nil, false
		}
		return []any{say(bridge.Link("", uri)), map[string]any{"type": "image", "url": "data:" + mime + ";base64," + data}}, true
	},
}

func say(text string) any {
	return map[string]any{"type": "text", "text": text, "text_elements": []any{}}
}
