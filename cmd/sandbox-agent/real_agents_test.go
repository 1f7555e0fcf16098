package main_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/internal/agentcache"
	"sandboxagent.dev/sandbox-agent/internal/scriptedmodel"
)

// realAgent is an agent from npm and what to know about it.
type realAgent struct {
	id       string // in the gateway
	builtIn  bool   // the gateway knows the agent; otherwise its command is given
	packages []string
	file     string // to run, below node_modules; a .js file runs with node
	args     []string
	env      func(m *scriptedmodel.Model) []string
	files    func(m *scriptedmodel.Model) map[string]string // below HOME
	usage    func(turn *realTurn) bool                      // finds 100 input and 20 output tokens; nil if the agent does not say
	goesOn   bool                                           // the model is asked again after a rejection
	writes   string                                         // a file that it can write through its client; "" if it does not
	age      func(t *testing.T, home string)                // makes sessions look old; nil if that is not needed
	quirks   map[string]string                              // assertions that fail, with the reason
}

// sometimes begins the reason of a quirk that is not seen every time.
const sometimes = "sometimes "

// install installs the agent and returns what makes the gateway use it.
func (a *realAgent) install(t *testing.T) (flags, env []string) {
	t.Helper()
	path := agentcache.NPM(t, a.file, a.packages...)
	if a.builtIn {
		return nil, []string{
			"SANDBOX_AGENT_" + strings.ToUpper(a.id) + "_BIN=" + path,
			"PATH=" + filepath.Dir(agentcache.Node(t)) + string(filepath.ListSeparator) + os.Getenv("PATH"), // most are scripts that env runs
		}
	}
	line := quoteArg(path)
	if filepath.Ext(path) == ".js" {
		line = quoteArg(agentcache.Node(t)) + " " + line
	}
	for _, arg := range a.args {
		line += " " + quoteArg(arg)
	}
	return []string{"--agent-command", a.id + "=" + line}, nil
}

func quoteArg(s string) string { return "'" + s + "'" }

