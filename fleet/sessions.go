package fleet

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/control"
	"sandboxagent.dev/sandbox-agent/fleet/relay"
	"sandboxagent.dev/sandbox-agent/fleet/replica"
	"sandboxagent.dev/sandbox-agent/fleet/store"
	"sandboxagent.dev/sandbox-agent/fleet/tunnel"
	"sandboxagent.dev/sandbox-agent/runtime"
	"sandboxagent.dev/sandbox-agent/runtime/session"
)

// The states that sessions have at a hub beside those that they have at a gateway.
const (
	// SessionOffline says that the node is not connected.
	SessionOffline runtime.State = "offline"
	// SessionGone says that the node has the session no more, or is forgotten: the
	// replica is all that there is of it.
	SessionGone runtime.State = "gone"
	// SessionMoved says that another node has the session: it went there from this one,
	// or what this one has is left of a move that failed.
	SessionMoved runtime.State = "moved"
)

var sessionStates = slices.Concat(session.States, []runtime.State{SessionOffline, SessionGone, SessionMoved})

const (
	usualSessions = 100 // in a page
	mostSessions  = 1000
	maxQuery      = 200       // bytes of a search
	searchBytes   = 256 << 20 // of replicas that a page of a search reads at most, and one replica more
	maxSearching  = 2         // searches at one time; more wait
)

// Session is a session as clients see it.
type Session struct {
	runtime.SessionInfo
	Node    string  `json:"node"`
	Epoch   uint64  `json:"epoch"` // tells sessions apart that had the same id on the same node
	Replica Replica `json:"replica"`
	Moves   *Moves  `json:"moves,omitempty"` // nil for a session that was never moved
}

// Moves says where a session has been.
type Moves struct {
	Term  uint64    `json:"term"`         // grows by one with each move
	Node  string    `json:"node"`         // that has it
	Since time.Time `json:"since"`        // when it came there
	To    string    `json:"to,omitempty"` // where it is being moved
	// Before are nodes that had it, in order, as far as they are known.
	Before []MovedFrom `json:"before"`
}

// MovedFrom is a node that a session went from.
type MovedFrom struct {
	Node    string    `json:"node"`
	Term    uint64    `json:"term"`
	Until   time.Time `json:"until"`
	LastSeq uint64    `json:"lastSeq"` // the last event that went along
	Missing uint64    `json:"missing"` // events that it had told of and that did not go along, at most
	// Extra is how many events were copied from it that are no part of the session: what it did
	// when the session was somewhere else. They are kept with what that node has of it.
	Extra uint64 `json:"extra"`
}

// Replica says what the hub has of a session's events.
type Replica struct {
	LastSeq uint64 `json:"lastSeq"` // all that the node had up to this number is there
	// Missing is how many events behind it the node has told of, at most, those included that
	// its clients were not shown. Of what the node had not told yet nobody knows.
	Missing uint64 `json:"missing"`
	// MayMiss says that the node was lost while it was at work on the session: what it did in the
	// last moments, and had told nobody, is not counted in Missing.
	MayMiss bool       `json:"mayMiss,omitempty"`
	Trouble string     `json:"trouble,omitempty"` // why there are no more of them
	Gone    *time.Time `json:"gone,omitempty"`    // since when the node has the session no more
	// Bundle is the session's newest event when what its agent keeps of it was stored, 0 for
	// never: then it cannot go on without its node.
	Bundle        uint64 `json:"bundle,omitempty"`
	BundleTrouble string `json:"bundleTrouble,omitempty"` // why there is no newer one
}

// SessionList is a page of sessions.
type SessionList struct {
	Sessions []Session `json:"sessions"`
	// NextCursor asks for the next page; "" after the last. A page of a search can
	// have few sessions, or none, and a next one.
	NextCursor string `json:"nextCursor,omitempty"`
	// Position is where to follow the list from: see SessionChange.
	Position uint64 `json:"position"`
}

// belongs returns the labels by which tokens are for a session, and what it is doing.
func (h *Hub) belongs(s *store.Session) (labels map[string]string, state runtime.State) {
	return h.belongsIf(s, h.online)
}

