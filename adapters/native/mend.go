package native

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/adapters"
)

// maxCalls bounds the tool calls that are remembered of one session. What is
// beyond is passed on as it came. Of those that have ended before the last prompt
// maxPast are: what comes of an older one counts as of a new call.
const (
	maxCalls = 4096
	maxPast  = 256
)

// cancelAgain is how often a cancel is repeated while its prompt is open. Agents
// miss one that comes before their turn has begun, though they have told of the
// turn already. One with HoldCancels is told once: when its turn has ended, and the
// answer is on its way, it would take another cancel for its next prompt.
const cancelAgain = time.Second

// heldCancel is how long a cancel is kept from an agent with HoldCancels that
// has shown no work.
const heldCancel = 2 * time.Second

// mended is a Conn whose tool calls are as clients may expect them: each is
// introduced by a tool_call before anything else names it, and none is left open
// when its turn has ended. Agents break both: one asks for a permission for a
// call that it has not told of, another forgets the call that was cancelled.
// And a prompt that was cancelled ends, and ends cancelled, not with an error.
// Errors about credentials say what helps.
// Everything else passes unchanged.
type mended struct {
	acp.Conn
	adapters.Process
	hold  bool          // Spec.HoldCancels
	login login         // what is said when credentials are missing
	two   func() bool   // reports whether the agent speaks version 2; nil is no
	queue []acp.Message // to be read before anything else; used by Read only
	// writing is held by who writes a prompt, or a cancel of one that is open: that never
	// comes behind the next prompt. Taken before mu.
	writing chan struct{} // cap 1

	mu       sync.Mutex
	closed   bool
	waits    map[string]int        // how many prompts wait for writing, by session
	prompts  map[acp.ID]string     // session token by the id of an open prompt
	turns    map[string]*openTurn  // by session token: the prompt that was sent last, while it is open
	sessions map[string]*toolCalls // by session token
	leaves   map[acp.ID]string     // session token by the id of an open request to close or delete it
	// alone has, by session token, that the agent works without a prompt: true until it was told of a cancel, which it
	// may go on saying something behind. Used with hold; an entry goes with the session's next prompt.
	alone map[string]bool
}

// openTurn is a prompt that is not answered.
type openTurn struct {
	sent      time.Time
	works     bool        // the agent has begun with it
	cancelled bool        // somebody wants its end
	held      bool        // which the agent is to be told yet
	tell      *time.Timer // tells it; nil when it is not told by time
}

// toolCalls are the calls of a session.
type toolCalls struct {
	state map[string]callState // by tool call id as JSON
	order []string             // of state's keys
}

// callState is how far a call is. An agent may say something of one that is over: the command
// that was cancelled ends at last, say.
type callState int

const (
	unknown callState = iota
	open
	ended
	past // ended before the last prompt
)

var (
	_ acp.Buffered     = (*mended)(nil)
	_ adapters.Process = (*mended)(nil)
	_ adapters.Untaker = (*mended)(nil)
)

// mend returns c mended; p is the process behind it.
func mend(c acp.Conn, p adapters.Process) *mended {
	return &mended{Conn: c, Process: p, writing: make(chan struct{}, 1), waits: map[string]int{}, prompts: map[acp.ID]string{}, turns: map[string]*openTurn{}, sessions: map[string]*toolCalls{}, leaves: map[acp.ID]string{}, alone: map[string]bool{}}
}

// Untaken implements [adapters.Untaker].
func (c *mended) Untaken(session string) bool {
	c.mu.Lock()
	waits := c.waits[session] > 0
	c.mu.Unlock()
	u, ok := c.Process.(adapters.Untaker)
	return waits || ok && u.Untaken(session)
}

// Room implements [adapters.Roomy].
func (c *mended) Room(n int) bool {
	r, ok := c.Process.(adapters.Roomy)
	return ok && r.Room(n)
}

// Write watches which prompts are open, and keeps cancels that come too early.
func (c *mended) Write(ctx context.Context, m acp.Message) error {
	switch {
	case m.Method() == acp.MethodSessionPrompt && m.IsRequest():
		if err := c.begin(ctx, m.Session()); err != nil {
			return err
		}
		defer func() { <-c.writing }()
		token := strings.Clone(string(m.SessionRaw()))
		c.mu.Lock()
		c.endTurnLocked(token)
		delete(c.alone, token)
		c.prompts[acp.ID(strings.Clone(string(m.ID())))] = token
		c.turns[token] = &openTurn{sent: time.Now()}
		if s := c.sessions[token]; s != nil {
			s.prompted()
		}
		c.mu.Unlock()
	case m.IsRequest() && (m.Method() == acp.MethodSessionClose || m.Method() == acp.MethodSessionDelete):
		c.mu.Lock()
		c.leaves[acp.ID(strings.Clone(string(m.ID())))] = strings.Clone(string(m.SessionRaw()))
		c.mu.Unlock()
	case m.Method() == acp.MethodSessionCancel && c.cancelled(string(m.SessionRaw())):
		return nil
	}
	return c.Conn.Write(ctx, m)
}

