package lasting

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/version"
)

// errBroken says that the connection broke again.
var errBroken = errors.New("the connection broke again")

// restore brings a new connection to where the one before it was. It reports
// whether the client can use it; else the next one is tried.
func (c *Conn) restore(live *link) bool {
	turns := map[string]bool{}
	if err := c.restoreAll(live, turns); err != nil {
		c.o.Logger.Debug("the new connection cannot be used", "err", err)
		return false
	}
	c.back(turns)
	return true
}

func (c *Conn) restoreAll(live *link, turns map[string]bool) error {
	live.since = c.now()
	c.detachesBeforePrompts()
	c.mu.Lock()
	c.restored, c.since = c.restored+1, live.since
	c.nothingWaitsLocked()
	lost := slices.SortedFunc(maps.Values(c.requests), func(a, b *request) int { return cmp.Compare(a.n, b.n) })
	opening := map[string]bool{} // sessions that a request attaches to anyway
	asked := map[string]bool{}   // those of which something is asked before, which attaches as well: behind what was said meanwhile
	for _, r := range lost {
		attached := r.attached || r.sent && c.goesOnLocked(r)
		if r.opens() && (r.sent || !attached) && !(attached && asked[r.session]) {
			opening[r.session] = true
		}
		asked[r.session] = true
	}
	lost = slices.DeleteFunc(lost, func(r *request) bool { return !r.sent })
	ids := slices.Sorted(maps.Keys(c.sessions))
	c.mu.Unlock()
	for _, id := range ids {
		if opening[id] {
			continue
		}
		if err := c.reattach(live, id, turns); err != nil {
			return err
		}
	}
	last := lastPrompts{}
	for _, id := range ids {
		if err := c.recoverTurn(live, id, last); err != nil {
			return err
		}
	}
	for _, r := range lost {
		if r.method == acp.MethodSessionPrompt {
			last.note(r.session, r.n, false) // also if it was answered meanwhile
		}
		if err := c.recover(live, r, last); err != nil {
			return err
		}
	}
	if err := last.cancelAgain(c, live); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.renewing = false
	c.queueWaitsLocked(all)
	c.goOnLocked(all)
	return nil
}

// detachesBeforePrompts answers the requests to detach behind which a prompt was sent. What they end has ended with the connection before,
// and here they would end what that prompt is told by.
func (c *Conn) detachesBeforePrompts() {
	c.order.Lock()
	defer c.order.Unlock()
	var out []acp.Message
	c.mu.Lock()
	for _, r := range slices.SortedFunc(maps.Values(c.requests), func(a, b *request) int { return cmp.Compare(a.n, b.n) }) {
		if r.method == methodDetach && r.sent && c.sentBehindLocked(r.session, r.n) {
			out = append(out, c.respondedLocked(acp.NewResult(r.id, []byte("{}")))...)
			if s := c.sessions[r.session]; s != nil {
				s.here, s.unsure = false, 0 // this connection is attached to nothing yet
			}
		}
	}
	c.mu.Unlock()
	c.giveAll(out)
}

// nothingWaitsLocked ends what was begun for nodes that were away on the connection before: what was sent is recovered, the
// rest is sent behind that. All requests are older than the next connection.
func (c *Conn) nothingWaitsLocked() {
	if c.renewing { // it broke before that was done: all of this is recovered once more
		c.later = nil
	}
	c.renewing = true
	c.queue = slices.DeleteFunc(c.queue, func(o outgoing) bool { return o.request != nil && (o.request.asks || o.request.sent) }) // it is among the others, or recovered
	c.later = slices.DeleteFunc(c.later, func(o outgoing) bool { return o.request != nil && o.request.sent })
	c.queue = append(c.queue, c.later...) // what was released before
	c.later, c.paused, c.pausing = nil, 0, false
	for _, r := range c.requests {
		r.early, r.asks = true, false
	}
	c.soon.Stop()
	c.roomLocked()
}

