package relay

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/internal/agentcache"
)

// player is a client that does what comes to its mind.
type player struct {
	*editor
	r     *realm
	of    int                // which of the clients it is
	last  int                // number of its newest request, of which each client has its own
	open  map[string]request // requests that were not answered, by their ids
	got   map[string]int     // answers, by the ids of requests
	ok    map[string]bool    // of those that succeeded
	asked map[acp.ID]asked   // what it is asked
	views map[string]*view   // of sessions, by their ids
	turns map[string]string  // sessions of prompts that have begun in version 2, and whose ends were not told, by the ids of the prompts
	ended map[string]bool    // prompts in version 2
}

// many is more than the requests of a client.
const many = 1_000_000

// request is what a player has asked.
type request struct{ method, session string }

// asked is what a player is asked.
type asked struct{ session, about string }

// view is what a player knows of a session.
type view struct {
	seen    int  // the newest event that it was shown since it asked to open the session
	replays int  // requests to open the session by which it is not shown yet what it has seen
	holes   bool // it may not be shown all that is new
	works   bool // it was told so last, in version 2
	left    int  // the newest request to leave it
	acted   int  // the newest to open it, or by which it is open
	late    bool // one of these was done behind the newest request to leave it
}

// begins connects the player, anew if it is connected: what it has asked before may be done, and nobody is told.
func (p *player) begins() {
	if p.editor != nil {
		p.c.Close()
		p.r.loosens() // what is still under way comes when it comes
	}
	hello := plainHello
	if p.r.two {
		hello = helloTwo
	}
	c, _, err := p.r.g.Connect(p.r.t.Context(), acp.NewRequest("0", "initialize", rawjson.SetMember([]byte(hello), []byte(fmt.Sprint(p.of)), "_meta", "player")), acp.ConnectOptions{Shape: acp.OneStream})
	if err != nil {
		p.r.t.Fatal(err)
	}
	st, err := c.Stream("", nil)
	if err != nil {
		p.r.t.Fatal(err)
	}
	p.editor = &editor{t: p.r.t, c: c, st: st}
	p.open, p.asked, p.views, p.turns = map[string]request{}, map[acp.ID]asked{}, map[string]*view{}, map[string]string{}
	for id := range p.r.tales {
		p.views[id] = &view{holes: true}
	}
}

