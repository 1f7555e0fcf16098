package agentcache

// The newest versions of agents that speak ACP themselves with which all tests
// passed.
const (
	Gemini  = "0.61.0"
	Qwen    = "0.24.4"
	Copilot = "1.0.102"
)
