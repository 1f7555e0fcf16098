package bridge

import (
	"log/slog"
	"sync/atomic"

	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters"
)

const protocolVersion = 1

// Hello is the answer to initialize of an agent that does what all bridges do:
// prompts with pictures and resources, MCP servers over HTTP, and everything
// that there is to do with sessions. A bridge takes away what its agent lacks.
func Hello(name, title string, o adapters.Options) *schema.InitializeResponse {
	return &schema.InitializeResponse{
		ProtocolVersion: protocolVersion,
		AgentCapabilities: &schema.AgentCapabilities{
			LoadSession:        true,
			PromptCapabilities: &schema.PromptCapabilities{Image: true, EmbeddedContext: true},
			MCPCapabilities:    &schema.MCPCapabilities{HTTP: true},
			SessionCapabilities: &schema.SessionCapabilities{
				List:                  &schema.SessionListCapabilities{},
				Delete:                &schema.SessionDeleteCapabilities{},
				AdditionalDirectories: &schema.SessionAdditionalDirectoriesCapabilities{},
				SystemPrompt:          &schema.SessionSystemPromptCapabilities{},
				Fork:                  &schema.SessionForkCapabilities{},
				Resume:                &schema.SessionResumeCapabilities{},
				Close:                 &schema.SessionCloseCapabilities{},
				Title:                 &schema.SessionTitleCapabilities{},
			},
		},
		AgentInfo: &schema.Implementation{Name: name, Title: &title, Version: FirstOf(o.Program.Version, "unknown")},
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
	caps atomic.Pointer[schema.ClientCapabilities]
}

// Hears takes the client's initialize.
func (c *Client) Hears(r *schema.InitializeRequest) { c.caps.Store(r.ClientCapabilities) }

// Shows returns which of the updates the client knows that not all do.
func (c *Client) Shows() (notices, compaction bool) {
	caps := c.caps.Load()
	if caps == nil || caps.Session == nil {
		return false, false
	}
	return caps.Session.Notices != nil, caps.Session.Compaction != nil
}
