package pi

import (
	_ "embed"
	"encoding/json"
	"fmt"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

//go:embed gate.mjs
var gateSource []byte

// The names of the gate, and of the session's facts, which may be secret, in the session's folder.
const (
	gateName  = "gate.mjs"
	factsName = "session.json"
)

const (
	gateStatus  = "sandbox-agent-gate" // the key by which the gate announces itself
	gateServers = "sandbox-agent-mcp"  // the key by which it says how the MCP servers are
	gateAsked   = "sandbox-agent-ask"  // the key by which it says which questions nobody waits for any more
	gateAllow   = "allow"              // the answer that lets a call go on; others are the reason why not
)

// reading are Pi's own tools that change nothing and start nothing.
var reading = []string{"read", "grep", "find", "ls", "tool_search"}

// gateFacts are what the gate knows of its session.
type gateFacts struct {
	Mark      string         `json:"mark"` // tells its dialogs from those of other extensions
	Status    string         `json:"status"`
	MCPStatus string         `json:"mcpStatus"`
	Questions string         `json:"questionStatus"`
	Allow     string         `json:"allow"`
	Reads     []string       `json:"reads"`
	Servers   map[string]any `json:"servers"`   // MCP servers in the form of Pi's mcp.json
	Providers map[string]any `json:"providers"` // changes of model providers
	// Keys are the variables with the session's own credentials, by provider.
	Keys map[string]string `json:"keys"`
}

// encode returns what the gate reads.
func (f gateFacts) encode() ([]byte, error) {
	f.Status, f.MCPStatus, f.Questions, f.Allow, f.Reads = gateStatus, gateServers, gateAsked, gateAllow, reading
	b, err := schema.Encode(f)
	if err != nil {
		return nil, fmt.Errorf("encode what the gate must know: %w", err)
	}
	return b, nil
}

// announcement is what the gate says when it is in place, at first and for each conversation
// with which Pi goes on.
type announcement struct {
	Mark    string            `json:"mark"`
	Version string            `json:"version"` // of Pi, "" when it does not tell
	MCP     bool              `json:"mcp"`     // Pi can be given MCP servers
	Failed  map[string]string `json:"failed"`  // servers that it did not take
	Keyed   bool              `json:"keyed"`   // the session's own credentials go before the user's
	File    string            `json:"file"`    // of the conversation
	Reason  string            `json:"reason"`  // why it is this one
}

// made reports whether Pi has made the conversation for this.
func (a *announcement) made() bool { return a.Reason == "new" || a.Reason == "fork" }

// announced reads an announcement of the session's own gate.
func announced(e *event, mark string) (*announcement, bool) {
	if e.Method != "setStatus" || e.StatusKey != gateStatus {
		return nil, false
	}
	a := new(announcement)
	if bridge.Lenient([]byte(e.StatusText), a) != nil || a.Mark != mark {
		return nil, false
	}
	return a, true
}

// openQuestion names a question of an extension, or says that nobody waits for its answer any
// more.
type openQuestion struct {
	Mark string `json:"mark"`
	Name string `json:"name"`
	Over bool   `json:"over"`
}

// questionIn reads what the session's own gate says of a question.
func questionIn(e *event, mark string) (*openQuestion, bool) {
	if e.Method != "setStatus" || e.StatusKey != gateAsked {
		return nil, false
	}
	q := new(openQuestion)
	if bridge.Lenient([]byte(e.StatusText), q) != nil || q.Mark != mark {
		return nil, false
	}
	return q, true
}

// serversIn reads how the MCP servers are, as the session's own gate says it.
func serversIn(e *event, mark string) ([]acp.MCPServer, bool) {
	if e.Method != "setStatus" || e.StatusKey != gateServers {
		return nil, false
	}
	var said struct {
		Mark    string          `json:"mark"`
		Servers []acp.MCPServer `json:"servers"`
	}
	if bridge.Lenient([]byte(e.StatusText), &said) != nil || said.Mark != mark {
		return nil, false
	}
	return said.Servers, true
}

// gateQuestion is a call that the gate asks about.
type gateQuestion struct {
	Mark string          `json:"mark"`
	Call string          `json:"toolCallId"`
	Tool string          `json:"toolName"`
	Args json.RawMessage `json:"input"`
}

// asked reads a question of the session's own gate.
func asked(e *event, mark string) (*gateQuestion, bool) {
	if e.Method != "select" || len(e.Title) == 0 || e.Title[0] != '{' {
		return nil, false
	}
	q := new(gateQuestion)
	if bridge.Lenient([]byte(e.Title), q) != nil || mark == "" || q.Mark != mark {
		return nil, false
	}
	return q, true
}
