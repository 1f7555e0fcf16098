package cmdline

import (
	"os"
	"testing"
)

func TestUnsetEmpty(t *testing.T) {
	for name, value := range map[string]string{"SANDBOX_TEST_EMPTY": "", "SANDBOX_TEST_FULL": "1", "SANDBOX_OTHER": ""} {
		t.Setenv(name, value)
	}
	UnsetEmpty("SANDBOX_TEST_")
	for name, want := range map[string]bool{"SANDBOX_TEST_EMPTY": false, "SANDBOX_TEST_FULL": true, "SANDBOX_OTHER": true} {
		if _, there := os.LookupEnv(name); there != want {
			t.Errorf("%s is set: %v", name, there)
		}
	}
}
