package relay

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/fleet/store"
)

// tale is a session of a realm.
type tale struct {
	r    *realm
	id   string
	born string // the node where it was made

	// Guarded by realm.mu.
	told     *store.Owner // what the hub has heard of its owner; nil for nothing
	unlisted bool         // the hub has heard that it was deleted

	// What follows is of the test alone.
	owner     *store.Owner     // as it is noted in the store
	news      []*store.Owner   // that the hub is yet to hear of; nil is that it was deleted
	stays     map[string]*stay // by node
	deleted   string           // the node where it was deleted
	events    [][]string       // what tells who has it open of each
	whole     []string         // the same as its log has them
	turns     []*turn          // those that go on; in version 2 all but the first wait
	ended     map[string]bool  // turns, by the names of their prompts
	asks      map[int]bool     // what the agent asks and nobody has answered, by its event
	closed    bool             // prompts are refused
	stuck     bool             // the node to which it went does not open it: it is taken back
	loose     bool             // prompts may change places: it is back at a node that had it, or a node has not answered for long
	newest    map[int]int      // the prompt that was carried out last, by its client
	cancelled map[int]int      // a client's newest prompt before its newest cancel
}

// stay is what a node has of a session.
type stay struct {
	has  bool     // it is here
	kept []string // its log as it was when it went from here
	went string   // where it went from here, "" when it was never here
}

// turn is a prompt that a node works on.
type turn struct {
	name      string
	number    int
	at        *path
	id        acp.ID
	begun     bool
	cancelled bool
}

func newTale(r *realm, id, node string) *tale {
	s := &tale{r: r, id: id, born: node, stays: map[string]*stay{}, ended: map[string]bool{}, asks: map[int]bool{}, newest: map[int]int{}, cancelled: map[int]int{}}
	s.owner = &store.Owner{Line: store.Line{Session: id}, Node: node, Term: 1}
	for name := range r.nodes {
		s.stays[name] = &stay{has: name == node}
	}
	return s
}

// here is the node that has the session, nil when it was deleted.
func (s *tale) here() *post {
	for name, at := range s.stays {
		if at.has {
			return s.r.nodes[name]
		}
	}
	return nil
}

// does has a node do what it is told of the session.
func (s *tale) does(p *post, c *path, m acp.Message) {
	r, at := s.r, s.stays[p.name]
	result := func(format string, args ...any) { c.says(acp.NewResult(m.ID(), fmt.Appendf(nil, format, args...))) }
	switch {
	case !m.IsRequest() && m.Method() != acp.MethodSessionCancel:
		return
	case at.has && s.stuck && m.IsRequest() && (replays(m.Method()) || m.Method() == acp.MethodSessionPrompt):
		c.says(acp.NewError(m.ID(), acp.Errorf(acp.CodeInternal, "it does not start")))
		return
	case at.has:
		s.doesHere(c, m, result)
		return
	case !m.IsRequest():
		return
	case at.went == "":
		c.says(acp.NewError(m.ID(), acp.Errorf(acp.CodeResourceNotFound, "no such session").WithData(problem.New(problem.SessionNotFound, "no such session"))))
		return
	}
	switch m.Method() { // what is left of it can be read, and changed
	case "_sandboxagent/session/get":
		result(`{"state":"closed"}`)
	case methodDetach:
		result(`{}`)
	case "_sandboxagent/session/pending":
		result(`{"pending":[]}`)
	case "_sandboxagent/session/events":
		result(`%s`, page(at.kept, m))
	case acp.MethodSessionClose, acp.MethodSessionDelete, "_sandboxagent/session/set_metadata":
		result(`{"_meta":{"sandboxagent.dev":{"movedTo":"node://%s"}}}`, at.went)
	default:
		r.notes("%s says that it went to %s", p.name, at.went)
		c.says(acp.NewError(m.ID(), acp.Errorf(acp.CodeResourceNotFound, "it went").WithData(problem.New(problem.Conflict, "it went to %s", at.went).With("movedTo", "node://"+at.went))))
	}
}

