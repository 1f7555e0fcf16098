package fleet

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/control/client"
	"sandboxagent.dev/sandbox-agent/fleet/relay"
	"sandboxagent.dev/sandbox-agent/fleet/store"
	"sandboxagent.dev/sandbox-agent/fleet/tunnel"
	"sandboxagent.dev/sandbox-agent/internal/deadline"
	"sandboxagent.dev/sandbox-agent/runtime"
)

const (
	maxMoves  = 8                // of a hub at one time; more are refused
	leaveFor  = 30 * time.Second // for a session to be let go of, which waits for its agent's end
	settleFor = 15 * time.Second // for what must be done when a move has failed, or cannot fail any more
	askAgain  = time.Second      // a node of which the hub hears nothing that fits
	// nodeScheme begins the address at which a node says that a session went to another one.
	nodeScheme = "node://"
	movedTo    = "movedTo" // the member of a session's metadata that has it
)

// MoveRequest says where a session goes on. Without a node it is the one with the least work that
// fits and has the agent.
type MoveRequest struct {
	Node   string            `json:"node,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
	// Cwd is its directory there; "" is the one that it has.
	Cwd string `json:"cwd,omitempty"`
	// Workspace takes the files of the directory along.
	Workspace bool `json:"workspace,omitempty"`
}

// Moved says what became of a session that was moved.
type Moved struct {
	SessionID  string             `json:"sessionId"`
	From       string             `json:"from"`
	Node       string             `json:"node"` // where it is now
	Term       uint64             `json:"term"`
	Cwd        string             `json:"cwd"`
	State      runtime.State      `json:"state"`
	Continuity runtime.Continuity `json:"continuity"`
	LastSeq    uint64             `json:"lastSeq"` // the last event that went along
	// Missing is how many events the node that it left had told of that did not go along, at most.
	Missing uint64 `json:"missing"`
	// Remembered is, of a session whose node was away, the event up to which its agent knows it.
	Remembered uint64   `json:"rememberedSeq,omitempty"`
	LeftOut    []string `json:"leftOut"` // what it has not there
}

// move is a session on its way from one node to another. Its steps, and who has the session
// between them:
//
//  1. the move is noted in the record of its owner   here
//  2. all of it is there, closed                     here
//  3. it is closed here, and says where it went      nobody: whoever finds it so does step 4
//  4. its owner is noted, with the next term         there
//  5. it is opened there                             there
//  6. the note of the move is taken away             there
//
// A failure before 3 leaves it here as it was. The node that has it decides 3 alone, and refuses
// when something was said meanwhile. What clients ask waits until 6: closed before 5, it would be open again.
type move struct {
	h      *Hub
	caller store.Token
	line   store.Line
	from   string
	to     string
	here   runtime.SessionInfo
	o      MoveRequest
	id     string              // of the note
	link   *link               // of the node here when the move began; nil for one at another hub
	there  runtime.SessionInfo // what the other node had of it when the move began
	// clean says that the other node has nothing of the session.
	clean  bool
	silent bool // the move has failed because the other node did not answer
}

// moves are those that this hub is doing. The zero value has none.
type moves struct {
	ids  map[string]bool // guarded by Hub.mu
	news chan struct{}   // closed when there is one less; nil while nobody waits for that. Guarded by Hub.mu
}

func (h *Hub) beginMove(id string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.moving.ids) >= maxMoves {
		return false
	}
	if h.moving.ids == nil {
		h.moving.ids = map[string]bool{}
	}
	h.moving.ids[id] = true
	return true
}

// busyMoving reports whether the hub does as many moves as it does at one time.
func (h *Hub) busyMoving() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.moving.ids) >= maxMoves
}

func (h *Hub) endMove(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.moving.ids, id)
	if h.moving.news != nil {
		close(h.moving.news)
		h.moving.news = nil
	}
}

// moveNews returns a channel that is closed when a move of this hub is over.
func (h *Hub) moveNews() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.moving.news == nil {
		h.moving.news = make(chan struct{})
	}
	return h.moving.news
}

const (
	// mostMove is how long a move may take that somebody has asked for, who can end it at any time. As long as something comes it is
	// not for the hub to know better: a large workspace takes its time on a slow line, and would begin from nothing. But one
	// that trickles keeps the session closed, and a place that others wait for.
	mostMove = time.Hour
	// longMove is how long another hub is taken to be doing a move: one that could not note its end would
	// be waited for as long as it runs. To take one for dead that is not does no harm to the session: what the node that
	// has it says decides.
	longMove = mostMove + leaveFor + settleFor + flowSettle
)

// lately reports whether a moment that a hub has noted is less than a time away. It may be to come: the clocks of
// hubs differ, and are set.
func lately(t time.Time, within time.Duration) bool { return time.Since(t).Abs() < within }

// underWay reports whether somebody is still doing a move.
func (h *Hub) underWay(m *store.Moving) bool {
	switch {
	case m == nil || !h.o.Store.HubLives(m.Hub):
		return false
	case m.Hub != h.o.Store.Hub():
		return lately(m.Since, longMove)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.moving.ids[m.ID]
}

// moveSession moves a session to another node.
func (h *Hub) moveSession(w http.ResponseWriter, r *http.Request, c call) error {
	if err := h.movesSessions(); err != nil {
		return err
	}
	s, state, err := h.sessionOf(r, c)
	if err != nil {
		return err
	}
	var said struct {
		MoveRequest
		Node *string `json:"node"` // "" is not the same as none
	}
	if err := readJSON(w, r, "an object with any of node, labels, cwd and workspace", &said); err != nil {
		return err
	}
	o := said.MoveRequest
	if said.Node != nil {
		if o.Node = *said.Node; o.Node == "" {
			return invalidParam("node", "node is empty: give the name of a node, or leave it out for the one with the least work")
		}
		if len(o.Labels) > 0 {
			return invalidParam("labels", "a move has a node or labels, not both: with node %q leave labels out", o.Node)
		}
	}
	if err := tunnel.CheckLabels(o.Labels); err != nil {
		return invalidParam("labels", "%v", err)
	}
	ctx, done := h.during(r, c)
	defer done()
	got, err := h.moveAsked(ctx, c.token, s, state, o)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, got)
}

// movesSessions says why this hub moves none, nil when it does.
func (h *Hub) movesSessions() error {
	if h.o.Replicate {
		return nil
	}
	return problem.New(problem.NotSupported, "this hub was started with --no-replicas: it does not know the sessions of its nodes, and moves none")
}

// Move implements [relay.Fleet].
func (n nodes) Move(ctx context.Context, t store.Token, id string, o relay.Destination) (any, error) {
	if err := n.h.movesSessions(); err != nil {
		return nil, err
	}
	s, state, err := n.h.findSession(ctx, t, id, "", 0)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(n.h.stop, func() { cancel(errEnding) })()
	return n.h.moveAsked(ctx, t, s, state, MoveRequest{Node: o.Node, Labels: o.Labels, Cwd: o.Cwd, Workspace: o.Workspace})
}

// moveAsked is move for a client that waits for it.
func (h *Hub) moveAsked(ctx context.Context, t store.Token, s *store.Session, state runtime.State, o MoveRequest) (Moved, error) {
	ctx, done := context.WithTimeoutCause(ctx, mostMove, notWithin(problem.NodeOffline, mostMove))
	defer done()
	return h.move(ctx, t, s, state, o, nil)
}

// notWithin is why something is not waited for any more that did not come to its end.
func notWithin(k problem.Kind, most time.Duration) error {
	return problem.New(k, "it has not come to its end within %s", deadline.Words(most))
}

// errSilent is why a move has failed: the node to which the session was to go did not answer.
type errSilent struct {
	node string
	why  error
}

// Error implements error.
func (e *errSilent) Error() string { return e.why.Error() }

// Unwrap returns the problem.
func (e *errSilent) Unwrap() error { return e.why }

// move moves a session that a token is for. Where no node is named it is none that is to be avoided; avoid is nil for any.
func (h *Hub) move(ctx context.Context, t store.Token, s *store.Session, state runtime.State, o MoveRequest, avoid func(node string) bool) (Moved, error) {
	m := &move{h: h, caller: t, line: store.LineOf(s.Info), from: s.Node, here: s.Info, o: o, id: rand.Text()}
	if state == SessionMoved {
		return Moved{}, h.wentTo(s, h.o.Store.Owner(m.line))
	}
	if s.Info.Ended != nil {
		return Moved{}, problem.New(problem.Conflict, "session %s has ended (%s): there is nothing to go on with", s.Session, s.Info.Ended.Reason)
	}
	lost := state == SessionGone // also when its node is there: that has it no more, and may be given it back
	if o.Node == s.Node && !lost {
		return Moved{}, problem.New(problem.Conflict, "session %s is at %s already", s.Session, s.Node)
	}
	if err := h.awaitNode(ctx, s.Node, h.comesBack); err != nil {
		return Moved{}, err
	}
	if !h.beginMove(m.id) {
		return Moved{}, problem.New(problem.TooManyRequests, "%d sessions are being moved: try again when one has arrived", maxMoves)
	}
	defer h.endMove(m.id)
	to, placed, err := h.relay.Place(t, o.Node, o.Labels, s.Info.Agent, func(node string) bool {
		return h.has(node, m.line) || avoid != nil && avoid(node)
	})
	if err != nil {
		return Moved{}, err
	}
	defer placed()
	m.to = to
	how, moved := "moved", m.live
	if lost || !h.online(h.node(s.Node)) {
		how, moved = "revived", func(ctx context.Context) (Moved, error) { return m.revive(ctx, s, lost) }
	}
	got, err := moved(ctx)
	if err != nil {
		how, got = "failed", Moved{}
		if m.silent {
			err = &errSilent{m.to, err}
		}
	}
	h.metrics.moves.WithLabelValues(how).Inc()
	return got, err
}

// has reports whether a node has a session, as its own or as one that another one has, too.
func (h *Hub) has(node string, line store.Line) bool {
	return slices.ContainsFunc(h.o.Store.SessionsNamed(line.Session), func(s *store.Session) bool {
		_, state := h.belongs(s)
		return s.Node == node && store.LineOf(s.Info) == line && state != SessionGone && state != SessionMoved
	})
}

func (h *Hub) node(name string) store.Node {
	n, _ := h.o.Store.Node(name)
	return n
}

// wentTo says that another node has a session.
func (h *Hub) wentTo(s *store.Session, o *store.Owner) error {
	return problem.New(problem.Conflict, "session %s went from %s to %s: name that one, or none", s.Session, s.Node, o.Node).With("node", o.Node)
}

// claim notes that the session is being moved. Of several who want to move it one does. A node that has a
// session of its own with the id, as one that was begun with a copy of another's folder, keeps it.
func (m *move) claim(ctx context.Context) error {
	there, err := askSession(ctx, m.h.gateway(m.to, m.caller.ID), m.to, m.line.Session)
	if err != nil && !isNotFound(err) && problem.From(err).Kind != problem.NotFound { // it may have one
		m.silent = true
		return during(err, "session %s stays at %s, as %s does not say whether it has one of its own", m.line.Session, m.from, m.to)
	}
	m.there = there
	own := err == nil && (there.State != runtime.StateClosed || rawjson.MemberString(there.Metadata, movedTo) == "")
	now := time.Now().UTC()
	_, err = m.h.o.Store.UpdateOwner(ctx, m.line, func(had *store.Owner) (*store.Owner, error) {
		next := store.Owner{Node: m.from, Term: 1, Since: now}
		if had != nil {
			next = *had
		}
		if next.Node != m.from {
			return nil, problem.New(problem.Conflict, "session %s has just gone to %s", m.line.Session, next.Node).With("node", next.Node)
		}
		if m.h.underWay(next.Moving) {
			return nil, problem.New(problem.Conflict, "session %s is being moved to %s since %s: wait for that", m.line.Session, next.Moving.To, next.Moving.Since.Format(time.TimeOnly))
		}
		if m.clean = next.Other(m.to) == nil; m.clean { // what comes there first is not the session yet
			if own {
				return nil, problem.New(problem.SessionAlreadyExists, "session %s stays at %s: %s has one of its own with this id; delete one of them, or move it to another node", m.line.Session, m.from, m.to).With("sessionId", m.line.Session)
			}
			next = *next.With(store.Other{Node: m.to, Until: now})
		} else if own && there.State != runtime.StateClosed && there.State != runtime.StateEnded {
			return nil, problem.New(problem.Conflict, "session %s stays at %s: %s has not let go yet of what it had of it before; try again in a moment, or when it has done there what it works on", m.line.Session, m.from, m.to)
		} else if had := *next.Other(m.to); had.Empty { // it may have something again
			had.Empty = false
			next = *next.With(had)
		}
		next.Moving = &store.Moving{ID: m.id, To: m.to, Hub: m.h.o.Store.Hub(), Since: now}
		return &next, nil
	})
	return err
}

// live moves a session whose node is connected.
func (m *move) live(ctx context.Context) (Moved, error) {
	from, to := m.h.gateway(m.from, m.caller.ID), m.h.gateway(m.to, m.caller.ID)
	m.link, _ = m.h.linkOf(ctx, m.from) // who does not come is asked next
	if err := m.claim(ctx); err != nil {
		return Moved{}, err
	}
	here, err := askSession(ctx, from, m.from, m.line.Session)
	if err != nil {
		return Moved{}, m.giveUp(ctx, during(err, "ask %s", m.from))
	}
	// A move that nobody has finished may have come to its third step.
	if went := nodeIn(here); went != m.to && m.h.o.Store.Owner(m.line).Other(went) != nil {
		if err := m.finish(ctx, went, here.EventCount); err != nil && !errors.Is(err, errTaken) {
			return Moved{}, during(err, "session %s went to %s before, and that could not be noted yet", here.ID, went)
		} else if err == nil {
			return Moved{}, problem.New(problem.Conflict, "session %s went to %s before, and that move was finished now: move it again", here.ID, went).With("node", went)
		}
	}
	got := runtime.Imported{Session: here, LeftOut: []string{}}
	if nodeIn(here) != m.to {
		if err = m.keep(ctx); err == nil {
			got, err = m.bring(ctx, from, to)
		}
		if err != nil {
			if here.State != runtime.StateClosed {
				m.awaitOpen(ctx, from)
			}
			return Moved{}, m.giveUp(ctx, err)
		}
		if err := m.leavesOut(ctx, got.LeftOut); err != nil {
			return Moved{}, m.giveUp(ctx, err)
		}
		if got.Session.Edits != here.Edits { // somebody may have closed it since it was looked at, and it would be opened there
			switch now, err := askSession(ctx, from, m.from, here.ID); {
			case isNotFound(err): // the node says so again when it is to let go of it
			case err != nil: // it may have been closed
				return Moved{}, m.refused(ctx, to, during(err, "ask %s what has changed", m.from))
			case now.State == runtime.StateClosed && here.State != runtime.StateClosed:
				return Moved{}, m.refused(ctx, to, problem.New(problem.Conflict, "it was closed as the move began: move it again"))
			}
		}
		if err := m.depart(ctx, from, to, got.Session); err != nil {
			return Moved{}, err
		}
	} else if got.Session, err = askSession(ctx, to, m.to, here.ID); err != nil {
		return Moved{}, m.giveUp(ctx, during(err, "ask %s, to which it went before", m.to))
	}
	if err := m.pass(ctx, got, got.Session.EventCount, false, 0); err != nil {
		m.later(err, func(o store.Owner) *store.Owner {
			if o.Node == m.to { // what was written came to the store when it was back
				return over(o)
			}
			return handOver(o, m.to, got.Session.EventCount, false, 0, got.Session.Cwd)
		})
		return Moved{}, during(err, "session %s is at %s, and that could not be noted; a hub does so when %s is heard of next", here.ID, m.to, m.from)
	}
	if here.State == runtime.StateClosed && nodeIn(here) == "" { // somebody had closed it: so it stays
		m.over(ctx)
		return m.arrived(ctx, to, got)
	}
	if err := m.open(ctx, got.Session); err != nil {
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleFor) // also when nobody waits for it
		now, asked := to.Session(within, here.ID)
		cancel()
		switch {
		case isNotFound(asked): // to take it back would undo that
			m.over(ctx)
			m.forget(ctx, m.to)
			return Moved{}, problem.New(problem.SessionNotFound, "session %s went to %s, and was deleted there", here.ID, m.to)
		case asked != nil || now.State != runtime.StateEnded:
			return Moved{}, m.takeBack(ctx, here, err)
		}
	}
	m.over(ctx)
	return m.arrived(ctx, to, got)
}

// nodeIn returns the node to which a session says that it went, "" for none.
func nodeIn(i runtime.SessionInfo) string {
	if i.State != runtime.StateClosed {
		return ""
	}
	return nodeAt(rawjson.MemberString(i.Metadata, movedTo))
}

// nodeAt returns the node of an address of the hub's own, "" for another one.
func nodeAt(address string) string {
	if len(address) > len(nodeScheme) && address[:len(nodeScheme)] == nodeScheme {
		return address[len(nodeScheme):]
	}
	return ""
}

// bring has the other node import what this one exports. It passes through the hub as it comes.
func (m *move) bring(ctx context.Context, from, to *client.Client) (runtime.Imported, error) {
	out := client.ExportOptions{KeepSecrets: true, Workspace: m.o.Workspace}
	in := client.ImportOptions{Cwd: m.o.Cwd, Trust: true, Workspace: m.o.Workspace, Merge: m.o.Workspace, Closed: true, Replace: true}
	at := cmp.Or(m.o.Cwd, m.here.Cwd)
	ctx, flow := newFlow(ctx, problem.Unavailable)
	defer flow.end()
	if m.o.Workspace {
		flow.stall.Reset(flowSettle) // it may have to read large files before it says anything of them
		// What is there need not travel. A directory that is not there, or is no repository, has nothing.
		if st, err := to.Files("").GitRecent(ctx, at); err == nil {
			out.Have = st.Recent
		}
		if sums, err := to.Files("").Checksums(ctx, at); err == nil {
			defer sums.Close()
			out.Checksums = &told{sums, flow}
		}
		if ctx.Err() != nil {
			return runtime.Imported{}, flow.during(context.Cause(ctx), "%s does not say which files it has", m.to)
		}
	}
	body, err := from.ExportSession(ctx, m.line.Session, out)
	if err != nil {
		return runtime.Imported{}, flow.during(err, "%s does not give it", m.from)
	}
	defer body.Close()
	flow.r = body
	got, err := to.ImportSession(ctx, flow, in)
	m.took(ctx, err)
	if broke := flow.err.Load(); broke != nil && ctx.Err() == nil { // why the other node has refused a part of it
		return got, problem.Wrap(problem.NodeOffline, *broke, "%s did not give all of it", m.from)
	}
	if err != nil {
		return got, flow.during(err, "%s does not take it", m.to)
	}
	return got, nil
}

// took notes how the other node has answered, or that it did not, as what ended the flow says. Only one that has refused it has nothing.
func (m *move) took(ctx context.Context, err error) {
	why, ended := errors.AsType[*problem.Error](context.Cause(ctx))
	m.silent = err != nil && ended && why.Kind == problem.NodeOffline
	p, ok := errors.AsType[*problem.Error](err)
	m.clean = m.clean && ok && ctx.Err() == nil && p.Kind != problem.NodeOffline && p.Kind != problem.Unavailable
}

// flow is what passes from one node to another, or to the hub. One in which nothing moves is ended: as long as it
// is exported to another node the session is closed. It notes why it could not be read to its end.
type flow struct {
	r      io.Reader
	err    atomic.Pointer[error] // who reads may do so when the answer has come
	cancel context.CancelCauseFunc
	ctx    context.Context
	stall  *time.Timer
}

const (
	flowStall  = time.Minute     // without a byte
	flowSettle = 5 * time.Minute // for the node that takes it, when all has come: it writes files, and asks its agent
)

// newFlow returns one that ends as a problem of a kind when nothing moves in it.
func newFlow(ctx context.Context, stalled problem.Kind) (context.Context, *flow) {
	f := &flow{}
	f.ctx, f.cancel = context.WithCancelCause(ctx)
	f.stall = time.AfterFunc(flowStall, func() {
		f.cancel(problem.New(stalled, "nothing has passed for %s", deadline.Words(flowStall)))
	})
	return f.ctx, f
}

// Read implements io.Reader.
func (f *flow) Read(p []byte) (int, error) {
	f.stall.Reset(flowStall)
	n, err := f.r.Read(p)
	switch err {
	case nil:
	case io.EOF:
		f.stall.Reset(flowSettle)
	default:
		f.err.Store(&err)
	}
	return n, err
}

// told is what goes the other way before anything comes in a flow: what a node has already.
type told struct {
	r    io.Reader
	flow *flow
}

// Read implements io.Reader.
func (t *told) Read(p []byte) (int, error) {
	t.flow.stall.Reset(flowSettle)
	n, err := t.r.Read(p)
	if err != nil {
		t.flow.stall.Reset(flowStall)
	}
	return n, err
}

// during is [during], with why the flow was ended if it was.
func (f *flow) during(err error, format string, args ...any) error {
	if p, ok := errors.AsType[*problem.Error](context.Cause(f.ctx)); ok {
		err = p
	}
	return during(err, format, args...)
}

func (f *flow) end() {
	f.stall.Stop()
	f.cancel(nil)
}

// depart has the node close the session, and note where it went. From here on the move goes on
// also when nobody waits for it.
func (m *move) depart(ctx context.Context, from, to *client.Client, got runtime.SessionInfo) error {
	if ctx.Err() != nil {
		return m.giveUp(ctx, endOf(ctx))
	}
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveFor)
	defer cancel()
	edits := &got.Edits
	if got.Edits == 0 && m.here.Edits > 0 {
		edits = nil // a node of an earlier version counts none
	}
	err := from.DepartSession(within, m.line.Session, got.EventCount, edits, nodeScheme+m.to)
	if err == nil {
		return nil
	}
	refused, ok := errors.AsType[*problem.Error](err)
	if isNotFound(err) && m.link != nil && m.link == m.h.links.get(m.from) { // else its disk may be lost
		return m.deleted(within)
	}
	if isNotFound(err) { // at another hub, or it came anew: it is not known why
		why := problem.New(problem.SessionNotFound, "%s has no session %s any more: it was deleted there while it was moved, or its gateway came back without its data", m.from, m.line.Session).With("sessionId", m.line.Session)
		if m.link == nil {
			_ = m.refused(ctx, to, err)
			return why
		}
		_ = m.giveUp(ctx, err)
		why.Detail += fmt.Sprintf("; what has come to %s is all there may be of it, and is still there", m.to)
		return why
	}
	if ok && refused.Kind != problem.NodeOffline && refused.Kind != problem.Unavailable {
		return m.refused(ctx, to, err)
	}
	// One that has let go of it says so also where the answer was lost, or where its disk takes no note of that now.
	if here, failed := from.Session(within, m.line.Session); failed == nil && nodeIn(here) == m.to {
		return nil
	}
	// Whether it has done so is not known. The note stays, as one of nobody: whoever hears of the session finds out.
	if _, failed := m.note(ctx, store.Owner.Left); failed != nil {
		m.later(failed, store.Owner.Left)
		m.h.log.Warn("that nobody does a move any more could not be noted", "session", m.line.Session, "err", failed)
	}
	return during(err, "%s went away while it let go of session %s: when it is back the hub finds out whether it is there or at %s, and says so; if it is lost, move the session again", m.from, m.line.Session, m.to)
}

// isNotFound reports whether a node says that it has no such session.
func isNotFound(err error) bool {
	p, ok := errors.AsType[*problem.Error](err)
	return ok && p.Kind == problem.SessionNotFound
}

// deleted ends the move of a session that was deleted at its node meanwhile: what has come to the other
// one is removed as well.
func (m *move) deleted(ctx context.Context) error {
	if _, err := m.settle(ctx, nil); err != nil {
		m.h.log.Warn("that a move is over could not be noted; it counts as over when its hub does not say otherwise", "session", m.line.Session, "err", err)
	}
	m.forget(ctx, m.from)
	return problem.New(problem.SessionNotFound, "session %s was deleted at %s while it was moved", m.line.Session, m.from).With("sessionId", m.line.Session)
}

// finish ends a move to a node that nobody has ended, and notes that it has the session.
func (m *move) finish(ctx context.Context, node string, last uint64) error {
	_, err := m.settle(ctx, func(o store.Owner) *store.Owner { return handOver(o, node, last, false, 0, "") })
	if err == nil {
		m.h.log.Info("a session has moved", "session", m.line.Session, "from", m.from, "to", node, "last_seq", last, "by", m.caller.ID)
	}
	return err
}

// pass notes that the next node has the session. The note of the move stays until it is over.
func (m *move) pass(ctx context.Context, got runtime.Imported, last uint64, lost bool, missing uint64) error {
	_, err := m.note(ctx, func(o store.Owner) *store.Owner {
		next := handOver(o, m.to, last, lost, missing, got.Session.Cwd)
		next.Moving = o.Moving
		if left := next.Other(o.Node); left != nil && len(got.LeftOut) > 0 {
			left.LeftOut = briefly(got.LeftOut)
		}
		return next
	})
	if err == nil {
		m.h.log.Info("a session has moved", "session", m.line.Session, "from", m.from, "to", m.to, "away", lost, "last_seq", last, "missing", missing, "by", m.caller.ID)
	}
	return err
}

// leavesOut notes what the session does not take along.
func (m *move) leavesOut(ctx context.Context, names []string) error {
	if len(names) == 0 {
		return nil
	}
	_, err := m.note(ctx, func(o store.Owner) *store.Owner {
		moving := *o.Moving
		moving.LeftOut = briefly(names)
		o.Moving = &moving
		return &o
	})
	return err
}

// briefly returns some names, none of them long: they stand in a record, and a node has chosen them.
func briefly(names []string) (out []string) {
	for _, name := range names[:min(len(names), 64)] {
		out = append(out, strings.ToValidUTF8(name[:min(len(name), 256)], ""))
	}
	return out
}

// over takes the note of a move away that is done.
func (m *move) over(ctx context.Context) {
	if _, err := m.settle(ctx, nil); err != nil {
		m.h.log.Warn("that a move is over could not be noted; it counts as over when its hub does not say otherwise", "session", m.line.Session, "err", err)
	}
}

// forget notes that the session was deleted at a node, while the note of its move kept its owner.
func (m *move) forget(ctx context.Context, node string) {
	ctx = context.WithoutCancel(ctx)
	err := m.h.o.Store.SessionDeleted(ctx, m.line, node)
	if err == nil {
		err = m.h.o.Store.ForgetOwner(ctx, m.line)
	}
	if err != nil {
		m.h.log.Warn("what is left of a session that was deleted", "session", m.line.Session, "err", err)
	}
}

// handOver returns the record of a session with the next owner.
func handOver(o store.Owner, node string, last uint64, lost bool, missing uint64, cwd string) *store.Owner {
	now := time.Now().UTC()
	left := store.Other{Node: o.Node, LastSeq: last, Lost: lost, Missing: missing, Term: o.Term, Until: now}
	if o.Moving != nil && o.Moving.To == node {
		left.LeftOut = o.Moving.LeftOut
	}
	next := o.With(left)
	next.Others = slices.DeleteFunc(next.Others, func(l store.Other) bool { return l.Node == node })
	next.Node, next.Term, next.Since, next.Cwd, next.Moving, next.Deleted = node, o.Term+1, now, cwd, nil, nil
	return next
}

// open opens the session at its new node.
func (m *move) open(ctx context.Context, s runtime.SessionInfo) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveFor)
	defer cancel()
	return m.h.tellNode(ctx, m.caller, m.to, s.Agent, request{"session/resume", map[string]any{"sessionId": s.ID, "mcpServers": []any{}}})
}

// takeBack undoes a move whose session the new node does not open, and says so.
func (m *move) takeBack(ctx context.Context, here runtime.SessionInfo, why error) error {
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveFor)
	defer cancel()
	why = during(why, "%s does not open it", m.to)
	metadata := any(map[string]any{})
	if len(here.Metadata) > 0 {
		metadata = here.Metadata
	}
	// Noted as a move back, so that nobody takes what the node still says of itself for the end of one.
	_, err := m.h.o.Store.UpdateOwner(within, m.line, func(had *store.Owner) (*store.Owner, error) {
		if had == nil || had.Node != m.to || had.Moving == nil || had.Moving.ID != m.id {
			return nil, errTaken
		}
		next := handOver(*had, m.from, here.EventCount, false, 0, here.Cwd)
		next.Moving = &store.Moving{ID: m.id, To: m.from, Hub: m.h.o.Store.Hub(), Since: time.Now().UTC()}
		return next, nil
	})
	if err == nil {
		err = m.h.tellNode(within, m.caller, m.from, here.Agent,
			request{"_sandboxagent/session/set_metadata", map[string]any{"sessionId": here.ID, "metadata": metadata}},
			request{"session/resume", map[string]any{"sessionId": here.ID, "mcpServers": []any{}}})
		back := err == nil // kept: this may be noted later
		_, noted := m.settle(within, func(o store.Owner) *store.Owner {
			if !back {
				return handOver(o, m.to, here.EventCount, false, 0, "")
			}
			return &o
		})
		if back && noted != nil && !errors.Is(noted, errTaken) {
			m.h.log.Warn("that a session was taken back is noted when the store is there again", "session", here.ID, "node", m.from, "err", noted)
		} else {
			err = errors.Join(err, noted)
		}
	} else {
		m.later(err, func(o store.Owner) *store.Owner {
			if o.Node == m.from { // it was noted, which the store did not say in time
				return handOver(o, m.to, here.EventCount, false, 0, "")
			}
			return over(o)
		})
	}
	if err != nil {
		m.h.log.Warn("a session could not be taken back", "session", here.ID, "from", m.to, "to", m.from, "err", err)
		return during(why, "session %s is at %s, closed, and could not be taken back (%v)", here.ID, m.to, err)
	}
	return during(why, "session %s was taken back to %s", here.ID, m.from)
}

// arrived says what the session is now.
func (m *move) arrived(ctx context.Context, to *client.Client, got runtime.Imported) (Moved, error) {
	switch now, err := askSession(ctx, to, m.to, got.Session.ID); {
	case err == nil: // else as it came
		got.Session = now
	case isNotFound(err):
		m.forget(ctx, m.to)
	}
	m.awaitListed(ctx, to, got.Session)
	o := m.h.o.Store.Owner(m.line)
	out := Moved{
		SessionID: got.Session.ID, From: m.from, Node: m.to, Cwd: got.Session.Cwd, State: got.Session.State, Continuity: got.Session.Continuity,
		LeftOut: got.LeftOut,
	}
	if o != nil {
		out.Term = o.Term
	}
	if other := o.Other(m.from); other != nil {
		out.LastSeq, out.Missing = other.LastSeq, other.Missing
	}
	if out.LeftOut == nil {
		out.LeftOut = []string{}
	}
	return out, nil
}

// during says at what an error has come. One of a node keeps its kind; what is no problem is one
// of the way to it.
func during(err error, format string, args ...any) error {
	p, ok := errors.AsType[*problem.Error](err)
	if !ok {
		p = problem.Wrap(problem.NodeOffline, err, "the connection broke")
	}
	told := *p
	told.Detail = fmt.Sprintf(format, args...) + ": " + p.Detail
	return &told
}

// ofHub returns an error of the hub's own work: what is no problem is not one of the way to a node.
func ofHub(err error) error {
	if _, ok := errors.AsType[*problem.Error](err); ok {
		return err
	}
	return problem.Wrap(problem.Unavailable, err, "the hub cannot use what it has of it: %v", err)
}
