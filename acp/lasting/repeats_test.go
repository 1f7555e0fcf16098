package lasting

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/ndjson"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
)

// What is sent again after a break is the same for all clients that connect again by themselves: this one and
// those of sdk-ts and sdk-py run one list, which says what its words mean.
func TestRepeats(t *testing.T) {
	var list struct {
		Cases []struct {
			Name  string
			Steps []string
		}
	}
	raw, err := os.ReadFile("testdata/repeats.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		t.Fatal(err)
	}
	for _, tt := range list.Cases {
		for version := 1; version <= 2; version++ {
			t.Run(fmt.Sprintf("%s/version %d", tt.Name, version), func(t *testing.T) {
				t.Parallel()
				g := newScripted(t, version)
				u := newUser(t, g)
				for _, step := range slices.Concat(tt.Steps, []string{"client list", "wire list"}) {
					who, what, _ := strings.Cut(step, " ")
					is := what
					switch who {
					case "client":
						u.does(what)
					case "told":
						name, _, _ := strings.Cut(what, " ")
						is = name + " " + next(u.told[name])
						u.waits--
					case "wire":
						is = next(g.frames)
					case "gateway":
						g.does(what)
					default:
						is = "unknown"
					}
					if is != what {
						t.Fatalf("%s: it is %s", step, is)
					}
				}
				if u.waits > 0 || len(g.frames) > 0 {
					t.Errorf("not told: %d, sent besides: %d", u.waits, len(g.frames))
				}
			})
		}
	}
}

// next waits for what must come.
func next(of <-chan string) string {
	select {
	case said := <-of:
		return said
	case <-time.After(30 * time.Second):
		return "nothing"
	}
}

// user has the connection.
type user struct {
	t     *testing.T
	c     *Conn
	waits int                    // prompts that it was not told of
	told  map[string]chan string // what became of each
}

func newUser(t *testing.T, g *scripted) *user {
	u := &user{t: t, told: map[string]chan string{}, c: New(Options{Dial: func(ctx context.Context) (acp.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", g.Addr().String())
		if err != nil {
			return nil, err
		}
		return ndjson.New(conn, conn, conn.Close, 0), nil
	}})}
	for _, name := range []string{"a", "b", "c"} {
		u.told[name] = make(chan string, 64) // that it was dropped may be told twice: by the answer, and as an event
	}
	u.asks("init", acp.MethodInitialize, `"protocolVersion":%d,"info":{},"capabilities":%[2]s,"clientCapabilities":%[2]s`, g.version, `{"_meta":{"sandboxagent.dev":{"turns":true}}}`)
	reads(t, u.c)
	u.asks("new", acp.MethodSessionNew, `"cwd":"/","mcpServers":[]`)
	reads(t, u.c)
	var hears sync.WaitGroup
	hears.Go(u.hears)
	t.Cleanup(func() {
		_ = u.c.Close()
		hears.Wait()
	})
	return u
}

func (u *user) asks(id, method, params string, args ...any) {
	writeItself(u.t, u.c, acp.NewRequest(acp.ID(strconv.Quote(id)), method, fmt.Appendf(nil, "{"+params+"}", args...)))
}

// does what a step says. A prompt has its name as its id.
func (u *user) does(what string) {
	switch verb, name, _ := strings.Cut(what, " "); verb {
	case "prompt":
		u.waits++
		u.asks(name, acp.MethodSessionPrompt, `"sessionId":"s","prompt":[{"type":"text","text":%q}],"_meta":{"sandboxagent.dev":{"promptId":%[1]q}}`, name)
	case "cancel":
		writeItself(u.t, u.c, acp.NewNotification(acp.MethodSessionCancel, []byte(`{"sessionId":"s"}`)))
	case "close", "delete", "list":
		u.asks(verb, "session/"+verb, `"sessionId":"s"`)
	default:
		u.t.Fatal("unknown: client " + what)
	}
}

// hears notes what the client is told of its prompts: in version 2 the answer says that a turn has begun.
func (u *user) hears() {
	for {
		m, err := u.c.Read(context.Background())
		if err != nil {
			return
		}
		name, _ := strconv.Unquote(string(m.ID()))
		says := m.Result()
		if m.Method() == methodTurnEnded {
			name, says = rawjson.MemberString(m.Params(), "promptId"), m.Params()
			if result, ok := rawjson.Member(says, "result"); ok {
				says = result
			}
		}
		failure, failed := rawjson.Member(says, "error")
		if e := m.Err(); e != nil {
			failure, failed = m.ErrorRaw(), true
		}
		_, begun := rawjson.Member(says, "messageId")
		told := rawjson.MemberString(says, "stopReason")
		switch code, _ := rawjson.Member(failure, "code"); {
		case u.told[name] == nil || begun:
			continue
		case string(code) == strconv.FormatInt(acp.CodeCancelled, 10):
			told = "cancelled"
		case failed && strings.Contains(rawjson.MemberString(failure, "message"), "interrupted"):
			told = "interrupted"
		case failed:
			told = "failed"
		}
		u.told[name] <- told
	}
}