// belongsIf is belongs where online says which nodes are there.
func (h *Hub) belongsIf(s *store.Session, online func(store.Node) bool) (labels map[string]string, state runtime.State) {
	n, is := h.itsNode(s)
	if labels = s.Labels; is {
		labels = n.Labels
	}
	switch {
	case h.o.Store.Owner(store.LineOf(s.Info)).Other(s.Node) != nil:
		return labels, SessionMoved
	case !is || s.Gone != nil:
		return labels, SessionGone
	case !online(n):
		return labels, SessionOffline
	}
	return labels, s.Info.State
}

// itsNode returns the node of a session. It is false when that was forgotten, also where another one has its name now.
func (h *Hub) itsNode(s *store.Session) (store.Node, bool) {
	n, known := h.o.Store.Node(s.Node)
	return n, known && s.Of(n)
}

// sessionShown is a session as clients see it. Where the record says that something is
// missing, and if it must be exact, the replica itself is asked: a hub that was killed may have
// added to it and not have noted that.
func (h *Hub) sessionShown(ctx context.Context, s *store.Session, state runtime.State, exact bool) (Session, error) {
	told, trouble := h.progress(s)
	through := s.Through
	if exact || told > through {
		end, err := h.o.Store.End(ctx, s.ReplicaID)
		if err != nil {
			return Session{}, unreadable(ctx, err)
		}
		through = max(through, end.Last)
	}
	return h.shownAs(s, state, told, through, trouble), nil
}

// progress returns what the node of a session has told of, and why the last attempt to copy it has failed, as far as this hub
// knows.
func (h *Hub) progress(s *store.Session) (told uint64, trouble string) {
	told, trouble = replica.Told(&s.Info), s.Trouble
	if l := h.links.get(s.Node); l != nil && l.follower != nil {
		now, failed := l.follower.Progress(s.ReplicaID)
		told, trouble = max(told, now), cmp.Or(failed, trouble)
	}
	return told, trouble
}

// shownAs is a session as clients see it when its node has told of events up to one, and the replica has
// those up to another.
func (h *Hub) shownAs(s *store.Session, state runtime.State, told, through uint64, trouble string) Session {
	out := Session{SessionInfo: s.Info, Node: s.Node, Epoch: s.Epoch, Replica: Replica{LastSeq: through, Trouble: trouble, Gone: s.Gone, Bundle: s.Bundled, BundleTrouble: s.BundleTrouble}}
	// The copy can have more than the node had told of when it was asked.
	out.EventCount = max(out.EventCount, out.Replica.LastSeq)
	out.Replica.Missing = max(told, out.Replica.LastSeq) - out.Replica.LastSeq
	out.Unstored = min(out.Unstored, out.Replica.Missing)
	if out.State = state; state == SessionOffline || state == SessionGone || state == SessionMoved {
		out.Clients, out.Unstored = 0, 0 // nobody is there, and nothing waits for the store
		out.Replica.MayMiss = !resting[s.Info.State] && s.Info.Ended == nil
	}
	out.Moves = h.movesOf(s)
	return out
}

// movesOf returns where a session has been, nil for one that was never moved.
func (h *Hub) movesOf(s *store.Session) *Moves {
	line := store.LineOf(s.Info)
	o := h.o.Store.Owner(line)
	if o == nil || o.Term == 1 && o.Moving == nil {
		return nil
	}
	out := &Moves{Term: o.Term, Node: o.Node, Since: o.Since, Before: []MovedFrom{}}
	if h.underWay(o.Moving) && o.Moving.To != o.Node {
		out.To = o.Moving.To
	}
	for _, b := range o.Others {
		if b.Term == 0 {
			continue
		}
		before := MovedFrom{Node: b.Node, Term: b.Term, Until: b.Until, LastSeq: b.LastSeq, Missing: b.Missing}
		if copied := h.newest(b.Node, line); copied != nil && copied.Through > b.LastSeq {
			before.Extra = copied.Extra
		}
		out.Before = append(out.Before, before)
	}
	return out
}

