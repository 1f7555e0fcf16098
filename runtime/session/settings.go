package session

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/runtime/agents"
	"sandboxagent.dev/sandbox-agent/runtime/viewer"
)

// Unsupported names a field of _meta["sandboxagent.dev"] that had no effect.
type Unsupported struct {
	Field  string `json:"field"`
	Reason string `json:"reason"`
}

// configFields are those that an agent's config options can take, and the
// category of the option.
var configFields = []configField{
	{"model", "model"}, {"variant", "thought_level"}, {"mode", "mode"},
}

type configField struct{ field, category string }

// setFields are those that may be other than the setup says, since they are set in other ways, too.
var setFields = []string{permissionMode, "mode", "model", "variant", "title"}

// setupFields are those that only an agent's adapter can take.
var setupFields = []string{
	"permissionMode", "instructions", "appendSystemPrompt", "skills", "additionalDirectories",
	"agentVersion", "agentSpecific",
}

// beginAnew is the field that lets an agent begin anew that cannot open its conversation, whatever the reason is.
const beginAnew = "beginAnew"

// knownFields are all fields of _meta["sandboxagent.dev"] that a request that sets up a
// session can have.
var knownFields = slices.Concat(setupFields, []string{
	"agent", "requestedSessionId", "after", "title", "model", "variant", "mode", "mcp", "env", "credentials", "isolation", "handover", "durability", includeRaw, beginAnew,
})

// unknownFields lists those that there are not, with the nearest that there is.
func unknownFields(own map[string]json.RawMessage) []Unsupported {
	var out []Unsupported
	for _, name := range slices.Sorted(maps.Keys(own)) {
		if slices.Contains(knownFields, name) {
			continue
		}
		reason := "there is no such field"
		if near := nearest(name, knownFields); near != "" {
			reason += "; is " + near + " meant?"
		}
		out = append(out, Unsupported{name, reason})
	}
	return out
}

// nearest returns the name that differs least from the given one, "" when all of them
// differ in more than a third of their letters.
func nearest(name string, names []string) string {
	best, least := "", 1+len(name)/3
	for _, one := range names {
		if d := distance(strings.ToLower(name), strings.ToLower(one)); d < least || d == least && best == "" {
			best, least = one, d
		}
	}
	return best
}

// distance counts the letters that must be added, left out or replaced.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		last := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := last
			if a[i] != b[j] {
				cost++
			}
			last = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// outranked is why a mode is not set that is asked for beside a permissionMode.
const outranked = "the permissionMode counts for more"

// made is what session/new has asked for with own, beyond what the agent has opened the session with.
func (s *Session) made(rec *record, info adapters.Info, own map[string]json.RawMessage) *Change {
	c := &Change{sets: map[string]json.RawMessage{}, missing: unknownFields(own)}
	for _, f := range slices.Sorted(maps.Keys(own)) {
		switch set := slices.Contains(setFields, f); {
		case f == "requestedSessionId" || f == "handover" && rec.Handover == "": // of one with an id, that is opened
			c.missing = append(c.missing, ofNewSessions(s.id, f, own[f])...)
		case set && f != "title" && textOf(own[f]) != "":
			c.sets[f] = own[f]
		case !set && slices.Contains(setupFields, f) && !slices.Contains(taken(info), f):
			c.no(f, notTaken(info.ID))
		case f == includeRaw && s.set.store.dir == "" && string(own[f]) == "true":
			c.no(f, noFiles)
		}
	}
	return c
}

// taken names the fields that an agent's adapter takes.
func taken(info adapters.Info) []string {
	if info.Program != "" {
		return append(slices.Clip(info.Takes), "agentVersion")
	}
	return info.Takes
}

func notTaken(agent string) (reason string) {
	return "agent " + agent + " does not take it from the gateway"
}

// unset takes a field of _meta of ours out of the setup, which has had no effect: who asks for it again is told again.
func (s *Session) unset(field string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rec.Setup, s.unsaved = rawjson.DeleteMember(s.rec.Setup, "_meta", acp.MetaKey, field), true
	if field == "additionalDirectories" { // it is the protocol's, too
		s.rec.Setup = rawjson.DeleteMember(s.rec.Setup, field)
	}
}

