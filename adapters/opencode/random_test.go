package opencode

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridgetest"
)

// game is one play of clients with pretenders. The play's Mu guards it.
type game struct {
	*bridgetest.Play
	all      []*pretender
	sessions map[string]*fakeSession // all that there are, by id
	last     int
	left     []leftAsk  // what a turn that was broken off has asked, which OpenCode lists for ever
	rng      *rand.Rand // what becomes of prompts as they come
}

// pretender plays a server: it says what the test wants, in an order that the real one keeps. Its
// process only says where it listens.
type pretender struct {
	*game
	puppet *bridgetest.Puppet
	http   *httptest.Server
	events chan string // what its stream says
	gone   chan struct{}
	ended  bool
}

// fakeSession is a session of OpenCode, and what goes on in it.
type fakeSession struct {
	id      string
	session *bridgetest.PlaySession
	f       *pretender // that has used it last

	post    *post // the prompt that was not answered
	begun   bool
	aborted bool
	denied  bool   // it ends when its calls have
	message string // of the model
	text    string // what the message has said
	part    string
	calls   []*fakeCall
}

// post is a prompt that waits for its answer.
type post struct {
	token, id string
	answer    chan string // cap 1
}

// fakeCall is a command, or a question, with what it asks.
type fakeCall struct {
	part, call, ask  string
	question         bool
	answered, denied bool
}

type leftAsk struct {
	session, id string
	question    bool
}

// show begins a pretender.
func (g *game) show(puppet *bridgetest.Puppet) bridgetest.Show {
	f := &pretender{game: g, puppet: puppet, events: make(chan string, 4096), gone: make(chan struct{})}
	f.http = httptest.NewServer(f)
	g.Mu.Lock()
	defer g.Mu.Unlock()
	g.Begun()
	g.all = append(g.all, f)
	puppet.Say("opencode server listening on " + f.http.URL)
	return f
}

func (f *pretender) Line([]byte) {}

func (f *pretender) Interrupted() {}

func (f *pretender) EOF() {}

func (f *pretender) Ended() {
	f.Mu.Lock()
	f.ended = true
	close(f.gone)
	for _, s := range f.sessions {
		if s.f == f {
			s.drop()
		}
	}
	f.Mu.Unlock()
	f.http.CloseClientConnections()
	f.http.Close()
	f.Mu.Lock()
	defer f.Mu.Unlock()
	f.game.Ended()
}

func (s *fakeSession) drop() {
	s.post, s.begun, s.aborted, s.denied, s.calls, s.message = nil, false, false, false, nil, ""
}

// say reports an event.
func (f *pretender) say(kind, properties string, args ...any) {
	if f.ended {
		return
	}
	line := fmt.Sprintf(`{"directory":%q,"payload":{"type":%q,"properties":%s}}`, f.Cwd, kind, fmt.Sprintf(properties, args...))
	f.Note("opencode > %.400s", line)
	f.events <- line
}

// ServeHTTP answers the bridge.
func (f *pretender) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	if r.URL.Path == "/global/event" {
		f.stream(w, r)
		return
	}
	f.Mu.Lock()
	f.Note("opencode < %s %s %.300s", r.Method, r.URL.Path, body)
	status, said, wait := f.answer(r.Method, strings.Split(strings.Trim(r.URL.Path, "/"), "/"), body)
	f.Mu.Unlock()
	if wait != nil {
		select {
		case said = <-wait:
		case <-f.gone:
			return
		case <-r.Context().Done():
			return
		}
		f.Mu.Lock()
		f.Note("opencode answers %.200s", said)
		f.Mu.Unlock()
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, said)
}

func (f *pretender) stream(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	send := func(line string) {
		_, _ = fmt.Fprintf(w, "data: %s\n\n", line)
		w.(http.Flusher).Flush()
	}
	send(`{"payload":{"type":"server.connected","properties":{}}}`)
	for {
		select {
		case line := <-f.events:
			send(line)
		case <-f.gone:
			return
		case <-r.Context().Done():
			return
		}
	}
}