// sessionFilter selects sessions of a list.
type sessionFilter struct {
	node, agent, cwd, words string
	labels                  store.Token // only those of nodes with its labels
	states                  []runtime.State
	order                   runtime.SessionOrder
	limit                   int
	from                    *sessionCursor
}

// sessionCursor is where a page ended.
type sessionCursor struct {
	Order runtime.SessionOrder `json:"o"`
	Time  time.Time            `json:"t"` // by which they are sorted
	ID    store.ReplicaID      `json:"i"`
}

func (a sessionCursor) compare(b sessionCursor) int {
	return cmp.Or(b.Time.Compare(a.Time), cmp.Compare(a.ID.Session, b.ID.Session), cmp.Compare(a.ID.Node, b.ID.Node), cmp.Compare(b.ID.Epoch, a.ID.Epoch))
}

func invalidParam(parameter, format string, args ...any) error {
	return problem.New(problem.InvalidRequest, format, args...).With("parameter", parameter)
}

func numberParam(q url.Values, name string, absent, least, most uint64) (uint64, error) {
	text := q.Get(name)
	if text == "" {
		return absent, nil
	}
	n, err := strconv.ParseUint(text, 10, 63)
	if err != nil || n < least || n > most {
		return 0, invalidParam(name, "%s must be a whole number from %d to %d, not %q", name, least, most, text)
	}
	return n, nil
}

func filterOf(q url.Values) (f sessionFilter, err error) {
	f = sessionFilter{
		node: q.Get("node"), agent: q.Get("agent"), cwd: q.Get("cwd"), words: q.Get("q"),
		order: cmp.Or(runtime.SessionOrder(q.Get("sort")), runtime.ByActivity),
	}
	if f.labels.Labels, err = tunnel.ParseLabels(q["label"]); err != nil {
		return f, problem.Wrap(problem.InvalidRequest, err, "the parameter label")
	}
	limit, err := numberParam(q, "limit", usualSessions, 1, mostSessions)
	if err != nil {
		return f, err
	}
	f.limit = int(limit)
	if f.order != runtime.ByActivity && f.order != runtime.ByCreation {
		return f, invalidParam("sort", "sort must be %s or %s, not %q", runtime.ByActivity, runtime.ByCreation, f.order)
	}
	if len(f.words) > maxQuery {
		return f, invalidParam("q", "q may have %d bytes: search for fewer words", maxQuery)
	}
	for _, s := range q["state"] {
		if !slices.Contains(sessionStates, runtime.State(s)) {
			return f, invalidParam("state", "state %q is none: the states are %s", s, sessionStates)
		}
		f.states = append(f.states, runtime.State(s))
	}
	return f, f.begin(q.Get("cursor"))
}

// begin has a page begin where a cursor says, "" for the first one.
func (f *sessionFilter) begin(cursor string) error {
	if cursor == "" {
		return nil
	}
	b, err := base64.RawURLEncoding.DecodeString(cursor)
	if err == nil {
		err = json.Unmarshal(b, &f.from)
	}
	if err != nil || f.from == nil || f.from.Order != f.order {
		return invalidParam("cursor", "the cursor is not one that this hub gave for such a list: begin without one")
	}
	return nil
}

// listSessions answers with a page of the sessions of the nodes that the token is for.
func (h *Hub) listSessions(w http.ResponseWriter, r *http.Request, c call) error {
	f, err := filterOf(r.URL.Query())
	if err != nil {
		return err
	}
	ctx, done := h.during(r, c)
	defer done()
	list, err := h.sessionPage(ctx, c.token, f)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, list)
}

// hear waits until the hub has heard of the sessions that its clients have just made: who lists them at
// once finds them. It does not wait long for a node that says nothing.
func (h *Hub) hear(ctx context.Context, t store.Token) error {
	if !h.o.Replicate {
		return nil
	}
	made := h.relay.Made(t)
	return h.until(ctx, time.Second, func() bool {
		if len(made) == 0 {
			return true
		}
		for _, s := range h.o.Store.Sessions() {
			if made[s.Session] == s.Node {
				delete(made, s.Session)
				h.relay.ForgetMade(s.Session)
			}
		}
		return len(made) == 0
	})
}

