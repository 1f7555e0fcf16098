package session

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/acp/version"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/internal/awake"
	"sandboxagent.dev/sandbox-agent/runtime/agents"
	"sandboxagent.dev/sandbox-agent/runtime/journal"
	"sandboxagent.dev/sandbox-agent/runtime/traffic"
	"sandboxagent.dev/sandbox-agent/runtime/viewer"
)

// Session is one conversation with an agent. Its methods are safe for concurrent use.
type Session struct {
	set    *Set
	id     string
	quoted []byte // id as a JSON string

	active   atomic.Int64                // unix ms of the last message
	stirred  atomic.Int64                // the awake.Moment of the last message
	oldestAt atomic.Int64                // unix ms of the oldest event, as far as it is known; an older one was let go
	opening  sync.Mutex                  // held while the log is opened
	logp     atomic.Pointer[journal.Log] // nil until opened
	end      atomic.Pointer[logEnd]      // what the record says of a log that was not opened; see resting
	trusted  sync.Once                   // it was compared with the file
	saving   sync.Mutex                  // held by who uses the session's folder, but for its log; see inFolder
	away     string                      // where the files are of a session that is being deleted; saving guards it
	wroteAt  time.Time                   // when the syncer saved the record last; its own

	lostCalls sync.Once              // of EndLostCalls
	unread    atomic.Bool            // it could not read the log
	whole     sync.RWMutex           // read by who needs all events that there are, written while some are let go
	catching  sync.Mutex             // held by catchUp
	behind    atomic.Bool            // the log may say what the record does not know
	madeHere  bool                   // by this gateway, since it started
	recall    sync.Once              // of prompts that an earlier gateway has taken
	making    atomic.Bool            // its client is not told of it yet; saving guards that this ends
	born      atomic.Pointer[record] // of a session that was just made, until its record is on disk
	reached   uint64                 // the newest event of the log when the gateway started, as the record knows it
	bound     uint64                 // and up to which number more may have been given
	storing   *storing               // nil unless the session's durability is Sync

	mu         sync.Mutex
	m          machine
	rec        record
	unsaved    bool              // rec differs from the file
	edits      []edit            // that the file does not have, as many at most as there are requests for them
	tellings   []func()          // of edits whose fate is known, in their order
	telling    bool              // tellAll is under way
	kept       map[string][]byte // of a session without files: texts beside it; see Kept
	departing  string            // stopping: the gateway at which it goes on; "" for none
	refused    []Unsupported     // what the agent did not take when it opened the session last
	feeds      map[*viewer.Feed]struct{}
	sole       atomic.Pointer[viewer.Feed] // the one of feeds, nil when there are more or none
	asks       map[int64]*ask              // open, by the id that clients know; at most maxAsks
	calls      calls
	tools      context.Context    // of what the host does for the agent now; nil while that was nothing
	endTools   context.CancelFunc // of tools
	notedAlone bool               // as the log has it: the agent works alone
	aloneFrom  uint64             // the entry of the log that says so
	traced     bool               // calls, m and notedAlone know all that is open in the log
	cost       cost
	said       said               // of its settings, by the agent
	setBy      map[string]uint64  // by field: the newest request by which it is set, see askLocked; at most maxSaid
	openings   uint64             // counts the links that it has had
	choosing   int                // requests of clients that set something and that the agent has not answered
	holding    bool               // a load asks for a session that only reads, and is not done
	lookAgain  chan struct{}      // closed when awaitChoices is to look again; nil while nobody waits for it
	gone       chan struct{}      // closed when it was deleted
	entered    sync.RWMutex       // read by who attaches a client, written when gone is closed
	creator    journal.Recipient  // until it has been answered: the client that makes the session
	idle       chan struct{}      // closed when no turn is under way; nil when nobody waits
	listed     bool               // the set has it: its changes are told
	subagents  *version.Subagents // nil until one is noted
	told       shown              // last, to those who follow the list of sessions,
	toldActive int64              // and active then
	justTold   bool               // that it works, or does no more: see rest
	giveUp     func()             // ends the start in progress
	backoff    agents.Backoff     // of a process that the session has alone
	raw        *traffic.Recording // of the process that it had last; nil for none
}

var _ viewer.Session = (*Session)(nil)

