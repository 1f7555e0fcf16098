package claude

import (
	"context"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

// ID is the agent's name.
const ID = "claude"

// Adapter runs Claude Code.
type Adapter struct{}

var _ adapters.Adapter = Adapter{}

// New returns the adapter.
func New() Adapter { return Adapter{} }

// Info describes Claude Code.
func (Adapter) Info() adapters.Info {
	return adapters.Info{
		ID: ID, Name: "Claude Code", Kind: adapters.Bridge, Record: true, Program: ID, PerSession: true,
		Takes: []string{
			"permissionMode", "instructions", "appendSystemPrompt", "skills", "mcp", "additionalDirectories", "agentSpecific",
		},
		Credentials: adapters.CredentialUse{APIKey: true, OAuthToken: true, BaseURL: true},
		Features:    features(),
		Login: adapters.Login{
			Env: []string{
				varKey, varToken, varOAuth, "CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_USE_FOUNDRY",
			},
			Files: []string{"~/.claude/.credentials.json"},
		},
	}
}

// Open opens a connection. A process starts with each session that is set up.
func (Adapter) Open(ctx context.Context, o adapters.Options) (acp.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if o.Program.Path == "" {
		return nil, &adapters.NotInstalledError{Agent: ID, Remedy: "install it with `sandbox-agent agents install claude`"}
	}
	return bridge.New(func(p acp.Peer, c *bridge.Conn) acp.Agent { return newAgent(o, p, c) }), nil
}

func features() adapters.Features {
	f := adapters.Features{}
	for _, one := range adapters.AllFeatures {
		f[one] = adapters.Support{Level: adapters.ByAgent}
	}
	f[adapters.CommandOutput] = adapters.Support{Level: adapters.ByAgent, Reason: "claude reports a command's output when the command has ended, not while it runs"}
	f[adapters.Load] = adapters.Support{Level: adapters.Emulated, Reason: "replayed from claude's own transcript"}
	f[adapters.NativeSessions] = adapters.Support{Level: adapters.Emulated, Reason: "read from claude's own transcripts"}
	f[adapters.Instructions] = adapters.Support{Level: adapters.Emulated, Reason: "added to the system prompt; no file is written into the workspace"}
	f[adapters.Skills] = adapters.Support{Level: adapters.Emulated, Reason: "passed as a plugin of the session's own, so their commands begin with session:"}
	f[adapters.Attachments] = adapters.Support{Level: adapters.ByAgent, Reason: "images, PDF and text; no audio"}
	f[adapters.Cost] = adapters.Support{Level: adapters.ByAgent, Reason: "claude's own estimate"}
	return f
}
