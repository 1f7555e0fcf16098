package bridgetest

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"sync"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
)

// playPatience bounds every wait of a play.
var playPatience = flag.Duration("play.patience", 20*time.Second, "bounds every wait of a play")

// Play is a sequence of events between a client and native processes. It notes all that
// happens, in order, and what must not. Mu guards what it notes; who plays a puppet holds it.
type Play struct {
	Mu       sync.Mutex
	Sessions []*PlaySession
	Prompts  []*PlayPrompt
	Asks     []*PlayAsk
	Down     bool   // the connection has ended
	Cwd      string // of sessions
	Steady   bool   // each event waits until it has come to where it goes
	Fails    bool   // a process did not start, for which prompts may fail that none was given
	// Opened is told of each session that is opened; it may be nil.
	Opened func(s *PlaySession)

	open  func() (acp.Conn, error)
	conn  acp.Conn
	end   chan struct{} // closed when reading has ended
	woken chan struct{} // closed and replaced with each event

	log      []string
	wrong    []string
	requests map[acp.ID]*playRequest
	notices  map[string]bool
	lastID   int
	puppets  int  // those that run
	losing   bool // the connection is about to end
}

// PlaySession is a session of a client.
type PlaySession struct {
	ID      schema.SessionID
	Open    bool   // as far as the client knows
	Closing bool   // its end was asked for
	Working bool   // its agent does something by itself
	Cancels int    // how often a client wanted the end of what runs
	Mode    string // as the client was told last; "" when it was not

	calls  map[string]*playCall
	leaves bool // it was open when it was to be deleted, and opened
}

// playCall is a tool call that a client was told of.
type playCall struct {
	token string // of the turn
	over  bool
}

// PlayPrompt is a prompt of a client.
type PlayPrompt struct {
	Token     string // it is in all that the native process says of the turn
	Session   *PlaySession
	Cancelled bool // somebody wanted its end
	Given     bool // the native process has it
	Told      bool // the native process was told to end it, while it worked on it
	Said      bool // the native process has said all of it
	Refused   bool // or did not take it
	Answered  bool
	Loose     bool // its session is about to end, and it with that
	Lost      bool // a process or the connection is, and it may end in any way
	Stop      string
	id        acp.ID
}

// PlayAsk is what a client was asked.
type PlayAsk struct {
	Session *PlaySession
	Token   string
	Method  string
	Open    bool
	// Answered says that the client has answered it, maybe when it was not open any more.
	Answered bool
	id       acp.ID
}

// playRequest is a request of the client.
type playRequest struct {
	method   string
	answered bool
	prompt   *PlayPrompt
	done     func(result json.RawMessage, e *acp.Error) // may be nil
}

// PlayEvent is an event that may happen in a play.
type PlayEvent struct {
	Name string
	// Weight is how often it happens, beside others.
	Weight int
	Do     func(rng *rand.Rand)
}

// tokenForm finds the token of a turn in what the native process says of it.
var tokenForm = regexp.MustCompile(`\b[pob]\d+x`)

// TokenIn returns the token in a text, "" when there is none.
func TokenIn(text []byte) string { return string(tokenForm.Find(text)) }

// Note notes what happens. The caller holds Mu.
func (p *Play) Note(format string, args ...any) {
	p.log = append(p.log, fmt.Sprintf(format, args...))
	close(p.woken)
	p.woken = make(chan struct{})
}

// Wrong notes what must not happen. The caller holds Mu.
func (p *Play) Wrong(format string, args ...any) {
	s := fmt.Sprintf(format, args...)
	p.wrong = append(p.wrong, s)
	p.Note("WRONG: %s", s)
}

// Wait waits until ok, which is called with Mu held, and reports whether it came true.
func (p *Play) Wait(ok func() bool) bool {
	limit := time.NewTimer(*playPatience)
	defer limit.Stop()
	p.Mu.Lock()
	defer p.Mu.Unlock()
	for !ok() {
		woken := p.woken
		p.Mu.Unlock()
		select {
		case <-woken:
			p.Mu.Lock()
		case <-limit.C:
			p.Mu.Lock()
			return ok()
		}
	}
	return true
}

// Expect is Wait for what must come true unless the connection ends.
func (p *Play) Expect(what string, ok func() bool) {
	if !p.Wait(func() bool { return p.Down || ok() }) {
		p.Mu.Lock()
		defer p.Mu.Unlock()
		p.Wrong("it does not come to it: %s", what)
	}
}

