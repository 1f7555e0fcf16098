package acp

import (
	"context"
	"encoding/json"

	"sandboxagent.dev/sandbox-agent/acp/schema"
)

// Agent is the decoded agent side of a connection, served by [ServeAgent].
// Requests of one connection are handled concurrently, each in its own
// goroutine, but what sets something of a session in order, and prompts behind that; notifications one after another, in order, beside the requests. A
// returned *Error is sent as it is, another error as [CodeInternal] with its
// text, a nil result as {}. A context ends when its request is cancelled with
// $/cancel_request or the connection ends.
//
// What an agent can do beyond this are the interfaces below; a request whose
// interface the agent lacks goes to its [Extender], or is answered with
// [CodeMethodNotFound].
type Agent interface {
	Initialize(ctx context.Context, r *schema.InitializeRequest) (*schema.InitializeResponse, error)
	NewSession(ctx context.Context, r *schema.NewSessionRequest) (*schema.NewSessionResponse, error)
	// Prompt runs one turn. session/cancel does not end ctx, since the turn has
	// to end well: [TurnCancelled] tells.
	Prompt(ctx context.Context, r *schema.PromptRequest) (*schema.PromptResponse, error)
	// Cancel is called for session/cancel after TurnCancelled of the session's
	// prompts was closed. It may run before Prompt was entered.
	Cancel(ctx context.Context, n *schema.CancelNotification) error
	// Close is called once, when the stream has ended and the contexts of all
	// requests have too. Requests may still be about to return.
	Close() error
}

// SessionLoader handles session/load.
type SessionLoader interface {
	LoadSession(ctx context.Context, r *schema.LoadSessionRequest) (*schema.LoadSessionResponse, error)
}

// Resumer handles session/resume.
type Resumer interface {
	ResumeSession(ctx context.Context, r *schema.ResumeSessionRequest) (*schema.ResumeSessionResponse, error)
}

// Forker handles session/fork.
type Forker interface {
	ForkSession(ctx context.Context, r *schema.ForkSessionRequest) (*schema.ForkSessionResponse, error)
}

// ModeSetter handles session/set_mode.
type ModeSetter interface {
	SetSessionMode(ctx context.Context, r *schema.SetSessionModeRequest) (*schema.SetSessionModeResponse, error)
}

// ConfigSetter handles session/set_config_option.
type ConfigSetter interface {
	SetSessionConfigOption(ctx context.Context, r *schema.SetSessionConfigOptionRequest) (*schema.SetSessionConfigOptionResponse, error)
}

// Lister handles session/list.
type Lister interface {
	ListSessions(ctx context.Context, r *schema.ListSessionsRequest) (*schema.ListSessionsResponse, error)
}

// Closer handles session/close.
type Closer interface {
	CloseSession(ctx context.Context, r *schema.CloseSessionRequest) (*schema.CloseSessionResponse, error)
}

// Deleter handles session/delete.
type Deleter interface {
	DeleteSession(ctx context.Context, r *schema.DeleteSessionRequest) (*schema.DeleteSessionResponse, error)
}

// Authenticator handles authenticate.
type Authenticator interface {
	Authenticate(ctx context.Context, r *schema.AuthenticateRequest) (*schema.AuthenticateResponse, error)
}

// Logouter handles logout.
type Logouter interface {
	Logout(ctx context.Context, r *schema.LogoutRequest) (*schema.LogoutResponse, error)
}

// Extender handles every request that nothing else handles, extensions and
// drafts alike. It answers what it does not know with [CodeMethodNotFound].
type Extender interface {
	ExtMethod(ctx context.Context, method string, params json.RawMessage) (any, error)
}

// ExtNotifier takes the notifications that nothing else takes. Without it they
// are ignored.
type ExtNotifier interface {
	ExtNotification(ctx context.Context, method string, params json.RawMessage) error
}

// Peer is the client as an agent sees it. Its methods are safe for concurrent
// use; what one goroutine sends arrives in order. Values are encoded as [schema.Encode]
// does.
type Peer interface {
	// Update sends a session/update. It returns when the frame is written.
	Update(ctx context.Context, session schema.SessionID, update any) error
	// Ask sends a request and decodes the answer into result, a pointer or nil.
	// The error is an *Error when the client answered with one, and wraps
	// io.ErrClosedPipe when the connection has ended. When ctx ends first, the
	// client gets a $/cancel_request and Ask returns the context's error.
	Ask(ctx context.Context, method string, params, result any) error
	// Notify sends a notification. It returns when the frame is written.
	Notify(ctx context.Context, method string, params any) error
}

// LineWriter is implemented by the Peer that [ServeAgent] passes: an agent that
// sends frames faster than it wants to pay for encoding and system calls builds
// many and writes them at once.
type LineWriter interface {
	// WriteLines writes whole frames, each followed by a newline, unchecked.
	WriteLines(lines []byte) error
}

type turnKey struct{}

// TurnCancelled returns a channel that is closed when session/cancel arrives
// for the prompt that ctx belongs to. It is set up before the next frame is
// read, so a cancellation is never missed. For other contexts it is nil.
func TurnCancelled(ctx context.Context) <-chan struct{} {
	c, _ := ctx.Value(turnKey{}).(chan struct{})
	return c
}
