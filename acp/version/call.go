package version

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
)

// call is a tool call of an agent of version 2, as far as version 1 was shown it.
type call struct {
	shown    bool              // version 1 knows it
	over     bool              // it has ended
	content  []json.RawMessage // as the agent said it
	size     int               // of the content, and of what its terminals have shown
	told     int               // of it, when version 1 was shown it
	due      bool              // version 1 has content that was replaced
	left     bool              // some of it is left out
	released bool              // it has ended, and its content is known no more
	terminal bool              // it shows one
}

// What is kept of the content of a call, and of all calls of a session, is bounded. Version
// 1 is shown that the rest is left out. Calls that have ended make room first, the oldest
// of them: what is added to their content later, version 1 is not shown.
const (
	maxContent = 1 << 20
	maxHeld    = 8 << 20
)

// callID returns the id of a call in version 1: those of children are told from others'.
func (s *spoken) callID(id string) string {
	if s.child == "" || strings.HasPrefix(id, subagentID) {
		return id
	}
	return s.child + "." + id
}

// call takes what the agent says of a call. What version 1 says in the same words is
// passed on.
func (a *Agent) call(s *spoken, m *acp.Message, out []acp.Message) []acp.Message {
	update := m.Update()
	id := rawjson.MemberString(update, "toolCallId")
	c := s.calls.get(id)
	if c.shown && !c.due && c.size == c.told && plainCall(update) {
		c.note(update)
		return append(out, *m)
	}
	return append(s.lowerCall(update, s.token, out), m.For(Two, nil))
}

// plainCall reports whether an update of a call that version 1 knows is the same there.
func plainCall(update json.RawMessage) bool {
	same := true
	members(update, func(name, value json.RawMessage) {
		switch string(name) {
		case `"status"`:
			same = same && slices.Contains(statuses, rawjson.Unquote(value))
		case `"kind"`:
			same = same && slices.Contains(kinds, rawjson.Unquote(value))
		case `"content"`, `"capabilities"`:
			same = false
		default:
			same = same && string(value) != "null"
		}
	})
	return same
}

// What version 1 has of statuses and kinds.
var (
	statuses = []string{"pending", "in_progress", "completed", "failed"}
	kinds    = []string{"read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode", "other"}
)

// note takes what an update says of the call's end.
func (c *call) note(update json.RawMessage) {
	switch rawjson.MemberString(update, "status") {
	case "completed", "failed", "cancelled":
		c.over = true
	case "":
	default:
		c.over = false // it goes on after all
	}
}

// lowerCall tells version 1, in the session that root names, of a call.
func (s *spoken) lowerCall(update json.RawMessage, root string, out []acp.Message) []acp.Message {
	id := rawjson.MemberString(update, "toolCallId")
	c := s.calls.get(id)
	if content, given := rawjson.Member(update, "content"); given {
		s.drop(c)
		c.size, c.told, c.left, c.terminal, c.released, c.due = 0, 0, false, false, false, true
		for _, one := range rawjson.Elements(content) {
			s.addContent(c, one)
		}
	}
	return append(out, one(root, s.lowered(update, id, c)))
}

// lowered returns what an update says of a call as version 1 has it, with content that it
// was not shown.
func (s *spoken) lowered(update json.RawMessage, id string, c *call) json.RawMessage {
	kind := "tool_call_update"
	if !c.shown {
		kind = "tool_call"
	}
	o := rawjson.Object{}.String("sessionUpdate", kind).String("toolCallId", s.callID(id))
	title, named := rawjson.Member(update, "title")
	switch {
	case named && title[0] == '"':
		o = o.Raw("title", title)
	case !c.shown && rawjson.MemberString(update, "name") != "":
		o = o.String("title", rawjson.MemberString(update, "name"))
	case !c.shown:
		o = o.String("title", id)
	}
	said := rawjson.Object{}
	if s.callID(id) != id && !c.shown {
		said = said.String("parentToolCallId", s.child)
	}
	if v, ok := rawjson.Member(update, "kind"); ok && v[0] == '"' {
		if !slices.Contains(kinds, rawjson.Unquote(v)) {
			said, v = said.Raw("kind", v), []byte(`"other"`)
		}
		o = o.Raw("kind", v)
	}
	if v, ok := rawjson.Member(update, "status"); ok && v[0] == '"' {
		switch word := rawjson.Unquote(v); {
		case slices.Contains(statuses, word):
		case word == "cancelled":
			said, v = said.Raw("status", v), []byte(`"failed"`)
		default:
			said, v = said.Raw("status", v), []byte(`"in_progress"`)
		}
		o = o.Raw("status", v)
	}
	if c.due || c.size != c.told {
		o = o.Raw("content", array(s.lowerContent(c)))
		c.told, c.due = c.size, false
	}
	if v, ok := rawjson.Member(update, "locations"); ok {
		if v[0] != '[' {
			v = []byte("[]")
		}
		o = o.Raw("locations", v)
	}
	for _, name := range []string{"name", "rawInput", "rawOutput"} {
		if v, ok := rawjson.Member(update, name); ok && string(v) != "null" {
			o = o.Raw(name, v)
		}
	}
	c.shown = true
	c.note(update)
	call := json.RawMessage(withMeta(o, update).End())
	if more := said.End(); string(more) != "{}" {
		members(more, func(name, value json.RawMessage) {
			call = rawjson.SetMember(call, value, "_meta", acp.MetaKey, rawjson.Unquote(name))
		})
	}
	return call
}

