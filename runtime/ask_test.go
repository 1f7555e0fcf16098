package runtime

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/runtime/observe"
)

const permissionParams = `{"sessionId":"native-1","toolCall":{"toolCallId":"t"},"options":[{"optionId":"yes","name":"Y","kind":"allow_once"},{"optionId":"no","name":"N","kind":"reject_always"}]}`

// asks sends the client a request of the agent and returns it as the client was
// given it.
func (tc *testClient) asks(a *fakeAgent, id, method, params string) acp.Message {
	tc.t.Helper()
	a.conn().send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":%s}`, id, method, params))
	m := tc.nextRequest()
	if m.Method() != method {
		tc.t.Fatalf("the client was asked %s", m.Frame())
	}
	return m
}

func (tc *testClient) nextRequest() acp.Message {
	tc.t.Helper()
	for {
		if m := tc.next(); m.IsRequest() {
			return m
		}
	}
}

// nextOf returns the next frame of a method.
func (tc *testClient) nextOf(method string) acp.Message {
	tc.t.Helper()
	for {
		if m := tc.next(); m.Method() == method {
			return m
		}
	}
}

func (tc *testClient) answers(m acp.Message, result string) {
	tc.t.Helper()
	tc.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID(), result))
}

// quiet checks that the agent was sent nothing that the test has not taken. What
// it was sent before an answer comes before that answer.
func (c *fakeConn) quiet(t *testing.T, tc *testClient) {
	t.Helper()
	id := tc.request("_x/last", `{}`)
	m := c.next(t, "_x/last")
	c.result(m, `{}`)
	tc.until(id)
}

// sessionLedger is a ledger that knows which session each piece of work is of,
// and what it is part of.
type sessionLedger struct {
	*ledger
	works []string
}

type part struct{}

func (l *sessionLedger) Begin(ctx context.Context, w observe.Work) observe.Span {
	e := l.ledger.Begin(ctx, w).(*entry)
	l.mu.Lock()
	defer l.mu.Unlock()
	within, _ := ctx.Value(part{}).(string)
	l.works = append(l.works, fmt.Sprintf("%s of %q in %q", w.Name, w.Session, within))
	return namedSpan{e, w.Name}
}

type namedSpan struct {
	*entry
	name string
}

func (s namedSpan) Context() context.Context {
	return context.WithValue(context.Background(), part{}, s.name)
}

