// Package native runs agents that speak ACP on stdio themselves.
//
// The frames of an agent that speaks version 1 of the protocol are passed on byte for
// byte, and those of version 2 for clients of that. Frames are added where an agent
// leaves out what clients rely on: the introduction of a tool call, its end. A
// line that is no message becomes a notification and never ends the connection.
package native

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/ndjson"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
	"sandboxagent.dev/sandbox-agent/internal/process"
)

// Command is an agent's program.
type Command struct {
	Path string   // a path, or a name that is looked up in PATH
	Args []string // without the program's name
	Env  []string // added to the gateway's environment
	Dir  string
	Tap  adapters.Tap // is told of what passes; may be nil
}

// Spec describes an agent whose program an installer finds.
type Spec struct {
	Info adapters.Info
	Args []string // start the program as an ACP agent, where the installer does not know
	More []string // arguments that follow those, wherever they come from
	Env  []string
	Keys Keys
	// ReplaysLate says that the agent answers session/load before it has
	// replayed the session.
	ReplaysLate bool
	// ReplaysInWords says that the agent tells of calls in words when it replays a
	// session.
	ReplaysInWords bool
	// HoldCancels says that the agent must not be told to cancel a turn before
	// it works on it: it would take the cancel, go on, and be deaf to all later
	// ones. Of a cancel when nothing runs it must not be told either: it would
	// take it for its next prompt.
	HoldCancels bool
	// Two says that the agent is asked for version 2 of the protocol.
	Two bool
}

// Keys are the environment variables by which an agent takes credentials; ""
// where it takes none.
type Keys struct {
	APIKey, OAuthToken, BaseURL string
}

// Agent is an adapter for one program that speaks ACP.
type Agent struct {
	spec Spec
	cmd  *Command // the user's own; nil when an installer finds the program
}

var _ adapters.Adapter = (*Agent)(nil)

// New returns the adapter of an agent that an installer finds.
func New(spec Spec) *Agent {
	k := spec.Keys
	spec.Info.Credentials = adapters.CredentialUse{APIKey: k.APIKey != "", OAuthToken: k.OAuthToken != "", BaseURL: k.BaseURL != ""}
	return &Agent{spec: spec}
}

// Custom is the adapter of the user's own command.
type Custom struct{ Agent }

var (
	_ adapters.Adapter = (*Custom)(nil)
	_ adapters.Locator = (*Custom)(nil)
)

// NewCustom returns the adapter of a command. two says that its agent is asked for version
// 2 of the protocol. A path that is neither absolute nor a plain name begins in the command's own directory, else in the
// current one: the agent may start in a session's directory, and is not what lies there by that path.
func NewCustom(info adapters.Info, cmd Command, two bool) *Custom {
	if filepath.Base(cmd.Path) != cmd.Path && !filepath.IsAbs(cmd.Path) {
		if path, err := filepath.Abs(filepath.Join(cmd.Dir, cmd.Path)); err == nil { // else it is not found
			cmd.Path = path
		}
	}
	return &Custom{Agent{spec: Spec{Info: info, Two: two}, cmd: &cmd}}
}

// Info describes the agent.
func (a *Agent) Info() adapters.Info { return a.spec.Info }

// Locate finds the command's program.
func (c *Custom) Locate() (adapters.Program, error) {
	path, err := exec.LookPath(c.cmd.Path)
	if err != nil {
		return adapters.Program{}, &adapters.NotInstalledError{Agent: c.spec.Info.ID, Remedy: "the program " + c.cmd.Path + " was not found: install it, or correct the command"}
	}
	return adapters.Program{Path: path, Source: "command"}, nil
}

// Open starts the command.
func (c *Custom) Open(ctx context.Context, o adapters.Options) (acp.Conn, error) {
	if _, err := c.Locate(); err != nil {
		return nil, err
	}
	return c.Agent.Open(ctx, o)
}

