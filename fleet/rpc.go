package fleet

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"math"
	"net/http"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/acphttp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/fleet/relay"
	"sandboxagent.dev/sandbox-agent/fleet/store"
	"sandboxagent.dev/sandbox-agent/internal/memory"
	"sandboxagent.dev/sandbox-agent/runtime"
)

const (
	rpcMemory  = 512 << 20 // bytes of messages that arrive from clients, wait or are written, of all together
	largestOne = 80 << 20  // bytes of one message of a node; a larger one ends that connection to it
	lookAgain  = time.Second
)

// overOf returns what ends when the token is worth nothing any more with which a request was sent.
func overOf(ctx context.Context) context.Context {
	c, _ := ctx.Value(callerKey{}).(caller) // there is one: the route is not open
	return c.over
}

// rpc serves ACP: all sessions of all nodes in one connection.
func (h *Hub) rpc(w http.ResponseWriter, r *http.Request, c call) error {
	for _, name := range []string{acphttp.HeaderConnection, acphttp.HeaderInlineConnection} {
		if owner := h.relay.Owner(r.Header.Get(name)); owner != "" && owner != c.token.ID {
			return problem.New(problem.ClientNotFound, "no connection has this id: it ended or was never opened; initialize again")
		}
	}
	ctx, done := h.during(r, c)
	defer done()
	h.acp.ServeHTTP(w, r.WithContext(ctx))
	return nil
}

// nodes is the hub as the relay asks it.
type nodes struct{ h *Hub }

var _ relay.Fleet = nodes{}

// Caller implements [relay.Fleet].
func (n nodes) Caller(ctx context.Context) (store.Token, <-chan struct{}) {
	c, ok := ctx.Value(callerKey{}).(caller)
	if !ok {
		return store.Token{}, nil
	}
	return c.token, c.over.Done()
}

// Nodes implements [relay.Fleet].
func (n nodes) Nodes(t store.Token) []relay.Node {
	work := map[string]int{}
	for _, s := range n.h.o.Store.Sessions() {
		if s.Gone == nil && (s.Info.State == runtime.StateRunning || s.Info.State == runtime.StateWaiting) {
			work[s.Node]++
		}
	}
	out := []relay.Node{}
	for _, one := range n.h.o.Store.Nodes() {
		if t.For(one.Name, one.Labels) {
			out = append(out, n.shown(one, work[one.Name]))
		}
	}
	return out
}

func (n nodes) shown(one store.Node, work int) relay.Node {
	shown, returns := n.h.shown(one), n.h.returns(one)
	return relay.Node{Name: shown.Name, State: shown.State, Labels: shown.Labels, Agents: one.Agents, Online: n.h.away(one) == nil && !returns, Returns: returns, Load: work}
}

// Node implements [relay.Fleet].
func (n nodes) Node(t store.Token, name string) (relay.Node, error) {
	one, known := n.h.o.Store.Node(name)
	if !known || !t.For(one.Name, one.Labels) {
		return relay.Node{}, noNode(name)
	}
	return n.shown(one, 0), nil
}

// Away implements [relay.Fleet].
func (n nodes) Away(name string) error {
	one, known := n.h.o.Store.Node(name)
	if !known {
		return noNode(name)
	}
	return n.h.away(one)
}

// Dial implements [relay.Fleet].
func (n nodes) Dial(ctx context.Context, t store.Token, name string, wait bool) (acp.Conn, error) {
	for {
		links, records := n.h.links.news(), n.h.o.Store.NodeNews()
		conn, err := n.dial(ctx, t, name)
		if err == nil || !wait || problem.From(err).Kind != problem.NodeOffline {
			return conn, err
		}
		again := time.NewTimer(lookAgain)
		select {
		case <-links:
		case <-records:
		case <-again.C: // a hub that was killed is named until its lease has ended
		case <-ctx.Done():
			return nil, err
		}
		again.Stop()
	}
}

