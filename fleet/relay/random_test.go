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
)

// player is a client that does what comes to its mind.
type player struct {
	*editor
	r       *realm
	last    int               // number of its newest request
	open    map[string]string // requests that were not answered, with their methods, by their ids
	got     map[string]int    // answers, by the ids of requests
	ok      map[string]bool   // of those that succeeded
	cancel  int               // the newest prompt before its newest cancel
	asked   map[acp.ID]string // what it is asked
	seen    int               // the newest event that it was shown since it asked to open the session
	replays int               // requests to open the session by which it is not shown yet what it has seen
	holes   bool              // it may not be shown all that is new
}

// begins connects the player, anew if it is connected: what it has asked before may be done, and nobody is told.
func (p *player) begins() {
	if p.editor != nil {
		p.c.Close()
		p.r.loose = true // what is still under way comes when it comes
	}
	c, _, err := p.r.g.Connect(p.r.t.Context(), acp.NewRequest("0", "initialize", []byte(plainHello)), acp.ConnectOptions{Shape: acp.OneStream})
	if err != nil {
		p.r.t.Fatal(err)
	}
	st, err := c.Stream("", nil)
	if err != nil {
		p.r.t.Fatal(err)
	}
	p.editor = &editor{t: p.r.t, c: c, st: st}
	p.open, p.asked, p.seen, p.replays, p.holes = map[string]string{}, map[acp.ID]string{}, 0, 0, true
}