// addContent adds a piece to what is known of the call's content, within the bound.
func (s *spoken) addContent(c *call, piece json.RawMessage) {
	if c.released {
		return
	}
	if s.held+len(piece) > maxHeld {
		s.makeRoom(c, len(piece))
	}
	if len(c.content) > 0 && (c.size+len(piece) > maxContent || s.held+len(piece) > maxHeld) {
		c.left = true
		return
	}
	s.held += len(piece)
	c.content = append(c.content, bytes.Clone(piece))
	c.size += len(piece)
	if id := rawjson.MemberString(piece, "terminalId"); rawjson.MemberString(piece, "type") == "terminal" {
		c.terminal = true
		c.size += s.terminals.get(id).written
	}
}

// drop forgets the content of a call.
func (s *spoken) drop(c *call) {
	for _, piece := range c.content {
		s.held -= len(piece)
	}
	c.content = nil
}

// makeRoom forgets the content of calls that have ended, but for one, until so much has room.
func (s *spoken) makeRoom(but *call, size int) {
	for _, id := range s.calls.order {
		if s.held+size <= maxHeld {
			return
		}
		if c := s.calls.byID[id]; c != but && c.over && len(c.content) > 0 {
			s.drop(c)
			c.released = true
		}
	}
}

// callChunk takes a piece of a call's content.
func (a *Agent) callChunk(s *spoken, m *acp.Message, out []acp.Message) []acp.Message {
	return append(s.lowerCallChunk(m.Update(), s.token, out), m.For(Two, nil))
}

func (s *spoken) lowerCallChunk(update json.RawMessage, root string, out []acp.Message) []acp.Message {
	id := rawjson.MemberString(update, "toolCallId")
	piece, ok := rawjson.Member(update, "content")
	if !ok || piece[0] != '{' {
		return out
	}
	c := s.calls.get(id)
	s.addContent(c, piece)
	return s.grown(id, c, root, out)
}

// grown shows version 1 a call whose content has doubled since it was shown last: all
// that is shown so comes to less than twice what is said.
func (s *spoken) grown(id string, c *call, root string, out []acp.Message) []acp.Message {
	if c.size < 2*c.told && c.shown && !c.due {
		return out
	}
	return s.showContent(id, c, root, out)
}

func (s *spoken) showContent(id string, c *call, root string, out []acp.Message) []acp.Message {
	if c.size == c.told && c.shown && !c.due {
		return out
	}
	return append(out, one(root, s.lowered(rawjson.Object{}.String("toolCallId", id).End(), id, c)))
}

// flush shows version 1 all content that it was not shown.
func (s *spoken) flush(out []acp.Message) []acp.Message { return s.flushTo(s.token, out) }

func (s *spoken) flushTo(root string, out []acp.Message) []acp.Message {
	for _, id := range s.calls.order {
		if c := s.calls.byID[id]; c.shown {
			out = s.showContent(id, c, root, out)
		}
	}
	return out
}

// leave ends, for version 1, the calls that a turn leaves open: it does not know of any
// that go on in the background, which the state names.
func (s *spoken) leave(state json.RawMessage, root string, out []acp.Message) []acp.Message {
	background, _ := rawjson.Member(state, "background")
	goesOn := map[string]bool{}
	for _, b := range rawjson.Elements(background) {
		switch rawjson.MemberString(b, "type") {
		case "tool_call":
			goesOn[rawjson.MemberString(b, "toolCallId")] = true
		case "subagent":
			goesOn[subagentID+rawjson.MemberString(b, "sessionId")] = true
		case "terminal":
			terminal := rawjson.MemberString(b, "terminalId")
			for id, c := range s.calls.byID {
				if c.shows(terminal) {
					goesOn[id] = true
				}
			}
		}
	}
	for _, id := range s.calls.order {
		if c := s.calls.byID[id]; c.shown && !c.over && !goesOn[id] {
			out = append(out, one(root, s.lowered(rawjson.Object{}.String("toolCallId", id).String("status", "failed").End(), id, c)))
		}
	}
	return out
}

