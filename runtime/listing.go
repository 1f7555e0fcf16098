package runtime

import (
	"cmp"
	"container/heap"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"iter"
	"math"
	"slices"
	"strings"
	"time"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/runtime/session"
)

const (
	defaultPage = 100
	maxPage     = 1000

	maxQuery     = 200       // characters of a search
	searchBytes  = 256 << 20 // of logs that a page of a search reads at most, and one log more
	maxSearching = 2         // searches at one time; more wait
)

// SessionOrder is how sessions are sorted.
type SessionOrder string

// The orders of sessions.
const (
	ByActivity SessionOrder = "activity" // the one in which something happened last is the first
	ByCreation SessionOrder = "created"  // the newest is the first
)

// SessionFilter selects sessions. Zero fields select all.
type SessionFilter struct {
	Cwd    string
	Agent  string
	States []State
	Query  string       // words in the title or in messages, whatever their case
	Order  SessionOrder // "" is ByActivity
	Cursor string       // as returned with the page before
	Limit  int          // 0: 100; at most 1000
}

// SessionList is a page of sessions.
type SessionList struct {
	Sessions []SessionInfo `json:"sessions"`
	// NextCursor asks for the next page; "" after the last. A page of a search can
	// have few sessions, or none, and a next one.
	NextCursor string `json:"nextCursor,omitempty"`
	// Unsearched counts the sessions whose logs could not be read, and so not be searched. The gateway's own log
	// says why.
	Unsearched int `json:"unsearched,omitempty"`
	// Position is where to follow the list from: see FollowSessions.
	Position uint64 `json:"position"`
}

// cursorAt is where a page of sessions ended.
type cursorAt struct {
	Order SessionOrder `json:"o"`
	Time  time.Time    `json:"t"` // by which they are sorted
	ID    string       `json:"i"`
}

// order is below zero when a page has a before b.
func (a cursorAt) order(b cursorAt) int {
	return cmp.Or(b.Time.Compare(a.Time), strings.Compare(a.ID, b.ID))
}

// row is a session that may be on a page.
type row struct {
	s  *session.Session
	at cursorAt
}

// rows are a heap: a page needs the first few of many in their order.
type rows []row

// with returns the rows with one more, and without the last of them when they are too many: the
// first most of them are looked for.
func (r rows) with(one row, most int) rows {
	if most > math.MaxInt/2 || len(r) < 2*most {
		return append(r, one)
	}
	slices.SortFunc(r, func(a, b row) int { return a.at.order(b.at) })
	return append(r[:most], one)
}

func (r rows) Len() int           { return len(r) }
func (r rows) Less(i, j int) bool { return r[i].at.order(r[j].at) < 0 }
func (r rows) Swap(i, j int)      { r[i], r[j] = r[j], r[i] }
func (r *rows) Push(x any)        { *r = append(*r, x.(row)) }
func (r *rows) Pop() any {
	old := *r
	last := old[len(old)-1]
	*r = old[:len(old)-1]
	return last
}

// check says what is wrong with a filter, and returns it with what it leaves open.
func (f SessionFilter) check() (SessionFilter, *cursorAt, error) {
	invalid := func(parameter, format string, args ...any) error {
		return problem.New(problem.InvalidRequest, format, args...).With("parameter", parameter)
	}
	f.Limit, f.Order = cmp.Or(f.Limit, defaultPage), cmp.Or(f.Order, ByActivity)
	switch {
	case f.Limit < 1 || f.Limit > maxPage:
		return f, nil, invalid("limit", "limit must be between 1 and %d", maxPage)
	case f.Order != ByActivity && f.Order != ByCreation:
		return f, nil, invalid("sort", "sort must be %s or %s, not %q", ByActivity, ByCreation, f.Order)
	case len(f.Query) > maxQuery:
		return f, nil, invalid("q", "q may have %d bytes: search for fewer words", maxQuery)
	}
	for _, s := range f.States {
		if !slices.Contains(session.States, s) {
			return f, nil, invalid("state", "state %q is none: the states are %s", s, stateNames())
		}
	}
	if f.Cursor == "" {
		return f, nil, nil
	}
	var from *cursorAt
	b, err := base64.RawURLEncoding.DecodeString(f.Cursor)
	if err == nil {
		err = json.Unmarshal(b, &from)
	}
	if err != nil || from == nil || from.Order != f.Order {
		return f, nil, invalid("cursor", "the cursor is not one that this gateway gave for such a list: begin without one")
	}
	return f, from, nil
}

