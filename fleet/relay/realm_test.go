package relay

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/fleet/store"
)

// realm is a fleet with one session, s, that moves among its nodes. What the nodes do, and when the hub hears of it, is a step
// that a test takes, and so is what the network does: each message waits for a step on its way.
type realm struct {
	t   *testing.T
	rnd *rand.Rand
	g   *Gateway

	mu     sync.Mutex
	nodes  map[string]*post
	told   *store.Owner  // what the hub has heard of the session's owner; nil for nothing
	change chan struct{} // closed and replaced when told changes

	// What follows is of the test alone.
	owner  *store.Owner    // as it is noted in the store
	news   []*store.Owner  // that the hub is yet to hear of
	events []string        // of the session: what tells who has it open of each
	whole  []string        // the same as its log has them
	turns  map[string]turn // that go on, by the ids of prompts
	asks   map[string]bool // what the agent asks and nobody has answered
	count  int             // of moves and asks
	loose  bool            // prompts may change places: the session is back at a node that had it, or a node has not answered for long
	newest int             // the prompt that was carried out last
	ran    map[int]int     // how often each of the client's prompts was carried out, by its number
	asked  func() int      // the place of the client's newest cancel
	story  []string        // what has happened
}

// turn is a prompt that a node works on.
type turn struct {
	number    int
	at        *path
	id        acp.ID
	cancelled bool
}

// post is a node of a realm.
type post struct {
	name  string
	has   bool     // the session is here
	kept  []string // its log as it was when it went from here
	went  string   // where it went from here, "" when it was never here
	paths []*path

	// Guarded by realm.mu.
	online bool
	back   chan struct{} // closed when it is online
	fresh  []*path       // that were dialed
}

// path is a connection to a node, with what it has not taken of the node.
type path struct {
	*wire
	out  []acp.Message
	open bool              // of the session
	asks map[acp.ID]string // what was asked on it, by the id there
	last int64
}

func newRealm(t *testing.T, rnd *rand.Rand, names ...string) *realm {
	r := &realm{
		t: t, rnd: rnd, nodes: map[string]*post{}, change: make(chan struct{}),
		turns: map[string]turn{}, asks: map[string]bool{}, ran: map[int]int{},
	}
	for _, name := range names {
		p := &post{name: name, online: true, back: make(chan struct{})}
		close(p.back)
		r.nodes[name] = p
	}
	r.owner = &store.Owner{Line: store.Line{Session: "s"}, Node: names[0], Term: 1}
	r.nodes[names[0]].has = true
	r.g = New(r, Options{Version: "test", Logger: slog.New(slog.DiscardHandler)})
	return r
}

func (r *realm) Caller(context.Context) (store.Token, <-chan struct{}) {
	return store.Token{ID: "token", Kind: store.KindClient, Scope: store.ScopeDrive}, nil
}

func (r *realm) Nodes(t store.Token) (out []Node) {
	for _, name := range r.names() {
		n, _ := r.Node(t, name)
		out = append(out, n)
	}
	return out
}

func (r *realm) Node(_ store.Token, name string) (Node, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return Node{Name: name, Agents: []string{"mock"}, Online: r.nodes[name].online}, nil
}

func (r *realm) Away(name string) error {
	if n, _ := r.Node(store.Token{}, name); !n.Online {
		return problem.New(problem.NodeOffline, "%s is away", name)
	}
	return nil
}

func (r *realm) Dial(ctx context.Context, _ store.Token, name string, wait bool) (acp.Conn, error) {
	for {
		r.mu.Lock()
		p := r.nodes[name]
		back := p.back
		if p.online {
			c := &path{wire: newWire(r.t), asks: map[acp.ID]string{}}
			p.fresh = append(p.fresh, c)
			r.mu.Unlock()
			return c.wire, nil
		}
		r.mu.Unlock()
		if !wait {
			return nil, r.Away(name)
		}
		select {
		case <-back:
		case <-ctx.Done():
			return nil, r.Away(name)
		}
	}
}

