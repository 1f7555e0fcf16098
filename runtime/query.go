package runtime

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/runtime/journal"
)

const (
	defaultPage = 100
	maxPage     = 1000
)

// info describes the session.
func (s *Session) info() SessionInfo {
	count := s.log().Count()
	updated := time.UnixMilli(s.active.Load()).UTC()
	pending := len(s.pending())
	s.mu.Lock()
	defer s.mu.Unlock()
	clients := map[*Client]bool{}
	for f := range s.feeds {
		clients[f.client] = true
	}
	return SessionInfo{
		ID: s.id, Agent: s.rec.Agent, AgentSessionID: s.rec.AgentSessionID, Title: s.rec.Title, Cwd: s.rec.Cwd,
		Model: modelsOf(s.rec.ConfigOptions).Current, State: s.stateLocked(), Continuity: s.rec.Continuity,
		CreatedAt: s.rec.CreatedAt, UpdatedAt: updated, EventCount: count, Clients: len(clients), Pending: pending,
		Ended: s.rec.Ended, Metadata: s.rec.Metadata,
	}
}

// cursorAt is where a page of sessions ended.
type cursorAt struct {
	Created time.Time `json:"c"`
	ID      string    `json:"i"`
}

// Sessions returns a page of sessions, newest first, and the cursor of the next
// page, "" after the last.
func (r *Runtime) Sessions(f SessionFilter) (page []SessionInfo, next string, err error) {
	limit := f.Limit
	if limit == 0 {
		limit = defaultPage
	}
	if limit < 1 || limit > maxPage {
		return nil, "", problem.New(problem.InvalidRequest, "limit must be 1 to %d", maxPage)
	}
	var from *cursorAt
	if f.Cursor != "" {
		b, err := base64.RawURLEncoding.DecodeString(f.Cursor)
		if err == nil {
			err = json.Unmarshal(b, &from)
		}
		if err != nil || from == nil {
			return nil, "", problem.New(problem.InvalidRequest, "the cursor is not one that this gateway gave: begin without one")
		}
	}
	type row struct {
		s  *Session
		at cursorAt
	}
	order := func(a, b cursorAt) int {
		return cmp.Or(b.Created.Compare(a.Created), strings.Compare(a.ID, b.ID))
	}
	var rows []row
	for _, s := range r.allSessions() {
		s.mu.Lock()
		rec := s.rec
		s.mu.Unlock()
		at := cursorAt{rec.CreatedAt, s.id}
		if f.Cwd != "" && rec.Cwd != f.Cwd || f.Agent != "" && rec.Agent != f.Agent || from != nil && order(at, *from) <= 0 {
			continue
		}
		rows = append(rows, row{s, at})
	}
	slices.SortFunc(rows, func(a, b row) int { return order(a.at, b.at) })
	if len(rows) > limit {
		rows = rows[:limit]
		b, err := json.Marshal(rows[limit-1].at)
		if err != nil {
			return nil, "", problem.Wrap(problem.Internal, err, "encode cursor")
		}
		next = base64.RawURLEncoding.EncodeToString(b)
	}
	page = make([]SessionInfo, 0, len(rows))
	for _, row := range rows {
		page = append(page, row.s.info())
	}
	return page, next, nil
}

// Session describes one session.
func (r *Runtime) Session(id string) (SessionInfo, error) {
	s := r.session(id)
	if s == nil {
		return SessionInfo{}, problem.New(problem.SessionNotFound, "session %q was not found", id)
	}
	return s.info(), nil
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

// logProblem is an error of a log as a problem.
func logProblem(err error) error {
	if gone, ok := errors.AsType[*journal.TruncatedError](err); ok {
		return problem.New(problem.EventsExpired, "events after %d are no longer kept, the oldest is %d", gone.After, gone.Oldest).With("oldestSeq", gone.Oldest)
	}
	return problem.Wrap(problem.Internal, err, "cannot read the session's log")
}

// Events returns up to limit events after a sequence number; 0 means 100.
func (r *Runtime) Events(ctx context.Context, id string, after uint64, limit int) (events []Event, hasMore bool, err error) {
	s := r.session(id)
	if s == nil {
		return nil, false, problem.New(problem.SessionNotFound, "session %q was not found", id)
	}
	if limit == 0 {
		limit = defaultPage
	}
	if limit < 1 || limit > maxPage {
		return nil, false, problem.New(problem.InvalidRequest, "limit must be 1 to %d", maxPage)
	}
	if err := s.logReady(); err != nil {
		return nil, false, err
	}
	events = []Event{}
	s.settleCalls()
	l := s.log()
	cur := l.Cursor(after)
	for len(events) < limit && ctx.Err() == nil {
		batch, err := cur.Next(nil, 64<<10)
		if err != nil {
			return nil, false, logProblem(err)
		}
		if len(batch) == 0 {
			return events, false, nil
		}
		for _, e := range batch[:min(len(batch), limit-len(events))] {
			events = append(events, event(e))
		}
	}
	return events, len(events) > 0 && events[len(events)-1].Seq < l.Last(), context.Cause(ctx)
}

// FollowEvents yields the session's events after a sequence number, waiting for
// more, until ctx ends or the session is deleted.
func (r *Runtime) FollowEvents(ctx context.Context, id string, after uint64) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		s := r.session(id)
		if s == nil {
			yield(Event{}, problem.New(problem.SessionNotFound, "session %q was not found", id))
			return
		}
		if err := s.logReady(); err != nil {
			yield(Event{}, err)
			return
		}
		s.settleCalls()
		for e, err := range s.log().Follow(ctx, after) {
			if err != nil {
				yield(Event{}, logProblem(err))
				return
			}
			if !yield(event(e), nil) {
				return
			}
		}
	}
}

// scratch returns a private directory for sessions that only ask something.
func (r *Runtime) scratch() (string, error) {
	if r.o.DataDir == "" {
		return os.TempDir(), nil
	}
	dir := filepath.Join(r.o.DataDir, "scratch")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", problem.Wrap(problem.Internal, err, "create scratch directory")
	}
	return dir, nil
}
