package claude

import (
	"testing"

	"sandboxagent.dev/sandbox-agent/adapters/adaptertest"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridgetest"
	"sandboxagent.dev/sandbox-agent/internal/scriptedmodel"
)

// isAgent is a shell condition: p is the agent.
const isAgent = `[ "$(cat /proc/$p/comm)" = claude ]`

func TestContract(t *testing.T) {
	w := newWorld(t)
	w.Write(".claude/settings.json", `{"permissions":{"allow":["Read","Bash(sh:*)"]}}`, 0o600)
	prompts := w.Prompts(isAgent)
	prompts.Behind = adaptertest.Prompt{Text: "delegate"} // to a subagent, which asks when the turn is over
	w.Model.On(scriptedmodel.Exactly("look around"), scriptedmodel.Step{scriptedmodel.Shell("touch by-sub")}, scriptedmodel.Step{scriptedmodel.Say("the report")})
	w.Model.OnRequest(scriptedmodel.Exactly("delegate"), func(r *scriptedmodel.Request) []scriptedmodel.Step {
		say := "delegated"
		if notified(r) {
			say = "noticed"
		}
		return []scriptedmodel.Step{{scriptedmodel.Call("Agent", map[string]any{
			"description": "Look", "prompt": "look around", "subagent_type": "general-purpose", "run_in_background": true,
		})}, {scriptedmodel.Say(say)}}
	})
	adaptertest.Run(t, adaptertest.Subject{
		Adapter:   w.Adapter(),
		Servers:   true,
		Forget:    w.Forget(".claude/projects"),
		Elsewhere: bridgetest.Scenarios("lost-record"),
		Prompts:   prompts,
		Crash:     adaptertest.Crash{Code: -1, Stderr: "about to crash"},
		Unshown:   shownBy().Elsewhere(),
		Skip: map[string]string{
			"10-MiB-message": "claude refuses prompts beyond the model's context; TestLargeMessages has the largest that it takes",
		},
	})
}
