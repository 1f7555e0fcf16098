package relay

import (
	"context"
	"encoding/json"
	"iter"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/version"
	"sandboxagent.dev/sandbox-agent/fleet/store"
	"sandboxagent.dev/sandbox-agent/runtime/journal"
	"sandboxagent.dev/sandbox-agent/runtime/observe"
	"sandboxagent.dev/sandbox-agent/runtime/viewer"
)

const (
	abandonedAfter = 60 * time.Second // without a stream or a request; as at a gateway
	lookEvery      = 5 * time.Second  // for connections that are abandoned, and sessions that are read
	maxClients     = 16384            // connections; more are refused
	maxUnread      = 256 << 20        // bytes of answers that clients do not fetch, of all together
)

// Fleet is what a Gateway asks its hub. Its errors are *problem.Error.
type Fleet interface {
	// Caller returns who a request is of, and what is closed when that token is worth
	// nothing any more; nil is never.
	Caller(ctx context.Context) (store.Token, <-chan struct{})
	// Nodes returns the nodes that a token is for.
	Nodes(t store.Token) []Node
	// Node returns one of them.
	Node(t store.Token, name string) (Node, error)
	// Away says why a node cannot be asked now, nil when it can.
	Away(name string) error
	// Dial opens a connection to a node's gateway. If it is to wait, it does so until the
	// node is there.
	Dial(ctx context.Context, t store.Token, name string, wait bool) (acp.Conn, error)
	// Find returns the session with the id, of the node if one is named, where it is now.
	Find(t store.Token, id, node string) (Found, error)
	// Moving returns the owner of a session, nil where none is noted, and the id of its move if it is on its way to another node,
	// else "": who was told of changes was told of that. Settle waits until there is none, for HoldFor at most. Before that it waits
	// until the hub has heard that the session left a node, if one is named, for HearFor at most.
	Moving(t store.Token, id string) (o *store.Owner, move string)
	Settle(ctx context.Context, t store.Token, id, left string)
	// Copy returns what the store has of a session behind an event, of the node if one is named.
	Copy(ctx context.Context, t store.Token, id, node string, after uint64) (Copy, error)
	// Move moves a session to another node, and returns what is told of that.
	Move(ctx context.Context, t store.Token, id string, to Destination) (any, error)
	// List returns a page of sessions.
	List(ctx context.Context, t store.Token, q Query) (Page, error)
}

// Node is a node as it is chosen among others.
type Node struct {
	Name   string            `json:"name"`
	State  string            `json:"state"`
	Labels map[string]string `json:"labels"`
	Agents []string          `json:"agents"` // nil when it has not said
	Online bool              `json:"-"`
	// Returns says of one that is not online that it is expected in a moment: what is sent to it waits for it.
	Returns bool `json:"-"`
	Load    int  `json:"-"` // sessions that work there
}

// Destination is where a session is to be moved.
type Destination struct {
	Node, Cwd string
	Labels    map[string]string
	Workspace bool
}

// Found is a session of the store.
type Found struct {
	Node, Agent string
}

// Copy is what the store has of a session.
type Copy struct {
	Updates iter.Seq2[acp.Message, error] // as the node gives them to a client of version 1
	Whole   func() bool                   // whether none was missing, as far as is known when they were read
	Meta    map[string]any                // what it is a copy of
}

// Query selects sessions of a list; what is "" or nil selects all.
type Query struct {
	Node, Agent, Cwd, Cursor string
	Labels                   map[string]string
}

// Page is a page of session/list.
type Page struct {
	Sessions []Listed `json:"sessions"`
	Next     string   `json:"nextCursor,omitempty"`
}

// Listed is a session in it.
type Listed struct {
	SessionID string                    `json:"sessionId"`
	Cwd       string                    `json:"cwd"`
	Title     string                    `json:"title,omitempty"`
	UpdatedAt string                    `json:"updatedAt"`
	Meta      map[string]map[string]any `json:"_meta"`
}