func (p *player) asks(method, more string) string {
	p.last++
	id := fmt.Sprint(p.last)
	p.open[id] = method
	p.send(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":{"sessionId":"s","number":%s%s}}`, id, method, id, more)
	return id
}

// reads takes what has come.
func (p *player) reads() {
	for _, m := range p.gets() {
		seq := int(seqIn(m.Meta(), acp.MetaKey, "seq"))
		switch {
		case m.IsResponse():
			id := string(m.ID())
			p.got[id]++
			p.ok[id] = m.Err() == nil
			if method := p.open[id]; leaves(method) {
				clear(p.asked)
			}
			if p.open[id] != acp.MethodSessionPrompt || m.Err() != nil {
				p.holes = true
			}
			delete(p.open, id)
		case m.IsRequest():
			about := rawjson.MemberString(m.Params(), "about")
			leaving := slices.ContainsFunc(slices.Collect(maps.Values(p.open)), leaves)
			for id, open := range p.asked {
				if open == about && !leaving {
					p.t.Errorf("it is asked %q twice, as %s and %s", about, id, m.ID())
				}
			}
			p.asked[m.ID()] = about
		case m.Method() == acp.MethodCancelRequest:
			id, _ := rawjson.Member(m.Params(), "requestId")
			delete(p.asked, acp.ID(id))
		case m.Method() == acp.MethodSessionUpdate:
			if seq <= p.seen {
				p.replays--
			}
			loads := slices.Contains(slices.Collect(maps.Values(p.open)), acp.MethodSessionLoad) // a break can have it begin anew
			if p.replays < 0 && !loads || seq > p.seen && !p.holes && p.missing(seq) {
				p.t.Errorf("it is shown event %d behind %d", seq, p.seen)
			}
			p.seen = seq
		}
	}
}

// leaves reports whether a client that asks for a method leaves the session: what it is asked there is asked anew when it opens it.
func leaves(method string) bool { return method == acp.MethodSessionClose || method == methodDetach }

// missing reports whether an update is between what the player has seen and an event.
func (p *player) missing(seq int) bool {
	return slices.ContainsFunc(p.r.events[p.seen:seq-1], func(ev string) bool { return strings.Contains(ev, "session/update") })
}

// steps are what may happen, each as likely as the number before it says.
func (p *player) step() string {
	r := p.r
	choose := func(n int) bool { return r.rnd.IntN(100) < n }
	switch {
	case choose(12) && len(p.open) < 8:
		return "prompts " + p.asks(acp.MethodSessionPrompt, `,"prompt":[]`)
	case choose(6):
		p.cancel = p.last
		p.send(`{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"s"}}`)
		return "cancels"
	case choose(4) && len(p.open) < 8:
		p.replays++
		return "loads " + p.asks(acp.MethodSessionLoad, `,"cwd":"/","mcpServers":[]`)
	case choose(2) && len(p.open) < 8:
		return "resumes " + p.asks(acp.MethodSessionResume, `,"cwd":"/","mcpServers":[]`)
	case choose(3) && len(p.open) < 8:
		method := []string{acp.MethodSessionClose, methodDetach, "_sandboxagent/session/set_metadata"}[r.rnd.IntN(3)]
		return method + " " + p.asks(method, `,"metadata":{}`)
	case choose(8):
		for _, id := range slices.Sorted(maps.Keys(p.asked)) {
			p.send(`{"jsonrpc":"2.0","id":%s,"result":{"about":%q}}`, id, p.asked[id])
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
	case choose(6):
		r.works()
		return "the agent works"
	case choose(15):
		for _, id := range slices.Sorted(maps.Keys(r.turns)) {
			r.ends(id)
			return "a turn ends"
		}
		return ""
	case choose(3):
		r.asksFor()
		return "the agent asks"
	case choose(4):
		n := r.one()
		r.leaves(n)
		return fmt.Sprintf("%s is online: %v", n.name, n.online)
	case choose(3):
		for _, c := range r.live() {
			name := r.nodeOf(c).name
			_ = c.Close()
			return "a connection to " + name + " breaks"
		}
		return ""
	case choose(12):
		r.moves(r.one())
		return fmt.Sprintf("the owner is %s, moving: %v, it is at %s", r.owner.Node, r.owner.Moving, r.where())
	case choose(30):
		if r.hears() {
			return fmt.Sprintf("the hub hears that the owner is %s, moving: %v", r.told.Node, r.told.Moving)
		}
		return ""
	case choose(4):
		d := []time.Duration{time.Millisecond, time.Second, 6 * time.Second, 70 * time.Second}[r.rnd.IntN(4)]
		r.loose = r.loose || d >= HearFor
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

func (r *realm) where() (out []string) {
	for _, name := range r.names() {
		if r.nodes[name].has {
			out = append(out, name)
		}
	}
	return out
}

// rests has all come to its end that has begun.
func (p *player) rests() {
	r := p.r
	for _, name := range r.names() {
		if !r.nodes[name].online {
			r.leaves(r.nodes[name])
		}
	}
	for quiet := 0; quiet < 3; quiet++ {
		for range 2000 {
			some := false
			for _, c := range r.live() {
				some = r.takes(c) || some
				some = r.gives(c) || some
			}
			for _, id := range slices.Sorted(maps.Keys(r.turns)) {
				r.ends(id)
				some = true
			}
			for r.owner.Moving != nil {
				r.moves(r.here())
				some = true
			}
			for r.hears() {
				some = true
			}
			if p.reads(); some {
				quiet = 0
			} else {
				break
			}
		}
		r.loose = true
		time.Sleep(HoldFor + giveUp)
	}
}

// A client, which may connect anew, its nodes, the network, and moves of the session do what they like, in any order. Each request is answered, and none is
// carried out twice, nor a prompt behind a later one; a cancel ends nothing that came behind it, no event is shown twice or passed over, an answer reaches who has asked,
// and in the end the session can be opened and used.
func TestClient_RandomSequences(t *testing.T) {
	seeds := 250
	if testing.Short() {
		seeds = 40
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { randomSequence(t, uint64(seed)) })
		})
	}
}

func randomSequence(t *testing.T, seed uint64) {
	r := newRealm(t, rand.New(rand.NewPCG(seed, 1)), "a", "b", "c")
	defer r.g.Close()
	p := &player{r: r, got: map[string]int{}, ok: map[string]bool{}}
	p.begins()
	r.asked = func() int { return p.cancel }
	for range 150 {
		if told := p.step(); told != "" {
			r.notes("- %s", told)
		}
		if t.Failed() {
			break
		}
	}
	if !t.Failed() {
		p.rests()
		p.checks()
	}
	if t.Failed() {
		t.Logf("what happened:\n%s", strings.Join(r.story, "\n"))
	}
}

// checks says what is wrong when all is over.
func (p *player) checks() {
	for id, method := range p.open {
		p.t.Errorf("%s %s was never answered", method, id)
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
	p.replays++
	load := p.asks(acp.MethodSessionLoad, `,"cwd":"/","mcpServers":[]`)
	prompt := p.asks(acp.MethodSessionPrompt, `,"prompt":[]`)
	p.rests()
	for _, id := range []string{load, prompt} {
		if !p.ok[id] {
			p.t.Errorf("the session cannot be used: %s was answered %d times, ok: %v", id, p.got[id], p.ok[id])
		}
	}
	synctest.Wait()
}
