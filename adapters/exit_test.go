package adapters

import "testing"

// Warnings are no reason why a process has ended.
func TestExitError_LastWords(t *testing.T) {
	for stderr, want := range map[string]string{
		"": "the agent process exited with code 1",
		"(node:7) ExperimentalWarning: SQLite is new\n(Use `node --trace-warnings ...` to show where)": "the agent process exited with code 1",
		"Warning: no cache\nWARN no telemetry\n[warn] old\nDeprecationWarning: x":                      "the agent process exited with code 1",
		"warning: no cache\nfatal: no disk\n":                                                          "the agent process exited with code 1; its stderr ends with: fatal: no disk",
		"WARNING: proceeding, even though we could not create PATH aliases: Refusing\n2026-11-27T11:01:51.090253Z ERROR codex_app_server: the state database is locked\n2026-11-27T11:01:51.090314Z ERROR codex_app_server: Codex could not find bubblewrap on PATH. Install bubblewrap\n2026-11-27T11:01:51.09Z  WARN codex_core: slow\n": "the agent process exited with code 1; its stderr ends with: 2026-11-27T11:01:51.090253Z ERROR codex_app_server: the state database is locked",
		"2026-11-27T11:01:51.090314Z ERROR codex_app_server: Codex could not find bubblewrap on PATH. Install bubblewrap\n": "the agent process exited with code 1",
		"warnings are off; it broke": "the agent process exited with code 1; its stderr ends with: warnings are off; it broke",
	} {
		if got := (&ExitError{Code: 1, Stderr: Stderr{Tail: stderr}}).Error(); got != want {
			t.Errorf("%q: %s", stderr, got)
		}
	}
}
