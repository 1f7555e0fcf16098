package opencode

import (
	"context"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

// ID is the agent's name.
const ID = "opencode"

// Adapter runs OpenCode.
type Adapter struct{}

var _ adapters.Adapter = Adapter{}

// New returns the adapter.
func New() Adapter { return Adapter{} }

// Info describes OpenCode.
func (Adapter) Info() adapters.Info {
	return adapters.Info{
		ID: ID, Name: "OpenCode", Kind: adapters.Bridge, Record: true, Program: ID, Website: "https://opencode.ai",
		Takes: []string{
			"permissionMode", "instructions", "appendSystemPrompt", "skills", "mcp", "timeoutMs",
			"additionalDirectories", "agentSpecific",
		},
		Credentials: adapters.CredentialUse{APIKey: true, OAuthToken: true, BaseURL: true, KeyNamesProvider: true},
		Features:    features(),
		Login: adapters.Login{
			Env:   keyVars(),
			Files: []string{"~/.local/share/opencode/auth.json"},
		},
	}
}

// Open opens a connection. The process starts with the first request that needs
// it.
func (Adapter) Open(ctx context.Context, o adapters.Options) (acp.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if o.Program.Path == "" {
		return nil, &adapters.NotInstalledError{Agent: ID, Remedy: "install it with `sandbox-agent agents install opencode`"}
	}
	return bridge.New(func(p acp.Peer, c *bridge.Conn) acp.Agent { return newAgent(o, p, c) }), nil
}

func features() adapters.Features {
	f := adapters.Features{}
	for _, one := range adapters.AllFeatures {
		f[one] = adapters.Support{Level: adapters.ByAgent}
	}
	say := func(one adapters.Feature, level adapters.Level, reason string) {
		f[one] = adapters.Support{Level: level, Reason: reason}
	}
	say(adapters.Diffs, adapters.ByAgent, "the changed places of a file; of a file that is replaced, its old text, if it could be read before")
	say(adapters.Images, adapters.ByAgent, "for models that OpenCode knows to take them")
	say(adapters.Permissions, adapters.ByAgent, "of subagents too; OpenCode itself asks about little unless it is configured to, or permissionMode is write")
	say(adapters.ThoughtLevels, adapters.ByAgent, "for models that have variants")
	say(adapters.MCPServers, adapters.ByAgent, "OpenCode starts them per directory; other sessions there are kept from using them")
	say(adapters.MCPStatus, adapters.ByAgent, "not which tools a server has")
	say(adapters.Instructions, adapters.Emulated, "added to the system prompt; no file is written into the workspace")
	say(adapters.SystemPrompt, adapters.ByAgent, "not for commands, nor for subagents")
	say(adapters.Skills, adapters.Emulated, "OpenCode's own, and those of the session in the system prompt")
	say(adapters.Load, adapters.Emulated, "replayed from OpenCode's own messages")
	say(adapters.Commands, adapters.ByAgent, "and compact, undo and redo")
	say(adapters.PlanApproval, adapters.Unsupported, "OpenCode shows its plan and ends the turn; to carry it out, choose another mode and say so")
	return f
}