func (p *player) asks(s *tale, method, more string) string {
	p.last++
	id := fmt.Sprint(p.last)
	if v := p.views[s.id]; leaves(method) {
		v.left, v.late = p.last, false
	} else if acts(method) {
		v.acted = p.last
	}
	p.open[id] = request{method, s.id}
	p.send(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":{"sessionId":%q,"number":%s%s,"_meta":{"sandboxagent.dev":{"promptId":%q}}}}`, id, method, s.id, id, more, id)
	return id
}

// loads asks for all of a session.
func (p *player) loads(s *tale) string {
	p.views[s.id].replays++
	if p.r.two {
		return p.asks(s, acp.MethodSessionResume, `,"cwd":"/","mcpServers":[],"replayFrom":{"type":"start"}`)
	}
	return p.asks(s, acp.MethodSessionLoad, `,"cwd":"/","mcpServers":[]`)
}

// waits reports whether a request about a session that fits is not answered.
func (p *player) waits(session string, fits func(method string) bool) bool {
	for _, r := range p.open {
		if r.session == session && fits(r.method) {
			return true
		}
	}
	return false
}

// reads takes what has come.
func (p *player) reads() {
	got, err := p.polls()
	if err != nil { // it has read nothing for long, and connects anew as it is told to
		p.r.notes("the client is told %v", err)
		p.begins()
		return
	}
	for _, m := range got {
		p.r.notes("the client is told %.300s", m.Frame())
		seq := int(seqIn(m.Meta(), acp.MetaKey, "seq"))
		v := p.views[m.Session()]
		switch {
		case m.IsResponse():
			p.answered(string(m.ID()), &m)
		case m.IsRequest():
			q := asked{m.Session(), rawjson.MemberString(m.Params(), "about")}
			for id, open := range p.asked {
				if open == q && !p.waits(q.session, leaves) {
					p.t.Errorf("it is asked %q twice, as %s and %s", q.about, id, m.ID())
				}
			}
			p.asked[m.ID()] = q
		case m.Method() == acp.MethodCancelRequest:
			id, _ := rawjson.Member(m.Params(), "requestId")
			delete(p.asked, acp.ID(id))
		case m.Method() == methodTurnEnded:
			p.ended[rawjson.MemberString(m.Params(), "promptId")] = true
			delete(p.turns, rawjson.MemberString(m.Params(), "promptId"))
		case string(m.UpdateKind()) == "state_update":
			v.works = rawjson.MemberString(m.Update(), "state") != "idle"
		case m.Method() == acp.MethodSessionUpdate:
			if seq <= v.seen {
				v.replays--
			}
			loads := p.waits(m.Session(), replays) // a break can have it begin anew
			if v.replays < 0 && !loads || seq > v.seen && !v.holes && p.r.tales[m.Session()].misses(v.seen, seq) {
				p.t.Errorf("it is shown event %d of %s behind %d", seq, m.Session(), v.seen)
			}
			v.seen = seq
		}
	}
}

// answered takes an answer.
func (p *player) answered(id string, m *acp.Message) {
	r, is := p.open[id]
	p.got[id]++
	if p.ok[id] = m.Err() == nil; !is {
		return
	}
	if r.method == acp.MethodSessionPrompt && m.Err() == nil && acp.TurnBegan(m.Result()) {
		if of, said := rawjson.Member(m.Result(), "number"); said && string(of) != id {
			p.t.Errorf("prompt %s has the answer to prompt %s", id, of)
		}
		if !p.r.began[numberOf([]byte(id))] {
			p.t.Errorf("prompt %s is answered as one that ran, and it did not", id)
		}
	}
	v := p.views[r.session]
	v.late = v.late || p.r.late && acts(r.method) && numberOf([]byte(id)) < v.left && p.got[fmt.Sprint(v.left)] > 0
	switch {
	case leaves(r.method):
		maps.DeleteFunc(p.asked, func(_ acp.ID, q asked) bool { return q.session == r.session })
		if m.Err() == nil {
			v.works = false
			maps.DeleteFunc(p.turns, func(_, session string) bool { return session == r.session })
		}
	case replays(r.method) && m.Err() == nil && !v.works: // a turn of which the session knows nothing any more
		maps.DeleteFunc(p.turns, func(_, session string) bool { return session == r.session })
	case p.r.two && r.method == acp.MethodSessionPrompt && m.Err() == nil && !p.ended[id] && v.left < numberOf([]byte(id)):
		p.turns[id] = r.session
	}
	if r.method != acp.MethodSessionPrompt || m.Err() != nil {
		v.holes = true
	}
	if r.method == acp.MethodSessionDelete && m.Err() == nil && p.r.tales[r.session].deleted == "" {
		p.t.Errorf("%s is told to be deleted, and is at %v", r.session, p.r.tales[r.session].where())
	}
	delete(p.open, id)
}

// replays reports whether a client that asks for a method may be shown again what it has.
func replays(method string) bool {
	return method == acp.MethodSessionLoad || method == acp.MethodSessionResume
}

// misses reports whether an update is between two events.
func (s *tale) misses(seen, seq int) bool {
	return slices.ContainsFunc(s.events[seen:seq-1], func(told []string) bool {
		return slices.ContainsFunc(told, func(frame string) bool { return strings.Contains(frame, `"sessionUpdate":"x"`) })
	})
}

// steps are what may happen, each as likely as the number before it says.
func (p *player) step() string {
	r, s := p.r, p.r.some()
	alive := s.deleted == ""
	choose := func(n int) bool { return r.rnd.IntN(100) < n }
	switch {
	case choose(12) && len(p.open) < 8:
		return "prompts " + p.asks(s, acp.MethodSessionPrompt, `,"prompt":[]`)
	case choose(6):
		s.cancelled[p.of] = p.last
		p.send(`{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":%q}}`, s.id)
		return "cancels " + s.id
	case choose(4) && len(p.open) < 8:
		return "loads " + p.loads(s)
	case choose(2) && len(p.open) < 8:
		return "resumes " + p.asks(s, acp.MethodSessionResume, `,"cwd":"/","mcpServers":[]`)
	case choose(3) && len(p.open) < 8:
		method := []string{acp.MethodSessionClose, methodDetach, "_sandboxagent/session/set_metadata"}[r.rnd.IntN(3)]
		return method + " " + p.asks(s, method, `,"metadata":{}`)
	case choose(1) && len(p.open) < 8:
		return "deletes " + p.asks(s, acp.MethodSessionDelete, ``)
	case choose(8):
		for _, id := range slices.Sorted(maps.Keys(p.asked)) {
			p.send(`{"jsonrpc":"2.0","id":%s,"result":{"about":%q}}`, id, p.asked[id].about)
			delete(p.asked, id)
			return "answers " + string(id)
		}
		return ""
	case choose(20):
		p.reads()
		return "reads"
	case choose(1):
		p.begins()
		return "connects anew"
	case choose(6) && alive && !s.stuck:
		s.works()
		return "the agent works in " + s.id
	case choose(15):
		if len(s.turns) == 0 {
			return ""
		}
		s.ends()
		return "a turn ends in " + s.id
	case choose(3) && alive && !s.stuck:
		s.asksFor()
		return "the agent asks in " + s.id
	case choose(4):
		n := r.one()
		r.leaves(n)
		return fmt.Sprintf("%s is online: %v", n.name, n.online)
	case choose(2):
		n := r.one()
		r.kills(n)
		return n.name + " is killed and started again"
	case choose(5):
		for _, name := range r.names() {
			if n := r.nodes[name]; n.online && n.late {
				r.reaches(n)
				return n.name + " is reached"
			}
		}
		return ""
	case choose(3):
		for _, c := range r.live() {
			name := r.nodeOf(c).name
			_ = c.Close()
			return "a connection to " + name + " breaks"
		}
		return ""
	case choose(12):
		s.moves(r.one())
		return fmt.Sprintf("the owner of %s is %s, moving: %v, it is at %s", s.id, s.owner.Node, s.owner.Moving, s.where())
	case choose(30):
		if s.hears() {
			return fmt.Sprintf("the hub hears of %s: %+v, deleted: %v", s.id, s.told, s.unlisted)
		}
		return ""
	case choose(4):
		d := []time.Duration{time.Millisecond, time.Second, 6 * time.Second, 70 * time.Second}[r.rnd.IntN(4)]
		if d >= HearFor {
			r.loosens()
		}
		time.Sleep(d)
		return fmt.Sprint(d, " pass")
	}
	live := r.live()
	if len(live) == 0 {
		return ""
	}
	c := live[r.rnd.IntN(len(live))]
	for range 1 + r.rnd.IntN(3) {
		if r.rnd.IntN(2) == 0 {
			r.takes(c)
		} else {
			r.gives(c)
		}
	}
	return ""
}

// rests has all come to its end that has begun.
func (r *realm) rests(players []*player) {
	for _, name := range r.names() {
		if !r.nodes[name].online {
			r.leaves(r.nodes[name])
		}
		r.reaches(r.nodes[name])
	}
	for quiet := 0; quiet < 3; quiet++ {
		for range 2000 {
			some := false
			for _, c := range r.live() {
				some = r.takes(c) || some
				some = r.gives(c) || some
			}
			for _, s := range r.all() {
				for len(s.turns) > 0 {
					s.ends()
					some = true
				}
				for s.owner.Moving != nil {
					s.moves(s.here())
					some = true
				}
				for s.hears() {
					some = true
				}
			}
			for _, p := range players {
				p.reads()
			}
			if some {
				quiet = 0
			} else {
				break
			}
		}
		r.loosens()
		time.Sleep(HoldFor + giveUp)
	}
}

// A client or two, which may connect anew, their nodes, the network, and moves of their sessions do what they like, in any order. Each request is answered, and none is
// carried out twice, nor a prompt behind a later one; one is answered as a prompt that ran if it did; a cancel ends nothing that came behind it, no event is shown twice or
// passed over, an answer reaches who has asked, what is told to be deleted is, what the client leaves is not open for it, each turn that begins is told to end, and in the
// end the sessions can be opened and used.
func TestClient_RandomSequences(t *testing.T) {
	const seeds = 200
	both := []bool{false, true}
	for _, of := range []struct {
		clients  int
		sessions []string
		versions []bool // whether it is version 2. There who watches the turn of another client may be told that it works, and no more
	}{{1, []string{"s"}, both}, {1, []string{"s", "t"}, both}, {2, []string{"s"}, both[:1]}} {
		for _, two := range of.versions {
			for seed := range agentcache.Sequences(seeds / len(of.sessions) / of.clients) {
				t.Run(fmt.Sprintf("version 2: %v, %v, clients: %d, %d", two, of.sessions, of.clients, seed), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { randomSequence(t, uint64(seed), two, of.sessions, of.clients) })
				})
			}
		}
	}
}