// reattach attaches to a session right behind what the client was given of it. A
// session that is gone takes its requests with it. turns gets whether a turn goes on there.
func (c *Conn) reattach(live *link, id string, turns map[string]bool) error {
	c.mu.Lock()
	s := c.sessions[id]
	if s == nil {
		c.mu.Unlock()
		return nil
	}
	c.mu.Unlock()
	resumed, failure, err := c.resumed(live, id, s)
	if err != nil {
		return err
	}
	if failure != nil {
		if !passes(failure) { // else its log is whole, and who opens it later is given it: an end that was found now would be told without what led to it
			tell, err := c.findEnds(live, id)
			if err != nil {
				return err
			}
			tell()
		}
		c.gone(id, failure)
		return nil
	}
	turns[id] = rawjson.MemberString(resumed, "_meta", acp.MetaKey, "turn") == "running"
	c.mu.Lock()
	s.here, s.unsure = true, 0
	known := slices.Collect(maps.Keys(s.asks)) // what is asked from now on need not be on the list
	c.mu.Unlock()
	about := rawjson.Object{}.String("sessionId", id).End()
	open, failure, err := c.patientCall(live, methodPending, about)
	if err != nil || failure != nil {
		return err
	}
	// What is not open any more was answered by somebody else, or its agent is gone.
	still := map[string]bool{}
	list, _ := rawjson.Member(open, "pending")
	for _, one := range rawjson.Elements(list) {
		if seq, ok := rawjson.Member(one, "seq"); ok {
			still[string(seq)] = true
		}
	}
	var out []acp.Message
	c.mu.Lock()
	for _, seq := range known {
		a := s.asks[seq]
		if a == nil || still[strconv.FormatUint(seq, 10)] || !forPeople[a.method] {
			continue
		}
		delete(s.asks, seq)
		if a.answer == nil {
			out = append(out, withdrawal(a))
		}
	}
	c.mu.Unlock()
	c.giveAll(out)
	return nil
}

// resumed attaches to a session right behind what the client was given of it, or with the oldest event that is kept: what lies
// between is told as lost, and in version 2 the state anew.
func (c *Conn) resumed(live *link, id string, s *session) (result []byte, failure *acp.Error, err error) {
	for lost := false; ; lost = true {
		c.mu.Lock()
		after := c.fromLocked(s, lost)
		params := rawjson.SetMember(s.params, strconv.AppendUint(nil, after, 10), "_meta", acp.MetaKey, "after")
		c.mu.Unlock()
		result, failure, err = c.patientCall(live, acp.MethodSessionResume, params)
		oldest := oldestKept(failure)
		if err != nil || oldest <= after+1 {
			return result, failure, err
		}
		c.order.Lock()
		c.giveAll(c.loses(id, s, oldest))
		c.order.Unlock()
	}
}

// loses notes that the events of a session before one are gone, and returns what tells the client so, as a gateway says it of
// those that it has lost itself.
func (c *Conn) loses(id string, s *session, oldest uint64) []acp.Message {
	c.mu.Lock()
	defer c.mu.Unlock()
	first, last := min(s.after+1, oldest-1), oldest-1
	s.after = last
	s.wholeLocked()
	c.o.Logger.Warn("events of a session were let go of before the client was given them", "session", id, "first", first, "last", last)
	if !c.notices {
		return nil
	}
	params := rawjson.Object{}.String("sessionId", id).Raw("firstSeq", strconv.AppendUint(nil, first, 10)).Raw("lastSeq", strconv.AppendUint(nil, last, 10)).End()
	return []acp.Message{acp.NewNotification(methodDamaged, params)}
}

// oldestKept returns the oldest event that a session has, where the error says that those before it are no longer kept; else 0.
func oldestKept(e *acp.Error) uint64 {
	if e == nil || problem.Kind(strings.TrimPrefix(rawjson.MemberString(e.Data, "type"), problem.Prefix)) != problem.EventsExpired {
		return 0
	}
	raw, _ := rawjson.Member(e.Data, "oldestSeq")
	oldest, _ := strconv.ParseUint(string(raw), 10, 64)
	return oldest
}