// dial opens a connection to a node's gateway by a tunnel of this hub, or through another one.
func (n nodes) dial(ctx context.Context, t store.Token, name string) (acp.Conn, error) {
	if _, err := n.Node(t, name); err != nil {
		return nil, err // its labels have changed, or it was forgotten
	}
	l, err := n.h.linkOf(ctx, name)
	if err != nil {
		return nil, err
	}
	if _, err := n.Node(t, name); err != nil {
		return nil, err // it may have joined with other labels than it had, here or at another hub
	}
	if l != nil {
		leave, err := l.enter(t.ID)
		if err != nil {
			return nil, err
		}
		return dialNode(ctx, name, "http://localhost", leave, acphttp.DialOptions{Transport: l.carrier})
	}
	if peer, ok := n.h.peerOf(name); ok {
		conn, err := dialNode(ctx, name, peer.at(name), func() {}, acphttp.DialOptions{Transport: toPeer{n.h.peers, peer.over}, Token: peer.Secret, Header: http.Header{headerFor: {t.ID}}})
		return conn, n.h.ofPeer(name, err)
	}
	if err := n.Away(name); err != nil {
		return nil, err
	}
	return nil, errMoving(name)
}

// dialNode opens a connection to a gateway. Leave is called when it is closed.
func dialNode(ctx context.Context, name, endpoint string, leave func(), o acphttp.DialOptions) (acp.Conn, error) {
	o.MaxMessage = largestOne
	conn, err := acphttp.Dial(ctx, endpoint, o)
	if err != nil {
		leave()
		if p, ok := errors.AsType[*problem.Error](err); ok { // without the steps of the handshake
			return nil, problem.New(problem.NodeOffline, "the connection to %s could not be made: %s", name, p.Detail)
		}
		return nil, problem.Wrap(problem.NodeOffline, err, "the connection to %s could not be made", name)
	}
	return &nodeConn{Conn: conn, node: name, leave: leave}, nil
}

// nodeConn is a connection to a gateway that counts as one of its client's streams.
type nodeConn struct {
	acp.Conn
	node  string
	leave func()
}

// Read implements [acp.Conn]. That the connection broke is the problem of a node that is away.
func (c *nodeConn) Read(ctx context.Context) (acp.Message, error) {
	m, err := c.Conn.Read(ctx)
	if _, bad := errors.AsType[*acp.ParseError](err); err == nil || bad {
		return m, err
	}
	return m, problem.Wrap(problem.NodeOffline, err, "the connection to %s broke, and whether it has done what was asked is not known", c.node)
}

// Close implements [acp.Conn].
func (c *nodeConn) Close() error {
	err := c.Conn.Close()
	c.leave()
	return err
}

// Find implements [relay.Fleet].
func (n nodes) Find(t store.Token, id, node string) (relay.Found, error) {
	s, state, err := n.h.lookUp(t, id, node, 0)
	if err != nil {
		return relay.Found{}, err
	}
	if state == SessionGone {
		return relay.Found{}, problem.New(problem.SessionNotFound, "%s has session %q no more; what the hub has of it is at /v2/sessions/%s/events", s.Node, id, id)
	}
	if o := n.h.o.Store.Owner(store.LineOf(s.Info)); state == SessionMoved {
		// The record of the node that has it is the better answer, and may not be there yet.
		if _, err := n.Node(t, o.Node); err != nil {
			return relay.Found{}, n.h.wentTo(s, o)
		}
		return relay.Found{Node: o.Node, Agent: s.Info.Agent}, nil
	}
	return relay.Found{Node: s.Node, Agent: s.Info.Agent}, nil
}

// Moving implements [relay.Fleet].
func (n nodes) Moving(t store.Token, id string) (o *store.Owner, move string) {
	s, _, err := n.h.lookUp(t, id, "", 0)
	if err != nil {
		return nil, ""
	}
	if o = n.h.o.Store.OwnerTold(store.LineOf(s.Info)); o != nil && n.h.underWay(o.Moving) {
		move = o.Moving.ID
	}
	return o, move
}

// Settle implements [relay.Fleet].
func (n nodes) Settle(ctx context.Context, t store.Token, id, left string) {
	if left != "" {
		_ = n.h.until(ctx, relay.HearFor, func() bool {
			o, move := n.Moving(t, id)
			return move != "" || o != nil && o.Node != left
		})
	}
	_ = n.h.until(ctx, relay.HoldFor, func() bool {
		_, move := n.Moving(t, id)
		return move == ""
	}) // who is gone needs no answer
}

