package cmdline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// madePatience is how long who leaves waits for the answer that names what was made.
const madePatience = 5 * time.Second

// UnansweredError is of who was told to make something, and did not answer in time: it may be there, under a name that
// nobody here knows.
type UnansweredError struct {
	What  string // may be there, and how to find out
	Cause error  // why no answer is waited for
}

func (e *UnansweredError) Error() string { return e.What + ": " + e.Cause.Error() }

// Unwrap returns the cause.
func (e *UnansweredError) Unwrap() error { return e.Cause }

// Made returns what ask has a server make, which has a name by the server's answer only. When a signal ends ctx, that
// answer has some seconds to come, which notes says: else something is there that nobody knows. A time of ctx that is over
// ends it at once.
// Where no answer came the error is an [UnansweredError] with what may be there.
func Made[T any](ctx context.Context, notes io.Writer, what string, ask func(context.Context) (T, error)) (T, error) {
	if ctx.Err() != nil {
		var none T
		return none, context.Cause(ctx)
	}
	asking, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(nil)
	defer context.AfterFunc(ctx, func() {
		cause := context.Cause(ctx)
		if errors.Is(cause, context.DeadlineExceeded) {
			end(cause)
			return
		}
		fmt.Fprintln(notes, "waiting for the answer, Ctrl-C again to leave at once")
		time.AfterFunc(madePatience, func() { end(cause) })
	})()
	made, err := ask(asking)
	if err != nil && asking.Err() != nil {
		err = &UnansweredError{what, context.Cause(asking)}
	}
	return made, err
}