// forPeople are the requests of agents that the gateway lists while they are open.
var forPeople = map[string]bool{
	acp.MethodSessionRequestPermission: true, acp.MethodElicitationCreate: true, "_sandboxagent/session/request_question": true,
}

// findEnds looks how the client's prompts ended in a session that cannot be attached to again: the log of one that has ended can
// still be read. What it returns tells the client, also what the session said until then and the client was not given, as lost. It is to
// be called right before the session is gone: with another connection it may be there again.
func (c *Conn) findEnds(live *link, id string) (tell func(), err error) {
	c.mu.Lock()
	var prompts []*request
	for _, r := range c.requests {
		if r.session == id && r.sent && r.method == acp.MethodSessionPrompt {
			prompts = append(prompts, r)
		}
	}
	var t turn
	if s := c.sessions[id]; s != nil {
		t = s.turn
	}
	c.mu.Unlock()
	var tells []func()
	ends := func() { // a turn whose end was found: another one takes its place
		c.mu.Lock()
		var out []acp.Message
		if s := c.sessions[id]; s != nil && s.turn.end != nil {
			out = c.interruptLocked(id, nil)
		}
		c.mu.Unlock()
		c.giveAll(out)
	}
	if t.name != "" {
		f, _, err := c.findPrompt(live, id, t, true)
		if err != nil {
			return nil, err
		}
		tells = append(tells, func() {
			c.mu.Lock()
			if s := c.sessions[id]; s != nil && s.turn.name == t.name && f.end != nil { // else one that was found before counts
				s.turn.end = f.end
			}
			c.mu.Unlock()
			c.missed(id, f)
			ends()
		})
	}
	slices.SortFunc(prompts, func(a, b *request) int { return cmp.Compare(a.n, b.n) })
	for _, r := range prompts {
		f, failure, err := c.findPrompt(live, id, turn{name: r.name, after: r.after}, false)
		if err != nil {
			return nil, err
		}
		if failure != nil || f.end == nil {
			continue
		}
		tells = append(tells, func() {
			c.missed(id, f)
			if c.isTwo() && f.begun > 0 {
				c.hasBegun(r, f)
				ends()
			} else if !c.isTwo() {
				c.answer(outcome(r.id, f.end))
			}
		})
	}
	return func() {
		c.order.Lock()
		defer c.order.Unlock()
		for _, tell := range tells {
			tell()
		}
	}, nil
}

// missed tells as lost what a session has said in a turn that has ended, as far as the client was not given it. The caller holds order.
func (c *Conn) missed(id string, f promptFound) {
	c.mu.Lock()
	s := c.sessions[id]
	all := s == nil || f.end == nil || f.said <= s.after
	c.mu.Unlock()
	if !all {
		c.giveAll(c.loses(id, s, f.said+1))
	}
}

// gone fails what waits for a session that cannot be attached to again.
func (c *Conn) gone(id string, failure *acp.Error) {
	if c.o.Gone != nil {
		c.o.Gone(id, failure, false)
	}
	c.mu.Lock()
	waiting := c.takePromptsLocked(id)
	out := c.forgetLocked(id, failure, func(r *request) bool { return r.sent || waiting[r] })
	c.mu.Unlock()
	c.o.Logger.Warn("a session cannot be attached to again", "session", id, "err", failure)
	c.giveAll(out)
}

// takePromptsLocked takes the prompts from the queue that were written when nobody knew that their session is gone: what they lead to
// would be shown behind a hole. What is behind a request to open the session is not among them.
func (c *Conn) takePromptsLocked(id string) map[*request]bool {
	taken, opens := map[*request]bool{}, false
	c.queue = slices.DeleteFunc(c.queue, func(o outgoing) bool {
		r := o.request
		if r == nil || r.session != id {
			return false
		}
		opens = opens || r.opens()
		if opens || r.method != acp.MethodSessionPrompt {
			return false
		}
		taken[r] = true
		o.done()
		return true
	})
	return taken
}

