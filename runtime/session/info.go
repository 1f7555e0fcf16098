package session

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/acp/version"
	"sandboxagent.dev/sandbox-agent/runtime/agents"
	"sandboxagent.dev/sandbox-agent/runtime/viewer"
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

// States are the states that a session can be in.
var States = []State{StateIdle, StateRunning, StateWaiting, StateDormant, StateClosed, StateEnded}

// Continuity says what an agent remembers of a session it was started anew for.
type Continuity string

// The kinds of continuity.
const (
	ContinuityNative   Continuity = "native"   // the agent itself never lost or has restored its context
	ContinuityReplayed Continuity = "replayed" // the gateway gave the agent the conversation's text
	ContinuityFresh    Continuity = "fresh"    // the agent started without its context
)

// Info describes one session.
type Info struct {
	ID             string     `json:"sessionId"`
	Agent          string     `json:"agent"`
	AgentSessionID string     `json:"agentSessionId"` // the agent's own id of it
	Title          string     `json:"title,omitempty"`
	Cwd            string     `json:"cwd"`
	Model          string     `json:"model,omitempty"`
	State          State      `json:"state"`
	Background     int        `json:"background,omitempty"` // tool calls that go on though the turn is over: State is running
	Continuity     Continuity `json:"continuity"`
	CreatedAt      time.Time  `json:"createdAt"`
	UpdatedAt      time.Time  `json:"updatedAt"`
	EventCount     uint64     `json:"eventCount"`          // the newest event's sequence number
	Edits          uint64     `json:"edits,omitempty"`     // how often clients have changed what the record has and no event tells
	OldestSeq      uint64     `json:"oldestSeq,omitempty"` // the oldest event's that is kept, absent when none was let go
	// HistoryIncomplete says that more was said in the session than its events tell: some were
	// let go, or the agent's own record has more.
	HistoryIncomplete bool            `json:"historyIncomplete,omitempty"`
	Clients           int             `json:"clients"` // attached connections
	Pending           int             `json:"pending"` // open permission requests and questions
	Ended             *EndInfo        `json:"ended,omitempty"`
	Metadata          json.RawMessage `json:"metadata,omitempty"` // what clients set
	Gist              string          `json:"gist,omitempty"`     // how the first prompt begins
	Cost              *Cost           `json:"cost,omitempty"`     // so far, absent as long as the agent has not said
	Usage             []Use           `json:"usage,omitempty"`    // by day and model, as far as it was counted
	Children          []Child         `json:"children,omitempty"` // its newest subagents, at most 256
	Match             *Match          `json:"match,omitempty"`    // where a search has found its words
	// These are told of one session, and not in lists.
	MCPServers   []acp.MCPServer `json:"mcpServers,omitempty"`
	Instructions []Instruction   `json:"instructions,omitempty"` // that it was given, without keys
	Skills       []string        `json:"skills,omitempty"`       // folders of skills that it was given
	// Durability is Sync, or absent for Async.
	Durability Durability `json:"durability,omitempty"`
	// Unstored is how many events the gateway has that its hub has not stored yet. Nobody is
	// shown them, and EventCount does not count them.
	Unstored uint64 `json:"unstored,omitempty"`
}

// Cost is what a session has cost.
type Cost struct {
	Amount   float64 `json:"amount"`
	Currency string  `json:"currency"`
}

// Match is where in a session words were found.
type Match struct {
	Seq  uint64 `json:"seq"`  // of the event, 0 for the title
	Text string `json:"text"` // around the words
}

// EndInfo says how a session or its process ended.
type EndInfo struct {
	Reason       string         `json:"reason"`       // terminated, closed, deleted, agent_process_exited, ...
	TerminatedBy string         `json:"terminatedBy"` // client, agent, gateway
	Message      string         `json:"message,omitempty"`
	ExitCode     *int           `json:"exitCode,omitempty"`
	Stderr       *agents.Stderr `json:"stderr,omitempty"`
	At           time.Time      `json:"at"`
}

// Info describes the session.
func (s *Session) Info() Info {
	durability, unstored := Durability(""), s.unstored() // first: together they are not less than what the file has
	if s.Held() {
		durability = Sync
	}
	last, oldest := s.span()
	updated := s.Active()
	s.mu.Lock()
	defer s.mu.Unlock()
	pending, clients := s.countsLocked()
	incomplete := s.incompleteLocked(oldest)
	if oldest == 1 {
		oldest = 0
	}
	return Info{
		ID: s.id, Agent: s.rec.Agent, AgentSessionID: s.rec.AgentSessionID, Title: s.rec.Title, Cwd: s.rec.Cwd,
		Model: ModelsOf(s.rec.ConfigOptions).Current, State: s.stateLocked(), Background: s.backgroundLocked(), Continuity: s.rec.Continuity,
		CreatedAt: s.rec.CreatedAt, UpdatedAt: updated, EventCount: last, Edits: s.rec.Edits, OldestSeq: oldest, HistoryIncomplete: incomplete, Clients: clients, Pending: pending,
		Ended: s.rec.Ended, Metadata: s.rec.Metadata, Gist: s.rec.Gist, Cost: s.rec.Cost, Usage: slices.Clone(s.rec.Usage),
		Children: s.childrenLocked(), Durability: durability, Unstored: unstored,
	}
}

