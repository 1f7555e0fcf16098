package codex

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

// cancelBound limits how long a cancelled turn may go on; then the prompt ends
// without it, and the next one waits for it. Tests lower it.
var cancelBound = 20 * time.Second

// Prompt runs one turn. Prompts of a session run one after another: codex would
// steer the running turn with a second one.
func (a *agent) Prompt(ctx context.Context, r *acp.PromptRequest) (*acp.PromptResponse, error) {
	s, err := a.session(r.SessionID)
	if err != nil {
		return nil, err
	}
	p, err := s.prompted(r.Prompt)
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
	case <-s.srv.ended:
		return nil, s.srv.exit
	}
	t, idle := s.begin()
	for idle != nil { // a turn runs that nobody prompted
		select {
		case <-idle:
		case <-cancelled:
			return stopped, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-s.srv.ended:
			return nil, s.srv.exit
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
	if !s.awaitTools(ctx, cancelled) {
		return stopped, nil
	}
	p.params["threadId"] = s.thread
	var started struct {
		Turn turn `json:"turn"`
	}
	if err := s.srv.call(ctx, p.method, p.params, &started); err != nil {
		if said := refused(err); said != "" {
			return nil, acp.Errorf(acp.CodeInvalidParams, "codex refused the prompt: %s", said)
		}
		return nil, err
	}
	s.known(t, started.Turn.ID)
	v := s.await(ctx, t, cancelled)
	if v.err != nil {
		return nil, v.err
	}
	return &acp.PromptResponse{StopReason: v.reason, Usage: v.usage}, nil
}

// toolsBound limits how long a prompt waits for the session's MCP servers.
const toolsBound = 15 * time.Second

// awaitTools waits until the session's MCP servers have started: codex would
// begin the turn without their tools. It reports false when the prompt was
// cancelled meanwhile.
func (s *session) awaitTools(ctx context.Context, cancelled <-chan struct{}) bool {
	limit := time.NewTimer(toolsBound)
	defer limit.Stop()
	select {
	case <-s.tooled:
	case <-limit.C:
	case <-s.srv.ended:
	case <-cancelled:
		return false
	case <-ctx.Done():
		return false
	}
	return true
}

// begin makes a turn the running one. While a turn runs that nobody prompted it
// returns a channel that is closed when that has ended.
func (s *session) begin() (*running, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.alone) > 0 {
		return nil, s.idle
	}
	s.running = &running{ids: map[string]bool{}, started: make(chan struct{}), done: make(chan verdict, 1)}
	return s.running, nil
}

func (s *session) over(t *running) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running != t {
		return
	}
	s.running = nil
	if !t.ended && len(t.ids) > 0 {
		// It goes on although nobody waits for it any more.
		for id := range t.ids {
			s.aloneLocked(id)
		}
	}
}

// Cancel ends turns that nobody prompted. Prompts watch acp.TurnCancelled.
func (a *agent) Cancel(_ context.Context, n *acp.CancelNotification) error {
	s, err := a.session(n.SessionID)
	if err != nil {
		return err
	}
	s.mu.Lock()
	alone := len(s.alone) > 0 && s.running == nil
	s.mu.Unlock()
	if !alone {
		return nil
	}
	s.dropAsks()
	return s.interrupt(s.ctx)
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

// call is what a prompt asks of codex.
type call struct {
	method string
	params map[string]any
}

// prompted turns a prompt into codex's request: a turn, or a command.
func (s *session) prompted(prompt []acp.ContentBlock) (*call, error) {
	if len(prompt) == 1 && prompt[0].Text != nil {
		if c, ok, err := s.command(prompt[0].Text.Text); ok || err != nil {
			return c, err
		}
	}
	inputs, err := inputsOf(prompt)
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

// inputsOf turns a prompt's blocks into codex's. Links are text; embedded texts
// follow the words.
func inputsOf(prompt []acp.ContentBlock) ([]any, error) {
	var out, context []any
	say := func(s string) any {
		return map[string]any{"type": "text", "text": s, "text_elements": []any{}}
	}
	embed := func(uri, text string) {
		out = append(out, say(bridge.Link("", uri)))
		context = append(context, say(fmt.Sprintf("\n<context ref=%q>\n%s\n</context>", uri, text)))
	}
	image := func(mime, data string) any {
		return map[string]any{"type": "image", "url": "data:" + mime + ";base64," + data}
	}
	for _, b := range prompt {
		switch {
		case b.Text != nil:
			if strings.TrimSpace(b.Text.Text) != "" {
				out = append(out, say(b.Text.Text))
			}
		case b.Image != nil && b.Image.Data != "":
			out = append(out, image(b.Image.MimeType, b.Image.Data))
		case b.Image != nil && b.Image.URI != nil:
			path, ok := localFile(*b.Image.URI)
			if !ok {
				return nil, acp.Errorf(acp.CodeInvalidParams, "codex takes images as data or as files on its machine, not from %s", *b.Image.URI)
			}
			out = append(out, map[string]any{"type": "localImage", "path": path})
		case b.ResourceLink != nil:
			if path, ok := localFile(b.ResourceLink.URI); ok {
				out = append(out, map[string]any{"type": "mention", "name": bridge.FirstOf(b.ResourceLink.Name, path), "path": path})
			}
			out = append(out, say(bridge.Link(b.ResourceLink.Name, b.ResourceLink.URI)))
		case b.Resource != nil && b.Resource.Resource.TextResourceContents != nil:
			r := b.Resource.Resource.TextResourceContents
			embed(r.URI, r.Text)
		case b.Resource != nil && b.Resource.Resource.BlobResourceContents != nil:
			r := b.Resource.Resource.BlobResourceContents
			mime := ""
			if r.MimeType != nil {
				mime = *r.MimeType
			}
			switch {
			case strings.HasPrefix(mime, "image/"):
				out = append(out, say(bridge.Link("", r.URI)), image(mime, r.Blob))
			case strings.HasPrefix(mime, "text/") || mime == "application/json":
				text, err := base64.StdEncoding.DecodeString(r.Blob)
				if err != nil {
					return nil, acp.Errorf(acp.CodeInvalidParams, "resource %s: %v", r.URI, err)
				}
				embed(r.URI, string(text))
			default:
				return nil, acp.Errorf(acp.CodeInvalidParams, "codex cannot be given resource %s of type %q: images and text can be embedded", r.URI, mime)
			}
		default:
			return nil, acp.Errorf(acp.CodeInvalidParams, "codex takes text, images, resource links and embedded resources in a prompt, no other content")
		}
	}
	if len(out) == 0 {
		return nil, acp.Errorf(acp.CodeInvalidParams, "the prompt is empty")
	}
	return append(out, context...), nil
}

// localFile is the path of a file: URI.
func localFile(uri string) (string, bool) {
	u, err := url.Parse(uri)
	if err != nil || u.Scheme != "file" || u.Path == "" {
		return "", false
	}
	_, err = os.Stat(u.Path)
	return u.Path, err == nil
}
