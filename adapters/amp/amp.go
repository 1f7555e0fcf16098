package amp

import (
	"context"
	"strconv"
	"strings"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

// ID is the agent's name.
const ID = "amp"

// Verified is the newest release that the tests drive through whole turns.
const Verified = "0.0.1770734955-g93e689"

// serverLoop is the build, in seconds since 1970, from which on Amp's loop, or what
// the program cannot do without, is on Amp's server. The release of 0.0.1774569934
// still starts without it.
const serverLoop = 1775390627

// Adapter runs Amp.
type Adapter struct {
	stuck time.Duration // see stuckPause
}

var _ adapters.Adapter = Adapter{}

// New returns the adapter.
func New() Adapter { return Adapter{stuck: stuckPause} }

// Info describes Amp.
func (Adapter) Info() adapters.Info {
	return adapters.Info{
		ID: ID, Name: "Amp", Kind: adapters.Bridge, Record: true, Program: ID, PerSession: true,
		Takes:       []string{"permissionMode", "instructions", "appendSystemPrompt", "skills", "mcp", "additionalDirectories", "agentSpecific"},
		Credentials: adapters.CredentialUse{APIKey: true, BaseURL: true},
		Features:    features,
		Login:       adapters.Login{Env: []string{varKey}, Files: []string{"~/.local/share/amp/secrets.json"}},
	}
}

// Open opens a connection. A process starts with each session that is set up.
func (a Adapter) Open(ctx context.Context, o adapters.Options) (acp.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if o.Program.Path == "" {
		return nil, &adapters.NotInstalledError{Agent: ID, Remedy: "install it with `sandbox-agent agents install amp`"}
	}
	return bridge.New(func(p acp.Peer, c *bridge.Conn) acp.Agent { return newAgent(o, p, c, a.stuck) }), nil
}

// onServer reports whether a release runs its loop on Amp's server. Versions read
// 0.0.SECONDS-gCOMMIT; of others nothing is known.
func onServer(version string) bool {
	rest, ok := strings.CutPrefix(version, "0.0.")
	if !ok {
		return false
	}
	seconds, _, _ := strings.Cut(rest, "-")
	n, err := strconv.ParseInt(seconds, 10, 64)
	return err == nil && n >= serverLoop
}
