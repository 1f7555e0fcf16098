package session

import (
	"context"
	"math"
	"os"
	"slices"
	"time"

	"sandboxagent.dev/sandbox-agent/internal/awake"
	"sandboxagent.dev/sandbox-agent/runtime/journal"
)

// Retention bounds what logs keep; 0 is no bound. What goes on in a session is kept in any case, from its first
// event on, and so are all events of one that is read as a whole, and the newest event of each.
type Retention struct {
	Age          time.Duration // of events
	SessionBytes int64         // of each log
	Bytes        int64         // of all logs: the events of those go first that have been silent longest
}

const (
	retainEvery = time.Minute
	ageSettled  = time.Hour // without a jump of the clock, behind which events go by their age again
)

// Logs are cut to less than their bound, so that they are not written anew for each event.
func (r Retention) agedTo() time.Duration { return r.Age - r.Age/8 }
func lessThan(bound int64) int64          { return bound - bound/4 }

// Retain lets events go as the bounds say, until ctx ends.
func (set *Set) Retain(ctx context.Context, r Retention) {
	if r == (Retention{}) {
		return
	}
	tick := time.NewTicker(retainEvery)
	defer tick.Stop()
	// A clock that jumps ahead makes all events old at once, and so does a machine that was suspended.
	for clock := (awake.Steady{}); ; {
		now := r
		if !clock.Trusted(min(r.Age, ageSettled)) {
			now.Age = 0
		}
		set.retain(ctx, now)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (set *Set) retain(ctx context.Context, r Retention) {
	all := slices.Clone(set.All())
	var total int64
	for _, s := range all {
		if ctx.Err() != nil {
			return
		}
		if size := s.retain(r); !s.readWhole() { // else nothing of it goes now, and nothing of others in its place
			total += size
		}
	}
	if r.Bytes <= 0 || total <= r.Bytes {
		return
	}
	silent := make(map[*Session]time.Time, len(all)) // since when
	for _, s := range all {
		if ctx.Err() != nil {
			return
		}
		silent[s] = s.Active() // of a log that was in use at a kill only the log knows
	}
	slices.SortFunc(all, func(a, b *Session) int { return silent[a].Compare(silent[b]) })
	for _, s := range all {
		if total <= lessThan(r.Bytes) || ctx.Err() != nil {
			return
		}
		total -= s.trim(journal.Keep{Bytes: -1})
	}
	set.o.Logger.Warn("the logs of sessions that work are larger than all may be", "bytes", total, "bound", r.Bytes)
}

// retain lets the session's own events go, and returns the size of its log.
func (s *Session) retain(r Retention) int64 {
	size := s.logSize()
	var keep journal.Keep
	if r.SessionBytes > 0 && size > r.SessionBytes {
		keep.Bytes = lessThan(r.SessionBytes)
	}
	if now := time.Now(); r.Age > 0 && size > 0 && s.oldest(now.Add(-r.Age)).Before(now.Add(-r.Age)) {
		keep.Since = now.Add(-r.agedTo())
	}
	if keep == (journal.Keep{}) {
		return size
	}
	return size - s.trim(keep)
}

// oldest returns when the oldest event came, or a later time that is not before the one given.
func (s *Session) oldest(than time.Time) time.Time {
	if known := time.UnixMilli(s.oldestAt.Load()); known.After(than) {
		return known // and the log need not be opened
	}
	at, err := s.Log().OldestTime()
	if err != nil || at.IsZero() {
		return than
	}
	s.oldestAt.Store(at.UnixMilli())
	return at
}

// logSize returns the bytes of the log, of which nothing need be open.
func (s *Session) logSize() int64 {
	path := s.LogPath()
	if path == "" {
		return s.Log().Size()
	}
	info, err := os.Stat(path)
	if err != nil {
		return 0 // it has no events yet
	}
	return info.Size()
}

// KeepWhole has no event be let go until done is called: for who reads all that there are. In memory it is what the log may
// hold for that.
func (s *Session) KeepWhole() (done func()) {
	s.whole.RLock()
	if s.LogPath() != "" {
		return s.whole.RUnlock
	}
	enough := s.Log().KeepAll()
	return func() { enough(); s.whole.RUnlock() }
}

// readWhole reports whether somebody reads all that there is.
func (s *Session) readWhole() bool {
	if !s.whole.TryLock() {
		return true
	}
	s.whole.Unlock()
	return false
}

// trim lets events go that need not be kept, and returns the bytes that were freed.
func (s *Session) trim(keep journal.Keep) int64 {
	if s.catchUp(everything); s.behind.Load() {
		return 0 // what the record does not know would be gone
	}
	if s.EndLostCalls(); s.unread.Load() { // that they began would be gone
		return 0
	}
	if !s.whole.TryLock() {
		return 0 // they go when nobody reads them
	}
	defer s.whole.Unlock()
	log := s.Log()
	s.mu.Lock()
	from := min(log.Last(), s.neededFromLocked()) // what comes meanwhile stays, and how the session was left
	s.mu.Unlock()
	if from < 2 {
		return 0
	}
	keep.After = from - 1
	freed, err := log.Trim(keep)
	if err != nil {
		s.logger().Error("let old events go", "err", err)
	}
	if freed > 0 {
		s.oldestAt.Store(0)
	}
	return freed
}

// neededFromLocked returns the oldest event that what goes on in the session needs: 0 for all, as long as its agent opens
// it, or it stops.
func (s *Session) neededFromLocked() uint64 {
	switch {
	case s.m.life == deleted:
		return 0
	case !s.m.busy(): // what makes no session busy may stay open for ever, with an agent that does not say how it ends
		return math.MaxUint64
	case s.m.life != open || s.m.hosting != serving:
		return 0
	}
	from := s.openFromLocked()
	for _, a := range s.asks {
		from = min(from, a.seq)
	}
	return from
}

// openFromLocked returns the oldest event of what is open in the log: a turn, a call, a compaction or work in the
// background.
func (s *Session) openFromLocked() uint64 {
	from := s.calls.from()
	if t := s.m.turn; t != nil && t.seq > 0 {
		from = min(from, t.seq)
	}
	if s.notedAlone {
		from = min(from, s.aloneFrom)
	}
	return from
}