// doesHere has the node that has the session do what it is told.
func (s *tale) doesHere(c *path, m acp.Message, result func(string, ...any)) {
	r := s.r
	switch m.Method() {
	case acp.MethodSessionLoad, acp.MethodSessionResume:
		s.closed = false
		s.opens(c, m)
		result(`{"_meta":{"sandboxagent.dev":{"seq":%d}}}`, len(s.events))
		s.attaches(c)
	case acp.MethodSessionPrompt:
		if s.closed {
			c.says(acp.NewError(m.ID(), acp.Errorf(acp.CodeResourceNotFound, "session %s is closed", s.id)))
			return
		}
		s.attaches(c)
		s.prompted(c, m)
	case acp.MethodSessionCancel:
		for _, t := range s.turns {
			if of := t.number / many; of == c.of && t.number > s.cancelled[of] {
				r.t.Errorf("a cancel ends prompt %d, and the newest was sent behind %d", t.number, s.cancelled[of])
			}
			t.cancelled = true
		}
	case methodDetach:
		c.open[s.id] = false
		result(`{}`)
	case acp.MethodSessionClose, acp.MethodSessionDelete:
		for len(s.turns) > 0 {
			s.ends()
		}
		for seq := range s.asks {
			s.withdraws(seq, nil)
		}
		if s.closed = true; m.Method() == acp.MethodSessionDelete {
			s.deletes()
		}
		c.open[s.id] = false
		result(`{}`)
	case "_sandboxagent/session/get":
		state := "idle"
		if len(s.turns) > 0 {
			state = "running"
		}
		result(`{"state":%q}`, state)
	case "_sandboxagent/session/pending":
		var list []string
		for id, q := range c.asks {
			if q.of == s && s.asks[q.seq] {
				list = append(list, fmt.Sprintf(`{"requestId":%s,"seq":%d}`, id, q.seq))
			}
		}
		result(`{"pending":[%s]}`, strings.Join(list, ","))
	case "_sandboxagent/session/events":
		result(`%s`, page(s.whole, m))
	default:
		result(`{}`)
	}
}

// attaches has a connection be told of the session from now on.
func (s *tale) attaches(c *path) {
	if c.open[s.id] {
		return
	}
	c.open[s.id] = true
	for _, seq := range slices.Sorted(maps.Keys(s.asks)) {
		s.asksOn(c, seq)
	}
}

// opens shows a connection the events that it asks for.
func (s *tale) opens(c *path, m acp.Message) {
	after := len(s.events)
	if _, replays := rawjson.Member(m.Params(), "replayFrom"); replays || m.Method() == acp.MethodSessionLoad {
		after = 0
	}
	if raw, ok := rawjson.Member(m.Meta(), acp.MetaKey, "after"); ok {
		after = numberOf(raw)
	}
	if after > len(s.events) {
		s.r.t.Errorf("%s goes on behind event %d of %d", m.Method(), after, len(s.events))
	}
	for _, told := range s.events[min(after, len(s.events)):] {
		for _, frame := range told {
			c.says(acp.MustParse([]byte(frame)))
		}
	}
	if s.r.two {
		c.says(acp.MustParse([]byte(s.state(len(s.turns) > 0, len(s.events)))))
	}
}

// state is what tells clients of version 2 whether a turn goes on.
func (s *tale) state(on bool, seq int) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":%q,"update":{"sessionUpdate":"state_update","state":%q},"_meta":{"sandboxagent.dev":{"seq":%d}}}}`, s.id, map[bool]string{true: "running", false: "idle"}[on], seq)
}

