package session

import (
	"cmp"
	"context"
	"os"
	"slices"
	"time"

	"sandboxagent.dev/sandbox-agent/internal/awake"
	"sandboxagent.dev/sandbox-agent/runtime/journal"
)

// Retention bounds what is kept; 0 is no bound. What a session needs that works, or
// waits for somebody, is kept in any case, and of each that is kept the newest event.
type Retention struct {
	Sessions     time.Duration // sessions go that nobody has open and in which nothing has happened for so long
	Age          time.Duration // of events
	SessionBytes int64         // of each log
	Bytes        int64         // of all logs: the events of those go first that have been silent longest
}

const (
	retainEvery = time.Minute
	// deleteFrom is how long a gateway has run until it deletes sessions: its clock may just be set.
	deleteFrom   = time.Hour
	deleteAtOnce = 20 // of them in retainEvery: for each an agent may have to be started
)

// Logs are cut to less than their bound, so that they are not written anew for each event.
func (r Retention) agedTo() time.Duration { return r.Age - r.Age/8 }
func lessThan(bound int64) int64          { return bound - bound/4 }

// Retain lets events go as the bounds say, until ctx ends.
func (set *Set) Retain(ctx context.Context, r Retention) {
	if r == (Retention{}) {
		return
	}
	began, kept := awake.Now(), map[*Session]bool{}
	tick := time.NewTicker(retainEvery)
	defer tick.Stop()
	for {
		set.retain(ctx, r)
		if r.Sessions > 0 && began.Ago() >= min(r.Sessions, deleteFrom) {
			set.deleteSilent(ctx, r.Sessions, kept)
		}
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
	sizes := make(map[*Session]int64, len(all))
	for _, s := range all {
		if ctx.Err() != nil {
			return
		}
		sizes[s] = s.retain(r)
		total += sizes[s]
	}
	if r.Bytes <= 0 || total <= r.Bytes {
		return
	}
	slices.SortFunc(all, func(a, b *Session) int { return cmp.Compare(a.active.Load(), b.active.Load()) })
	for _, s := range all {
		if total <= lessThan(r.Bytes) || ctx.Err() != nil {
			return
		}
		total -= s.trim(journal.Keep{Bytes: -1})
	}
	set.o.Logger.Warn("the logs of sessions that work are larger than all may be", "bytes", total, "bound", r.Bytes)
}

// deleteSilent deletes sessions that were silent for a time, as clients do. Kept has those that could not be deleted: they
// are not tried again.
func (set *Set) deleteSilent(ctx context.Context, silent time.Duration, kept map[*Session]bool) {
	tried := 0
	for _, s := range slices.Clone(set.All()) {
		if ctx.Err() != nil || tried == deleteAtOnce {
			return
		}
		if kept[s] || !s.silentSince(time.Now().Add(-silent)) {
			continue
		}
		tried++
		within, cancel := context.WithTimeout(ctx, retainEvery)
		err := s.Delete(within)
		cancel()
		if err != nil && ctx.Err() == nil {
			kept[s] = true
			s.logger().Warn("a session that nobody has used for long could not be deleted", "err", err)
			continue
		}
		s.logger().Info("a session that nobody has used for long was deleted", "for", silent)
	}
}

// silentSince reports whether nobody has the session open, nothing goes on in it, and nothing has happened since a time.
func (s *Session) silentSince(t time.Time) bool {
	if time.UnixMilli(s.active.Load()).After(t) {
		return false // and the log need not be opened
	}
	s.mu.Lock()
	used := s.m.busy() || s.m.life == deleted || len(s.feeds) > 0
	s.mu.Unlock()
	return !used && s.Active().Before(t)
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

// trim lets events go that need not be kept, and returns the bytes that were freed.
func (s *Session) trim(keep journal.Keep) int64 {
	log := s.Log()
	s.mu.Lock()
	last := log.Last()
	busy := s.m.busy() || s.m.life == deleted
	s.mu.Unlock()
	if busy || last < 2 {
		return 0
	}
	keep.After = last - 1 // what comes meanwhile stays, and how the session was left
	freed, err := log.Trim(keep)
	if err != nil {
		s.logger().Error("let old events go", "err", err)
	}
	if freed > 0 {
		s.oldestAt.Store(0)
	}
	return freed
}