// Copy implements [relay.Fleet].
func (n nodes) Copy(ctx context.Context, t store.Token, id, node string, after uint64) (relay.Copy, error) {
	s, state, err := n.h.findSession(ctx, t, id, node, 0)
	if err != nil {
		return relay.Copy{}, err
	}
	shown, err := n.h.sessionShown(ctx, s, state, true)
	if err != nil {
		return relay.Copy{}, err
	}
	if shown.Replica.LastSeq == 0 {
		return relay.Copy{}, problem.New(problem.SessionNotFound, "the hub has no copy of session %q", id)
	}
	meta := map[string]any{"node": s.Node, "agent": s.Info.Agent, "state": state, "copy": true, "seq": shown.Replica.LastSeq, "missing": shown.Replica.Missing}
	gaps := 0
	return relay.Copy{
		Meta: meta, Updates: n.h.updates(ctx, s, after, &gaps),
		Whole: func() bool { return gaps == 0 && shown.Replica.Missing == 0 },
	}, nil
}

// updates yields what a replica has of a session behind an event as session/load shows it,
// and counts the places where something is missing.
func (h *Hub) updates(ctx context.Context, s *store.Session, after uint64, gaps *int) iter.Seq2[acp.Message, error] {
	return func(yield func(acp.Message, error) bool) {
		select {
		case h.reading <- struct{}{}:
			defer func() { <-h.reading }()
		case <-ctx.Done():
			yield(acp.Message{}, endOf(ctx))
			return
		}
		if after == 0 {
			if oldest, err := h.oldest(ctx, s.ReplicaID); err == nil && oldest > 1 {
				*gaps++
			}
		}
		for ev, err := range h.events(ctx, s, after, math.MaxUint64) {
			if err != nil && ev.Seq == 0 {
				yield(acp.Message{}, err)
				return
			}
			if err != nil { // of a hub to come, perhaps
				*gaps++
				continue
			}
			_, lost := ev.Lost()
			if lost {
				*gaps++
			}
			m, err := acp.Parse(ev.Message)
			if err != nil || m.Method() != acp.MethodSessionUpdate && !lost {
				continue // what a client has sent, and what is not told again
			}
			if m, err = acp.Parse(m.AppendSeq(nil, ev.Seq, "")); err == nil && !yield(m, nil) {
				return
			}
		}
	}
}

// List implements [relay.Fleet].
func (n nodes) List(ctx context.Context, t store.Token, q relay.Query) (relay.Page, error) {
	f := sessionFilter{node: q.Node, agent: q.Agent, cwd: q.Cwd, labels: store.Token{Labels: q.Labels}, order: runtime.ByActivity, limit: usualSessions}
	if err := f.begin(q.Cursor); err != nil {
		return relay.Page{}, err
	}
	list, err := n.h.sessionPage(ctx, t, f)
	if err != nil {
		return relay.Page{}, err
	}
	page := relay.Page{Sessions: []relay.Listed{}, Next: list.NextCursor}
	for _, s := range list.Sessions {
		meta := map[string]any{
			"node": s.Node, "agent": s.Agent, "state": s.State, "createdAt": s.CreatedAt, "updatedAt": s.UpdatedAt, "ended": s.Ended != nil,
			"eventCount": s.EventCount, "model": s.Model, "clients": s.Clients, "pending": s.Pending, "missing": s.Replica.Missing,
		}
		if len(s.Metadata) > 0 {
			meta["metadata"] = s.Metadata
		}
		page.Sessions = append(page.Sessions, relay.Listed{
			SessionID: s.ID, Cwd: s.Cwd, Title: cmp.Or(s.Title, s.Gist), UpdatedAt: s.UpdatedAt.Format(time.RFC3339Nano),
			Meta: map[string]map[string]any{acp.MetaKey: meta},
		})
	}
	return page, nil
}

// newRPC is called when all else of the hub is there.
func (h *Hub) newRPC() {
	h.relay = relay.New(nodes{h}, relay.Options{Version: h.o.Version, Observer: h.o.Traces, Logger: h.log})
	h.acp = acphttp.New(h.relay, acphttp.Options{Memory: memory.NewBound(rpcMemory), Over: overOf, Logger: h.log})
}

func noNode(name string) error {
	return problem.New(problem.NodeNotFound, "there is no node %s, or the token is not for it", name)
}