// What a person decides is told in one word, and goes to the agent as it is.
func TestAsk_Decisions(t *testing.T) {
	const (
		elicit   = `{"sessionId":"native-1","message":"m","mode":"form","requestedSchema":{"type":"object","properties":{}}}`
		question = `{"sessionId":"native-1","questions":[{"id":"q","header":"H","question":"Q","options":[{"label":"a","description":""}],"multiSelect":false}]}`
		all      = `{"elicitation":{"form":{}},"_meta":{"sandboxagent.dev":{"requestQuestion":true}}}`
	)
	for _, tt := range []struct{ method, params, answer, outcome string }{
		{acp.MethodSessionRequestPermission, permissionParams, `"result":{"outcome":{"outcome":"selected","optionId":"yes"}}`, "allow_once "},
		{acp.MethodSessionRequestPermission, permissionParams, `"result":{"outcome":{"outcome":"selected","optionId":"no"}}`, "reject_always "},
		{acp.MethodSessionRequestPermission, permissionParams, `"result":{"outcome":{"outcome":"selected","optionId":"other"}}`, "answered "},
		{acp.MethodSessionRequestPermission, permissionParams, `"result":{"outcome":{"outcome":"cancelled"}}`, "cancelled "},
		{acp.MethodSessionRequestPermission, permissionParams, `"error":{"code":-32603,"message":"broken"}`, "failed -32603"},
		{acp.MethodElicitationCreate, elicit, `"result":{"action":"accept","content":{}}`, "accept "},
		{acp.MethodElicitationCreate, elicit, `"result":{"action":"decline"}`, "decline "},
		{acp.MethodRequestQuestion, question, `"result":{"outcome":"answered","answers":[["a"]]}`, "answered "},
		{acp.MethodRequestQuestion, question, `"result":{"outcome":"rejected","answers":[]}`, "rejected "},
	} {
		t.Run(tt.method+" "+tt.outcome, func(t *testing.T) {
			l := &sessionLedger{ledger: &ledger{t: t, open: map[*entry]bool{}}}
			a := &fakeAgent{id: "fake"}
			r := openRuntime(t, Options{DataDir: t.TempDir(), Adapters: adaptersOf(a), DefaultAgent: "fake", Observer: l})
			tc := connect(t, r, all)
			s := tc.session()
			id := tc.request("session/prompt", prompt(s, "x"))
			p := a.conn().next(t, "session/prompt")
			m := tc.asks(a, `"mine"`, tt.method, tt.params)
			tc.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,%s}`, m.ID(), tt.answer))
			if got := a.conn().next(t, ""); got.ID() != `"mine"` || !strings.Contains(string(got.Frame()), tt.answer) {
				t.Errorf("the agent was answered %s", got.Frame())
			}
			if l.count(tt.method+" "+tt.outcome) != 1 {
				t.Errorf("%q is not among %q", tt.method+" "+tt.outcome, l.ended)
			}
			l.mu.Lock()
			if got, want := l.works[len(l.works)-1], fmt.Sprintf("%s of %q in %q", tt.method, s, "session/prompt"); got != want {
				t.Errorf("observed %s, want %s", got, want)
			}
			l.mu.Unlock()
			// The record has the answer, as the client gave it.
			events, _, err := r.Events(t.Context(), s, 0, 0)
			if err != nil || !strings.Contains(fmt.Sprint(messages(events)), tt.answer) {
				t.Errorf("the log has %v, %v", messages(events), err)
			}
			a.conn().result(p, `{"stopReason":"end_turn"}`)
			tc.until(id)
		})
	}
}

func messages(events []Event) (out []string) {
	for _, e := range events {
		out = append(out, string(e.Message))
	}
	return out
}

// A request beyond the limit is refused with an error that says so, is never
// open, and leaves the others as they are.
func TestAsk_OneTooManyWasNeverOpen(t *testing.T) {
	l := &ledger{t: t, open: map[*entry]bool{}}
	a := &fakeAgent{id: "fake"}
	r := openRuntime(t, Options{DataDir: t.TempDir(), Adapters: adaptersOf(a), DefaultAgent: "fake", Observer: l})
	tc := connect(t, r, "")
	s := tc.session()
	id := tc.request("session/prompt", prompt(s, "x"))
	p := a.conn().next(t, "session/prompt")
	var last int64
	for i := range 64 {
		m := tc.asks(a, fmt.Sprint(i), acp.MethodSessionRequestPermission, permissionParams)
		n, _ := m.ID().Int()
		if i > 0 && n != last+1 {
			t.Errorf("request %d follows %d", n, last)
		}
		last = n
	}
	a.conn().send(fmt.Sprintf(`{"jsonrpc":"2.0","id":"late","method":%q,"params":%s}`, acp.MethodSessionRequestPermission, permissionParams))
	if got := a.conn().next(t, ""); got.ID() != `"late"` || got.Err() == nil || got.Err().Code != acp.CodeInternal || !strings.Contains(got.Err().Message, "64 open requests") {
		t.Errorf("the agent was answered %s", got.Frame())
	}
	if l.count(acp.MethodSessionRequestPermission+" dropped ") != 1 {
		t.Errorf("what ended: %q", l.ended)
	}
	tc.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{"outcome":{"outcome":"cancelled"}}}`, last+1))
	a.conn().quiet(t, tc)
	a.conn().result(p, `{"stopReason":"end_turn"}`)
	tc.until(id)
}

