package lasting

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/internal/agentcache"
)

// A client writes at random about sessions, whose nodes come and go, while connections break at any place. Each request
// is answered once; what a session says comes once, in order, and before the answer to its prompt, and once more where that is
// asked for; prompts run once at most, in the order in which they were written, and none is answered as one that ran and did not; a cancel ends nothing that was written behind it;
// what was set last counts; what an agent asks is shown once, and the answer to it arrives.
func TestConn_RandomSessions(t *testing.T) {
	seeds, kinds := 40, usual
	if agentcache.IsLong() {
		seeds, kinds = 400, every
	}
	for seed := range agentcache.Sequences(seeds) {
		for version := 1; version <= 2; version++ {
			t.Run(fmt.Sprintf("version %d, %d", version, seed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := &world{t: t, two: version == 2, gateway: seed%3 == 0, rnd: rand.New(rand.NewPCG(uint64(seed), 2)), breaks: 8, sessions: map[string]*far{}, ran: map[int]int{}}
					for _, id := range []string{"a", "b"} {
						w.sessions[id] = &far{open: map[int]*askOf{}}
					}
					p := &person{
						w: w, kinds: kinds, known: map[string]*seen{"a": {}, "b": {}}, asked: map[acp.ID]acp.Message{}, answered: map[acp.ID]int{}, ran: map[acp.ID]bool{},
						ends: map[acp.ID]int{}, asks: map[acp.ID]*question{}, shown: map[string]int{},
					}
					p.run()
				})
			})
		}
	}
}

// What a client may do: what is usual, and in the long tier leave and open again, too.
const (
	usual = 10
	every = 14
)

// person is a client that looks at what comes.
type person struct {
	w     *world
	c     *Conn
	kinds int // of what it does
	trace []string

	mu       sync.Mutex // guards what follows
	known    map[string]*seen
	asked    map[acp.ID]acp.Message // what was written
	answered map[acp.ID]int
	ran      map[acp.ID]bool // prompts that were answered so
	ends     map[acp.ID]int  // of turns, in version 2
	asks     map[acp.ID]*question
	shown    map[string]int // questions
}

// seen is what the client knows of a session.
type seen struct {
	state      int
	by         acp.ID // the request that changes it
	replays    int    // that may begin: another request may have asked for one before the session was gone
	had        int    // chunks before the newest
	chunks     int    // newest that came
	cancel     int    // what was written before the newest cancel
	mode, done string
	prompts    int  // without an answer
	works      bool // in version 2
	loads      int  // and losses
}

const (
	away    = iota // it is to be opened
	opening        // which was asked
	here
	reopening // what it has is asked for once more
	leaving
)

// question is a request of an agent.
type question struct {
	session string
	seq     uint64
	over    bool // it was answered, or taken back
}

func (p *person) run() {
	w := p.w
	p.c = New(Options{GiveUp: time.Hour, Gone: p.gone, Dial: w.dial})
	first := hello
	if w.two {
		first = acp.NewRequest(hello.ID(), acp.MethodInitialize, []byte(`{"protocolVersion":2,"info":{},"capabilities":{"_meta":{"sandboxagent.dev":{"turns":true}}}}`))
	}
	write(w.t, p.c, first)
	if m, err := p.c.Read(w.t.Context()); err != nil || m.Err() != nil {
		w.t.Fatalf("%s, %v", m.Frame(), err)
	}
	var reader sync.WaitGroup
	reader.Go(func() {
		for {
			m, err := p.c.Read(context.Background())
			if err != nil {
				return
			}
			p.mu.Lock()
			p.trace = append(p.trace, "< "+string(m.Frame()))
			p.check(&m)
			p.mu.Unlock()
		}
	})
	for i := 2; i < 80; i++ {
		w.mu.Lock()
		p.mu.Lock()
		m := p.next(i)
		p.trace = append(p.trace, "> "+string(m.Frame()))
		p.mu.Unlock()
		pause, own := time.Duration(w.rnd.IntN(3)*w.rnd.IntN(1500))*time.Millisecond, w.chance(50)
		w.mu.Unlock()
		if own {
			writeItself(w.t, p.c, m)
		} else {
			write(w.t, p.c, m)
		}
		time.Sleep(pause)
	}
	w.mu.Lock()
	w.calm = true
	w.mu.Unlock()
	for range 360 {
		time.Sleep(10 * time.Second)
		p.mu.Lock()
		m, ok := p.reply()
		p.mu.Unlock()
		if ok {
			write(w.t, p.c, m)
		}
	}
	_ = p.c.Close()
	reader.Wait()
	p.last()
	if w.t.Failed() {
		w.t.Log(strings.Join(p.trace, "\n"))
	}
}

