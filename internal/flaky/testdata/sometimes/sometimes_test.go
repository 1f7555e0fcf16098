package sometimes

import (
	"os"
	"testing"
)

func TestAlways(*testing.T) {}

// Each fifth run of it fails, and there are six for each binary.
func TestSometimes(t *testing.T) {
	path := os.Getenv("FLAKY_COUNT")
	b, _ := os.ReadFile(path)
	if len(b)%6 == 4 {
		t.Error("it was the fifth time")
	}
	if err := os.WriteFile(path, append(b, 'x'), 0o600); err != nil {
		t.Error(err)
	}
}