// Only who was given a request may answer it.
func TestAsk_AnswersOfOthersCountForNothing(t *testing.T) {
	a := &fakeAgent{}
	r := newRuntime(t, t.TempDir(), a)
	tc, stranger := connect(t, r, ""), connect(t, r, "")
	s := tc.session()
	id := tc.request("session/prompt", prompt(s, "x"))
	p := a.conn().next(t, "session/prompt")
	m := tc.asks(a, "7", acp.MethodSessionRequestPermission, permissionParams)
	stranger.answers(m, `{"outcome":{"outcome":"selected","optionId":"yes"}}`)
	tc.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":"%s","result":{"outcome":{"outcome":"selected","optionId":"yes"}}}`, m.ID())) // another id
	a.conn().quiet(t, stranger)
	tc.answers(m, `{"outcome":{"outcome":"selected","optionId":"no"}}`)
	if got := a.conn().next(t, ""); got.ID() != "7" || !strings.Contains(string(got.Frame()), `"no"`) {
		t.Errorf("the agent was answered %s", got.Frame())
	}
	a.conn().result(p, `{"stopReason":"end_turn"}`)
	tc.until(id)
}

// A cancelled turn answers what a person was asked; what the agent asks of the
// client's machine goes on.
func TestAsk_CancelAnswersPeopleOnly(t *testing.T) {
	a := &fakeAgent{}
	l := &ledger{t: t, open: map[*entry]bool{}}
	r := openRuntime(t, Options{DataDir: t.TempDir(), Adapters: adaptersOf(withID(a)), DefaultAgent: a.id, Observer: l})
	tc := connect(t, r, `{"fs":{"readTextFile":true},"elicitation":{"form":{}},"_meta":{"sandboxagent.dev":{"requestQuestion":true}}}`)
	s := tc.session()
	id := tc.request("session/prompt", prompt(s, "x"))
	p := a.conn().next(t, "session/prompt")
	read := tc.asks(a, "1", "fs/read_text_file", `{"sessionId":"native-1","path":"/x"}`)
	tc.asks(a, "2", acp.MethodElicitationCreate, `{"sessionId":"native-1","message":"m","mode":"form","requestedSchema":{"type":"object","properties":{}}}`)
	tc.asks(a, "3", acp.MethodRequestQuestion, `{"sessionId":"native-1","questions":[{"id":"q","header":"H","question":"Q","options":[{"label":"a","description":""}],"multiSelect":false}]}`)
	tc.send(fmt.Sprintf(`{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":%q}}`, s))
	a.conn().next(t, "session/cancel")
	got := map[acp.ID]string{}
	for range 2 {
		m := a.conn().next(t, "")
		got[m.ID()] = string(m.Result())
	}
	if got["2"] != `{"action":"cancel"}` || got["3"] != `{"outcome":"cancelled","answers":[]}` {
		t.Errorf("the agent was answered %v", got)
	}
	if l.count(acp.MethodElicitationCreate+" cancelled ") != 1 || l.count(acp.MethodRequestQuestion+" cancelled ") != 1 {
		t.Errorf("what ended: %q", l.ended)
	}
	tc.answers(read, `{"content":"c"}`)
	if m := a.conn().next(t, ""); m.ID() != "1" || string(m.Result()) != `{"content":"c"}` {
		t.Errorf("the agent was answered %s", m.Frame())
	}
	a.conn().result(p, `{"stopReason":"cancelled"}`)
	tc.until(id)
}

