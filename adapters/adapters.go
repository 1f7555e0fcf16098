// Package adapters is the contract between the gateway and what knows how to
// run one kind of agent. It holds no implementation.
//
// An adapter opens an [acp.Conn] to one agent process. From then on the gateway
// speaks ACP to it; what the agent itself speaks is the adapter's business.
// Closing the Conn ends the process and everything it started.
package adapters

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
)

// Kind says where an agent's implementation lives.
type Kind string

// The kinds of adapters.
const (
	Bridge Kind = "bridge" // translates the agent's own protocol
	Native Kind = "native" // the agent speaks ACP itself
	Custom Kind = "custom" // a command the user configured
)

// Info describes an adapter.
type Info struct {
	ID   string // what clients name it by
	Name string // for people
	Kind Kind
	// Takes names the fields of session/new's _meta["sandboxagent.dev"] that
	// the adapter maps itself. It reports what it cannot do in the result's
	// _meta, and the gateway reports all others.
	Takes []string
}

// Options are what one Open needs.
type Options struct {
	// StateDir is a private directory that survives restarts, for the
	// adapter's own use. It may not exist yet.
	StateDir string
	Logger   *slog.Logger
}

// Adapter opens connections to one kind of agent. Its methods are safe for
// concurrent use.
type Adapter interface {
	Info() Info
	// Installed reports whether Open can find the agent's program.
	Installed() bool
	// Open starts the agent. ctx bounds only the start. The Conn's Read fails
	// with an *ExitError when the process ended.
	Open(ctx context.Context, o Options) (acp.Conn, error)
}

// Process is implemented by a Conn with an operating system process behind it.
type Process interface {
	PID() int
	StartedAt() time.Time
	RSS() int64 // resident memory in bytes, 0 when unknown
}

// NotInstalledError says that an agent's program is missing and what to do.
type NotInstalledError struct {
	Agent  string
	Remedy string
}

func (e *NotInstalledError) Error() string {
	return fmt.Sprintf("agent %s is not installed: %s", e.Agent, e.Remedy)
}

// ExitError says how an agent process ended.
type ExitError struct {
	Code   int    // -1 when a signal ended it
	Signal string // "" when it exited
	Stderr Stderr
}

// Stderr is what a process wrote to stderr, shortened in the middle.
type Stderr struct {
	Head       string
	Tail       string
	Truncated  bool
	TotalLines int
}

func (e *ExitError) Error() string {
	how := fmt.Sprintf("exited with code %d", e.Code)
	if e.Signal != "" {
		how = "was ended by " + e.Signal
	}
	if e.Stderr.Tail != "" {
		return fmt.Sprintf("the agent process %s; its stderr ends with: %s", how, e.Stderr.Tail)
	}
	return "the agent process " + how
}

// Data is the error's form in the data member of a JSON-RPC error.
func (e *ExitError) Data() json.RawMessage {
	b, _ := json.Marshal(map[string]any{
		"type": "urn:sandbox-agent:error:agent_process_exited", "exitCode": e.Code, "signal": e.Signal,
		"stderr": map[string]any{"head": e.Stderr.Head, "tail": e.Stderr.Tail, "truncated": e.Stderr.Truncated, "totalLines": e.Stderr.TotalLines},
	})
	return b
}