// Open starts the agent.
func (a *Agent) Open(ctx context.Context, o adapters.Options) (acp.Conn, error) {
	c := Command{Path: o.Program.Path, Args: slices.Clone(o.Program.Args)}
	if a.cmd != nil {
		c = *a.cmd
	}
	if c.Dir == "" {
		c.Dir = o.Dir
	}
	if a.cmd == nil {
		if args := o.Program.ACPArgs; args != nil {
			c.Args = append(c.Args, args...)
		} else {
			c.Args = append(c.Args, a.spec.Args...)
		}
		c.Args = append(c.Args, a.spec.More...)
		c.Env = append(slices.Clone(a.spec.Env), o.Program.Env...)
	}
	c.Env, c.Tap = append(slices.Clip(c.Env), o.Env...), o.Tap
	for _, k := range []struct{ name, value string }{
		{a.spec.Keys.APIKey, o.Credentials.APIKey}, {a.spec.Keys.OAuthToken, o.Credentials.OAuthToken}, {a.spec.Keys.BaseURL, o.Credentials.BaseURL},
	} {
		if k.name != "" && k.value != "" {
			c.Env = append(c.Env, k.name+"="+k.value)
		}
	}
	started, err := start(ctx, c)
	if err != nil {
		return nil, err
	}
	var lines acp.Conn = started
	if a.spec.ReplaysLate {
		lines = holdLoads(lines)
	}
	if a.spec.ReplaysInWords {
		lines = retell(lines)
	}
	var two func() bool
	if a.spec.Two {
		n := negotiate(lines)
		lines, two = n, n.Two
	}
	ready := mend(lines, started)
	ready.two = two
	ready.hold, ready.login = a.spec.HoldCancels, login{a.spec.Info.Name, a.spec.Info.Login}
	return ready, nil
}

// Open starts a program that speaks ACP on stdio. The frames pass unchanged.
func Open(ctx context.Context, c Command) (acp.Conn, error) {
	started, err := start(ctx, c)
	if err != nil {
		return nil, err // and not a nil *conn
	}
	return started, nil
}

func start(ctx context.Context, c Command) (*conn, error) {
	p, err := process.Start(ctx, process.Spec{Path: c.Path, Args: c.Args, Env: append(bridge.Inherited(), c.Env...), Dir: c.Dir})
	if err != nil {
		return nil, err
	}
	lines := ndjson.New(p.Stdout, p, p.Stdout.Close, 0)
	lines.Ahead(p.ReadAhead)
	return &conn{Conn: lines, proc: p, tap: c.Tap}, nil
}

// conn is an ACP connection with a process behind it.
type conn struct {
	*ndjson.Conn
	proc *process.Process
	tap  adapters.Tap // may be nil

	prompts sync.Map // where in its input a session's last prompt begins, nowhere if it was not written: by session
	mute    atomic.Bool
}

const nowhere int64 = -1

var (
	_ acp.Conn         = (*conn)(nil)
	_ acp.Buffered     = (*conn)(nil)
	_ adapters.Process = (*conn)(nil)

	_ adapters.Commander = (*conn)(nil)
	_ adapters.Untaker   = (*conn)(nil)
	_ adapters.Roomy     = (*conn)(nil)
)

// Write notes where prompts begin.
func (c *conn) Write(ctx context.Context, m acp.Message) error {
	switch m.Method() {
	case acp.MethodSessionPrompt:
		if c.mute.Load() { // it would answer nobody
			c.prompts.Store(m.Session(), nowhere)
			return fmt.Errorf("write to the agent process: its output has ended: %w", io.ErrClosedPipe)
		}
		c.prompts.Store(m.Session(), c.proc.Written())
	case acp.MethodSessionClose, acp.MethodSessionDelete:
		c.prompts.Delete(m.Session())
	}
	if c.tap != nil {
		c.tap.ToAgent(m.Frame())
	}
	return c.Conn.Write(ctx, m)
}

// Untaken implements [adapters.Untaker].
func (c *conn) Untaken(session string) bool {
	at, prompted := c.prompts.Load(session)
	return prompted && (at == nowhere || c.proc.Unread(at.(int64)))
}

// Room implements [adapters.Roomy].
func (c *conn) Room(n int) bool { return c.proc.Room(n + len("\n")) }

func (c *conn) PID() int             { return c.proc.PID() }
func (c *conn) StartedAt() time.Time { return c.proc.StartedAt() }
func (c *conn) RSS() int64           { return process.RSS(c.proc.PID()) }
func (c *conn) Now() int64           { return process.Now() }
func (c *conn) Commands() []int64    { return c.proc.Commands() }
func (c *conn) Stderr() adapters.Stderr {
	return bridge.Stderr(c.proc)
}

// Read returns the agent's next message; when the stream has ended it waits for
// the process and says how that ended.
func (c *conn) Read(ctx context.Context) (acp.Message, error) {
	m, err := c.Conn.Read(ctx)
	if err == nil {
		if c.tap != nil {
			c.tap.FromAgent(m.Frame())
		}
		return m, nil
	}
	if ctx.Err() != nil {
		return m, err
	}
	// An agent that closed its stdout can do nothing more for anybody.
	c.mute.Store(true)
	c.proc.StopMute(process.DefaultLadder)
	return m, bridge.ExitError(c.proc)
}

// Close ends the process and everything it started.
func (c *conn) Close() error {
	c.proc.Stop(process.DefaultLadder)
	return c.Conn.Close()
}
