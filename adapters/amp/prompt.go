package amp

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
	"sandboxagent.dev/sandbox-agent/internal/process"
)

// cancelBound limits how long a cancelled turn may go on; then the process is
// ended. Tests lower it.
var cancelBound = 10 * time.Second

// maxPrompt bounds a prompt in bytes. The program takes several MiB without a word
// and never answers.
const maxPrompt = 1 << 20

// cutPause is how long an error may take to follow a message that was cut short.
const cutPause = 500 * time.Millisecond

// Prompt runs one turn. Prompts of a session run one after another.
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
	case <-s.ctx.Done():
		return nil, bridge.NotFound(r.SessionID)
	}
	p, err := s.spawn(ctx)
	if err == nil {
		err = s.begun(ctx, p, cancelled)
	}
	if errors.Is(err, errCancelled) {
		return stopped, nil
	}
	if err != nil {
		return nil, err
	}
	select {
	case <-cancelled:
		return stopped, nil
	default:
	}
	s.entitle(r.Prompt)
	t := &turn{done: make(chan verdict, 1), cut: make(chan struct{}, 1), stop: make(chan struct{}, 1)}
	s.mu.Lock()
	s.turn, p.well = t, false
	s.mu.Unlock()
	line, err := acp.Encode(map[string]any{
		"type": "user", "message": map[string]any{"role": "user", "content": content},
	})
	if err == nil {
		err = p.child.WriteLine(line)
	}
	if err != nil {
		// A program that does not read is of no use to anybody.
		p.child.Stop(process.Ladder{Term: ladder.Term})
		<-p.ended
	}
	v := s.await(ctx, t, p, cancelled)
	s.mu.Lock()
	s.turn = nil
	s.mu.Unlock()
	well := v.err == nil && v.reason != acp.StopReasonCancelled
	s.emit(func(t *translator) []acp.SessionUpdate { return t.abandoned(well) })
	s.keep()
	s.out.Lock()
	used := s.tr.ofTurn()
	s.out.Unlock()
	if v.err != nil {
		return nil, v.err
	}
	return &acp.PromptResponse{StopReason: v.reason, Usage: used}, nil
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
	return verdict{reason: acp.StopReasonCancelled}
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
func (a *agent) Cancel(_ context.Context, n *acp.CancelNotification) error {
	_, err := a.session(n.SessionID)
	return err
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

// promptContent turns a prompt's blocks into texts, for the program takes nothing
// else. Embedded texts follow the words.
func promptContent(prompt []acp.ContentBlock) ([]map[string]string, error) {
	var out, context []map[string]string
	text := func(s string) map[string]string { return map[string]string{"type": "text", "text": s} }
	for _, b := range prompt {
		switch {
		case b.Text != nil:
			out = append(out, text(b.Text.Text))
		case b.ResourceLink != nil:
			out = append(out, text(bridge.Link(b.ResourceLink.Name, b.ResourceLink.URI)))
		case b.Resource != nil:
			uri, words, err := embedded(b.Resource.Resource)
			if err != nil {
				return nil, err
			}
			out = append(out, text(bridge.Link("", uri)))
			context = append(context, text(fmt.Sprintf("<context ref=%q>\n%s\n</context>", uri, words)))
		case b.Image != nil:
			return nil, acp.Errorf(acp.CodeInvalidParams, "amp takes no images in a prompt: put the image into a file and name its path")
		default:
			return nil, acp.Errorf(acp.CodeInvalidParams, "amp takes text, resource links and embedded texts in a prompt, no other content")
		}
	}
	out = append(out, context...)
	if !slices.ContainsFunc(out, func(b map[string]string) bool { return strings.TrimSpace(b["text"]) != "" }) {
		return nil, acp.Errorf(acp.CodeInvalidParams, "the prompt is empty")
	}
	size := 0
	for _, b := range out {
		size += len(b["text"])
	}
	if size > maxPrompt {
		return nil, acp.Errorf(acp.CodeInvalidParams, "the prompt has %d bytes, and amp answers none with more than %d: put the text into a file and name its path", size, maxPrompt)
	}
	return out, nil
}

func embedded(r acp.EmbeddedResourceResource) (uri, text string, err error) {
	if t := r.TextResourceContents; t != nil {
		return t.URI, t.Text, nil
	}
	blob := r.BlobResourceContents
	if blob == nil {
		return "", "", acp.Errorf(acp.CodeInvalidParams, "an embedded resource has neither a text nor a blob")
	}
	mime := ""
	if blob.MimeType != nil {
		mime = *blob.MimeType
	}
	if !strings.HasPrefix(mime, "text/") && mime != "application/json" {
		return "", "", acp.Errorf(acp.CodeInvalidParams, "amp cannot be given resource %s of type %q: only texts can be embedded", blob.URI, mime)
	}
	b, err := base64.StdEncoding.DecodeString(blob.Blob)
	if err != nil {
		return "", "", acp.Errorf(acp.CodeInvalidParams, "resource %s: %v", blob.URI, err)
	}
	return blob.URI, string(b), nil
}
