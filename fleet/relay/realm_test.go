package relay

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/fleet/store"
)

// realm is a fleet with some sessions that move among its nodes. What the nodes do, and when the hub hears of it, is a step
// that a test takes, and so is what the network does: each message waits for a step on its way.
type realm struct {
	t   *testing.T
	rnd *rand.Rand
	g   *Gateway
	two bool // clients and nodes speak version 2 of the protocol

	mu     sync.Mutex
	nodes  map[string]*post
	tales  map[string]*tale // sessions, by their ids; the map is not changed
	change chan struct{}    // closed and replaced when something is told

	// What follows is of the test alone.
	late  bool         // a node has not answered for long: what it refuses is done behind what was asked later
	count int          // of moves
	ran   map[int]int  // how often each of the client's prompts was carried out, by its number
	began map[int]bool // those that ever were, also where the session knows nothing of it any more
	story []string     // what has happened
}

// post is a node of a realm.
type post struct {
	name  string
	paths []*path

	// Guarded by realm.mu.
	online bool
	late   bool          // nobody reaches it yet
	back   chan struct{} // closed when it is online, and can be reached
	fresh  []*path       // that were dialed
}

// path is a connection to a node, with what it has not taken of the node.
type path struct {
	*wire
	out  []acp.Message
	open map[string]bool     // sessions
	asks map[acp.ID]question // what was asked on it, by the id there
	of   int                 // whose it is
	last int64
}

// question is what an agent asks.
type question struct {
	of  *tale
	seq int
}

func (q question) about() string { return fmt.Sprintf("%s %d", q.of.id, q.seq) }

func newRealm(t *testing.T, rnd *rand.Rand, two bool, sessions []string, names ...string) *realm {
	r := &realm{t: t, rnd: rnd, two: two, nodes: map[string]*post{}, tales: map[string]*tale{}, change: make(chan struct{}), ran: map[int]int{}, began: map[int]bool{}}
	for _, name := range names {
		p := &post{name: name, online: true, back: make(chan struct{})}
		close(p.back)
		r.nodes[name] = p
	}
	for i, id := range sessions {
		r.tales[id] = newTale(r, id, names[i%len(names)])
	}
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
		if p.online && !p.late {
			c := &path{wire: newWire(r.t), open: map[string]bool{}, asks: map[acp.ID]question{}}
			p.fresh = append(p.fresh, c)
			r.mu.Unlock()
			return c.wire, nil
		}
		r.mu.Unlock()
		why := problem.New(problem.NodeOffline, "%s cannot be reached", name)
		if !wait {
			return nil, why
		}
		select {
		case <-back:
		case <-ctx.Done():
			return nil, why
		}
	}
}

func (r *realm) Find(_ store.Token, id, _ string) (Found, error) {
	s := r.tales[id]
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case s == nil || s.unlisted:
		return Found{}, problem.New(problem.SessionNotFound, "no session %s", id)
	case s.told == nil:
		return Found{Node: s.born, Agent: "mock"}, nil
	}
	return Found{Node: s.told.Node, Agent: "mock"}, nil
}

func (r *realm) Moving(_ store.Token, id string) (o *store.Owner, move string) {
	s := r.tales[id]
	r.mu.Lock()
	defer r.mu.Unlock()
	if s == nil || s.unlisted {
		return nil, ""
	}
	if s.told != nil && s.told.Moving != nil {
		move = s.told.Moving.ID
	}
	return s.told, move
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

// one of the sessions is chosen.
func (r *realm) some() *tale {
	ids := slices.Sorted(maps.Keys(r.tales))
	return r.tales[ids[r.rnd.IntN(len(ids))]]
}

// all returns the sessions in the order of their ids.
func (r *realm) all() (out []*tale) {
	for _, id := range slices.Sorted(maps.Keys(r.tales)) {
		out = append(out, r.tales[id])
	}
	return out
}

// loosens has prompts change places from now on: a node has not answered for long.
func (r *realm) loosens() {
	r.late = true
	for _, s := range r.tales {
		s.loose = true
	}
}

// does has a node do what it is told.
func (r *realm) does(p *post, c *path, m acp.Message) {
	if m.Method() == acp.MethodInitialize {
		raw, _ := rawjson.Member(m.Meta(), "player")
		c.of = numberOf(raw)
	}
	switch s := r.tales[m.Session()]; {
	case m.IsResponse():
		r.answered(c, m)
	case m.Method() == acp.MethodInitialize && r.two:
		c.says(acp.NewResult(m.ID(), []byte(`{"protocolVersion":2,"capabilities":{}}`)))
	case m.Method() == acp.MethodInitialize:
		c.says(acp.NewResult(m.ID(), []byte(`{"protocolVersion":1,"agentCapabilities":{}}`)))
	case s != nil:
		s.does(p, c, m)
	}
}

// answered takes an answer to what an agent has asked.
func (r *realm) answered(c *path, m acp.Message) {
	q, about := c.asks[m.ID()], rawjson.MemberString(m.Result(), "about")
	switch {
	case q.of == nil: // nobody waits for it
	case q.about() != about:
		r.t.Errorf("what answers %q was given to %q", about, q.about())
	case q.of.asks[q.seq]:
		q.of.withdraws(q.seq, c)
	}
}

// leaves has a node leave, or come back. Connections to it can be made a moment after the hub says that it is there.
func (r *realm) leaves(p *post) {
	r.mu.Lock()
	if p.online = !p.online; p.online {
		p.late = true
	} else {
		p.back = make(chan struct{})
	}
	r.mu.Unlock()
	if !p.online {
		r.breaks(p)
	} else if r.rnd.IntN(2) == 0 {
		r.reaches(p)
	}
}

// reaches has connections to a node be made that is there.
func (r *realm) reaches(p *post) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p.online && p.late {
		p.late = false
		close(p.back)
	}
}

// breaks has the connections to a node break.
func (r *realm) breaks(p *post) {
	for _, c := range r.live() {
		if slices.Contains(p.paths, c) {
			_ = c.Close()
		}
	}
}

// kills has a node be killed and started again: what is in no log is forgotten.
func (r *realm) kills(p *post) {
	if p.online {
		r.leaves(p)
	}
	for _, s := range r.all() {
		if s.stays[p.name].has {
			s.dies()
		}
	}
	r.leaves(p)
}
