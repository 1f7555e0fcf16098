package relay

import (
	"encoding/json"
	"slices"
	"strings"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/fleet/store"
)

// selection is what a client says of the node that it wants. The zero value is any.
type selection struct {
	name   string
	labels map[string]string
}

func (at selection) any() bool { return at.name == "" && len(at.labels) == 0 }

// fits reports whether a node is one that is wanted.
func (at selection) fits(n Node) bool {
	return store.Token{Node: at.name, Labels: at.labels}.For(n.Name, n.Labels)
}

// selectionIn reads the field node of _meta: a name, or labels.
func selectionIn(meta json.RawMessage) (at selection, err error) {
	raw, ok := rawjson.Member(meta, acp.MetaKey, "node")
	if !ok {
		return at, nil
	}
	return selectionOf(raw, `_meta["`+acp.MetaKey+`"].node`)
}

// selectionOf reads what stands at a place of a message: a name, or labels.
func selectionOf(raw json.RawMessage, place string) (at selection, err error) {
	if string(raw) == "null" {
		return at, nil
	}
	if raw[0] == '"' {
		at.name = rawjson.Unquote(raw)
	} else {
		labels, _ := rawjson.Member(raw, "labels")
		if raw[0] != '{' || json.Unmarshal(labels, &at.labels) != nil {
			at.labels = nil
		}
	}
	if at.any() {
		return at, acp.Errorf(acp.CodeInvalidParams, `%s must be the name of a node, or {"labels":{"NAME":"VALUE"}}, not %.60s`, place, raw)
	}
	return at, nil
}

// candidates returns the nodes that fit and are online, or expected in a moment.
func (g *Gateway) candidates(t store.Token, at selection) ([]Node, error) {
	if at.name != "" {
		n, err := g.fleet.Node(t, at.name)
		if err == nil {
			err = g.fleet.Away(n.Name)
		}
		return []Node{n}, err
	}
	nodes := slices.DeleteFunc(g.fleet.Nodes(t), func(n Node) bool { return !at.fits(n) })
	switch {
	case len(nodes) == 0 && at.any():
		return nil, problem.New(problem.NodeNotFound, "there is no node that the token is for: let one join")
	case len(nodes) == 0:
		return nil, problem.New(problem.NodeNotFound, "there is no node with these labels, or the token is not for it")
	}
	online := slices.DeleteFunc(slices.Clone(nodes), func(n Node) bool { return !n.Online && !n.Returns })
	if len(online) == 0 {
		return nil, problem.New(problem.NodeOffline, "none of the %d nodes that fit is connected to this hub, or to one that it can ask: they join again by themselves when their gateways run and reach the hub, and hubs that share a store ask each other when they were started with --advertise", len(nodes))
	}
	return online, nil
}

// Place chooses the node to which a session goes from another one: that with the name, or of
// those with the labels that have the agent and have not the session the one with the least work. Placed is
// called when it has come.
func (g *Gateway) Place(t store.Token, name string, labels map[string]string, agent string, has func(node string) bool) (node string, placed func(), err error) {
	return g.place(t, selection{name: name, labels: labels}, agent, has)
}

// place chooses the node for a session: of those that fit and have the agent the one with the
// least work. Those that have it already are not chosen; has is nil for a new one. Placed is called when
// the node has answered.
func (g *Gateway) place(t store.Token, at selection, agent string, has func(node string) bool) (node string, placed func(), err error) {
	nodes, err := g.candidates(t, at)
	if err != nil {
		return "", nil, err
	}
	if at.name == "" && has != nil {
		if nodes = slices.DeleteFunc(slices.Clone(nodes), func(n Node) bool { return has(n.Name) }); len(nodes) == 0 {
			return "", nil, problem.New(problem.NodeNotFound, "there is no other node that fits and is connected than where the session is")
		}
	}
	if agent != "" && at.name == "" { // a gateway can find agents that it does not list
		have := slices.DeleteFunc(slices.Clone(nodes), func(n Node) bool { return !slices.Contains(n.Agents, agent) })
		if len(have) == 0 { // gateways of earlier versions do not say
			have = slices.DeleteFunc(slices.Clone(nodes), func(n Node) bool { return n.Agents != nil })
		}
		if len(have) == 0 {
			return "", nil, problem.New(problem.UnsupportedAgent, "none of the %d nodes that fit and are connected has the agent %q: they have %s; one that is got from the registry needs the name of its node in node", len(nodes), agent, agentsOf(nodes))
		}
		nodes = have
	}
	if there := slices.DeleteFunc(slices.Clone(nodes), func(n Node) bool { return !n.Online }); len(there) > 0 && at.name == "" {
		nodes = there // nobody waits where it is not needed
	}
	open := g.Open()
	g.mu.Lock()
	defer g.mu.Unlock()
	work := func(n Node) int { return n.Load + open[n.Name] + g.placing[n.Name] }
	node = slices.MinFunc(nodes, func(a, b Node) int {
		if d := work(a) - work(b); d != 0 {
			return d
		}
		return strings.Compare(a.Name, b.Name)
	}).Name
	g.placing[node]++
	return node, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.placing[node]--; g.placing[node] == 0 {
			delete(g.placing, node)
		}
	}, nil
}