// until waits, as what the store knows of sessions and their owners changes, until ready says so. When that has
// taken too long it is no error: who has waited goes on with what there is.
func (h *Hub) until(ctx context.Context, atMost time.Duration, ready func() bool) error {
	var late <-chan time.Time
	for {
		owners, sessions, moves := h.o.Store.OwnerNews(), h.o.Store.SessionNews(), h.moveNews()
		if ready() {
			return nil
		}
		if late == nil {
			late = time.After(atMost)
		}
		select {
		case <-owners:
		case <-sessions:
		case <-moves:
		case <-late:
			return nil
		case <-ctx.Done():
			return endOf(ctx)
		}
	}
}

// sessionPage returns a page of the sessions of the nodes that a token is for.
func (h *Hub) sessionPage(ctx context.Context, t store.Token, f sessionFilter) (SessionList, error) {
	if err := h.hear(ctx, t); err != nil {
		return SessionList{}, err
	}
	list := SessionList{Sessions: []Session{}, Position: h.feed.list.Position()} // what changes from here on is told, too
	type row struct {
		s     *store.Session
		state runtime.State
		at    sessionCursor
	}
	var rows []*row // they are sorted
	for _, s := range h.o.Store.Sessions() {
		if f.node != "" && s.Node != f.node || f.agent != "" && s.Info.Agent != f.agent || f.cwd != "" && s.Info.Cwd != f.cwd {
			continue
		}
		labels, state := h.belongs(s)
		if !t.For(s.Node, labels) || !f.labels.For(s.Node, labels) || len(f.states) > 0 && !slices.Contains(f.states, state) {
			continue
		}
		if state == SessionMoved && len(f.states) == 0 {
			continue // it is there as that of the node that has it
		}
		at := sessionCursor{f.order, s.Info.CreatedAt, s.ReplicaID}
		if f.order == runtime.ByActivity {
			at.Time = s.Info.UpdatedAt
		}
		if f.from == nil || at.compare(*f.from) > 0 {
			rows = append(rows, &row{s, state, at})
		}
	}
	slices.SortFunc(rows, func(a, b *row) int { return a.at.compare(b.at) })
	if f.words != "" {
		select {
		case h.searching <- struct{}{}:
			defer func() { <-h.searching }()
		case <-ctx.Done():
			return list, endOf(ctx)
		}
	}
	search := session.NewSearch(f.words, searchBytes)
	for i, row := range rows {
		if len(list.Sessions) == f.limit || search.Spent() {
			b, err := json.Marshal(rows[i-1].at)
			if err != nil {
				return list, err
			}
			list.NextCursor = base64.RawURLEncoding.EncodeToString(b)
			break
		}
		var match *runtime.Match
		if f.words != "" {
			var err error
			if match, err = h.matchIn(ctx, search, row.s); err != nil {
				return list, err
			}
			if match == nil {
				continue
			}
		}
		shown, err := h.sessionShown(ctx, row.s, row.state, false)
		if err != nil {
			return list, err
		}
		shown.Match = match
		list.Sessions = append(list.Sessions, shown)
	}
	return list, nil
}

// matchIn returns where a session has the words of a search, nil when it has not.
func (h *Hub) matchIn(ctx context.Context, search *session.Search, s *store.Session) (*runtime.Match, error) {
	if m := search.Title(s.Info.Title); m != nil {
		return m, nil
	}
	messages := search.Messages()
	for l, err := range replica.Lines(ctx, h.o.Store, s.ReplicaID, 0) {
		switch {
		case errors.Is(err, store.ErrRemoved):
			return nil, nil
		case err != nil:
			return nil, unreadable(ctx, err)
		}
		ev, err := replica.EventOf(l.Text)
		if err != nil {
			continue // a newer hub may write what this one does not know
		}
		if m := messages.Next(ev.Seq, ev.Message); m != nil {
			return m, nil
		}
	}
	return nil, nil
}

