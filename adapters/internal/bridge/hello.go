package bridge

import (
	"log/slog"

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
