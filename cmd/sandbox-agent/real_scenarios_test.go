package main_test

import (
	"os"
	"slices"
	"testing"

	"sandboxagent.dev/sandbox-agent/adapters/amp"
	"sandboxagent.dev/sandbox-agent/internal/agentcache"
)

// bridged is an agent with a bridge of its own, and what its scenarios need. {model}
// in env and files stands for the model's.
type bridged struct {
	id      string
	program func(t *testing.T) string
	env     []string
	files   map[string]string // below HOME

	own map[string][]string // scenarios beside those that agents share, by topic

	// What takes the credentials away.
	keylessEnv   []string
	keylessFiles map[string]string
}

// shared are the scenarios that each agent plays, or says why it does not, by
// topic. Their steps stand in testdata/node/TOPIC.mjs.
var shared = map[string][]string{
	"turns": {
		"usage and title", "a command is listed and run", "text without duplicates", "thinking", "command output", "live output of a command",
		"failed command", "large output is shortened", "changed files are shown as diffs", "plan", "parallel calls",
		"unknown tool is a failed call", "image, resource and link in a prompt", "bad key ends the prompt at once",
		"provider's refusal is quoted", "max_tokens and refusal", "retry is noticed", "cancel while streaming", "cancel at once",
		"cancel while a command runs", "cancel when idle", "a second prompt waits", "compaction", "subagent belongs to its call", "sessions at once",
	},
	"asks": {
		"read is a read", "permission allowed once is asked again", "permission allowed for the session is not asked again",
		"permission rejected, and the turn goes on", "permission answered as cancelled ends the turn", "cancel while a permission is open",
		"permission inside a subagent", "question as elicitation", "question by the gateway's extension", "question as permission requests",
		"mode by set_mode", "mode by config option", "model and effort in a running session", "model and effort at the start",
		"instructions, system prompt and skills", "a skill is used", "additional directories", "what has no effect is listed",
	},
	"sessions": {
		"session of a terminal is listed and loaded", "closed, loaded and resumed, with turns of a terminal between", "two clients on one session, which is deleted",
		"fork knows the past and is on its own", "unknown session", "process killed in the middle of turns", "an agent whose files are gone says so", "gateway killed and restarted",
	},
	"nokey": {"no key is said at once", "each field of a session's own credentials is used, or refused"},
}

var claude = bridged{
	id:           "claude",
	keylessEnv:   []string{"ANTHROPIC_API_KEY=", "ANTHROPIC_BASE_URL=http://127.0.0.1:9"},
	keylessFiles: map[string]string{".claude/settings.json": `{"env":{"ANTHROPIC_BASE_URL":"http://127.0.0.1:9"}}`},
	program:      installed("claude", agentcache.Claude),
	env: append([]string{
		"IS_SANDBOX=", "ANTHROPIC_BASE_URL={model}", "ANTHROPIC_API_KEY=sk-ant-not-a-key",
		"DISABLE_AUTOUPDATER=1", "DISABLE_TELEMETRY=1", "DISABLE_ERROR_REPORTING=1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1",
	}, agentcache.ClaudeEnv()...),
	own: map[string][]string{
		"turns": {"calls end as they are ready", "image result", "retry is a thought without notices", "max turns", "a turn that nobody prompted"},
		"asks": {
			"plan accepted, each edit is asked for", "plan accepted with all edits", "plan accepted, the model decides", "plan rejected",
			"bypass as root needs a sandbox", "MCP server on stdio", "MCP server asks the user", "environment",
		},
		"sessions": {
			"one client answers, the other cancels",
		},
	},
}

// codexConfig makes Codex talk to the scripted model, with the classic tools.
const codexConfig = `model = "gpt-5.5"
model_provider = "scripted"
[model_providers.scripted]
name = "Scripted"
base_url = "{model}/v1"
wire_api = "responses"
env_key = "SCRIPTED_KEY"
request_max_retries = 1
stream_max_retries = 2
[analytics]
enabled = false
`

var codex = bridged{
	id:      "codex",
	program: installed("codex", agentcache.Codex),
	env:     []string{"SCRIPTED_KEY=not-a-key"},
	files:   map[string]string{".codex/config.toml": codexConfig},

	keylessFiles: map[string]string{".codex/config.toml": "model = \"gpt-5.5\"\nopenai_base_url = \"http://127.0.0.1:9/v1\"\n"},

	own: map[string][]string{
		"turns": {"review", "command left running ends behind its turn"},
		"asks":  {"patch outside the workspace asks with its diff", "permissionMode of a new session"},
	},
}

// opencode talks to the scripted model, and asks about files that are touched and
// about those that are guarded.
var opencode = bridged{
	id:           "opencode",
	keylessFiles: map[string]string{".config/opencode/opencode.json": `{"share": "disabled", "enabled_providers": ["anthropic"]}`},
	program:      installed("opencode", agentcache.OpenCode),
	env:          append([]string{"OPENCODE_DISABLE_MODELS_FETCH=1", "npm_config_registry=http://127.0.0.1:9/", "OPENCODE_MODELS_PATH={home}/models.json"}, agentcache.OpenCodeEnv()...),
	files: map[string]string{"models.json": agentcache.OpenCodeModels, ".config/opencode/opencode.json": `{
	"share": "disabled", "model": "scripted/large", "small_model": "scripted/small", "enabled_providers": ["scripted"],
	"permission": {"bash": {"*": "allow", "touch *": "ask"}, "edit": {"*guarded*": "ask"}},
	"provider": {"scripted": {
		"name": "Scripted", "npm": "@ai-sdk/openai-compatible", "options": {"baseURL": "{model}/v1", "apiKey": "key-of-the-provider"},
		"models": {
			"large": {"name": "Large", "tool_call": true, "reasoning": true, "attachment": true,
				"modalities": {"input": ["text", "image"], "output": ["text"]},
				"variants": {"low": {"reasoningEffort": "low"}, "high": {"reasoningEffort": "high"}},
				"limit": {"context": 200000, "output": 8192}, "cost": {"input": 1, "output": 2}},
			"small": {"name": "Small", "tool_call": true, "limit": {"context": 32000, "output": 4096}}
		}
	}}
}`},
	own: map[string][]string{
		"turns": {"text is not repeated after a broken stream", "cancel during a retry", "undo and redo", "cancel reaches a subagent"},
		"asks": {
			"permission rejected, and the turn ends", "one of two permissions is rejected", "edit asks with its diff", "outside of the workspace asks",
			"permission inside a subagent is rejected", "question is rejected", "cancel while a question is open", "permissionMode readonly",
			"permissionMode write reaches subagents", "permissionMode bypass", "keys do not leak", "mcp servers belong to their session",
			"a directory that does not exist",
		},
		"sessions": {"the user's .opencode is left as it was"},
	},
}