// sessionOf returns the session that a request names, by its id and, where several have it, by node
// and epoch. One that is gone stands back behind one that is not, and an older one behind a newer.
func (h *Hub) sessionOf(r *http.Request, c call) (*store.Session, runtime.State, error) {
	id, err := url.PathUnescape(c.params["id"])
	if err != nil {
		return nil, "", problem.Wrap(problem.InvalidRequest, err, "the path cannot be read")
	}
	q := r.URL.Query()
	node := q.Get("node")
	epoch, err := numberParam(q, "epoch", 0, 1, 1<<62)
	if err != nil {
		return nil, "", err
	}
	ctx, done := h.during(r, c)
	defer done()
	return h.findSession(ctx, c.token, id, node, epoch)
}

// sessionThere is sessionOf for what its node is asked, if that is expected in a moment.
func (h *Hub) sessionThere(r *http.Request, c call) (*store.Session, runtime.State, error) {
	s, state, err := h.sessionOf(r, c)
	if err != nil || !h.returns(h.node(s.Node)) {
		return s, state, err
	}
	ctx, done := h.during(r, c)
	defer done()
	if err := h.awaitReturn(ctx, s.Node); err != nil {
		return nil, "", err
	}
	return h.sessionOf(r, c)
}

// findSession is sessionOf for the nodes that a token is for. The node answers who makes a session a
// moment before the store has its record: who asks for it at once waits that moment.
func (h *Hub) findSession(ctx context.Context, t store.Token, id, node string, epoch uint64) (*store.Session, runtime.State, error) {
	var found *store.Session
	var state runtime.State
	var err error
	given := h.until(ctx, relay.HearFor, func() bool {
		found, state, err = h.lookUp(t, id, node, epoch)
		if err == nil || problem.From(err).Kind != problem.SessionNotFound || epoch != 0 || !h.o.Replicate {
			return true
		}
		at := h.relay.Opened(t, id)
		return at == "" || node != "" && node != at
	})
	if given != nil {
		return nil, "", given
	}
	return found, state, err
}

// lookUp is findSession as the store is now.
func (h *Hub) lookUp(t store.Token, id, node string, epoch uint64) (*store.Session, runtime.State, error) {
	var found *store.Session
	var state runtime.State
	var nodes []string // of those that are as good
	for _, s := range h.o.Store.SessionsNamed(id) {
		if node != "" && s.Node != node || epoch != 0 && s.Epoch != epoch {
			continue
		}
		labels, is := h.belongs(s)
		if !t.For(s.Node, labels) {
			continue
		}
		better := found == nil || h.rank(s, is) > h.rank(found, state)
		same := found != nil && h.rank(s, is) == h.rank(found, state)
		if better || same && found.Node == s.Node && s.Epoch > found.Epoch {
			found, state = s, is
		}
		if better {
			nodes = nil
		}
		if (better || same) && !slices.Contains(nodes, s.Node) {
			nodes = append(nodes, s.Node)
		}
	}
	if found == nil {
		return nil, "", problem.New(problem.SessionNotFound, "session %q was not found, or the token is not for its node", id)
	}
	if len(nodes) > 1 {
		slices.Sort(nodes)
		return nil, "", problem.New(problem.Conflict, "several nodes have a session with the id %q: say which with node, one of %s", id, strings.Join(nodes, ", ")).With("nodes", nodes)
	}
	return found, state, nil
}

// newest returns what the hub has of a session from a node, nil for nothing.
func (h *Hub) newest(node string, line store.Line) (found *store.Session) {
	for _, s := range h.o.Store.SessionsNamed(line.Session) {
		if s.Node == node && store.LineOf(s.Info) == line && (found == nil || s.Epoch > found.Epoch) {
			found = s
		}
	}
	return found
}

// rank orders sessions of one id: the one that a record says is its owner's, those that nodes have,
// what the hub has of one that is gone, what others have of one that went elsewhere, also if they alone say so as the store was put
// back.
func (h *Hub) rank(s *store.Session, state runtime.State) int {
	line := store.LineOf(s.Info)
	o := h.o.Store.Owner(line)
	went := h.newest(nodeIn(s.Info), line)
	switch {
	case state == SessionMoved:
		return 0
	case went != nil && nodeIn(went.Info) != s.Node && (o == nil || !h.underWay(o.Moving)):
		return 0
	case state == SessionGone:
		return 1
	case o != nil && o.Term > 1 && o.Node == s.Node:
		return 3
	}
	return 2
}

