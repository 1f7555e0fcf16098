package bridge_test

import (
	"strconv"
	"testing"

	"sandboxagent.dev/sandbox-agent/adapters/internal/bridgetest"
)

// kill ends a process that a test left on purpose.
func kill(t *testing.T, pid string) {
	t.Helper()
	n, err := strconv.Atoi(pid)
	if err == nil {
		err = bridgetest.Kill(n)
	}
	if err != nil {
		t.Error(err)
	}
}