// gone is told that a session cannot be attached to again.
func (p *person) gone(session string, _ *acp.Error, _ bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.trace = append(p.trace, "GONE "+session)
	if s := p.known[session]; s != nil {
		s.state = away
		s.loads++
	}
}

// next returns what is written as message i.
func (p *person) next(i int) acp.Message {
	w, ids := p.w, slices.Sorted(maps.Keys(p.known))
	id, what, n := ids[w.rnd.IntN(len(ids))], w.rnd.IntN(p.kinds), acp.IntID(int64(i))
	s := p.known[id]
	request := func(method, params string, args ...any) acp.Message {
		p.asked[n] = acp.NewRequest(n, method, fmt.Appendf(nil, params, args...))
		return p.asked[n]
	}
	about := func(method string) acp.Message { return request(method, `{"sessionId":%q}`, id) }
	load := func(state int) acp.Message {
		s.state, s.by, s.replays, s.had, s.loads = state, n, s.replays+1, s.chunks, s.loads+1
		if w.two {
			return request(acp.MethodSessionResume, `{"sessionId":%q,"cwd":"/","mcpServers":[],"replayFrom":{"type":"start"}}`, id)
		}
		return request(acp.MethodSessionLoad, `{"sessionId":%q,"cwd":"/","mcpServers":[]}`, id)
	}
	leave := func(method string) acp.Message {
		s.state, s.by, s.cancel = leaving, n, i
		return about(method)
	}
	switch {
	case s.state == away:
		s.chunks = 0
		return load(opening)
	case s.state != here:
	case what < 5:
		s.prompts++
		return request(acp.MethodSessionPrompt, `{"sessionId":%q,"prompt":[],"n":%d,"_meta":{"sandboxagent.dev":{"promptId":"%d"}}}`, id, i, i)
	case what < 7:
		s.cancel = i
		return acp.NewNotification(acp.MethodSessionCancel, fmt.Appendf(nil, `{"sessionId":%q}`, id))
	case what < 9:
		s.mode = fmt.Sprint(i)
		return request(acp.MethodSessionSetMode, `{"sessionId":%q,"modeId":"%d"}`, id, i)
	case what == 9:
		if m, ok := p.reply(); ok {
			return m
		}
	case what == 10:
		return load(reopening)
	case what == 11 && s.prompts == 0 && !s.works && !p.awaitsEnd(id):
		return leave("_sandboxagent/session/detach")
	case what == 12 && len(ids) < 4:
		return about(acp.MethodSessionFork)
	case what == 13 && len(id) > 1:
		return leave(acp.MethodSessionDelete)
	case what == 13:
		return leave(acp.MethodSessionClose)
	}
	return request(acp.MethodSessionList, `{}`)
}

// awaitsEnd reports whether the end of a turn in a session is yet to be told.
func (p *person) awaitsEnd(session string) bool {
	for id, n := range p.ends {
		if asked := p.asked[id]; n == 0 && asked.Session() == session {
			return true
		}
	}
	return false
}

// reply answers a question.
func (p *person) reply() (acp.Message, bool) {
	for _, id := range slices.Sorted(maps.Keys(p.asks)) {
		if q := p.asks[id]; !q.over {
			q.over = true
			return acp.NewResult(id, fmt.Appendf(nil, `{"to":"%s%d"}`, q.session, q.seq)), true
		}
	}
	return acp.Message{}, false
}

// check looks at what the client is given.
func (p *person) check(m *acp.Message) {
	switch {
	case m.IsResponse():
		p.response(m)
	case m.IsRequest():
		seq, _ := uintOf(m.Meta(), "seq")
		q := &question{session: m.Session(), seq: seq}
		key := fmt.Sprint(q.session, seq)
		if p.shown[key]++; p.known[q.session] == nil || p.shown[key] > p.known[q.session].loads {
			p.w.t.Errorf("question %s is shown %d times", key, p.shown[key])
		}
		if was := p.asks[m.ID()]; was != nil && !was.over {
			p.w.t.Errorf("question %s has the number of another one", key)
		}
		p.asks[m.ID()] = q
	case m.Method() == acp.MethodCancelRequest:
		raw, _ := rawjson.Member(m.Params(), "requestId")
		if q := p.asks[acp.ID(raw)]; q == nil {
			p.w.t.Errorf("%s takes back what was not asked", m.Frame())
		} else {
			q.over = true
		}
	case m.Method() == methodTurnEnded:
		name := acp.ID(rawjson.MemberString(m.Params(), "promptId"))
		if asked := p.asked[name]; p.w.two && asked.Session() == m.Session() { // else it is of the session that this one is a fork of
			p.ends[name]++
		}
	case p.known[m.Session()] == nil: // it was deleted
	case string(m.UpdateKind()) == "state_update":
		p.known[m.Session()].works = rawjson.MemberString(m.Update(), "state") != "idle"
	case m.Method() == acp.MethodSessionUpdate:
		s := p.known[m.Session()]
		n, _ := strconv.Atoi(rawjson.MemberString(m.Update(), "content", "text"))
		switch {
		case n == s.chunks+1 || s.state == away:
		case n == 1 && s.replays > 0:
			s.replays--
		default:
			p.w.t.Errorf("session %s says %d behind %d", m.Session(), n, s.chunks)
		}
		s.chunks = n
	}
}

