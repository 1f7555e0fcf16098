package lasting

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
)

// A client writes at random about two sessions, whose nodes come and go, while connections break at any place. Each request
// is answered once; what a session says comes once, in order, and before the answer to its prompt; prompts run once at most,
// in the order in which they were written; a cancel ends nothing that was written behind it; what was set last counts.
func TestConn_RandomSessions(t *testing.T) {
	seeds := 60
	if testing.Short() {
		seeds = 15
	}
	for seed := range seeds {
		for version := 1; version <= 2; version++ {
			t.Run(fmt.Sprintf("version %d, %d", version, seed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := &world{t: t, two: version == 2, rnd: rand.New(rand.NewPCG(uint64(seed), 2)), breaks: 8, sessions: map[string]*far{"a": {}, "b": {}}}
					w.client()
				})
			})
		}
	}
}

// world is a hub, of which all is known.
type world struct {
	t        *testing.T
	two      bool       // it speaks version 2 of the protocol
	mu       sync.Mutex // guards all that follows
	rnd      *rand.Rand
	breaks   int // connections that break
	calm     bool
	sessions map[string]*far
}

// far is a session at its node.
type far struct {
	away    bool
	back    time.Time
	log     []entry
	chunks  int
	queue   []*turnOf // the first runs when it has begun
	ended   map[string]string
	mode    string
	at      *wire // where its events go
	shown   int   // events of the log that went there
	answers []acp.Message
	newest  int // prompt that has begun
}

// entry is an event of a log: its number is its place.
type entry struct{ method, params string }

type turnOf struct {
	name      string
	n         int
	id        acp.ID
	from      *wire
	begun     bool
	cancelled bool
}

func (w *world) chance(percent int) bool { return w.rnd.IntN(100) < percent }

// dial opens a connection that breaks after some messages.
func (w *world) dial(context.Context) (acp.Conn, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.leaves()
	wire, left := newWire(), 1<<30
	if w.breaks > 0 && !w.calm {
		w.breaks--
		left = 2 + w.rnd.IntN(25)
	}
	go w.serve(wire, left)
	return wire, nil
}

// serve is the hub's side of a connection.
func (w *world) serve(at *wire, left int) {
	for {
		w.mu.Lock()
		tick := time.Duration(10+w.rnd.IntN(700)) * time.Millisecond
		w.mu.Unlock()
		var out []acp.Message
		select {
		case m := <-at.toGateway:
			w.mu.Lock()
			left--
			lost := left <= 0 && w.chance(50)
			if !lost {
				out = w.take(at, m)
			}
			w.mu.Unlock()
		case <-time.After(tick):
			w.mu.Lock()
			out = w.goOn(at)
			w.mu.Unlock()
		case <-at.closing:
			return
		}
		if left <= 0 {
			w.mu.Lock()
			readFirst, keeps := w.chance(50), w.rnd.IntN(len(out)+1)
			w.mu.Unlock()
			w.say(at, out[:keeps])
			if readFirst {
				at.breakRead()
			} else {
				at.breakWrite()
				time.Sleep(50 * time.Millisecond)
				at.breakRead()
			}
			<-at.closing
			return
		}
		w.say(at, out)
	}
}

func (w *world) say(at *wire, out []acp.Message) {
	for _, m := range out {
		select {
		case at.toClient <- m:
		case <-at.closing:
			return
		}
	}
}

// leaves is the end of a connection: what waits for a turn goes with it, or none of that.
func (w *world) leaves() {
	for _, s := range w.sessions {
		s.at, s.answers = nil, nil
		if w.chance(50) {
			s.queue = slices.DeleteFunc(s.queue, func(p *turnOf) bool { return !p.begun })
		}
	}
}

// goOn has a moment pass in the sessions.
func (w *world) goOn(at *wire) (out []acp.Message) {
	for _, id := range []string{"a", "b"} {
		s := w.sessions[id]
		switch {
		case s.away && (w.calm || time.Now().After(s.back)):
			s.away = false
		case !s.away && !w.calm && w.chance(3):
			s.away, s.back = true, time.Now().Add(time.Duration(w.rnd.IntN(12))*time.Second)
			if w.chance(10) {
				s.back = s.back.Add(time.Minute)
			}
		}
		if len(s.queue) > 0 {
			p := s.queue[0]
			switch {
			case !p.begun:
				w.begins(s, p, at)
			case p.cancelled, w.chance(30):
				w.ends(id, s, p, at)
			default:
				s.chunks++
				s.log = append(s.log, entry{acp.MethodSessionUpdate, fmt.Sprintf(`"update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"%d"}}`, s.chunks)})
			}
		}
		out = append(out, w.told(id, at)...)
	}
	return out
}

