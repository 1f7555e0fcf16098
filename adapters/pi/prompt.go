package pi

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

// cancelBound limits how long a cancelled turn may go on; then the process is
// ended, since nothing else ends the turn. Tests lower it.
var cancelBound = 20 * time.Second

// abortAgain is how often Pi is told of a cancel.
const abortAgain = time.Second

// Prompt runs one turn. Prompts of a session run one after another: Pi would
// refuse a second one, or fold it into the running turn.
func (a *agent) Prompt(ctx context.Context, r *schema.PromptRequest) (*schema.PromptResponse, error) {
	s, err := a.sessions.Get(r.SessionID)
	if err != nil {
		return nil, err
	}
	in, err := promptInput(r.Prompt)
	if err != nil {
		return nil, err
	}
	return s.slot.Prompt(ctx, s.dead, s.failure, func(w *bridge.Waiting) (*schema.PromptResponse, error) {
		t, idle := s.begin()
		for idle != nil { // a run goes on that nobody prompted
			if err := w.For(idle); err != nil {
				return nil, err
			}
			t, idle = s.begin()
		}
		defer s.finish(t)
		if err := w.Check(); err != nil {
			return nil, err
		}
		s.entitled(r.Prompt)
		var sent sync.WaitGroup
		defer sent.Wait()
		sending, cancel := context.WithCancel(s.ctx)
		defer cancel()
		sent.Go(func() { s.submit(sending, t, in) })
		v := s.await(ctx, t, w.Cancelled)
		if v.err != nil {
			return nil, v.err
		}
		return &schema.PromptResponse{StopReason: v.reason, Usage: v.usage}, nil
	})
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
	case rawjson.MemberString(raw, "disposition") == "handled" && !t.started:
		t.judgeLocked(nil)
	case rawjson.MemberString(raw, "disposition") == "" && !t.started:
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
	over := make(chan struct{})
	defer close(over)
	aborting.Go(func() {
		// Pi takes no notice of an abort that comes while something only begins.
		again := time.NewTicker(abortAgain)
		defer again.Stop()
		for {
			s.abort()
			select {
			case <-again.C:
			case <-over:
				return
			}
		}
	})
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
		return verdict{reason: schema.StopReasonCancelled}
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
func (a *agent) Cancel(_ context.Context, n *schema.CancelNotification) error {
	s, err := a.sessions.Get(n.SessionID)
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
func (s *session) entitled(prompt []schema.ContentBlock) {
	s.mu.Lock()
	first := !s.titled
	s.titled = true
	s.mu.Unlock()
	if first {
		s.emit(func(*translator) []schema.SessionUpdate { return bridge.Entitled(prompt) })
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

// content makes texts and images of a prompt's blocks. Resources have no kind of
// their own there: links are text.
var content = bridge.Content{
	Agent: "pi", Files: "images and text",
	Text:  func(text string) any { return text },
	Image: func(mime, data string) any { return image{"image", data, mime} },
	File: func(mime, uri, data string) ([]any, bool) {
		if !strings.HasPrefix(mime, "image/") {
			return nil, false
		}
		return []any{bridge.Link("", uri), image{"image", data, mime}}, true
	},
}

// image is one of a prompt.
type image struct {
	Type string `json:"type"`
	Data string `json:"data"`
	MIME string `json:"mimeType"`
}

// promptInput turns a prompt's blocks into a text and images.
func promptInput(prompt []schema.ContentBlock) (*input, error) {
	parts, err := content.Parts(prompt)
	if err != nil {
		return nil, err
	}
	in := new(input)
	var words []string
	for _, p := range parts {
		switch p := p.(type) {
		case string:
			words = append(words, p)
		case image:
			in.images = append(in.images, p)
		}
	}
	in.text = strings.Join(words, "\n")
	return in, nil
}