// prompted takes a prompt. In version 2 it waits for the one before, and one that comes again is the same.
func (s *tale) prompted(c *path, m acp.Message) {
	raw, _ := rawjson.Member(m.Params(), "number")
	t := &turn{name: rawjson.MemberString(m.Meta(), acp.MetaKey, "promptId"), number: numberOf(raw), at: c, id: m.ID()}
	had := slices.IndexFunc(s.turns, func(one *turn) bool { return one.number == t.number })
	switch {
	case s.r.two && s.ended[t.name]:
		c.says(acp.NewResult(m.ID(), []byte(`{"messageId":"sa.1"}`)))
		return
	case s.r.two && had >= 0:
		if s.turns[had].at, s.turns[had].id = c, m.ID(); s.turns[had].begun {
			c.says(acp.NewResult(m.ID(), []byte(`{"messageId":"sa.1"}`)))
		}
		return
	case had >= 0:
		s.r.t.Errorf("prompt %d is there twice", t.number)
	}
	s.turns = append(s.turns, t)
	s.begins()
}

// begins has turns begin that need not wait.
func (s *tale) begins() {
	for i, t := range s.turns {
		if t.begun || s.r.two && i > 0 {
			continue
		}
		of := t.number / many
		if t.begun = true; t.number < s.newest[of] && !s.loose {
			s.r.t.Errorf("prompt %d is carried out behind prompt %d", t.number, s.newest[of])
		}
		s.newest[of] = t.number
		s.r.ran[t.number]++
		s.r.began[t.number] = true
		whole := fmt.Sprintf(`{"method":"session/prompt","params":{"sessionId":%q,"number":%d,"_meta":{"sandboxagent.dev":{"promptId":%q}}}}`, s.id, t.number, t.name)
		if !s.r.two {
			s.happens(whole)
			continue
		}
		s.happens(whole, s.state(true, len(s.events)+1))
		t.at.says(acp.NewResult(t.id, fmt.Appendf(nil, `{"messageId":"sa.%d"}`, len(s.events))))
	}
}

// ends has the first of the turns end.
func (s *tale) ends() {
	t := s.turns[0]
	s.turns = s.turns[1:]
	s.ended[t.name] = true
	reason := "end_turn"
	if t.cancelled {
		reason = "cancelled"
	}
	whole := fmt.Sprintf(`{"jsonrpc":"2.0","method":%q,"params":{"sessionId":%q,"promptId":%q,"result":{"stopReason":%q,"number":%d},"_meta":{"sandboxagent.dev":{"seq":%d}}}}`, methodTurnEnded, s.id, t.name, reason, t.number, len(s.events)+1)
	if s.r.two {
		s.happens(whole, strings.Replace(s.state(false, len(s.events)+1), `"idle"`, `"idle","stopReason":"`+reason+`"`, 1), whole)
		s.begins()
		return
	}
	s.events, s.whole = append(s.events, []string{whole}), append(s.whole, whole)
	for _, c := range s.here().paths {
		switch {
		case c == t.at:
			c.says(acp.NewResult(t.id, fmt.Appendf(nil, `{"stopReason":%q,"number":%d}`, reason, t.number)))
		case c.open[s.id]:
			c.says(acp.MustParse([]byte(whole)))
		}
	}
}

// deletes has the node that has the session delete it.
func (s *tale) deletes() {
	here := s.here()
	for _, c := range here.paths {
		if c.open[s.id] {
			c.says(acp.NewNotification("_sandboxagent/session/ended", fmt.Appendf(nil, `{"sessionId":%q,"data":{"reason":"deleted"}}`, s.id)))
		}
		c.open[s.id] = false
	}
	s.deleted = here.name
	*s.stays[here.name] = stay{}
	s.news = append(s.news, nil)
}

// happens adds an event to the session, and tells those who have it open.
func (s *tale) happens(whole string, told ...string) {
	s.events, s.whole = append(s.events, told), append(s.whole, whole)
	for _, c := range s.here().paths {
		for _, frame := range told {
			if c.open[s.id] {
				c.says(acp.MustParse([]byte(frame)))
			}
		}
	}
}

// works has the agent say something.
func (s *tale) works() {
	text := fmt.Sprintf("event %d", len(s.events)+1)
	if s.r.rnd.IntN(20) == 0 {
		text += strings.Repeat(" much", window/8) // a client that reads nothing is behind
	}
	ev := update(s.id, len(s.events)+1, text)
	s.happens(ev, ev)
}