func (p *person) response(m *acp.Message) {
	asked := p.asked[m.ID()]
	id, method := asked.Session(), asked.Method()
	s := p.known[id]
	if _, begun := rawjson.Member(m.Result(), "messageId"); begun {
		p.ends[m.ID()] += 0
		p.ran[m.ID()] = true
	}
	if p.answered[m.ID()]++; s == nil {
		return
	}
	if s.by == m.ID() {
		defer func() { s.replays = 0 }()
		p.changes(id, s, method == acp.MethodSessionDelete, m)
	}
	if fork := rawjson.MemberString(m.Result(), "sessionId"); fork != "" {
		raw, _ := rawjson.Member(m.Result(), "chunks")
		n, _ := strconv.Atoi(string(raw))
		p.known[fork] = &seen{state: here, chunks: n, loads: 1}
	}
	switch {
	case method == acp.MethodSessionSetMode && m.Err() == nil:
		s.done = string(m.ID())
	case method == acp.MethodSessionPrompt:
		s.prompts--
	}
	reason := rawjson.MemberString(m.Result(), "stopReason")
	if reason == "" {
		return
	}
	n, _ := m.ID().Int()
	p.ran[m.ID()] = acp.TurnBegan(m.Result())
	if of, said := rawjson.Member(m.Result(), "n"); said && string(of) != string(m.ID()) {
		p.w.t.Errorf("prompt %d has the answer to prompt %s", n, of)
	}
	if reason == "cancelled" && s.cancel < int(n) {
		p.w.t.Errorf("prompt %d was cancelled, and the newest cancel is %d", n, s.cancel)
	}
	raw, whole := rawjson.Member(m.Result(), "chunks")
	if chunks, _ := strconv.Atoi(string(raw)); whole && chunks > s.chunks && (s.state == here || s.state == leaving) {
		p.w.t.Errorf("prompt %d was answered behind %d of %d", n, s.chunks, chunks)
	}
}

// changes takes the answer to what opens a session, or leaves it.
func (p *person) changes(id string, s *seen, deletes bool, m *acp.Message) {
	failed := m.Err() != nil
	switch {
	case s.state == leaving && !failed:
		s.state, s.works = away, false
		for _, q := range p.asks {
			q.over = q.over || q.session == id
		}
		if deletes {
			delete(p.known, id)
		}
	case deletes && failed && m.Err().Code == acp.CodeResourceNotFound: // it was, and the answer was lost
		delete(p.known, id)
	case s.state == reopening && !failed && s.had > 0 && s.replays > 0:
		p.w.t.Errorf("what session %s has, %d, is not shown again", id, s.had)
		s.state = here
	case s.state == opening && failed:
		s.state = away
	case s.state != away || !failed:
		s.state = here
	}
}

// last looks at what is left when nothing goes on.
func (p *person) last() {
	for id := range p.asked {
		if p.answered[id] != 1 {
			p.w.t.Errorf("request %s was answered %d times", id, p.answered[id])
		}
	}
	for id, ran := range p.ran {
		if n, _ := id.Int(); ran && p.w.ran[int(n)] != 1 {
			p.w.t.Errorf("prompt %s was answered as if it ran, and it did %d times", id, p.w.ran[int(n)])
		}
	}
	for id, n := range p.ends {
		asked := p.asked[id]
		if s := p.known[asked.Session()]; s != nil && (n < 1 || n > s.loads) { // each load tells it again, and so does the loss of the session
			p.w.t.Errorf("the end of turn %s was told %d times", id, n)
		}
	}
	for id, s := range p.known {
		if s.works {
			p.w.t.Errorf("session %s still works", id)
		}
		if at := p.w.sessions[id]; at != nil && s.mode != "" && s.done == s.mode && at.mode != s.mode {
			p.w.t.Errorf("session %s has mode %s, and %s was set last", id, at.mode, s.mode)
		}
	}
	for id, q := range p.asks {
		if s := p.known[q.session]; !q.over && s != nil && s.state == here {
			p.w.t.Errorf("question %s of session %s is still open", id, q.session)
		}
	}
}