// Waits reports whether an event waits until it has come to where it goes. Else the next one
// meets it on its way.
func (p *Play) Waits(rng *rand.Rand) bool { return rng.IntN(2) == 0 || p.Steady }

// Connect opens a connection where there is none, or it has ended.
func (p *Play) Connect() {
	p.Mu.Lock()
	up := p.conn != nil && !p.Down
	p.Mu.Unlock()
	if up {
		return
	}
	p.Disconnect()
	conn, err := p.open()
	p.Mu.Lock()
	defer p.Mu.Unlock()
	if err != nil {
		p.Wrong("open: %v", err)
		return
	}
	p.conn, p.Down, p.losing, p.end = conn, false, false, make(chan struct{})
	go p.read(conn, p.end)
	p.requestLocked(acp.MethodInitialize, &schema.InitializeRequest{ProtocolVersion: 1, ClientCapabilities: &schema.ClientCapabilities{}}, nil)
}

// Disconnect closes the connection. All processes have ended then.
func (p *Play) Disconnect() {
	p.Mu.Lock()
	conn, end := p.conn, p.end
	p.conn = nil
	p.Lose()
	p.Mu.Unlock()
	if conn == nil {
		return
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_ = conn.Close()
		<-end
	}()
	limit := time.NewTimer(*playPatience)
	defer limit.Stop()
	select {
	case <-closed:
	case <-limit.C:
		p.Mu.Lock()
		p.Wrong("the connection does not close")
		p.Mu.Unlock()
		return
	}
	if !p.Wait(func() bool { return p.puppets == 0 }) {
		p.Mu.Lock()
		p.Wrong("%d processes are left", p.puppets)
		p.Mu.Unlock()
	}
}

// Begun notes that a process has begun, and Ended that it has ended. The caller holds Mu.
func (p *Play) Begun() { p.puppets++ }

// Ended is the end of a process. The caller holds Mu.
func (p *Play) Ended() { p.puppets--; p.Note("a process has ended") }

// read notes what the client gets.
func (p *Play) read(conn acp.Conn, end chan struct{}) {
	defer close(end)
	for {
		m, err := conn.Read(context.Background())
		p.Mu.Lock()
		if err != nil {
			p.Down = true
			for _, r := range p.requests {
				r.answered = true // by the end of the connection
				if r.prompt != nil {
					r.prompt.Answered = true
				}
			}
			clear(p.requests)
			for _, s := range p.Sessions {
				s.Open, s.Working = false, false
			}
			for _, a := range p.Asks {
				a.Open, a.Answered = false, true
			}
			p.Note("the connection ends: %v", err)
			if !p.losing {
				p.Wrong("the connection ends, and nobody wanted that: %v", err)
			}
			p.Mu.Unlock()
			return
		}
		m = m.Clone()
		if !strings.Contains(string(m.Frame()), "available_commands_update") {
			p.Note("client < %.400s", m.Frame())
		}
		p.take(&m)
		p.Mu.Unlock()
	}
}

func (p *Play) session(id string) *PlaySession {
	for _, s := range p.Sessions {
		if string(s.ID) == id {
			return s
		}
	}
	return nil
}

// Prompt returns the prompt of a token, nil when there is none.
func (p *Play) Prompt(token string) *PlayPrompt {
	for _, one := range p.Prompts {
		if one.Token == token && token != "" {
			return one
		}
	}
	return nil
}

func (p *Play) take(m *acp.Message) {
	switch {
	case m.IsResponse():
		r := p.requests[m.ID()]
		if r == nil || r.answered {
			p.Wrong("answered twice or unasked: %s", m.Frame())
			return
		}
		r.answered = true
		delete(p.requests, m.ID())
		if r.prompt != nil {
			r.prompt.Stop = rawjson.MemberString(m.Result(), "stopReason")
			p.answered(r.prompt, m.Err())
		}
		if r.done != nil {
			r.done(m.Result(), m.Err())
		}
	case m.IsRequest():
		a := &PlayAsk{Session: p.session(m.Session()), Token: TokenIn(m.Params()), Method: m.Method(), Open: true, id: m.ID()}
		p.Asks = append(p.Asks, a)
		if of := p.Prompt(a.Token); of != nil && of.Answered {
			p.Wrong("a question behind its turn's end: %s", m.Frame())
		}
	case m.Method() == acp.MethodCancelRequest:
		id, _ := rawjson.Member(m.Params(), "requestId")
		for _, a := range p.Asks {
			if string(a.id) == string(id) && a.Open {
				a.Open = false
			}
		}
	case m.Method() == acp.MethodWorking:
		if s := p.session(m.Session()); s != nil {
			on, _ := rawjson.Member(m.Params(), "working")
			s.Working = string(on) == "true"
		}
	case m.Method() == acp.MethodSessionUpdate:
		p.update(m)
	case strings.HasSuffix(m.Method(), "agent/unparsed"):
		p.noticed(m.Params())
	}
}