// deletedLocked takes the news that a client has deleted a session, which need not be this one. What was still on its way
// went with the session: its turn has failed, and so have prompts whose end would be told, unless it is known. Other requests are answered.
func (c *Conn) deletedLocked(m acp.Message) []acp.Message {
	failure := acp.Errorf(acp.CodeResourceNotFound, "the session %s was deleted: how its turn ended is not told any more", m.Session())
	for _, r := range c.requests {
		if r.session == m.Session() && r.method == acp.MethodSessionPrompt {
			r.deleted = failure // what became of it is being asked, perhaps
		}
	}
	return append(c.forgetLocked(m.Session(), failure, func(r *request) bool { return r.told }), m)
}

// forgetLocked lets go of a session, and returns what tells the client so: the end of its turn, of what its agent asked, and of
// the requests that fail with it. The end of a turn that was found counts.
func (c *Conn) forgetLocked(id string, failure *acp.Error, fails func(*request) bool) []acp.Message {
	out := c.interruptLocked(id, failure)
	if s := c.sessions[id]; s != nil {
		out = append(out, s.withdrawals()...)
	}
	c.leaveLocked(id)
	for rid, r := range c.requests {
		if r.session != id || !fails(r) {
			continue
		}
		delete(c.requests, rid)
		c.answeredLocked(r)
		switch {
		case r.end != nil:
			out = append(out, outcome(rid, r.end))
		case repeatable[r.method], !r.sent:
			out = append(out, acp.NewError(rid, failure))
		default:
			out = append(out, acp.NewError(rid, doneUnknown(failure)))
		}
	}
	return out
}

// doneUnknown returns an error that says, too, that it is not known whether what was asked was done.
func doneUnknown(e *acp.Error) *acp.Error {
	data := e.Data
	if len(data) == 0 || data[0] != '{' {
		data = []byte("{}")
	}
	return &acp.Error{Code: e.Code, Message: e.Message, Data: rawjson.SetMember(data, rawjson.AppendQuoted(nil, problem.Unknown), "done")}
}

// opens reports whether the request attaches its connection to the session that
// it names.
func (r *request) opens() bool {
	return r.method == acp.MethodSessionLoad || r.method == acp.MethodSessionResume
}

// replays reports whether the request asks for what the session has.
func (r *request) replays() bool {
	from, given := rawjson.Member(r.frame.Params(), "replayFrom")
	return r.method == acp.MethodSessionLoad || r.method == acp.MethodSessionResume && given && string(from) != "null"
}

// attachesBeforeLocked reports whether something is open that was asked of the request's session before: it attaches to the session as
// well, and what is said from then on comes before a replay.
func (c *Conn) attachesBeforeLocked(r *request) bool {
	for _, q := range c.requests {
		if q.session == r.session && q.n < r.n && q.sent {
			return true
		}
	}
	return false
}

// goesOnLocked reports whether a request to open a session, which was sent, goes on behind what the client was given: a part of what it asks for was.
func (c *Conn) goesOnLocked(r *request) bool {
	s := c.sessions[r.session]
	return s != nil && s.after > 0 && (r.replay != replayComes || !r.replays())
}

// repeatable are the methods that may be carried out twice. A session that is
// made twice is left alone by the second client, and ends by itself.
var repeatable = map[string]bool{
	acp.MethodSessionNew: true, acp.MethodSessionFork: true, acp.MethodSessionLoad: true, acp.MethodSessionResume: true,
	acp.MethodSessionList: true, acp.MethodSessionClose: true, acp.MethodSessionDelete: true,
	acp.MethodSessionSetMode: true, acp.MethodSessionSetConfigOption: true, acp.MethodSessionSetModel: true,
	acp.MethodAuthenticate: true, acp.MethodLogout: true, version.MethodAuthLogin: true, version.MethodAuthLogout: true,
	acp.MethodInitialize:        true,
	"_sandboxagent/session/get": true, "_sandboxagent/session/events": true, methodPending: true,
	"_sandboxagent/session/list_models": true, "_sandboxagent/session/permissions": true, "_sandboxagent/session/set_metadata": true,
	methodDetach: true, "_sandboxagent/session/terminate": true,
	"_sandboxagent/fs/stat": true, "_sandboxagent/fs/read_file": true, "_sandboxagent/fs/list_entries": true,
}

