package bridge

import (
	"log/slog"
	"sync/atomic"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/adapters"
)

const protocolVersion = 1

// Hello is the answer to initialize of an agent that does what all bridges do:
// prompts with pictures and resources, MCP servers over HTTP, and everything
// that there is to do with sessions. A bridge takes away what its agent lacks.
func Hello(name, title string, o adapters.Options) *acp.InitializeResponse {
	return &acp.InitializeResponse{
		ProtocolVersion: protocolVersion,
		AgentCapabilities: &acp.AgentCapabilities{
			LoadSession:        true,
			PromptCapabilities: &acp.PromptCapabilities{Image: true, EmbeddedContext: true},
			MCPCapabilities:    &acp.MCPCapabilities{HTTP: true},
			SessionCapabilities: &acp.SessionCapabilities{
				List:                  &acp.SessionListCapabilities{},
				Delete:                &acp.SessionDeleteCapabilities{},
				AdditionalDirectories: &acp.SessionAdditionalDirectoriesCapabilities{},
				SystemPrompt:          &acp.SessionSystemPromptCapabilities{},
				Fork:                  &acp.SessionForkCapabilities{},
				Resume:                &acp.SessionResumeCapabilities{},
				Close:                 &acp.SessionCloseCapabilities{},
				Title:                 &acp.SessionTitleCapabilities{},
			},
		},
		AgentInfo: &acp.Implementation{Name: name, Title: &title, Version: FirstOf(o.Program.Version, "unknown")},
	}
}

// Logger is where a bridge's agent logs.
func Logger(o adapters.Options) *slog.Logger {
	if o.Logger == nil {
		return slog.New(slog.DiscardHandler)
	}
	return o.Logger
}

// Client is what the client has said of itself; the zero value is one that has
// said nothing. It is safe for concurrent use.
type Client struct {
	caps atomic.Pointer[acp.ClientCapabilities]
}

// Hears takes the client's initialize.
func (c *Client) Hears(r *acp.InitializeRequest) { c.caps.Store(r.ClientCapabilities) }

// Shows returns which of the updates the client knows that not all do.
func (c *Client) Shows() (notices, compaction bool) {
	caps := c.caps.Load()
	if caps == nil || caps.Session == nil {
		return false, false
	}
	return caps.Session.Notices != nil, caps.Session.Compaction != nil
}

// Elicitation returns how the client can be asked things, nil when it cannot.
func (c *Client) Elicitation() *acp.ElicitationCapabilities {
	if caps := c.caps.Load(); caps != nil {
		return caps.Elicitation
	}
	return nil
}