// refusable are the fields of which an adapter says that they have no effect at all when it names them. Of others, as of skills, a part may
// have one.
var refusable = []string{"permissionMode", "instructions", "appendSystemPrompt", "additionalDirectories", "agentVersion"}

// refusals are what the agent has refused as it opened the session, of refusable.
func (l *link) refusals() []Unsupported {
	return slices.DeleteFunc(slices.Clone(l.refused), func(r Unsupported) bool { return !slices.Contains(refusable, r.Field) })
}

// unsetRefused takes these out of the setup.
func (s *Session) unsetRefused(l *link) {
	for _, r := range l.refusals() {
		s.unset(r.Field)
	}
}

// setOption sets the session's option of a category and returns why it could
// not. Without a process, or where that has ended, or the session was closed there meanwhile, it is set when the agent is started next.
func (s *Session) setOption(ctx context.Context, l *link, category, wish string) (reason string) {
	s.mu.Lock()
	rec := s.rec
	s.mu.Unlock()
	c := choice{method: acp.MethodSessionSetConfigOption, option: rec.option(category), value: rawjson.AppendQuoted(nil, wish)}
	model := rec.option("model")
	switch {
	case c.option != "":
	case category == "mode" && len(rec.Modes) > 0:
		c.method, c.id = acp.MethodSessionSetMode, wish
	case category == "thought_level" && l == nil && rec.Chosen[model] != nil && !bytes.Equal(rec.Chosen[model], currentValue(rec.ConfigOptions, model)):
		c.option = waits(category)
	default:
		return "agent " + rec.Agent + " offers no option for it"
	}
	// A mode is set nevertheless: by the agent's other way of choosing one it may be in another one by now. So may an agent that has not
	// answered for too long, whose process takes no more.
	is := category != "mode" && l != nil && l.options && l.p.Takes() && bytes.Equal(currentValue(rec.ConfigOptions, c.option), c.value)
	if l != nil && !is {
		_, err := s.setAt(ctx, l, c, false)
		if err == nil {
			return ""
		}
		s.mu.Lock()
		works := l.worksLocked()
		s.mu.Unlock()
		if works && (refusedBy(err) != nil || l.p.Alive()) {
			return reasonOf(err)
		}
	}
	return reasonOf(s.edit(func(rec *record) func(*record) {
		was := rec.choices
		s.chooseLocked(s.askLocked(), c)
		return func(rec *record) { rec.choices = was }
	}))
}

// setAt has the agent set to what is chosen, which is remembered then. The error is why it is not, or not for the next one. late is for what
// is chosen already, and is shown when the agent takes it: where somebody has chosen something else meanwhile, that counts, and it is over.
// An agent that takes a mode, and says that it is in another one, has refused it.
func (s *Session) setAt(ctx context.Context, l *link, c choice, late bool) (over bool, _ error) {
	bounded, cancel := agents.Within(ctx, s.set.o.RequestTimeout)
	defer cancel()
	s.mu.Lock()
	asked := s.askLocked()
	s.mu.Unlock()
	at, stays := At{l, asked}, ""
	kept, taken, gaveUp, instead := make(chan error, 1), false, false, false // the last three are guarded by s.mu
	show := func() {}
	_, err := l.p.AskThen(bounded, c.method, c.params(l), func(res json.RawMessage, err error) {
		if err != nil {
			return
		}
		s.mu.Lock()
		instead = late && !s.rec.chooses(c)
		if taken = true; gaveUp {
			s.takenLateLocked(at, asked, c, res, instead)
		} else {
			now, was, modes, options := c, s.rec.choices, s.rec.Modes, s.rec.ConfigOptions
			if s.m.link == l {
				now = s.setLocked(at, false, c, res)
				stays = s.rec.inAnother(&c)
			}
			if late && s.setSinceLocked(modes, options) {
				show = func() { s.showSettings(modes, options) }
			}
			if !instead && stays == "" {
				s.chooseLocked(asked, now)
				s.rec.held = s.rec.held || s.holding && c.field(&s.rec) == "mode"
			}
			if reflect.DeepEqual(was, s.rec.choices) { // as where it is chosen again
				kept <- nil
			} else {
				s.chosenLocked(was, func(err error) { kept <- err })
			}
		}
		s.mu.Unlock()
		s.saveSoon()
	})
	if err != nil {
		s.mu.Lock()
		gaveUp = !taken // in that moment
		s.mu.Unlock()
		if gaveUp {
			return false, err
		}
	}
	if err = <-kept; err != nil {
		return false, unkept(err)
	}
	show()
	if stays != "" && !instead {
		return false, acp.Errorf(acp.CodeInternal, "the agent stays in mode %s", stays)
	}
	return instead, nil
}

