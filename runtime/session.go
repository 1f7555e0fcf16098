package runtime

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/runtime/journal"
)

// Session is one conversation with an agent: its log, who is attached, and the
// process that serves it while there is one.
type Session struct {
	r      *Runtime
	id     string
	quoted []byte // id as a JSON string

	muted   atomic.Bool                 // the agent replays what the log has
	serving atomic.Pointer[proc]        // the live process, nil when dormant
	active  atomic.Int64                // unix ms of the last message
	logMu   sync.Mutex                  // held while the log is opened
	logp    atomic.Pointer[journal.Log] // nil until opened

	saving sync.Mutex // orders writes of the record: an older one must not come last

	mu      sync.Mutex
	rec     record
	turn    *turn   // the running one
	queue   []*turn // waiting prompts, at most maxQueued
	feeds   map[*feed]struct{}
	opening chan struct{}     // closed when the start in progress has ended; nil without one
	unsaved bool              // rec differs from the file
	gone    bool              // deleted
	creator journal.Recipient // until it has been answered: the client that makes the session
	idle    chan struct{}     // closed when no turn runs; nil when nobody waits

	backoff backoff // of a process that the session has alone; agent.mu guards it

	calls   calls
	settled sync.Once // of settleCalls

	awaited atomic.Pointer[turn] // its agent has shown nothing yet
	priced  bool                 // cost is all that the agent has reported; mu guards it
	cost    float64              // so far, as the agent reported it last; likewise

	asksMu sync.Mutex      // the innermost lock but the log's
	asks   map[uint64]*ask // open, by sequence number; at most maxAsks
}

const (
	maxQueued = 64
	maxAsks   = 64
)

func newSession(r *Runtime, rec record) *Session {
	s := &Session{
		creator: journal.Nobody,
		r:       r, id: rec.ID, quoted: rawjson.AppendQuoted(nil, rec.ID), rec: rec,
		asks: map[uint64]*ask{}, feeds: map[*feed]struct{}{},
	}
	s.active.Store(rec.CreatedAt.UnixMilli())
	return s
}

func shortHash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:8])
}

// logMemory bounds a log's memory: without a file it is all there is.
func logMemory(ephemeral bool) int {
	if ephemeral {
		return 64 << 20
	}
	return journal.DefaultMemory
}

// flush shows what was appended. When the file does not take it, it is shown
// later: logTrouble hears of it.
func (s *Session) flush() {
	s.active.Store(time.Now().UnixMilli())
	if s.log().Flush() == nil && s.r.syncer.policy == "interval" {
		s.r.syncer.soon(s)
	}
}

func (s *Session) syncLog() error {
	start := time.Now()
	err := s.log().Sync()
	s.r.watch.Synced(time.Since(start), err)
	return err
}

// saveLog writes down what the session knows; a log nobody opened has nothing new.
func (s *Session) saveLog(sync bool) error {
	s.save()
	l := s.openLog()
	switch {
	case l == nil:
		return nil
	case sync:
		return l.Sync()
	default:
		return l.Flush()
	}
}

func (s *Session) closeLog() error {
	if l := s.openLog(); l != nil {
		return l.Close()
	}
	return nil
}

// openLog returns the session's log if it is in use, else nil.
func (s *Session) openLog() *journal.Log {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone {
		return nil
	}
	return s.logp.Load()
}

// on reports whether p serves the session.
func (s *Session) on(p *proc) bool { return s.serving.Load() == p }

// live returns the process that serves the session, nil when it is dormant.
func (s *Session) live() *proc { return s.serving.Load() }

// native returns the agent's own id of the session.
func (s *Session) native() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rec.AgentSessionID
}

// toAgent returns what params.sessionId must become on the way to the agent,
// "" when the ids are the same.
func (s *Session) toAgent() string {
	if n := s.native(); n != s.id {
		return n
	}
	return ""
}

// append adds an entry whose frame is m with the gateway's session id.
func (s *Session) append(k journal.Kind, to journal.Recipient, m *acp.Message) uint64 {
	if raw := m.SessionRaw(); raw != nil && string(raw) != string(s.quoted) {
		before, after := m.SplitSession()
		return s.log().Append(k, to, before, s.quoted, after)
	}
	return s.log().Append(k, to, m.Frame())
}

// fromAgent takes a message of the agent for this session. It runs on the
// pump and reports whether it appended something that must be flushed.
func (s *Session) fromAgent(p *proc, m *acp.Message) bool {
	if m.Method() == "session/update" {
		if s.muted.Load() {
			return false
		}
		switch string(m.UpdateKind()) {
		case "agent_message_chunk", "agent_thought_chunk", "tool_call", "tool_call_update", "plan":
			if s.awaited.Load() != nil {
				s.shown()
			}
			s.noteCall(m)
		case "usage_update":
			s.charge(p, m)
		case "current_mode_update", "config_option_update", "session_info_update":
			s.track(m)
		}
		s.append(journal.Update, journal.Everyone, m)
		return true
	}
	if m.IsRequest() {
		return s.ask(p, m)
	}
	if m.Method() == "$/cancel_request" {
		return s.askWithdrawn(p, m)
	}
	s.append(journal.Notice, journal.Everyone, m)
	return true
}