// newSession returns a session that is dormant, or starting: its agent is opening it.
func newSession(set *Set, rec record, h hosting) *Session {
	held := set.durability(rec.Setup) == Sync
	if held && h == starting { // it stays so at a gateway with another default
		rec.Setup = rawjson.SetMember(rec.Setup, []byte(`"sync"`), "_meta", acp.MetaKey, "durability")
	}
	s := &Session{
		set: set, id: rec.ID, quoted: rawjson.AppendQuoted(make([]byte, 0, len(rec.ID)+2), rec.ID), rec: rec, m: machine{id: rec.ID, hosting: h},
		reached: rec.LastSeq, bound: rec.BoundSeq, creator: journal.Nobody, giveUp: func() {}, gone: make(chan struct{}),
	}
	s.m.away = s.departedLocked
	if now := withoutProcess(rec.Servers); now != nil { // the gateway was killed
		s.rec.Servers = now
	}
	if held {
		s.storing = &storing{known: make(chan struct{}), refused: make(chan struct{})}
	}
	if h == starting {
		s.madeHere = true
		born := rec // of most sessions there is no copy
		s.born.Store(&born)
	}
	switch {
	case rec.Ended != nil:
		s.m.life = ended
	case rec.Closed:
		s.m.life = closed
	}
	s.behind.Store(h == dormant)
	s.traced, s.rec.OpenFrom = h == starting, min(rec.OpenFrom, rec.NotedSeq+1) // it was edited, or comes from elsewhere
	s.active.Store(rec.CreatedAt.UnixMilli())
	if rec.LogEnd != nil {
		s.end.Store(rec.LogEnd)
		s.active.Store(rec.LogEnd.At)
	}
	s.stirred.Store(int64(awake.Now()))
	return s
}

// logger returns the gateway's log for what concerns the session. There is much to say of few.
func (s *Session) logger() *slog.Logger { return s.set.o.Logger.With("session", s.id) }

// ID returns the session's id.
func (s *Session) ID() string { return s.id }

// Gone is closed when the session was deleted.
func (s *Session) Gone() <-chan struct{} { return s.gone }

// Enter implements [viewer.Session].
func (s *Session) Enter() bool {
	s.entered.RLock()
	select {
	case <-s.gone:
		s.entered.RUnlock()
		return false
	default:
		return true
	}
}

// Exit implements [viewer.Session].
func (s *Session) Exit() { s.entered.RUnlock() }

// Join implements [viewer.Session].
func (s *Session) Join(f *viewer.Feed, after uint64) (open []uint64) {
	defer func() {
		if p := s.Process(); p != nil {
			s.set.AskLate(f.Client(), p)
		}
	}()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.feeds == nil {
		s.feeds = map[*viewer.Feed]struct{}{}
	}
	s.feeds[f] = struct{}{}
	s.soleLocked()
	s.announceLocked()
	for _, a := range s.asks {
		if a.seq <= after {
			open = append(open, a.seq)
		}
	}
	return open
}

// Leave implements [viewer.Session].
func (s *Session) Leave(f *viewer.Feed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.feeds, f)
	s.soleLocked()
	s.announceLocked()
}

// attendedLocked reports whether a client is attached that could answer.
func (s *Session) attendedLocked() bool {
	for f := range s.feeds {
		if !f.Client().Capabilities().Watch {
			return true
		}
	}
	return false
}

// soleLocked notes the only reader, to whom what is shown can be written at once: of several
// one would wait for the others.
func (s *Session) soleLocked() {
	s.sole.Store(nil)
	if len(s.feeds) == 1 {
		for f := range s.feeds {
			s.sole.Store(f)
		}
	}
}

// Clients returns the clients that are attached.
func (s *Session) Clients() []*viewer.Client {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*viewer.Client
	for f := range s.feeds {
		out = append(out, f.Client())
	}
	return out
}

// BeginsFor returns the entry behind which a client that acts on the session without
// having opened it is attached: now, but one that acts on its new session before the
// answer is out misses nothing.
func (s *Session) BeginsFor(c *viewer.Client) uint64 {
	last := s.Log().Last()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.creator == c.Number() {
		return 0
	}
	return last
}

