package lasting

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
)

// world is a hub, or a gateway, of which all is known.
type world struct {
	t        *testing.T
	two      bool       // it speaks version 2 of the protocol
	gateway  bool       // it is no hub: it is killed and started again, and no session is away from it
	mu       sync.Mutex // guards all that follows
	rnd      *rand.Rand
	breaks   int // connections that break
	calm     bool
	sessions map[string]*far
	forks    int               // that were made
	ran      map[int]int       // how often each prompt began
	asked    int               // requests of agents on the connection of now, which are numbered from one
	offered  map[acp.ID]*askOf // those
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
	open    map[int]*askOf
	closed  bool
	lost    bool // its turn was, with the gateway: who opens it next notes that
}

// askOf is a request of an agent, which nobody has answered.
type askOf struct {
	session string
	seq     int
	id      acp.ID // on the connection of now; "" where it was not offered
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
	if w.gateway && w.chance(50) {
		w.restarts()
	}
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
	w.asked, w.offered = 0, map[acp.ID]*askOf{}
	for _, id := range w.ids() {
		s := w.sessions[id]
		s.at, s.answers = nil, nil
		for _, a := range s.open {
			a.id = ""
		}
		if w.chance(50) {
			s.queue = slices.DeleteFunc(s.queue, func(p *turnOf) bool { return !p.begun })
		}
	}
}

// restarts has the gateway be killed and started again: what is not in a log is forgotten, and the numbers of events leap.
func (w *world) restarts() {
	for _, id := range w.ids() {
		s := w.sessions[id]
		s.lost = s.lost || len(s.queue) > 0 && s.queue[0].begun
		s.queue = nil
		clear(s.open)
		for range leap {
			s.log = append(s.log, entry{})
		}
	}
}

const leap = 5 // of the numbers of events, behind a kill

// opens notes the end of a turn that was lost. Nobody knows any more whose it was.
func (s *far) opens() {
	if s.lost {
		s.lost, s.log = false, append(s.log, entry{methodTurnEnded, `"began":true,"error":{"code":-32603,"message":"the gateway was ended"}`})
	}
}

func (w *world) ids() []string { return slices.Sorted(maps.Keys(w.sessions)) }

