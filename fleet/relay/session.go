package relay

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/version"
	"sandboxagent.dev/sandbox-agent/fleet/store"
	"sandboxagent.dev/sandbox-agent/runtime/journal"
	"sandboxagent.dev/sandbox-agent/runtime/viewer"
)

const (
	// window is how many bytes of a session a client may be behind before its node is made
	// to wait. A client without a stream is not waited for: beyond the window the oldest
	// go, and who opens the stream is told so.
	window = 512 << 10
	// kept is how much is kept of what was written, for streams that break. It is what an
	// idle session takes, some times up to maxSessions for a connection.
	kept = 64 << 10
	// stall is how long a client that has a stream and reads nothing is waited for.
	stall = time.Minute
	// maxOwed bounds the turns whose ends the client waits for in a session. A node has one go on at a time; beyond, the oldest is
	// that of a node which says of none how it ended, and is forgotten.
	maxOwed = 64
	// maxLapsed bounds what is kept of how a turn ended whose prompt may still be answered.
	maxLapsed = 8 << 10
)

// session is a session that a client has open at a node: what came of it lately, on its way
// to the client.
type session struct {
	c    *Client
	id   string               // "" for what a node says of no session
	line atomic.Pointer[line] // nil for a copy, which is no session of the connection
	log  *journal.Log         // in memory; bounded by show
	gone atomic.Bool          // the store has heard that it is deleted

	// Guarded by Client.mu.
	open      bool         // a node has opened it for this connection
	asking    int          // requests to open it that are with its node
	sender    *sender      // nil when nobody sends what has waited, and nobody is about to
	opens     int          // requests of the client to open it that are not answered
	left      bool         // the client has left it, and wants it again behind that
	moving    string       // the move that it waits for, "" for none
	owner     *store.Owner // the newest that the hub has told of who has it, nil for nothing
	behind    bool         // it is still to be opened where that says that it is
	held      []held       // what waits for all that, by its place
	waiting   int          // requests among them, also those that are being sent; bounded by maxHeld
	bytes     int          // of these; bounded by maxHeldBytes
	place     uint64       // of the newest that the client has asked of it
	wanted    uint64       // place of the newest by which the client has the session, 0 for none
	cancelled uint64       // place of the newest cancel of all
	alone     []alone      // prompts that were cancelled alone, the newest; at most maxAlone
	sent      uint64       // place of the newest that was sent to the node that it is at, 0 for none
	over      error        // why nothing more can be asked of it, when the client has opened the session anew; else nil

	following sync.Mutex // held while it is followed; not with Client.mu

	noting sync.Mutex // a leaf
	seen   uint64     // number of the newest event, at the node
	shown  uint64     // newest that was put on its way by its number since the client asked to open the session
	told   uint64     // turns that ended up to this event were told of before the session moved; in version 1, where that is the answer to their prompts
	idle   uint64     // in version 2: the newest event with whose state a turn ended
	ended  uint64     // in version 2: the newest of which a client that wants to know how turns end was told that one ended
	owed   []owed     // in version 2: turns of the client that have begun, and of whose ends it was not told; at most maxOwed
	failed []string   // in version 2: names of the newest turns of which the hub itself has told that they failed, or a node that the session has left how they ended; at most maxOwed
	works  bool       // in version 2: the client was told so last
	lapsed lapsed     // in version 2: the newest turn that ended, and of which its gateway knew no more whose that was

	showing  sync.Mutex // held while a message is put on its way, which waits for the client; not with Client.mu
	ahead    []part     // of the log, oldest first, that may not be written yet
	size     int        // of them, in bytes
	deserted bool       // the client has let a wait run out
}

// owed is a turn of which the client is still to be told that it ended.
type owed struct {
	name  string // of its prompt; "" when the state alone tells that it ended
	begun uint64 // its first event
	place uint64 // of the prompt among what the client has asked
}