// reasonOf is an error as a reason for clients, "" for none.
func reasonOf(err error) string {
	if err == nil {
		return ""
	}
	return viewer.ErrorOf(err).Message
}

// unkept says of what the agent has taken that it cannot be written down. The agent goes on with
// it, and is not told again when it is started anew.
func unkept(err error) error {
	return problem.Wrap(problem.Unavailable, err, "the agent has taken it, and the gateway cannot keep it: ask for it again when it can")
}

// setLocked notes what the agent has answered to what it was set to, and returns what is chosen by that. It is called on the reader.
//
// The record has what the agent has said last. One that has said what it was set to since it was given that, as most do, has answered with that,
// and may have gone over to something else by itself: what it has said counts. Else the answer does: its options, or, where it has none, that it
// is as it was set to, unless it has said otherwise of the option. Against an answer that comes late that is no word: it may be of what was set
// since.
func (s *Session) setLocked(at At, late bool, c choice, result json.RawMessage) choice {
	s.unsaved = true
	options, _ := rawjson.Member(result, "configOptions")
	if len(options) > 0 && options[0] != '[' {
		options = nil
	}
	says := s.said.since(at.said, c.option, c.value)
	otherwise := func(option string) bool { return !late && s.said.anySince(at.said, option) } // as a model by its full name, or that it stays as it was
	now := func() json.RawMessage { return currentValue(s.rec.ConfigOptions, c.option) }
	// That it stays in another mode it may say by its modes, where it was set by its option for them. That is never overheard either.
	stays := c.option != "" && c.option == s.rec.option("mode") && s.readsOnlyLocked() && otherwise("") &&
		s.rec.hasMode(textOf(c.value)) && s.rec.inModes()[0] != textOf(c.value)
	switch {
	case c.option != "" && says:
		// It may say more of the others, or have gone over to something else. What it was set to is the older word.
		if answered := currentValue(options, c.option); answered != nil && (bytes.Equal(answered, now()) || !bytes.Equal(answered, c.value)) {
			s.rec.noteOptions(options, s.followsLocked())
		}
	case options != nil:
		s.rec.noteOptions(options, (c.option == "" || currentValue(options, c.option) != nil) && s.followsLocked())
		if c.option != "" {
			s.said.forget(c.option)
		}
	case c.option != "" && !otherwise(c.option) && !stays: // not every agent says in its answer what options it has
		s.rec.noteOption(c.option, c.value)
		s.said.forget(c.option)
	}
	if s.m.link != nil {
		s.m.link.tellsLocked(false, options != nil)
	}
	is := c // as the record has it
	switch {
	case !says:
	case c.option == "":
		is.id = cmp.Or(rawjson.MemberString(s.rec.Modes, "currentModeId"), c.id)
	case now() != nil:
		is.value = bytes.Clone(now())
	}
	// The same may be an option, and set in another way; see choose.
	alike := func(category string) {
		if option := s.rec.option(category); options == nil && is.id != "" && !otherwise(option) {
			s.rec.noteOffered(option, rawjson.AppendQuoted(nil, is.id))
		}
	}
	switch {
	case stays:
	case c.method == acp.MethodSessionSetConfigOption && c.option != "" && c.option == s.rec.option("mode"):
		s.rec.noteMode(textOf(now()))
	case c.method == acp.MethodSessionSetModel:
		alike("model")
	case c.method != acp.MethodSessionSetMode || c.id == "":
	case says:
		alike("mode")
	case s.readsOnlyLocked() && otherwise(""): // that it stays: it is not to be given a prompt then
	default:
		s.said.forget("")
		if len(s.rec.Modes) > 0 {
			s.rec.Modes = rawjson.SetMember(s.rec.Modes, c.value, "currentModeId")
		}
		alike("mode")
	}
	if c.field(&s.rec) == "mode" && s.readsOnlyLocked() { // see followMode
		return c
	}
	return is
}

