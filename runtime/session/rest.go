package session

import (
	"os"
	"time"

	"sandboxagent.dev/sandbox-agent/runtime/journal"
)

// logEnd is what the record says of a log that nobody uses, so that a list of sessions need
// not open it. It is true of a file of just that size: a log only grows, and one that is put
// together gets another size.
type logEnd struct {
	journal.End
	At int64 `json:"at"` // unix ms of the newest event
}

// resting returns what the record says of the session's log, nil when the log is open, or the
// record may not know it.
func (s *Session) resting() *logEnd {
	if s.logp.Load() != nil || s.Held() {
		return nil
	}
	s.trusted.Do(func() {
		end := s.end.Load()
		if end == nil {
			return
		}
		if about, err := os.Stat(s.set.store.logPath(s.id)); err != nil || about.Size() != end.Bytes {
			s.end.Store(nil) // it was written by who could not say how it ended
		}
	})
	return s.end.Load()
}

// span returns the numbers of the newest event and of the oldest that is kept.
func (s *Session) span() (last, oldest uint64) {
	if end := s.resting(); end != nil {
		return end.Last, end.Oldest
	}
	s.catchUp(listParts)
	l := s.Log()
	return l.Last(), l.Oldest()
}

// Active returns when the last message of the session came.
func (s *Session) Active() time.Time {
	if s.resting() == nil {
		s.catchUp(listParts)
		s.Log() // knows it
	}
	return time.UnixMilli(s.active.Load()).UTC()
}

// endOf returns what the record is to say of a log, nil while it is in use or says more than the record knows.
func (s *Session) endOf(l *journal.Log) *logEnd {
	end, ok := l.AtRest()
	if !ok || s.behind.Load() {
		return nil
	}
	return &logEnd{end, s.active.Load()}
}

// noteEnd has the record know how far the log goes, and what only the log had.
func (s *Session) noteEnd() error {
	s.mu.Lock()
	if l := s.logp.Load(); l != nil {
		end := s.endOf(l)
		if s.rec.LastSeq < l.Last() && !s.behind.Load() || s.rec.BoundSeq != l.Reserved() || end != nil && (s.rec.LogEnd == nil || *s.rec.LogEnd != *end) {
			s.unsaved = true
		}
		s.noteLogLocked(l, end)
	}
	s.mu.Unlock()
	return s.save()
}

// noteLogLocked writes into the record what is known of the log.
func (s *Session) noteLogLocked(l *journal.Log, end *logEnd) {
	s.rec.BoundSeq, s.rec.LogEnd = l.Reserved(), end
	if !s.behind.Load() {
		s.rec.LastSeq, s.rec.NotedSeq = max(s.rec.LastSeq, l.Last()), l.Appended()
		s.noteOpenLocked(&s.rec)
	}
}

// noteOpenLocked writes into a record, which knows all up to its NotedSeq, from where on the log shows what is open. As long as it
// is not known what an earlier gateway has left open, that stays what it was.
func (s *Session) noteOpenLocked(rec *record) {
	if s.traced {
		rec.OpenFrom = min(s.openFromLocked(), rec.NotedSeq+1)
	}
}
