package session

import (
	"bytes"
	"encoding/json"
	"strings"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/version"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/runtime/agents"
)

// record is what session.json holds of a session: all that its log does not.
type record struct {
	Version        int        `json:"version"`
	ID             string     `json:"id"`
	Agent          string     `json:"agent"`
	AgentSessionID string     `json:"agentSessionId"`
	Title          string     `json:"title,omitempty"`
	Gist           string     `json:"gist,omitempty"`   // how the first prompt begins
	Titled         bool       `json:"titled,omitempty"` // by a client: the agent's own titles do not replace it
	Cwd            string     `json:"cwd"`
	Continuity     Continuity `json:"continuity"`
	CreatedAt      time.Time  `json:"createdAt"`
	Imported       bool       `json:"imported,omitempty"` // from another gateway, and its agent was not started since
	// Arriving says that it has come from another gateway, closed, and was not opened yet.
	Arriving bool `json:"arriving,omitempty"`
	// Handover is a text about another conversation; HandedOver says that the agent was
	// given it.
	Handover   string          `json:"handover,omitempty"`
	HandedOver bool            `json:"handedOver,omitempty"`
	Closed     bool            `json:"closed,omitempty"`
	Ended      *EndInfo        `json:"ended,omitempty"`
	Metadata   json.RawMessage `json:"metadata,omitempty"`
	Cost       *Cost           `json:"cost,omitempty"`
	CostSaid   float64         `json:"costSaid,omitempty"` // the sum that the agent said last
	Usage      []Use           `json:"usage,omitempty"`    // by day and model, the newest last; at most maxUse
	// Subagents are the newest subagents of the session; at most maxListed.
	Subagents []version.Subagent `json:"subagents,omitempty"`
	// Servers are the MCP servers that the agent tells of, as they were last. The list is
	// replaced and never changed in place.
	Servers []acp.MCPServer `json:"mcpServers,omitempty"`
	// LeftAt is when the process that worked for the session last let go of it.
	LeftAt time.Time `json:"leftAt,omitzero"`
	// LastSeq is the newest event of the log when the record was written: a log that ends
	// before it has lost some.
	LastSeq uint64 `json:"lastSeq,omitempty"`
	// BoundSeq is the number up to which the log may have given numbers since, 0 when it
	// was closed in good order.
	BoundSeq uint64 `json:"boundSeq,omitempty"`
	// LogEnd is what is known of the log's file, absent while that is in use.
	LogEnd *logEnd `json:"logEnd,omitempty"`
	// Incomplete says that the agent's own record has what the log has not.
	Incomplete bool `json:"incomplete,omitempty"`

	// Setup is the params of session/new without credentials: what the agent
	// is given again when the session is opened anew.
	Setup json.RawMessage `json:"setup"`
	// Before is the Setup with which the agent has opened the session last, as long as
	// what a load has changed since was not tried.
	Before      json.RawMessage      `json:"setupBefore,omitempty"`
	credentials adapters.Credentials // never on disk; zero after a restart
	// OwnCredentials names the fields of the credentials that the session has of its own.
	OwnCredentials []string        `json:"ownCredentials,omitempty"`
	Capabilities   json.RawMessage `json:"clientCapabilities,omitempty"`
	Modes          json.RawMessage `json:"modes,omitempty"`
	ConfigOptions  json.RawMessage `json:"configOptions,omitempty"`

	// ChosenMode and Chosen are what clients set, by the option's id: an agent
	// that is started anew is told again.
	ChosenMode string                     `json:"chosenMode,omitempty"`
	Chosen     map[string]json.RawMessage `json:"chosen,omitempty"`
}

const recordVersion = 1

// read takes over what the agent said of the session in answer to the request that
// made or opened it.
func (rec *record) read(result json.RawMessage) {
	if v, ok := rawjson.Member(result, "modes"); ok {
		rec.Modes = bytes.Clone(v)
	}
	if v, ok := rawjson.Member(result, "configOptions"); ok {
		rec.ConfigOptions = bytes.Clone(v)
	}
}

// lacksCredentials reports whether the session had credentials of its own, which a
// restart of the gateway has forgotten.
func (rec *record) lacksCredentials() bool {
	return len(rec.OwnCredentials) > 0 && rec.credentials == adapters.Credentials{}
}

// errCredentials refuses to run a session on another key than its own.
func (rec *record) errCredentials() error {
	names := strings.Join(rec.OwnCredentials, " and ")
	const remedy = `load or resume the session with _meta["` + acp.MetaKey + `"].credentials; {} there has it use the gateway's own`
	return acp.Errorf(acp.CodeAuthRequired, "session %s has credentials of its own (%s), which are kept in memory only and went with the gateway's restart: %s", rec.ID, names, remedy).
		WithData(problem.New(problem.CredentialsRequired, "the session's own credentials (%s) went with the gateway's restart", names).
			With("sessionId", rec.ID).With("fields", rec.OwnCredentials).With("remedy", remedy))
}

// Authorized refuses work in a session that has lost the credentials of its own.
func (s *Session) Authorized() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rec.lacksCredentials() {
		return s.rec.errCredentials()
	}
	return nil
}

// needs adds to n what the session was created with.
func (rec *record) needs(n agents.Needs, a *agents.Agent) agents.Needs {
	meta, _ := rawjson.Member(rec.Setup, "_meta")
	_ = n.Read(meta) // it was valid when the session was created
	n.Credentials, n.Dir = rec.credentials, rec.Cwd
	n.Alone = n.Alone || a.Info().PerSession
	return n
}

// Cleaner returns what takes secrets of the session out of a text.
func (s *Session) Cleaner() func(text string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var n agents.Needs
	meta, _ := rawjson.Member(s.rec.Setup, "_meta")
	_ = n.Read(meta) // it was valid when the session was created
	n.Credentials = s.rec.credentials
	return n.Cleaner()
}

// save writes the record when it changed.
func (s *Session) save() {
	s.saving.Lock()
	defer s.saving.Unlock()
	s.mu.Lock()
	if !s.unsaved || s.m.life == deleted {
		s.mu.Unlock()
		return
	}
	s.unsaved = false
	if l := s.logp.Load(); l != nil {
		s.noteLogLocked(l, s.endOf(l))
	}
	rec := s.rec
	s.mu.Unlock()
	if err := s.set.store.save(rec, s.set.o.Fsync != "never"); err != nil {
		s.logger().Error("save session", "err", err)
		s.mu.Lock()
		s.unsaved = true
		s.mu.Unlock()
	}
}

// change edits the record and saves it.
func (s *Session) change(edit func(rec *record)) {
	s.mu.Lock()
	edit(&s.rec)
	s.unsaved = true
	s.announceLocked()
	s.mu.Unlock()
	s.save()
}

// SetMetadata keeps what a client wants to be kept of the session.
func (s *Session) SetMetadata(raw json.RawMessage) {
	raw = bytes.Clone(raw)
	s.change(func(rec *record) { rec.Metadata = raw })
}
