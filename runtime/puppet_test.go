package runtime

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/adapters"
)

// puppet is an agent that does what the test says, and nothing by itself but to
// answer initialize and the first session/new.
type puppet struct {
	caps  string
	alone bool // every session has a process of its own

	mu      sync.Mutex
	slow    bool          // starts wait
	gate    chan struct{} // closed when they go on
	conns   []*puppetConn
	prompts map[int]int // the newest that came of each person
	newest  int         // of all people
	ended   int         // the newest thing by which people end what was asked before
}

// came notes a prompt, and returns what is wrong with it.
func (a *puppet) came(m *acp.Message) string {
	first, _ := rawjson.Member(m.Params(), "prompt")
	var who, n int
	if _, err := fmt.Sscanf(rawjson.MemberString(rawjson.Elements(first)[0], "text"), "%d %d", &who, &n); err != nil {
		return err.Error()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	before := a.prompts[who]
	a.prompts[who], a.newest = n, n
	if n <= before {
		return fmt.Sprintf("prompt %d of client %d came behind %d", n, who, before)
	}
	return ""
}

// ends reports whether somebody may have ended what the agent was asked last.
func (a *puppet) ends() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.ended > a.newest
}

func (a *puppet) Info() adapters.Info {
	return adapters.Info{ID: "puppet", Name: "puppet", Kind: adapters.Bridge, PerSession: a.alone}
}

func (a *puppet) Open(ctx context.Context, _ adapters.Options) (acp.Conn, error) {
	a.mu.Lock()
	gate := a.gate
	slow := a.slow
	a.mu.Unlock()
	if slow {
		select {
		case <-gate:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	c := &puppetConn{agent: a, end: make(chan struct{}), wake: make(chan struct{}, 1), asked: map[string]bool{}, open: map[string]int64{}}
	a.mu.Lock()
	c.n = len(a.conns)
	a.conns = append(a.conns, c)
	a.mu.Unlock()
	return c, nil
}

// setSlow makes starts wait, or go on.
func (a *puppet) setSlow(slow bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if slow && !a.slow {
		a.gate = make(chan struct{})
	}
	if !slow && a.slow {
		close(a.gate)
	}
	a.slow = slow
}

// each calls f for the processes that live, the newest first, until it returns true.
func (a *puppet) each(f func(c *puppetConn) bool) {
	a.mu.Lock()
	conns := slices.Clone(a.conns)
	a.mu.Unlock()
	for _, c := range slices.Backward(conns) {
		if !c.ended() && f(c) {
			return
		}
	}
}

type puppetConn struct {
	agent *puppet
	n     int
	end   chan struct{}
	wake  chan struct{}
	once  sync.Once

	mu       sync.Mutex
	out      []acp.Message
	requests []acp.Message    // of the gateway, not answered
	asked    map[string]bool  // requests of the agent, by id: whether they were answered
	open     map[string]int64 // sessions: which request opened them
	faults   []string
	nextAsk  int
}

func (c *puppetConn) ended() bool {
	select {
	case <-c.end:
		return true
	default:
		return false
	}
}

func (c *puppetConn) Close() error { c.once.Do(func() { close(c.end) }); return nil }

func (c *puppetConn) Read(context.Context) (acp.Message, error) {
	for {
		c.mu.Lock()
		if len(c.out) > 0 {
			m := c.out[0]
			c.out = c.out[1:]
			c.mu.Unlock()
			return m, nil
		}
		c.mu.Unlock()
		select {
		case <-c.wake:
		case <-c.end:
			return acp.Message{}, io.EOF
		}
	}
}

func (c *puppetConn) Write(_ context.Context, m acp.Message) error {
	if c.ended() {
		return io.ErrClosedPipe
	}
	m = m.Clone()
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case m.IsResponse():
		id := string(m.ID())
		if done, was := c.asked[id]; !was || done {
			c.faults = append(c.faults, "the agent was answered twice or unasked: "+string(m.Frame()))
		}
		c.asked[id] = true
	case m.Method() == "initialize":
		c.sayLocked(acp.NewResult(m.ID(), []byte(`{"protocolVersion":1,"agentCapabilities":`+c.agent.caps+`}`)))
	case m.IsRequest():
		c.requests = append(c.requests, m)
	}
	switch m.Method() {
	case "session/prompt":
		if fault := c.agent.came(&m); fault != "" {
			c.faults = append(c.faults, fault)
		}
	case "session/cancel":
		if !c.agent.ends() {
			c.faults = append(c.faults, "a prompt was cancelled that is newer than what could end it")
		}
	}
	return nil
}

func (c *puppetConn) sayLocked(m acp.Message) {
	c.out = append(c.out, m)
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (c *puppetConn) say(frame string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sayLocked(acp.MustParse([]byte(frame)))
}

// answer answers the oldest request of one of the methods, and reports whether there
// was one.
func (c *puppetConn) answer(refuse bool, methods ...string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, m := range c.requests {
		if len(methods) > 0 && !slices.Contains(methods, m.Method()) {
			continue
		}
		c.requests = slices.Delete(c.requests, i, i+1)
		switch {
		case refuse:
			c.sayLocked(acp.NewError(m.ID(), acp.Errorf(acp.CodeInternal, "refused")))
		case m.Method() == "session/new":
			id := fmt.Sprintf("native-%d-%d", c.n, len(c.open))
			c.open[id] = number(m)
			c.sayLocked(acp.NewResult(m.ID(), []byte(`{"sessionId":"`+id+`"}`)))
		case m.Method() == "session/load", m.Method() == "session/resume":
			c.open[m.Session()] = number(m)
			c.sayLocked(acp.NewResult(m.ID(), []byte(`{}`)))
		case m.Method() == "session/prompt":
			c.sayLocked(acp.NewResult(m.ID(), []byte(`{"stopReason":"end_turn"}`)))
		default:
			if m.Method() == "session/close" || m.Method() == "session/delete" {
				c.closeLocked(m)
			}
			c.sayLocked(acp.NewResult(m.ID(), []byte(`{}`)))
		}
		return true
	}
	return false
}

func number(m acp.Message) int64 {
	n, _ := m.ID().Int()
	return n
}

// closeLocked closes a session, unless it was opened by a later request, which is only
// answered earlier.
func (c *puppetConn) closeLocked(m acp.Message) {
	if c.open[m.Session()] < number(m) {
		delete(c.open, m.Session())
	}
}

// ask sends a request of the agent about a session that is open there.
func (c *puppetConn) ask(method, params string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.sessionsLocked() {
		c.nextAsk++
		id := fmt.Sprint(c.nextAsk)
		c.asked[id] = false
		c.sayLocked(acp.MustParse([]byte(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":{"sessionId":%q%s}}`, id, method, s, params))))
	}
}

func (c *puppetConn) sessionsLocked() []string {
	var out []string
	for s := range c.open {
		out = append(out, s)
	}
	slices.Sort(out)
	return out
}

func (c *puppetConn) update(update string) {
	c.mu.Lock()
	sessions := c.sessionsLocked()
	c.mu.Unlock()
	for _, s := range sessions {
		c.say(fmt.Sprintf(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":%q,"update":%s}}`, s, update))
	}
}
