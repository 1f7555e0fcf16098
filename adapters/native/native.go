// Package native runs agents that speak ACP on stdio themselves.
//
// The agent's frames are passed on byte for byte. A line that is no message
// becomes a notification and never ends the connection.
package native

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/ndjson"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/adapters/internal/process"
)

// Command is an agent's program.
type Command struct {
	Path string   // a path, or a name that is looked up in PATH
	Args []string // without the program's name
	Env  []string // added to the gateway's environment
	Dir  string
}

// Agent is an adapter for one command.
type Agent struct {
	info adapters.Info
	cmd  Command
}

var _ adapters.Adapter = (*Agent)(nil)

// New returns the adapter of an agent that speaks ACP.
func New(info adapters.Info, cmd Command) *Agent { return &Agent{info: info, cmd: cmd} }

// Info describes the agent.
func (a *Agent) Info() adapters.Info { return a.info }

// Locate finds the command's program.
func (a *Agent) Locate() (adapters.Program, error) {
	path, err := exec.LookPath(a.cmd.Path)
	if err != nil {
		return adapters.Program{}, &adapters.NotInstalledError{Agent: a.info.ID, Remedy: "the program " + a.cmd.Path + " was not found: install it, or correct the command"}
	}
	return adapters.Program{Path: path, Source: "command"}, nil
}

// Open starts the command.
func (a *Agent) Open(ctx context.Context, _ adapters.Options) (acp.Conn, error) {
	if _, err := a.Locate(); err != nil {
		return nil, err
	}
	return Open(ctx, a.cmd)
}

// Open starts a program that speaks ACP on stdio.
func Open(ctx context.Context, c Command) (acp.Conn, error) {
	p, err := process.Start(ctx, process.Spec{Path: c.Path, Args: c.Args, Env: append(Environ(), c.Env...), Dir: c.Dir})
	if err != nil {
		return nil, err
	}
	lines := ndjson.New(p.Stdout, p.Stdin, p.Stdout.Close, 0)
	lines.Waiting(p.Waiting)
	return &conn{Conn: lines, proc: p}, nil
}

// Environ returns the environment that agents inherit: the gateway's own
// without what configures the gateway, its token above all.
func Environ() []string {
	var env []string
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "SANDBOX_AGENT_") {
			env = append(env, kv)
		}
	}
	return env
}

// conn is an ACP connection with a process behind it.
type conn struct {
	*ndjson.Conn
	proc *process.Process
}

var (
	_ acp.Conn         = (*conn)(nil)
	_ acp.Buffered     = (*conn)(nil)
	_ adapters.Process = (*conn)(nil)
)

func (c *conn) PID() int             { return c.proc.PID() }
func (c *conn) StartedAt() time.Time { return c.proc.StartedAt() }
func (c *conn) RSS() int64           { return process.RSS(c.proc.PID()) }

// Read returns the agent's next message; when the stream has ended it waits for
// the process and says how that ended.
func (c *conn) Read(ctx context.Context) (acp.Message, error) {
	m, err := c.Conn.Read(ctx)
	if err == nil {
		return m, nil
	}
	if ctx.Err() != nil {
		return m, err
	}
	// An agent that closed its stdout can do nothing more for anybody.
	c.proc.Stop(process.DefaultLadder)
	e := c.proc.Exit()
	head, tail, truncated, lines := c.proc.Stderr()
	return m, &adapters.ExitError{Code: e.Code, Signal: e.Signal, Stderr: adapters.Stderr{Head: head, Tail: tail, Truncated: truncated, TotalLines: lines}}
}

// Close ends the process and everything it started.
func (c *conn) Close() error {
	c.proc.Stop(process.DefaultLadder)
	return c.Conn.Close()
}
