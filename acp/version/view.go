package version

import (
	"bytes"
	"encoding/json"
	"hash/maphash"
	"strconv"
	"strings"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
)

// Kind says what an entry of a log is: the letters of the log's own kinds.
type Kind byte

// The kinds of entries that a [View] acts on. It passes over others.
const (
	Update   Kind = 'u' // session/update of the agent
	Notice   Kind = 'n' // any other notification
	TurnEnd  Kind = 't' // how a turn ended
	Response Kind = 'r' // response to a client
	Ask      Kind = 'q' // request of the agent
	AskDone  Kind = 'x' // a request of the agent is open no more
	Echo     Kind = 'p' // a block of a prompt, as version 1 shows it to other clients
	Client   Kind = 'c' // what a client sent
	First    Kind = '1' // session/update of version 1 of what [Second] says; passed over
	Second   Kind = '2' // session/update of an agent of version 2
)

// Entry is an entry of a session's log, in version 1.
type Entry struct {
	Seq   uint64 // of this entry, higher than that of all before
	Kind  Kind
	To    int64 // who it is for, or from; 0 is everyone
	Frame []byte
}

// View reads the log of a session of version 1 for clients of version 2, and for those of
// version 1 that know subagents. What it makes of
// an entry depends on the entries before and on nothing else. It is used by one goroutine
// at a time.
type View struct {
	id      string
	session []byte // the quoted id
	one     bool   // the client speaks version 1, and knows subagents
	knows   Knows  // what such a client knows
	cwd     string
	ids     string // what the ids begin with that are made here

	m acp.Message // of the entry in hand

	options, modes json.RawMessage // as last heard of, in version 1

	role    string // of the message that is being written, "" for none
	written []byte // its id, quoted; it was made here
	seen    map[uint64]struct{}
	hash    maphash.Seed

	turn   turn
	told   string             // the state that was told last
	alone  bool               // the agent works though nobody has prompted it
	behind json.RawMessage    // what it says goes on in the background, nil for nothing
	asks   map[int64]struct{} // of the turn, or what the agent does alone; open, that people answer
	titles map[string]string  // of the calls that are open
	kids   children
	runs   runs
	shells kept[shell] // by the id of the call
}

// turn is the prompt that the agent works on.
type turn struct {
	open  bool
	acked bool   // its client was answered when it began
	id    acp.ID // of its request
	by    int64  // its client
	echo  int    // blocks of it that follow as [Echo]
	lost  bool   // one may have begun before the first entry that there is: only those of a log's end are kept
}

// About is what a log does not say of its session.
type About struct {
	Session string
	Cwd     string
	// IDs is what the ids of messages begin with that the log has none of, "" for those of
	// [MessageID].
	IDs string
	// One says that the client speaks version 1 and knows subagents: it is told of them, and
	// all else is as it is, if it knows it.
	One   bool
	Knows Knows // what such a client knows
	// Options and Modes are the session's, as version 1 has them; nil for none.
	Options, Modes json.RawMessage
}

// NewView returns a view of a log that nothing was read of.
func NewView(a About) *View {
	if a.IDs == "" {
		a.IDs = ownIDs
	}
	return &View{
		id: a.Session, one: a.One, knows: a.Knows, kids: newChildren(), shells: newKept[shell](maxShells),
		ids: a.IDs, session: rawjson.AppendQuoted(nil, a.Session), cwd: a.Cwd, options: a.Options, modes: a.Modes,
		turn: turn{lost: true}, seen: map[uint64]struct{}{}, hash: maphash.MakeSeed(), asks: map[int64]struct{}{}, titles: map[string]string{},
	}
}

// Frames are frames that a [View] has made. The zero value has none.
type Frames struct {
	buf  []byte
	ends []int
}

// Reset forgets all frames and keeps their memory, unless that is much.
func (f *Frames) Reset() {
	if f.buf, f.ends = f.buf[:0], f.ends[:0]; cap(f.buf) > 256<<10 {
		f.buf = nil
	}
}

