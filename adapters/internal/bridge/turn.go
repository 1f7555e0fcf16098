package bridge

import (
	"context"
	"errors"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/schema"
)

// ErrCancelled is returned by a turn whose prompt was cancelled before it had
// begun.
var ErrCancelled = errors.New("the prompt was cancelled")

// Slot lets the prompts of a session run one after another.
type Slot chan struct{}

// NewSlot returns a slot that is free.
func NewSlot() Slot { return make(Slot, 1) }

// Prompt runs turn when the prompts before it have ended. A prompt that is
// cancelled before ends as cancelled. ended is closed when the agent is gone;
// exit says how it ended, and is asked after that only.
func (s Slot) Prompt(ctx context.Context, ended <-chan struct{}, exit func() error, turn func(*Waiting) (*schema.PromptResponse, error)) (*schema.PromptResponse, error) {
	w := &Waiting{Cancelled: acp.TurnCancelled(ctx), ctx: ctx, ended: ended, exit: exit}
	res, err := s.run(w, turn)
	if errors.Is(err, ErrCancelled) {
		return &schema.PromptResponse{StopReason: schema.StopReasonCancelled}, nil
	}
	return res, err
}

func (s Slot) run(w *Waiting, turn func(*Waiting) (*schema.PromptResponse, error)) (*schema.PromptResponse, error) {
	select {
	case s <- struct{}{}:
		defer func() { <-s }()
	case <-w.Cancelled:
		return nil, ErrCancelled
	case <-w.ctx.Done():
		return nil, w.ctx.Err()
	case <-w.ended:
		return nil, w.exit()
	}
	if err := w.Check(); err != nil {
		return nil, err
	}
	return turn(w)
}

// Waiting is a prompt whose turn has not begun. The errors of its methods are
// what the turn returns then.
type Waiting struct {
	Cancelled <-chan struct{} // closed when the prompt is cancelled

	ctx   context.Context
	ended <-chan struct{}
	exit  func() error
}

// For waits until c is closed. It fails when the prompt is cancelled, when
// nobody waits for it any more, or when the agent is gone.
func (w *Waiting) For(c <-chan struct{}) error { return w.wait(c, nil) }

// ForAtMost is For with a bound: when c is not closed in time it waits no longer,
// which is no error.
func (w *Waiting) ForAtMost(limit time.Duration, c <-chan struct{}) error {
	t := time.NewTimer(limit)
	defer t.Stop()
	return w.wait(c, t.C)
}

func (w *Waiting) wait(c <-chan struct{}, enough <-chan time.Time) error {
	select {
	case <-c:
		return nil
	case <-enough:
		return nil
	case <-w.Cancelled:
		return ErrCancelled
	case <-w.ctx.Done():
		return w.ctx.Err()
	case <-w.ended:
		return w.exit()
	}
}

// Check fails when the prompt is cancelled already.
func (w *Waiting) Check() error {
	select {
	case <-w.Cancelled:
		return ErrCancelled
	default:
		return nil
	}
}