// write puts the agent's configuration into its home.
func (a *realAgent) write(t *testing.T, home string, m *scriptedmodel.Model) {
	t.Helper()
	if a.files == nil {
		return
	}
	for name, content := range a.files(m) {
		path := filepath.Join(home, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

var geminiAgent = realAgent{
	id:       "gemini",
	builtIn:  true,
	packages: []string{"@google/gemini-cli@" + agentcache.Gemini},
	file:     ".bin/gemini",
	env: func(m *scriptedmodel.Model) []string {
		return []string{"GEMINI_API_KEY=no-secret", "GOOGLE_GEMINI_BASE_URL=" + m.URL, "GEMINI_TELEMETRY_ENABLED=false", "GEMINI_CLI_NO_RELAUNCH=true"}
	},
	files: func(*scriptedmodel.Model) map[string]string {
		return map[string]string{".gemini/settings.json": `{"general":{"enableAutoUpdate":false},"privacy":{"usageStatisticsEnabled":false},"security":{"auth":{"selectedType":"gemini-api-key"}}}`}
	},
	usage: func(turn *realTurn) bool {
		return strings.Contains(string(turn.result), `"quota":{"token_count":{"input_tokens":100,"output_tokens":20}`)
	},
	goesOn: true,
	writes: "notes.txt",
	age: func(t *testing.T, home string) {
		// The name of a session's file has the minute of its creation. If it is
		// loaded in the same minute, the agent takes its file for a new one and
		// empties the conversation.
		files, err := filepath.Glob(filepath.Join(home, ".gemini/tmp/workspace/chats/session-*.jsonl"))
		if err != nil || len(files) == 0 {
			t.Fatalf("no session's file: %v", err)
		}
		for i, f := range files { // two, if the minute ended between two steps of the creation
			name := fmt.Sprintf("session-2020-01-01T00-%02d-%s", i, f[strings.LastIndexByte(f, '-')+1:])
			if err := os.Rename(f, filepath.Join(filepath.Dir(f), name)); err != nil {
				t.Fatal(err)
			}
		}
	},
	quirks: map[string]string{
		"thought-changed":     "each chunk of a thought begins with asterisks and a line break",
		"provider-error-code": "the provider's HTTP status is the JSON-RPC code",
	},
}

var qwenAgent = realAgent{
	id:       "qwen",
	builtIn:  true,
	packages: []string{"@qwen-code/qwen-code@" + agentcache.Qwen},
	file:     ".bin/qwen",
	env: func(m *scriptedmodel.Model) []string {
		return []string{"OPENAI_API_KEY=no-secret", "OPENAI_BASE_URL=" + m.URL + "/v1", "OPENAI_MODEL=scripted-1", "QWEN_CODE_NO_RELAUNCH=1"}
	},
	files: func(*scriptedmodel.Model) map[string]string {
		return map[string]string{".qwen/settings.json": `{"general":{"enableAutoUpdate":false,"preventSystemSleep":false},"privacy":{"usageStatisticsEnabled":false},` + agentcache.QwenTools + `}`}
	},
	usage: func(turn *realTurn) bool {
		return slices.ContainsFunc(turn.frames, func(m message) bool {
			return strings.Contains(string(m.raw), `"usage":{"inputTokens":100,"outputTokens":20,`)
		})
	},
	writes: "new.txt",
	quirks: map[string]string{
		"empty-chunk":        "usage is sent as a chunk without text",
		"replay-empty-chunk": "usage is sent as a chunk without text",
		"invalid-frame":      "its own notifications have names that the protocol keeps for itself: qwen/notify/...",
	},
}

var openCodeAgent = realAgent{
	id:       "opencode-acp",
	packages: []string{"opencode-ai@1.18.33"},
	file:     "opencode-" + nodePlatform + "/bin/opencode",
	args:     []string{"acp"},
	env: func(*scriptedmodel.Model) []string {
		return []string{"OPENCODE_DISABLE_AUTOUPDATE=1", "OPENCODE_DISABLE_MODELS_FETCH=1", "OPENCODE_DISABLE_LSP_DOWNLOAD=1", "OPENCODE_DISABLE_SHARE=1"}
	},
	files: func(m *scriptedmodel.Model) map[string]string {
		return map[string]string{".config/opencode/opencode.json": `{
			"autoupdate": false, "share": "disabled", "model": "scripted/scripted-1", "small_model": "scripted/scripted-1",
			"enabled_providers": ["scripted"], "permission": {"bash": "ask"},
			"provider": {"scripted": {
				"name": "Scripted", "npm": "@ai-sdk/openai-compatible", "options": {"baseURL": "` + m.URL + `/v1", "apiKey": "no-secret"},
				"models": {"scripted-1": {"name": "Scripted 1", "tool_call": true, "reasoning": true, "limit": {"context": 200000, "output": 8192}, "cost": {"input": 1, "output": 2}}}
			}}
		}`}
	},
	usage: func(turn *realTurn) bool {
		return strings.Contains(string(turn.result), `"usage":{"inputTokens":100,"outputTokens":20,`)
	},
}

var copilotAgent = realAgent{
	id:       "copilot",
	builtIn:  true,
	packages: []string{"@github/copilot@" + agentcache.Copilot},
	file:     "@github/copilot-" + nodePlatform + "/copilot",
	env: func(m *scriptedmodel.Model) []string {
		return []string{
			"COPILOT_OFFLINE=true", "COPILOT_PROVIDER_BASE_URL=" + m.URL + "/v1",
			"COPILOT_PROVIDER_API_KEY=no-secret", "COPILOT_MODEL=scripted-1",
		}
	},
	usage: func(turn *realTurn) bool {
		return strings.Contains(string(turn.result), `"inputTokens":100,"outputTokens":20`)
	},
	quirks: map[string]string{
		"provider-error-is-no-error": "the error is a chunk of the answer and the turn ends as if all was well",
		"readonly-is-refused":        "its plan mode carries plans out",
	},
}

// nodePlatform is how packages with a program for one platform end.
var nodePlatform = runtime.GOOS + "-" + map[string]string{"amd64": "x64", "arm64": "arm64"}[runtime.GOARCH]

func TestReal_Gemini(t *testing.T)  { testReal(t, &geminiAgent) }
func TestReal_Qwen(t *testing.T)    { testReal(t, &qwenAgent) }
func TestReal_Copilot(t *testing.T) { testReal(t, &copilotAgent) }

func TestReal_OpenCode(t *testing.T) {
	agentcache.Long(t, "OpenCode is proven through its bridge, and what agents that speak ACP themselves need by three others")
	testReal(t, &openCodeAgent)
}
