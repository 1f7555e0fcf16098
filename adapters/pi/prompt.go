package pi

import (
	"context"
	"errors"
	"strings"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge/turn"
)

// cancelBound limits how long a cancelled turn may go on; then the process is
// ended, since nothing else ends the turn. Tests lower it.
var cancelBound = 20 * time.Second

// abortAgain is how often Pi is told of a cancel.
const abortAgain = time.Second

// restPause is the time before the first question whether Pi has come to rest; each further one waits twice as long, up to
// longestPause.
const (
	restPause    = 10 * time.Millisecond
	longestPause = 500 * time.Millisecond
)

// maxIdle is how often in a row Pi may refuse a prompt because of a run that there was not. Then it stays refused.
const maxIdle = 6

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
	return s.turns.Prompt(ctx, turn.Script[work]{
		Gone: s.dead, Exit: func() error { return s.exit }, Log: s.log,
		Begin: func(_ *turn.Waiting, t *turn.Turn[work]) error {
			// For clients only: Pi names sessions so by itself.
			s.emit(func(*translator) []schema.SessionUpdate { return s.title.Of(r.Prompt) })
			t.Go(func(ctx context.Context) { s.submit(ctx, t, in) })
			return nil
		},
		Stop: s.abortUntil, Bound: cancelBound, Kill: func(*turn.Turn[work]) { s.program().halt() },
		End: func(_ *turn.Turn[work], v turn.Verdict) turn.Verdict {
			s.asks.AwaitWithdrawn() // what its run does not wait for must not be open behind it
			return v
		},
	})
}

// submit gives Pi the prompt. Its answer means only that it was taken, unless it
// was refused or a command that starts no run.
func (s *session) submit(ctx context.Context, t *turn.Turn[work], in *input) {
	p := s.program()
	if p == nil {
		return // it is gone
	}
	if done, err := s.builtin(ctx, p, t, in); done {
		if died(err) || ctx.Err() != nil {
			return // it is gone, or the turn is over
		}
		// It begins no run: what is known of one is not of it.
		t.Settle(turn.Verdict{Reason: schema.StopReasonEndTurn, Err: err})
		return
	}
	fields := map[string]any{"message": in.text}
	if len(in.images) > 0 {
		fields["images"] = in.images
	}
	s.mu.Lock()
	b := &busyness{runs: s.runs, pause: restPause}
	s.mu.Unlock()
	for s.offer(ctx, p, t, fields, b) {
	}
}

// busyness is what is known of a Pi that refuses a prompt because of what it does.
type busyness struct {
	runs  int           // how many had begun when the prompt was given
	idle  int           // how often in a row it was refused, and no run had begun
	pause time.Duration // before Pi is asked next
}

// offer gives Pi a prompt once, and reports whether it is to be given again: Pi had begun
// something by itself before it came, which is over.
func (s *session) offer(ctx context.Context, p *program, t *turn.Turn[work], fields map[string]any, b *busyness) (again bool) {
	slash := strings.HasPrefix(fields["message"].(string), "/")
	asked := p.expect("prompt", func(e *event) { s.taken(p, t, slash, e) })
	defer p.forget(asked)
	err := s.a.conn.Give(string(s.id), p.child.Process, func() error {
		_, err := p.exchange(ctx, asked, fields, manner{writing: s.ctx, told: s.told})
		return err
	})
	busy := isBusy(err)
	if busy {
		rests, gone := s.awaitRest(ctx, p, t, b)
		if rests {
			return true
		}
		if died(gone) {
			err = gone
		}
	}
	switch {
	case err == nil || died(err) || ctx.Err() != nil: // it has it, it is gone, or the turn is over
	case busy && t.Stopping(): // nobody has it
		t.Settle(turn.Verdict{Reason: schema.StopReasonCancelled})
	case ctx.Err() == nil:
		t.Settle(turn.Verdict{Err: refused(err)})
	}
	<-ctx.Done() // until then early versions may refuse what they have taken
	return false
}

// isBusy reports whether Pi refuses a prompt because a run goes on, or because it summarizes
// the conversation.
func isBusy(err error) bool {
	e, ok := errors.AsType[*acp.Error](err)
	return ok && (strings.Contains(e.Message, "already processing") || strings.Contains(e.Message, "compaction is in progress"))
}

// awaitRest waits until Pi does nothing while the turn is wanted, and reports whether that is so and the prompt may be given again.
// The error is of a Pi that does not say what it does.
func (s *session) awaitRest(ctx context.Context, p *program, t *turn.Turn[work], b *busyness) (rests bool, err error) {
	for {
		select {
		case <-s.turns.Rest():
		case <-t.Stopped():
			return false, nil
		case <-ctx.Done():
			return false, nil
		}
		wait := time.NewTimer(b.pause)
		b.pause = min(2*b.pause, longestPause)
		select {
		case <-wait.C:
		case <-t.Stopped():
			wait.Stop()
			return false, nil
		case <-ctx.Done():
			wait.Stop()
			return false, nil
		}
		var now state // what it begins it says behind its refusal
		if err := p.ask(s.ctx, "get_state", nil, &now); err != nil {
			return false, err
		}
		s.mu.Lock()
		rests, runs := !now.Streaming && !now.Compacting && t.Work.stage == offered, s.runs
		s.mu.Unlock()
		if !rests {
			continue
		}
		if b.idle++; runs != b.runs {
			*b = busyness{runs: runs, pause: restPause}
		}
		return b.idle < maxIdle && ctx.Err() == nil && !t.Stopping(), nil
	}
}

// told ends what Pi was told to do if the turn was cancelled meanwhile: there was
// nothing to abort before.
func (s *session) told() {
	if s.turns.Stopping() {
		s.abort()
	}
}

// abortUntil ends what Pi does, again and again until the turn is over: Pi takes
// no notice of an abort that comes while something only begins.
func (s *session) abortUntil(ctx context.Context, _ *turn.Turn[work]) {
	again := time.NewTicker(abortAgain)
	defer again.Stop()
	for {
		s.abort()
		select {
		case <-again.C:
		case <-ctx.Done():
			return
		}
	}
}

// abort ends what Pi does. It may wait for Pi to read, so the reader must not call
// it. What Pi has queued must go first, or it would run with the next prompt.
// While a dialog is open Pi ends nothing, so all of them are given up.
func (s *session) abort() { s.tell("clear_queue", "abort_bash", "abort") }

// abortRun is abort, but a command of the user's goes on.
func (s *session) abortRun() { s.tell("clear_queue", "abort") }

// tell gives up what Pi asks, and gives it commands whose answers nobody needs.
func (s *session) tell(commands ...string) {
	s.asks.WithdrawAll()
	p := s.program()
	if p == nil {
		return
	}
	for _, command := range commands {
		if err := p.send(s.ctx, map[string]any{"id": "gateway-" + command, "type": command}); err != nil {
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
	s.abortOwn()
	return nil
}

// abortOwn ends what Pi does by itself. The next prompt waits: it would be aborted, too.
func (s *session) abortOwn() {
	release, ok := s.turns.Pause()
	if !ok {
		return
	}
	defer release()
	if s.turns.Alone() {
		s.abort()
	}
}

// entitle gives the session a name.
func (s *session) entitle(ctx context.Context, title string) error {
	s.title.Given(true)
	p := s.program()
	if p == nil {
		return errStarting
	}
	return p.ask(ctx, "set_session_name", map[string]any{"name": title}, nil)
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
