package runtime

import (
	"encoding/json"
	"strconv"
	"sync"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/runtime/journal"
)

// logTroubleEvery is how often the gateway's own log says that sessions cannot
// be written, however many there are.
const logTroubleEvery = time.Minute

// logTrouble knows the sessions whose logs take no entries.
type logTrouble struct {
	mu      sync.Mutex
	failing map[string]error // by session id
	told    time.Time
}

// logOptions says how the session's log is kept.
func (s *Session) logOptions() journal.Options {
	o := journal.Options{
		Memory: logMemory(s.r.o.Ephemeral), Stats: &s.r.counts, Old: s.r.store.oldLogPath(s.id),
		About: s.about, Damage: s.damaged, Trouble: s.logTrouble,
	}
	switch s.r.o.Fsync {
	case "always":
		o.Sync = journal.SyncEach
	case "never":
		o.Sync = journal.SyncNever
	}
	return o
}

// log returns the session's log. While its file cannot be opened that is a log
// that shows nothing and keeps nothing; see logReady.
func (s *Session) log() *journal.Log {
	l, err := s.openedLog()
	if err != nil {
		return journal.Unavailable(err)
	}
	return l
}

// logReady says why the session's log cannot be used. Whoever is refused may try
// again: the log is opened anew.
func (s *Session) logReady() error {
	if l := s.logp.Load(); l != nil {
		return nil
	}
	if _, err := s.openedLog(); err != nil {
		return problem.Wrap(problem.Unavailable, err, "the log of session %s cannot be opened now", s.id)
	}
	return nil
}

func (s *Session) openedLog() (*journal.Log, error) {
	if l := s.logp.Load(); l != nil {
		return l, nil
	}
	s.logMu.Lock()
	defer s.logMu.Unlock()
	if l := s.logp.Load(); l != nil {
		return l, nil
	}
	l, err := journal.Open(s.r.store.logPath(s.id), s.logOptions())
	if err != nil {
		s.logTrouble(err)
		return nil, err
	}
	if last := l.Last(); last > 0 {
		if newest, err := l.Cursor(last-1).Next(nil, 1); err == nil && len(newest) > 0 {
			s.active.Store(newest[0].Time().UnixMilli())
		}
	}
	s.logp.Store(l)
	s.r.logTrouble.set(s, nil)
	return l, nil
}

// logWrites says why the session can take no work now: its log takes nothing.
func (s *Session) logWrites() error {
	if err := s.logReady(); err != nil {
		return err
	}
	if err := s.log().Err(); err != nil {
		return problem.Wrap(problem.Unavailable, err, "the log of session %s cannot be written now", s.id)
	}
	return nil
}

// keep writes down a session that was just made, so that nothing of it is lost
// once somebody knows of it.
func (s *Session) keep() error {
	s.mu.Lock()
	rec := s.rec
	s.mu.Unlock()
	if err := s.r.store.save(rec, s.r.o.Fsync != "never"); err != nil {
		return problem.Wrap(problem.Unavailable, err, "the session cannot be kept")
	}
	l, err := s.openedLog()
	if err == nil {
		err = l.Begin()
	}
	if err != nil {
		return problem.Wrap(problem.Unavailable, err, "the log of the session cannot be made")
	}
	return nil
}

// about is what the log's file says of the session, for when its record is lost.
func (s *Session) about() []byte {
	s.mu.Lock()
	rec := s.rec
	s.mu.Unlock()
	rec.Version = recordVersion
	b, err := json.Marshal(rec)
	if err != nil {
		return nil
	}
	return b
}

// damaged is the notification that clients get in the place of entries that the
// log has lost.
func (s *Session) damaged(first, last uint64) []byte {
	b := append([]byte(`{"sessionId":`), s.quoted...)
	b = strconv.AppendUint(append(b, `,"firstSeq":`...), first, 10)
	b = strconv.AppendUint(append(b, `,"lastSeq":`...), last, 10)
	m := acp.NewNotification("_sandboxagent/session/events_damaged", append(b, '}'))
	return m.Frame()
}

// logTrouble hears that the session's log takes no entries, and why, and with
// nil that it does again.
func (s *Session) logTrouble(err error) {
	changed, tell := s.r.logTrouble.set(s, err)
	if tell {
		s.r.log.Error("the logs of sessions cannot be written", "session", s.id, "sessions", s.r.logTrouble.count(), "err", err)
	}
	if !changed {
		return
	}
	params := map[string]any{"sessionId": s.id, "writable": err == nil}
	if err != nil {
		params["reason"] = err.Error()
	}
	b, encodeErr := schema.Encode(params)
	if encodeErr != nil {
		return
	}
	n := acp.NewNotification("_sandboxagent/session/storage", b)
	s.mu.Lock()
	clients := map[*Client]bool{}
	for f := range s.feeds {
		clients[f.client] = true
	}
	s.mu.Unlock()
	for c := range clients {
		c.post(journal.Notice, n.Frame()) // not by way of the log, which takes nothing
	}
}

// set notes how the session's log is. changed says that it was not so before,
// tell that the gateway's own log should say it.
func (t *logTrouble) set(s *Session, err error) (changed, tell bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, was := t.failing[s.id]
	if err == nil {
		delete(t.failing, s.id)
		return was, false
	}
	if t.failing == nil {
		t.failing = map[string]error{}
	}
	t.failing[s.id] = err
	if tell = time.Since(t.told) >= logTroubleEvery; tell {
		t.told = time.Now()
	}
	return !was, tell
}

func (t *logTrouble) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.failing)
}

// ready says why sessions cannot be written.
func (t *logTrouble) ready() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, err := range t.failing {
		return problem.Wrap(problem.Unavailable, err, "%d sessions cannot be written, %s is one", len(t.failing), id)
	}
	return nil
}
