package session

import (
	"bytes"
	"encoding/json"
	"slices"
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
	Version        int    `json:"version"`
	ID             string `json:"id"`
	Agent          string `json:"agent"`
	AgentSessionID string `json:"agentSessionId"`
	// Earlier are the ids that the session had with its agent before, of which that may keep something; at most
	// maxEarlier, the newest last. One of an imported session the agent here may never have known.
	Earlier    []string   `json:"earlierAgentSessionIds,omitempty"`
	Title      string     `json:"title,omitempty"`
	Gist       string     `json:"gist,omitempty"`       // how the first prompt begins
	Titled     bool       `json:"titled,omitempty"`     // by a client: the agent's own titles do not replace it
	AgentTitle string     `json:"agentTitle,omitempty"` // what the agent calls it, while it is titled by a client
	Cwd        string     `json:"cwd"`
	Continuity Continuity `json:"continuity"`
	CreatedAt  time.Time  `json:"createdAt"`
	Imported   bool       `json:"imported,omitempty"` // from another gateway, and its agent was not started since
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
	// Subagents are the newest subagents of the session; at most maxListed. Unsure says that some may be missing, whose
	// calls begin before the events that a catch-up has read.
	Subagents []version.Subagent `json:"subagents,omitempty"`
	Unsure    bool               `json:"unsure,omitempty"`
	// Servers are the MCP servers that the agent tells of, as they were last. The list is
	// replaced and never changed in place.
	Servers []acp.MCPServer `json:"mcpServers,omitempty"`
	// Granted is what clients have allowed an agent for more than one call that keeps that in a way of its own; at most maxGranted.
	Granted []granted `json:"granted,omitempty"`
	// LeftAt is when the process that worked for the session last let go of it.
	LeftAt time.Time `json:"leftAt,omitzero"`
	// LastSeq is the newest event of the log when the record was written: a log that ends
	// before it has lost some.
	LastSeq uint64 `json:"lastSeq,omitempty"`
	// NotedSeq is the newest event that the record knows. A gateway that was killed wrote more into the log; see
	// catchUp. It is 0 in records of earlier versions, in which LastSeq stands for it.
	NotedSeq uint64 `json:"notedSeq,omitempty"`
	// OpenFrom is the oldest event of what was open then, and the one behind NotedSeq when nothing was: who looks for
	// what a gateway that was killed has left open reads from there. It is 0 when that is not known.
	OpenFrom uint64 `json:"openFrom,omitempty"`
	// BoundSeq is the number up to which the log may have given numbers since, 0 when it
	// was closed in good order.
	BoundSeq uint64 `json:"boundSeq,omitempty"`
	// LogEnd is what is known of the log's file, absent while that is in use.
	LogEnd *logEnd `json:"logEnd,omitempty"`
	// Incomplete says that the agent's own record has what the log has not.
	Incomplete bool `json:"incomplete,omitempty"`
	// Opening says that an agent was being started and not set yet to what was chosen: what it said then of its settings changes nothing of that.
	Opening bool `json:"opening,omitempty"`

	// Edits changes with each change of the record that a client asks for: what a hub has of it may be older when it
	// knows another number.
	Edits uint64 `json:"edits,omitempty"`
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

	held bool // see heldTo; it is not kept

	choices
}

const (
	recordVersion = 1
	maxEarlier    = 32
)

// decode reads a record as it is kept. One of an earlier version does not say whether a permissionMode was asked for since a mode was
// chosen: there it was, if the agent was not opened with it yet, unless a load has asked for another mode since as well. A session that
// must only read does so.
func (rec *record) decode(b []byte) error {
	if err := json.Unmarshal(b, rec); err != nil {
		return err
	}
	if _, says := rawjson.Member(b, "modeOver"); says || rec.Before == nil {
		return nil
	}
	before, wish := record{Setup: rec.Before}, rec.permissionMode()
	mode := rawjson.MemberString(rec.Setup, "_meta", acp.MetaKey, "mode")
	newer := mode != "" && mode != rawjson.MemberString(rec.Before, "_meta", acp.MetaKey, "mode")
	rec.ModeOver = before.permissionMode() != wish && (!newer || wish == "readonly")
	return nil
}

// outlives takes over what the agent here may keep of the session as it was before. The list is replaced and never
// changed in place.
func (rec *record) outlives(before record) {
	ids := slices.DeleteFunc(append(slices.Clone(before.Earlier), before.AgentSessionID), func(id string) bool {
		return id == "" || id == rec.AgentSessionID
	})
	rec.Earlier = ids[max(0, len(ids)-maxEarlier):]
}

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
	if n.Raw {
		n.Secrets = ServerSecrets(rec.Setup)
	}
	return n
}

