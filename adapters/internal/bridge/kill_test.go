package bridge_test

import (
	"strconv"
	"syscall"
	"testing"
)

// kill ends a process that a test left on purpose.
func kill(t *testing.T, pid string) {
	t.Helper()
	n, err := strconv.Atoi(pid)
	if err == nil {
		err = syscall.Kill(n, syscall.SIGKILL)
	}
	if err != nil {
		t.Error(err)
	}
}