// Len returns how many frames there are.
func (f *Frames) Len() int { return len(f.ends) }

// At returns the frame with number i, which is valid until the next Reset.
func (f *Frames) At(i int) []byte {
	from := 0
	if i > 0 {
		from = f.ends[i-1]
	}
	return f.buf[from:f.ends[i]:f.ends[i]]
}

// add adds a frame that is put together from parts.
func (f *Frames) add(parts ...[]byte) {
	for _, p := range parts {
		f.buf = append(f.buf, p...)
	}
	f.ends = append(f.ends, len(f.buf))
}

// update adds a session/update. session is the id's JSON string.
func (f *Frames) update(session, update []byte) {
	f.buf = append(append(acp.AppendUpdateHead(f.buf, session), update...), acp.UpdateTail...)
	f.ends = append(f.ends, len(f.buf))
}

// MessageID returns the id of the message that begins with the entry.
func MessageID(seq uint64) string { return ownIDs + strconv.FormatUint(seq, 10) }

// EventOf returns the event of which MessageID is the id, 0 for another id.
func EventOf(id string) uint64 {
	own, is := strings.CutPrefix(id, ownIDs)
	seq, err := strconv.ParseUint(own, 10, 64)
	if !is || err != nil {
		return 0
	}
	return seq
}

const ownIDs = "sa."

func (v *View) messageID(seq uint64) string { return v.ids + strconv.FormatUint(seq, 10) }

// update adds a session/update.
func (v *View) update(out *Frames, update []byte) { out.update(v.session, update) }

// Step reads the next entry and adds to out what a client of version 2 is told in its
// place. history says that the entry is replayed: what was true only then is left out,
// and messages begin empty, because the client may have them already.
//
// Requests of agents, their withdrawal, responses and notifications other than
// session/update are the caller's to give out; see [View.Ask].
func (v *View) Step(e Entry, history bool, out *Frames) {
	if v.one {
		v.stepOne(e, out)
		return
	}
	if e.Seq == 1 {
		v.turn.lost = false
	}
	switch e.Kind {
	case Echo:
		if v.turn.echo > 0 {
			v.turn.echo--
			return
		}
	case Client, Update, Second, Notice, Ask, AskDone, Response, TurnEnd:
	default:
		return
	}
	var err error
	if v.m, err = acp.Parse(e.Frame); err != nil {
		return
	}
	m := &v.m
	switch e.Kind {
	case Client:
		if m.Method() == acp.MethodSessionPrompt {
			v.prompt(e, m, history, out)
		}
	case Update, Echo:
		v.sessionUpdate(e, m, history, out)
	case Second:
		v.second(m, history, out)
	case Notice:
		if m.Method() == acp.MethodWorking {
			v.works(rawjson.MemberBool(m.Params(), "working"), history, out)
		}
	case Ask:
		v.asked(m, history, out)
	case AskDone:
		v.answered(m, history, out)
	case Response:
		v.response(e, m, history, out)
	case TurnEnd:
		if v.turn.open && e.To == 0 || v.turn.lost && acp.TurnBegan(m.Params()) {
			result, _ := rawjson.Member(m.Params(), "result")
			failure, _ := rawjson.Member(m.Params(), "error")
			v.idle(result, failure, history, out)
		}
	}
}

func (v *View) prompt(e Entry, m *acp.Message, history bool, out *Frames) {
	blocks, ok := rawjson.Member(m.Params(), "prompt")
	if !ok || blocks[0] != '[' {
		blocks = []byte("[]")
	}
	v.closeMessage()
	clear(v.asks)
	v.turn = turn{open: true, id: m.ID(), by: e.To, echo: len(rawjson.Elements(blocks))}
	v.update(out, rawjson.Object{}.String("sessionUpdate", "user_message").String("messageId", v.messageID(e.Seq)).Raw("content", blocks).End())
	v.told = "" // it is told at each prompt
	v.tell(history, out)
}