// noticed takes a notice of a Barrier.
func (p *Play) noticed(said []byte) {
	for text := range p.notices {
		if strings.Contains(string(said), text) {
			p.notices[text] = true
		}
	}
}

// update checks an update.
func (p *Play) update(m *acp.Message) {
	u := m.Update()
	s := p.session(m.Session())
	kind, token := string(m.UpdateKind()), TokenIn(u)
	of := p.Prompt(token)
	switch kind {
	case "notice":
		p.noticed(u)
		return
	case "current_mode_update":
		if s != nil {
			s.Mode = rawjson.MemberString(u, "currentModeId")
		}
	case "agent_message_chunk", "agent_thought_chunk", "tool_call":
		if of != nil && of.Answered {
			p.Wrong("%s behind its turn's end: %s", kind, u)
		}
		if of != nil && s != nil && of.Session != s {
			p.Wrong("%s in another session: %s", kind, u)
		}
	}
	id := rawjson.MemberString(u, "toolCallId")
	if id == "" || s == nil {
		return
	}
	status := rawjson.MemberString(u, "status")
	c := s.calls[id]
	switch {
	case kind == "tool_call" && c != nil && !c.over:
		p.Wrong("a call begins twice: %s", u)
	case kind == "tool_call":
		s.calls[id] = &playCall{token: token}
	case c == nil:
		p.Wrong("of a call that has not begun: %s", u)
	case c.over && status != "":
		p.Wrong("of a call that is over: %s", u)
	case status == "completed" || status == "failed":
		c.over = true
	}
}

// answered checks the answer to a prompt.
func (p *Play) answered(one *PlayPrompt, e *acp.Error) {
	one.Answered = true
	s := one.Session
	if one.Lost || one.Loose { // the gateway ends what is left of it
		begins := p.Fails && !one.Given // a process that did not begin may have been meant for it
		if !one.Lost && !begins && e != nil && e.Code == acp.CodeInternal && !one.Refused && !one.Said {
			p.Wrong("prompt %s fails because its session is closed: %v", one.Token, e)
		}
		return
	}
	own := e != nil && (e.Code == acp.CodeInvalidRequest || e.Code == acp.CodeInvalidParams) // the bridge refused it
	switch {
	case one.Stop == "cancelled" && !one.Cancelled:
		p.Wrong("prompt %s was cancelled by nobody", one.Token)
	case one.Told && one.Stop != "cancelled" && (e == nil || e.Code != acp.CodeCancelled):
		p.Wrong("prompt %s was cancelled, and ends with %q, %v", one.Token, one.Stop, e)
	case p.Fails && !one.Given && e != nil:
	case !one.Cancelled && !one.Said && !one.Refused && !own:
		p.Wrong("prompt %s ends with %q, %v, and the native process has not said so", one.Token, one.Stop, e)
	}
	for _, a := range p.Asks {
		if a.Open && a.Token == one.Token {
			p.Wrong("a question is open behind the end of its turn %s", one.Token)
		}
	}
	for id, c := range s.calls {
		if c.token == one.Token && !c.over {
			p.Wrong("call %s has no end, and its turn %s has", id, one.Token)
		}
	}
}

func (p *Play) requestLocked(method string, params any, r *playRequest) acp.ID {
	p.lastID++
	id := acp.IntID(int64(p.lastID))
	if r == nil {
		r = &playRequest{}
	}
	r.method = method
	b, err := schema.Encode(params)
	if err != nil {
		p.Wrong("encode: %v", err)
		return id
	}
	if p.Down || p.conn == nil {
		r.answered = true
		if r.prompt != nil {
			r.prompt.Answered = true
		}
		return id
	}
	p.requests[id] = r
	p.Note("client > %s %s %.300s", id, method, b)
	p.writeLocked(acp.NewRequest(id, method, b))
	return id
}

// writeLocked writes a message. The way to the agent has room.
func (p *Play) writeLocked(m acp.Message) {
	conn := p.conn
	if conn == nil {
		return
	}
	p.Mu.Unlock()
	_ = conn.Write(context.Background(), m) // it fails with the connection
	p.Mu.Lock()
}