func (w *world) begins(s *far, p *turnOf, at *wire) {
	if p.n <= s.newest {
		w.t.Errorf("prompt %d begins behind %d", p.n, s.newest)
	}
	s.newest, p.begun = p.n, true
	s.log = append(s.log, entry{acp.MethodSessionPrompt, fmt.Sprintf(`"_meta":{"sandboxagent.dev":{"promptId":%q}}`, p.name)})
	if w.two && p.from == at && s.at == at {
		s.answers = append(s.answers, acp.NewResult(p.id, fmt.Appendf(nil, `{"messageId":"sa.%d"}`, len(s.log))))
	}
}

func (w *world) ends(id string, s *far, p *turnOf, at *wire) {
	reason := "end_turn"
	if p.cancelled {
		reason = "cancelled"
	}
	if s.ended == nil {
		s.ended = map[string]string{}
	}
	result := fmt.Sprintf(`{"stopReason":%q,"n":%d,"chunks":%d}`, reason, p.n, s.chunks)
	s.ended[p.name] = result
	s.queue = s.queue[1:]
	s.log = append(s.log, entry{methodTurnEnded, fmt.Sprintf(`"promptId":%q,"result":%s`, p.name, result)})
	if !w.two && p.from == at && s.at == at {
		s.answers = append(s.answers, acp.NewResult(p.id, []byte(result)))
	}
}

// told returns what a connection is told of a session now.
func (w *world) told(id string, at *wire) (out []acp.Message) {
	s := w.sessions[id]
	if s.at != at || s.away {
		return nil
	}
	for ; s.shown < len(s.log); s.shown++ {
		e := s.log[s.shown]
		if w.two && e.method != acp.MethodSessionUpdate {
			out = append(out, s.state(id, e.method == acp.MethodSessionPrompt, s.shown+1))
		}
		if e.method != acp.MethodSessionPrompt {
			out = append(out, shown(id, e, s.shown+1))
		}
	}
	out = append(out, s.answers...)
	s.answers = nil
	return out
}

// state is what tells the client of version 2 whether a turn goes on.
func (s *far) state(id string, on bool, seq int) acp.Message {
	state := map[bool]string{true: "running", false: "idle"}[on]
	return shown(id, entry{acp.MethodSessionUpdate, fmt.Sprintf(`"update":{"sessionUpdate":"state_update","state":%q}`, state)}, seq)
}

func shown(id string, e entry, seq int) acp.Message {
	return acp.MustParse(fmt.Appendf(nil, `{"jsonrpc":"2.0","method":%q,"params":{"sessionId":%q,%s,"_meta":{"sandboxagent.dev":{"seq":%d}}}}`, e.method, id, e.params, seq))
}

