package pi

import (
	"context"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

// ID is the agent's name.
const ID = "pi"

// Adapter runs Pi.
type Adapter struct{}

var _ adapters.Adapter = Adapter{}

// New returns the adapter.
func New() Adapter { return Adapter{} }

// Info describes Pi.
func (Adapter) Info() adapters.Info {
	return adapters.Info{
		ID: ID, Name: "Pi", Kind: adapters.Bridge, Record: true, Program: ID, PerSession: true,
		Takes: []string{
			"permissionMode", "instructions", "appendSystemPrompt", "skills", "mcp", "additionalDirectories", "agentSpecific",
		},
		Credentials: adapters.CredentialUse{APIKey: true, OAuthToken: true, BaseURL: true, KeyNamesProvider: true},
		Features:    features(),
		Login:       adapters.Login{Env: keyVars()},
	}
}

// Open opens a connection. A process starts with each session that is set up.
func (Adapter) Open(ctx context.Context, o adapters.Options) (acp.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if o.Program.Path == "" {
		return nil, &adapters.NotInstalledError{Agent: ID, Remedy: "install it with `sandbox-agent agents install pi`"}
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
	say(adapters.Permissions, adapters.Emulated, "Pi has none: an extension of the session's own asks before every tool but those that read")
	say(adapters.Modes, adapters.Emulated, "what is asked for, decided here")
	say(adapters.Questions, adapters.ByAgent, "of extensions: Pi itself asks nothing")
	say(adapters.Images, adapters.ByAgent, "for models that take them")
	say(adapters.Attachments, adapters.Emulated, "images by Pi, texts and links as part of the prompt; no audio")
	say(adapters.Models, adapters.ByAgent, "before 0.84.3 by a new process, between turns, because Pi would write the choice into the user's settings")
	say(adapters.ThoughtLevels, adapters.ByAgent, "as models")
	say(adapters.MCPServers, adapters.ByAgent, "from 0.99 on, over stdio and HTTP; earlier versions have none")
	say(adapters.MCPStatus, adapters.Emulated, "a server whose tools Pi has is ready; why one does not connect Pi does not say")
	say(adapters.Instructions, adapters.Emulated, "added to the system prompt; no file is written into the workspace")
	say(adapters.Directories, adapters.Emulated, "Pi confines nothing: they are named in the system prompt, and files there may be edited in mode write")
	say(adapters.Load, adapters.Emulated, "replayed from Pi's own file")
	say(adapters.NativeSessions, adapters.Emulated, "read from Pi's own files")
	say(adapters.Cost, adapters.ByAgent, "Pi's own estimate")
	say(adapters.Commands, adapters.ByAgent, "of extensions, prompt templates and skills; compact and bash by the gateway")
	say(adapters.Plan, adapters.Unsupported, "Pi keeps no plan")
	say(adapters.PlanApproval, adapters.Unsupported, "Pi has no mode for plans")
	say(adapters.Subagents, adapters.Unsupported, "Pi has none; those of extensions are calls like others")
	return f
}