// lapsed is a turn of which its gateway, which was started anew, knew no more whose it was.
type lapsed struct {
	after, seq uint64          // it has begun behind the one event, and ended with the other
	end        json.RawMessage // the params that told so
}

// part is a run of entries of a log.
type part struct {
	last  uint64
	bytes int
}

var _ viewer.Session = (*session)(nil)

func newSession(c *Client, l *line, id string) *session {
	log, _ := journal.Open("", journal.Options{Memory: 1 << 30}) // in memory: it cannot fail
	s := &session{c: c, id: id, log: log}
	s.line.Store(l)
	return s
}

// at returns the connection to the node that has the session.
func (s *session) at() *line { return s.line.Load() }

// asked notes that the client asks to open the session.
func (s *session) asked() {
	s.noting.Lock()
	defer s.noting.Unlock()
	s.shown, s.failed = 0, nil
}

// reached returns the number of the newest event that the client was shown since then, 0 for
// none. There are newer ones that nobody is shown, such as the end of a turn.
func (s *session) reached() uint64 {
	s.noting.Lock()
	defer s.noting.Unlock()
	return s.shown
}

// saw notes that a node has opened the session, the number of the event that its answer names as the newest
// before it, and the subagents that work.
func (s *session) saw(result json.RawMessage) {
	s.gone.Store(false)
	if l := s.at(); l != nil { // not of a copy
		list, _ := rawjson.Member(result, "_meta", acp.MetaKey, "subagents")
		s.c.mu.Lock()
		for _, one := range rawjson.Elements(list) {
			if one[0] == '"' {
				l.noteChildLocked(rawjson.Unquote(one), s)
			}
		}
		s.c.mu.Unlock()
	}
	s.noting.Lock()
	defer s.noting.Unlock()
	s.seen = max(s.seen, seqIn(result, "_meta", acp.MetaKey, "seq"))
}

// begins notes the answer to a prompt of the client's. In version 2 it says that its turn has begun, and with which event. It
// returns what the client is to be told behind that: the end of the turn where that was told before, of a turn of nobody.
func (s *session) begins(prompt, res *acp.Message, place uint64) (end []acp.Message) {
	if !s.c.two || res.Err() != nil {
		return nil
	}
	t := owed{place: place, begun: version.EventOf(rawjson.MemberString(res.Result(), "messageId"))}
	s.c.mu.Lock()
	if s.c.turns { // else how it ends is told with the state alone
		t.name = rawjson.MemberString(prompt.Meta(), acp.MetaKey, "promptId")
	}
	s.c.mu.Unlock()
	s.noting.Lock()
	defer s.noting.Unlock()
	switch l := s.lapsed; {
	case t.begun > l.after && t.begun < l.seq && t.name != "":
		return []acp.Message{endOf(l.end, t.name)}
	case t.begun > 0 && (t.begun < s.ended || t.name == "" && t.begun < s.idle): // its end was told
	default:
		s.owed = append(s.owed, t)
		s.owed = s.owed[max(0, len(s.owed)-maxOwed):]
	}
	return nil
}

// endOf is what tells how a turn ended, with the name of its prompt.
func endOf(params json.RawMessage, name string) acp.Message {
	return acp.NewNotification(methodTurnEnded, rawjson.SetMember(params, rawjson.AppendQuoted(nil, name), "promptId"))
}

// ends notes that the client is told that a turn ended, by its name or, "", by the state. Seq is the number of the event, 0 for none.
// It is called with noting held.
func (s *session) ends(name string, seq uint64) {
	s.owed = slices.DeleteFunc(s.owed, func(t owed) bool { return t.name == name && (name != "" || seq == 0 || t.begun < seq) })
}

// leaves notes that the client has left the turns that it has asked for before a place.
func (s *session) leaves(place uint64) {
	s.noting.Lock()
	defer s.noting.Unlock()
	s.owed = slices.DeleteFunc(s.owed, func(t owed) bool { return t.place <= place })
}