// asksFor has the agent ask something.
func (s *tale) asksFor() {
	s.happens(`{"method":"x"}`)
	seq := len(s.events)
	s.asks[seq] = true
	for _, c := range s.here().paths {
		if c.open[s.id] {
			s.asksOn(c, seq)
		}
	}
}

func (s *tale) asksOn(c *path, seq int) {
	c.last++
	id := acp.IntID(c.last)
	c.asks[id] = question{s, seq}
	c.says(acp.NewRequest(id, "session/request_permission", fmt.Appendf(nil, `{"sessionId":%q,"about":%q,"_meta":{"sandboxagent.dev":{"seq":%d}}}`, s.id, c.asks[id].about(), seq)))
}

// withdraws has nobody be asked something any more.
func (s *tale) withdraws(seq int, but *path) {
	delete(s.asks, seq)
	for _, p := range s.r.nodes {
		for _, c := range p.paths {
			for id, asked := range c.asks {
				if asked == (question{s, seq}) && c != but {
					c.says(acp.NewNotification(acp.MethodCancelRequest, rawjson.Object{}.Raw("requestId", []byte(id)).End()))
				}
			}
		}
	}
}

// writes changes the record of the session's owner. The hub hears of it later.
func (s *tale) writes(change func(o *store.Owner)) {
	o := *s.owner
	o.Others = slices.Clone(o.Others)
	change(&o)
	s.owner = &o
	s.news = append(s.news, &o)
}

// hears has the hub hear what is new of the session; false when nothing is.
func (s *tale) hears() bool {
	if len(s.news) == 0 {
		return false
	}
	r, o := s.r, s.news[0]
	s.news = s.news[1:]
	r.mu.Lock()
	defer r.mu.Unlock()
	if o == nil {
		s.unlisted = true
		r.g.Deleted(s.id, s.deleted)
	} else {
		s.told = o
		r.g.Owned(o)
	}
	close(r.change)
	r.change = make(chan struct{})
	return true
}

// arrives has a node have the session. At one that had it before what was under way there, as its connection broke, comes before what was
// refused there and waits.
func (s *tale) arrives(p *post) {
	at := s.stays[p.name]
	s.loose = s.loose || at.went != ""
	at.has, at.went = true, ""
}

// departs has a node have the session no more.
func (s *tale) departs(from *post, to string) {
	*s.stays[from.name] = stay{went: to, kept: slices.Clone(s.whole)}
	for _, c := range from.paths {
		c.open[s.id] = false
	}
}

// moves goes on with the move of the session, or begins one to a node. One fails when its node works, and is taken back where the next node does
// not open the session. A session whose node is away moves in one step.
func (s *tale) moves(to *post) {
	r := s.r
	from, over := r.nodes[s.owner.Node], func(o *store.Owner) { o.Moving = nil }
	has := s.stays[from.name].has
	switch m := s.owner.Moving; {
	case m == nil && (to == from || !to.online || s.deleted != ""):
	case m == nil && !from.online:
		s.revives(from, to)
	case m == nil:
		r.count++
		s.writes(func(o *store.Owner) {
			o.Moving = &store.Moving{ID: fmt.Sprint("move ", r.count), To: to.name}
			if o.Other(to.name) == nil {
				o.Others = append(o.Others, store.Other{Node: to.name})
			}
		})
	case m.To == from.name && s.stuck && has && s.deleted == "": // noted before it is done
		i := slices.IndexFunc(s.owner.Others, func(other store.Other) bool { return other.Term+1 == s.owner.Term })
		s.hands(s.owner.Others[i].Node)
	case m.To == from.name && s.stuck && s.deleted == "":
		s.stuck = false
		s.departs(s.here(), from.name)
		s.arrives(from)
	case m.To == from.name || s.deleted == from.name: // it is there, or nowhere
		s.stuck = false
		s.writes(over)
	case has && (len(s.turns) > 0 || r.rnd.IntN(4) == 0 || !from.online):
		s.writes(over)
	case has:
		for seq := range s.asks {
			s.withdraws(seq, nil)
		}
		s.departs(from, m.To)
		s.arrives(r.nodes[m.To])
	default: // it has left
		s.stuck = r.rnd.IntN(3) == 0
		s.hands(m.To)
	}
}