// recover brings a request to its end whose response the broken connection may
// have swallowed.
func (c *Conn) recover(live *link, r *request, last lastPrompts) error {
	c.mu.Lock()
	_, open := c.requests[r.id]
	c.mu.Unlock()
	switch {
	case !open:
		return nil // it was answered meanwhile
	case r.method == acp.MethodSessionPrompt:
		return c.recoverPrompt(live, r, last)
	case repeatable[r.method]:
		frame := r.frame
		if r.opens() {
			c.mu.Lock()
			switch s := c.sessions[r.session]; {
			case s != nil && s.here && !r.replays(): // what was said meanwhile comes already
				frame = acp.NewRequest(r.id, r.method, rawjson.DeleteMember(r.frame.Params(), "_meta", acp.MetaKey, "after"))
			case c.goesOnLocked(r):
				frame = r.behind(c.fromLocked(s, true))
			default:
				frame = c.withOwedLocked(r)
			}
			c.mu.Unlock()
		}
		_, err := c.again(live, r, frame)
		return err
	}
	c.answer(acp.NewError(r.id, acp.Errorf(acp.CodeInternal, "the connection to the gateway broke while %s was carried out: it may have been, or not", r.method)))
	return nil
}

const (
	largeRequest = 1 << 20 // bytes of one that may itself be why connections break
	mostSends    = 3       // of one that is so large
)

// behind is a request to open a session behind an event.
func (r *request) behind(after uint64) acp.Message {
	return acp.NewRequest(r.id, r.method, rawjson.SetMember(r.frame.Params(), strconv.AppendUint(nil, after, 10), "_meta", acp.MetaKey, "after"))
}

// withOwedLocked is a request to open a session, older than the connection, that has the client given what it was not given of its
// own turns there: it is told how they ended on that way.
func (c *Conn) withOwedLocked(r *request) acp.Message {
	if _, given := uintOf(r.frame.Meta(), "after"); given || r.replays() {
		return r.frame
	}
	first := uint64(0)
	for _, q := range c.requests {
		if q.session == r.session && q.told && q.begun > 0 && (first == 0 || q.begun < first) {
			first = q.begun
		}
	}
	if first == 0 {
		return r.frame
	}
	return r.behind(first - 1)
}

// again sends a request once more. A large one whose connection broke each time is given up: it
// may be more than what is on the way takes, and the client would connect without end.
func (c *Conn) again(live *link, r *request, frame acp.Message) (sent bool, err error) {
	if r.again++; r.again >= mostSends && len(frame.Frame()) > largeRequest {
		over := problem.New(problem.PayloadTooLarge, "%s has %d bytes and was sent %d times; the connection broke each time. It may be larger than the gateway takes, which its --max-body says", r.method, len(frame.Frame()), r.again)
		c.answer(acp.NewError(r.id, acp.Errorf(acp.CodeInvalidRequest, "%s", over.Detail).WithData(over)))
		return false, nil
	}
	c.mu.Lock()
	r.frame = frame
	if r.session == "" || !r.mayAsk() {
		c.mu.Unlock()
		return true, c.behind(live, outgoing{m: frame, request: r})
	}
	waits := c.waitLocked(r.session)
	c.laterLocked(r)
	r.asks = !waits
	c.mu.Unlock()
	if waits {
		return true, nil
	}
	return true, live.Write(live.ctx, frame)
}

// mayAsk reports whether the request finds out whether its node has come: it is sent until it is answered otherwise, and what is
// behind it waits for that.
func (r *request) mayAsk() bool { return r.early && repeatable[r.method] }

