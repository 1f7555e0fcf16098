package awake

import (
	"context"
	"time"
)

// WithTimeoutCause is [context.WithTimeoutCause] for time awake. The context has no deadline that it could tell.
func WithTimeoutCause(ctx context.Context, d time.Duration, cause error) (context.Context, context.CancelFunc) {
	ctx, end := context.WithCancelCause(ctx)
	timer := AfterFunc(d, func() { end(cause) })
	return within{ctx, cause}, func() {
		timer.Stop()
		end(context.Canceled)
	}
}

// within is a context whose time is over when its cause says so.
type within struct {
	context.Context
	late error
}

// Err implements [context.Context].
func (w within) Err() error {
	err := w.Context.Err()
	if err != nil && context.Cause(w.Context) == w.late {
		return context.DeadlineExceeded
	}
	return err
}
