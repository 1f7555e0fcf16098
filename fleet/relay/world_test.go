package relay

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/fleet/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a hub whose nodes are in the hands of a test.
type world struct {
	t     *testing.T
	g     *Gateway
	scope store.Scope
	found map[string]string // nodes of sessions
	copy  []string          // frames of one that is copied; nil is none
	two   bool              // nodes and clients speak version 2 of the protocol

	owner   *store.Owner  // of the session, as the store tells it
	settled chan struct{} // is closed when the sessions are moved no more; nil when none is
	heard   chan struct{} // is closed when the hub has heard that a session left a node
	looking chan struct{} // who looks for a node waits for it; nil for nobody

	mu          sync.Mutex
	nodes       map[string]*far
	unreachable bool // whatever the store says
}

// far is a node.
type far struct {
	t     *testing.T
	node  Node
	back  chan struct{} // closed when it is online
	wires chan *wire    // that were dialed
}

func newWorld(t *testing.T, nodes ...string) *world {
	w := &world{t: t, scope: store.ScopeDrive, found: map[string]string{}, nodes: map[string]*far{}}
	for _, name := range nodes {
		f := &far{t: t, node: Node{Name: name, Agents: []string{"mock"}, Online: true}, back: make(chan struct{}), wires: make(chan *wire, 8)}
		close(f.back)
		w.nodes[name] = f
	}
	w.g = New(w, Options{Version: "test", Logger: slog.New(slog.DiscardHandler)})
	return w
}

// set has a node leave or come back.
func (w *world) set(name string, online bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f := w.nodes[name]
	if f.node.Online = online; online {
		close(f.back)
	} else {
		f.back = make(chan struct{})
	}
}

// forget has the fleet know nothing more of a node that is away.
func (w *world) forget(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.nodes[name].back)
	delete(w.nodes, name)
}

func (w *world) Caller(context.Context) (store.Token, <-chan struct{}) {
	return store.Token{ID: "token", Kind: store.KindClient, Scope: w.scope}, nil
}

func (w *world) Nodes(store.Token) (out []Node) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range w.nodes {
		out = append(out, f.node)
	}
	slices.SortFunc(out, func(a, b Node) int { return strings.Compare(a.Name, b.Name) })
	return out
}