// begin waits until nobody writes a cancel.
func (c *mended) begin(ctx context.Context, session string) error {
	session = strings.Clone(session)
	waits := func(change int) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.waits[session] += change; c.waits[session] == 0 {
			delete(c.waits, session)
		}
	}
	waits(1)
	defer waits(-1)
	select {
	case c.writing <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// cancelled notes a cancel and reports whether it is kept from the agent.
func (c *mended) cancelled(token string) (kept bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.turns[token]
	if t == nil || c.closed {
		// An idle session has nothing to stop. An agent with HoldCancels would take the
		// cancel for its next prompt, and so it would another one when it has ended what
		// it does by itself.
		kept = c.hold && !c.alone[token]
		if c.alone[token] {
			c.alone[token] = false
		}
		return kept
	}
	if t.cancelled {
		return c.hold // it was told, or is about to be
	}
	t.cancelled = true
	switch {
	case !c.hold:
		t.tell = time.AfterFunc(cancelAgain, func() { c.sayCancel(token, t) })
	case !t.works:
		t.held = true
		t.tell = time.AfterFunc(heldCancel-time.Since(t.sent), func() { c.sayCancel(token, t) })
	}
	return t.held
}

// sayCancel cancels a turn that is still open, and comes back unless that was held.
func (c *mended) sayCancel(token string, t *openTurn) {
	c.writing <- struct{}{} // Close ends who holds it
	defer func() { <-c.writing }()
	c.mu.Lock()
	say := c.turns[token] == t && (t.held || !c.hold)
	t.held = false
	c.mu.Unlock()
	if !say {
		return
	}
	if c.Conn.Write(context.Background(), acp.NewNotification(acp.MethodSessionCancel, rawjson.Object{}.Raw("sessionId", []byte(token)).End())) != nil {
		return // Close ends a write
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.turns[token] == t && !c.hold {
		t.tell.Reset(cancelAgain)
	}
}

// worksLocked notes that the agent works on the session's turn, or by itself. late says
// that what it shows may be of a turn that has ended.
func (c *mended) worksLocked(token string, late bool) {
	t := c.turns[token]
	switch {
	case late:
	case t == nil:
		if _, known := c.alone[token]; !known { // what it still says behind a cancel is no new work
			c.alone[strings.Clone(token)] = true
		}
	case !t.works:
		if t.works = true; t.held {
			t.tell.Reset(0)
		}
	}
}

// endTurnLocked ends the session's turn and reports whether it was cancelled.
func (c *mended) endTurnLocked(token string) bool {
	t := c.turns[token]
	delete(c.turns, token)
	if t == nil {
		return false
	}
	if t.tell != nil {
		t.tell.Stop()
	}
	return t.cancelled
}

// Close ends the connection.
func (c *mended) Close() error {
	c.mu.Lock()
	c.closed = true
	for token := range c.turns {
		c.endTurnLocked(token)
	}
	c.mu.Unlock()
	return c.Conn.Close()
}

// Buffered reports whether the next Read returns without waiting.
func (c *mended) Buffered() bool {
	if len(c.queue) > 0 {
		return true
	}
	b, ok := c.Conn.(acp.Buffered)
	return ok && b.Buffered()
}

// Read returns the agent's next message, or what must come before it.
func (c *mended) Read(ctx context.Context) (acp.Message, error) {
	if len(c.queue) > 0 {
		m := c.queue[0]
		c.queue = c.queue[1:]
		return m, nil
	}
	m, err := c.Conn.Read(ctx)
	if err != nil {
		return m, err
	}
	if said, ok := c.login.explain(&m); ok {
		m = said
	}
	if first := c.before(&m); len(first) > 0 {
		c.queue = append(first[1:], m.Clone())
		return first[0], nil
	}
	return m, nil
}

// before returns what must be said before m, and may replace m.
func (c *mended) before(m *acp.Message) []acp.Message {
	if c.hold && m.HasSession() && !announcement(m) {
		c.mu.Lock()
		c.worksLocked(string(m.SessionRaw()), string(m.UpdateKind()) == "usage_update")
		c.mu.Unlock()
	}
	switch {
	case m.IsResponse():
		return c.answered(m)
	case c.two != nil && c.two(): // its calls are introduced, and end, in the translation
	case m.Method() == acp.MethodSessionRequestPermission:
		call, _ := rawjson.Member(m.Params(), "toolCall")
		c.mu.Lock()
		defer c.mu.Unlock()
		if s, id := c.callLocked(m, call); s != nil && (s.state[id] == unknown || s.state[id] == past) && s.set(id, open) {
			return []acp.Message{updateOf(m.SessionRaw(), introduction(call))}
		}
	case m.Method() != acp.MethodSessionUpdate:
	case string(m.UpdateKind()) == "tool_call":
		c.mu.Lock()
		defer c.mu.Unlock()
		if s, id := c.callLocked(m, m.Update()); s != nil {
			s.set(id, said(m.Update()))
		}
	case string(m.UpdateKind()) == "tool_call_update":
		c.mu.Lock()
		defer c.mu.Unlock()
		s, id := c.callLocked(m, m.Update())
		switch {
		case s == nil:
		case s.state[id] == unknown:
			if s.set(id, said(m.Update())) {
				*m = updateOf(m.SessionRaw(), introduction(m.Update()))
			}
		case said(m.Update()) == ended:
			s.set(id, ended)
		case s.state[id] == past && rawjson.MemberString(m.Update(), "status") != "":
			s.set(id, open) // it goes on, or it is another one with the same id
		}
	}
	return nil
}

// announcement reports whether m tells of the session and not of work.
func announcement(m *acp.Message) bool {
	switch string(m.UpdateKind()) {
	case "available_commands_update", "config_option_update", "current_mode_update", "session_info_update", "user_message_chunk":
		return true
	}
	return false
}

// answered returns the ends of the calls that the turn left open, when m ends a
// turn.
func (c *mended) answered(m *acp.Message) []acp.Message {
	c.mu.Lock()
	defer c.mu.Unlock()
	if token, ok := c.leaves[m.ID()]; ok {
		delete(c.leaves, m.ID())
		if m.Err() == nil {
			delete(c.sessions, token)
			delete(c.alone, token)
		}
		return nil
	}
	token, ok := c.prompts[m.ID()]
	if !ok {
		return nil
	}
	delete(c.prompts, m.ID())
	if c.endTurnLocked(token) && m.Err() != nil {
		// The protocol wants a cancelled turn to end so, whatever the cancelling
		// has broken in the agent.
		*m = acp.NewResult(acp.ID(strings.Clone(string(m.ID()))), []byte(`{"stopReason":"cancelled"}`))
	}
	s := c.sessions[token]
	if s == nil {
		return nil
	}
	var out []acp.Message
	for _, id := range s.order {
		if s.state[id] == open {
			s.state[id] = ended
			failed := rawjson.Object{}.String("sessionUpdate", "tool_call_update").Raw("toolCallId", []byte(id)).String("status", "failed").End()
			out = append(out, updateOf([]byte(token), failed))
		}
	}
	return out
}

// callLocked returns the session's calls and the id that u names, nil when it
// names none.
func (c *mended) callLocked(m *acp.Message, u json.RawMessage) (*toolCalls, string) {
	id, ok := rawjson.Member(u, "toolCallId")
	if !ok || !m.HasSession() {
		return nil, ""
	}
	token := string(m.SessionRaw())
	s := c.sessions[token]
	if s == nil {
		s = &toolCalls{state: map[string]callState{}}
		c.sessions[token] = s
	}
	return s, string(id)
}

// set notes the call and reports whether there was room for it.
func (s *toolCalls) set(id string, state callState) bool {
	if s.state[id] == unknown {
		if len(s.order) >= maxCalls {
			return false
		}
		s.order = append(s.order, id)
	}
	s.state[id] = state
	return true
}

// prompted takes that a turn begins. Of the calls that have ended it forgets the oldest.
func (s *toolCalls) prompted() {
	over := 0
	for id, state := range s.state {
		if state != open {
			s.state[id] = past
			over++
		}
	}
	s.order = slices.DeleteFunc(s.order, func(id string) bool {
		forget := over > maxPast && s.state[id] == past
		if forget {
			delete(s.state, id)
			over--
		}
		return forget
	})
}

// said is the state of a call as its status says it.
func said(call json.RawMessage) callState {
	switch rawjson.MemberString(call, "status") {
	case "completed", "failed":
		return ended
	}
	return open
}

// introduction is the tool_call update that tells of a call which something else
// was said of first.
func introduction(call json.RawMessage) json.RawMessage {
	u := rawjson.SetMember(call, []byte(`"tool_call"`), "sessionUpdate")
	if title, ok := rawjson.Member(u, "title"); !ok || len(title) == 0 || title[0] != '"' {
		id, _ := rawjson.Member(u, "toolCallId")
		u = rawjson.SetMember(u, id, "title")
	}
	if status, ok := rawjson.Member(u, "status"); !ok || len(status) == 0 || status[0] != '"' {
		u = rawjson.SetMember(u, []byte(`"pending"`), "status")
	}
	return u
}

// updateOf is a session/update of the session that the JSON string names.
func updateOf(session []byte, u json.RawMessage) acp.Message {
	return acp.NewNotification(acp.MethodSessionUpdate, rawjson.Object{}.Raw("sessionId", session).Raw("update", u).End())
}