// introduce tells version 1 of a call that something is asked about, if it does not know
// it. The call is as the agent said it.
func (s *spoken) introduce(call json.RawMessage, root string, out []acp.Message) []acp.Message {
	id := rawjson.MemberString(call, "toolCallId")
	if c := s.calls.byID[id]; id == "" || c != nil && c.shown {
		return out
	}
	if _, given := rawjson.Member(call, "status"); !given {
		call = rawjson.SetMember(call, []byte(`"pending"`), "status")
	}
	return s.lowerCall(call, root, out)
}

// lowerPermission returns params of a request for a permission as version 1 has them, and
// the call that it is about, as the agent said it.
func (s *spoken) lowerPermission(m *acp.Message, params json.RawMessage) (_, subject json.RawMessage) {
	title := rawjson.MemberString(params, "title")
	about, _ := rawjson.Member(params, "subject")
	var call json.RawMessage
	switch rawjson.MemberString(about, "type") {
	case "tool_call":
		if given, ok := rawjson.Member(about, "toolCall"); ok && given[0] == '{' {
			call = given
		}
	case "command":
		input := rawjson.Object{}.String("command", rawjson.MemberString(about, "command")).String("cwd", rawjson.MemberString(about, "cwd"))
		id := rawjson.MemberString(about, "toolCallId")
		if id == "" {
			id = askedID + strings.Trim(string(m.ID()), `"`)
		}
		call = rawjson.Object{}.String("toolCallId", id).String("kind", "execute").Raw("rawInput", input.End()).End()
	}
	if rawjson.MemberString(call, "toolCallId") == "" {
		call = rawjson.Object{}.String("toolCallId", askedID+strings.Trim(string(m.ID()), `"`)).String("kind", "other").End()
	}
	if rawjson.MemberString(call, "title") == "" && title != "" {
		call = rawjson.SetMember(call, rawjson.AppendQuoted(nil, title), "title")
	}
	seen := *s.calls.get(rawjson.MemberString(call, "toolCallId"))
	known := seen
	known.shown, known.told, known.due = true, known.size, false
	if content, given := rawjson.Member(call, "content"); given {
		known.content, known.due = rawjson.Elements(content), true
	}
	shown := rawjson.DeleteMember(s.lowered(call, rawjson.MemberString(call, "toolCallId"), &known), "sessionUpdate")
	if more := rawjson.MemberString(params, "description"); more != "" {
		if _, given := rawjson.Member(shown, "content"); !given {
			shown = rawjson.SetMember(shown, array([]json.RawMessage{contentOf(more)}), "content")
		}
	}
	out := rawjson.DeleteMember(params, "subject")
	out = rawjson.DeleteMember(out, "title")
	out = rawjson.DeleteMember(out, "description")
	out = rawjson.SetMember(out, shown, "toolCall")
	if options, ok := rawjson.Member(out, "options"); ok && options[0] == '[' {
		out = rawjson.SetMember(out, list(options, func(o json.RawMessage) json.RawMessage {
			switch rawjson.MemberString(o, "kind") {
			case "allow_once", "allow_always", "reject_once", "reject_always":
				return o
			}
			// Whoever answers by the kind alone must not allow what nobody understands.
			return rawjson.SetMember(o, []byte(`"reject_once"`), "kind")
		}), "options")
	}
	return out, call
}

// contentOf is content of a call that is a text.
func contentOf(text string) json.RawMessage {
	return rawjson.Object{}.String("type", "content").Raw("content", textBlock(text)).End()
}

// lowerContent returns the call's content as version 1 has it.
func (s *spoken) lowerContent(c *call) []json.RawMessage {
	out := []json.RawMessage{}
	for _, piece := range c.content {
		switch rawjson.MemberString(piece, "type") {
		case "content":
			// Pieces of one text are one text.
			text, ok := plainText(piece)
			if before, also := lastText(out); ok && also {
				out[len(out)-1] = contentOf(before + text)
				continue
			}
			out = append(out, piece)
		case "diff":
			out = append(out, lowerDiff(piece)...)
		case "terminal":
			out = append(out, s.terminals.get(rawjson.MemberString(piece, "terminalId")).lowered(piece))
		default:
			out = append(out, rawjson.SetMember(contentOf("["+rawjson.MemberString(piece, "type")+"]"), piece, original...))
		}
	}
	if c.left {
		out = append(out, contentOf("\n[the rest is left out]\n"))
	}
	return out
}

