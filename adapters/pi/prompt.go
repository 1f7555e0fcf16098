package pi

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

// cancelBound limits how long a cancelled turn may go on; then the process is
// ended, since nothing else ends the turn. Tests lower it.
var cancelBound = 20 * time.Second

// Prompt runs one turn. Prompts of a session run one after another: Pi would
// refuse a second one, or fold it into the running turn.
func (a *agent) Prompt(ctx context.Context, r *acp.PromptRequest) (*acp.PromptResponse, error) {
	s, err := a.session(r.SessionID)
	if err != nil {
		return nil, err
	}
	in, err := promptInput(r.Prompt)
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
	case <-s.dead:
		return nil, s.failure()
	}
	t, idle := s.begin()
	for idle != nil { // a run goes on that nobody prompted
		select {
		case <-idle:
		case <-cancelled:
			return stopped, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-s.dead:
			return nil, s.failure()
		}
		t, idle = s.begin()
	}
	defer s.finish(t)
	select {
	case <-cancelled:
		return stopped, nil
	default:
	}
	s.entitled(r.Prompt)
	var sent sync.WaitGroup
	defer sent.Wait()
	sending, cancel := context.WithCancel(s.ctx)
	defer cancel()
	sent.Go(func() { s.submit(sending, t, in) })
	v := s.await(ctx, t, cancelled)
	if v.err != nil {
		return nil, v.err
	}
	return &acp.PromptResponse{StopReason: v.reason, Usage: v.usage}, nil
}

// begin makes a turn the running one. While a run goes on that nobody prompted it
// returns a channel that is closed when that has ended.
func (s *session) begin() (*turn, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.alone {
		return nil, s.idle
	}
	s.turn = &turn{done: make(chan verdict, 1)}
	return s.turn, nil
}

func (s *session) finish(t *turn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.turn == t {
		s.turn = nil
	}
}

// submit gives Pi the prompt. Its answer means only that it was taken, unless it
// was refused or a command that starts no run.
func (s *session) submit(ctx context.Context, t *turn, in *input) {
	p := s.program()
	if p == nil {
		return // await knows why
	}
	if done, err := s.builtin(ctx, p, in); done {
		if errors.Is(err, errEnded) || ctx.Err() != nil {
			return // await knows why
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		t.judgeLocked(err)
		return
	}
	fields := map[string]any{"message": in.text}
	if len(in.images) > 0 {
		fields["images"] = in.images
	}
	raw, err := p.callThen(ctx, "prompt", fields, s.told)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case errors.Is(err, errEnded) || ctx.Err() != nil: // await knows why
	case err != nil:
		t.judgeLocked(refused(err))
	case acp.MemberString(raw, "disposition") == "handled" && !t.started:
		t.judgeLocked(nil)
	case acp.MemberString(raw, "disposition") == "" && !t.started:
		s.probeLocked(p)
	}
}

// told ends what Pi was told to do if the turn was cancelled meanwhile: there was
// nothing to abort before.
func (s *session) told() {
	s.mu.Lock()
	late := s.turn != nil && s.turn.cancelled
	s.mu.Unlock()
	if late {
		s.abort()
	}
}

// await waits for the end of a turn, and ends it when the client wants that.
func (s *session) await(ctx context.Context, t *turn, cancelled <-chan struct{}) verdict {
	select {
	case v := <-t.done:
		return v
	case <-s.dead:
		return s.last(t)
	case <-cancelled:
	case <-ctx.Done():
	}
	s.mu.Lock()
	t.cancelled = true
	s.mu.Unlock()
	var aborting sync.WaitGroup
	defer aborting.Wait()
	aborting.Go(s.abort)
	limit := time.NewTimer(cancelBound)
	defer limit.Stop()
	select {
	case v := <-t.done:
		return v
	case <-s.dead:
		return s.last(t)
	case <-limit.C:
	}
	s.log.Warn("a cancelled turn did not end, so its process is ended", "session", s.id)
	s.program().halt()
	<-s.dead
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
	if t.cancelled || s.closed {
		return verdict{reason: acp.StopReasonCancelled}
	}
	return verdict{err: s.failure()}
}