func (r *realm) Find(store.Token, string, string) (Found, error) {
	o, _ := r.Moving(store.Token{}, "")
	if o == nil {
		return Found{Node: r.names()[0], Agent: "mock"}, nil
	}
	return Found{Node: o.Node, Agent: "mock"}, nil
}

func (r *realm) Moving(store.Token, string) (o *store.Owner, move string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.told != nil && r.told.Moving != nil {
		move = r.told.Moving.ID
	}
	return r.told, move
}

func (r *realm) Settle(ctx context.Context, t store.Token, id, left string) {
	if left != "" {
		r.until(ctx, HearFor, func() bool {
			o, move := r.Moving(t, id)
			return move != "" || o != nil && o.Node != left
		})
	}
	r.until(ctx, HoldFor, func() bool {
		_, move := r.Moving(t, id)
		return move == ""
	})
}

func (r *realm) until(ctx context.Context, atMost time.Duration, ready func() bool) {
	ctx, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	for ctx.Err() == nil {
		r.mu.Lock()
		change := r.change
		r.mu.Unlock()
		if ready() {
			return
		}
		select {
		case <-change:
		case <-ctx.Done():
		}
	}
}

func (r *realm) Copy(context.Context, store.Token, string, string, uint64) (Copy, error) {
	return Copy{}, problem.New(problem.SessionNotFound, "no copy")
}

func (r *realm) Move(context.Context, store.Token, string, Destination) (any, error) {
	return nil, problem.New(problem.NotSupported, "the test moves the session")
}

func (r *realm) List(context.Context, store.Token, Query) (Page, error) { return Page{}, nil }