// take handles a message of the client, and returns what is said for it.
func (w *world) take(at *wire, m acp.Message) []acp.Message {
	id := m.Session()
	s := w.sessions[id]
	result := func(format string, args ...any) []acp.Message {
		return []acp.Message{acp.NewResult(m.ID(), fmt.Appendf(nil, format, args...))}
	}
	switch {
	case m.Method() == acp.MethodInitialize:
		return result(`{"protocolVersion":%d}`, map[bool]int{false: 1, true: 2}[w.two])
	case s == nil:
		return result(`{}`)
	case s.away && m.IsRequest():
		return []acp.Message{acp.NewError(m.ID(), acp.Errorf(acp.CodeInternal, "away").WithData(problem.New(problem.NodeOffline, "away")))}
	case s.away:
		return nil
	}
	switch m.Method() {
	case acp.MethodSessionLoad, acp.MethodSessionResume:
		after, given := uintOf(m.Meta(), "after")
		if _, replays := rawjson.Member(m.Params(), "replayFrom"); !given && m.Method() == acp.MethodSessionResume && !replays {
			after = uint64(len(s.log))
		}
		s.at, s.shown = at, int(after)
		out := w.told(id, at)
		if w.two {
			out = append(out, s.state(id, len(s.queue) > 0 && s.queue[0].begun, len(s.log)))
		}
		return append(out, result(`{"_meta":{"sandboxagent.dev":{"seq":%d}}}`, len(s.log))...)
	case methodPending:
		return result(`{"pending":[]}`)
	case "_sandboxagent/session/get":
		state := "idle"
		if len(s.queue) > 0 {
			state = "running"
		}
		return result(`{"state":%q}`, state)
	case "_sandboxagent/session/events":
		return []acp.Message{acp.NewResult(m.ID(), s.page(m.Params()))}
	case acp.MethodSessionSetMode:
		s.mode = rawjson.MemberString(m.Params(), "modeId")
		return result(`{}`)
	case acp.MethodSessionCancel:
		for _, p := range s.queue {
			p.cancelled = true
		}
		return nil
	}
	name := rawjson.MemberString(m.Meta(), acp.MetaKey, "promptId")
	if s.at != at {
		s.at, s.shown = at, len(s.log)
	}
	if was, did := s.ended[name]; did {
		if w.two {
			was = `{"messageId":"sa.1"}`
		}
		return result("%s", was)
	}
	if i := slices.IndexFunc(s.queue, func(p *turnOf) bool { return p.name == name }); i >= 0 {
		s.queue[i].id, s.queue[i].from = m.ID(), at
		if w.two && s.queue[i].begun {
			return result(`{"messageId":"sa.1"}`)
		}
		return nil
	}
	raw, _ := rawjson.Member(m.Params(), "n")
	n, _ := strconv.Atoi(string(raw))
	s.queue = append(s.queue, &turnOf{name: name, n: n, id: m.ID(), from: at})
	return nil
}

// page returns some events of a log.
func (s *far) page(params []byte) []byte {
	raw, _ := rawjson.Member(params, "after")
	after, _ := strconv.Atoi(string(raw))
	list := []byte(`{"events":[`)
	for i := after; i < min(after+3, len(s.log)); i++ {
		if i > after {
			list = append(list, ',')
		}
		list = fmt.Appendf(list, `{"seq":%d,"message":{"method":%q,"params":{%s}}}`, i+1, s.log[i].method, s.log[i].params)
	}
	return fmt.Appendf(list, `],"hasMore":%v}`, after+3 < len(s.log))
}

// seen is what the client knows of a session.
type seen struct {
	gone       bool // and is to be opened
	opens      bool // which was asked
	opening    acp.ID
	chunks     int // newest that came
	cancel     int // what was written before the newest cancel
	mode, done string
	works      bool // in version 2
	loads      int  // and losses
}

