package agentcache

import "testing"

func TestIsOf(t *testing.T) {
	for _, tt := range []struct {
		agents, dir, test string
		want              bool
	}{
		{"", "/x/adapters/pi", "TestLive_Ask", false},
		{"pi", "/x/adapters/pi", "TestLive_Ask", true},
		{"codex pi", "/x/adapters/pi", "TestLive_Ask", true},
		{"codex", "/x/adapters/pi", "TestLive_Ask", false},
		{"codex", "/x/cmd/sandbox-agent", "TestReal_CodexEarly/exec", true},
		{"codex", "/x/cmd/sandbox-agent", "TestReal_Turns/codex-0.139", true},
		{"codex", "/x/cmd/sandbox-agent", "TestReal_Turns/pi", false},
		{"pi", "/x/cmd/sandbox-agent", "TestReal_Copilot", false},
		{"pi", "/x/cmd/sandbox-agent", "TestReal_Pinned", false},
		{"pi", "/x/cmd/sandbox-agent", "TestReal_PiEarly", true},
	} {
		if got := isOf(tt.agents, tt.dir, tt.test); got != tt.want {
			t.Errorf("isOf(%q, %q, %q) = %v", tt.agents, tt.dir, tt.test, got)
		}
	}
}