// Made says that somebody is about to be told of the session: from now on a start of the gateway keeps it. An error is why
// nobody must be told.
func (s *Session) Made() error {
	s.saving.Lock()
	defer s.saving.Unlock()
	if s.away != "" {
		return notFound(s.id)
	}
	if err := s.endMaking(); err != nil {
		return problem.Wrap(problem.Unavailable, err, "the session cannot be kept")
	}
	return nil
}

// Making reports whether the session is still being made: nobody was told yet that it is there.
func (s *Session) Making() bool { return s.making.Load() }

// endMaking takes back what noteMaking has noted. saving is held.
func (s *Session) endMaking() error {
	if !s.making.Load() {
		return nil
	}
	err := s.set.store.made(s.id, s.set.o.Fsync != "never")
	if err == nil {
		s.making.Store(false)
	}
	return err
}

// noteMaking notes beside what is written of a session that is being made that nobody was told of it.
func (s *Session) noteMaking() error {
	if !s.making.Load() {
		return nil
	}
	return s.set.store.beginMaking(s.id)
}

// Answered says that the client that made the session knows its id.
func (s *Session) Answered() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.creator = journal.Nobody
}

// link is a process that works for a session, from the moment the agent is asked to
// open it there.
type link struct {
	s         *Session
	p         *agents.Process
	native    string              // the agent's own id of the session
	opening   uint64              // which opening of the session it is; s.mu guards it
	replaying bool                // what the agent shows, the log has; s.mu guards it
	replayed  bool                // it has shown something of the conversation meanwhile; likewise
	merge     *merge              // compares the two; nil when nobody does; likewise
	opened    bool                // the agent has opened the session; likewise
	unwanted  bool                // nobody needs it any more; likewise
	modes     bool                // the agent has said in which mode it has opened it; written before anybody is served
	options   bool                // and with which options; likewise
	at        [2]string           // the mode in which it has opened it, as [record.inModes] has it; s.mu guards it
	refused   []Unsupported       // what of the setup it said has no effect; written before anybody is served
	waiting   []choice            // what it is to be set to when it offers options; s.mu guards it
	carrying  bool                // it is being set to that; likewise
	children  map[string]struct{} // the JSON tokens of the ids of its children; at most maxChildren; likewise
}

// ofConversation reports whether an update is of what was said and done.
func ofConversation(m *acp.Message) bool {
	switch string(m.UpdateKind()) {
	case "user_message_chunk", "agent_message_chunk", "agent_thought_chunk", "tool_call", "tool_call_update", "plan",
		compactionUpdate, "compaction_summary_chunk":
		return true
	}
	return false
}

// nativeID returns what params.sessionId must become on the way to the agent, ""
// when the ids are the same.
func (l *link) nativeID() string {
	if l.native != l.s.id {
		return l.native
	}
	return ""
}

// At is where a session is open at an agent, and when a request was given to it. Each opening is another one, also at the same process under the
// same id. The zero value is nowhere.
type At struct {
	link *link
	said uint64 // what the agent says of its settings from then on has a higher number
}

// Process returns the process; nil for nowhere.
func (at At) Process() *agents.Process {
	if at.link == nil {
		return nil
	}
	return at.link.p
}

// Native returns the session's id there, "" when it is the gateway's own.
func (at At) Native() string { return at.link.nativeID() }

// newestLocked reports whether the session was not opened anew since.
func (at At) newestLocked(s *Session) bool { return at.link != nil && at.link.opening == s.openings }

// servesLocked reports whether the process serves the session now.
func (l *link) servesLocked() bool { return l.s.m.link == l && l.s.m.hosting == serving }

// worksLocked is servesLocked, or reports whether the session is being opened there: not whether it was closed, or given back.
func (l *link) worksLocked() bool { return l.s.m.link == l && l.s.m.hosting != releasing }

// Flush implements [agents.Receiver]. While the disk takes nothing, the agent
// waits.
func (l *link) Flush() {
	l.s.Flush()
	l.s.Log().Room(l.p.Gone())
}

// Lost implements [agents.Receiver].
func (l *link) Lost(cause error) { l.s.handle(event{kind: lost, link: l, err: cause}) }

