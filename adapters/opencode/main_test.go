package opencode

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridgetest"
	"sandboxagent.dev/sandbox-agent/internal/agentcache"
)

// version is what the tests run with: SANDBOX_AGENT_TEST_OPENCODE names another.
var version = cmp.Or(os.Getenv("SANDBOX_AGENT_TEST_OPENCODE"), agentcache.OpenCode)

func TestMain(m *testing.M) {
	if addr := os.Getenv(bridgetest.PuppetVar); addr != "" {
		os.Exit(bridgetest.RunPuppet(addr))
	}
	bridgetest.Main(m, "OPENCODE_", "OPENAI_", "ANTHROPIC_", "OPENROUTER_", "GOOGLE_", "GEMINI_", "GROQ_", "XAI_", "XDG_")
}

// config makes OpenCode talk to the scripted model.
const config = `{
	"share": "disabled", "model": "scripted/large", "small_model": "scripted/small", "enabled_providers": ["scripted"],
	"permission": %s,
	"provider": {"scripted": {
		"name": "Scripted", "npm": "@ai-sdk/openai-compatible", "options": {"baseURL": "%s/v1", "apiKey": "the-key-of-the-provider"},
		"models": {
			"large": {"name": "Large", "tool_call": true, "reasoning": true, "attachment": true,
				"modalities": {"input": ["text", "image"], "output": ["text"]},
				"variants": {"low": {"reasoningEffort": "low"}, "high": {"reasoningEffort": "high"}},
				"limit": {"context": 200000, "output": 8192}, "cost": {"input": 1, "output": 2}},
			"small": {"name": "Small", "tool_call": true, "limit": {"context": 32000, "output": 4096}}
		}
	}}
}`

// touching asks before files are touched, and about nothing else.
const touching = `{"bash": {"*": "allow", "touch *": "ask"}, "external_directory": "allow"}`

// Keys of providers that nobody uses here: of the gateway's environment, and of a
// session's env.
const gatewayKey, sessionKey = "the-key-of-the-gateway", "the-key-of-the-session"

// world is where a test has OpenCode.
type world struct {
	*bridgetest.World
	probe *probe // the adapter of TestLive_Shared; nil elsewhere
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := bridgetest.New(t, New(), version)
	url := w.Model.URL
	w.Env = append(w.Env,
		"OPENCODE_MODELS_PATH="+w.Write("models.json", agentcache.OpenCodeModels, 0o600),
		"XDG_CONFIG_HOME="+filepath.Join(w.Home, ".config"), "XDG_DATA_HOME="+filepath.Join(w.Home, ".local/share"),
		"XDG_CACHE_HOME="+filepath.Join(w.Home, ".cache"), "XDG_STATE_HOME="+filepath.Join(w.Home, ".local/state"),
		// What does not go to loopback goes to the model, which refuses it.
		"HTTPS_PROXY="+url, "HTTP_PROXY="+url, "NO_PROXY=127.0.0.1,localhost",
		"https_proxy="+url, "http_proxy="+url, "no_proxy=127.0.0.1,localhost", "npm_config_registry=http://127.0.0.1:9/",
	)
	w.Env = append(w.Env, agentcache.OpenCodeEnv()...)
	w.Env = append(w.Env, "XAI_API_KEY="+sessionKey)
	w.Program.Env = append(w.Program.Env, "GROQ_API_KEY="+gatewayKey)
	o := &world{World: w}
	o.configure(touching)
	return o
}

// configure writes the user's configuration with rules about permissions.
func (w *world) configure(permission string) {
	w.T.Helper()
	w.Write(".config/opencode/opencode.json", fmt.Sprintf(config, permission, w.Model.URL), 0o600)
}

// client is the gateway's end of a connection.
type client struct{ *bridgetest.Client }

func (w *world) open(caps schema.ClientCapabilities, answer bridgetest.Answer) *client {
	w.T.Helper()
	return &client{w.Open(caps, answer)}
}

// stop is how a prompt's response says that it ended.
func stop(raw json.RawMessage) schema.StopReason {
	return schema.StopReason(rawjson.MemberString(raw, "stopReason"))
}
