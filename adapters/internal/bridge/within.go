package bridge

import (
	"context"
	"fmt"
	"time"

	"sandboxagent.dev/sandbox-agent/internal/awake"
)

// Within is context.WithTimeout, by time awake, for what an agent's program is asked. When the time is over the error of the context
// says so to people, and is a context.DeadlineExceeded as well.
func Within(ctx context.Context, bound time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := awake.WithTimeoutCause(ctx, bound, late(bound))
	return within{ctx}, cancel
}

// within is a context with a bound of its own.
type within struct{ context.Context }

// Err implements [context.Context].
func (w within) Err() error {
	err := w.Context.Err()
	if l, ok := context.Cause(w.Context).(late); err != nil && ok { // its own, or that of a bound around it
		return l
	}
	return err
}

// late is the error of a program that has not answered for so long.
type late time.Duration

func (l late) Error() string {
	return fmt.Sprintf("no answer within %v: try again; if it goes on so, close the session, which ends its process, and load it again", time.Duration(l))
}

// Is reports whether target is the end of a time.
func (l late) Is(target error) bool { return target == context.DeadlineExceeded }

// Timeout is what errors of the network have.
func (l late) Timeout() bool { return true }
