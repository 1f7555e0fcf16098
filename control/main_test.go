package control

import (
	"flag"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// patience bounds what would otherwise wait for ever.
const patience = 2 * time.Minute

var update = flag.Bool("update", false, "rewrite generated files")

func TestMain(m *testing.M) {
	// The thread that starts processes lives as long as the program.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("sandboxagent.dev/sandbox-agent/internal/process.startAll"))
}

// tick is done a moment from now, for states that nobody announces.
func tick(t *testing.T) <-chan time.Time {
	timer := time.NewTimer(10 * time.Millisecond)
	t.Cleanup(func() { timer.Stop() })
	return timer.C
}
