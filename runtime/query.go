package runtime

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/internal/memory"
	"sandboxagent.dev/sandbox-agent/runtime/journal"
	"sandboxagent.dev/sandbox-agent/runtime/session"
)

// Session describes one session, with what lists leave out.
func (r *Runtime) Session(id string) (SessionInfo, error) {
	s := r.sessions.Find(id)
	if s == nil {
		return SessionInfo{}, noSession(id)
	}
	return s.Details(), nil
}

// Raw returns what was recorded of what a session's agent and the gateway said to each other, in
// the agent's own language: lines of JSON, the oldest first. The caller closes it.
func (r *Runtime) Raw(ctx context.Context, id string) (io.ReadCloser, error) {
	s := r.sessions.Find(id)
	if s == nil {
		return nil, noSession(id)
	}
	raw, err := s.Raw(ctx)
	if err != nil {
		return nil, problem.Wrap(problem.Unavailable, err, "the recording of session %s cannot be read", id)
	}
	if raw == nil {
		return nil, problem.New(problem.NotFound, `nothing was recorded of the traffic of session %s: make or load it with _meta["%s"].includeRaw true`, id, acp.MetaKey).With("sessionId", id)
	}
	return raw, nil
}

// Permissions lists what clients have allowed a session's agent for more than one call, the oldest first.
func (r *Runtime) Permissions(id string) ([]Grant, error) {
	s := r.sessions.Find(id)
	if s == nil {
		return nil, noSession(id)
	}
	return s.Grants(), nil
}

// ForgetPermissions takes some of that back, or all that can be if there are no ids; see
// [session.Session.BeginForget].
func (r *Runtime) ForgetPermissions(ctx context.Context, id string, ids ...string) (forgotten []Grant, err error) {
	s := r.sessions.Find(id)
	if s == nil {
		return nil, noSession(id)
	}
	return s.BeginForget(ids)(ctx)
}

// Cleaner returns what takes secrets out of texts of a session: what looks like a key, its own
// credentials, and the values of variables that are called keys.
func (r *Runtime) Cleaner(id string) (func(text string) string, error) {
	s := r.sessions.Find(id)
	if s == nil {
		return nil, noSession(id)
	}
	return s.Cleaner(), nil
}

// event is a log entry as the API shows it. It shares no memory with the log.
func event(e journal.Entry) Event {
	d := FromAgent
	switch e.Kind {
	case journal.Client:
		d = FromClient
	case journal.AskDone, journal.Echo, journal.TurnEnd, journal.Damage:
		d = FromGateway
	}
	return Event{Seq: e.Seq, Time: e.Time().UTC(), Direction: d, Message: slices.Clone(e.Frame)}
}

// AppendEntry appends the entry of a log that an event shows, as a line of the file in which
// sessions travel. What only one client was told, nobody is told again.
func (e Event) AppendEntry(b []byte) ([]byte, error) {
	m, err := acp.Parse(e.Message)
	if err != nil {
		return b, fmt.Errorf("event %d is no message: %w", e.Seq, err)
	}
	kind, to := journal.Notice, journal.Everyone
	switch {
	case e.Direction == FromClient:
		kind, to = journal.Client, journal.Nobody
	case m.IsResponse():
		kind, to = journal.Response, journal.Nobody
	case m.IsRequest():
		kind = journal.Ask
	case m.Method() == acp.MethodCancelRequest:
		kind = journal.AskDone
	case m.Method() == acp.MethodSessionUpdate && e.Direction == FromGateway:
		kind = journal.Echo
	case m.Method() == acp.MethodSessionUpdate:
		kind = journal.Update
	case m.Method() == session.MethodDamaged: // it travels as that, and is noted where it arrives
	case e.Direction == FromGateway:
		kind = journal.TurnEnd
	}
	return journal.AppendEntry(b, e.Seq, e.Time, kind, to, e.Message), nil
}

const pageBytes = 4 << 20 // after which a page of events ends

// roomIn returns what a cursor asks before it takes much memory.
func roomIn(ctx context.Context) func(bytes int) error {
	share := memory.From(ctx)
	return func(bytes int) error {
		if share.Take(ctx, bytes) != nil {
			return problem.New(problem.TooManyRequests, "answers to clients take all the memory that they may have: try again, or raise it with --max-memory")
		}
		return nil
	}
}

// Events returns up to limit events after a sequence number; 0 means 100. They are fewer
// when they are large. Its memory is that of the share of ctx.
func (r *Runtime) Events(ctx context.Context, id string, after uint64, limit int) (events []Event, hasMore bool, err error) {
	return r.page(ctx, id, after, limit, func(*session.Session) (showing, error) { return asLogged, nil })
}

// showing adds to events what an entry is shown as.
type showing func(e journal.Entry, events []Event) []Event

// asLogged shows what the log has. What an agent said in version 2 is there in version 1, too.
func asLogged(e journal.Entry, events []Event) []Event {
	if e.Kind == journal.Second {
		return events
	}
	return append(events, event(e))
}