// chooseAgain sets at an agent that was started anew what was chosen before. What the agent does not take clients are told. The error is
// that a session which must only read cannot be held to that: nothing is done in another mode.
func (s *Session) chooseAgain(ctx context.Context, l *link) error {
	info := l.p.Agent().Info()
	s.mu.Lock()
	wish := s.rec.permissionMode()
	if err := unheld(wish, l.refusal(permissionMode)); err != nil {
		s.mu.Unlock()
		return err
	}
	s.rec.forgetMode(l.refusal(permissionMode) != "")
	list, mode := s.rec.list(), s.rec.chosenMode()
	s.mu.Unlock()
	if wish == "readonly" && mode == "" && !slices.Contains(info.Takes, permissionMode) {
		// Nobody has chosen another mode, and the agent's is not known any more.
		reason := s.permit(ctx, l, info, wish)
		if err := cmp.Or(endedAt(l.p), context.Cause(ctx), unheld(wish, reason)); reason != "" && err != nil {
			return err
		}
	}
	missing, err := s.carry(ctx, l, list, false)
	s.change(func(rec *record) { rec.Opening = rec.Opening && err != nil })
	s.tellUnsupported(missing)
	return err
}

// carry sets at an agent what was chosen at another one, unless the agent says that it is so. What it refuses stays as the agent has it, and
// is in missing: what is invalid is chosen no more. What it does not answer within the time of a start is in missing, too, with what it was not
// asked for then: it is set to that when it serves the session. Without a process there is nothing to do, and no more where the session is
// closed there meanwhile. The error is as that of chooseAgain, or why ctx has ended: the agent has refused nothing then. late is for an
// agent that serves the session: clients may choose meanwhile, and that counts for more.
func (s *Session) carry(ctx context.Context, l *link, list []choice, late bool) (missing []Unsupported, err error) {
	if l == nil {
		return nil, nil
	}
	list = slices.Clone(list)
	behind := false // something of the list goes on later, so what follows does as well
	for len(list) > 0 {
		c := list[0]
		list = list[1:]
		info := l.p.Agent().Info()
		s.mu.Lock()
		if !l.worksLocked() {
			s.mu.Unlock()
			return missing, endedAt(l.p)
		}
		behind = behind || late && s.choosing > 1 && !s.m.setting
		if behind && !l.readsLocked(c) { // the agent has been asked for it already: it goes on behind that, with what is chosen then
			l.waiting = append(l.waiting, c)
			s.mu.Unlock()
			continue
		}
		if late && !l.countsLocked(c) {
			s.mu.Unlock()
			continue
		}
		if as := s.rec.asOffered(c); as.method != c.method || as.option != c.option {
			c = as
			s.rec.choose(c)
			s.unsaved = true
		}
		rec := s.rec
		s.mu.Unlock()
		now, err := currentValue(rec.ConfigOptions, c.option), error(nil)
		if c.option != "" && now == nil && !c.waited && len(list) > 0 { // it may be there when the agent is set to the others, as to a mode
			c.waited = true
			list = append(list, c)
			continue
		}
		switch {
		case c.method == acp.MethodSessionSetMode && l.modes && len(rec.Modes) > 0 && rawjson.MemberString(rec.Modes, "currentModeId") == c.id:
		case (c.option != "" || c.method == acp.MethodSessionSetMode && len(rec.Modes) == 0) && len(rawjson.Elements(rec.ConfigOptions)) == 0: // it may have them later
			err = acp.Errorf(acp.CodeInternal, "it offers no options now")
			s.mu.Lock()
			l.waiting = append(l.waiting, c)
			s.mu.Unlock()
		case c.method == acp.MethodSessionSetMode && len(rec.Modes) == 0:
			if rec.permissionMode() == "readonly" && !slices.Contains(info.Takes, permissionMode) { // nothing else holds it to that
				err = acp.Errorf(acp.CodeInternal, "it offers no modes")
			}
		case c.option != "" && now == nil:
			err = acp.Errorf(acp.CodeInvalidParams, "it offers no option for it")
		case c.option != "" && l.options && bytes.Equal(now, c.value):
		default:
			var over bool
			if over, err = s.setAt(ctx, l, c, late); over { // the agent may have been set to the newer one before
				list = append(list, s.chosenInstead(c)...)
			}
		}
		if err == nil {
			continue
		}
		if ended := endedAt(l.p); ended != nil {
			return nil, ended
		}
		s.mu.Lock()
		works, serves := l.worksLocked(), l.servesLocked()
		s.mu.Unlock()
		timedOut := isTimeout(err)
		if cause := context.Cause(ctx); cause != nil && (serves || !isTimeout(cause)) {
			return missing, cause
		}
		if !works { // its agent does not know the session any more
			return missing, nil
		}
		s.logger().Warn("agent did not take a choice again", "method", c.method, "err", err)
		field, value, wish, offered := c.field(&rec), c.text(), rec.heldTo(), rec.modes()
		does := "refuses "
		if refusedBy(err) == nil {
			does = "is not set to "
		}
		agent := "agent " + info.ID + " "
		if !serves {
			agent += "was started anew and "
		}
		reason := agent + does + value + ": " + reasonOf(err)
		takes, stands := slices.Contains(info.Takes, permissionMode), info.ModeFor(wish, offered)
		held := wish == "readonly" && (!takes || late && !rec.chooses(c)) // by its mode
		reads := field == "mode" && held
		if timedOut && !serves { // a start has no more time than that: the rest is set beside the prompts, except for what holds the session
			rest := append([]choice{c}, list...)
			if held && slices.ContainsFunc(rest, func(c choice) bool { return c.field(&rec) == "mode" }) {
				return missing, err
			}
			s.mu.Lock()
			l.waiting = append(l.waiting, rest...)
			s.mu.Unlock()
			for _, c := range rest {
				missing = append(missing, Unsupported{c.field(&rec), agent + "is not set to " + c.text() + " yet: " + reasonOf(err)})
			}
			return missing, nil
		}
		there := slices.ContainsFunc(offered, func(m adapters.Mode) bool { return m.ID == value })
		switch {
		case reads && (late || !there || value == stands):
			return missing, unheld(wish, reason) // and goes on asking for the same
		case field == "mode" && !takes && value == stands:
			field = permissionMode // what the mode came from
		}
		missing = append(missing, Unsupported{field, reason})
		if said := refusedBy(err); said != nil && said.Code == acp.CodeInvalidParams && !reads { // else it is tried again with the next start
			s.mu.Lock()
			s.rec.forget(c.field(&s.rec))
			s.mu.Unlock()
		}
		s.unset(field)
		if late && timedOut { // it would be waited for as long for each; the next start tries the rest, but for what holds the session
			list = slices.DeleteFunc(list, func(c choice) bool { return !held || c.field(&rec) != "mode" })
		}
	}
	return missing, nil
}