// Sequences in which a turn was never told to have ended, a prompt never answered, or something asked twice.
func TestClient_SequencesThatFailed(t *testing.T) {
	for _, of := range []struct {
		two      bool
		clients  int
		sessions []string
		seeds    []uint64
	}{
		{false, 1, []string{"s"}, []uint64{5635, 8588}},
		{false, 2, []string{"s"}, []uint64{3123, 5512}},
		{true, 1, []string{"s"}, []uint64{3944, 10777}},
		{true, 1, []string{"s", "t"}, []uint64{1105, 2467, 3120, 4729, 5701}},
	} {
		for _, seed := range of.seeds {
			t.Run(fmt.Sprintf("version 2: %v, %v, clients: %d, %d", of.two, of.sessions, of.clients, seed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { randomSequence(t, seed, of.two, of.sessions, of.clients) })
			})
		}
	}
}

func randomSequence(t *testing.T, seed uint64, two bool, sessions []string, clients int) {
	r := newRealm(t, rand.New(rand.NewPCG(seed, 1)), two, sessions, "a", "b", "c")
	defer r.g.Close()
	var players []*player
	for of := range clients {
		p := &player{r: r, of: of, last: of * many, got: map[string]int{}, ok: map[string]bool{}, ended: map[string]bool{}}
		p.begins()
		players = append(players, p)
	}
	for i := range 150 * clients {
		if told := players[i%clients].step(); told != "" {
			r.notes("- %s", told)
		}
		if t.Failed() {
			break
		}
	}
	if !t.Failed() {
		r.rests(players)
		for _, p := range players {
			p.checks()
		}
		r.used(players)
	}
	if t.Failed() {
		t.Logf("what happened:\n%s", strings.Join(r.story, "\n"))
	}
}