// answer answers a request at once, or says where its answer comes from.
func (f *pretender) answer(method string, path []string, body []byte) (status int, said string, wait chan string) {
	what := path[0]
	if len(path) > 2 {
		what += "/" + path[2]
	}
	var s *fakeSession
	if len(path) > 1 {
		s = f.sessions[path[1]]
	}
	switch what {
	case "config":
		if len(path) > 1 {
			return 200, `{"providers":[{"id":"p","name":"P","models":{"one":{"id":"one","name":"One"},"two":{"id":"two","name":"Two"}}}],"default":{"p":"one"}}`, nil
		}
		return 200, `{}`, nil
	case "agent":
		return 200, `[{"name":"build","mode":"primary"},{"name":"plan","mode":"primary"}]`, nil
	case "command":
		return 200, `[]`, nil
	case "permission", "question":
		var list []string
		for _, one := range f.left {
			if one.question == (what == "question") {
				list = append(list, fmt.Sprintf(`{"id":%q,"sessionID":%q}`, one.id, one.session))
			}
		}
		return 200, "[" + strings.Join(list, ",") + "]", nil
	case "mcp", "instance":
		return 200, `{}`, nil
	case "permission/reply":
		f.replied(path[1], rawjson.MemberString(body, "reply"), rawjson.MemberString(body, "message"))
		return 200, `true`, nil
	case "question/reply":
		f.replied(path[1], "once", "")
		return 200, `true`, nil
	case "question/reject":
		f.replied(path[1], "reject", "")
		return 200, `true`, nil
	}
	if what == "session" && method == "POST" {
		return 200, f.make().info(f.Cwd), nil
	}
	if s == nil {
		return 404, `{"name":"NotFoundError","data":{"message":"no such session"}}`, nil
	}
	switch what {
	case "session":
		if method == "DELETE" {
			f.Deleted(s.id)
			delete(f.sessions, s.id)
		}
		return 200, s.info(f.Cwd), nil
	case "session/fork":
		return 200, f.make().info(f.Cwd), nil
	case "session/message":
		if method == "GET" {
			return 200, `[]`, nil
		}
		return f.given(s, body)
	case "session/diff", "session/todo":
		return 200, `[]`, nil
	case "session/abort":
		if s.begun && !s.aborted { // before there is nothing to break off
			f.told(s)
			s.aborted = true
		}
		return 200, `true`, nil
	}
	f.Wrong("opencode is asked for %s %s", method, path)
	return 404, `{}`, nil
}

func (f *pretender) make() *fakeSession {
	f.last++
	s := &fakeSession{id: fmt.Sprintf("ses_%d", f.game.last), f: f}
	f.sessions[s.id] = s
	return s
}

func (s *fakeSession) info(cwd string) string {
	return fmt.Sprintf(`{"id":%q,"directory":%q,"title":"New session - 1","time":{"updated":1}}`, s.id, cwd)
}

// given takes a prompt.
func (f *pretender) given(s *fakeSession, body []byte) (status int, said string, wait chan string) {
	token := bridgetest.TokenIn(body)
	one := f.Prompt(token)
	switch {
	case f.ended:
		return 500, `{}`, nil
	case one == nil:
		f.Wrong("opencode is given a prompt of nobody: %q", token)
		return 400, `{}`, nil
	case one.Given:
		f.Wrong("opencode is given prompt %s twice", token)
	case one.Answered && !one.Loose:
		f.Wrong("opencode is given prompt %s, which is over", token)
	case s.post != nil:
		f.Wrong("opencode has two prompts at once: %s", token)
	}
	one.Given, s.f = true, f
	s.session = one.Session
	s.post = &post{token, rawjson.MemberString(body, "messageID"), make(chan string, 1)}
	if p := s.post; f.rng.IntN(2) == 0 {
		s.begin()
	} else { // it begins by itself a moment later
		time.AfterFunc(time.Duration(f.rng.IntN(10))*time.Millisecond, func() {
			f.Mu.Lock()
			defer f.Mu.Unlock()
			if s.post == p && !f.ended {
				s.begin()
			}
		})
	}
	return 200, "", s.post.answer
}

// told notes that what runs was to end.
func (f *pretender) told(s *fakeSession) {
	one := f.Prompt(s.post.token)
	switch {
	case one != nil && !one.Cancelled && !one.Loose:
		f.Wrong("opencode is to end prompt %s, and nobody wanted that", s.post.token)
	case one != nil:
		one.Told = true
	}
}