// isTimeout reports whether an error is the end of a time limit.
func isTimeout(err error) bool { return problem.From(err).Kind == problem.Timeout }

// followsLocked reports whether what the agent says of its settings is what it has gone over to by itself: not while it is opened, and set
// to what was chosen.
func (s *Session) followsLocked() bool { return s.m.hosting == serving && !s.m.link.carrying }

// said is what an agent has said of its settings: which values, and when. The zero value is nothing.
type said struct {
	n  uint64            // grows with each
	at map[string]uint64 // the newest of each value of an option; "" is the mode
}

// maxSaid bounds the values that are known; beyond, all are forgotten.
const maxSaid = 256

func (w *said) note(option string, value json.RawMessage) {
	if w.at == nil || len(w.at) >= maxSaid {
		w.at = map[string]uint64{}
	}
	w.n++
	w.at[option+"\x00"+string(value)] = w.n
}

// since reports whether the agent has said a value since it had said n things.
func (w *said) since(n uint64, option string, value json.RawMessage) bool {
	return w.at[option+"\x00"+string(value)] > n
}

// anySince reports whether the agent has said any value of an option since it had said n things.
func (w *said) anySince(n uint64, option string) bool {
	for said, at := range w.at {
		if at > n && strings.HasPrefix(said, option+"\x00") {
			return true
		}
	}
	return false
}