// scripted is a gateway with one session, in which happens what a test says.
type scripted struct {
	net.Listener
	t       *testing.T
	version int
	frames  chan string   // what it was sent of the session, in order
	opens   chan struct{} // has one when a client wants a connection and does not get it yet
	looks   chan struct{} // and when it asks about its prompts and is not answered yet
	work    sync.WaitGroup

	mu      sync.Mutex
	conn    net.Conn // on which the client is attached to the session, nil for none
	waits   []func() // what is not answered yet
	away    bool     // clients get no connection
	holds   bool     // nor an answer about the session
	refuses string   // nor that, in the words of the step; "" for never
	gone    bool     // the session
	later   bool     // the node comes later: the next close is refused
	log     []event  // their numbers begin with 1
	runs    string   // whose turn, "" for none
	asked   object   // the requests that prompts came with on this connection, by the prompt's name
}

type object = map[string]any

// event is one of the session's, and how it is told.
type event struct {
	message object
	frames  []object
}

func newScripted(t *testing.T, version int) *scripted {
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &scripted{Listener: listener, t: t, version: version, frames: make(chan string, 64), opens: make(chan struct{}, 1), looks: make(chan struct{}, 1), asked: object{}}
	g.work.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			g.work.Go(func() {
				defer func() { _ = conn.Close() }()
				for lines := bufio.NewScanner(conn); lines.Scan(); {
					g.takes(conn, lines.Bytes())
				}
			})
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		g.work.Wait() // the client has ended its connections before
	})
	return g
}

