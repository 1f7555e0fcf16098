package turn_test

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// The thread that starts processes lives as long as the program.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("sandboxagent.dev/sandbox-agent/internal/process.startAll"))
}
