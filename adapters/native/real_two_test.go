package native_test

import (
	"fmt"
	"testing"

	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/adapters/adaptertest"
	"sandboxagent.dev/sandbox-agent/adapters/native"
	"sandboxagent.dev/sandbox-agent/internal/agentcache"
)

// realTwo runs an agent from npm, which speaks both versions of the protocol, in version
// 2. Its frames are checked against the schema of either version that they are for.
func (w *world) realTwo(id, file, packages string, skip map[string]string, prompts adaptertest.Prompts, env ...string) {
	for name, why := range map[string]string{
		"garbage-line-survived": cannot, "no-goroutine-left": beside, "crash-fails-pending": cannot, "10-MiB-message": "the agent copies it too often for a test",
	} {
		skip[name] = why
	}
	adaptertest.Run(w.t, adaptertest.Subject{
		Adapter: native.NewCustom(adapters.Info{ID: id, Kind: adapters.Custom}, native.Command{
			Path: agentcache.Node(w.t), Args: []string{agentcache.NPM(w.t, file, packages)}, Env: w.env(env...),
		}, true),
		Prompts: prompts,
		Cwd:     w.dir,
		Skip:    skip,
	})
}

func TestReal_CodexACP(t *testing.T) {
	w := newWorld(t)
	agentcache.Turn(t, "codex")
	w.write(".codex/config.toml", fmt.Sprintf(`model = "gpt-5.5"
model_provider = "scripted"
[model_providers.scripted]
name = "Scripted"
base_url = "%s/v1"
wire_api = "responses"
env_key = "SCRIPTED_KEY"
[analytics]
enabled = false
`, w.model.URL))
	const asks = "what it asks about depends on its sandbox, which is not there on every machine; TestReal_ClaudeACP shows it"
	prompts := w.prompts()
	prompts.Ask = adaptertest.Prompt{}
	w.realTwo("codex-acp", "@agentclientprotocol/codex-acp/dist/index.js", "@agentclientprotocol/codex-acp@"+agentcache.CodexACP,
		map[string]string{"permission-allow": asks, "permission-reject": asks, "permission-cancelled": asks}, prompts,
		"CODEX_HOME="+w.home+"/.codex", "SCRIPTED_KEY=not-a-key", "OPENAI_API_KEY=not-a-key")
}

func TestReal_ClaudeACP(t *testing.T) {
	w := newWorld(t)
	agentcache.Turn(t, "claude")
	env := append([]string{
		"ANTHROPIC_BASE_URL=" + w.model.URL, "ANTHROPIC_API_KEY=sk-ant-not-a-key", "IS_SANDBOX=1", "DISABLE_AUTOUPDATER=1", "DISABLE_TELEMETRY=1",
		"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1",
	}, agentcache.ClaudeEnv()...)
	w.realTwo("claude-acp", "@agentclientprotocol/claude-agent-acp/dist/index.js", "@agentclientprotocol/claude-agent-acp@"+agentcache.ClaudeACP,
		map[string]string{}, w.prompts(), env...)
}
