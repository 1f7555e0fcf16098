package transcript

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"sandboxagent.dev/sandbox-agent/internal/pattern"

	"github.com/aymanbagabas/go-udiff"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/runtime"
)

const (
	// maxOutput is what is kept of one tool's output: three quarters of its head and
	// a quarter of its end.
	maxOutput = 64 << 10
	// maxDiff is how long the two sides of an edit may be to be compared.
	maxDiff = 512 << 10
	// maxImage is how large an image may be, as base64.
	maxImage = 4 << 20
	// maxHeld is how much of a turn is held back until its end. Beyond it what there
	// is of the turn is written, and what calls say later stands behind it.
	maxHeld = 16 << 20
)

// What the gateway tells of a session.
const (
	methodTurnEnded = "_sandboxagent/session/turn_ended"
	methodEnded     = "_sandboxagent/session/ended"
)

// fold makes entries of events.
type fold struct {
	held  []*Entry
	bytes int // of messages that made what is held

	tools map[string]*Entry // calls that are held
	known map[string]string // titles of the calls that were written and had not ended
	asked map[acp.ID]asked  // open requests of the agent, by id
	plan  *Entry            // of this turn

	thoughts bool // whether they are kept
	began    bool // an event was taken
	left     LeftOut
	cost     string // of the session so far, "" when nobody told
}

// asked is a request of the agent that is not answered yet.
type asked struct {
	entry   *Entry
	options json.RawMessage // of a permission
}

func newFold(thoughts bool) *fold {
	f := &fold{known: map[string]string{}, asked: map[acp.ID]asked{}, thoughts: thoughts}
	f.release()
	return f
}

// endTurn ends what belongs to a turn. It returns what is held, unless it has a request
// that may still be answered: agents ask about what they do in the background, too.
func (f *fold) endTurn() []*Entry {
	if len(f.asked) == 0 {
		return f.release()
	}
	f.forgetCalls()
	return nil
}

// release returns what is held and holds nothing more.
func (f *fold) release() []*Entry {
	out := f.held
	whole(out)
	f.forgetCalls()
	clear(f.asked) // what was written does not change any more
	f.held, f.bytes = nil, 0
	return out
}

// forgetCalls makes what comes of the calls and the plan that are held something of its own.
func (f *fold) forgetCalls() {
	for id, e := range f.tools {
		if delete(f.known, id); e.Tool.Status != "completed" && e.Tool.Status != "failed" {
			f.known[id] = e.Tool.Title
		}
	}
	f.tools, f.plan = map[string]*Entry{}, nil
}

// whole gives messages that came in pieces their text.
func whole(list []*Entry) {
	for _, e := range list {
		if len(e.pieces) > 0 {
			e.Text, e.pieces = string(e.pieces), nil
		}
		if e.Tool != nil {
			whole(e.Tool.Parts)
		}
	}
}

// add takes an event. It returns entries that nothing changes any more.
func (f *fold) add(ev runtime.Event) []*Entry {
	m, err := acp.Parse(ev.Message)
	if err != nil {
		return nil // a log may hold what this program does not know
	}
	f.bytes += len(ev.Message)
	first, lost := ev.Lost()
	if !lost {
		first = ev.Seq
	}
	f.left.Events = f.left.Events || !f.began && first > 1
	f.began = true
	switch {
	case lost:
		return f.lose(Range{first, ev.Seq}, ev.Time)
	case m.Method() == acp.MethodSessionUpdate:
		f.update(m.Update(), ev.Time)
	case m.Method() == methodTurnEnded && !acp.TurnBegan(m.Params()): // nobody was told of its prompt
	case m.Method() == methodTurnEnded:
		f.turnEnded(m.Params(), ev.Time)
		return f.endTurn()
	case m.Method() == methodEnded:
		text := rawjson.MemberString(m.Params(), "data", "message")
		if text == "" {
			text = rawjson.MemberString(m.Params(), "data", "reason")
		}
		f.note("The agent ended: "+text, ev.Time)
	case m.Method() == acp.MethodSessionRequestPermission:
		f.permission(&m, ev.Time)
	case m.Method() == acp.MethodRequestQuestion || m.Method() == acp.MethodElicitationCreate:
		e := &Entry{Kind: Question, Time: ev.Time, Text: questions(m.Params())}
		f.held = append(f.held, e)
		f.asked[m.ID()] = asked{entry: e}
	case m.Method() == acp.MethodCancelRequest: // it is open no more
		id, _ := rawjson.Member(m.Params(), "requestId")
		delete(f.asked, acp.ID(id))
	case m.IsResponse() && ev.Direction == runtime.FromClient:
		f.answered(&m)
	}
	if f.bytes > maxHeld {
		return f.release()
	}
	return nil
}