// shown notes that the agent has begun to show its work.
func (s *Session) shown() {
	if t := s.awaited.Swap(nil); t != nil {
		t.span.FirstUpdate()
	}
}

// charge tells what the session has cost since the agent said so before. What
// it says first of a session that is older than the gateway, or was made
// elsewhere, is where counting begins; a sum that shrinks has begun anew.
func (s *Session) charge(p *proc, m *acp.Message) {
	cost, ok := rawjson.Member(m.Update(), "cost")
	if !ok {
		return
	}
	raw, _ := rawjson.Member(cost, "amount")
	now, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || now < 0 {
		return
	}
	s.mu.Lock()
	more := now - s.cost
	if more < 0 {
		more = now
	}
	if !s.priced {
		more = 0
	}
	s.priced, s.cost = true, now
	s.mu.Unlock()
	if more > 0 {
		s.r.watch.Charged(p.agent.id, rawjson.MemberString(cost, "currency"), more)
	}
}

// track keeps the state that a later client is told at once.
func (s *Session) track(m *acp.Message) {
	u := m.Update()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch string(m.UpdateKind()) {
	case "current_mode_update":
		if mode, ok := rawjson.Member(u, "currentModeId"); ok && len(s.rec.Modes) > 0 {
			s.rec.Modes = rawjson.SetMember(s.rec.Modes, mode, "currentModeId")
		}
	case "config_option_update":
		if opts, ok := rawjson.Member(u, "configOptions"); ok {
			s.rec.ConfigOptions = append(json.RawMessage(nil), opts...)
		}
	case "session_info_update":
		if t := rawjson.MemberString(u, "title"); t != "" {
			s.rec.Title = t
		}
	}
	s.unsaved = true
}

// save writes the record when it changed.
func (s *Session) save() {
	s.saving.Lock()
	defer s.saving.Unlock()
	s.mu.Lock()
	if !s.unsaved || s.gone {
		s.mu.Unlock()
		return
	}
	s.unsaved = false
	rec := s.rec
	s.mu.Unlock()
	if err := s.r.store.save(rec, s.r.o.Fsync != "never"); err != nil {
		s.r.log.Error("save session", "session", s.id, "err", err)
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
	s.mu.Unlock()
	s.save()
}

// notify appends a notification of the gateway for everyone and shows it.
func (s *Session) notify(method string, params any) {
	b, err := schema.Encode(params)
	if err != nil {
		s.r.log.Error("encode notification", "method", method, "err", err)
		return
	}
	n := acp.NewNotification(method, b)
	s.log().Append(journal.Notice, journal.Everyone, n.Frame())
	s.flush()
}

// lostProcess makes the session dormant because its process ended.
func (s *Session) lostProcess(p *proc, cause error) {
	if !s.serving.CompareAndSwap(p, nil) {
		return
	}
	s.muted.Store(false)
	s.closeAsks(nil, every, Dropped)
	s.endHostTools()
	s.failCalls("the agent's process ended")
	if errors.Is(cause, errShutdown) || errors.Is(cause, errUnused) {
		return
	}
	end := EndInfo{Reason: "agent_process_exited", TerminatedBy: "agent", Message: cause.Error(), At: time.Now().UTC()}
	if exit, ok := errors.AsType[*adapters.ExitError](cause); ok {
		end.Stderr = stderrInfo(exit.Stderr)
		if exit.Signal == "" {
			end.ExitCode = &exit.Code
		}
	}
	s.notify("_sandboxagent/session/ended", endedParams{SessionID: s.id, Data: end})
}

// endedParams are the params of _sandboxagent/session/ended.
type endedParams struct {
	SessionID string  `json:"sessionId"`
	Data      EndInfo `json:"data"`
}

// giveBack detaches the session from its process; it becomes dormant. What the
// agent still waits for is answered.
func (s *Session) giveBack() {
	p := s.serving.Swap(nil)
	s.closeAsks(p, every, Dropped)
	if p != nil {
		p.unbind(s.native())
		s.failCalls("the session was closed")
	}
	s.endHostTools()
}

// awaitIdle waits until no turn runs or ctx ends.
func (s *Session) awaitIdle(ctx context.Context) {
	s.mu.Lock()
	if s.turn == nil {
		s.mu.Unlock()
		return
	}
	if s.idle == nil {
		s.idle = make(chan struct{})
	}
	idle := s.idle
	s.mu.Unlock()
	select {
	case <-idle:
	case <-ctx.Done():
	}
}

func (s *Session) openAsks() int {
	s.asksMu.Lock()
	defer s.asksMu.Unlock()
	return len(s.asks)
}

// stateLocked derives what the session is doing.
func (s *Session) stateLocked() State {
	switch {
	case s.rec.Ended != nil:
		return StateEnded
	case s.openAsks() > 0:
		return StateWaiting
	case s.turn != nil:
		return StateRunning
	case s.rec.Closed:
		return StateClosed
	case s.serving.Load() == nil:
		return StateDormant
	}
	return StateIdle
}
