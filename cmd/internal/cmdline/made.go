package cmdline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/acphttp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
)

// madePatience is how long who leaves waits for the answer that names what was made.
const madePatience = 5 * time.Second

// UnansweredError says that a server did not answer whether it has made something. It may be there, under a name that nobody here
// knows.
type UnansweredError struct {
	What  string // may be there, and how to find out
	Cause error  // why no answer is waited for
}

func (e *UnansweredError) Error() string { return e.What + ": " + e.Cause.Error() }

// Unwrap returns the cause.
func (e *UnansweredError) Unwrap() error { return e.Cause }

// RefusedError is a server's answer that came behind a signal: nothing was made, and it says why.
type RefusedError struct{ error }

// Unwrap returns the answer.
func (e *RefusedError) Unwrap() error { return e.error }

// Made returns what ask has a server make, which has a name by the server's answer only. When a signal ends ctx, that
// answer has some seconds to come, which notes says: else something is there that nobody knows. A time of ctx that is over
// ends it at once.
// Where the server was asked and its answer did not come, the error is an [UnansweredError] with what may be there. One that it
// gave when ctx had ended is a [RefusedError].
func Made[T any](ctx context.Context, notes io.Writer, what string, ask func(context.Context) (T, error)) (T, error) {
	if ctx.Err() != nil {
		var none T
		return none, context.Cause(ctx)
	}
	asking, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(nil)
	said := make(chan struct{})
	var late *time.Timer
	stop := context.AfterFunc(ctx, func() {
		defer close(said)
		cause := context.Cause(ctx)
		if errors.Is(cause, context.DeadlineExceeded) {
			end(cause)
			return
		}
		fmt.Fprintln(notes, "waiting for the answer, Ctrl-C again to leave at once")
		late = time.AfterFunc(madePatience, func() { end(cause) })
	})
	defer func() {
		if stop() {
			return
		}
		if <-said; late != nil {
			late.Stop()
		}
	}()
	made, err := ask(asking)
	switch {
	case err == nil, ctx.Err() == nil && !unanswered(err):
		return made, err
	case ctx.Err() == nil: // the connection broke, or a proxy has answered
		return made, &UnansweredError{what, err}
	case answers(err):
		return made, &RefusedError{err}
	}
	return made, &UnansweredError{what, context.Cause(ctx)} // nobody waits for an answer any more, or the connection broke
}

// answers reports whether an error is what a server said, and not a proxy before it.
func answers(err error) bool {
	_, refused := errors.AsType[*problem.Error](err)
	_, failed := errors.AsType[*acp.Error](err)
	return (refused || failed) && !errors.Is(err, acphttp.ErrUnexplained)
}

// unanswered reports whether a server may have been asked, and has not answered.
func unanswered(err error) bool {
	if errors.Is(err, acphttp.ErrUnexplained) {
		return true
	}
	op, ok := errors.AsType[*net.OpError](err)
	return Unreachable(err) && !answers(err) && !(ok && op.Op == "dial")
}