// onceMoreLocked reports whether a request is sent once more that was refused because its node is away: the node may be
// coming to the hub that the connection is to now. Only requests that are older than the connection. What may have
// been done is not done once more where that makes another session.
func (c *Conn) onceMoreLocked(r *request, e *acp.Error) bool {
	if !isAway(e) || !r.early || !repeatable[r.method] {
		return false
	}
	if makes := r.method == acp.MethodSessionNew || r.method == acp.MethodSessionFork; makes && rawjson.MemberString(e.Data, "done") == problem.Unknown {
		return false
	}
	if !c.pausing {
		pause := max(firstPause, min(2*c.paused, longestPause))
		if c.restored == 0 || time.Duration(c.now()-c.since)+pause > nodeBound {
			return false
		}
		c.paused, c.pausing = pause, true
		c.soon.Reset(pause)
	}
	r.asks = false
	c.laterLocked(r)
	return true
}

// laterLocked has a request wait, before what was written later about its session, of which some may be about to be sent.
func (c *Conn) laterLocked(r *request) {
	defer c.queueWaitsLocked(func(id string) bool { return id == r.session })
	i := slices.IndexFunc(c.later, func(o outgoing) bool {
		return o.m.Session() == r.session && (o.request == nil || o.request.n >= r.n)
	})
	if i < 0 {
		i = len(c.later)
	} else if c.later[i].request == r {
		return
	}
	c.later = slices.Insert(c.later, i, outgoing{m: r.frame, request: r})
}

func all(string) bool { return true }

// queueWaitsLocked has what is about to be sent in sessions wait, as waitsLocked does. What is being restored comes before all of it.
func (c *Conn) queueWaitsLocked(in func(session string) bool) {
	if c.renewing {
		return
	}
	c.queue = slices.DeleteFunc(c.queue, func(o outgoing) bool {
		if !in(o.m.Session()) || o.request != nil && o.request.asks || !c.waitsLocked(o) {
			return false
		}
		o.done()
		return true
	})
}

// behind sends a message of a restore, or has it wait as waitsLocked does.
func (c *Conn) behind(live *link, out outgoing) error {
	c.mu.Lock()
	waits := c.waitsLocked(out)
	c.mu.Unlock()
	if waits {
		return nil
	}
	return live.Write(live.ctx, out.m)
}

// waitsLocked has a message wait behind those of its session that wait for their node. It reports whether there are any.
func (c *Conn) waitsLocked(out outgoing) bool {
	if out.ask != nil || !c.waitLocked(out.m.Session()) {
		return false
	}
	c.later = append(c.later, out)
	return true
}

// waitLocked reports whether something about a session waits for its node.
func (c *Conn) waitLocked(id string) bool {
	return id != "" && slices.ContainsFunc(c.later, func(o outgoing) bool { return o.m.Session() == id })
}

// askAgainLocked sends what waits for nodes, as goOnLocked does.
func (c *Conn) askAgainLocked() {
	c.pausing = false
	c.goOnLocked(all)
}

// goOnLocked sends what waits in sessions, up to the first request of each that may ask. What is behind that waits for its answer.
func (c *Conn) goOnLocked(in func(session string) bool) {
	asked := map[string]bool{}
	c.later = slices.DeleteFunc(c.later, func(o outgoing) bool {
		id := o.m.Session()
		switch {
		case !in(id) || asked[id]:
			return false
		case o.request == nil || !o.request.mayAsk():
			c.queueLocked(o)
			return true
		case !o.request.asks:
			o.request.asks = true
			c.queueLocked(o)
		}
		asked[id] = id != ""
		return false
	})
}

// answeredLocked takes a request that has its answer from those that wait for their node. If it was sent, what is behind it
// goes on.
func (c *Conn) answeredLocked(r *request) {
	defer c.roomLocked()
	i := slices.IndexFunc(c.later, func(o outgoing) bool { return o.request == r })
	if i < 0 {
		return
	}
	c.later = slices.Delete(c.later, i, i+1)
	if r.asks && r.session != "" && !c.renewing {
		c.goOnLocked(func(id string) bool { return id == r.session })
	}
}

