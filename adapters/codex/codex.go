package codex

import (
	"context"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

// ID is the agent's name.
const ID = "codex"

// Adapter runs Codex.
type Adapter struct{}

var _ adapters.Adapter = Adapter{}

// New returns the adapter.
func New() Adapter { return Adapter{} }

// Info describes Codex.
func (Adapter) Info() adapters.Info {
	return adapters.Info{
		ID: ID, Name: "Codex", Kind: adapters.Bridge, Record: true, Program: ID,
		Takes: []string{
			"permissionMode", "instructions", "appendSystemPrompt", "skills", "mcp", "timeoutMs",
			"additionalDirectories", "agentSpecific",
		},
		Credentials: adapters.CredentialUse{APIKey: true, BaseURL: true},
		Features:    features(),
		Login:       adapters.Login{Env: []string{varOpenAI, varCodex}, Files: []string{"~/.codex/auth.json"}},
	}
}

// Open opens a connection. The process starts with the first request that needs
// it.
func (Adapter) Open(ctx context.Context, o adapters.Options) (acp.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if o.Program.Path == "" {
		return nil, &adapters.NotInstalledError{Agent: ID, Remedy: "install it with `sandbox-agent agents install codex`"}
	}
	if err := checkVersion(ctx, o); err != nil {
		return nil, err
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
	say(adapters.Reasoning, adapters.ByAgent, "summaries; raw reasoning where a model gives it")
	say(adapters.Diffs, adapters.ByAgent, "the changed places of a file, each as a diff of its own")
	say(adapters.Load, adapters.Emulated, "replayed from codex's own turns, which hold no plans")
	say(adapters.MCPStatus, adapters.ByAgent, "tools from 0.169 on")
	say(adapters.Instructions, adapters.Emulated, "added to the developer instructions; no file is written into the workspace")
	say(adapters.Skills, adapters.Emulated, "codex's own, and those of the session in the developer instructions")
	say(adapters.Questions, adapters.ByAgent, "codex asks in plan mode only, unless it is configured otherwise")
	say(adapters.Attachments, adapters.ByAgent, "images and text; no audio, no PDF")
	say(adapters.Commands, adapters.Emulated, "those that codex has a request for: compact, review, init; skills as $NAME or /NAME")
	say(adapters.Subagents, adapters.ByAgent, "its words and calls belong to the call that made it, or told it more; its thoughts are not shown")
	say(adapters.PlanApproval, adapters.Unsupported, "codex shows its plan and ends the turn; to carry it out, choose another mode and say so")
	say(adapters.Cost, adapters.Unsupported, "codex reports tokens, no prices")
	return f
}