// An agent that withdraws its request has it answered, and the client is told.
func TestAsk_TheAgentWithdraws(t *testing.T) {
	a := &fakeAgent{}
	l := &ledger{t: t, open: map[*entry]bool{}}
	r := openRuntime(t, Options{DataDir: t.TempDir(), Adapters: adaptersOf(withID(a)), DefaultAgent: a.id, Observer: l})
	tc := connect(t, r, `{"elicitation":{"form":{}}}`)
	s := tc.session()
	id := tc.request("session/prompt", prompt(s, "x"))
	p := a.conn().next(t, "session/prompt")
	one, two := tc.asks(a, "1", acp.MethodSessionRequestPermission, permissionParams), tc.asks(a, "2", acp.MethodSessionRequestPermission, permissionParams)
	form := tc.asks(a, "3", acp.MethodElicitationCreate, `{"requestId":77,"message":"m","mode":"form","requestedSchema":{"type":"object","properties":{}}}`)
	for _, tt := range []struct {
		params string // of the agent's $/cancel_request
		is     acp.Message
		id     acp.ID
	}{{`{"requestId":2,"sessionId":"native-1"}`, two, "2"}, {`{"requestId":1}`, one, "1"}, {`{"requestId":3}`, form, "3"}} {
		a.conn().send(`{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":"2"}}`) // no such one
		a.conn().send(`{"jsonrpc":"2.0","method":"$/cancel_request","params":{}}`)
		a.conn().send(`{"jsonrpc":"2.0","method":"$/cancel_request","params":` + tt.params + `}`)
		if m := tc.nextOf(acp.MethodCancelRequest); !strings.Contains(string(m.Params()), `"requestId":`+string(tt.is.ID())) {
			t.Errorf("the client was told %s", m.Frame())
		}
		if m := a.conn().next(t, ""); m.ID() != tt.id || m.Err() == nil || m.Err().Code != acp.CodeCancelled {
			t.Errorf("the agent was answered %s", m.Frame())
		}
		tc.answers(tt.is, `{"outcome":{"outcome":"cancelled"}}`) // too late
	}
	a.conn().quiet(t, tc)
	if l.count(acp.MethodSessionRequestPermission+" withdrawn ") != 2 || l.count(acp.MethodElicitationCreate+" withdrawn ") != 1 {
		t.Errorf("what ended: %q", l.ended)
	}
	a.conn().result(p, `{"stopReason":"end_turn"}`)
	tc.until(id)
}

// A request of no session goes to the connections that can answer it, the first
// answer counts, and the others are told.
func TestAsk_OfNoSession(t *testing.T) {
	const form = `{"requestId":77,"message":"m","mode":"form","requestedSchema":{"type":"object","properties":{}}}`
	a, elsewhere := &fakeAgent{id: "fake"}, &fakeAgent{id: "other"}
	r := newRuntime(t, t.TempDir(), a, elsewhere)
	can := `{"elicitation":{"form":{}}}`
	one, two := connect(t, r, can), connect(t, r, can)
	s := one.session()
	m := one.asks(a, `"e"`, acp.MethodElicitationCreate, form)
	same := two.nextRequest()
	if m.ID() != same.ID() || m.Method() != acp.MethodElicitationCreate || same.Method() != acp.MethodElicitationCreate {
		t.Errorf("asked by %s and %s", m.Frame(), same.Frame())
	}
	two.answers(same, `{"action":"accept","content":{"k":1}}`)
	if got := a.conn().next(t, ""); got.ID() != `"e"` || string(got.Result()) != `{"action":"accept","content":{"k":1}}` {
		t.Errorf("the agent was answered %s", got.Frame())
	}
	if told := one.nextOf(acp.MethodCancelRequest); !strings.Contains(string(told.Params()), `:`+string(m.ID())+`}`) {
		t.Errorf("the other was told %s", told.Frame())
	}
	one.answers(m, `{"action":"decline"}`)
	a.conn().quiet(t, one)
	// Who answered was not told.
	before, _ := two.until(two.request("session/list", `{}`))
	if len(before) != 0 {
		t.Errorf("who answered was told %s", before[0].Frame())
	}
	// Of what nobody can do the agent is told.
	a.conn().send(`{"jsonrpc":"2.0","id":8,"method":"fs/read_text_file","params":{"path":"/x"}}`)
	if got := a.conn().next(t, ""); got.ID() != "8" || got.Err() == nil || got.Err().Code != acp.CodeMethodNotFound {
		t.Errorf("the agent was answered %s", got.Frame())
	}
	_ = s
}