// page returns what entries after one are shown as: all of an entry or nothing.
func (r *Runtime) page(ctx context.Context, id string, after uint64, limit int, begin func(*session.Session) (showing, error)) (events []Event, hasMore bool, err error) {
	s := r.sessions.Find(id)
	if s == nil {
		return nil, false, noSession(id)
	}
	if limit == 0 {
		limit = defaultPage
	}
	if limit < 1 || limit > maxPage {
		return nil, false, problem.New(problem.InvalidRequest, "limit must be 1 to %d", maxPage)
	}
	if err := s.Readable(); err != nil {
		return nil, false, err
	}
	s.EndLostCalls()
	l := s.Log()
	if err := wasGiven(s, l, after); err != nil {
		return nil, false, err
	}
	show, err := begin(s)
	if err != nil {
		return nil, false, err
	}
	events, upTo, err := readEvents(ctx, s, l.Cursor(after), limit, show)
	return events, len(events) > 0 && upTo < l.Last(), err
}

// wasGiven refuses to read behind an event that the session never had: one of another session that had its id before,
// or of what was behind a backup. Who waits behind it would miss all before it.
func wasGiven(s *session.Session, l *journal.Log, after uint64) error {
	if newest := l.Given(); after > newest {
		return problem.New(problem.InvalidRequest, "session %s has no event %d, its newest is %d: read it from its beginning", s.ID(), after, newest).With("parameter", "after")
	}
	return nil
}

// readEvents returns about limit events from where the cursor is, all that an entry is shown as or
// nothing, and the entry up to which the log was read for them: not all entries are events.
func readEvents(ctx context.Context, s *session.Session, cur *journal.Cursor, limit int, show showing) (events []Event, upTo uint64, err error) {
	events, upTo = []Event{}, cur.After()
	cur.Room = roomIn(ctx)
	for held := 0; len(events) < limit && (held < pageBytes || len(events) == 0) && ctx.Err() == nil; {
		batch, err := cur.Next(nil, 64<<10)
		if err != nil {
			return nil, 0, readProblem(s, err)
		}
		if len(batch) == 0 {
			break
		}
		for _, e := range batch {
			if len(events) >= limit {
				break
			}
			held += len(e.Frame)
			upTo = e.Seq
			before := len(events)
			events = show(e, events)
			for _, ev := range events[before:] {
				if err := cur.Room(EventBytes(ev.Message)); err != nil {
					return nil, 0, err
				}
			}
		}
	}
	return events, upTo, context.Cause(ctx)
}

// EventsToStore is Events for who copies sessions into the store of the gateway's hub, and says
// that it has the session up to the entry stored, and in trouble why it takes no more, "" when it does. Of a session whose durability is sync clients
// are shown that then, and who copies is given the rest, too. If there is nothing behind after it
// is waited for, up to the time given. upTo is the entry up to which the page goes.
func (r *Runtime) EventsToStore(ctx context.Context, id string, after, stored uint64, trouble string, limit int, wait time.Duration) (events []Event, upTo uint64, hasMore bool, err error) {
	a, err := r.attendance(id, after, limit)
	if err != nil {
		return nil, 0, false, err
	}
	if a.s.Held() {
		a.s.Attend(stored, trouble)
	}
	events, hasMore, err = a.Next(ctx, wait)
	return events, a.after, hasMore, err
}

// Attendance gives the events of a session whose durability is sync to who copies it, page by page.
// Its methods may be called at the same time, each by one goroutine.
type Attendance struct {
	r     *Runtime
	s     *session.Session
	limit int
	after uint64 // of Next
	given atomic.Uint64
}

// Attend begins with what EventsToStore would give. It returns nil for a session of which all is shown at
// once.
func (r *Runtime) Attend(id string, after, stored uint64, trouble string, limit int) (*Attendance, error) {
	a, err := r.attendance(id, after, limit)
	if err != nil || !a.s.Held() {
		return nil, err
	}
	a.given.Store(stored)
	a.s.Attend(stored, trouble)
	return a, nil
}

func (r *Runtime) attendance(id string, after uint64, limit int) (*Attendance, error) {
	s := r.sessions.Find(id)
	if s == nil {
		return nil, noSession(id)
	}
	if limit < 1 || limit > maxPage {
		return nil, problem.New(problem.InvalidRequest, "limit must be 1 to %d", maxPage)
	}
	if err := s.Readable(); err != nil {
		return nil, err
	}
	return &Attendance{r: r, s: s, limit: limit, after: after}, nil
}

// Next returns the next page of events. If there is nothing it is waited for, up to the time given. Then there may
// be none, and nobody counts as waiting any more.
func (a *Attendance) Next(ctx context.Context, wait time.Duration) (events []Event, hasMore bool, err error) {
	a.s.EndLostCalls()
	l := a.s.Log()
	if a.s.Held() && !a.r.awaitSaved(ctx, a.s, l, a.after, wait) {
		a.s.Unattended()
		return []Event{}, false, context.Cause(ctx)
	}
	events, upTo, err := readEvents(ctx, a.s, l.Whole(a.after), a.limit, asLogged)
	if err != nil {
		if a.s.Held() {
			a.s.Unattended()
		}
		return nil, false, err
	}
	a.after = upTo
	a.given.Store(max(upTo, a.given.Load()))
	return events, a.after < l.Saved(), nil
}