// checks says what is wrong when all is over.
func (p *player) checks() {
	for id, r := range p.open {
		p.t.Errorf("%s %s was never answered", r.method, id)
	}
	for id, n := range p.got {
		if n != 1 {
			p.t.Errorf("request %s was answered %d times", id, n)
		}
	}
	for n, times := range p.r.ran {
		if times > 1 {
			p.t.Errorf("prompt %d was carried out %d times", n, times)
		}
	}
	for id, session := range p.turns {
		if p.r.tales[session].deleted == "" {
			p.t.Errorf("prompt %s has begun, and no end was told", id)
		}
	}
	for id, v := range p.views {
		for _, c := range p.r.live() {
			if c.of == p.of && v.left > v.acted && !v.late && p.ok[fmt.Sprint(v.left)] && c.open[id] {
				p.t.Errorf("%s is open at %s, and its client has left it by request %d", id, p.r.nodeOf(c).name, v.left)
			}
		}
	}
	for _, s := range p.r.all() {
		if v := p.views[s.id]; v.works && s.deleted == "" {
			p.t.Errorf("%s is told to work", s.id)
		}
	}
}

// used has all sessions be opened and used once more.
func (r *realm) used(players []*player) {
	for _, s := range r.all() {
		for _, p := range players {
			last := []string{p.loads(s), p.asks(s, acp.MethodSessionPrompt, `,"prompt":[]`)}
			r.rests(players)
			for _, id := range last {
				if deleted := s.deleted != ""; p.ok[id] == deleted || p.got[id] != 1 {
					r.t.Errorf("%s was answered %d times, ok: %v; the session was deleted: %v", id, p.got[id], p.ok[id], deleted)
				}
			}
		}
	}
	synctest.Wait()
}
