package fleet

import (
	"net/http"
	"time"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/fleet/replica"
	"sandboxagent.dev/sandbox-agent/fleet/store"
	"sandboxagent.dev/sandbox-agent/fleet/tunnel"
	"sandboxagent.dev/sandbox-agent/runtime"
)

// The states of a node.
const (
	StateOnline  = "online"
	StateOffline = "offline"
)

// Node is a node as clients see it.
type Node struct {
	Name    string            `json:"name"`
	State   string            `json:"state"`
	Labels  map[string]string `json:"labels"`
	Agents  []string          `json:"agents"` // that it lists; it may get others when they are named
	Version string            `json:"version"`
	Hub     string            `json:"hub"` // that holds its tunnel, or did so last
	Token   string            `json:"token"`
	Joined  time.Time         `json:"joined"` // for the first time
	// Since says when it came, or was last there; zero when its hub ended without a word, and nobody knows.
	Since time.Time `json:"since,omitzero"`
	// Sessions says how many sessions it has in each state; none are left out. Those of a node that is
	// offline are offline.
	Sessions map[runtime.State]int `json:"sessions"`
	// Lag is how many events its sessions have that are not copied yet, at most.
	Lag uint64 `json:"lag"`
}

// count adds to nodes, by name, how many sessions they have and what of them is not copied.
func (h *Hub) count(nodes map[string]*Node) {
	for _, s := range h.o.Store.Sessions() {
		n := nodes[s.Node]
		if n == nil {
			continue
		}
		_, state := h.belongs(s)
		if state == SessionGone || state == SessionMoved {
			continue // it is there no more
		}
		n.Sessions[state]++
		if told := replica.Told(&s.Info); h.o.Replicate && told > s.Through {
			n.Lag += told - s.Through
		}
	}
}

func (h *Hub) shown(n store.Node) Node {
	out := Node{Sessions: map[runtime.State]int{}, Name: n.Name, State: StateOffline, Labels: n.Labels, Agents: n.Agents, Version: n.Version, Hub: n.Hub, Token: n.Token, Joined: n.Joined, Since: n.Since}
	if out.Labels == nil {
		out.Labels = map[string]string{}
	}
	if out.Agents == nil {
		out.Agents = []string{}
	}
	if h.online(n) {
		out.State = StateOnline
	} else if n.Connected {
		out.Since = time.Time{}
	}
	return out
}

// online reports whether a node can be used: a hub that lives holds its tunnel. Of this hub
// the tunnel itself says so. One that is being opened counts, as it does at other hubs: what is
// sent to the node waits for it.
func (h *Hub) online(n store.Node) bool {
	if n.Hub == h.o.Store.Hub() {
		l, settled := h.links.find(n.Name)
		return l != nil || settled != nil && n.Connected
	}
	return h.o.Store.Online(n)
}

// listNodes answers with the nodes that the token is for, those with all labels that
// the query names.
func (h *Hub) listNodes(w http.ResponseWriter, r *http.Request, c call) error {
	wanted, err := tunnel.ParseLabels(r.URL.Query()["label"])
	if err != nil {
		return problem.Wrap(problem.InvalidRequest, err, "the parameter label")
	}
	filter := store.Token{Labels: wanted}
	nodes, byName := []*Node{}, map[string]*Node{}
	for _, n := range h.o.Store.Nodes() {
		if c.token.For(n.Name, n.Labels) && filter.For(n.Name, n.Labels) {
			shown := h.shown(n)
			nodes, byName[n.Name] = append(nodes, &shown), &shown
		}
	}
	h.count(byName)
	return writeJSON(w, http.StatusOK, map[string][]*Node{"nodes": nodes})
}

func (h *Hub) getNode(w http.ResponseWriter, _ *http.Request, c call) error {
	shown := h.shown(c.node)
	h.count(map[string]*Node{shown.Name: &shown})
	return writeJSON(w, http.StatusOK, shown)
}

func (h *Hub) removeNode(w http.ResponseWriter, r *http.Request, c call) error {
	if err := h.o.Store.RemoveNode(r.Context(), c.node.Name); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