// hands notes that the next node has the session, by the move that goes on.
func (s *tale) hands(to string) {
	s.writes(func(o *store.Owner) {
		o.Others = slices.DeleteFunc(o.Others, func(other store.Other) bool { return other.Node == to })
		o.Others = append(o.Others, store.Other{Node: o.Node, LastSeq: uint64(len(s.events)), Term: o.Term, Until: time.Now()})
		o.Node, o.Term, o.Moving = to, o.Term+1, &store.Moving{ID: o.Moving.ID, To: to}
	})
}

// revives has the session go on without its node, which is away: the last that happened there may be lost, and so are its turns.
func (s *tale) revives(from, to *post) {
	r, had := s.r, len(s.events)
	last := max(0, had-r.rnd.IntN(3))
	s.departs(from, to.name)
	s.arrives(to)
	for _, message := range s.whole[last:] {
		if n, is := rawjson.Member([]byte(message), "params", "number"); is { // the session knows nothing of it any more
			r.ran[numberOf(n)]--
		}
		delete(s.ended, rawjson.MemberString([]byte(message), "params", "promptId"))
	}
	s.events, s.whole = s.events[:last:last], s.whole[:last:last]
	s.leaps(had - last)
	r.count++
	s.writes(func(o *store.Owner) { o.Moving = &store.Moving{ID: fmt.Sprint("move ", r.count), To: to.name} })
	s.writes(func(o *store.Owner) {
		o.Others = slices.DeleteFunc(o.Others, func(other store.Other) bool { return other.Node == from.name || other.Node == to.name })
		o.Others = append(o.Others, store.Other{Node: from.name, LastSeq: uint64(last), Missing: uint64(had - last), Lost: true, Term: o.Term})
		o.Node, o.Term = to.name, o.Term+1
	})
	s.writes(func(o *store.Owner) { o.Moving = nil })
}

// dies has the session go on at its node, which was killed: it notes the end of its turn, and not whose that was.
func (s *tale) dies() {
	if len(s.turns) > 0 {
		whole := fmt.Sprintf(`{"jsonrpc":"2.0","method":%q,"params":{"sessionId":%q,"began":true,"error":{"code":-32603,"message":"killed"},"_meta":{"sandboxagent.dev":{"seq":%d}}}}`, methodTurnEnded, s.id, len(s.events)+1)
		told := []string{whole}
		if s.r.two {
			told = []string{strings.Replace(s.state(false, len(s.events)+1), `"idle"`, `"idle","stopReason":"error"`, 1), whole}
		}
		s.events, s.whole = append(s.events, told), append(s.whole, whole)
	}
	s.leaps(0)
}

// leaps has the session forget what is in no log, and go on with numbers that no client was given.
func (s *tale) leaps(lost int) {
	const leap = 5
	for range lost + leap {
		s.events, s.whole = append(s.events, nil), append(s.whole, `{"method":"x"}`)
	}
	s.turns = nil
	clear(s.asks)
}

// where names the nodes that have the session.
func (s *tale) where() (out []string) {
	for _, name := range s.r.names() {
		if s.stays[name].has {
			out = append(out, name)
		}
	}
	return out
}

// numberOf is a number as it stands in a message, 0 for none.
func numberOf(raw []byte) (n int) {
	_, _ = fmt.Sscan(string(raw), &n)
	return n
}

// page answers a request for the events behind one.
func page(whole []string, m acp.Message) string {
	raw, _ := rawjson.Member(m.Params(), "after")
	after := numberOf(raw)
	var list []string
	for i, message := range whole[min(after, len(whole)):] {
		list = append(list, fmt.Sprintf(`{"seq":%d,"message":%s}`, after+i+1, message))
	}
	return fmt.Sprintf(`{"events":[%s],"hasMore":false}`, strings.Join(list, ","))
}