// client writes and reads, and looks at what comes.
func (w *world) client() {
	var mu sync.Mutex // guards what follows
	known := map[string]*seen{"a": {gone: true}, "b": {gone: true}}
	asked, answered := map[acp.ID]string{}, map[acp.ID]int{}
	ends := map[acp.ID]int{} // of turns, in version 2
	modes := map[acp.ID]string{}
	c := New(Options{GiveUp: time.Hour, Gone: func(session string, _ *acp.Error) {
		mu.Lock()
		defer mu.Unlock()
		known[session].gone = true
		known[session].loads++
	}, Dial: w.dial})
	first := hello
	if w.two {
		first = acp.NewRequest(hello.ID(), acp.MethodInitialize, []byte(`{"protocolVersion":2,"info":{},"capabilities":{"_meta":{"sandboxagent.dev":{"turns":true}}}}`))
	}
	write(w.t, c, first)
	if m, err := c.Read(w.t.Context()); err != nil || m.Err() != nil {
		w.t.Fatalf("%s, %v", m.Frame(), err)
	}
	var reader sync.WaitGroup
	reader.Go(func() {
		for {
			m, err := c.Read(context.Background())
			if err != nil {
				return
			}
			mu.Lock()
			if w.two && m.Method() == methodTurnEnded {
				ends[acp.ID(rawjson.MemberString(m.Params(), "promptId"))]++
			}
			if _, begun := rawjson.Member(m.Result(), "messageId"); begun {
				ends[m.ID()] += 0
			}
			w.check(known, &m, asked, answered, modes)
			mu.Unlock()
		}
	})
	for i := 2; i < 60; i++ {
		w.mu.Lock()
		id, what, own := []string{"a", "b"}[w.rnd.IntN(2)], w.rnd.IntN(10), w.chance(50)
		pause := time.Duration(w.rnd.IntN(3)*w.rnd.IntN(1500)) * time.Millisecond
		w.mu.Unlock()
		mu.Lock()
		s, n := known[id], acp.IntID(int64(i))
		var m acp.Message
		switch {
		case s.opens:
			m = acp.NewRequest(n, acp.MethodSessionList, []byte(`{}`))
		case s.gone:
			s.opens, s.opening, s.chunks, s.loads = true, n, 0, s.loads+1
			m = acp.NewRequest(n, acp.MethodSessionLoad, fmt.Appendf(nil, `{"sessionId":%q,"cwd":"/","mcpServers":[]}`, id))
			if w.two {
				m = acp.NewRequest(n, acp.MethodSessionResume, fmt.Appendf(nil, `{"sessionId":%q,"cwd":"/","mcpServers":[],"replayFrom":{"type":"start"}}`, id))
			}
		case what < 5:
			m = acp.NewRequest(n, acp.MethodSessionPrompt, fmt.Appendf(nil, `{"sessionId":%q,"prompt":[],"n":%d,"_meta":{"sandboxagent.dev":{"promptId":"%d"}}}`, id, i, i))
		case what < 7:
			m = acp.NewNotification(acp.MethodSessionCancel, fmt.Appendf(nil, `{"sessionId":%q}`, id))
			s.cancel = i
		case what < 9:
			m = acp.NewRequest(n, acp.MethodSessionSetMode, fmt.Appendf(nil, `{"sessionId":%q,"modeId":"%d"}`, id, i))
			s.mode, modes[n] = fmt.Sprint(i), id
		default:
			m = acp.NewRequest(n, acp.MethodSessionList, []byte(`{}`))
		}
		if m.IsRequest() {
			asked[n] = id
		}
		mu.Unlock()
		if own {
			writeItself(w.t, c, m)
		} else {
			write(w.t, c, m)
		}
		time.Sleep(pause)
	}
	w.mu.Lock()
	w.calm = true
	w.mu.Unlock()
	time.Sleep(time.Hour)
	_ = c.Close()
	reader.Wait()
	for id := range asked {
		if answered[id] != 1 {
			w.t.Errorf("request %s was answered %d times", id, answered[id])
		}
	}
	for id, n := range ends {
		if n < 1 || n > known[asked[id]].loads { // each load tells it again, and so does the loss of the session
			w.t.Errorf("the end of turn %s was told %d times", id, n)
		}
	}
	for id, s := range known {
		if s.works {
			w.t.Errorf("session %s still works", id)
		}
		if at := w.sessions[id]; s.mode != "" && s.done == s.mode && at.mode != s.mode {
			w.t.Errorf("session %s has mode %s, and %s was set last", id, at.mode, s.mode)
		}
	}
}

// check looks at what the client is given. What it knows is locked.
func (w *world) check(known map[string]*seen, m *acp.Message, asked map[acp.ID]string, answered map[acp.ID]int, modes map[acp.ID]string) {
	if string(m.UpdateKind()) == "state_update" {
		known[m.Session()].works = rawjson.MemberString(m.Update(), "state") != "idle"
		return
	}
	if m.Method() == acp.MethodSessionUpdate {
		s := known[m.Session()]
		n, _ := strconv.Atoi(rawjson.MemberString(m.Update(), "content", "text"))
		if n != s.chunks+1 && (!s.gone || s.opens) {
			w.t.Errorf("session %s says %d behind %d", m.Session(), n, s.chunks)
		}
		s.chunks = n
	}
	if !m.IsResponse() {
		return
	}
	answered[m.ID()]++
	if s := known[asked[m.ID()]]; s.opens && s.opening == m.ID() {
		s.gone, s.opens = m.Err() != nil, false
	}
	id := modes[m.ID()]
	if id != "" && m.Err() == nil {
		known[id].done = string(m.ID())
	}
	reason := rawjson.MemberString(m.Result(), "stopReason")
	if reason == "" {
		return
	}
	n, _ := m.ID().Int()
	s := known[asked[m.ID()]]
	if reason == "cancelled" && s.cancel < int(n) {
		w.t.Errorf("prompt %d was cancelled, and the newest cancel is %d", n, s.cancel)
	}
	raw, whole := rawjson.Member(m.Result(), "chunks")
	if chunks, _ := strconv.Atoi(string(raw)); whole && chunks > s.chunks && !s.gone {
		w.t.Errorf("prompt %d was answered behind %d of %d", n, s.chunks, chunks)
	}
}