// goOn has a moment pass in the sessions.
func (w *world) goOn(at *wire) (out []acp.Message) {
	for _, id := range w.ids() {
		s := w.sessions[id]
		switch {
		case s.away && (w.calm || time.Now().After(s.back)):
			s.away = false
		case !s.away && !w.calm && !w.gateway && w.chance(3):
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
			case p.cancelled, len(s.open) == 0 && w.chance(30):
				w.ends(id, s, p, at)
			case w.chance(15) && !w.calm:
				s.log = append(s.log, entry{[]string{acp.MethodSessionRequestPermission, acp.MethodElicitationCreate}[w.rnd.IntN(2)], `"options":[]`})
				s.open[len(s.log)] = &askOf{session: id, seq: len(s.log)}
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
	w.ran[p.n]++
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
	for _, seq := range slices.Sorted(maps.Keys(s.open)) {
		if a := s.open[seq]; a.id != "" {
			s.answers = append(s.answers, acp.MustParse(fmt.Appendf(nil, canceled, a.id)))
		}
		delete(s.open, seq)
	}
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
		if e.method == "" {
			continue
		}
		if e.params == `"options":[]` {
			out = append(out, w.offers(s, s.shown+1)...)
			continue
		}
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

// offers returns what asks the client what an agent asks, if that is open.
func (w *world) offers(s *far, seq int) []acp.Message {
	a := s.open[seq]
	if a == nil {
		return nil
	}
	if a.id == "" {
		w.asked++
		a.id = acp.IntID(int64(w.asked))
		w.offered[a.id] = a
	}
	frame := shown(a.session, s.log[seq-1], seq)
	return []acp.Message{acp.NewRequest(a.id, frame.Method(), frame.Params())}
}

// answer takes an answer of the client's to an agent.
func (w *world) answer(m *acp.Message) {
	a := w.offered[m.ID()]
	if a == nil { // it was taken back meanwhile
		return
	}
	if got := rawjson.MemberString(m.Result(), "to"); got != fmt.Sprint(a.session, a.seq) {
		w.t.Errorf("%s%d was given the answer to %s", a.session, a.seq, got)
	}
	if s := w.sessions[a.session]; s != nil {
		delete(s.open, a.seq)
	}
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
	if m.IsResponse() {
		w.answer(&m)
		return nil
	}
	switch {
	case m.Method() == acp.MethodInitialize:
		return result(`{"protocolVersion":%d}`, map[bool]int{false: 1, true: 2}[w.two])
	case s == nil && id != "" && m.IsRequest():
		return []acp.Message{acp.NewError(m.ID(), acp.Errorf(acp.CodeResourceNotFound, "there is no session %s", id))}
	case s == nil && !m.IsRequest():
		return nil
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
		s.at, s.shown, s.closed = at, int(after), false
		s.opens()
		var out []acp.Message
		for _, seq := range slices.Sorted(maps.Keys(s.open)) {
			if seq <= s.shown {
				out = append(out, w.offers(s, seq)...)
			}
		}
		out = append(out, w.told(id, at)...)
		if w.two {
			out = append(out, s.state(id, len(s.queue) > 0 && s.queue[0].begun, len(s.log)))
		}
		return append(out, result(`{"_meta":{"sandboxagent.dev":{"seq":%d}}}`, len(s.log))...)
	case methodPending:
		list := []byte("[")
		for i, seq := range slices.Sorted(maps.Keys(s.open)) {
			if i > 0 {
				list = append(list, ',')
			}
			list = fmt.Appendf(list, `{"seq":%d}`, seq)
		}
		return result(`{"pending":%s]}`, list)
	case acp.MethodSessionClose, acp.MethodSessionDelete, "_sandboxagent/session/detach":
		var out []acp.Message
		if m.Method() != "_sandboxagent/session/detach" {
			for len(s.queue) > 0 {
				p := s.queue[0]
				if !p.begun {
					w.begins(s, p, at)
				}
				p.cancelled = true
				w.ends(id, s, p, at)
			}
			out, s.closed = w.told(id, at), true
		}
		if m.Method() == acp.MethodSessionDelete {
			delete(w.sessions, id)
			if s.at == at {
				out = append(out, acp.NewNotification(methodEnded, fmt.Appendf(nil, `{"sessionId":%q,"data":{"reason":"deleted"}}`, id)))
			}
		}
		s.at = nil
		return append(out, result(`{}`)...)
	case acp.MethodSessionFork:
		fork := &far{chunks: s.chunks, log: slices.Clone(s.log), open: map[int]*askOf{}, at: at, shown: len(s.log)}
		w.forks++
		name := "f" + strconv.Itoa(w.forks)
		w.sessions[name] = fork
		return result(`{"sessionId":%q,"chunks":%d,"_meta":{"sandboxagent.dev":{"seq":%d}}}`, name, fork.chunks, len(fork.log))
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
	if s.closed {
		return []acp.Message{acp.NewError(m.ID(), acp.Errorf(acp.CodeInvalidRequest, "session %s is closed", id))}
	}
	name := rawjson.MemberString(m.Meta(), acp.MetaKey, "promptId")
	if s.at != at {
		s.at, s.shown = at, len(s.log)
	}
	s.opens()
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
	list, n, i := []byte(`{"events":[`), 0, after
	for ; n < 3 && i < len(s.log); i++ {
		if s.log[i].method == "" {
			continue
		}
		if n++; n > 1 {
			list = append(list, ',')
		}
		list = fmt.Appendf(list, `{"seq":%d,"message":{"method":%q,"params":{"sessionId":%q,%s}}}`, i+1, s.log[i].method, rawjson.MemberString(params, "sessionId"), s.log[i].params)
	}
	return fmt.Appendf(list, `],"hasMore":%v}`, n == 3 && i < len(s.log))
}