// lose takes that events are lost. What was open before them is not known to go on behind them.
func (f *fold) lose(r Range, at time.Time) []*Entry {
	if n := len(f.left.Lost); n > 0 && f.left.Lost[n-1].Last+1 == r.First {
		f.left.Lost[n-1].Last = r.Last
	} else {
		f.left.Lost = append(f.left.Lost, r)
	}
	f.held = append(f.held, &Entry{Kind: Lost, Time: at, Lost: &r, Text: "Missing here: " + r.String() + ", which the log has no more."})
	return f.release()
}

func (f *fold) note(text string, at time.Time) {
	f.held = append(f.held, &Entry{Kind: Note, Time: at, Text: plain(text)})
}

func (f *fold) update(u json.RawMessage, at time.Time) {
	content, _ := rawjson.Member(u, "content")
	message := rawjson.MemberString(u, "messageId")
	switch rawjson.MemberString(u, "sessionUpdate") {
	case "user_message_chunk":
		f.say(f.list(u), User, "", content, at)
	case "agent_message_chunk":
		f.say(f.list(u), Agent, message, content, at)
	case "agent_thought_chunk":
		if f.thoughts {
			f.say(f.list(u), Thought, message, content, at)
		} else {
			f.left.Thoughts++
		}
	case "tool_call", "tool_call_update":
		f.tool(u, at)
	case "plan":
		if f.plan == nil {
			f.plan = &Entry{Kind: Plan, Time: at}
			f.held = append(f.held, f.plan)
		}
		f.plan.Plan = nil
		entries, _ := rawjson.Member(u, "entries")
		for _, e := range rawjson.Elements(entries) {
			f.plan.Plan = append(f.plan.Plan, Step{plain(rawjson.MemberString(e, "content")), rawjson.MemberString(e, "status")})
		}
	case "session_info_update":
		if rawjson.MemberString(u, "_meta", acp.MetaKey, "continuity") == string(runtime.ContinuityFresh) {
			f.note("From here on the agent does not remember what was said above.", at)
		}
	case "usage_update":
		if amount, ok := rawjson.Member(u, "cost", "amount"); ok {
			f.cost = plain(string(amount) + " " + rawjson.MemberString(u, "cost", "currency"))
		}
	case "notice":
		text := rawjson.MemberString(u, "title")
		if d := rawjson.MemberString(u, "description"); d != "" {
			text += ": " + d
		}
		f.note(text, at)
	case "compaction_update":
		if rawjson.MemberString(u, "status") == "completed" {
			f.note("The conversation was compacted.", at)
		}
	}
}

// list is where an update belongs: to the call of a subagent, or to the conversation.
func (f *fold) list(u json.RawMessage) *[]*Entry {
	if parent := f.tools[rawjson.MemberString(u, "_meta", acp.MetaKey, "parentToolCallId")]; parent != nil {
		return &parent.Tool.Parts
	}
	return &f.held
}

// say adds a piece of a message to the message that it belongs to.
func (f *fold) say(list *[]*Entry, kind Kind, message string, content json.RawMessage, at time.Time) {
	var last *Entry
	if n := len(*list); n > 0 {
		last = (*list)[n-1]
	}
	if last == nil || last.Kind != kind || message != "" && last.message != "" && message != last.message {
		last = &Entry{Kind: kind, Time: at, message: message}
		*list = append(*list, last)
	}
	switch rawjson.MemberString(content, "type") {
	case "text":
		last.pieces = append(last.pieces, plain(rawjson.MemberString(content, "text"))...)
	case "image":
		last.Files = f.image(last.Files, content)
	default:
		last.Files = append(last.Files, File{Name: plain(nameOf(content)), MIMEType: rawjson.MemberString(content, "mimeType")})
	}
}