// response takes the answer to the turn's prompt: to a client of version 2 it says that
// the turn has begun, to one of version 1 that it is over.
func (v *View) response(e Entry, m *acp.Message, history bool, out *Frames) {
	t := &v.turn
	if !t.open || t.acked || m.ID() != t.id || e.To != t.by && e.To < nobody {
		return
	}
	if _, begun := rawjson.Member(m.Result(), "messageId"); begun {
		t.acked = true
		return
	}
	v.idle(m.Result(), m.ErrorRaw(), history, out)
}

// nobody is the least recipient that is no client.
const nobody = 1 << 62

// idle ends the turn.
func (v *View) idle(result, failure json.RawMessage, history bool, out *Frames) {
	v.closeMessage()
	v.turn = turn{}
	clear(v.asks)
	v.runs.leave()
	v.told = "idle"
	if history {
		return
	}
	o := rawjson.Object{}.String("sessionUpdate", "state_update").String("state", "idle")
	switch reason, ok := rawjson.Member(result, "stopReason"); {
	case failure != nil && rawjson.MemberString(failure, "message") != "" && !isCancelled(failure):
		o = o.String("stopReason", "error").Raw("error", withoutNulls(failure, "data"))
	case failure != nil:
		o = o.String("stopReason", "cancelled")
	case ok && reason[0] == '"':
		o = o.Raw("stopReason", reason)
	default:
		o = o.String("stopReason", "end_turn")
	}
	if usage, ok := rawjson.Member(result, "usage"); ok && usage[0] == '{' {
		o = o.Raw("usage", usage)
	}
	v.update(out, withMeta(v.background(o), result).End())
	if v.alone {
		v.tell(history, out)
	}
}

// works notes whether the agent works though nobody has prompted it.
func (v *View) works(alone, history bool, out *Frames) {
	if v.alone == alone && (alone || v.behind == nil) {
		return
	}
	if v.alone = alone; !alone {
		v.told, v.behind = v.toldWithout(), nil
	}
	if v.turn.open {
		return
	}
	v.closeMessage()
	clear(v.asks)
	if !alone {
		v.runs.leave()
	}
	v.tell(history, out)
}

// toldWithout returns the state that was told last, "" when it was told with what goes on
// in the background, which has ended: the state is told anew then.
func (v *View) toldWithout() string {
	if v.behind != nil {
		return ""
	}
	return v.told
}

func isCancelled(failure json.RawMessage) bool {
	code, _ := rawjson.Member(failure, "code")
	return string(code) == strconv.FormatInt(acp.CodeCancelled, 10)
}

// Running reports whether a prompt has begun and not ended.
func (v *View) Running() bool { return v.turn.open }

// Alone reports whether the agent works, or has work go on in the background, though
// nobody has prompted it.
func (v *View) Alone() bool { return v.alone || v.behind != nil }

// State adds what the session is doing now, and its subagents that work.
func (v *View) State(out *Frames) {
	for _, c := range v.kids.working() {
		v.childDoes(c, false, out)
	}
	v.state(out)
}

// state adds what the session is doing now.
func (v *View) state(out *Frames) {
	v.update(out, v.background(rawjson.Object{}.String("sessionUpdate", "state_update").String("state", v.does())).End())
}

// tell adds what the session is doing, if that is not what was told last.
func (v *View) tell(history bool, out *Frames) {
	state := v.does()
	if v.told == state {
		return
	}
	if v.told = state; !history {
		v.state(out)
	}
}

func (v *View) does() string {
	switch {
	case len(v.asks) > 0:
		return "requires_action"
	case v.turn.open || v.alone:
		return "running"
	}
	return "idle"
}

// background adds what goes on in the background to a state.
func (v *View) background(state rawjson.Object) rawjson.Object {
	background := v.behind
	if background == nil {
		background = v.leftRunning()
	}
	if background == nil {
		return state
	}
	return state.Raw("background", background)
}

// asked notes a request of the agent: the turn waits while a person has to answer one.
func (v *View) asked(m *acp.Message, history bool, out *Frames) {
	v.childAsks(m, history, out)
	id, ok := m.ID().Int()
	if !ok || !forPerson(m.Method()) || !v.turn.open && !v.alone { // what is asked in the background stops nothing
		return
	}
	v.asks[id] = struct{}{}
	v.tell(history, out)
}

