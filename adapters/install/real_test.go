package install

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/internal/agentcache"
)

// TestReal installs the agents themselves, through the npm client.
func TestReal(t *testing.T) {
	agentcache.Long(t, "the other tests install each agent's program on their own way to it")
	in := New(Options{DataDir: t.TempDir(), Sources: []Source{NPM}})
	for _, agent := range []string{"claude", "codex", "opencode", "gemini", "qwen", "copilot"} {
		t.Run(agent, func(t *testing.T) {
			var steps []string
			r, err := in.Install(t.Context(), Request{Agent: agent, Progress: func(p Progress) {
				steps = append(steps, strings.TrimSpace(string(p.Step)+" "+p.Detail))
			}})
			p, ok := errors.AsType[*problem.Error](err)
			says := func(word string) bool { return ok && strings.Contains(p.Detail, word) }
			if says("cannot be reached") || says(errMissing.Error()) || says("install a newer Node.js") {
				t.Skipf("npm, its registry or a Node.js that is new enough is not available: %v", err)
			}
			if err != nil {
				t.Fatal(err)
			}
			rel, _ := filepath.Rel(in.root, r.Program)
			t.Logf("%s %s: %s; says %q after %s; %s", agent, r.Version, rel, r.Reported, r.Handshake, strings.Join(steps, ", "))
			if !strings.Contains(r.Reported, r.Version) {
				t.Errorf("installed %s, but the program says %q", r.Version, r.Reported)
			}
			if again, err := in.Install(t.Context(), Request{Agent: agent}); err != nil || !again.Already {
				t.Errorf("again: %+v, %v", again, err)
			}
			if i, ok := in.Find(agent); !ok || i.Program != r.Program || i.Artifacts[0].SHA256 == "" {
				t.Errorf("found %+v, %t", i, ok)
			}
		})
	}
}
