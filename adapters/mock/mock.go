// Package mock is the adapter of the mock agent: a real ACP agent for trying
// and testing the gateway, run as a child process of the gateway's own binary.
package mock

import (
	"context"
	"fmt"
	"os"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/adapters/mock/agent"
	"sandboxagent.dev/sandbox-agent/adapters/native"
)

// Arg is the first argument by which the gateway's binary runs as mock agent.
const Arg = "mock-agent"

// Adapter runs the mock agent.
type Adapter struct {
	program string // "" is the running program
}

var _ adapters.Adapter = Adapter{}

// New returns the adapter. program must run the mock agent when its first
// argument is [Arg]; "" means the running program.
func New(program string) Adapter { return Adapter{program: program} }

// Info describes the mock agent.
func (Adapter) Info() adapters.Info {
	return adapters.Info{
		ID: "mock", Name: "Mock agent", Kind: adapters.Bridge, Features: features,
		Credentials:     adapters.CredentialUse{APIKey: true, OAuthToken: true, BaseURL: true},
		PermissionModes: map[string]string{"readonly": "plan", "write": "code"},
	}
}

var _ adapters.Granter = Adapter{}

// Grants implements [adapters.Granter].
func (Adapter) Grants(o adapters.Options, session string) []adapters.Grant {
	if o.StateDir == "" {
		return nil
	}
	return agent.Grants(o.StateDir, session)
}

// Forget implements [adapters.Granter].
func (Adapter) Forget(o adapters.Options, session string, ids []string) error {
	return agent.Forget(o.StateDir, session, ids)
}

// Open starts the mock agent.
func (a Adapter) Open(ctx context.Context, o adapters.Options) (acp.Conn, error) {
	program := a.program
	if program == "" {
		exe, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("find the mock agent's program: %w", err)
		}
		program = exe
	}
	args := []string{Arg}
	if o.StateDir != "" {
		args = append(args, "--state-dir", o.StateDir)
	}
	return native.Open(ctx, native.Command{Path: program, Args: args, Env: o.Env, Tap: o.Tap})
}
