package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
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

// Peer returns how another hub is reached, and what ends when it lives no more, within some seconds; false
// when it does not live, or does not say.
func (s *Store) Peer(hub string) (p Peer, over context.Context, ok bool) {
	r, _ := s.hubs.get(hub)
	life := s.living.of(hub)
	if hub == s.hub || s.engine != nil || life == nil || r.value.URL == "" || r.value.Secret == "" {
		return Peer{}, nil, false
	}
	return r.value.Peer, life.over, true
}

// Succeeds reports whether this hub was started in the place of another one, which may seem to live for some seconds yet: it
// is reached by the same address, or neither by any. The nodes of such a hub cannot be asked before they join another one, if it lives or not.
func (s *Store) Succeeds(hub string) bool {
	r, known := s.hubs.get(hub)
	return known && hub != s.hub && r.value.URL == s.self.URL
}

// HubEnded returns how long ago another hub ended, or its lease did, if this one has seen that in the last minutes.
func (s *Store) HubEnded(hub string) (ago time.Duration, ok bool) {
	if hub == s.hub || s.engine != nil {
		return 0, false
	}
	return s.living.endedAgo(hub)
}

// HubNews returns a channel that is closed when a hub has said that it lives, or that it ends. A lease that
// runs out does so in silence.
func (s *Store) HubNews() <-chan struct{} { return s.hubs.news() }

// Secret is what lets peers in at this hub. It is in the store, and nowhere else.
func (s *Store) Secret() string { return s.self.Secret }

// living knows which hubs renewed their lease lately, by the own clock. As long as the own lease is not
// heard of it is this hub that is cut off from the store, and nothing is known of the others: they stay as
// they were, and begin anew when it is back. The zero value knows none.
type living struct {
	mu    sync.Mutex
	self  string
	seen  map[string]*life
	ended map[string]awake.Moment // when the lives of hubs ended, for rememberEnded
}

// rememberEnded is how long it is known when a hub ended.
const rememberEnded = 2 * time.Minute

// life is that of a hub.
type life struct {
	heard awake.Moment
	over  context.Context // ends when the lease does
	end   context.CancelFunc
}

// cutOff is how long the own lease may be silent: it is renewed sooner.
const cutOff = leaseEvery * 3 / 2

// renewed is told of changes of leases.
func (l *living) renewed(hub string, has bool, _ lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.seen == nil {
		l.seen = map[string]*life{}
	}
	if hub == l.self && l.cutOffLocked() {
		for _, other := range l.seen {
			other.heard = awake.Now()
		}
	}
	one := l.seen[hub]
	switch {
	case !has:
		l.endLocked(hub)
	case one == nil:
		one = &life{heard: awake.Now()}
		one.over, one.end = context.WithCancel(context.Background())
		l.seen[hub] = one
	default:
		one.heard = awake.Now()
	}
}

func (l *living) cutOffLocked() bool {
	self := l.seen[l.self]
	return self != nil && self.heard.Ago() > cutOff
}

func (l *living) endLocked(hub string) {
	one := l.seen[hub]
	if one == nil {
		return
	}
	one.end()
	delete(l.seen, hub)
	if l.ended == nil {
		l.ended = map[string]awake.Moment{}
	}
	maps.DeleteFunc(l.ended, func(_ string, at awake.Moment) bool { return at.Ago() > rememberEnded })
	l.ended[hub] = awake.Now()
}

// endedAgo returns how long ago the life of a hub ended, if that was lately.
func (l *living) endedAgo(hub string) (time.Duration, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if one := l.seen[hub]; one != nil { // it may have run out, and nobody has swept it away
		return one.heard.Ago() - leaseLasts, one.heard.Ago() > leaseLasts && !l.cutOffLocked()
	}
	at, known := l.ended[hub]
	return at.Ago(), known
}

// of returns the life of a hub, nil when it is over.
func (l *living) of(hub string) *life {
	l.mu.Lock()
	defer l.mu.Unlock()
	one := l.seen[hub]
	if one == nil || one.heard.Ago() > leaseLasts && !l.cutOffLocked() {
		return nil
	}
	return one
}

// sweep ends what has run out: leases do so in silence.
func (l *living) sweep() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cutOffLocked() {
		return
	}
	for hub, one := range l.seen {
		if one.heard.Ago() > leaseLasts {
			l.endLocked(hub)
		}
	}
}

// close ends all of them.
func (l *living) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for hub := range l.seen {
		l.endLocked(hub)
	}
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
			s.living.sweep()
			within, cancel := context.WithTimeout(ctx, writeBound)
			if err := s.renewLease(within); err != nil && ctx.Err() == nil {
				s.log.Warn("this hub could not say that it lives", "err", err)
				s.refused.Store(&err)
			} else {
				s.refused.Store(nil)
				s.holdRoom()
				if err := s.dropMarks(within); err != nil && ctx.Err() == nil {
					s.log.Debug("marks of what was removed stay in the store", "err", err)
				}
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

// dropMarks removes some of the marks of records that were removed. Where several hubs share a store they stay: one that
// is cut off meanwhile would not learn of a token that was revoked.
func (s *Store) dropMarks(ctx context.Context) error {
	if s.engine == nil {
		return nil
	}
	return errors.Join(s.tokens.drop(ctx), s.nodes.drop(ctx), s.sessions.drop(ctx), s.owners.drop(ctx))
}

func (s *Store) renewLease(ctx context.Context) error {
	text, err := json.Marshal(lease{time.Now().UTC(), s.self})
	if err != nil {
		return fmt.Errorf("encode lease: %w", err)
	}
	before := s.hubs.saw(0)
	revision, err := s.hubs.kv.Put(ctx, s.hub, text) // nobody else writes it
	if err != nil {
		return fmt.Errorf("renew lease: %w", err)
	}
	if s.hubs.saw(revision); revision <= before { // they grow, whatever is removed
		select {
		case <-s.setBack:
		default:
			close(s.setBack)
		}
	}
	return nil
}