// plainText returns the text of content that is a text and nothing else.
func plainText(piece json.RawMessage) (text string, ok bool) {
	block, _ := rawjson.Member(piece, "content")
	if rawjson.MemberString(block, "type") != "text" {
		return "", false
	}
	if _, more := rawjson.Member(block, "annotations"); more {
		return "", false
	}
	if _, more := rawjson.Member(block, "_meta"); more {
		return "", false
	}
	_, more := rawjson.Member(piece, "_meta")
	return rawjson.MemberString(block, "text"), !more
}

func lastText(out []json.RawMessage) (text string, ok bool) {
	if len(out) == 0 || rawjson.MemberString(out[len(out)-1], "type") != "content" {
		return "", false
	}
	return plainText(out[len(out)-1])
}

// terminal is one that an agent of version 2 shows.
type terminal struct {
	output  []byte // the end of it, at most maxOutput bytes
	written int    // bytes that were ever shown, and one for each other change
	command string
	exit    json.RawMessage
}

// maxOutput bounds what is kept of the output of a terminal: its end.
const maxOutput = 64 << 10

// shows reports whether the call's content has the terminal.
func (c *call) shows(terminal string) bool {
	if !c.terminal {
		return false
	}
	return slices.ContainsFunc(c.content, func(piece json.RawMessage) bool {
		return rawjson.MemberString(piece, "type") == "terminal" && rawjson.MemberString(piece, "terminalId") == terminal
	})
}

func (a *Agent) terminal(s *spoken, m *acp.Message, out []acp.Message) []acp.Message {
	return append(s.lowerTerminal(m.Update(), s.token, out), m.For(Two, nil))
}

// lowerTerminal takes what the agent says of a terminal, and shows version 1 the calls
// that have it.
func (s *spoken) lowerTerminal(update json.RawMessage, root string, out []acp.Message) []acp.Message {
	id := rawjson.MemberString(update, "terminalId")
	t := s.terminals.get(id)
	before := t.written
	ends := false
	if data := rawjson.MemberString(update, "data"); data != "" {
		t.write(data)
	}
	if output, ok := rawjson.Member(update, "output"); ok {
		t.output = nil
		t.written++
		t.write(rawjson.MemberString(output, "data"))
	}
	if command := rawjson.MemberString(update, "command"); command != "" {
		t.command = command
	}
	if exit, ok := rawjson.Member(update, "exitStatus"); ok {
		t.exit = bytes.Clone(exit)
		t.written++
		ends = exit[0] == '{'
	}
	for _, call := range slices.Clone(s.calls.order) {
		c := s.calls.byID[call]
		if !c.shows(id) {
			continue
		}
		if c.size += t.written - before; ends {
			out = s.showContent(call, c, root, out)
		} else {
			out = s.grown(call, c, root, out)
		}
	}
	return out
}

// write adds output, which is in Base64.
func (t *terminal) write(data string) {
	b, err := base64.StdEncoding.DecodeString(data)
	if err != nil {
		b = []byte(data)
	}
	t.written += len(b)
	t.output = append(t.output, b...)
	if over := len(t.output) - maxOutput; over > 0 {
		t.output = bytes.Clone(t.output[over:])
	}
}

// lowered is the terminal as content of version 1: its output, and how it ended if that
// was not well.
func (t *terminal) lowered(piece json.RawMessage) json.RawMessage {
	text := strings.ToValidUTF8(string(t.output), "\uFFFD")
	if code, ok := rawjson.Member(t.exit, "exitCode"); ok && string(code) != "0" && string(code) != "null" {
		text = lined(text) + "exit code " + string(code)
	} else if signal := rawjson.MemberString(t.exit, "signal"); signal != "" {
		text = lined(text) + "ended by " + signal
	}
	about := rawjson.Object{}.Raw("terminal", piece)
	if t.command != "" {
		about = about.String("command", t.command)
	}
	return rawjson.SetMember(contentOf(text), about.End(), "_meta", acp.MetaKey)
}

// lined returns the text with a newline behind it, if it has any.
func lined(text string) string {
	if text == "" || strings.HasSuffix(text, "\n") {
		return text
	}
	return text + "\n"
}