// forget forgets what was said of an option: an answer says how it is by now.
func (w *said) forget(option string) {
	maps.DeleteFunc(w.at, func(key string, _ uint64) bool { return strings.HasPrefix(key, option+"\x00") })
}

// askLocked returns the number of a request that sets something: what the agent says from now on has a higher one, and so have later requests.
func (s *Session) askLocked() (asked uint64) {
	s.said.n++
	return s.said.n
}

// chooseLocked remembers what somebody has set by the request of a number.
func (s *Session) chooseLocked(asked uint64, c choice) {
	s.setByLocked(asked, c.field(&s.rec))
	s.rec.choose(c)
}

// setByLocked notes by which request it is set, or given up, what a field asks for.
func (s *Session) setByLocked(asked uint64, field string) {
	if s.setBy == nil || len(s.setBy) >= maxSaid {
		s.setBy = map[string]uint64{}
	}
	s.setBy[field] = max(s.setBy[field], asked)
}

// Choosing is called before the agent is asked for what a client sets, and is followed by Chose or EndChoosing. What it returns is for Chose.
func (s *Session) Choosing() (asked uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.choosing++
	return s.askLocked()
}

// EndChoosing says that the agent has not taken what a client has set. Chose does, too.
func (s *Session) EndChoosing() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.choosing--; s.choosing == 0 {
		s.lookAgainLocked()
		s.carryLateLocked()
	}
}

// lookAgainLocked has those look again who wait in awaitChoices.
func (s *Session) lookAgainLocked() {
	if s.lookAgain != nil {
		close(s.lookAgain)
		s.lookAgain = nil
	}
}