// begin begins the turn of a prompt.
func (s *fakeSession) begin() {
	if s.post == nil || s.begun {
		return
	}
	s.begun, s.aborted = true, false
	s.f.say("message.updated", `{"info":{"id":%q,"role":"user","sessionID":%q}}`, s.post.id, s.id)
	s.f.say("session.status", `{"sessionID":%q,"status":{"type":"busy"}}`, s.id)
	s.messageBegins()
}

func (s *fakeSession) messageBegins() {
	s.f.last++
	s.message, s.text, s.part = fmt.Sprintf("msg_z%d", s.f.game.last), "", fmt.Sprintf("prt_z%d", s.f.game.last)
	s.f.say("message.updated", `{"info":%s}`, s.last(0, ""))
}

// last is the newest message.
func (s *fakeSession) last(completed int, more string) string {
	return fmt.Sprintf(`{"id":%q,"role":"assistant","sessionID":%q,"parentID":%q,"modelID":"one","providerID":"p","time":{"completed":%d}%s}`, s.message, s.id, s.post.id, completed, more)
}

func (s *fakeSession) says() {
	if s.begun {
		s.text += s.post.token + " says. "
		s.f.say("message.part.updated", `{"part":{"id":%q,"sessionID":%q,"messageID":%q,"type":"text","text":%q}}`, s.part, s.id, s.message, s.text)
	}
}

// call begins a command, about which is asked or not.
func (s *fakeSession) call(asks, question bool) {
	if !s.begun || s.aborted {
		return
	}
	s.f.last++
	n := s.f.game.last
	c := &fakeCall{part: fmt.Sprintf("prt_c%d", n), call: fmt.Sprintf("call_%d", n), question: question}
	s.calls = append(s.calls, c)
	s.tool(c, "running")
	switch {
	case question:
		c.ask = fmt.Sprintf("que_%d", n)
		s.f.say("question.asked", `{"id":%q,"sessionID":%q,"questions":[{"question":"what of %s?","header":"h","options":[{"label":"a","description":"b"}]}],"tool":{"messageID":%q,"callID":%q}}`,
			c.ask, s.id, s.post.token, s.message, c.call)
	case asks:
		c.ask = fmt.Sprintf("per_%d", n)
		s.f.say("permission.asked", `{"id":%q,"sessionID":%q,"permission":"bash","patterns":["echo %s"],"always":["echo *"],"metadata":{"command":"echo %s"},"tool":{"messageID":%q,"callID":%q}}`,
			c.ask, s.id, s.post.token, s.post.token, s.message, c.call)
	}
}

func (s *fakeSession) tool(c *fakeCall, status string) {
	s.f.say("message.part.updated", `{"part":{"id":%q,"sessionID":%q,"messageID":%q,"type":"tool","tool":"bash","callID":%q,"state":{"status":%q,"input":{"command":"echo %s"},"output":"out","error":"why","time":{"start":1}}}}`,
		c.part, s.id, s.message, c.call, status, s.post.token)
}

// replied takes the answer to a question. A rejection without words ends the turn, and one rejects
// whatever else the session asks.
func (f *pretender) replied(ask, how, message string) {
	f.left = slices.DeleteFunc(f.left, func(one leftAsk) bool { return one.id == ask })
	for _, s := range f.sessions {
		if !slices.ContainsFunc(s.calls, func(c *fakeCall) bool { return c.ask == ask && !c.answered }) {
			continue
		}
		for _, c := range s.calls {
			if c.ask != ask && (how != "reject" || c.ask == "" || c.question) || c.answered {
				continue
			}
			c.answered, c.denied = true, how == "reject"
			kind := "permission.replied"
			if c.question {
				kind = map[bool]string{true: "question.rejected", false: "question.replied"}[c.denied]
			}
			f.say(kind, `{"sessionID":%q,"requestID":%q,"reply":%q}`, s.id, c.ask, how)
		}
		s.denied = s.denied || how == "reject" && message == ""
		return
	}
}

// callEnds ends a command that may, and reports whether there was one.
func (s *fakeSession) callEnds() bool {
	for i, c := range s.calls {
		if c.ask != "" && !c.answered {
			continue
		}
		s.calls = slices.Delete(s.calls, i, i+1)
		status := "completed"
		if c.denied {
			status = "error"
		}
		s.tool(c, status)
		return true
	}
	return false
}