func (v *View) answered(m *acp.Message, history bool, out *Frames) {
	raw, _ := rawjson.Member(m.Params(), "requestId")
	id, _ := acp.ID(raw).Int()
	v.childAnswered(id, history, out)
	if _, open := v.asks[id]; !open {
		return
	}
	delete(v.asks, id)
	v.tell(history, out)
}

func forPerson(method string) bool {
	switch method {
	case acp.MethodSessionRequestPermission, acp.MethodElicitationCreate, acp.MethodRequestQuestion:
		return true
	}
	return false
}

func (v *View) sessionUpdate(e Entry, m *acp.Message, history bool, out *Frames) {
	if row := updates[string(m.UpdateKind())]; row.raise != nil {
		row.raise(v, e, m, history, out)
		return
	}
	out.add(m.Frame())
}

func (v *View) closeMessage() { v.role = "" }

// chunk gives a piece of a message its message's id. Pieces without one that follow each
// other belong together, until something else takes their place in the conversation.
func (v *View) chunk(e Entry, m *acp.Message, history bool, out *Frames) {
	update := m.Update()
	kind := m.UpdateKind()
	whole := kind[:len(kind)-len("_chunk")]
	var id json.RawMessage
	has := bytes.Contains(update, []byte(`"messageId"`)) // most have none, and looking for it is dear
	if has {
		id, has = rawjson.Member(update, "messageId")
	}
	given := has && id[0] == '"'
	first := false
	switch {
	case given:
		v.closeMessage()
		h := maphash.Bytes(v.hash, append(bytes.Clone(whole), id...))
		_, old := v.seen[h]
		v.seen[h] = struct{}{}
		first = !old
	case v.role == string(whole):
		id = v.written
	default:
		id = rawjson.AppendQuoted(nil, v.messageID(e.Seq))
		v.role, v.written, first = string(whole), id, true
	}
	if first && history {
		v.update(out, rawjson.Object{}.String("sessionUpdate", string(whole)).Raw("messageId", id).Raw("content", []byte("[]")).End())
	}
	if given {
		out.add(m.Frame())
		return
	}
	before, after := m.SplitUpdate()
	if has {
		update = rawjson.DeleteMember(update, "messageId")
	}
	end := bytes.LastIndexByte(update, '}')
	out.add(before, update[:end], chunkID, id, update[end:], after)
}

var chunkID = []byte(`,"messageId":`)

// patchFields are the fields of a tool call that version 2 clears when they are null, and
// version 1 leaves alone.
var patchFields = []string{"title", "name", "kind", "status", "content", "locations", "rawInput", "rawOutput", "_meta"}

func (v *View) toolCall(e Entry, m *acp.Message, history bool, out *Frames) {
	v.call(e, m, history, out, func(m *acp.Message, home *child) {
		if home == nil {
			v.closeMessage()
		}
		update := rawjson.SetMember(m.Update(), []byte(`"tool_call_update"`), "sessionUpdate")
		v.showCall(m, update, home, true, out)
	})
}

func (v *View) toolCallUpdate(e Entry, m *acp.Message, history bool, out *Frames) {
	v.call(e, m, history, out, func(m *acp.Message, home *child) { v.showCall(m, m.Update(), home, false, out) })
	v.callsEnd(history, out)
}

// showCall tells of a call in the session of the subagent whose it is, nil for the log's own.
func (v *View) showCall(m *acp.Message, update json.RawMessage, home *child, begins bool, out *Frames) {
	update, tell := v.terminal(update, home, begins, out)
	v.noteCall(update)
	if home == nil {
		v.runs.note(update, begins)
	}
	switch {
	case !tell:
	case home != nil:
		v.updateOf(home, v.raiseCall(update), out)
	default:
		before, after := m.SplitUpdate()
		out.add(before, v.raiseCall(update), after)
	}
}

