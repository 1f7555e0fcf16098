package runtime

import (
	"encoding/json"
	"time"

	"sandboxagent.dev/sandbox-agent/adapters"
)

// State is what a session is doing.
type State string

// The states of a session.
const (
	StateIdle    State = "idle"    // its agent process lives, no turn runs
	StateRunning State = "running" // a turn runs
	StateWaiting State = "waiting" // a turn runs and waits for somebody's answer
	StateDormant State = "dormant" // no agent process; the next prompt starts one
	StateClosed  State = "closed"  // closed by a client; load or resume opens it again
	StateEnded   State = "ended"   // terminated; its events can still be read
)

// Continuity says what an agent remembers of a session it was started anew for.
type Continuity string

// The kinds of continuity.
const (
	ContinuityNative   Continuity = "native"   // the agent itself never lost or has restored its context
	ContinuityReplayed Continuity = "replayed" // the gateway gave the agent the conversation's text
	ContinuityFresh    Continuity = "fresh"    // the agent started without its context
)

// SessionInfo describes one session.
type SessionInfo struct {
	ID             string          `json:"sessionId"`
	Agent          string          `json:"agent"`
	AgentSessionID string          `json:"agentSessionId"` // the agent's own id of it
	Title          string          `json:"title,omitempty"`
	Cwd            string          `json:"cwd"`
	Model          string          `json:"model,omitempty"`
	State          State           `json:"state"`
	Continuity     Continuity      `json:"continuity"`
	CreatedAt      time.Time       `json:"createdAt"`
	UpdatedAt      time.Time       `json:"updatedAt"`
	EventCount     uint64          `json:"eventCount"` // the newest event's sequence number
	Clients        int             `json:"clients"`    // attached connections
	Pending        int             `json:"pending"`    // open permission requests and questions
	Ended          *EndInfo        `json:"ended,omitempty"`
	Metadata       json.RawMessage `json:"metadata,omitempty"` // what clients set
}

// EndInfo says how a session or its process ended.
type EndInfo struct {
	Reason       string      `json:"reason"`       // terminated, agent_process_exited, ...
	TerminatedBy string      `json:"terminatedBy"` // client, agent, gateway
	Message      string      `json:"message,omitempty"`
	ExitCode     *int        `json:"exitCode,omitempty"`
	Stderr       *StderrInfo `json:"stderr,omitempty"`
	At           time.Time   `json:"at"`
}

// StderrInfo quotes what a process wrote to stderr.
type StderrInfo struct {
	Head       string `json:"head"`
	Tail       string `json:"tail"`
	Truncated  bool   `json:"truncated"`
	TotalLines int    `json:"totalLines"`
}

// SessionFilter selects sessions. Zero fields select all.
type SessionFilter struct {
	Cwd    string
	Agent  string
	Cursor string // as returned with the page before
	Limit  int    // 0: 100; at most 1000
}

// Direction says who sent an event's message.
type Direction string

// The directions of events.
const (
	FromClient  Direction = "client"
	FromAgent   Direction = "agent"
	FromGateway Direction = "gateway"
)

// Event is one entry of a session's log.
type Event struct {
	Seq       uint64          `json:"seq"`
	Time      time.Time       `json:"time"`
	Direction Direction       `json:"direction"`
	Message   json.RawMessage `json:"message"`
}

// AuthState is what is known of an agent's login. An agent's adapter may say it
// in initialize's _meta["sandboxagent.dev"].authState.
type AuthState string

// The states of an agent's login.
const (
	AuthUnknown       AuthState = "unknown"       // nobody has asked the agent yet
	AuthAuthenticated AuthState = "authenticated" // the agent said so, or has made a session
	AuthRequired      AuthState = "required"      // the agent refused to work without
)

// AgentInfo describes one agent that sessions can use.
type AgentInfo struct {
	ID          string `json:"id"`
	Name        string `json:"name"`
	Kind        string `json:"kind"` // bridge, native, custom
	Description string `json:"description,omitempty"`
	Website     string `json:"website,omitempty"`
	License     string `json:"license,omitempty"`
	Icon        string `json:"icon,omitempty"`
	Installed   bool   `json:"installed"`
	Version     string `json:"version,omitempty"` // of the program, when known
	Path        string `json:"path,omitempty"`    // of the program
	Source      string `json:"source,omitempty"`  // where the program came from
	Default     bool   `json:"default"`
	// CredentialsAvailable says that the gateway's environment or home
	// directory holds credentials for the agent; they may be wrong.
	CredentialsAvailable bool      `json:"credentialsAvailable"`
	AuthState            AuthState `json:"authState"`
	// Capabilities is the agent's row of the feature matrix; absent when
	// nobody has looked.
	Capabilities adapters.Features `json:"capabilities,omitempty"`
	// Models, Modes and ThoughtLevels are what the agent itself offered in its
	// newest session; absent before.
	Models        []Choice      `json:"models,omitempty"`
	Modes         []Choice      `json:"modes,omitempty"`
	ThoughtLevels []Choice      `json:"thoughtLevels,omitempty"`
	Processes     []ProcessInfo `json:"processes"`
}

// Choice is one value of something an agent lets choose.
type Choice struct {
	ID          string `json:"id"`
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
}

// ProcessInfo describes one live agent process.
type ProcessInfo struct {
	PID       int       `json:"pid"`
	StartedAt time.Time `json:"startedAt"`
	UptimeMS  int64     `json:"uptimeMs"`
	Sessions  int       `json:"sessions"`
	Restarts  int       `json:"restarts"`
	LastError string    `json:"lastError,omitempty"`
	RSSBytes  int64     `json:"rssBytes"`
	// Stderr is what it has written there; nil when that is nothing.
	Stderr *StderrInfo `json:"stderr,omitempty"`
}