func (r *realm) names() []string {
	var out []string
	for name := range r.nodes {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

func (r *realm) notes(format string, args ...any) {
	r.story = append(r.story, fmt.Sprintf(format, args...))
}

// one chooses a node.
func (r *realm) one() *post {
	names := r.names()
	return r.nodes[names[r.rnd.IntN(len(names))]]
}

// here is the node that has the session.
func (r *realm) here() *post {
	for _, p := range r.nodes {
		if p.has {
			return p
		}
	}
	return nil
}

// live returns the connections to nodes that there are.
func (r *realm) live() (out []*path) {
	synctest.Wait()
	for _, name := range r.names() {
		p := r.nodes[name]
		r.mu.Lock()
		p.paths, p.fresh = append(p.paths, p.fresh...), nil
		r.mu.Unlock()
		p.paths = slices.DeleteFunc(p.paths, func(c *path) bool {
			select {
			case <-c.ended:
				return true
			default:
				return false
			}
		})
		out = append(out, p.paths...)
	}
	return out
}

func (r *realm) nodeOf(c *path) *post {
	for _, p := range r.nodes {
		if slices.Contains(p.paths, c) {
			return p
		}
	}
	return nil
}

// takes has a node take a message that was sent to it, if there is one.
func (r *realm) takes(c *path) bool {
	synctest.Wait()
	select {
	case m := <-c.toNode:
		r.notes("%s takes %.300s", r.nodeOf(c).name, m.Frame())
		r.does(r.nodeOf(c), c, m)
		return true
	default:
		return false
	}
}

// gives has the hub read a message of a node, if there is one that it can read.
func (r *realm) gives(c *path) bool {
	synctest.Wait()
	if len(c.out) == 0 {
		return false
	}
	select {
	case c.hub <- c.out[0]:
		r.notes("the hub is told by %s %.300s", r.nodeOf(c).name, c.out[0].Frame())
		c.out = c.out[1:]
		return true
	default:
		return false
	}
}

func (c *path) says(m acp.Message) { c.out = append(c.out, m) }

// does has a node do what it is told.
func (r *realm) does(p *post, c *path, m acp.Message) {
	raw, _ := rawjson.Member(m.Params(), "number")
	n := numberOf(raw)
	result := func(format string, args ...any) { c.says(acp.NewResult(m.ID(), fmt.Appendf(nil, format, args...))) }
	switch {
	case m.IsResponse():
		r.answered(c, m)
		return
	case m.Method() == acp.MethodInitialize:
		result(`{"protocolVersion":1,"agentCapabilities":{}}`)
		return
	case !m.IsRequest() && m.Method() != acp.MethodSessionCancel:
		return
	case !p.has && p.went != "" && m.Method() == "_sandboxagent/session/get": // it can be read
		result(`{"state":"closed"}`)
		return
	case !p.has && p.went != "" && m.Method() == "_sandboxagent/session/pending":
		result(`{"pending":[]}`)
		return
	case !p.has && p.went != "" && m.Method() == "_sandboxagent/session/events":
		result(`%s`, page(p.kept, m))
		return
	case !p.has && m.IsRequest():
		e := acp.Errorf(acp.CodeResourceNotFound, "no such session").WithData(problem.New(problem.SessionNotFound, "no such session"))
		if p.went != "" {
			e = acp.Errorf(acp.CodeResourceNotFound, "it went").WithData(problem.New(problem.Conflict, "it went to %s", p.went).With("movedTo", "node://"+p.went))
		}
		c.says(acp.NewError(m.ID(), e))
		return
	case !p.has:
		return
	}
	switch m.Method() {
	case acp.MethodSessionLoad, acp.MethodSessionResume:
		after := len(r.events)
		if m.Method() == acp.MethodSessionLoad {
			after = 0
		}
		if raw, ok := rawjson.Member(m.Meta(), acp.MetaKey, "after"); ok {
			after = numberOf(raw)
		}
		if after > len(r.events) {
			r.t.Errorf("%s goes on behind event %d of %d", m.Method(), after, len(r.events))
		}
		for _, ev := range r.events[min(after, len(r.events)):] {
			if ev != "" {
				c.says(acp.MustParse([]byte(ev)))
			}
		}
		result(`{"_meta":{"sandboxagent.dev":{"seq":%d}}}`, len(r.events))
		if !c.open {
			c.open = true
			for name := range r.asks {
				r.asksOn(c, name)
			}
		}
	case acp.MethodSessionPrompt:
		for id, t := range r.turns {
			if t.number == n {
				r.t.Errorf("prompt %d is there twice, as %s", n, id)
			}
		}
		if n < r.newest && !r.loose {
			r.t.Errorf("prompt %d is carried out behind prompt %d", n, r.newest)
		}
		r.newest = n
		r.ran[n]++
		id := rawjson.MemberString(m.Meta(), acp.MetaKey, "promptId")
		r.turns[id] = turn{number: n, at: c, id: m.ID()}
		r.happens("", fmt.Sprintf(`{"method":"session/prompt","params":%s}`, m.Params()))
	case acp.MethodSessionCancel:
		for id, t := range r.turns {
			if t.number > r.asked() {
				r.t.Errorf("a cancel ends prompt %d, and the newest was sent behind %d", t.number, r.asked())
			}
			t.cancelled = true
			r.turns[id] = t
		}
	case methodDetach:
		c.open = false
		result(`{}`)
	case acp.MethodSessionClose:
		for id := range r.turns {
			r.ends(id)
		}
		for name := range r.asks {
			r.withdraws(name, nil)
		}
		c.open = false
		result(`{}`)
	case "_sandboxagent/session/get":
		state := "idle"
		if len(r.turns) > 0 {
			state = "running"
		}
		result(`{"state":%q}`, state)
	case "_sandboxagent/session/pending":
		var list []string
		for id, name := range c.asks {
			if r.asks[name] {
				list = append(list, fmt.Sprintf(`{"requestId":%s,"seq":%s}`, id, strings.TrimPrefix(name, "ask ")))
			}
		}
		result(`{"pending":[%s]}`, strings.Join(list, ","))
	case "_sandboxagent/session/events":
		result(`%s`, page(r.whole, m))
	default:
		result(`{}`)
	}
}

// numberOf is a number as it stands in a message, 0 for none.
func numberOf(raw []byte) (n int) {
	_, _ = fmt.Sscan(string(raw), &n)
	return n
}

// page answers a request for the events behind one.
func page(whole []string, m acp.Message) string {
	raw, _ := rawjson.Member(m.Params(), "after")
	after := numberOf(raw)
	var list []string
	for i, message := range whole[min(after, len(whole)):] {
		list = append(list, fmt.Sprintf(`{"seq":%d,"message":%s}`, after+i+1, message))
	}
	return fmt.Sprintf(`{"events":[%s],"hasMore":false}`, strings.Join(list, ","))
}

// happens adds an event to the session. Told is what those are told who have it open, "" for nothing.
func (r *realm) happens(told, message string) {
	r.events, r.whole = append(r.events, told), append(r.whole, message)
	if told == "" {
		return
	}
	for _, c := range r.here().paths {
		if c.open {
			c.says(acp.MustParse([]byte(told)))
		}
	}
}

// works has the agent say something.
func (r *realm) works() {
	text := fmt.Sprintf("event %d", len(r.events)+1)
	if r.rnd.IntN(20) == 0 {
		text += strings.Repeat(" much", window/8) // a client that reads nothing is behind
	}
	ev := update("s", len(r.events)+1, text)
	r.happens(ev, ev)
}

// ends has a turn end.
func (r *realm) ends(id string) {
	t := r.turns[id]
	delete(r.turns, id)
	reason := "end_turn"
	if t.cancelled {
		reason = "cancelled"
	}
	told := fmt.Sprintf(`{"jsonrpc":"2.0","method":%q,"params":{"sessionId":"s","promptId":%q,"result":{"stopReason":%q},"_meta":{"sandboxagent.dev":{"seq":%d}}}}`, methodTurnEnded, id, reason, len(r.events)+1)
	r.events, r.whole = append(r.events, told), append(r.whole, told)
	for _, c := range r.here().paths {
		switch {
		case c == t.at:
			c.says(acp.NewResult(t.id, fmt.Appendf(nil, `{"stopReason":%q}`, reason)))
		case c.open:
			c.says(acp.MustParse([]byte(told)))
		}
	}
}

// asksFor has the agent ask something.
func (r *realm) asksFor() {
	name := fmt.Sprint("ask ", len(r.events)+1)
	r.happens("", `{"method":"x"}`)
	r.asks[name] = true
	for _, c := range r.here().paths {
		if c.open {
			r.asksOn(c, name)
		}
	}
}

func (r *realm) asksOn(c *path, name string) {
	c.last++
	id := acp.IntID(c.last)
	c.asks[id] = name
	c.says(acp.NewRequest(id, "session/request_permission", fmt.Appendf(nil, `{"sessionId":"s","about":%q,"_meta":{"sandboxagent.dev":{"seq":%s}}}`, name, strings.TrimPrefix(name, "ask "))))
}

// withdraws has nobody be asked something any more.
func (r *realm) withdraws(name string, but *path) {
	delete(r.asks, name)
	for _, p := range r.nodes {
		for _, c := range p.paths {
			for id, asked := range c.asks {
				if asked == name && c != but {
					c.says(acp.NewNotification(acp.MethodCancelRequest, rawjson.Object{}.Raw("requestId", []byte(id)).End()))
				}
			}
		}
	}
}

// answered takes an answer to what the agent has asked.
func (r *realm) answered(c *path, m acp.Message) {
	name, about := c.asks[m.ID()], rawjson.MemberString(m.Result(), "about")
	switch {
	case name == "": // nobody waits for it
	case name != about:
		r.t.Errorf("what answers %q was given to %q", about, name)
	case r.asks[name]:
		r.withdraws(name, c)
	}
}

// leaves has a node leave, or come back.
func (r *realm) leaves(p *post) {
	r.mu.Lock()
	if p.online = !p.online; p.online {
		close(p.back)
	} else {
		p.back = make(chan struct{})
	}
	r.mu.Unlock()
	if !p.online {
		for _, c := range r.live() {
			if slices.Contains(p.paths, c) {
				_ = c.Close()
			}
		}
	}
}

// writes changes the record of the session's owner. The hub hears of it later.
func (r *realm) writes(change func(o *store.Owner)) {
	o := *r.owner
	o.Others = slices.Clone(o.Others)
	change(&o)
	r.owner = &o
	r.news = append(r.news, &o)
}

// hears has the hub hear what is new of the owner; false when nothing is.
func (r *realm) hears() bool {
	if len(r.news) == 0 {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.told, r.news = r.news[0], r.news[1:]
	r.g.Owned(r.told)
	close(r.change)
	r.change = make(chan struct{})
	return true
}

// arrives has a node have the session. At one that had it before what was under way there, as its connection broke, comes before what was
// refused there and waits.
func (r *realm) arrives(p *post) {
	r.loose = r.loose || p.went != ""
	p.has, p.went = true, ""
}

// moves goes on with the move of the session, or begins one to a node. One fails when its node works. A session whose node is away
// moves in one step.
func (r *realm) moves(to *post) {
	from, over := r.nodes[r.owner.Node], func(o *store.Owner) { o.Moving = nil }
	switch m := r.owner.Moving; {
	case m == nil && (to == from || !to.online):
	case m == nil && !from.online:
		r.revives(from, to)
	case m == nil:
		r.count++
		r.writes(func(o *store.Owner) {
			o.Moving = &store.Moving{ID: fmt.Sprint("move ", r.count), To: to.name}
			if o.Other(to.name) == nil {
				o.Others = append(o.Others, store.Other{Node: to.name})
			}
		})
	case m.To == from.name: // it is there
		r.writes(over)
	case from.has && (len(r.turns) > 0 || r.rnd.IntN(4) == 0 || !from.online):
		r.writes(over)
	case from.has:
		for name := range r.asks {
			r.withdraws(name, nil)
		}
		from.has, from.went, from.kept = false, m.To, slices.Clone(r.whole)
		to := r.nodes[m.To]
		r.arrives(to)
		for _, c := range from.paths {
			c.open = false
		}
	default: // it has left
		r.writes(func(o *store.Owner) {
			o.Others = slices.DeleteFunc(o.Others, func(other store.Other) bool { return other.Node == m.To })
			o.Others = append(o.Others, store.Other{Node: o.Node, LastSeq: uint64(len(r.events)), Term: o.Term, Until: time.Now()})
			o.Node, o.Term = m.To, o.Term+1
		})
	}
}

// revives has the session go on without its node, which is away: the last that happened there may be lost, and so are its turns.
func (r *realm) revives(from, to *post) {
	const leap = 5
	had := len(r.events)
	last := max(0, had-r.rnd.IntN(3))
	from.has, from.went, from.kept = false, to.name, slices.Clone(r.whole)
	r.arrives(to)
	for _, message := range r.whole[last:] {
		if n, is := rawjson.Member([]byte(message), "params", "number"); is { // the session knows nothing of it any more
			r.ran[numberOf(n)]--
		}
	}
	r.events, r.whole = r.events[:last:last], r.whole[:last:last]
	for range had - last + leap {
		r.events, r.whole = append(r.events, ""), append(r.whole, `{"method":"x"}`)
	}
	clear(r.turns)
	clear(r.asks)
	r.count++
	r.writes(func(o *store.Owner) { o.Moving = &store.Moving{ID: fmt.Sprint("move ", r.count), To: to.name} })
	r.writes(func(o *store.Owner) {
		o.Others = slices.DeleteFunc(o.Others, func(other store.Other) bool { return other.Node == from.name || other.Node == to.name })
		o.Others = append(o.Others, store.Other{Node: from.name, LastSeq: uint64(last), Missing: uint64(had - last), Lost: true, Term: o.Term})
		o.Node, o.Term = to.name, o.Term+1
	})
	r.writes(func(o *store.Owner) { o.Moving = nil })
}