// Receive implements [agents.Receiver].
func (l *link) Receive(m *acp.Message) bool {
	s := l.s
	if m.Method() != acp.MethodSessionUpdate {
		return s.receiveOther(l, m)
	}
	if m.Version() == version.Two {
		return s.receiveSecond(l, m)
	}
	kind := journal.Update
	if m.Version() == version.One {
		kind = journal.First
	}
	s.mu.Lock()
	if s.m.link != l || l.replaying {
		l.replayed = l.replayed || ofConversation(m)
		if s.m.link == l && l.merge != nil {
			l.merge.take(m)
		}
		s.mu.Unlock()
		return false
	}
	switch string(m.UpdateKind()) {
	case "agent_message_chunk", "agent_thought_chunk", "plan":
		s.showsWorkLocked()
	case "tool_call", "tool_call_update":
		s.showsWorkLocked()
		s.calls.note(m.Update(), s.Log().Given()+1)
		s.countCallsLocked()
		if s.noteSubagentLocked(m) {
			s.saveSoon() // not at the end of the turn, which may be far behind it
		}
	case compactionUpdate:
		s.calls.note(m.Update(), s.Log().Given()+1)
	case "user_message_chunk":
		s.noteGistLocked(m.Update())
	case "usage_update":
		s.noteCostLocked(m.Update(), time.Now())
		if more, currency := s.cost.note(m.Update()); more > 0 {
			s.set.o.Observer.Charged(l.p.Agent().ID(), currency, more)
		}
	case "session_info_update":
		own, left := s.untitledLocked(m)
		if !left {
			s.mu.Unlock()
			return false
		}
		m = own
		was := s.rec.Title
		if s.noteSettingsLocked(m, s.m.hosting == serving); s.rec.Title != was {
			s.saveSoon() // likewise
		}
	case "current_mode_update", "config_option_update":
		s.noteSettingsLocked(m, s.followsLocked())
		l.tellsLocked(string(m.UpdateKind()) == "current_mode_update", string(m.UpdateKind()) == "config_option_update")
		s.carryLateLocked()
	}
	s.append(kind, journal.Everyone, m)
	s.shownLeaving()
	return true
}

// receiveSecond takes an update that clients of version 2 of the protocol alone are given.
// All that it means to the gateway comes in version 1, too.
func (s *Session) receiveSecond(l *link, m *acp.Message) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.m.link != l || l.replaying {
		return false
	}
	if m.OfChild() {
		l.noteChildLocked(m.SessionRaw())
	}
	s.calls.noteSecond(m, !m.OfChild(), s.Log().Given()+1)
	s.append(journal.Second, journal.Everyone, m)
	return true
}

// receiveOther takes what is no update.
func (s *Session) receiveOther(l *link, m *acp.Message) bool {
	switch {
	case m.Method() == acp.MethodWorking:
		s.mu.Lock()
		if s.m.link != l {
			s.mu.Unlock()
			return false
		}
		s.m.alone = rawjson.MemberBool(m.Params(), "working")
		s.m.rests()
		noted := s.noteAloneLocked()
		s.announceLocked()
		s.shownLeaving()
		return noted
	case m.Method() == acp.MethodMCPServers:
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.m.link != l || !s.noteServersLocked(m) {
			return false
		}
		if s.born.Load() == nil { // else the first save has it
			s.saveSoon()
		}
		return true
	case m.IsRequest():
		return s.ask(l, m)
	case m.Method() == acp.MethodCancelRequest:
		s.set.Withdrawn(l.p, m)
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.m.link != l {
		return false
	}
	s.append(journal.Notice, journal.Everyone, m)
	return true
}

// shownLeaving lets go of mu behind what the agent has shown: in the wrong mode it is told to end what it does.
func (s *Session) shownLeaving() {
	if s.m.worksAstray() && s.m.link.mayNotWorkLocked() {
		s.handleLocked(event{kind: works})
		return
	}
	s.mu.Unlock()
}

// noteAloneLocked writes down whether the agent works though nobody has prompted it, for
// readers of the log to whom that is a state of the session. It reports whether that has
// changed.
func (s *Session) noteAloneLocked() bool {
	if s.m.alone == s.notedAlone {
		return false
	}
	s.notedAlone = s.m.alone
	n := acp.NewNotification(acp.MethodWorking, rawjson.Object{}.String("sessionId", s.id).Raw("working", strconv.AppendBool(nil, s.m.alone)).End())
	s.aloneFrom = s.Log().Append(journal.Notice, journal.Nobody, n.Frame())
	return true
}

// showsWorkLocked notes that the agent does something.
func (s *Session) showsWorkLocked() {
	switch t := s.m.turn; {
	case t == nil:
		s.m.working = true
	case !t.shown && t.phase >= running:
		t.shown = true
		t.span.FirstUpdate()
		s.dropPromptLocked(t)
	}
}

// append adds an entry whose frame is m with the gateway's session id. What is of a child
// of the session keeps the child's.
func (s *Session) append(k journal.Kind, to journal.Recipient, m *acp.Message) uint64 {
	if raw := m.SessionRaw(); raw != nil && string(raw) != string(s.quoted) && !m.OfChild() {
		before, after := m.SplitSession()
		return s.Log().Append(k, to, before, s.quoted, after)
	}
	return s.Log().Append(k, to, m.Frame())
}

// Record appends what a client has sent, and shows it.
func (s *Session) Record(by journal.Recipient, m *acp.Message) {
	s.Log().Append(journal.Client, by, m.Frame())
	s.Flush()
}

// Notify passes a notice on to everybody, if a turn is under way: it concerns the
// work in hand. It reports whether it did.
func (s *Session) Notify(m *acp.Message) bool {
	s.mu.Lock()
	busy := s.m.turn != nil
	if busy {
		s.Log().Append(journal.Notice, journal.Everyone, m.Frame())
	}
	s.mu.Unlock()
	if busy {
		s.Flush()
	}
	return busy
}

// On reports whether p works for the session.
func (s *Session) On(p *agents.Process) bool { return s.Process() == p }

// Process returns the process that serves the session, nil when there is none.
func (s *Session) Process() *agents.Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.m.hosting != serving {
		return nil
	}
	return s.m.link.p
}