// Cleaner returns what takes secrets of the session out of a text.
func (s *Session) Cleaner() func(text string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var n agents.Needs
	meta, _ := rawjson.Member(s.rec.Setup, "_meta")
	_ = n.Read(meta) // it was valid when the session was created
	n.Credentials, n.Secrets = s.rec.credentials, ServerSecrets(s.rec.Setup)
	return n.Cleaner()
}

// edit is a change of the record that was made and is not on the disk yet. Who made it waits
// for that, or for the change to be taken back because the record cannot be written.
type edit struct {
	undo func(rec *record)
	told func(err error) // is called outside of all locks, in the order of the edits

	wanted bool // it is a client's: a session that is just being made stays with it
}

// editedLocked notes a change of the record that somebody waits for. It is followed by save.
func (s *Session) editedLocked(e edit) {
	s.rec.Edits++
	s.edits, s.unsaved = append(s.edits, e), true
	s.announceLocked()
}

// edit changes the record, and returns when that is on the disk. change returns what undoes
// it: on an error it was undone.
func (s *Session) edit(change func(rec *record) (undo func(rec *record))) error {
	done := make(chan error, 1)
	s.mu.Lock()
	s.editedLocked(edit{undo: change(&s.rec), told: func(err error) { done <- err }})
	s.mu.Unlock()
	_ = s.save() // done has it
	return <-done
}

// save writes the record when it changed. An error is for who has something to tell of what is
// written; the gateway's own log says it now and then, however many sessions try again each second.
func (s *Session) save() error {
	s.saving.Lock()
	defer s.saving.Unlock()
	s.mu.Lock()
	over := s.noFilesLocked()
	if !over && !s.listed { // it is being opened, and is none before that; nobody finds it, so there are no edits
		s.mu.Unlock()
		return nil
	}
	edits := s.edits
	s.edits = nil
	if over {
		s.mu.Unlock()
		s.tellEdits(edits, notFound(s.id))
		return nil
	}
	if !s.unsaved {
		s.mu.Unlock()
		return nil
	}
	s.unsaved = false
	if l := s.logp.Load(); l != nil {
		s.noteLogLocked(l, s.endOf(l))
	}
	rec := s.rec
	s.mu.Unlock()
	err := s.noteMaking()
	if err == nil {
		err = s.set.store.save(rec, s.set.o.Fsync != "never")
	}
	if err == nil && slices.ContainsFunc(edits, func(e edit) bool { return e.wanted }) {
		err = s.endMaking()
	}
	if err == nil {
		s.set.unsaved.set(s.id, nil)
	} else {
		s.mu.Lock()
		edits = append(edits, s.edits...) // they were made on top of the others
		s.edits = nil
		for _, e := range slices.Backward(edits) {
			e.undo(&s.rec)
			s.rec.Edits++ // somebody may have read the record in between
		}
		s.unsaved = true
		s.announceLocked()
		tell := false
		if s.m.life != deleted { // else closeLog has forgotten it
			_, tell = s.set.unsaved.set(s.id, err)
		}
		s.mu.Unlock()
		if tell {
			s.logger().Error("the records of sessions cannot be written", "sessions", s.set.unsaved.count(), "err", err)
		}
	}
	s.tellEdits(edits, err)
	return err
}

// Unwritten is an error of save for clients, nil for none.
func (s *Session) Unwritten(err error) error {
	if err == nil {
		return nil
	}
	return problem.Wrap(problem.Unavailable, err, "the record of session %s cannot be written now", s.id)
}

// tellEdits has those told who wait for edits; saving is held, so that they are told in the
// order of the edits. It does not wait: telling may write to clients.
func (s *Session) tellEdits(edits []edit, err error) {
	if len(edits) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range edits {
		s.tellings = append(s.tellings, func() { e.told(err) })
	}
	if !s.telling {
		s.telling = true
		s.set.o.Tasks.Go(s.tellAll)
	}
}

func (s *Session) tellAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.tellings) > 0 {
		tell := s.tellings[0]
		s.tellings = s.tellings[1:]
		s.mu.Unlock()
		tell()
		s.mu.Lock()
	}
	s.tellings, s.telling = nil, false
}

// change changes the record and saves it, or leaves that to the next save.
func (s *Session) change(change func(rec *record)) {
	s.mu.Lock()
	change(&s.rec)
	s.unsaved = true
	s.announceLocked()
	s.mu.Unlock()
	_ = s.save()
}

// SetMetadata keeps what a client wants to be kept of the session, and tells who called when it is on the disk. It does not wait.
func (s *Session) SetMetadata(raw json.RawMessage, told func(err error)) {
	s.mu.Lock()
	was := s.rec.Metadata
	s.rec.Metadata = bytes.Clone(raw)
	s.editedLocked(edit{undo: func(rec *record) { rec.Metadata = was }, told: told, wanted: true})
	s.mu.Unlock()
	s.saveSoon()
}