// settle ends the turn if it can end, and reports whether it did. The answer comes before the last
// events, or behind them.
func (s *fakeSession) settle(how string, last bool) bool {
	if s.post == nil || !s.begun {
		return false
	}
	for s.callEnds() {
	}
	if len(s.calls) > 0 && !s.aborted && how != "broken" {
		return false
	}
	if s.aborted {
		s.f.say("session.error", `{"sessionID":%q,"error":{"name":"MessageAbortedError","data":{"message":"aborted"}}}`, s.id)
		s.f.say("session.idle", `{"sessionID":%q}`, s.id)
	}
	for _, c := range s.calls {
		if !c.answered {
			s.f.left = append(s.f.left, leftAsk{s.id, c.ask, c.question})
		}
		s.tool(c, "error")
	}
	if one := s.f.Prompt(s.post.token); one != nil {
		one.Said = true
	}
	more := ""
	switch {
	case s.aborted:
		more = `,"error":{"name":"MessageAbortedError","data":{"message":"aborted"}}`
	case how == "error", how == "broken":
		more = `,"error":{"name":"APIError","data":{"message":"why"}}`
	case how != "":
		more = fmt.Sprintf(`,"finish":%q`, how)
	}
	info := s.last(2, more)
	answer := fmt.Sprintf(`{"info":%s,"parts":[]}`, info)
	if last {
		s.post.answer <- answer
	}
	s.f.say("message.updated", `{"info":%s}`, info)
	s.f.say("session.status", `{"sessionID":%q,"status":{"type":"idle"}}`, s.id)
	s.f.say("session.idle", `{"sessionID":%q}`, s.id)
	if !last {
		s.post.answer <- answer
	}
	s.drop()
	return true
}

// finish brings everything to its end that needs nobody else, and reports whether nothing is left.
func (g *game) finish() bool {
	idle := true
	for _, s := range g.open() {
		s.settle("stop", false)
		s.begin()
		s.settle("stop", true)
		idle = idle && s.post == nil
	}
	return idle
}

// open returns the sessions that are open, in their order.
func (g *game) open() []*fakeSession {
	var all []*fakeSession
	for _, p := range g.Sessions {
		if s := g.sessions[string(p.ID)]; p.Open && s != nil && s.f != nil && !s.f.ended {
			s.session = p
			all = append(all, s)
		}
	}
	return all
}

// event is an event of a session.
func (g *game) event(name string, weight int, do func(rng *rand.Rand, s *fakeSession)) bridgetest.PlayEvent {
	return bridgetest.PlayEvent{Name: name, Weight: weight, Do: func(rng *rand.Rand) {
		g.Mu.Lock()
		var s *fakeSession
		if all := g.open(); len(all) > 0 {
			s = all[rng.IntN(len(all))]
			do(rng, s)
		}
		g.Mu.Unlock()
		if s != nil && g.Waits(rng) {
			g.Barrier(func(text string) {
				s.f.say("session.status", `{"sessionID":%q,"status":{"type":"retry","attempt":0,"message":%q}}`, s.id, text)
			}, func() bool { return s.f.ended || !s.session.Open || s.session.Closing })
		}
	}}
}

func (g *game) prompt(rng *rand.Rand, s *bridgetest.PlaySession) {
	one := g.SendPrompt(s, "")
	if g.Waits(rng) {
		g.Expect("opencode is given "+one.Token, func() bool { return one.Given || one.Answered || g.Open(s)[0] != one })
	}
}

// opened notes which process has a session.
func (g *game) opened(s *bridgetest.PlaySession) {
	for _, f := range g.all {
		if one := g.sessions[string(s.ID)]; one != nil && !f.ended {
			one.f = f
		}
	}
}