// namesWaitingLocked returns the request that a $/cancel_request names, nil unless it waits for its node.
func (c *Conn) namesWaitingLocked(m acp.Message) *request {
	if m.Method() != acp.MethodCancelRequest {
		return nil
	}
	id, _ := rawjson.Member(m.Params(), "requestId")
	r := c.requests[acp.ID(id)]
	if r == nil || r.asks || !slices.ContainsFunc(c.later, func(o outgoing) bool { return o.request == r }) {
		return nil
	}
	return r
}

// takeBack answers the request that a $/cancel_request names as cancelled, if that still waits for its node.
func (c *Conn) takeBack(m acp.Message) {
	c.order.Lock()
	defer c.order.Unlock()
	var answer []acp.Message
	why := acp.Errorf(acp.CodeCancelled, "the request was cancelled before its node came")
	c.mu.Lock()
	if r := c.namesWaitingLocked(m); r != nil {
		answer = slices.Clone(c.respondedLocked(acp.NewError(r.id, why)))
	} else {
		c.queueLocked(outgoing{m: m})
	}
	r := c.refused
	c.refused = nil
	c.mu.Unlock()
	c.giveAll(c.behindRefused(r, why, answer))
}

// answer gives the client a response in the gateway's place.
func (c *Conn) answer(m acp.Message) {
	c.mu.Lock()
	r, open := c.requests[m.ID()]
	if open {
		delete(c.requests, m.ID())
		c.answeredLocked(r)
	}
	c.mu.Unlock()
	if open {
		c.give(m)
	}
}

func (c *Conn) isTwo() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.two
}

// comesLocked reports whether the event seq of a session is still to come: the client is attached to that, or asks to open it, and was given
// less. A client that has asked for what is behind event 9 counts as one that was given up to 9.
func (c *Conn) comesLocked(id string, seq uint64) bool {
	s := c.sessions[id]
	here := s != nil && s.here
	for _, r := range c.requests {
		here = here || r.session == id && r.opens()
	}
	return s != nil && here && s.after < seq
}

// nodeBound is how long a restore waits for nodes of a hub in all: they come to another hub
// within less, and those of other nodes wait meanwhile.
const nodeBound = 30 * time.Second

// patientCall is call for what is asked again for a while when it is refused for a reason
// that goes away: a node of a hub may be coming to the hub that the connection is to now, and
// a gateway that is ending breaks the connection soon. So is what the gateway's own methods are
// refused with for no reason that it gives, which need not be for good.
func (c *Conn) patientCall(live *link, method string, params []byte) (result []byte, failure *acp.Error, err error) {
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		result, failure, err = c.call(live, method, params)
		again := passes(failure) || strings.HasPrefix(method, "_sandboxagent/") && bare(failure)
		if err != nil || !again || time.Duration(c.now()-live.since)+pause > nodeBound {
			return result, failure, err
		}
		select {
		case <-time.After(pause):
		case <-live.ctx.Done():
			return nil, nil, errBroken
		}
	}
}

// bare reports whether the error gives no reason.
func bare(e *acp.Error) bool {
	return e != nil && e.Code == acp.CodeInternal && rawjson.MemberString(e.Data, "type") == ""
}

// call asks the gateway something for the Conn itself.
func (c *Conn) call(live *link, method string, params []byte) (result []byte, failure *acp.Error, err error) {
	answered := make(chan acp.Message, 1)
	c.mu.Lock()
	c.lastOwn++
	id := acp.ID(rawjson.AppendQuoted(nil, c.names+"-call-"+strconv.Itoa(c.lastOwn)))
	c.own[id] = answered
	c.mu.Unlock()
	if err := live.Write(live.ctx, acp.NewRequest(id, method, params)); err != nil {
		return nil, nil, err
	}
	select {
	case m := <-answered:
		return m.Result(), m.Err(), nil
	case <-live.ctx.Done():
		return nil, nil, errBroken
	}
}
