package adapters

import "testing"

// Warnings are no reason why a process has ended.
func TestExitError_LastWords(t *testing.T) {
	for stderr, want := range map[string]string{
		"": "the agent process exited with code 1",
		"(node:7) ExperimentalWarning: SQLite is new\n(Use `node --trace-warnings ...` to show where)": "the agent process exited with code 1",
		"Warning: no cache\nWARN no telemetry\n[warn] old\nDeprecationWarning: x":                      "the agent process exited with code 1",
		"warning: no cache\nfatal: no disk\n":                                                          "the agent process exited with code 1; its stderr ends with: fatal: no disk",
		"warnings are off; it broke":                                                                   "the agent process exited with code 1; its stderr ends with: warnings are off; it broke",
	} {
		if got := (&ExitError{Code: 1, Stderr: Stderr{Tail: stderr}}).Error(); got != want {
			t.Errorf("%q: %s", stderr, got)
		}
	}
}
