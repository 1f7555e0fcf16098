package runtime

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/acp/version"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/runtime/agents"
	"sandboxagent.dev/sandbox-agent/runtime/journal"
	"sandboxagent.dev/sandbox-agent/runtime/session"
	"sandboxagent.dev/sandbox-agent/runtime/viewer"
)

// Client is the connection of one ACP client: a reader of logs, with the agent that
// initialize named. It implements [acp.Client].
type Client struct {
	*viewer.Client
	r       *Runtime
	agent   *agents.Agent // nil when it only watches
	watch   bool
	needs   agents.Needs                   // what its process is started for
	process atomic.Pointer[agents.Process] // of the agent; held, nil when the connection has ended
	onClose func(id string)
	asked   atomic.Bool // something other than initialize, in version 2
}

var _ acp.Client = (*Client)(nil)

// Connect opens a connection with its initialize request. It implements
// [acp.Gateway].
func (r *Runtime) Connect(ctx context.Context, m acp.Message, o acp.ConnectOptions) (acp.Client, acp.Reply, error) {
	if r.closing.Load() {
		return nil, acp.Reply{}, agents.ErrShutdown
	}
	choice, refused := version.Choose(&m, r.o.Versions)
	if refused != nil {
		return nil, acp.Reply{}, refused
	}
	if refused := acp.NeedOwnTexts(m.Meta(), "agent"); refused != nil {
		return nil, acp.Reply{}, refused
	}
	name := rawjson.MemberString(m.Meta(), acp.MetaKey, "agent")
	if name == "" {
		name = o.Agent
	}
	caps := capabilitiesOf(choice)
	if o.ID == "" {
		o.ID = uuid.NewString()
	}
	if caps.Watch {
		c := r.newClient(caps, o)
		r.addClient(c)
		res := acp.NewResult(m.ID(), c.initialized(nil))
		return c, acp.Reply{Frame: res.Frame()}, nil
	}
	a, err := r.agents.Named(name)
	if err != nil {
		return nil, acp.Reply{}, err
	}
	// An agent process is shared, and is told of who asks first: what one client got wrong would be the end of it for
	// the others too.
	info, _ := rawjson.Member(choice.Params, "clientInfo")
	if json.Unmarshal(info, new(schema.Implementation)) != nil {
		info = nil
	}
	c := r.newClient(caps, o)
	c.agent = a
	c.needs = agents.Needs{
		Capabilities: r.sessions.Offered(c.Capabilities().Raw), ClientInfo: bytes.Clone(info),
		Progress: func(p adapters.InstallProgress) { c.Post(journal.Notice, progressFrame(p)) },
	}
	n := c.needs
	n.Progress = nil
	var mu sync.Mutex
	connected := false
	if o.Notify != nil {
		n.Progress = func(p adapters.InstallProgress) {
			mu.Lock()
			defer mu.Unlock()
			if !connected && c.Capabilities().WantsNotices() {
				o.Notify(progressFrame(p))
			}
		}
	}
	p, err := a.Process(ctx, n)
	mu.Lock()
	connected = true // from here on the transport writes by itself
	mu.Unlock()
	if err != nil {
		return nil, acp.Reply{}, err
	}
	p.Reserve()
	c.process.Store(p)
	r.addClient(c)
	r.sessions.AskLate(c.Client, p)
	res := acp.NewResult(m.ID(), c.initialized(p))
	return c, acp.Reply{Frame: res.Frame()}, nil
}

func (r *Runtime) newClient(caps viewer.Capabilities, o acp.ConnectOptions) *Client {
	return &Client{
		Client: viewer.NewClient(o.ID, journal.Recipient(r.lastClient.Add(1)), caps, o.Shape, r.sessions.Asks(), r.unread),
		r:      r, onClose: o.OnClose, watch: caps.Watch,
	}
}

func (r *Runtime) addClient(c *Client) {
	c.Touch()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clients[c.ID()] = c
}

// capabilitiesOf reads what initialize says of the client.
func capabilitiesOf(choice version.Choice) viewer.Capabilities {
	raw, _ := rawjson.Member(choice.Params, "clientCapabilities")
	caps := viewer.ReadCapabilities(bytes.Clone(raw))
	caps.Version = choice.Version
	return caps
}

// initialized is the answer to initialize in the connection's version.
func (c *Client) initialized(p *agents.Process) json.RawMessage {
	res := c.r.initializeResult(p)
	if c.Capabilities().Two() {
		return version.Initialized(res)
	}
	return res
}

