package session

import (
	"time"

	"sandboxagent.dev/sandbox-agent/runtime/journal"
)

// Log returns the session's log. When its file cannot be read the log starts
// anew in memory and the error is reported: the session itself must go on.
func (s *Session) Log() *journal.Log {
	s.logOnce.Do(func() {
		l, err := journal.Open(s.set.store.logPath(s.id), logMemory(s.set.store.dir == ""))
		if err != nil {
			s.log.Error("open session log", "err", err)
			l, _ = journal.Open("", 0)
		}
		l.Count(&s.set.counts)
		if last := l.Last(); last > 0 {
			if newest, err := l.Cursor(last-1).Next(nil, 1); err == nil && len(newest) > 0 {
				s.active.Store(newest[0].Time().UnixMilli())
			}
		}
		s.logp.Store(l)
	})
	return s.logp.Load()
}

// logMemory bounds a log's memory: without a file it is all there is.
func logMemory(ephemeral bool) int {
	if ephemeral {
		return 64 << 20
	}
	return journal.DefaultMemory
}

// Flush shows what was appended. A file that cannot be written is reported and
// loses nothing as long as memory lasts.
func (s *Session) Flush() {
	log := s.Log()
	before := log.Last()
	if err := log.Flush(); err != nil {
		s.log.Error("write session log", "err", err)
	}
	if log.Last() > before {
		s.active.Store(time.Now().UnixMilli())
	}
	if s.set.o.Fsync == "always" {
		_ = s.syncLog()
	}
}

func (s *Session) syncLog() error {
	start := time.Now()
	err := s.Log().Sync()
	s.set.o.Observer.Synced(time.Since(start), err)
	return err
}

// openedLog returns the session's log if it is in use, else nil.
func (s *Session) openedLog() *journal.Log {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.m.life == deleted {
		return nil
	}
	return s.logp.Load()
}
