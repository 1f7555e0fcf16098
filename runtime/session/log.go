package session

import (
	"cmp"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/internal/awake"
	"sandboxagent.dev/sandbox-agent/runtime/journal"
	"sandboxagent.dev/sandbox-agent/runtime/viewer"
)

// Log returns the session's log. While its file cannot be opened that is a log
// that shows nothing and keeps nothing; see [Session.Readable].
func (s *Session) Log() *journal.Log {
	l, err := s.openLog()
	if err != nil {
		return journal.Unavailable(err)
	}
	return l
}

// Readable says why the session's log cannot be used. Whoever is refused may try
// again: the log is opened anew.
func (s *Session) Readable() error {
	if _, err := s.openLog(); err != nil {
		return problem.Wrap(problem.Unavailable, err, "the log of session %s cannot be opened now", s.id)
	}
	return nil
}

// ReadProblem says why the session's log could not be read: what a reader was told by
// it, as a problem. Whoever reads meets the end of the session as anybody may.
func (s *Session) ReadProblem(err error) error {
	if gone, ok := errors.AsType[*journal.TruncatedError](err); ok {
		return problem.New(problem.EventsExpired, "events after %d are no longer kept, the oldest is %d", gone.After, gone.Oldest).With("oldestSeq", gone.Oldest)
	}
	select {
	case <-s.gone: // and then its log was closed
		return problem.New(problem.SessionNotFound, "session %s was deleted", s.id)
	default:
	}
	if errors.Is(err, os.ErrClosed) {
		return problem.Wrap(problem.Unavailable, err, "the gateway is shutting down: the log of session %s is closed", s.id)
	}
	return problem.Wrap(problem.Internal, err, "cannot read the log of session %s", s.id)
}

// Writable says why the session can take no work now: its log takes nothing, or the store.
func (s *Session) Writable() error {
	if err := s.Writes(); err != nil {
		return err
	}
	return s.storeTrouble()
}

// Writes says why the session's log takes nothing now.
func (s *Session) Writes() error {
	if err := cmp.Or(s.set.store.place(), s.Readable()); err != nil {
		return err
	}
	if err := s.Log().Err(); err != nil {
		return problem.Wrap(problem.Unavailable, err, "the log of session %s cannot be written now", s.id)
	}
	return nil
}

// Keep writes down a session that was just made, so that nothing of it is lost
// once somebody knows of it.
func (s *Session) Keep() error {
	s.saving.Lock() // when the agent has said something, another writes it, too
	s.mu.Lock()
	rec, over := s.rec, s.noFilesLocked()
	s.mu.Unlock()
	var err, logErr error
	if !over {
		err = s.noteMaking()
	}
	if !over && err == nil {
		var log sync.WaitGroup // the disk does both in the time of one
		log.Go(func() { logErr = s.beginLog() })
		err = s.set.store.save(rec, s.set.o.Fsync != "never")
		log.Wait()
	}
	s.saving.Unlock()
	if over {
		return notFound(s.id)
	}
	if err != nil {
		return problem.Wrap(problem.Unavailable, err, "the session cannot be kept")
	}
	s.born.Store(nil)
	if logErr != nil {
		return problem.Wrap(problem.Unavailable, logErr, "the log of the session cannot be made")
	}
	s.mu.Lock()
	of := s.m.link
	s.mu.Unlock()
	if of != nil {
		s.record(of.p)
	}
	return s.awaitKnown()
}

// beginLog makes the log of a session that was just made.
func (s *Session) beginLog() error {
	l, err := s.openLog()
	if err != nil {
		return err
	}
	return l.Begin()
}

// openLog is called with the session's lock held, too.
func (s *Session) openLog() (*journal.Log, error) {
	if l := s.logp.Load(); l != nil {
		return l, nil
	}
	s.opening.Lock()
	defer s.opening.Unlock()
	if l := s.logp.Load(); l != nil {
		return l, nil
	}
	s.set.store.opened(s.id) // it has a record, or is opened anew
	err := s.set.store.place()
	if err == nil {
		err = s.noteMaking()
	}
	var l *journal.Log
	if err == nil {
		l, err = journal.Open(s.set.store.logPath(s.id), s.logOptions())
	}
	s.noteTrouble(err)
	if err != nil {
		return nil, err
	}
	if l.Saved() > 0 {
		if at, err := l.NewestTime(); err == nil && !at.IsZero() {
			s.active.Store(at.UnixMilli())
		}
	}
	if !s.behind.Load() { // else who catches up does it
		l.Release(0) // a list of sessions opens the logs of all of them
	}
	s.logp.Store(l)
	return l, nil
}