func (g *scripted) takes(conn net.Conn, line []byte) {
	var m struct {
		ID     any
		Method string
		Params struct {
			Prompt []struct{ Text string }
			After  int
			Meta   map[string]struct{ After int } `json:"_meta"`
		}
	}
	if err := json.Unmarshal(line, &m); err != nil {
		g.t.Error(err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	answer := func(result object) { g.says(conn, object{"id": m.ID, "result": result}) }
	if g.gone && (m.Method == acp.MethodSessionResume || m.Method == acp.MethodSessionPrompt) {
		g.says(conn, object{"id": m.ID, "error": object{"code": -32002, "message": "it is gone"}})
		return
	}
	switch m.Method {
	case acp.MethodInitialize:
		g.when(!g.away, g.opens, func() { answer(object{"protocolVersion": g.version}) })
	case acp.MethodSessionNew:
		g.conn = conn
		answer(object{"sessionId": "s"})
	case acp.MethodSessionResume:
		g.conn = conn
		for i := m.Params.Meta[acp.MetaKey].After; i < len(g.log); i++ {
			g.shows(i, conn)
		}
		answer(object{})
	case "_sandboxagent/session/pending":
		answer(object{"pending": []any{}})
	case "_sandboxagent/session/get":
		g.look(conn, m.ID, func() {
			answer(object{"state": map[bool]string{true: "running", false: "idle"}[g.runs != ""]})
		})
	case "_sandboxagent/session/events":
		g.look(conn, m.ID, func() {
			events := []object{}
			for i := m.Params.After; i < len(g.log); i++ {
				events = append(events, object{"seq": i + 1, "message": g.log[i].message})
			}
			answer(object{"events": events})
		})
	case acp.MethodSessionPrompt:
		g.asked[m.Params.Prompt[0].Text] = m.ID
		g.frames <- "prompt " + m.Params.Prompt[0].Text
	default:
		g.frames <- strings.TrimPrefix(m.Method, "session/")
		if g.later && m.Method == acp.MethodSessionClose {
			g.later = false
			g.says(conn, object{"id": m.ID, "error": object{"code": acp.CodeInternal, "message": "it is away", "data": problem.New(problem.NodeOffline, "it is away")}})
			return
		}
		if m.Method == acp.MethodSessionClose || m.Method == acp.MethodSessionDelete {
			for name := range g.asked {
				g.drops(name)
			}
			if g.runs != "" {
				g.ends(g.runs, "cancelled")
			}
		}
		if m.ID != nil {
			answer(object{})
		}
	}
}

// look answers a question about the session, unless that is refused.
func (g *scripted) look(conn net.Conn, id any, answer func()) {
	failure := object{"code": acp.CodeInternal, "message": "it is refused"}
	switch g.refuses {
	case "":
		g.when(!g.holds, g.looks, answer)
		return
	case "refuses":
		failure["data"] = object{"type": problem.Prefix + string(problem.PermissionDenied)}
	case "refuses once":
		failure["data"] = object{"type": problem.Prefix + string(problem.Unavailable)}
		g.refuses = ""
	case "refuses bare once":
		g.refuses = ""
	}
	g.says(conn, object{"id": id, "error": failure})
}

// when answers now or later, of which it gives notice.
func (g *scripted) when(now bool, later chan<- struct{}, answer func()) {
	if now {
		answer()
		return
	}
	if g.waits = append(g.waits, answer); len(g.waits) == 1 {
		later <- struct{}{}
	}
}

func (g *scripted) says(conn net.Conn, m object) {
	m["jsonrpc"] = "2.0"
	line, err := json.Marshal(m)
	if err != nil {
		g.t.Error(err)
	}
	_, _ = conn.Write(append(line, '\n')) // it may have ended
}

// shows tells of event i.
func (g *scripted) shows(i int, conn net.Conn) {
	for _, frame := range g.log[i].frames {
		g.says(conn, frame)
	}
}

// does what a step says, until the client has seen it.
func (g *scripted) does(what string) {
	g.mu.Lock()
	seen := g.doesLocked(what, strings.Fields(what))
	g.mu.Unlock()
	if seen != nil {
		<-seen
	}
}

func (g *scripted) doesLocked(what string, words []string) (seen <-chan struct{}) {
	switch verb := words[0]; {
	case verb == "breaks":
		_ = g.conn.Close()
		g.away, g.holds, g.refuses, g.waits, g.asked, g.conn = true, false, "", nil, object{}, nil
		return g.opens
	case what == "is back", what == "is back before its node":
		g.away, g.later = false, what != "is back"
		g.answers()
	case what == "is back and holds":
		g.away, g.holds = false, true
		g.answers()
		return g.looks
	case what == "is back and refuses", what == "is back and refuses once", what == "is back and refuses bare once":
		g.away, g.refuses = false, strings.TrimPrefix(what, "is back and ")
		g.answers()
	case verb == "answers":
		g.holds = false
		g.answers()
	case verb == "restarts":
		g.runs = ""
	case verb == "loses":
		g.gone = true
	case verb == "begins":
		g.begins(words[1])
	case verb == "ends":
		g.ends(words[1], words[2])
	case verb == "drops":
		g.drops(words[1])
	default:
		g.t.Fatal("unknown: gateway " + what)
	}
	return nil
}

func (g *scripted) answers() {
	for _, answer := range g.waits {
		answer()
	}
	g.waits = nil
}

// happens adds an event, which is told in frames. A prompt that came on this connection has its answer besides, or in
// their place.
func (g *scripted) happens(name string, message object, answer object, besides bool, updates ...object) {
	seq := object{acp.MetaKey: object{"seq": len(g.log) + 1, "promptId": name}}
	params := message["params"].(object)
	params["sessionId"], params["promptId"], params["_meta"] = "s", name, seq
	e := event{message: message}
	if message["method"] == methodTurnEnded {
		e.frames = append(e.frames, message)
	}
	for _, u := range updates {
		e.frames = append(e.frames, object{"method": acp.MethodSessionUpdate, "params": object{"sessionId": "s", "update": u, "_meta": seq}})
	}
	g.log = append(g.log, e)
	if g.conn == nil {
		return
	}
	id, own := g.asked[name]
	if !own || besides {
		g.shows(len(g.log)-1, g.conn)
	}
	if own && answer != nil {
		delete(g.asked, name)
		answer["id"] = id
		g.says(g.conn, answer)
	}
}

func (g *scripted) begins(name string) {
	g.runs = name
	message := object{"method": acp.MethodSessionPrompt, "params": object{}}
	if g.version == 1 {
		g.happens(name, message, nil, false, object{"sessionUpdate": "user_message_chunk", "content": object{"type": "text", "text": name}, "_meta": object{acp.MetaKey: object{"prompt": true}}})
		return
	}
	id := fmt.Sprintf("sa.%d", len(g.log)+1)
	g.happens(name, message, object{"result": object{"messageId": id}}, true, object{"sessionUpdate": "user_message", "messageId": id, "content": []any{}}, object{"sessionUpdate": "state_update", "state": "running"})
}

func (g *scripted) ends(name, why string) {
	g.runs = ""
	result := object{"stopReason": why}
	message := object{"method": methodTurnEnded, "params": object{"result": result}}
	if g.version == 1 {
		g.happens(name, message, object{"result": result}, false)
		return
	}
	g.happens(name, message, nil, true, object{"sessionUpdate": "state_update", "state": "idle", "stopReason": why})
}

// drops ends a prompt that has not begun.
func (g *scripted) drops(name string) {
	answer := object{"result": object{"stopReason": "cancelled", "_meta": object{acp.MetaKey: object{"began": false}}}}
	if g.version == 2 {
		answer = object{"error": object{"code": acp.CodeCancelled, "message": "it was cancelled before it began"}}
	}
	params := object{"began": false}
	maps.Copy(params, answer)
	g.happens(name, object{"method": methodTurnEnded, "params": params}, answer, false)
}