func (g *game) events() []bridgetest.PlayEvent {
	request := func(method string, params map[string]any, s *bridgetest.PlaySession) {
		params["sessionId"] = s.ID
		g.Request(method, params, nil)
	}
	pick := func(rng *rand.Rand, list ...string) string { return list[rng.IntN(len(list))] }
	return append(g.ClientEvents(g.prompt),
		g.Client("mode", 2, func(rng *rand.Rand, s *bridgetest.PlaySession) {
			request("session/set_mode", map[string]any{"modeId": pick(rng, "build", "plan")}, s)
		}),
		g.Client("model", 2, func(rng *rand.Rand, s *bridgetest.PlaySession) {
			request("session/set_config_option", map[string]any{"configId": configModel, "value": pick(rng, "p/one", "p/two")}, s)
		}),
		g.Client("mode and delete", 1, func(_ *rand.Rand, s *bridgetest.PlaySession) {
			request("session/set_mode", map[string]any{"modeId": "plan"}, s)
			g.EndSession("session/delete", s)
		}),
		g.Client("fork", 1, func(_ *rand.Rand, s *bridgetest.PlaySession) { g.OpenSession("session/fork", s) }),
		g.Client("cancel and settle", 1, func(_ *rand.Rand, s *bridgetest.PlaySession) {
			g.Cancel(s)
			g.Mu.Lock()
			if one := g.sessions[string(s.ID)]; one != nil {
				one.settle("stop", true)
			}
			g.Mu.Unlock()
			g.SendPrompt(s, "")
		}),

		g.event("begin", 14, func(_ *rand.Rand, s *fakeSession) { s.begin() }),
		g.event("say", 8, func(_ *rand.Rand, s *fakeSession) { s.says() }),
		g.event("another message", 2, func(_ *rand.Rand, s *fakeSession) {
			if s.begun && len(s.calls) == 0 {
				s.f.say("message.updated", `{"info":%s}`, s.last(1, ""))
				s.messageBegins()
			}
		}),
		g.event("call", 16, func(rng *rand.Rand, s *fakeSession) { s.call(rng.IntN(3) > 0, rng.IntN(4) == 0) }),
		g.event("call ends", 4, func(_ *rand.Rand, s *fakeSession) { s.callEnds() }),
		g.event("settle", 14, func(rng *rand.Rand, s *fakeSession) {
			s.settle(pick(rng, "stop", "stop", "length", "error"), rng.IntN(2) == 0)
		}),
		g.event("break", 2, func(rng *rand.Rand, s *fakeSession) { s.settle("broken", rng.IntN(2) == 0) }),
		g.event("refuse", 1, func(_ *rand.Rand, s *fakeSession) {
			if s.post != nil && !s.begun {
				g.Prompt(s.post.token).Refused = true
				s.f.say("session.error", `{"sessionID":%q,"error":{"name":"UnknownError","data":{"message":"why"}}}`, s.id)
				s.begin()
				s.settle("error", true)
			}
		}),
		g.event("unknown", 1, func(_ *rand.Rand, s *fakeSession) { s.f.say("of.tomorrow", `{"sessionID":7}`) }),
		g.event("crash", 1, func(_ *rand.Rand, s *fakeSession) {
			g.Lose()
			s.f.puppet.Exit(1)
		}),
	)
}

func randomStage(t *testing.T) *bridgetest.Stage {
	t.Helper()
	pause := abortPause
	t.Cleanup(func() { abortPause = pause })
	abortPause = 20 * time.Millisecond
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	w := bridgetest.With(t, New(), adapters.Program{Path: exe})
	return w.Stage(func(p *bridgetest.Play, seed uint64) bridgetest.Game {
		g := &game{Play: p, rng: rand.New(rand.NewPCG(seed, 5)), sessions: map[string]*fakeSession{}}
		return bridgetest.Game{Events: g.events(), Show: g.show, Opened: g.opened, Finish: g.finish}
	})
}

// Whatever a client and OpenCode do, in whatever order: every prompt is answered once, when its turn is
// over and not before; who cancels a turn ends no other; no question and no call is open behind its
// turn; nothing is left of a connection that is closed. A sequence that fails is played again by
// go test ./adapters/opencode -run TestRandom -play.from=N -play.count=1.
func TestRandom(t *testing.T) { randomStage(t).Play(t, 40) }

// Sequences that failed.
func TestRandom_ThatFailed(t *testing.T) {
	stage := randomStage(t)
	for _, tt := range []struct {
		name   string
		events []string
	}{
		{"a turn fails while it asks", []string{"prompt", "begin", "call", "call", "break", "prompt"}},
		{"a turn is cancelled as it begins to ask", []string{"prompt", "begin", "call", "cancel", "prompt"}},
		{"a session is opened while it is deleted", []string{"prompt", "begin", "settle", "delete and load", "new", "prompt", "begin", "settle", "delete and load"}},
	} {
		t.Run(tt.name, func(t *testing.T) { stage.PlayAgain(t, 0, 16, tt.events...) })
	}
}
