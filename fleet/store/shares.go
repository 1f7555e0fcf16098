package store

import (
	"sync"
	"time"
)

// sharesAge is how old what is known of other hubs' replicas may be: to look at all for each batch would
// cost more than the batch.
const sharesAge = time.Second

// shares are what the nodes have of the log: as the records say it, and of replicas that this hub writes,
// which are ahead of their records, as it was written. The zero value knows nothing yet.
type shares struct {
	mu      sync.Mutex
	at      time.Time
	nodes   map[string]uint64    // bytes, by node
	all     uint64               // and their sum
	counted map[ReplicaID]uint64 // what they are the sums of; bounded as sessions are
}

// fitsShare returns ErrShare when a replica of so many bytes would give its node more than its share:
// the half of what the other nodes leave. So a node that fills all it may leaves as much to the
// next one, and none takes the room of all. Without a bound of the log there are no shares.
func (s *Store) fitsShare(id ReplicaID, size uint64) error {
	if s.logBytes <= 0 {
		return nil
	}
	own, others := s.shares.of(s, id)
	bound := uint64(s.logBytes)
	if own+size > (bound-min(bound, others))/2 {
		return ErrShare
	}
	return nil
}

// of returns what the node of a replica has beside it, and what all other nodes have.
func (h *shares) of(s *Store, id ReplicaID) (own, others uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if now := time.Now(); h.nodes == nil || now.Sub(h.at) > sharesAge {
		had := h.counted
		h.at, h.nodes, h.all, h.counted = now, map[string]uint64{}, 0, make(map[ReplicaID]uint64, len(had))
		for _, one := range s.Sessions() {
			h.countLocked(one.ReplicaID, max(one.Bytes, had[one.ReplicaID]))
		}
	}
	own = h.nodes[id.Node]
	return own - h.counted[id], h.all - own
}

// grown notes that a replica has so many bytes now.
func (h *shares) grown(id ReplicaID, size uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.nodes != nil { // else there is no bound
		h.countLocked(id, size)
	}
}

// countLocked counts so many bytes of a replica, in place of what was.
func (h *shares) countLocked(id ReplicaID, size uint64) {
	had := h.counted[id]
	h.counted[id] = size
	h.nodes[id.Node] += size - had // which may wrap around, and back
	h.all += size - had
}
