package agentcache

// The newest versions of agents that speak ACP themselves with which all tests
// passed.
const (
	Gemini  = "0.61.0"
	Qwen    = "0.24.4"
	Copilot = "1.0.102"
)

// The versions of agents from npm that speak version 2 of ACP, too, with which all tests
// passed.
const (
	ClaudeACP = "0.100.0"
	CodexACP  = "2.6.0"
)