func agentsOf(nodes []Node) string {
	var all []string
	for _, n := range nodes {
		all = append(all, n.Agents...)
	}
	slices.Sort(all)
	return strings.Join(slices.Compact(all), ", ")
}

// sole returns the node for a request about no session: the one that it names, or the only one.
func (g *Gateway) sole(t store.Token, at selection) (string, error) {
	nodes, err := g.candidates(t, at)
	if err != nil {
		return "", err
	}
	if len(nodes) > 1 {
		return "", acp.Errorf(acp.CodeInvalidParams, `the request is for one of %d nodes: name it in _meta["%s"].node`, len(nodes), acp.MetaKey)
	}
	return nodes[0].Name, nil
}

// find returns the session that a client names. The store hears of a new one a moment
// later than the clients of its hub, and of none when nothing is copied.
func (g *Gateway) find(t store.Token, id, node string) (Found, error) {
	found, err := g.fleet.Find(t, id, node)
	if err == nil || problem.From(err).Kind != problem.SessionNotFound {
		return found, err
	}
	if at := g.Opened(t, id); at != "" && (node == "" || node == at) {
		return Found{Node: at}, nil
	}
	if node != "" && t.Scope.Allows(store.ScopeDrive) {
		n, err := g.fleet.Node(t, node)
		return Found{Node: n.Name}, err
	}
	return found, err
}

// lineOf returns the connection to the node of the session that a message names.
func (c *Client) lineOf(m *acp.Message) (*line, error) {
	at, err := selectionIn(m.Meta())
	if err != nil {
		return nil, err
	}
	id := m.Session()
	c.mu.Lock()
	s := c.sessions[id]
	c.mu.Unlock()
	var found Found
	switch {
	case s != nil && (at.name == "" || at.name == s.at().node):
		found.Node = s.at().node
	default:
		if found, err = c.g.find(c.token, id, at.name); err != nil {
			return nil, err
		}
	}
	if _, err := c.g.fleet.Node(c.token, found.Node); err != nil {
		return nil, err // its labels have changed, or it was forgotten
	}
	return c.lineTo(found.Node, found.Agent)
}

// lineOfChild returns the connection on which the client has the session open whose subagent a message names, if there is one; it may be
// away. A session with the id comes first, unless the message says at which node the subagent is.
func (c *Client) lineOfChild(m *acp.Message) (of *line, err error) {
	at, err := selectionIn(m.Meta())
	if err != nil {
		return nil, err
	}
	id := m.Session()
	c.mu.Lock()
	if c.sessions[id] == nil {
		for _, l := range c.lines {
			if s := c.sessions[l.children[id]]; s != nil && s.at() == l && (at.name == "" || at.name == l.node) {
				of = l
			}
		}
	}
	c.mu.Unlock()
	if of == nil {
		return nil, nil
	}
	if at.name == "" {
		if _, err := c.g.find(c.token, id, ""); err == nil {
			return nil, nil
		}
	}
	if _, err := c.g.fleet.Node(c.token, of.node); err != nil {
		return nil, err // its labels have changed, or it was forgotten
	}
	return of, nil
}

// lineForNews returns the connection that a notification goes to. What is under way in a session that the client has open waits for a
// node that is away, and so does what is said of it, such as that it is to end.
func (c *Client) lineForNews(m *acp.Message) (*line, error) {
	if l, err := c.lineOfChild(m); l != nil || err != nil {
		return l, err
	}
	at, _ := selectionIn(m.Meta())
	c.mu.Lock()
	s := c.sessions[m.Session()]
	c.mu.Unlock()
	if s == nil {
		return c.lineOf(m)
	}
	if l := s.at(); at.name == "" || at.name == l.node {
		_, err := c.g.fleet.Node(c.token, l.node)
		return l, err
	}
	return c.lineOf(m)
}