// Gateway is the hub as an [acp.Gateway]. It is safe for concurrent use.
type Gateway struct {
	fleet   Fleet
	version string // of the program
	log     *slog.Logger

	observer Observer // nil for none

	work   sync.WaitGroup
	last   atomic.Int64 // number of the newest client
	unread *viewer.Unread

	mu      sync.Mutex
	closed  bool
	clients map[string]*Client
	placing map[string]int  // sessions that nodes are asked for, by node
	made    map[string]made // sessions of which the store may not have heard yet, by id; at most maxMade
}

// made is a session that a client has made.
type made struct {
	node string
	at   time.Time
}

const (
	// HearFor is how long the store may take to hear of a session that a client has made.
	HearFor = 5 * time.Second
	maxMade = 1000 // beyond that who made one waits for it
)

var _ acp.Gateway = (*Gateway)(nil)

// Observer is told of the requests of clients.
type Observer interface {
	// Begin says that one begins. A span that has a method At is told the node that does the work.
	Begin(ctx context.Context, w observe.Work) observe.Span
}

// Options configure a Gateway.
type Options struct {
	Version  string   // of the program
	Observer Observer // nil for none
	Logger   *slog.Logger
}

// New returns a Gateway without connections.
func New(fleet Fleet, o Options) *Gateway {
	return &Gateway{fleet: fleet, version: o.Version, observer: o.Observer, log: o.Logger, unread: viewer.NewUnread(maxUnread), clients: map[string]*Client{}, placing: map[string]int{}, made: map[string]made{}}
}

// Connect implements [acp.Gateway].
func (g *Gateway) Connect(ctx context.Context, m acp.Message, o acp.ConnectOptions) (acp.Client, acp.Reply, error) {
	choice, refused := version.Choose(&m, version.All())
	if refused != nil {
		return nil, acp.Reply{}, refused
	}
	if refused := acp.NeedOwnTexts(m.Meta(), "agent"); refused != nil {
		return nil, acp.Reply{}, refused
	}
	if o.ID == "" {
		o.ID = uuid.NewString()
	}
	token, over := g.fleet.Caller(ctx)
	c := &Client{
		Client: viewer.NewClient(o.ID, journal.Recipient(g.last.Add(1)), viewer.Capabilities{}, o.Shape, nil, g.unread),
		g:      g, token: token, onClose: o.OnClose, agent: o.Agent,
		lines: map[string]*line{}, sessions: map[string]*session{}, lost: map[string]lost{}, asks: map[int64]*ask{},
	}
	c.greetLocked(m, choice)
	c.ctx, c.end = context.WithCancel(context.Background())
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		c.end()
		return nil, acp.Reply{}, problem.New(problem.Unavailable, "the hub is shutting down")
	}
	if len(g.clients) >= maxClients {
		c.end()
		return nil, acp.Reply{}, problem.New(problem.TooManyRequests, "the hub has %d ACP connections: end some", maxClients)
	}
	g.clients[c.ID()] = c
	g.work.Go(func() { c.tend(over) })
	res := acp.NewResult(m.ID(), g.initialized(c))
	return c, acp.Reply{Frame: res.Frame()}, nil
}

// Owner returns the id of the token that opened a connection, "" when there is none with
// this id.
func (g *Gateway) Owner(connection string) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c := g.clients[connection]; c != nil {
		return c.token.ID
	}
	return ""
}

// Count returns how many connections there are.
func (g *Gateway) Count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.clients)
}

// Open returns how many sessions of each node clients of this hub have open.
func (g *Gateway) Open() map[string]int {
	n := map[string]int{}
	for _, c := range g.all() {
		c.mu.Lock()
		for _, s := range c.sessions {
			n[s.at().node]++
		}
		c.mu.Unlock()
	}
	return n
}

// noteMade notes that a client has made a session.
func (g *Gateway) noteMade(id, node string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	maps.DeleteFunc(g.made, func(_ string, m made) bool { return time.Since(m.at) > HearFor })
	if len(g.made) < maxMade {
		g.made[id] = made{node, time.Now()}
	}
}