// initializeResult is the agent's own answer with what the gateway adds. p is nil for who only watches.
func (r *Runtime) initializeResult(p *agents.Process) json.RawMessage {
	res, agent := json.RawMessage("{}"), ""
	if p != nil {
		res, agent = p.Initialized(), p.Agent().ID()
	}
	set := func(value string, path ...string) { res = rawjson.SetMember(res, []byte(value), path...) }
	set("1", "protocolVersion")
	set("true", "agentCapabilities", "loadSession")
	can := []string{"list", "resume", "close", "delete"}
	if p == nil {
		can = can[:2]
	}
	for _, name := range can {
		if _, ok := rawjson.Member(res, "agentCapabilities", "sessionCapabilities", name); !ok {
			set("{}", "agentCapabilities", "sessionCapabilities", name)
		}
	}
	if _, ok := rawjson.Member(res, "agentInfo"); !ok {
		info, _ := schema.Encode(map[string]string{"name": cmp.Or(agent, "sandbox-agent"), "version": r.o.Version})
		set(string(info), "agentInfo")
	}
	if _, ok := rawjson.Member(res, "authMethods"); !ok {
		set("[]", "authMethods")
	}
	said := map[string]any{"agents": r.agents.Names(), "version": r.o.Version, "extensions": r.extensions()}
	if p != nil {
		said["agent"] = agent
	}
	own, _ := schema.Encode(said)
	set(string(own), "agentCapabilities", "_meta", acp.MetaKey)
	return res
}

// needsFor adds what a session asks of its process in its _meta.
func (c *Client) needsFor(a *agents.Agent, cwd string, m *acp.Message) (agents.Needs, error) {
	n, err := c.needsOf(m.Meta())
	n.Alone = n.Alone || a.Info().PerSession
	n.Dir = cwd
	if n.Raw {
		n.Secrets = session.ServerSecrets(m.Params())
	}
	return n, err
}

// needsOf adds to what the connection asks of processes what a _meta does.
func (c *Client) needsOf(meta json.RawMessage) (agents.Needs, error) {
	n := c.needs
	if err := n.Read(meta); err != nil {
		return n, err
	}
	return n, nil
}

// progressFrame is the notification that tells a client of an installation.
func progressFrame(p adapters.InstallProgress) []byte {
	b, err := schema.Encode(p)
	if err != nil {
		return nil
	}
	n := acp.NewNotification("_sandboxagent/agent/install_progress", b)
	return n.Frame()
}

// Close ends the connection. Its sessions go on.
func (c *Client) Close() {
	if !c.Client.Close() {
		return
	}
	c.r.mu.Lock()
	delete(c.r.clients, c.ID())
	c.r.mu.Unlock()
	c.release()
	if c.onClose != nil {
		c.onClose(c.ID())
	}
}

// release gives the connection's process back.
func (c *Client) release() {
	if p := c.process.Swap(nil); p != nil {
		p.Unreserve()
	}
}

// Stream implements [acp.Client].
func (c *Client) Stream(id string, after *uint64) (acp.Stream, error) {
	st, err := c.Client.Stream(id, after)
	if err != nil {
		return nil, err
	}
	return st, nil
}

// AwaitWritten implements [acp.Client].
func (c *Client) AwaitWritten(ctx context.Context, r acp.Reply, bound time.Duration) uint64 {
	var s viewer.Session
	if known := c.r.sessions.Find(r.Session); known != nil {
		s = known
	}
	return c.AwaitEntry(ctx, s, r.Seq-1, bound) // the response itself is not on the stream
}

// withProcess calls f with the connection's process. When that has ended a new one is
// started first, and f is called on another goroutine. When that fails the request is answered.
func (c *Client) withProcess(q *viewer.Request, m *acp.Message, f func(p *agents.Process, m *acp.Message)) {
	if p := c.process.Load(); p != nil && p.Takes() {
		f(p, m)
		return
	}
	c.withProcessForNew(q, m, func() {}, f)
}

// withProcessForNew is withProcess for a session that begins, and always calls f on another goroutine: it looks
// at the disk whether somebody has installed another program. When it fails failed is called.
func (c *Client) withProcessForNew(q *viewer.Request, m *acp.Message, failed func(), f func(p *agents.Process, m *acp.Message)) {
	own := m.Clone()
	c.r.tasks.Go(func() {
		p := c.process.Load()
		if p == nil || !p.TakesNew() {
			var err error
			if p, err = c.restart(c.r.within(q)); err != nil {
				failed()
				q.Fail(nil, err)
				return
			}
		}
		f(p, &own)
	})
}

// restart gives the connection a new process of its agent.
func (c *Client) restart(ctx context.Context) (*agents.Process, error) {
	p, err := c.agent.Process(ctx, c.needs)
	if err != nil {
		return nil, err
	}
	p.Reserve()
	if old := c.process.Swap(p); old != nil {
		old.Unreserve()
	}
	c.r.sessions.AskLate(c.Client, p)
	if c.Closed() { // behind the swap: one of Close's own may have been before it
		c.release()
	}
	return p, nil
}

var _ viewer.Session = (*session.Session)(nil)