// awaitChoices waits until the agent has answered what clients have set, as long as that may take: it was asked for before what is applied
// now, and would else count as chosen since. It waits for an agent that is being started, too, which may have been told already what it is
// to be, and may have the session back with the settings of before. It does not wait while the agent asks something itself, and says so: who waits may be the one
// who can answer, and is asked when it is attached. The agent is set to nothing else then. What the process asks of no session does not count:
// whom that concerns is asked without being attached.
func (s *Session) awaitChoices(ctx context.Context) (asks bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.choosing > 0 || s.m.hosting == starting {
		if err := s.m.refusal(); err != nil {
			return false, err
		}
		if s.m.asks > 0 {
			return true, nil
		}
		if s.lookAgain == nil {
			s.lookAgain = make(chan struct{})
		}
		look := s.lookAgain
		s.mu.Unlock()
		select {
		case <-look:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		s.mu.Lock()
		if err != nil {
			return false, err
		}
	}
	return false, nil
}

// Chose notes what a client has set and the agent has taken, where the session was open then, with what the agent has answered.
// told is called with that when a gateway that is killed would begin with the choice, or with
// why it cannot be kept. It does not wait.
func (s *Session) Chose(at At, asked uint64, method string, params json.RawMessage, res *acp.Message, told func(res *acp.Message, err error)) {
	defer s.EndChoosing()
	answer := res.Clone()
	kept := func(err error) {
		if err != nil {
			err = unkept(err)
		}
		told(s.withOptions(method, &answer), err)
	}
	if method == acp.MethodSessionSetTitle {
		s.Rename(rawjson.MemberString(params, "title"), kept)
		return
	}
	c := choiceOf(method, params)
	s.mu.Lock()
	// A permissionMode that the session is about to be opened with was asked for since.
	if !at.newestLocked(s) || s.rec.ModeOver && c.field(&s.rec) == "mode" {
		s.mu.Unlock()
		told(nil, acp.Errorf(acp.CodeInternal, "the session was opened anew before the agent answered %s: send it again", method))
		return
	}
	if field := c.field(&s.rec); field == "mode" && s.rec.heldTo() == "readonly" && s.setBy[field] > asked { // by a load while the agent asked something
		s.takenLateLocked(at, asked, c, res.Result(), false)
		s.mu.Unlock()
		s.saveSoon()
		told(nil, acp.Errorf(acp.CodeInternal, "another mode was asked for before the agent answered %s: send it again", method))
		return
	}
	was := s.rec.choices
	now := s.setLocked(at, false, c, res.Result())
	if s.rec.heldTo() != "readonly" || s.rec.inAnother(&c) == "" { // one that the agent did not follow takes nobody out of it
		s.chooseLocked(asked, now)
	}
	s.chosenLocked(was, kept)
	s.mu.Unlock()
	s.saveSoon()
}

// Choice is what a client sets by a request, without the rest of that.
type Choice struct{ choice choice }

// ChoiceOf returns it.
func ChoiceOf(method string, params json.RawMessage) Choice { return Choice{choiceOf(method, params)} }

// choiceOf is what a client sets by a request.
func choiceOf(method string, params json.RawMessage) choice {
	c := choice{method: method, option: rawjson.MemberString(params, "configId")}
	switch method {
	case acp.MethodSessionSetMode:
		c.id = rawjson.MemberString(params, "modeId")
		c.value = rawjson.AppendQuoted(nil, c.id)
	case acp.MethodSessionSetModel:
		c.id = rawjson.MemberString(params, "modelId")
	default:
		value, _ := rawjson.Member(params, "value")
		c.value = bytes.Clone(value)
	}
	return c
}

// withOptions returns the agent's answer with the options as they are now: the agent may have
// told of a change since it gave it, or not say in it what the protocol wants to be said.
func (s *Session) withOptions(method string, res *acp.Message) *acp.Message {
	said, ok := rawjson.Member(res.Result(), "configOptions")
	s.mu.Lock()
	now := s.rec.ConfigOptions
	s.mu.Unlock()
	if !ok && method != acp.MethodSessionSetConfigOption || string(said) == string(now) || len(now) == 0 {
		return res
	}
	own := acp.NewResult(res.ID(), rawjson.SetMember(res.Result(), now, "configOptions"))
	return &own
}

// saveSoon is save without waiting for it.
func (s *Session) saveSoon() { s.set.o.Tasks.Go(func() { _ = s.save() }) }

// untitledLocked returns the agent's session_info_update without its title if a client
// has given the session another one, and whether anything is left of it.
func (s *Session) untitledLocked(m *acp.Message) (_ *acp.Message, left bool) {
	title, given := rawjson.Member(m.Update(), "title")
	if !s.rec.Titled || !given {
		return m, true
	}
	if s.rec.AgentTitle, s.unsaved = textOf(title), true; s.rec.AgentTitle == s.rec.Title {
		return m, true
	}
	rest := rawjson.DeleteMember(m.Params(), "update", "title")
	update, _ := rawjson.Member(rest, "update")
	if len(members(update)) <= 1 {
		return nil, false
	}
	own := acp.NewNotification(m.Method(), rest)
	return &own, true
}

// noteSettingsLocked keeps what a later client is told at once. follows says that the agent has left the mode that was chosen if it says
// another one: not while it opens the session, and is set to that again.
func (s *Session) noteSettingsLocked(m *acp.Message, follows bool) {
	u := m.Update()
	switch string(m.UpdateKind()) {
	case "current_mode_update":
		if mode, ok := rawjson.Member(u, "currentModeId"); ok {
			if len(s.rec.Modes) > 0 {
				s.rec.Modes = rawjson.SetMember(s.rec.Modes, mode, "currentModeId")
			}
			if follows {
				s.rec.followMode(mode)
			}
			s.said.note("", mode)
		}
	case "config_option_update":
		if opts, ok := rawjson.Member(u, "configOptions"); ok {
			said := saidOf(s.rec.ConfigOptions, opts)
			if s.readsOnlyLocked() { // that it stays in another mode is never overheard
				said = append(said, optionNamed(opts, s.rec.option("mode"))...)
			}
			for _, o := range said {
				value, _ := rawjson.Member(o, "currentValue")
				s.said.note(rawjson.MemberString(o, "id"), value)
			}
			s.rec.noteOptions(opts, follows)
		}
	case "session_info_update":
		if t := rawjson.MemberString(u, "title"); t != "" && t != s.rec.Title {
			s.rec.Title = t
		}
	}
	s.unsaved = true
}