// Who has answered a request holds it no more, also when it reads nothing: nobody tells it that it is open no more.
func TestAsk_WhoAnswersHoldsItNoMore(t *testing.T) {
	for name, of := range map[string]struct{ method, params, answer string }{
		"of the session": {"session/request_permission", permissionParams, `{"outcome":{"outcome":"cancelled"}}`},
		"of no session":  {"elicitation/create", `{"requestId":1,"mode":"url","message":"m","url":"https://x","elicitationId":"e"}`, `{"action":"cancel"}`},
	} {
		t.Run(name, func(t *testing.T) {
			a := &fakeAgent{id: "fake"}
			tc := connect(t, newRuntime(t, t.TempDir(), a), `{"elicitation":{"url":{}}}`)
			tc.session()
			m := tc.asks(a, "7", of.method, of.params)
			c, id := tc.c.(*Client), number(m)
			if !c.WasGiven(id) {
				t.Fatal("it does not hold it")
			}
			tc.st.Close()
			tc.answers(m, of.answer)
			if c.WasGiven(id) {
				t.Error("it holds it still")
			}
		})
	}
}

// A request of no session waits for whoever comes when those who were asked have gone. Each is asked once, and an agent
// that asks without end is refused.
func TestAsk_OfNoSessionOutlivesItsClients(t *testing.T) {
	const (
		form   = `{"requestId":77,"message":"m","mode":"form","requestedSchema":{"type":"object","properties":{}}}`
		can    = `{"elicitation":{"form":{}}}`
		cancel = `{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":%d}}`
		many   = 64
	)
	a, elsewhere := &fakeAgent{id: "fake"}, &fakeAgent{id: "other"}
	r := newRuntime(t, t.TempDir(), a, elsewhere)
	one := connect(t, r, can)
	s := one.session()
	m := one.asks(a, `"e"`, acp.MethodElicitationCreate, form)
	guest := connectAs(t, r, 1, `{"protocolVersion":1,"clientCapabilities":`+can+`,"_meta":{"sandboxagent.dev":{"agent":"other"}}}`, acp.OneStream)
	one.close()
	conn := a.conn()
	cannot, two := connect(t, r, ""), connect(t, r, can)
	asked := func(tc *testClient) (n int) {
		resumed, _ := tc.until(tc.request("session/resume", fmt.Sprintf(`{"sessionId":%q,"cwd":"/tmp"}`, s)))
		then, _ := tc.until(tc.request("session/list", `{}`))
		for _, got := range append(resumed, then...) {
			if got.IsRequest() && got.ID() == m.ID() && got.Method() == acp.MethodElicitationCreate {
				n++
			}
		}
		return n
	}
	for name, tt := range map[string]struct {
		tc   *testClient
		want int
	}{"who came later": {two, 1}, "who reads its session": {guest, 1}, "who cannot": {cannot, 0}} {
		if n := asked(tt.tc); n != tt.want {
			t.Errorf("%s was asked %d times, want %d", name, n, tt.want)
		}
	}
	two.answers(m, `{"action":"accept","content":{"k":1}}`)
	if got := conn.next(t, ""); got.ID() != `"e"` || string(got.Result()) != `{"action":"accept","content":{"k":1}}` {
		t.Errorf("the agent was answered %s", got.Frame())
	}
	guest.nextOf(acp.MethodCancelRequest)
	for i := range many {
		conn.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`, i, acp.MethodElicitationCreate, form))
		two.nextRequest()
	}
	conn.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`, many, acp.MethodElicitationCreate, form))
	if got := conn.next(t, ""); got.ID() != acp.IntID(many) || got.Err() == nil || got.Err().Code != acp.CodeInternal {
		t.Errorf("the agent was answered %s", got.Frame())
	}
	conn.send(fmt.Sprintf(cancel, 0)) // makes room for one
	conn.next(t, "")
	two.nextOf(acp.MethodCancelRequest)
	conn.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`, many, acp.MethodElicitationCreate, form))
	two.nextRequest()
}

// Who reads a session without a process is asked what that has asked before of no session when it begins to serve the session.
func TestAsk_OfNoSessionWhenItBeginsToServe(t *testing.T) {
	const can = `{"elicitation":{"form":{}}}`
	a, elsewhere := &fakeAgent{id: "fake", caps: reopening}, &fakeAgent{id: "other"}
	r := newRuntime(t, t.TempDir(), a, elsewhere)
	one := connect(t, r, can)
	s := one.session()
	a.conn().crash(errCrash)
	waitFor(t, r, s, func(i SessionInfo) bool { return i.State == StateDormant })
	guest := connectAs(t, r, 1, `{"protocolVersion":1,"clientCapabilities":`+can+`,"_meta":{"sandboxagent.dev":{"agent":"other"}}}`, acp.OneStream)
	guest.call("session/resume", fmt.Sprintf(`{"sessionId":%q,"cwd":"/tmp"}`, s))
	two := connect(t, r, can)
	m := two.asks(a, `"e"`, acp.MethodElicitationCreate, `{"requestId":77,"message":"m","mode":"form","requestedSchema":{"type":"object","properties":{}}}`)
	turn := guest.request("session/prompt", prompt(s, "x"))
	conn := a.conn()
	conn.result(conn.next(t, "session/resume"), `{}`)
	begun := conn.next(t, "session/prompt")
	if got := guest.nextRequest(); got.ID() != m.ID() {
		t.Errorf("it was asked %s", got.Frame())
	}
	conn.result(begun, `{"stopReason":"end_turn"}`)
	told, _ := guest.until(turn)
	then, _ := guest.until(guest.request("session/list", `{}`))
	for _, got := range append(told, then...) {
		if got.IsRequest() {
			t.Errorf("then it was asked %s", got.Frame())
		}
	}
}

// A notification of no session goes to the connections of that agent and to those
// with a session there; a line that is no message belongs to the turns in hand.
func TestAgent_MessagesOfNoSession(t *testing.T) {
	a, other := &fakeAgent{id: "fake"}, &fakeAgent{id: "other"}
	r := newRuntime(t, t.TempDir(), a, other)
	here, guest := connect(t, r, ""), connect(t, r, "")
	s := here.session()
	conn := a.conn()
	g := rawjson.MemberString([]byte(guest.call("session/new", `{"cwd":"/tmp","mcpServers":[],"_meta":{"sandboxagent.dev":{"agent":"other"}}}`)), "sessionId")
	conn.send(`{"jsonrpc":"2.0","method":"_x/news","params":{"n":1}}`)
	for _, tc := range []*testClient{here, guest} { // both were opened with it
		if m := tc.next(); m.Method() != "_x/news" {
			t.Errorf("%s", m.Frame())
		}
	}
	other.conn().send(`{"jsonrpc":"2.0","method":"_x/news","params":{"n":2}}`)
	if m := guest.next(); m.Method() != "_x/news" || !strings.Contains(string(m.Params()), "2") {
		t.Errorf("%s", m.Frame())
	}
	const garbage = `{"jsonrpc":"2.0","method":"_sandboxagent/agent/unparsed","params":{"raw":"%s"}}`
	log := func(id string) string {
		events, _, err := r.Events(t.Context(), id, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(messages(events))
	}
	conn.send(fmt.Sprintf(garbage, "idle"))
	for _, tc := range []*testClient{here, guest} {
		if m := tc.next(); !strings.Contains(string(m.Params()), "idle") {
			t.Errorf("%s", m.Frame())
		}
	}
	id := here.request("session/prompt", prompt(s, "x"))
	p := conn.next(t, "session/prompt")
	conn.send(fmt.Sprintf(garbage, "busy"))
	if m := here.next(); !strings.Contains(string(m.Params()), "busy") {
		t.Errorf("%s", m.Frame())
	}
	conn.result(p, `{"stopReason":"end_turn"}`)
	here.until(id)
	before, _ := guest.until(guest.request("session/list", `{}`))
	if len(before) != 0 || strings.Contains(log(s), "idle") || !strings.Contains(log(s), "busy") || strings.Contains(log(g), "busy") {
		t.Errorf("the guest was given %d messages; the logs have %s and %s", len(before), log(s), log(g))
	}
}

// A request waits for somebody who can answer it if anybody could; attached
// clients that cannot do not count as that.
func TestAsk_WhoCan(t *testing.T) {
	a := &fakeAgent{}
	r := newRuntime(t, t.TempDir(), a)
	cannot, can := connect(t, r, ""), connect(t, r, `{"fs":{"writeTextFile":true}}`)
	s := cannot.session()
	id := cannot.request("session/prompt", prompt(s, "x"))
	p := a.conns[0].next(t, "session/prompt")
	write := json.RawMessage(`{"sessionId":"native-1","path":"/x","content":""}`)
	a.conns[0].send(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"fs/write_text_file","params":%s}`, write))
	if got := a.conns[0].next(t, ""); got.Err() == nil || got.Err().Code != acp.CodeMethodNotFound {
		t.Errorf("the agent was answered %s", got.Frame())
	}
	can.call("session/resume", fmt.Sprintf(`{"sessionId":%q,"cwd":"/tmp"}`, s))
	a.conns[0].send(fmt.Sprintf(`{"jsonrpc":"2.0","id":2,"method":"fs/write_text_file","params":%s}`, write))
	m := can.nextRequest()
	if m.Method() != "fs/write_text_file" || m.Session() != s {
		t.Errorf("asked by %s", m.Frame())
	}
	can.answers(m, `{}`)
	if got := a.conns[0].next(t, ""); got.ID() != "2" || string(got.Result()) != `{}` {
		t.Errorf("the agent was answered %s", got.Frame())
	}
	a.conns[0].result(p, `{"stopReason":"end_turn"}`)
	cannot.until(id)
}