// UpTo returns the entry up to which Next has given all. It is called by who calls that.
func (a *Attendance) UpTo() uint64 { return a.after }

// Stored notes that the store has what was given, up to an entry. False says that so much was not given.
func (a *Attendance) Stored(upTo uint64) bool {
	if upTo > a.given.Load() {
		return false
	}
	a.s.Attend(upTo, "")
	return true
}

// End says that nobody waits any more. It is called last.
func (a *Attendance) End() { a.s.Unattended() }

// awaitSaved waits until the log has something behind an entry that it has, and reports whether
// it does. In the place of a log that has lost that entry others are asked for.
func (r *Runtime) awaitSaved(ctx context.Context, s *session.Session, l *journal.Log, after uint64, wait time.Duration) bool {
	if l.Saved() != after || wait <= 0 {
		return l.Saved() > after
	}
	wake := make(chan struct{}, 1)
	defer l.Watch(wake)()
	late := time.NewTimer(wait)
	defer late.Stop()
	for replying := false; ; {
		there := l.Saved() > after
		switch {
		case there && !onlySaid(l, after):
			return true
		case there && !replying:
			replying = true
			late.Reset(min(wait, replySoon))
		}
		select {
		case <-wake:
		case <-late.C:
			return l.Saved() > after
		case <-ctx.Done():
			return false
		case <-s.Gone():
			return false
		case <-r.ctx.Done():
			return false
		}
	}
}

// replySoon is how long what clients have said waits for what is said to them, to be stored with it: it
// is shown to none of them before.
const replySoon = 2 * time.Millisecond

// onlySaid reports whether all that the log has behind an entry was said by clients.
func onlySaid(l *journal.Log, after uint64) bool {
	batch, err := l.Whole(after).Next(nil, 4<<10)
	return err == nil && len(batch) > 0 && batch[len(batch)-1].Seq == l.Saved() &&
		!slices.ContainsFunc(batch, func(e journal.Entry) bool { return e.Kind != journal.Client && e.Kind != journal.Echo })
}

// readProblem returns what is told of an error of a cursor: that of its room is one already.
func readProblem(s *session.Session, err error) error {
	if p, ok := errors.AsType[*problem.Error](err); ok {
		return p
	}
	return s.ReadProblem(err)
}

// FollowEvents yields the session's events after a sequence number, waiting for
// more, until ctx ends or the session is deleted. Its memory is that of the share of ctx.
func (r *Runtime) FollowEvents(ctx context.Context, id string, after uint64) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		s := r.sessions.Find(id)
		if s == nil {
			yield(Event{}, noSession(id))
			return
		}
		if err := s.Readable(); err != nil {
			yield(Event{}, err)
			return
		}
		s.EndLostCalls()
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		r.tasks.Go(func() {
			select {
			case <-s.Gone():
				stop()
			case <-ctx.Done():
			case <-r.ctx.Done(): // whoever serves the follower ends it
			}
		})
		l := s.Log()
		if err := wasGiven(s, l, after); err != nil {
			yield(Event{}, err)
			return
		}
		cur := l.Cursor(after)
		cur.Room = roomIn(ctx)
		for e, err := range cur.Follow(ctx) {
			if err != nil {
				if ctx.Err() != nil {
					return
				}
				yield(Event{}, readProblem(s, err))
				return
			}
			if e.Kind == journal.Second {
				continue // told in version 1, too
			}
			if err := cur.Room(EventBytes(e.Frame)); err != nil {
				yield(Event{}, err)
				return
			}
			if !yield(event(e), nil) {
				return
			}
		}
	}
}

// EventBytes returns what an event with the message takes of its share: here, and as it is
// sent.
func EventBytes(message []byte) int { return 2 * (len(message) + 100) }

// scratch returns a private directory for sessions that only ask something.
func (r *Runtime) scratch() (string, error) {
	if r.o.DataDir == "" {
		return r.agents.Scratch()
	}
	dir := filepath.Join(r.o.DataDir, "scratch")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", problem.Wrap(problem.Internal, err, "create scratch directory")
	}
	return dir, nil
}

// CloseSession closes the session as session/close does.
func (r *Runtime) CloseSession(ctx context.Context, id string) (went string, err error) {
	s := r.sessions.Find(id)
	if s == nil {
		return "", noSession(id)
	}
	return s.Close(ctx)
}

// DepartSession closes a session that goes on at another gateway, and notes which; see
// [session.Session.Depart].
func (r *Runtime) DepartSession(ctx context.Context, id string, last uint64, edits *uint64, to string) error {
	s := r.sessions.Find(id)
	if s == nil {
		return noSession(id)
	}
	return s.Depart(ctx, last, edits, to)
}

// DeleteSession ends the session and removes everything of it; see [session.Session.Delete].
func (r *Runtime) DeleteSession(ctx context.Context, id string) (went string, err error) {
	s := r.sessions.Find(id)
	if s == nil {
		return "", noSession(id)
	}
	return s.Delete(ctx)
}

func noSession(id string) error {
	return problem.New(problem.SessionNotFound, "session %q was not found", id)
}