func (w *world) Node(_ store.Token, name string) (Node, error) {
	w.mu.Lock()
	looking := w.looking
	w.mu.Unlock()
	if looking != nil {
		<-looking
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	f := w.nodes[name]
	if f == nil {
		return Node{}, problem.New(problem.NodeNotFound, "no %s", name)
	}
	return f.node, nil
}

func (w *world) Away(name string) error {
	n, err := w.Node(store.Token{}, name)
	if err == nil && !n.Online {
		err = problem.New(problem.NodeOffline, "%s is away", name)
	}
	return err
}

func (w *world) Dial(ctx context.Context, _ store.Token, name string, wait bool) (acp.Conn, error) {
	w.mu.Lock()
	f := w.nodes[name]
	back, unreachable := f.back, w.unreachable
	w.mu.Unlock()
	if unreachable {
		return nil, problem.New(problem.NodeOffline, "%s cannot be reached", name)
	}
	if !wait {
		if err := w.Away(name); err != nil {
			return nil, err
		}
	}
	select {
	case <-back:
	case <-ctx.Done():
		return nil, cmp.Or(w.Away(name), ctx.Err()) // it can be back in this moment
	}
	if err := w.Away(name); err != nil {
		return nil, err // it was forgotten
	}
	c := newWire(w.t)
	f.wires <- c
	return c, nil
}

func (w *world) Find(_ store.Token, id, node string) (Found, error) {
	at, ok := w.found[id]
	if !ok || node != "" && node != at {
		return Found{}, problem.New(problem.SessionNotFound, "no session %s", id)
	}
	return Found{Node: at, Agent: "mock"}, nil
}

func (w *world) Moving(store.Token, string) (*store.Owner, string) {
	if w.settled != nil {
		return nil, "move"
	}
	return w.owner, ""
}

func (w *world) Settle(ctx context.Context, _ store.Token, _, left string) {
	until := w.settled
	if left != "" {
		until = w.heard
	}
	select {
	case <-until:
	case <-ctx.Done():
	}
}

func (w *world) Copy(context.Context, store.Token, string, string, uint64) (Copy, error) {
	if w.copy == nil {
		return Copy{}, problem.New(problem.SessionNotFound, "no copy")
	}
	return Copy{Meta: map[string]any{}, Whole: func() bool { return true }, Updates: func(yield func(acp.Message, error) bool) {
		for _, frame := range w.copy {
			if !yield(acp.MustParse([]byte(frame)), nil) {
				return
			}
		}
	}}, nil
}

func (w *world) Move(_ context.Context, _ store.Token, id string, to Destination) (any, error) {
	if to.Node == "" {
		return nil, problem.New(problem.NodeNotFound, "nowhere to go")
	}
	return map[string]string{"sessionId": id, "node": to.Node}, nil
}

func (w *world) List(context.Context, store.Token, Query) (Page, error) { return Page{}, nil }

// wire is the hub's connection to a node, whose other end the test has.
type wire struct {
	t           *testing.T
	toNode, hub chan acp.Message
	ended       chan struct{}
	once        sync.Once
}

func newWire(t *testing.T) *wire {
	return &wire{t: t, toNode: make(chan acp.Message), hub: make(chan acp.Message), ended: make(chan struct{})}
}

func (w *wire) Read(ctx context.Context) (acp.Message, error) {
	select {
	case m := <-w.hub:
		return m, nil
	case <-w.ended:
		return acp.Message{}, problem.New(problem.NodeOffline, "it broke")
	case <-ctx.Done():
		return acp.Message{}, ctx.Err()
	}
}

func (w *wire) Write(ctx context.Context, m acp.Message) error {
	select {
	case w.toNode <- m.Clone():
		return nil
	case <-w.ended:
		return io.ErrClosedPipe
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (w *wire) Close() error {
	w.once.Do(func() { close(w.ended) })
	return nil
}

// takes returns the next message that the node is sent, which must have the method.
func (w *wire) takes(method string) *acp.Message {
	w.t.Helper()
	synctest.Wait()
	select {
	case m := <-w.toNode:
		if m.Method() != method {
			w.t.Fatalf("the node was sent %s, want %s", m.Frame(), method)
		}
		return &m
	default:
		w.t.Fatalf("the node was not sent %s", method)
	}
	return nil
}

// says sends a frame of the node.
// takesNothing fails when the node is sent something.
func (w *wire) takesNothing() {
	w.t.Helper()
	synctest.Wait()
	select {
	case m := <-w.toNode:
		w.t.Fatalf("the node was sent %s", m.Frame())
	default:
	}
}

func (w *wire) says(format string, args ...any) {
	w.hub <- acp.MustParse(fmt.Appendf(nil, format, args...))
}

func (w *wire) answers(m *acp.Message, result string) {
	w.hub <- acp.NewResult(m.ID(), []byte(result))
}

// dialed returns the connection that the hub has opened to a node, initialized.
func (w *world) dialed(name string) *wire {
	w.t.Helper()
	synctest.Wait()
	select {
	case c := <-w.nodes[name].wires:
		if w.two {
			c.answers(c.takes("initialize"), `{"protocolVersion":2,"capabilities":{}}`)
			return c
		}
		c.answers(c.takes("initialize"), `{"protocolVersion":1,"agentCapabilities":{"promptCapabilities":{"image":true},"_meta":{"sandboxagent.dev":{"agent":"mock"}}}}`)
		return c
	default:
		w.t.Fatalf("nobody has dialed %s", name)
	}
	return nil
}

// editor is a client of the hub with one stream for all.
type editor struct {
	t  *testing.T
	c  acp.Client
	st acp.Stream
}

func (w *world) connect(params string, shape acp.Shape) *editor {
	w.t.Helper()
	c, reply, err := w.g.Connect(w.t.Context(), acp.NewRequest("0", "initialize", []byte(params)), acp.ConnectOptions{Shape: shape})
	if err != nil {
		w.t.Fatal(err)
	}
	place := "agentCapabilities"
	if w.two {
		place = "capabilities"
	}
	if hub := rawjson.MemberBool(reply.Frame, "result", place, "_meta", acp.MetaKey, "hub"); !hub {
		w.t.Errorf("it does not say that it is a hub: %s", reply.Frame)
	}
	e := &editor{t: w.t, c: c}
	if shape == acp.OneStream {
		if e.st, err = c.Stream("", nil); err != nil {
			w.t.Fatal(err)
		}
	}
	w.t.Cleanup(w.g.Close)
	return e
}

const plainHello = `{"protocolVersion":1,"clientCapabilities":{"fs":{"readTextFile":true},"terminal":true,"_meta":{"sandboxagent.dev":{"notices":true}}}}`

func (e *editor) send(format string, args ...any) {
	e.t.Helper()
	if err := e.c.Send(e.t.Context(), acp.MustParse(fmt.Appendf(nil, format, args...))); err != nil {
		e.t.Fatal(err)
	}
}

// gets returns what has come, all of it.
func (e *editor) gets() (out []acp.Message) {
	e.t.Helper()
	out, err := e.polls()
	if err != nil {
		e.t.Fatal(err)
	}
	return out
}

func (e *editor) polls() (out []acp.Message, err error) {
	for {
		synctest.Wait()
		events, err := e.st.Poll(64 << 10)
		if err != nil || len(events) == 0 {
			return out, err
		}
		for _, ev := range events {
			m := acp.MustParse(ev.Frame)
			out = append(out, m.Clone())
		}
		e.st.Written()
	}
}

// got is gets with an identifying word for each message.
func (e *editor) got() (out []string) {
	e.t.Helper()
	for _, m := range e.gets() {
		switch {
		case m.Err() != nil:
			kind := rawjson.MemberString(m.Err().Data, "type")
			out = append(out, string(m.ID())+" "+kind[strings.LastIndex(kind, ":")+1:])
		case m.IsResponse():
			out = append(out, string(m.ID())+" ok")
		case m.Method() == methodNodeState:
			out = append(out, rawjson.MemberString(m.Params(), "node")+" "+rawjson.MemberString(m.Params(), "state"))
		case string(m.UpdateKind()) == "state_update":
			out = append(out, strings.TrimSpace(m.Session()+" is "+rawjson.MemberString(m.Update(), "state")+" "+rawjson.MemberString(m.Update(), "stopReason")))
		case m.Method() == methodTurnEnded:
			kind := rawjson.MemberString(m.Params(), "error", "data", "type")
			out = append(out, rawjson.MemberString(m.Params(), "promptId")+" ended "+kind[strings.LastIndex(kind, ":")+1:])
		case m.Method() == acp.MethodSessionUpdate:
			out = append(out, m.Session()+" "+rawjson.MemberString(m.Update(), "text"))
		case m.IsRequest():
			out = append(out, "asked "+string(m.ID()))
		default:
			out = append(out, m.Method()+" "+string(m.Params()))
		}
	}
	return out
}

// opens has the client make a session at a node, and returns the way to that.
func (w *world) opens(e *editor, node, id string) *wire {
	w.t.Helper()
	e.send(`{"jsonrpc":"2.0","id":"new","method":"session/new","params":{"cwd":"/","_meta":{"sandboxagent.dev":{"node":%q}}}}`, node)
	c := w.dialed(node)
	c.answers(c.takes("session/new"), `{"sessionId":"`+id+`"}`)
	if got := e.got(); fmt.Sprint(got) != `["new" ok]` {
		w.t.Fatalf("session/new: %q", got)
	}
	return c
}

func update(session string, seq int, text string) string {
	b, _ := json.Marshal(text) // of a string
	return fmt.Sprintf(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":%q,"update":{"sessionUpdate":"x","text":%s},"_meta":{"sandboxagent.dev":{"seq":%d}}}}`, session, b, seq)
}

// looks has whoever looks for a node wait for a channel, nil for nothing.
func (w *world) looks(wait chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.looking = wait
}