// logOptions says how the session's log is kept.
func (s *Session) logOptions() journal.Options {
	o := journal.Options{
		Stats: &s.set.counts, Budget: s.set.budget, Opened: s.set.opened, Old: s.set.store.oldLogPath(s.id), Damage: s.damaged, Blocks: blocksOf, Echo: s.echo, Trouble: s.logTrouble,
		Reached: s.reached, Bound: s.bound, Held: s.Held(), InPlace: s.set.store.place, ReservedMore: func() { s.set.o.Tasks.Go(func() { _ = s.noteEnd() }) }, About: s.aboutLog,
	}
	if s.set.store.dir == "" {
		o.Memory = 64 << 20 // it is all there is
	}
	switch s.set.o.Fsync {
	case "always":
		o.Sync = journal.SyncEach
	case "never":
		o.Sync = journal.SyncNever
	}
	return o
}

// aboutLog returns the record as the log keeps it, so that it can be made again. The agent
// may say something before it is on the disk.
func (s *Session) aboutLog() []byte {
	if b := s.set.store.about(s.id); b != nil {
		return b
	}
	rec := s.born.Load()
	if rec == nil {
		return nil
	}
	about := *rec
	about.Version = recordVersion
	b, err := json.Marshal(about)
	if err != nil {
		s.logger().Warn("copy the session's record to its log", "err", err)
		return nil
	}
	return b
}

// MethodDamaged tells of events that the log has lost.
const MethodDamaged = "_sandboxagent/session/events_damaged"

// damaged is the notification that clients get in the place of entries that the
// log has lost.
func (s *Session) damaged(first, last uint64) []byte { return Damaged(s.id, first, last) }

// Damaged is the notification that stands in the place of events that a session's log has lost.
func Damaged(id string, first, last uint64) []byte {
	params := rawjson.Object{}.String("sessionId", id).
		Raw("firstSeq", strconv.AppendUint(nil, first, 10)).Raw("lastSeq", strconv.AppendUint(nil, last, 10)).End()
	m := acp.NewNotification(MethodDamaged, params)
	return m.Frame()
}

// LostFrom returns the first of the events that are lost in whose place a message stands, which has the number of the last. ok
// is false for another message, and for one of an agent that says so of other events.
func LostFrom(m *acp.Message, last uint64) (first uint64, ok bool) {
	if m.Method() != MethodDamaged {
		return 0, false
	}
	var lost struct{ FirstSeq, LastSeq uint64 }
	err := json.Unmarshal(m.Params(), &lost)
	return lost.FirstSeq, err == nil && lost.FirstSeq > 0 && lost.FirstSeq <= last && lost.LastSeq == last
}

// Flush shows what was appended, or has it stored first. When the file does not take it, it
// is shown later: logTrouble is told.
func (s *Session) Flush() { s.sole.Load().Showing(s.flush) }

func (s *Session) flush() {
	log := s.Log()
	before := log.Saved()
	if log.Flush() != nil || log.Saved() == before {
		return
	}
	s.noteSaved()
	if at, err := log.NewestTime(); err == nil && !at.IsZero() { // as it is read after a restart
		s.active.Store(at.UnixMilli())
	}
	s.stirred.Store(int64(awake.Now()))
	s.mu.Lock()
	s.announceLocked()
	s.mu.Unlock()
	if s.set.o.Fsync == "interval" {
		s.set.syncer.soon(s)
	}
}