// owes takes what the client is still to be told as nothing more comes of the session: that each of its turns ended, and that it does not work.
func (s *session) owes() []owed {
	s.noting.Lock()
	defer s.noting.Unlock()
	out := s.owed
	if s.works && len(out) == 0 {
		out = []owed{{}}
	}
	s.owed, s.works = nil, false
	return out
}

// seqIn returns a number of an event, 0 for none.
func seqIn(b []byte, path ...string) uint64 {
	raw, _ := rawjson.Member(b, path...)
	n, err := strconv.ParseUint(strings.TrimSpace(string(raw)), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// show puts a message of a node on its way to the client, unless another node has the session
// meanwhile. It waits while the client is too far behind.
func (s *session) show(ctx context.Context, from *line, m acp.Message) {
	s.showing.Lock()
	defer s.showing.Unlock()
	if !s.c.two || m.Method() != methodTurnEnded {
		if s.notes(from, &m) {
			s.put(ctx, m.Frame())
		}
		return
	}
	for _, m := range s.named(from, m) {
		if s.notes(from, &m) {
			s.put(ctx, m.Frame())
		}
	}
}

// named returns what tells that a turn ended, as the client is given it. Of a turn that began before its gateway was started anew that gateway
// knows no more whose it was, and names nobody: then the hub names those of the client that began before.
func (s *session) named(from *line, m acp.Message) []acp.Message {
	seq := seqIn(m.Meta(), acp.MetaKey, "seq")
	if _, named := rawjson.Member(m.Params(), "promptId"); named || seq == 0 || !acp.TurnBegan(m.Params()) {
		return []acp.Message{m}
	}
	var out []acp.Message
	s.noting.Lock()
	for _, t := range s.owed {
		if t.name != "" && t.begun < seq {
			out = append(out, endOf(m.Params(), t.name))
		}
	}
	if s.at() == from && seq > s.lapsed.seq && len(m.Params()) <= maxLapsed {
		s.lapsed = lapsed{s.ended, seq, slices.Clone(m.Params())}
	}
	s.noting.Unlock()
	if len(out) == 0 {
		return []acp.Message{m}
	}
	_ = from.conn.Interrupt(s.id, acp.Errorf(acp.CodeInternal, "it has ended")) // it would tell so as well
	return out
}

// put puts a frame on its way to the client. It is called with showing held.
func (s *session) put(ctx context.Context, frame []byte) {
	c := s.c
	at, _ := s.log.AppendFlush(journal.Update, c.Number(), frame) // in memory: it cannot fail
	s.size += len(frame)
	if n := len(s.ahead); n > 0 && s.ahead[n-1].bytes < window/8 {
		s.ahead[n-1] = part{at, s.ahead[n-1].bytes + len(frame)}
		return
	}
	s.ahead = append(s.ahead, part{at, len(frame)})
	reached := s.forgetWritten()
	for len(s.ahead) > 1 && (s.ahead[0].last <= reached || s.size > window) {
		if oldest := s.ahead[0].last; oldest > reached {
			patience := stall
			if s.deserted {
				patience = time.Millisecond
			}
			began := time.Now()
			c.AwaitEntry(ctx, s, oldest, patience)
			s.deserted = time.Since(began) >= patience
			s.log.Forget(oldest, kept)
		}
		s.size -= s.ahead[0].bytes
		s.ahead = s.ahead[1:]
	}
}

// putEnds puts on its way to the client what it has not read in a session before this one of how its turns ended, and
// of what is asked there no more.
func (s *session) putEnds(unread *journal.Cursor) {
	s.showing.Lock()
	defer s.showing.Unlock()
	for {
		batch, err := unread.Next(nil, window)
		if gone, ok := errors.AsType[*journal.TruncatedError](err); ok { // who reads nothing is told the newest
			unread.Seek(gone.Oldest - 1)
			continue
		}
		if err != nil || len(batch) == 0 {
			return
		}
		for _, e := range batch {
			m, err := acp.Parse(e.Frame)
			ends := m.Method() == acp.MethodCancelRequest || s.c.two && (m.Method() == methodTurnEnded || string(m.UpdateKind()) == "state_update")
			if err == nil && ends {
				s.put(s.c.ctx, slices.Clone(e.Frame))
			}
		}
	}
}

// notes notes a message that is about to be put on its way; false when it is not to be.
func (s *session) notes(from *line, m *acp.Message) bool {
	s.noting.Lock()
	defer s.noting.Unlock()
	if s.at() != from {
		return s.endsAtLast(m)
	}
	seq := seqIn(m.Meta(), acp.MetaKey, "seq")
	switch {
	case m.Method() == methodTurnEnded && s.c.two:
		if acp.TurnBegan(m.Params()) { // the hub's own has no number
			s.ended = max(s.ended, seq)
		}
		switch name := rawjson.MemberString(m.Params(), "promptId"); {
		case name == "":
		case seq == 0:
			s.endsHere(name)
		case slices.Contains(s.failed, name): // the session went on after all
			s.seen = max(s.seen, seq)
			return false
		default:
			s.ends(name, seq)
		}
	case m.Method() == methodTurnEnded && seq > 0 && seq <= s.told:
		return false // who asked was answered
	case s.c.two && string(m.UpdateKind()) == "state_update" && m.Session() == s.id:
		s.works = rawjson.MemberString(m.Update(), "state") != "idle"
		if _, ends := rawjson.Member(m.Update(), "stopReason"); ends {
			s.idle = max(s.idle, seq)
			s.ends("", seq)
		}
	}
	if s.seen = max(s.seen, seq); m.Session() == s.id {
		s.shown = max(s.shown, seq)
	}
	return true
}

// endsAtLast takes the end of a turn from a node that the session has left. The client waits for it, and the node that has the session now
// does not tell it: it tells what is behind the newest event that the client was shown. Of anything else it returns false. It is called with
// noting held.
func (s *session) endsAtLast(m *acp.Message) bool {
	name := rawjson.MemberString(m.Params(), "promptId")
	waits := slices.ContainsFunc(s.owed, func(t owed) bool { return t.name == name })
	if !s.c.two || m.Method() != methodTurnEnded || name == "" || !waits || seqIn(m.Meta(), acp.MetaKey, "seq") > s.seen {
		return false
	}
	s.endsHere(name)
	return true
}

// endsHere notes the name of a turn that has ended, of which nothing that comes from its node is to be told any more. It is called with noting held.
func (s *session) endsHere(name string) {
	s.failed = append(s.failed, name)
	s.failed = s.failed[max(0, len(s.failed)-maxOwed):]
	s.ends(name, 0)
}

// forgetWritten lets go of what was written to the client, and returns the last of it.
func (s *session) forgetWritten() uint64 {
	reached := s.c.Reached(s)
	s.log.Forget(reached, kept)
	return reached
}

// ID implements [viewer.Session].
func (s *session) ID() string { return s.id }

// Log implements [viewer.Session].
func (s *session) Log() *journal.Log { return s.log }

// Flush implements [viewer.Session].
func (s *session) Flush() { _ = s.log.Flush() } // in memory: it cannot fail

// Enter implements [viewer.Session]: the session is its client's alone.
func (s *session) Enter() bool { return true }

// Exit implements [viewer.Session].
func (s *session) Exit() {}

// Join implements [viewer.Session]. Requests of agents are shown when they come.
func (s *session) Join(*viewer.Feed, uint64) []uint64 { return nil }

// OpenAsk implements [viewer.Session].
func (s *session) OpenAsk(uint64) (none journal.Entry, open bool) { return none, false }

// Leave implements [viewer.Session].
func (s *session) Leave(*viewer.Feed) {}

// BesideLog implements [viewer.Session]. What a client is given was made for it by the node.
func (s *session) BesideLog() version.About { return version.About{} }