// countsLocked returns the open requests for people, and the clients that are attached.
func (s *Session) countsLocked() (pending, clients int) {
	for _, a := range s.asks {
		if a.ForPerson() {
			pending++
		}
	}
	attached := make(map[*viewer.Client]struct{}, len(s.feeds))
	for f := range s.feeds {
		attached[f.Client()] = struct{}{}
	}
	return pending, len(attached)
}

// stateLocked derives what the session is doing.
func (s *Session) stateLocked() State {
	switch {
	case s.m.life == ended:
		return StateEnded
	case len(s.asks) > 0:
		return StateWaiting
	case s.m.turn != nil, s.m.hosting == serving && (s.m.calls > 0 || s.m.alone):
		return StateRunning
	case s.m.life > stopping:
		return StateClosed
	case s.m.hosting == serving:
		return StateIdle
	}
	return StateDormant
}

// backgroundLocked returns how many tool calls go on though the turn that began them is over.
// While the agent works by itself, they are a part of that.
func (s *Session) backgroundLocked() int {
	if s.m.turn != nil || s.m.alone || s.m.hosting != serving || s.stateLocked() != StateRunning {
		return 0
	}
	return s.m.calls
}

// Count returns what the session is doing, and how many prompts wait in it.
func (s *Session) Count() (state State, queued int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stateLocked(), len(s.m.queue)
}

// LogPath returns where the session's log lives, "" for memory.
func (s *Session) LogPath() string { return s.set.store.logPath(s.id) }

// About is what a session was made for and what its agent offers in it.
type About struct {
	Agent, AgentSessionID, Cwd string
	CreatedAt                  time.Time
	Modes, ConfigOptions       json.RawMessage // nil before the agent has said
}

// About returns what is known of the session without looking into its log.
func (s *Session) About() About {
	s.mu.Lock()
	defer s.mu.Unlock()
	return About{s.rec.Agent, s.rec.AgentSessionID, s.rec.Cwd, s.rec.CreatedAt, s.rec.Modes, s.rec.ConfigOptions}
}

// Describe adds what the gateway says of the session to the result of new, load,
// resume or fork; what the agent's adapter said stays. seq is the newest event that the client
// is shown before the answer: what has come since follows it.
func (s *Session) Describe(result json.RawMessage, seq uint64) json.RawMessage {
	oldest := s.Log().Oldest()
	s.mu.Lock()
	meta := map[string]any{
		"agent": s.rec.Agent, "agentSessionId": s.rec.AgentSessionID, "continuity": s.rec.Continuity,
		"turn": map[bool]string{true: "running", false: "idle"}[s.m.turn != nil], "seq": seq, "pending": len(s.asks),
	}
	if s.incompleteLocked(oldest) {
		meta["historyIncomplete"] = true
	}
	var working []string
	for _, one := range s.rec.Subagents {
		if one.Working && s.m.hosting == serving {
			working = append(working, one.ID)
		}
	}
	if len(working) > 0 { // a client that has come to nothing of theirs can cancel them
		meta["subagents"] = working
	}
	if s.rec.lacksCredentials() {
		meta["credentialsRequired"] = s.rec.OwnCredentials
	}
	if len(s.rec.Modes) > 0 {
		result = rawjson.SetMember(result, s.rec.Modes, "modes")
	}
	if len(s.rec.ConfigOptions) > 0 {
		result = rawjson.SetMember(result, s.rec.ConfigOptions, "configOptions")
	}
	s.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(meta)) {
		if v, err := schema.Encode(meta[name]); err == nil {
			result = rawjson.SetMember(result, v, "_meta", acp.MetaKey, name)
		}
	}
	return result
}

// incompleteLocked reports whether more was said in the session than its log has. oldest is
// the first entry that the log still has.
func (s *Session) incompleteLocked(oldest uint64) bool { return oldest > 1 || s.rec.Incomplete }

// BesideLog implements [viewer.Session].
func (s *Session) BesideLog() version.About {
	s.mu.Lock()
	defer s.mu.Unlock()
	return version.About{Session: s.id, Cwd: s.rec.Cwd, Options: s.rec.ConfigOptions, Modes: s.rec.Modes}
}

// Pending is an open permission request or question.
type Pending struct {
	RequestID int64           `json:"requestId"`
	Seq       uint64          `json:"seq"`
	Since     time.Time       `json:"since"`
	Method    string          `json:"method"`
	Params    json.RawMessage `json:"params"`
}

// Pending returns the open permission requests and questions, oldest first.
func (s *Session) Pending() []Pending {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := []Pending{}
	last := s.Log().Last()
	for _, a := range s.openAsksLocked() {
		if a.ForPerson() && (a.seq <= last || !s.Held()) {
			out = append(out, Pending{a.ID, a.seq, a.at.UTC(), a.Method, rawjson.SetMember(a.Params, s.quoted, "sessionId")})
		}
	}
	return out
}