// ampAgent has settings of the user's: what most scenarios run is allowed, listing
// is not.
var ampAgent = bridged{
	id:         "amp",
	keylessEnv: []string{"AMP_API_KEY=", "AMP_URL=http://127.0.0.1:9"},
	program: func(t *testing.T) string {
		version := amp.Verified
		if v := os.Getenv("SANDBOX_AGENT_TEST_AMP"); v != "" {
			version = v
		}
		return agentcache.NPM(t, "@sourcegraph/amp/dist/main.js", "@sourcegraph/amp@"+version)
	},
	env: []string{"AMP_URL={model}", "AMP_API_KEY=sgamp_somebody", "AMP_SKIP_UPDATE_CHECK=1"},
	files: map[string]string{".config/amp/settings.json": `{
	"amp.permissions": [
		{"tool": "Bash", "matches": {"cmd": "ls *"}, "action": "ask"},
		{"tool": "Bash", "matches": {"cmd": ["echo *", "sleep *", "nohup *"]}, "action": "allow"}
	]
}`},
	own: map[string][]string{
		"turns": {
			"several prompts in one process", "cancel while the model thinks",
			"a server that a turn leaves running outlives it, not the session",
		},
		"asks": {
			"permission answered late", "another client answers", "parallel permissions",
			"the user's settings are honoured and unchanged", "settings of a workspace that decide are refused",
			"mode at the start, and one that is not allowed",
		},
	},
}

var pi = bridged{
	id:           "pi",
	keylessFiles: map[string]string{".pi/agent/models.json": `{"providers":{}}`},
	program:      func(t *testing.T) string { return agentcache.PiScript(t, agentcache.Pi).File },
	env:          []string{"PI_OFFLINE=1", "VERSION=" + agentcache.Pi},
	files: map[string]string{
		".pi/agent/models.json": `{"providers":{"scripted":{"baseUrl":"{model}/v1","api":"openai-completions","apiKey":"not-a-key","models":[
	{"id":"one","name":"Model One","reasoning":true,"input":["text","image"],"contextWindow":128000,"maxTokens":4096,"cost":{"input":1,"output":2,"cacheRead":0,"cacheWrite":0}},
	{"id":"two","name":"Model Two","reasoning":true,"input":["text"],"contextWindow":64000,"maxTokens":4096,"cost":{"input":1,"output":2,"cacheRead":0,"cacheWrite":0}}]}}}`,
		".pi/agent/settings.json":    `{"defaultProvider":"scripted","defaultModel":"one","retry":{"maxRetries":2,"baseDelayMs":50}}`,
		".pi/agent/prompts/greet.md": "---\ndescription: Greets\n---\nsay greetings to $1\n",
	},
	own: map[string][]string{
		"turns": {"text is not repeated after a broken stream", "a command of the user's"},
		"asks":  {"nobody answers until somebody comes", "permissionMode of a new session", "MCP server", "extension asks the client"},
	},
}

// playAll plays a topic with each agent.
func playAll(t *testing.T, topic string, prepare func(r *realRun)) {
	t.Helper()
	t.Parallel()
	for _, b := range []*bridged{&claude, &codex, &opencode, &ampAgent, &pi} {
		t.Run(b.id, func(t *testing.T) {
			t.Parallel()
			r := b.real(t)
			prepare(r)
			r.play(topic, slices.Concat(shared[topic], b.own[topic])...)
		})
	}
}

// What a turn shows and how it ends, over HTTP.
func TestReal_Turns(t *testing.T) { playAll(t, "turns", func(*realRun) {}) }

// What the agent asks and what clients set, over WebSocket.
func TestReal_Asks(t *testing.T) { playAll(t, "asks", func(*realRun) {}) }

// Where sessions come from, how they go on and how they end; last, the gateway is
// killed in the middle of conversations.
func TestReal_Sessions(t *testing.T) { playAll(t, "sessions", func(*realRun) {}) }

// Nobody has given the agent credentials.
func TestReal_NoKey(t *testing.T) {
	playAll(t, "nokey", func(r *realRun) {
		r.set(r.keylessEnv...)
		for name, content := range r.keylessFiles {
			r.write(name, content)
		}
	})
}

// A version of Pi that does not say when it has settled.
func TestReal_PiEarly(t *testing.T) {
	t.Parallel()
	agentcache.Long(t, "a version that few still have")
	legacy := pi
	legacy.program = func(t *testing.T) string { return agentcache.PiScript(t, agentcache.PiLegacy).File }
	r := legacy.real(t)
	r.set("VERSION=" + agentcache.PiLegacy)
	r.play(
		"early", "a turn with a permission", "cancel while a permission is open", "model by a new process", "what it lacks is said",
		"closed and loaded",
	)
}