// Request sends a request; done, which may be nil, gets the answer with Mu held.
func (p *Play) Request(method string, params any, done func(result json.RawMessage, e *acp.Error)) {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	p.requestLocked(method, params, &playRequest{done: done})
}

// Idle reports whether every request was answered. The caller holds Mu.
func (p *Play) Idle() bool { return len(p.requests) == 0 }

// Add adds a session that is open. The caller holds Mu.
func (p *Play) Add(id schema.SessionID) *PlaySession {
	s := p.session(string(id))
	if s == nil {
		s = &PlaySession{ID: id}
		p.Sessions = append(p.Sessions, s)
	}
	s.Open, s.Closing, s.Working, s.Mode, s.calls = true, false, false, "", map[string]*playCall{} // what opens it says in which mode it is
	return s
}

// End notes that a session is about to end. The caller holds Mu.
func (p *Play) End(s *PlaySession) {
	s.Closing, s.leaves = true, false
	for _, one := range p.Open(s) {
		one.Loose = true
	}
}

// Lose notes that the connection is about to end. The caller holds Mu.
func (p *Play) Lose() {
	p.losing = true
	for _, s := range p.Sessions {
		p.End(s)
	}
	for _, one := range p.Prompts {
		one.Lost = one.Lost || !one.Answered
	}
}

// Some returns a session that is open, nil when there is none.
func (p *Play) Some(rng *rand.Rand) *PlaySession {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	var open []*PlaySession
	for _, s := range p.Sessions {
		if s.Open {
			open = append(open, s)
		}
	}
	if len(open) == 0 {
		return nil
	}
	return open[rng.IntN(len(open))]
}

// SendPrompt sends a prompt to a session. before is put before its token.
func (p *Play) SendPrompt(s *PlaySession, before string) *PlayPrompt {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	one := &PlayPrompt{Token: fmt.Sprintf("p%dx", len(p.Prompts)+1), Session: s, Loose: s.Closing, Lost: p.losing}
	p.Prompts = append(p.Prompts, one)
	one.id = p.requestLocked(acp.MethodSessionPrompt, &schema.PromptRequest{
		SessionID: s.ID, Prompt: []schema.ContentBlock{schema.TextBlock(before + one.Token)},
	}, &playRequest{prompt: one})
	return one
}

// Open returns the prompts of a session that were not answered. The caller holds Mu.
func (p *Play) Open(s *PlaySession) []*PlayPrompt {
	var out []*PlayPrompt
	for _, one := range p.Prompts {
		if one.Session == s && !one.Answered {
			out = append(out, one)
		}
	}
	return out
}

// Cancel cancels the prompts of a session, and returns them.
func (p *Play) Cancel(s *PlaySession) []*PlayPrompt {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	s.Cancels++
	open := p.Open(s)
	for _, one := range open {
		one.Cancelled = true
	}
	b, _ := schema.Encode(&schema.CancelNotification{SessionID: s.ID})
	p.Note("client > session/cancel %s", s.ID)
	p.writeLocked(acp.NewNotification(acp.MethodSessionCancel, b))
	return open
}

// Withdraw takes a prompt back: its client waits for it no more.
func (p *Play) Withdraw(one *PlayPrompt) {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	one.Cancelled = true
	one.Session.Cancels++
	p.Note("client > $/cancel_request %s", one.id)
	p.writeLocked(acp.NewNotification(acp.MethodCancelRequest, []byte(`{"requestId":`+string(one.id)+`}`)))
}

// Answer answers a question. Late answers are ones to questions that are not open any more.
func (p *Play) Answer(a *PlayAsk, result string) {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	if a.Open && strings.Contains(result, `"cancelled"`) { // some agents end their turn for a question, too
		if of := p.Prompt(a.Token); of != nil {
			of.Cancelled = true
		}
		a.Session.Cancels++
	}
	a.Open, a.Answered = false, true
	p.Note("client > answer %s %s", a.id, result)
	p.writeLocked(acp.NewResult(a.id, []byte(result)))
}

// Barrier waits until the client has a notice, which the native process is about to say, or
// that is gone.
func (p *Play) Barrier(say func(text string), gone func() bool) {
	p.Mu.Lock()
	p.lastID++
	text := fmt.Sprintf("notice %d.", p.lastID)
	p.notices[text] = false
	say(text)
	p.Mu.Unlock()
	p.Expect("a notice reaches the client", func() bool { return p.notices[text] || gone() })
}

// Failed reports whether anything was wrong.
func (p *Play) Failed() bool {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	return len(p.wrong) > 0
}