// abort ends what Pi does. It may wait for Pi to read, so the reader must not call
// it. What Pi has queued must go first, or it would run with the next prompt.
// While a dialog is open Pi ends nothing, so all of them are given up.
func (s *session) abort() {
	s.mu.Lock()
	p := s.prog
	for _, cancel := range s.asks {
		cancel()
	}
	s.mu.Unlock()
	if p == nil {
		return
	}
	for _, command := range []string{"clear_queue", "abort_bash", "abort"} {
		if err := p.send(map[string]any{"id": "gateway-" + command, "type": command}); err != nil {
			s.log.Debug("abort what pi does", "session", s.id, "err", err)
			return
		}
	}
}

// Cancel ends a run that nobody prompted. Prompts watch acp.TurnCancelled.
func (a *agent) Cancel(_ context.Context, n *acp.CancelNotification) error {
	s, err := a.session(n.SessionID)
	if err != nil {
		return err
	}
	s.mu.Lock()
	alone := s.alone && s.turn == nil
	s.mu.Unlock()
	if alone {
		s.abort()
	}
	return nil
}

// entitled names a new session after its first prompt, for clients only: Pi names
// sessions so by itself.
func (s *session) entitled(prompt []acp.ContentBlock) {
	s.mu.Lock()
	first := !s.titled
	s.titled = true
	s.mu.Unlock()
	if first {
		s.emit(func(*translator) []acp.SessionUpdate { return bridge.Entitled(prompt) })
	}
}

// entitle gives the session a name.
func (s *session) entitle(ctx context.Context, title string) error {
	s.mu.Lock()
	s.titled = true
	s.mu.Unlock()
	return s.program().ask(ctx, "set_session_name", map[string]any{"name": title}, nil)
}

// input is a prompt as Pi takes it.
type input struct {
	text   string
	images []any
}

// promptInput turns a prompt's blocks into a text and images. Resources have no
// kind of their own there: links are text, embedded texts follow the words.
func promptInput(prompt []acp.ContentBlock) (*input, error) {
	in := new(input)
	var words, more []string
	image := func(data, mime string) {
		in.images = append(in.images, map[string]string{"type": "image", "data": data, "mimeType": mime})
	}
	embed := func(uri, text string) {
		words = append(words, bridge.Link("", uri))
		more = append(more, fmt.Sprintf("\n<context ref=%q>\n%s\n</context>", uri, text))
	}
	for _, b := range prompt {
		switch {
		case b.Text != nil:
			words = append(words, b.Text.Text)
		case b.Image != nil && b.Image.Data != "":
			image(b.Image.Data, b.Image.MimeType)
		case b.ResourceLink != nil:
			words = append(words, bridge.Link(b.ResourceLink.Name, b.ResourceLink.URI))
		case b.Resource != nil && b.Resource.Resource.TextResourceContents != nil:
			r := b.Resource.Resource.TextResourceContents
			embed(r.URI, r.Text)
		case b.Resource != nil && b.Resource.Resource.BlobResourceContents != nil:
			r := b.Resource.Resource.BlobResourceContents
			mime := ""
			if r.MimeType != nil {
				mime = *r.MimeType
			}
			if strings.HasPrefix(mime, "image/") {
				image(r.Blob, mime)
				continue
			}
			text, err := base64.StdEncoding.DecodeString(r.Blob)
			if err != nil || !strings.HasPrefix(mime, "text/") && mime != "application/json" {
				return nil, acp.Errorf(acp.CodeInvalidParams, "pi cannot be given resource %s of type %q: images and text can be embedded", r.URI, mime)
			}
			embed(r.URI, string(text))
		default:
			return nil, acp.Errorf(acp.CodeInvalidParams, "pi takes text, images with their data, resource links and embedded resources in a prompt, no other content")
		}
	}
	in.text = strings.Join(append(words, more...), "\n")
	if strings.TrimSpace(in.text) == "" && len(in.images) == 0 {
		return nil, acp.Errorf(acp.CodeInvalidParams, "the prompt is empty")
	}
	return in, nil
}