func (h *Hub) getSession(w http.ResponseWriter, r *http.Request, c call) error {
	s, state, err := h.sessionOf(r, c)
	if err != nil {
		return err
	}
	shown, err := h.sessionShown(r.Context(), s, state, true)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, shown)
}

// atNode reports whether a session is at its node, and that can be asked.
func (h *Hub) atNode(s *store.Session, state runtime.State) bool {
	n, is := h.itsNode(s)
	return is && state != SessionOffline && state != SessionGone && h.online(n)
}

// toNodeOf passes a request about a session on to the node that has it.
func (h *Hub) toNodeOf(s *store.Session, w http.ResponseWriter, r *http.Request, c call) error {
	c.node = h.node(s.Node)
	c.params = map[string]string{"rest": strings.TrimPrefix(r.URL.EscapedPath(), "/")}
	if q := r.URL.Query(); q.Has("node") || q.Has("epoch") || q.Has("copy") { // for the hub alone
		for _, own := range []string{"node", "epoch", "copy"} {
			q.Del(own)
		}
		u := *r.URL
		u.RawQuery = q.Encode()
		r = r.WithContext(r.Context())
		r.URL = &u
	}
	return h.proxy(w, r, c)
}

// askNode answers what only the node of a session can, such as to close it.
func (h *Hub) askNode(w http.ResponseWriter, r *http.Request, c call) error {
	s, state, err := h.settledSession(r, c)
	if err != nil {
		return err
	}
	if _, is := h.itsNode(s); !is || state == SessionGone {
		return problem.New(problem.SessionNotFound, "%s has session %q no more; what the hub has of it is at /v2/sessions/%s/events", s.Node, s.Session, c.params["id"])
	}
	if r.Method == http.MethodPost && c.params["rest"] == "close" && !r.URL.Query().Has(movedTo) {
		return h.changeAtNode(s, w, r, c)
	}
	return h.toNodeOf(s, w, r, c)
}

// changeAtNode passes on what changes a session, and has no body. If a move has begun before it came to the node, that has
// changed what it is about to let go of, or what is left there: it is done once more where the session is then. The node may know
// of the move before this hub does, when another one does it.
func (h *Hub) changeAtNode(s *store.Session, w http.ResponseWriter, r *http.Request, c call) error {
	kept := &keptAnswer{header: http.Header{}, status: http.StatusOK}
	failed := h.toNodeOf(s, kept, r, c)
	went := nodeAt(kept.header.Get(control.HeaderMovedTo))
	if r.URL.Query().Has("node") || went == s.Node { // what is left there is meant
		went = ""
	}
	if _, err := (nodes{h}).Node(c.token, went); err != nil { // the token is not for it: the client cannot ask there
		went = ""
	}
	known := false // who has it
	leaves := func() bool {
		o := h.o.Store.Owner(store.LineOf(s.Info))
		known = known || o != nil
		return o != nil && (o.Node != s.Node || h.underWay(o.Moving))
	}
	if went != "" {
		ctx, done := h.during(r, c)
		err := h.until(ctx, relay.HearFor, leaves)
		done()
		if err != nil {
			return err
		}
	}
	deleted := failed == nil && kept.status == http.StatusNoContent && r.Method == http.MethodDelete
	if leaves() {
		now, state, err := h.settledSession(r, c)
		if err == nil && now.Node != s.Node && h.atNode(now, state) {
			there := &keptAnswer{header: http.Header{}, status: http.StatusOK}
			if failed = h.toNodeOf(now, there, r, c); !deleted || there.status != http.StatusNotFound {
				kept = there
			} // else the move took what was deleted for the session itself, and has removed it there
			went = ""
		}
	}
	if deleted && known && went != "" {
		everywhere := func() bool {
			o := h.o.Store.Owner(store.LineOf(s.Info))
			return o == nil || o.Deleted != nil
		}
		ctx, done := h.during(r, c)
		err := h.until(ctx, relay.HearFor, everywhere) // a move that goes on notes it behind its other steps
		done()
		if err != nil {
			return err
		}
		if everywhere() {
			went = ""
		}
	}
	if failed != nil {
		return failed
	}
	if went != "" {
		return problem.New(problem.Conflict, "session %s went from %s to %s, and only what was left of it there was asked for; this hub does not reach it there yet: try again", s.Session, s.Node, went).With("node", went)
	}
	maps.Copy(w.Header(), kept.header)
	w.WriteHeader(kept.status)
	_, _ = w.Write(kept.body.Bytes()) // who is gone needs no answer
	return nil
}

