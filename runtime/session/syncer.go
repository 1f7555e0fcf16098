package session

import (
	"context"
	"sync"
	"time"
)

const (
	syncPause    = 25 * time.Millisecond // groups the work of turns that end close to each other
	syncInterval = time.Second           // between the syncs of a log with --fsync interval

	// recordPause is between two writes of one session's record. A write costs as much
	// as two short turns, and what turns that follow each other change of it can wait.
	recordPause = 250 * time.Millisecond
)

// syncer makes logs durable, and writes records down, soon after a turn ended, off the path
// of messages.
type syncer struct {
	policy string
	wake   chan struct{} // room for one
	mu     sync.Mutex
	dirty  map[*Session]struct{}
}

func (y *syncer) init(policy string) {
	y.policy, y.wake, y.dirty = policy, make(chan struct{}, 1), map[*Session]struct{}{}
}

// soon asks for the session's log to be made durable, and for its record to be saved.
func (y *syncer) soon(s *Session) {
	y.mu.Lock()
	y.dirty[s] = struct{}{}
	y.mu.Unlock()
	select {
	case y.wake <- struct{}{}:
	default:
	}
}

func (y *syncer) run(ctx context.Context) {
	pause := syncPause
	if y.policy == "interval" {
		pause = syncInterval
	}
	late := map[*Session]struct{}{} // whose records are to be saved, but were a moment ago
	for {
		var again <-chan time.Time
		if len(late) > 0 {
			again = time.After(recordPause / 5)
		}
		select {
		case <-ctx.Done():
			return // shutdown syncs every log and saves every record itself
		case <-y.wake:
		case <-again:
		}
		y.mu.Lock()
		dirty := y.dirty
		y.dirty = map[*Session]struct{}{}
		y.mu.Unlock()
		for s := range dirty {
			if y.policy != "never" {
				if err := s.syncLog(); err != nil {
					s.logger().Error("sync session log", "err", err)
				}
			}
			late[s] = struct{}{}
		}
		for s := range late {
			if now := time.Now(); now.Sub(s.wroteAt) >= recordPause {
				_ = s.save()
				s.wroteAt = now
				delete(late, s)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}