// nameOf is what an attachment is called.
func nameOf(content json.RawMessage) string {
	for _, path := range [][]string{{"name"}, {"uri"}, {"resource", "uri"}, {"type"}} {
		if v := rawjson.MemberString(content, path...); v != "" {
			return v
		}
	}
	return "attachment"
}

var imageType = pattern.New(`^image/(png|jpeg|gif|webp)$`)

// image keeps an image that every browser shows and none runs.
func (f *fold) image(list []File, content json.RawMessage) []File {
	kind, data := rawjson.MemberString(content, "mimeType"), rawjson.MemberString(content, "data")
	if !imageType.MatchString(kind) || data == "" || len(data) > maxImage || strings.ContainsFunc(data, notBase64) {
		f.left.Images++
		return list
	}
	return append(list, File{MIMEType: kind, Data: data})
}

func notBase64(r rune) bool {
	return r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("+/=", r)
}

// held returns the call with an id, which is made when it is not held.
func (f *fold) call(id string, list *[]*Entry, at time.Time) *Entry {
	e := f.tools[id]
	if e == nil {
		e = &Entry{Kind: Call, Time: at, Tool: &Tool{ID: id, Title: f.known[id]}}
		*list = append(*list, e)
		f.tools[id] = e
	}
	return e
}

func (f *fold) tool(u json.RawMessage, at time.Time) {
	t := f.call(rawjson.MemberString(u, "toolCallId"), f.list(u), at).Tool
	for name, field := range map[string]*string{"title": &t.Title, "kind": &t.Kind, "status": &t.Status} {
		if v := plain(rawjson.MemberString(u, name)); v != "" {
			*field = strings.Join(strings.Fields(v), " ")
		}
	}
	if input, ok := rawjson.Member(u, "rawInput", "command"); ok {
		t.Command = plain(commandLine(input))
	}
	content, ok := rawjson.Member(u, "content")
	if !ok {
		return
	}
	var output []string
	t.Diffs, t.Images = nil, nil
	for _, c := range rawjson.Elements(content) {
		switch rawjson.MemberString(c, "type") {
		case "diff":
			t.Diffs = f.diff(t.Diffs, c)
		case "content":
			inner, _ := rawjson.Member(c, "content")
			if rawjson.MemberString(inner, "type") == "image" {
				t.Images = f.image(t.Images, inner)
			} else if text := rawjson.MemberString(inner, "text"); text != "" {
				output = append(output, text)
			}
		}
	}
	if text := strings.Join(output, "\n"); text != "" || len(t.Diffs) > 0 {
		t.Output = f.cut(plain(withoutColours(text)))
	}
}

// commandLine is a command as people write it.
func commandLine(raw json.RawMessage) string {
	var v any
	_ = json.Unmarshal(raw, &v) // of a message that is valid
	return strings.Join(words(v), " ")
}

// cut leaves out the middle of what is too long.
func (f *fold) cut(s string) string {
	if len(s) <= maxOutput {
		return s
	}
	head, tail := maxOutput*3/4, len(s)-maxOutput/4
	for head > 0 && !utf8.RuneStart(s[head]) {
		head--
	}
	for tail < len(s) && !utf8.RuneStart(s[tail]) {
		tail++
	}
	f.left.Output += tail - head
	return s[:head] + "\n[...]\n" + s[tail:]
}

func (f *fold) diff(list []Diff, c json.RawMessage) []Diff {
	path, before, after := rawjson.MemberString(c, "path"), rawjson.MemberString(c, "oldText"), rawjson.MemberString(c, "newText")
	d := Diff{Path: plain(path)}
	if len(before)+len(after) > maxDiff {
		f.left.Diffs++
	} else {
		unified := udiff.Unified("a", "b", before, after)
		// Without the names, which stand above it.
		_, unified, _ = strings.Cut(unified, "\n")
		_, unified, _ = strings.Cut(unified, "\n")
		d.Text = plain(unified)
	}
	return append(list, d)
}

