package store

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"sandboxagent.dev/sandbox-agent/internal/awake"
)

const (
	leaseEvery = 5 * time.Second
	leaseLasts = 15 * time.Second
)

// lease says that a hub lives. It is renewed while it does.
type lease struct {
	Renewed time.Time `json:"renewed"`
	Peer
}

// Peer is how the hubs of a store reach one of them.
type Peer struct {
	URL string `json:"url,omitempty"` // "" when others cannot
	// Secret lets a hub in as a peer. Each run of a hub has its own.
	Secret string `json:"secret,omitempty"`
}

// Peer returns how another hub is reached; false when it does not live, or does not say.
func (s *Store) Peer(hub string) (Peer, bool) {
	r, _ := s.hubs.get(hub)
	return r.value.Peer, hub != s.hub && s.HubLives(hub) && r.value.URL != "" && r.value.Secret != ""
}

// Secret is what lets peers in at this hub. It is in the store, and nowhere else.
func (s *Store) Secret() string { return s.self.Secret }

// living knows which hubs renewed their lease lately, by the own clock. The zero
// value knows none.
type living struct {
	mu   sync.Mutex
	seen map[string]awake.Moment
}

// renewed is told of changes of leases.
func (l *living) renewed(hub string, has bool, _ lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.seen == nil {
		l.seen = map[string]awake.Moment{}
	}
	for other, at := range l.seen { // leases run out in silence
		if at.Ago() > leaseLasts {
			delete(l.seen, other)
		}
	}
	if delete(l.seen, hub); has {
		l.seen[hub] = awake.Now()
	}
}

func (l *living) has(hub string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	at, ok := l.seen[hub]
	return ok && at.Ago() <= leaseLasts
}

// renew renews the lease until ctx ends, and gives it back then.
func (s *Store) renew(ctx context.Context) {
	defer close(s.ended)
	tick := time.NewTicker(leaseEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.mend()
			within, cancel := context.WithTimeout(ctx, writeBound)
			if err := s.renewLease(within); err != nil && ctx.Err() == nil {
				s.log.Warn("this hub could not say that it lives", "err", err)
				s.refused.Store(&err)
			} else {
				s.refused.Store(nil)
				s.holdRoom()
			}
			cancel()
		case <-ctx.Done():
			within, cancel := context.WithTimeout(context.Background(), writeBound)
			defer cancel()
			if err := s.hubs.kv.Delete(within, s.hub); err != nil {
				s.log.Debug("the lease of this hub runs out by itself", "err", err)
			}
			return
		}
	}
}

func (s *Store) renewLease(ctx context.Context) error {
	text, err := json.Marshal(lease{time.Now().UTC(), s.self})
	if err != nil {
		return fmt.Errorf("encode lease: %w", err)
	}
	if _, err := s.hubs.kv.Put(ctx, s.hub, text); err != nil { // nobody else writes it
		return fmt.Errorf("renew lease: %w", err)
	}
	return nil
}