func (s *Session) syncLog() error {
	start := time.Now()
	err := s.Log().Sync()
	select {
	case <-s.gone: // it was deleted meanwhile, and its log closed
		return nil
	default:
	}
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

// logTrouble is told by the log that it takes no entries, and why, and with nil
// that it does again. Clients are told beside the log: those that do not know the
// gateway's own notifications by an update.
func (s *Session) logTrouble(err error) {
	if !s.noteTrouble(err) {
		return
	}
	for _, c := range s.Clients() {
		s.tellStorage(c, err)
	}
}

// TellTrouble tells a client that has just come when the log takes no entries.
func (s *Session) TellTrouble(c *viewer.Client) {
	err := s.set.trouble.of(s.id)
	if err == nil {
		return
	}
	s.tellStorage(c, err)
	if s.set.trouble.of(s.id) == nil { // it ended meanwhile, and may have been told before
		s.tellStorage(c, nil)
	}
}

func (s *Session) tellStorage(c *viewer.Client, err error) {
	o := rawjson.Object{}.Raw("writable", strconv.AppendBool(nil, err == nil))
	if err != nil {
		o = o.String("reason", err.Error())
	}
	storage := o.End()
	n := acp.NewNotification("_sandboxagent/session/storage", rawjson.SetMember(storage, s.quoted, "sessionId"))
	update := rawjson.Object{}.String("sessionUpdate", "session_info_update").Raw("_meta",
		rawjson.Object{}.Raw(acp.MetaKey, rawjson.Object{}.Raw("storage", storage).End()).End()).End()
	u := acp.NewNotification(acp.MethodSessionUpdate, rawjson.Object{}.Raw("sessionId", s.quoted).Raw("update", update).End())
	if c.Capabilities().WantsNotices() {
		c.Post(journal.Notice, n.Frame())
	} else {
		c.Post(journal.Notice, u.Frame())
	}
}

// closeLog closes the log of a session that is no more.
func (s *Session) closeLog() {
	if err := s.Log().Close(); err != nil {
		s.logger().Warn("close log of deleted session", "err", err)
	}
	s.set.trouble.set(s.id, nil)
	s.set.unsaved.set(s.id, nil)
}

// noteTrouble notes whether the session's log can be used, and reports whether
// that has changed. A deleted session has no log.
func (s *Session) noteTrouble(err error) (changed bool) {
	t := &s.set.trouble
	changed, tell := t.set(s.id, err)
	select {
	case <-s.gone: // closed before what was noted is taken back; see closeLog
		t.set(s.id, nil)
	default:
	}
	if tell {
		s.logger().Error("the logs of sessions cannot be used", "sessions", t.count(), "err", err)
	}
	return changed
}

// troubleEvery is how often the gateway's own log says that logs of sessions cannot
// be used, or records not be written, however many there are.
const troubleEvery = time.Minute

// trouble knows the sessions whose logs cannot be used, or whose records not be written. Its lock is the innermost.
type trouble struct {
	mu      sync.Mutex
	failing map[string]error // by session id
	told    time.Time
}

// set notes how the log or the record of a session is. changed says that it was not so before,
// tell that the gateway's own log should say it.
func (t *trouble) set(id string, err error) (changed, tell bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, was := t.failing[id]
	if err == nil {
		delete(t.failing, id)
		return was, false
	}
	if t.failing == nil {
		t.failing = map[string]error{}
	}
	t.failing[id] = err
	if tell = time.Since(t.told) >= troubleEvery; tell {
		t.told = time.Now()
	}
	return !was, tell
}

// of returns why the log of a session cannot be used; nil when it can.
func (t *trouble) of(id string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.failing[id]
}

func (t *trouble) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.failing)
}

// everybodys are the errors of one log that others would have, too.
var everybodys = []error{
	syscall.ENOSPC, syscall.EDQUOT, syscall.EROFS, syscall.EIO, syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM,
}

// problem says why no session could be written, nil when that is not known of any reason:
// what is wrong with one log alone concerns nobody else.
func (t *trouble) problem() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, err := range t.failing {
		if !slices.ContainsFunc(everybodys, func(e error) bool { return errors.Is(err, e) }) {
			continue
		}
		return problem.Wrap(problem.Unavailable, err, "%d sessions cannot be written, %s is one", len(t.failing), id)
	}
	return nil
}