// permission notes who asked; the answer comes with the request's id.
func (f *fold) permission(m *acp.Message, at time.Time) {
	call, _ := rawjson.Member(m.Params(), "toolCall")
	e := f.call(rawjson.MemberString(call, "toolCallId"), &f.held, at)
	if title := plain(rawjson.MemberString(call, "title")); e.Tool.Title == "" {
		e.Tool.Title = title
	}
	e.Tool.Answer = "not answered"
	options, _ := rawjson.Member(m.Params(), "options")
	f.asked[m.ID()] = asked{e, options}
}

// answered notes what a client said to a request of the agent.
func (f *fold) answered(m *acp.Message) {
	open, ok := f.asked[m.ID()]
	if !ok {
		return
	}
	delete(f.asked, m.ID())
	if open.entry.Kind == Question {
		open.entry.Text += "\n\n" + answerText(m.Result())
		return
	}
	t := open.entry.Tool
	chosen := rawjson.MemberString(m.Result(), "outcome", "optionId")
	if chosen == "" {
		t.Answer = "dismissed"
		return
	}
	t.Answer = plain(chosen)
	for _, o := range rawjson.Elements(open.options) {
		if name := rawjson.MemberString(o, "name"); name != "" && rawjson.MemberString(o, "optionId") == chosen {
			t.Answer = plain(name)
		}
	}
}

// questions is the text of a form or of questions.
func questions(params json.RawMessage) string {
	list, _ := rawjson.Member(params, "questions")
	var out []string
	for _, q := range rawjson.Elements(list) {
		out = append(out, rawjson.MemberString(q, "question"))
	}
	if len(out) == 0 {
		out = append(out, rawjson.MemberString(params, "message"))
	}
	return plain(strings.Join(out, "\n"))
}

// answerText is an answer in words: its values, without their names.
func answerText(result json.RawMessage) string {
	for _, path := range []string{"answers", "content"} {
		if v, ok := rawjson.Member(result, path); ok && v[0] == '{' {
			var values map[string]any
			if json.Unmarshal(v, &values) == nil {
				return "Answer: " + plain(strings.Join(words(values), ", "))
			}
		}
	}
	if v := firstOf(rawjson.MemberString(result, "outcome"), rawjson.MemberString(result, "action")); v != "" {
		return "Answer: " + plain(v)
	}
	return "Not answered."
}

// words are the values of an answer, in the order of their names.
func words(v any) []string {
	var out []string
	switch v := v.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			out = append(out, words(v[name])...)
		}
	case []any:
		for _, one := range v {
			out = append(out, words(one)...)
		}
	case nil:
	default:
		out = append(out, fmt.Sprint(v))
	}
	return out
}

func firstOf(list ...string) string {
	for _, s := range list {
		if s != "" {
			return s
		}
	}
	return ""
}

func (f *fold) turnEnded(params json.RawMessage, at time.Time) {
	t := &Turn{StopReason: rawjson.MemberString(params, "result", "stopReason"), Error: plain(rawjson.MemberString(params, "error", "message"))}
	if n := len(f.held); n > 0 && t.Error != "" && f.held[n-1].Kind == Note && strings.HasSuffix(f.held[n-1].Text, t.Error) {
		t.Error = "the agent ended" // how, stands above
	}
	if usage, ok := rawjson.Member(params, "result", "usage"); ok {
		t.Usage = append(json.RawMessage(nil), usage...)
	}
	f.held = append(f.held, &Entry{Kind: TurnEnd, Time: at, Turn: t})
}

var colours = pattern.New("\x1b(\\[[0-9;?]*[ -/]*[@-~]|\\][^\x07\x1b]*(\x07|\x1b\\\\)?|[@-Z\\\\-_])")

// withoutColours takes out what tells a terminal how to show text.
func withoutColours(s string) string { return colours.ReplaceAllString(s, "") }

// plain leaves out characters that change how what follows is shown.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && unicode.IsControl(r) || r >= 0x202A && r <= 0x202E || r >= 0x2066 && r <= 0x2069 {
			return -1
		}
		return r
	}, s)
}