// Sessions returns a page of sessions.
func (r *Runtime) Sessions(ctx context.Context, f SessionFilter) (SessionList, error) {
	f, from, err := f.check()
	if err != nil {
		return SessionList{}, err
	}
	list := SessionList{Sessions: []SessionInfo{}, Position: r.sessions.Position()} // what changes from here on is told, too
	var rows rows
	most := f.Limit + 1 // one more says that there is a next page
	if len(f.States) > 0 || f.Query != "" {
		most = math.MaxInt // which of them are on the page is seen later
	}
	for _, s := range r.sessions.All() {
		// After a kill the logs of thousands may have to be opened: neither the end of the gateway nor a client that is gone waits for it.
		if r.ctx.Err() != nil || ctx.Err() != nil {
			return SessionList{}, cmp.Or(context.Cause(r.ctx), context.Cause(ctx))
		}
		about := s.About()
		if f.Cwd != "" && about.Cwd != f.Cwd || f.Agent != "" && about.Agent != f.Agent {
			continue
		}
		at := cursorAt{f.Order, about.CreatedAt, s.ID()}
		if f.Order == ByActivity {
			at.Time = s.Active()
		}
		if from != nil && at.order(*from) <= 0 {
			continue
		}
		rows = rows.with(row{s, at}, most)
	}
	heap.Init(&rows)
	if f.Query != "" {
		select {
		case r.searching <- struct{}{}:
			defer func() { <-r.searching }()
		case <-ctx.Done():
			return SessionList{}, context.Cause(ctx)
		}
	}
	search := session.NewSearch(f.Query, searchBytes)
	var last cursorAt
	for len(rows) > 0 {
		if len(list.Sessions) == f.Limit || search.Spent() {
			b, err := json.Marshal(last)
			if err != nil {
				return SessionList{}, problem.Wrap(problem.Internal, err, "encode cursor")
			}
			list.NextCursor = base64.RawURLEncoding.EncodeToString(b)
			break
		}
		row := heap.Pop(&rows).(row)
		last = row.at
		info := row.s.Info()
		if len(f.States) > 0 && !slices.Contains(f.States, info.State) {
			continue
		}
		if f.Query != "" {
			info.Match, err = search.In(ctx, row.s)
			p, _ := errors.AsType[*problem.Error](err)
			switch {
			case err != nil && cmp.Or(r.ctx.Err(), ctx.Err()) != nil:
				return SessionList{}, err
			case p != nil && p.Kind == problem.SessionNotFound: // deleted meanwhile
			case err != nil: // one of thousands keeps nobody from finding the others
				if list.Unsearched++; list.Unsearched == 1 {
					r.log.Warn("sessions could not be searched, this one is the first", "session", row.s.ID(), "err", err)
				}
			}
			if info.Match == nil {
				continue
			}
		}
		list.Sessions = append(list.Sessions, info)
	}
	return list, nil
}

// SessionChange is what those who follow the list of sessions are told.
type SessionChange struct {
	Position uint64 `json:"position"` // to follow it from later
	// Type is one of the Change constants.
	Type      ChangeType   `json:"type"`
	SessionID string       `json:"sessionId,omitempty"`
	Session   *SessionInfo `json:"session,omitempty"`
}

// ChangeType says what a SessionChange tells.
type ChangeType string

// The types of changes.
const (
	// ChangeReset says that all sessions follow: what was told before counts no more.
	ChangeReset ChangeType = "reset"
	// ChangeSession says how a session is now, which may be a new one.
	ChangeSession ChangeType = "session"
	// ChangeDeleted says that a session was deleted. At a gateway with a hub those follow a reset that were
	// deleted before the gateway began, lately.
	ChangeDeleted ChangeType = "deleted"
	// ChangeCurrent says that all that had changed until now was told.
	ChangeCurrent ChangeType = "current"
)

// changesAtOnce bounds how many sessions a follower looks at before it is asked for more.
const changesAtOnce = 64

// FollowSessions yields how the list of sessions changes after a position, waiting for
// more, until ctx or the gateway ends. Of a position that is not known, or too old, all
// sessions are told, behind a reset. There are no errors. Of a session that has changed often since it was
// told last only how it is now is told: a slow reader lags and costs nobody anything.
func (r *Runtime) FollowSessions(ctx context.Context, after uint64) iter.Seq2[SessionChange, error] {
	return func(yield func(SessionChange, error) bool) {
		wake := make(chan struct{}, 1)
		defer r.sessions.Watch(wake)()
		f := r.sessions.Follow(after)
		var batch []session.ListChange
		for current := false; ctx.Err() == nil && r.ctx.Err() == nil; {
			var anew bool
			batch, anew = f.Next(batch[:0], changesAtOnce)
			if anew {
				current = false
				if !yield(SessionChange{Position: 0, Type: ChangeReset}, nil) {
					return
				}
				for _, id := range r.sessions.DeletedBefore() {
					if r.sessions.Find(id) == nil && !yield(SessionChange{Type: ChangeDeleted, SessionID: id}, nil) {
						return
					}
				}
			}
			for _, c := range batch {
				told := SessionChange{Position: c.Position, Type: ChangeDeleted, SessionID: c.Key}
				if !c.Gone {
					info := c.Value.Info()
					told.Type, told.Session = ChangeSession, &info
				}
				if !yield(told, nil) {
					return
				}
			}
			if len(batch) == changesAtOnce {
				continue
			}
			if !current {
				current = true
				if !yield(SessionChange{Position: f.Position(), Type: ChangeCurrent}, nil) {
					return
				}
			}
			select {
			case <-wake:
			case <-ctx.Done():
				return
			case <-r.ctx.Done():
				return
			}
		}
	}
}

// stateNames are the states that a session can have, for people.
func stateNames() string {
	var names []string
	for _, s := range session.States {
		names = append(names, string(s))
	}
	return strings.Join(names, ", ")
}