// Send passes a client's notification on to the agent, if one works for the session.
func (s *Session) Send(ctx context.Context, m *acp.Message) {
	s.mu.Lock()
	l := s.m.link
	working := s.m.hosting == serving
	s.mu.Unlock()
	if working {
		_ = l.p.Send(ctx, m.Rewritten("", l.nativeID()))
	}
}

// cost is what the session has cost, as the agent reported it last. The session's mu
// guards it.
type cost struct {
	known bool // sum is all that the agent has reported
	sum   float64
}

// note returns how much more the session has cost since the agent said so before. What
// it says first of a session that is older than the gateway, or was made elsewhere, is
// where counting begins; a sum that shrinks has begun anew.
func (c *cost) note(update json.RawMessage) (more float64, currency string) {
	said, ok := rawjson.Member(update, "cost")
	if !ok {
		return 0, ""
	}
	raw, _ := rawjson.Member(said, "amount")
	now, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || now < 0 {
		return 0, ""
	}
	if more = now - c.sum; more < 0 {
		more = now
	}
	if !c.known {
		more = 0
	}
	c.known, c.sum = true, now
	return more, rawjson.MemberString(said, "currency")
}

// noteLossLocked tells the clients that the process has ended by itself.
func (s *Session) noteLossLocked(cause error, x *after) {
	if errors.Is(cause, agents.ErrShutdown) || errors.Is(cause, agents.ErrUnused) {
		return
	}
	end := EndInfo{Reason: "agent_process_exited", TerminatedBy: "agent", Message: cause.Error(), At: time.Now().UTC()}
	if exit, ok := errors.AsType[*adapters.ExitError](cause); ok {
		end.Stderr = agents.QuoteStderr(exit.Stderr)
		if exit.Signal == "" {
			end.ExitCode = &exit.Code
		}
	}
	s.noteEndLocked(end, x)
}

// noteEndLocked tells the clients that the session, or its process, has ended.
func (s *Session) noteEndLocked(end EndInfo, x *after) {
	s.Log().Append(journal.Notice, journal.Everyone, s.endFrame(end))
	x.flush = true
}

// endFrame is the notification that tells clients of an end.
func (s *Session) endFrame(end EndInfo) []byte {
	b, _ := schema.Encode(struct { // it has no values that cannot be encoded
		SessionID string  `json:"sessionId"`
		Data      EndInfo `json:"data"`
	}{s.id, end})
	n := acp.NewNotification("_sandboxagent/session/ended", b)
	return n.Frame()
}