// keptAnswer is an answer that is not written yet.
type keptAnswer struct {
	header http.Header
	status int
	body   bytes.Buffer // at most maxKeptAnswer: what is more is left out
}

const maxKeptAnswer = 64 << 10 // bytes; a problem document is all that comes

// Header implements [http.ResponseWriter].
func (k *keptAnswer) Header() http.Header { return k.header }

// WriteHeader implements [http.ResponseWriter].
func (k *keptAnswer) WriteHeader(status int) { k.status = status }

// Write implements [http.ResponseWriter].
func (k *keptAnswer) Write(p []byte) (int, error) {
	k.body.Write(p[:min(len(p), max(0, maxKeptAnswer-k.body.Len()))])
	return len(p), nil
}

// settledSession is sessionOf for what changes a session: while it is on its way to another node it waits,
// a minute at most, as what clients ask over ACP does.
func (h *Hub) settledSession(r *http.Request, c call) (*store.Session, runtime.State, error) {
	var s *store.Session
	var state runtime.State
	var err error
	ctx, done := h.during(r, c)
	defer done()
	if _, _, err = h.sessionThere(r, c); err != nil {
		return nil, "", err
	}
	given := h.until(ctx, relay.HoldFor, func() bool {
		if s, state, err = h.sessionOf(r, c); err != nil {
			return true
		}
		o := h.o.Store.Owner(store.LineOf(s.Info))
		arriving := state == SessionMoved && lately(o.Since, settleFor) && !r.URL.Query().Has("node") // where it is was not heard yet
		return !arriving && (o == nil || !h.underWay(o.Moving))
	})
	if given != nil {
		return nil, "", given
	}
	return s, state, err
}

// deleteSession has the node of a session delete it, and its copy goes with it. Of one that its node has
// no more, or cannot be asked to delete, the copy is all that is left of somebody's work: an
// administrator removes it.
func (h *Hub) deleteSession(w http.ResponseWriter, r *http.Request, c call) error {
	copyOnly := false
	if text := r.URL.Query().Get("copy"); text != "" {
		var err error
		if copyOnly, err = strconv.ParseBool(text); err != nil {
			return invalidParam("copy", "copy must be true or false, not %q", text)
		}
	}
	s, state, err := h.settledSession(r, c)
	switch {
	case err != nil:
		return err
	case h.atNode(s, state) && copyOnly:
		return problem.New(problem.Conflict, "%s has the session and is connected: without copy=true, and by sandbox-agent sessions delete, it is deleted there, and its copy with it", s.Node)
	case h.atNode(s, state):
		h.relay.ForgetMade(s.Session)
		return h.changeAtNode(s, w, r, c)
	case !copyOnly && h.comesBack(h.node(s.Node), expected) > 0:
		return problem.New(problem.NodeOffline, "%s has not joined again since its hub ended: try again in a minute, or have the copy alone removed, with copy=true", s.Node)
	case !c.token.Scope.Allows(store.ScopeAdmin):
		return problem.New(problem.PermissionDenied, "%s is not there to delete the session: to remove the hub's copy of it needs a token with the scope %s, and this one has %s", s.Node, store.ScopeAdmin, c.token.Scope)
	}
	if err := queries.Check(r, "/v2/sessions/{id}"); err != nil {
		return err
	}
	if err := h.o.Store.RemoveSession(r.Context(), s.ReplicaID); err != nil {
		return err
	}
	h.log.Info("a session was removed", "session", s.Session, "node", s.Node, "epoch", s.Epoch, "by", c.token.ID)
	w.WriteHeader(http.StatusNoContent)
	return nil
}
