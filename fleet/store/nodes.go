package store

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"sandboxagent.dev/sandbox-agent/acp/problem"
)

// MaxNodes bounds the nodes that are known. At the bound a new one takes the place
// of the one that has been away longest; if all are connected it is refused.
const MaxNodes = 10_000

// Node is a gateway that has joined.
type Node struct {
	Name    string            `json:"name"`
	Labels  map[string]string `json:"labels,omitempty"`
	Agents  []string          `json:"agents,omitempty"` // as it has said when it joined
	Version string            `json:"version"`
	// Hub holds the node's tunnel, or did so last.
	Hub       string `json:"hub"`
	Connected bool   `json:"connected"` // as far as Hub could say
	// Presumed says that it was another hub that has noted that it is away: Hub said nothing any more.
	Presumed bool   `json:"presumed,omitempty"`
	Instance string `json:"instance"` // hash of the running program's secret
	Token    string `json:"token"`    // id of the token by which it joined

	Joined time.Time `json:"joined"` // for the first time
	Since  time.Time `json:"since"`  // when it came, or was last there
}

// Online reports whether a hub that lives holds the node's tunnel.
func (s *Store) Online(n Node) bool {
	return n.Connected && s.HubLives(n.Hub)
}

// nodeKey is a name as a key: keys may not have dots where names may.
func nodeKey(name string) string { return strings.ReplaceAll(name, ".", "=") }

// Node returns what is known of a node.
func (s *Store) Node(name string) (Node, bool) {
	r, ok := s.nodes.get(nodeKey(name))
	return r.value, ok
}

// Knows reports whether there is a record of a node, also one that only a newer version of the hub can read.
func (s *Store) Knows(name string) bool {
	_, ok := s.Node(name)
	return ok || s.nodes.isUnreadable(nodeKey(name))
}