// raiseCall returns what is told of a tool call as version 2 has it.
func (v *View) raiseCall(call json.RawMessage) json.RawMessage {
	if bytes.Contains(call, []byte(`"cancel":true`)) && rawjson.MemberBool(call, "_meta", acp.MetaKey, "cancel") {
		call = rawjson.SetMember(call, []byte(`{"cancel":{}}`), "capabilities")
	}
	if bytes.Contains(call, []byte("null")) {
		call = withoutNulls(call, patchFields...)
	}
	if bytes.Contains(call, []byte(`"diff"`)) {
		if content, ok := rawjson.Member(call, "content"); ok && content[0] == '[' {
			call = rawjson.SetMember(call, v.raiseContent(content), "content")
		}
	}
	return call
}

// noteCall keeps the titles of calls, for requests about them.
func (v *View) noteCall(call json.RawMessage) {
	id := rawjson.MemberString(call, "toolCallId")
	switch rawjson.MemberString(call, "status") {
	case "completed", "failed":
		delete(v.titles, id)
		return
	}
	if title := rawjson.MemberString(call, "title"); title != "" && len(v.titles) < maxTitles {
		v.titles[id] = title
	}
}

// maxTitles bounds the open calls whose titles are kept; requests about others show what
// the request itself says.
const maxTitles = 1024

func (v *View) plan(_ Entry, m *acp.Message, _ bool, out *Frames) {
	entries, ok := rawjson.Member(m.Update(), "entries")
	if !ok || entries[0] != '[' {
		entries = []byte("[]")
	}
	plan := rawjson.Object{}.String("type", "items").String("planId", planID).Raw("entries", entries)
	update := rawjson.Object{}.String("sessionUpdate", "plan_update").Raw("plan", plan.End())
	before, after := m.SplitUpdate()
	out.add(before, withMeta(update, m.Update()).End(), after)
}

// planID is the id of the one plan that a session of version 1 has.
const planID = "sa.plan"

func (v *View) currentMode(_ Entry, m *acp.Message, _ bool, out *Frames) {
	mode, ok := rawjson.Member(m.Update(), "currentModeId")
	if !ok || len(v.modes) == 0 {
		return // a mode of a session that has none
	}
	v.modes = rawjson.SetMember(v.modes, mode, "currentModeId")
	v.showOptions(m, out)
}

func (v *View) configOptions(_ Entry, m *acp.Message, _ bool, out *Frames) {
	if options, ok := rawjson.Member(m.Update(), "configOptions"); ok && options[0] == '[' {
		v.options = bytes.Clone(options)
	}
	v.showOptions(m, out)
}

func (v *View) showOptions(m *acp.Message, out *Frames) {
	update := rawjson.Object{}.String("sessionUpdate", "config_option_update").Raw("configOptions", Options(v.options, v.modes))
	before, after := m.SplitUpdate()
	out.add(before, withMeta(update, m.Update()).End(), after)
}

func (v *View) commands(_ Entry, m *acp.Message, _ bool, out *Frames) {
	commands, _ := rawjson.Member(m.Update(), "availableCommands")
	update := rawjson.SetMember(m.Update(), raiseCommands(commands), "availableCommands")
	before, after := m.SplitUpdate()
	out.add(before, update, after)
}

// subagent tells of a child. How it was doing is not how it does: in a replay it is only
// introduced.
func (v *View) subagent(_ Entry, m *acp.Message, history bool, out *Frames) {
	if !history {
		out.add(m.Frame())
		return
	}
	before, after := m.SplitUpdate()
	out.add(before, rawjson.DeleteMember(m.Update(), "state"), after)
}

// compaction passes on what is said of a compaction.
func (v *View) compaction(_ Entry, m *acp.Message, history bool, out *Frames) {
	v.begin(m, string(m.UpdateKind()), history, out)
	out.add(m.Frame())
}

// liveOnly passes on what is no part of the conversation.
func (v *View) liveOnly(_ Entry, m *acp.Message, history bool, out *Frames) {
	if !history {
		out.add(m.Frame())
	}
}
