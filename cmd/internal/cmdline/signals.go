package cmdline

import (
	"context"
	"os"
	"os/signal"
	"slices"
	"syscall"
)

// outlives says that the program was started to outlive its terminal, as nohup does it. It is asked before
// anything is told of signals, which ends that.
var outlives = signal.Ignored(syscall.SIGHUP)

// Outlives reports whether the program was started to outlive its terminal: one that hangs up is no reason to end.
func Outlives() bool { return outlives }

// OutlivePipes has a write to an output that nobody reads any more fail, and not end the program. Its children have that
// signal as ever, which they would not if it were ignored.
func OutlivePipes() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) } // which nobody reads

// UntilSignal returns a context that ends with the first of the signals. The second one ends the program at once.
func UntilSignal(ctx context.Context, signals ...os.Signal) (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(ctx, signals...)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

// Ending returns those of the signals that end the program: not the hang-up of a terminal that it was started to
// outlive. That one does nothing to the program from here on; its children can have it as ever.
func Ending(signals ...os.Signal) []os.Signal {
	if !outlives {
		return signals
	}
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP) // which nobody reads. What is ignored would be so in children, too
	return slices.DeleteFunc(signals, func(s os.Signal) bool { return s == syscall.SIGHUP })
}
