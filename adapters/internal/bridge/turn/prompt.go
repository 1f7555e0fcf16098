package turn

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/internal/awake"
)

// ErrCancelled is what a turn fails with that was cancelled before the agent had
// begun with it.
var ErrCancelled = errors.New("the prompt was cancelled")

// Script is how a bridge runs a turn.
type Script[W any] struct {
	Work W // what the turn begins with
	// Gone is closed when the agent is gone; Exit says how it went, and is asked
	// after that only.
	Gone <-chan struct{}
	Exit func() error

	// Begin gives the agent the prompt. Its error ends the turn.
	Begin func(w *Waiting, t *Turn[W]) error
	// Untaken, which may be nil, is called when the agent was not given the prompt, or refused it: what began meanwhile the agent
	// does by itself. It settles the turn in one step with that, so that what begins from then on is not of it.
	Untaken func(t *Turn[W])
	// Stop tells the agent to end the turn. It runs beside the turn; its context
	// ends with it.
	Stop func(ctx context.Context, t *Turn[W])
	// Bound limits how long a turn goes on that was told to stop. Then Kill ends
	// the agent, so that it is gone in a moment. Without Kill the turn is left.
	Bound time.Duration
	Kill  func(t *Turn[W])
	// End, which may be nil, closes what the turn has left open, and may change
	// its verdict. It is called for every turn that has begun, when all that
	// [Turn.Go] began has ended.
	End func(t *Turn[W], v Verdict) Verdict
	Log *slog.Logger
}

// Prompt runs a turn when those before it, and what the agent does by itself,
// have ended.
func (ts *Turns[W]) Prompt(ctx context.Context, s Script[W]) (*schema.PromptResponse, error) {
	w := &Waiting{Cancelled: acp.TurnCancelled(ctx), ctx: ctx, gone: s.Gone, closed: ts.closed, exit: func() error { return ts.unlessClosed(s.Exit()) }}
	v, err := ts.run(w, &s)
	if err == nil {
		err = v.Err
	}
	switch {
	case errors.Is(err, ErrCancelled):
		return &schema.PromptResponse{StopReason: schema.StopReasonCancelled}, nil
	case err != nil:
		return nil, err
	}
	return &schema.PromptResponse{StopReason: v.Reason, Usage: v.Usage}, nil
}

// run runs a turn. Its error is of one that has not begun.
func (ts *Turns[W]) run(w *Waiting, s *Script[W]) (Verdict, error) {
	select {
	case ts.slot <- struct{}{}:
		defer func() { <-ts.slot }()
	case <-w.Cancelled:
		return Verdict{}, ErrCancelled
	case <-w.ctx.Done():
		return Verdict{}, w.ctx.Err()
	case <-w.closed:
		return Verdict{}, ErrCancelled
	case <-w.gone:
		return Verdict{}, w.exit()
	}
	t, quiet := ts.begin(s.Work)
	for t == nil {
		if err := w.For(quiet); err != nil {
			return Verdict{}, err
		}
		t, quiet = ts.begin(s.Work)
	}
	defer ts.leave(t)
	t.gone, t.exit = s.Gone, s.Exit
	err := w.Check()
	if err == nil {
		err = s.Begin(w, t)
	}
	if err != nil {
		if s.Untaken != nil {
			s.Untaken(t)
		}
		if errors.Is(err, context.Canceled) && w.Check() != nil {
			err = ErrCancelled
		}
		return Verdict{}, ts.unlessClosed(err)
	}
	v := t.await(w, s)
	ts.finish(t) // what runs beside the turn could open something behind End
	if t.Stopping() {
		v.Reason, v.Err = schema.StopReasonCancelled, nil
	}
	if s.End != nil {
		v = s.End(t, v)
	}
	return v, nil
}

// StopOwn ends what the agent does by itself, if it does anything and works on no prompt: tell tells
// it to, and kill ends the agent if that is not over in time. The next prompt waits until it was told.
func (ts *Turns[W]) StopOwn(ctx context.Context, bound time.Duration, tell func(ctx context.Context), kill func()) {
	release, ok := ts.Pause() // or the next prompt would be told to end
	if !ok {
		return
	}
	if !ts.Alone() {
		release()
		return
	}
	late, stop := awake.After(bound)
	defer stop()
	telling, told := awake.WithTimeoutCause(ctx, bound, context.DeadlineExceeded)
	tell(telling)
	told()
	rest := ts.Rest()
	release()
	select {
	case <-rest:
		return
	default:
	}
	select {
	case <-rest:
	case <-ctx.Done():
	case <-late:
		kill()
	}
}

// Serve says which process works on the turn, where the session may have had
// others. Begin calls it.
func (t *Turn[W]) Serve(gone <-chan struct{}, exit func() error) { t.gone, t.exit = gone, exit }

// await waits for the end of a turn, and brings it about when somebody wants it.
func (t *Turn[W]) await(w *Waiting, s *Script[W]) Verdict {
	select {
	case v := <-t.verdict:
		return v
	case <-t.gone:
		return t.last()
	case <-w.Cancelled:
	case <-w.closed: // its agent may be one that serves other sessions, and goes on
	case <-w.ctx.Done():
	case <-t.stopped:
	}
	if t.Stop(); t.Stopping() { // else it has its verdict
		t.Go(func(ctx context.Context) { s.Stop(ctx, t) })
	}
	late, stop := awake.After(s.Bound)
	defer stop()
	select {
	case v := <-t.verdict:
		return v
	case <-t.gone:
		return t.last()
	case <-late:
	}
	if s.Kill == nil {
		s.Log.Warn("a cancelled turn does not end")
		return Verdict{Left: true}
	}
	s.Log.Warn("a cancelled turn did not end, so its process is ended")
	s.Kill(t)
	<-t.gone
	return t.last()
}

// last is the verdict of a turn whose agent is gone.
func (t *Turn[W]) last() Verdict {
	select {
	case v := <-t.verdict:
		return v
	default:
		return Verdict{Err: t.turns.unlessClosed(t.exit())}
	}
}

// Waiting is a prompt whose turn has not begun. The errors of its methods are
// what the turn ends with then.
type Waiting struct {
	Cancelled <-chan struct{} // closed when the prompt is cancelled

	ctx    context.Context
	gone   <-chan struct{}
	closed <-chan struct{} // of the turns
	exit   func() error
}

// Context is that of the request.
func (w *Waiting) Context() context.Context { return w.ctx }

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
	if err := w.Check(); err != nil { // c may be closed as well
		return err
	}
	select {
	case <-c:
		return nil
	case <-enough:
		return nil
	case <-w.Cancelled:
		return ErrCancelled
	case <-w.closed:
		return ErrCancelled
	case <-w.ctx.Done():
		return w.ctx.Err()
	case <-w.gone:
		return w.exit()
	}
}

// Giving returns a context for giving the agent the prompt: it ends bound after the prompt is
// cancelled, its session ends, or nobody waits for it any more. done must be called when it was given.
func (w *Waiting) Giving(bound time.Duration) (ctx context.Context, done func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.ctx))
	over := make(chan struct{})
	go func() {
		defer close(over)
		select {
		case <-w.Cancelled:
		case <-w.closed:
		case <-w.ctx.Done():
		case <-ctx.Done():
			return
		}
		late, stop := awake.After(bound)
		defer stop()
		select {
		case <-late:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		cancel()
		<-over
	}
}

// Check fails when the prompt is cancelled already, or its session has ended.
func (w *Waiting) Check() error {
	select {
	case <-w.Cancelled:
		return ErrCancelled
	case <-w.closed:
		return ErrCancelled
	default:
		return nil
	}
}
