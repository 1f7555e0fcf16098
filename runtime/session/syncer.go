package session

import (
	"context"
	"sync"
	"time"
)

// syncPause groups the syncs of turns that end close to each other.
const syncPause = 25 * time.Millisecond

// syncer makes logs durable soon after a turn ended, off the path of messages.
type syncer struct {
	policy string
	wake   chan struct{} // room for one
	mu     sync.Mutex
	dirty  map[*Session]struct{}
}

func (y *syncer) init(policy string) {
	y.policy, y.wake, y.dirty = policy, make(chan struct{}, 1), map[*Session]struct{}{}
}

// soon asks for the session's log to be made durable.
func (y *syncer) soon(s *Session) {
	if y.policy == "never" {
		return
	}
	y.mu.Lock()
	y.dirty[s] = struct{}{}
	y.mu.Unlock()
	select {
	case y.wake <- struct{}{}:
	default:
	}
}

func (y *syncer) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return // shutdown syncs every log itself
		case <-y.wake:
		}
		y.mu.Lock()
		dirty := y.dirty
		y.dirty = map[*Session]struct{}{}
		y.mu.Unlock()
		for s := range dirty {
			if err := s.syncLog(); err != nil {
				s.log.Error("sync session log", "err", err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(syncPause):
		}
	}
}