// Nodes returns all nodes in order of their names.
func (s *Store) Nodes() []Node {
	all := s.nodes.all()
	slices.SortFunc(all, func(a, b Node) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// Elsewhere returns the other hub that holds the tunnel of a node, as far as this one was told. When one
// does so later, this one is told of that behind this call.
func (s *Store) Elsewhere(name string) (hub string, ok bool) {
	r, known := s.nodes.told(nodeKey(name))
	return r.value.Hub, known && r.value.Connected && r.value.Hub != s.hub
}

// NodeNews returns a channel that is closed when something is known of a node that was not.
func (s *Store) NodeNews() <-chan struct{} { return s.nodes.news() }

// Held is a node's record as this hub wrote it.
type Held struct {
	node     Node
	revision uint64
}

// Node returns the node as it joined.
func (h Held) Node() Node { return h.node }

// Revision orders the records of one node.
func (h Held) Revision() uint64 { return h.revision }

// Join notes that this hub holds the tunnel of n, whose Instance is the secret
// itself. Allowed, which may be asked more than once, says whether the record that
// the name has may be taken over. A name whose node is online is given to the same
// instance only.
func (s *Store) Join(ctx context.Context, n Node, allowed func(Node) error) (Held, error) {
	ctx, cancel := context.WithTimeout(ctx, writeBound)
	defer cancel()
	sum := sha256.Sum256([]byte(n.Instance))
	n.Instance, n.Hub, n.Connected = hex.EncodeToString(sum[:]), s.hub, true
	for {
		now := time.Now().UTC()
		n.Joined, n.Since = now, now
		had, known := s.nodes.get(nodeKey(n.Name))
		if known {
			if err := allowed(had.value); err != nil {
				return Held{}, err
			}
			if s.Online(had.value) && had.value.Instance != n.Instance {
				return Held{}, problem.New(problem.Conflict, "another gateway is connected as %s: give this one another --node-name, or end that one", n.Name)
			}
			n.Joined = had.value.Joined
		} else if err := s.makeRoom(ctx); err != nil {
			return Held{}, err
		}
		revision, err := s.nodes.put(ctx, nodeKey(n.Name), n, had.revision)
		if err == nil {
			return Held{n, revision}, nil
		}
		if !errors.Is(err, errChanged) {
			return Held{}, problem.Wrap(problem.Unavailable, err, "the hub cannot note that %s joins", n.Name)
		}
		if err := s.nodes.awaitGone(ctx, nodeKey(n.Name), had.revision); err != nil {
			return Held{}, problem.Wrap(problem.Unavailable, err, "the hub cannot note that %s joins", n.Name)
		}
	}
}

// makeRoom forgets the node that has been away longest when there are MaxNodes.
func (s *Store) makeRoom(ctx context.Context) error {
	if s.nodes.len() < MaxNodes {
		return nil
	}
	away := slices.DeleteFunc(s.nodes.all(), s.Online)
	if len(away) == 0 {
		return problem.New(problem.TooManyRequests, "the hub has %d nodes, which are all online: it takes no more", MaxNodes)
	}
	oldest := slices.MinFunc(away, func(a, b Node) int { return a.Since.Compare(b.Since) })
	s.log.Info("a node is forgotten to make room for another", "node", oldest.Name, "away_since", oldest.Since)
	if err := s.forget(ctx, oldest.Name); err != nil && !errors.Is(err, errChanged) {
		return problem.Wrap(problem.Unavailable, err, "the hub cannot make room for another node")
	}
	return nil
}

// Leave notes that this hub holds the tunnel no longer, unless another one, or the
// same node again, has written the record since.
func (s *Store) Leave(ctx context.Context, h Held) error {
	ctx, cancel := context.WithTimeout(ctx, writeBound)
	defer cancel()
	h.node.Connected, h.node.Since = false, time.Now().UTC()
	_, err := s.nodes.put(ctx, nodeKey(h.node.Name), h.node, h.revision)
	if errors.Is(err, errChanged) {
		return nil
	}
	return err
}

// LeaveUnheld notes that nodes have left whose tunnels this hub has by their records, and has not as holds says: the store
// took nothing when they did, or it took that they join and this hub was not told. Holds is asked behind the record is read.
func (s *Store) LeaveUnheld(ctx context.Context, holds func(Node) bool) error {
	for _, n := range s.nodes.all() {
		if !n.Connected || n.Hub != s.hub {
			continue
		}
		had, ok := s.nodes.get(nodeKey(n.Name)) // with the revision over which it is written
		if !ok || !had.value.Connected || had.value.Hub != s.hub || holds(had.value) {
			continue
		}
		if err := s.Leave(ctx, Held{had.value, had.revision}); err != nil {
			return fmt.Errorf("note that %s has left: %w", n.Name, err)
		}
		s.log.Info("a node that is gone is noted as such now", "node", n.Name)
	}
	return nil
}

// NoteAway notes that a node is away of which nobody has noted that it left: the hub that held its tunnel ended
// without a word. When that was nobody knows, so it is now. A hub that was only cut off is told of it; see Open.
func (s *Store) NoteAway(ctx context.Context, name string) {
	had, ok := s.nodes.get(nodeKey(name))
	if ok && had.value.Connected && !s.Online(had.value) {
		had.value.Presumed = true
		if err := s.Leave(ctx, Held{had.value, had.revision}); err != nil {
			s.log.Debug("it is not noted that a node is away", "node", name, "err", err)
		}
	}
}

// RemoveNode forgets a node that is not online.
func (s *Store) RemoveNode(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, writeBound)
	defer cancel()
	n, ok := s.Node(name)
	switch {
	case !ok:
		return problem.New(problem.NodeNotFound, "there is no node %s", name)
	case s.Online(n):
		return problem.New(problem.Conflict, "%s is online: end it first, or revoke the token by which it joined, %s", name, n.Token)
	}
	err := s.forget(ctx, name)
	if errors.Is(err, errChanged) {
		return problem.New(problem.Conflict, "%s has just come back or gone: look again", name)
	}
	if err != nil {
		return problem.Wrap(problem.Unavailable, err, "the hub cannot forget %s", name)
	}
	return nil
}

func (s *Store) forget(ctx context.Context, name string) error {
	had, ok := s.nodes.get(nodeKey(name))
	if !ok {
		return nil
	}
	return s.nodes.remove(ctx, nodeKey(name), had.revision)
}

// nodeChanged is told of each change of a node's record.
func (s *Store) nodeChanged(_ string, has bool, n Node) {
	if has && (n.Connected && n.Hub != s.hub || n.Presumed && n.Hub == s.hub) {
		s.left(n.Name, n.Hub)
	}
}