// Deleted is told of a session that was deleted at its node. Clients that have it open are told by the node: to
// others it is there no more. It does not wait.
func (g *Gateway) Deleted(id, node string) {
	g.ForgetMade(id)
	for _, c := range g.all() {
		c.mu.Lock()
		if s := c.sessions[id]; s != nil && s.at().node == node {
			s.gone.Store(true)
		}
		c.mu.Unlock()
	}
}

// ForgetMade is told of a session that was deleted, or of which the store has heard.
func (g *Gateway) ForgetMade(id string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.made, id)
}

// Made returns the nodes of the sessions, by their ids, that clients have just made at nodes for which the token is.
func (g *Gateway) Made(t store.Token) map[string]string {
	out := map[string]string{}
	g.mu.Lock()
	for id, m := range g.made {
		if time.Since(m.at) <= HearFor {
			out[id] = m.node
		}
	}
	g.mu.Unlock()
	maps.DeleteFunc(out, func(_, node string) bool {
		_, err := g.fleet.Node(t, node)
		return err != nil
	})
	return out
}

// Opened returns the node at which a client of this hub has the session open, or has made it just now,
// "" for none. The store hears of a new session a moment later.
func (g *Gateway) Opened(t store.Token, id string) string {
	may := func(node string) bool {
		_, err := g.fleet.Node(t, node)
		return err == nil
	}
	for _, c := range g.all() {
		c.mu.Lock()
		s := c.sessions[id]
		c.mu.Unlock()
		if s != nil && !s.gone.Load() && may(s.at().node) {
			return s.at().node
		}
	}
	g.mu.Lock()
	m := g.made[id]
	g.mu.Unlock()
	if m.node == "" || time.Since(m.at) > HearFor || !may(m.node) {
		return ""
	}
	return m.node
}

func (g *Gateway) all() []*Client {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := make([]*Client, 0, len(g.clients))
	for _, c := range g.clients {
		out = append(out, c)
	}
	return out
}

func (g *Gateway) forget(c *Client) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.clients, c.ID())
}

// Close ends all connections and waits for what belongs to them.
func (g *Gateway) Close() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	for _, c := range g.all() {
		c.Close()
	}
	g.work.Wait()
}

// maxNamed bounds the nodes that initialize names; all of them are at /v2/nodes.
const maxNamed = 100

// initialized is the answer to initialize: what every gateway can, and what the hub passes
// on. What an agent can is in the answer to session/new.
func (g *Gateway) initialized(c *Client) json.RawMessage {
	nodes := g.fleet.Nodes(c.token)
	var agents []string
	seen := map[string]bool{}
	for _, n := range nodes {
		for _, a := range n.Agents {
			if (n.Online || n.Returns) && !seen[a] {
				seen[a] = true
				agents = append(agents, a)
			}
		}
	}
	own := map[string]any{
		"hub": true, "version": g.version, "scope": c.token.Scope, "nodeCount": len(nodes), "nodes": nodes[:min(len(nodes), maxNamed)], "agents": agents,
		"extensions": map[string]any{"methods": extensions, "eventIds": true, "watch": true},
	}
	b, err := json.Marshal(own)
	if err != nil {
		b = []byte(`{"hub":true}`) // labels and names are plain text
	}
	res := json.RawMessage(`{"protocolVersion":1,"agentCapabilities":{"loadSession":true,` +
		`"promptCapabilities":{"image":true,"audio":true,"embeddedContext":true},"mcpCapabilities":{"http":true,"sse":true},` +
		`"sessionCapabilities":{"list":{},"resume":{},"close":{},"delete":{},"fork":{}}},"authMethods":[]}`)
	res = rawjson.SetMember(res, rawjson.Object{}.String("name", "sandbox-hub").String("version", g.version).End(), "agentInfo")
	res = rawjson.SetMember(res, b, "agentCapabilities", "_meta", acp.MetaKey)
	if c.two {
		return version.Initialized(res)
	}
	return res
}