// A request that the agent has sent before it knew of a cancel is answered as those that
// were open then: nobody is asked about a turn that is cancelled.
func TestCancel_MeetsARequestOnItsWay(t *testing.T) {
	a := &fakeAgent{id: "fake"}
	r := newRuntime(t, t.TempDir(), a)
	tc := connect(t, r, "")
	s := tc.session()
	id := tc.request("session/prompt", prompt(s, "x"))
	p := a.conn().next(t, "session/prompt")
	tc.cancels("session/cancel", `{"sessionId":"`+s+`"}`)
	a.conn().next(t, "session/cancel")
	a.conn().send(`{"jsonrpc":"2.0","id":7,"method":"session/request_permission","params":{"sessionId":"native-1","toolCall":{"toolCallId":"t"},"options":[{"optionId":"y","name":"Y","kind":"allow_once"}]}}`)
	if m := a.conn().next(t, ""); !strings.Contains(string(m.Frame()), `"id":7,"result":{"outcome":{"outcome":"cancelled"}}`) {
		t.Errorf("the agent was answered %s", m.Frame())
	}
	if i, err := r.Session(s); err != nil || i.Pending != 0 {
		t.Errorf("%d requests are open, %v", i.Pending, err)
	}
	a.conn().result(p, `{"stopReason":"cancelled"}`)
	if before, _ := tc.until(id); len(before) != 0 {
		t.Errorf("the client was given %s", before[0].Frame())
	}
}
