package main

import (
	"encoding/base64"
	"encoding/json"
	"hash/maphash"
	"slices"
	"strings"
	"unicode/utf8"

	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
)

// secondView is what a view knows of a session that it is told of in version 2 of the
// protocol. There messages and the output of commands come whole or in pieces: of what comes
// whole only that is shown that was not shown before.
type secondView struct {
	hash     maphash.Seed
	said     map[string]*told  // by kind, session and id: a message, or a terminal's output
	commands map[string]string // by terminal
	children map[string]child  // by session
	mode     string
	behind   []string // what goes on in the background, as it was shown last
}

// told is how much of something was shown, and its hash: what comes whole goes on with it or
// not.
type told struct {
	length int
	hash   maphash.Hash
	tail   string // the beginning of a character whose rest is to come
}

// child is a subagent.
type child struct{ title, state string }

// maxTold bounds what is known of messages and commands. When there are more, all are
// forgotten: what comes whole of one of them is then shown whole.
const maxTold = 4096

func newSecondView() *secondView {
	return &secondView{hash: maphash.MakeSeed(), said: map[string]*told{}, commands: map[string]string{}, children: map[string]child{}}
}

// of returns what was shown of something.
func (w *secondView) of(key string) *told {
	t := w.said[key]
	if t == nil {
		if len(w.said) >= maxTold {
			clear(w.said)
		}
		t = &told{}
		t.hash.SetSeed(w.hash)
		w.said[key] = t
	}
	return t
}

// add notes that s is shown.
func (t *told) add(s string) {
	_, _ = t.hash.WriteString(s)
	t.length += len(s)
}

// rest returns what is new of something that comes whole.
func (w *secondView) rest(key, whole string) string {
	t := w.of(key)
	if t.length <= len(whole) && maphash.String(w.hash, whole[:t.length]) == t.hash.Sum64() {
		return whole[t.length:]
	}
	delete(w.said, key) // it is replaced
	return whole
}

// characters returns s without a character that it has the beginning of alone, which is kept
// for what comes next.
func (t *told) characters(s string) string {
	s = t.tail + s
	end := len(s)
	for i := 1; i < utf8.UTFMax && i <= len(s); i++ {
		if at := len(s) - i; utf8.RuneStart(s[at]) {
			if !utf8.FullRuneInString(s[at:]) {
				end = at
			}
			break
		}
	}
	t.tail = s[end:]
	return s[:end]
}

// opened takes the answer to a session that was made or opened.
func (v *view) opened(result json.RawMessage) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.two.mode = modeOf(result)
}

// modeOf returns the mode that the options of a session of version 2 say.
func modeOf(in json.RawMessage) string {
	options, _ := rawjson.Member(in, "configOptions")
	for _, o := range rawjson.Elements(options) {
		if rawjson.MemberString(o, "category") == "mode" {
			return rawjson.MemberString(o, "currentValue")
		}
	}
	return ""
}

// updateTwo shows one session update of version 2, of the view's session or of a subagent,
// whose id is given. Unknown ones are left out.
func (v *view) updateTwo(u json.RawMessage, sub string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	w := v.two
	switch kind := rawjson.MemberString(u, "sessionUpdate"); kind {
	case "agent_message_chunk", "agent_thought_chunk", "session_message_chunk":
		v.saidLocked(u, sub, strings.TrimSuffix(kind, "_chunk"), contentOf(u))
	case "agent_message", "agent_thought", "session_message":
		if content, ok := rawjson.Member(u, "content"); ok {
			v.wholeLocked(u, sub, kind, content)
		}
	case "tool_call_update":
		v.toolLocked(u, sub)
	case "plan_update":
		v.planUpdateLocked(u, sub)
	case "config_option_update":
		if mode := modeOf(u); sub == "" && mode != w.mode {
			w.mode = mode
			v.lineLocked("mode " + mode)
		}
	case "session_info_update":
		if s := gatewaySays(u); s != "" {
			v.lineLocked(s)
		}
	case "terminal_update", "terminal_output_chunk":
		v.terminalLocked(u, sub)
	case "notice":
		v.lineLocked(noticeLine(u))
	case "compaction_update":
		v.lineLocked(compactionLine(u))
	case "subagent_update":
		v.subagentLocked(u)
	case "state_update":
		if sub == "" {
			v.backgroundLocked(u)
		}
	}
}

// saidLocked shows a block of a message, which is the agent's own when no subagent is given.
func (v *view) saidLocked(u json.RawMessage, sub, kind string, block json.RawMessage) {
	text, key := rawjson.MemberString(block, "text"), messageKey(u, sub, kind)
	v.two.of(key).add(text)
	switch of := rawjson.MemberString(block, "type"); {
	case sub != "" && of != "text" && of != "":
		v.lineLocked(notText(of, block))
	case sub != "":
		v.othersLocked(v.two.nameOf(sub), key, text)
	case kind == "agent_message":
		v.blockLocked(block)
	case kind == "agent_thought":
		v.thoughtLocked(text)
	}
}

// wholeLocked shows what is new of a message that comes whole.
func (v *view) wholeLocked(u json.RawMessage, sub, kind string, content json.RawMessage) {
	var text strings.Builder
	var other []json.RawMessage
	for _, block := range rawjson.Elements(content) {
		if of := rawjson.MemberString(block, "type"); of != "text" && of != "" {
			other = append(other, block)
			continue
		}
		text.WriteString(rawjson.MemberString(block, "text"))
	}
	if rest := v.two.rest(messageKey(u, sub, kind), text.String()); rest != "" {
		v.saidLocked(u, sub, kind, rawjson.Object{}.String("type", "text").String("text", rest).End())
	}
	for _, block := range other {
		v.saidLocked(u, sub, kind, block)
	}
}

func messageKey(u json.RawMessage, sub, kind string) string {
	return kind + " " + sub + " " + rawjson.MemberString(u, "messageId")
}

// nameOf is what a subagent is called.
func (w *secondView) nameOf(session string) string {
	if title := w.children[session].title; title != "" {
		return title
	}
	return "subagent " + session
}

func (v *view) planUpdateLocked(u json.RawMessage, sub string) {
	plan, _ := rawjson.Member(u, "plan")
	if sub != "" {
		return
	}
	switch rawjson.MemberString(plan, "type") {
	case "items":
		v.planLocked(plan)
	case "file":
		v.lineLocked("plan " + rawjson.MemberString(plan, "uri"))
	case "markdown":
		v.lineLocked("plan\n" + rawjson.MemberString(plan, "content"))
	}
}

// terminalLocked shows what is new of a command's output, and how the command ended when it
// failed.
func (v *view) terminalLocked(u json.RawMessage, sub string) {
	w, id := v.two, sub+" "+rawjson.MemberString(u, "terminalId")
	if command := rawjson.MemberString(u, "command"); command != "" {
		if len(w.commands) >= maxTold {
			clear(w.commands)
		}
		w.commands[id] = command
	}
	name := "$ " + w.commands[id]
	key := "terminal " + id
	show := func(s string) {
		t := w.of(key)
		t.add(s)
		v.othersLocked(name, key, t.characters(s))
	}
	if b, err := base64.StdEncoding.DecodeString(rawjson.MemberString(u, "data")); err == nil {
		show(string(b))
	}
	if whole, ok := rawjson.Member(u, "output", "data"); ok {
		if b, err := base64.StdEncoding.DecodeString(rawjson.Unquote(whole)); err == nil {
			show(w.rest(key, string(b)))
		}
	}
	if code, ok := rawjson.Member(u, "exitStatus", "exitCode"); ok && string(code) != "null" && string(code) != "0" {
		v.lineLocked(name + ": exit code " + string(code))
	} else if signal := rawjson.MemberString(u, "exitStatus", "signal"); signal != "" {
		v.lineLocked(name + ": ended by " + signal)
	}
}

// noticeLine is a notice as one line.
func noticeLine(u json.RawMessage) string {
	severity, description := rawjson.MemberString(u, "severity"), rawjson.MemberString(u, "description")
	if severity == "" || severity == "info" {
		severity = "notice"
	}
	if description != "" {
		description = " (" + description + ")"
	}
	return severity + ": " + rawjson.MemberString(u, "title") + description
}

// compactionLine is what has become of a compaction.
func compactionLine(u json.RawMessage) string {
	switch rawjson.MemberString(u, "status") {
	case "in_progress":
		return "compacting the conversation"
	case "completed":
		return "the conversation was compacted"
	}
	return strings.TrimSuffix("the conversation was not compacted: "+rawjson.MemberString(u, "error"), ": ")
}

// subagentLocked shows that a subagent begins to work, and that it ends.
func (v *view) subagentLocked(u json.RawMessage) {
	w, id := v.two, rawjson.MemberString(u, "sessionId")
	c, known := w.children[id]
	if !known && len(w.children) >= maxTold {
		clear(w.children)
	}
	if title := cmdline.OneLine(rawjson.MemberString(u, "title")); title != "" {
		c.title = title
	}
	before := c.state
	if state := rawjson.MemberString(u, "state", "state"); state != "" {
		c.state = state
	}
	w.children[id] = c
	working := func(state string) bool { return state == "running" || state == "requires_action" }
	switch {
	case working(c.state) && !working(before):
		v.lineLocked("• subagent " + w.nameOf(id) + " (running)")
	case !working(c.state) && working(before):
		v.lineLocked("• subagent " + w.nameOf(id) + " (" + strings.ReplaceAll(c.state, "_", " ") + ")")
	}
}

// backgroundLocked shows what goes on in the background, when that is not what was shown last.
func (v *view) backgroundLocked(u json.RawMessage) {
	list, _ := rawjson.Member(u, "background")
	var behind []string
	for _, b := range rawjson.Elements(list) {
		switch rawjson.MemberString(b, "type") {
		case "terminal":
			behind = append(behind, "$ "+v.two.commands[" "+rawjson.MemberString(b, "terminalId")])
		case "subagent":
			behind = append(behind, v.two.nameOf(rawjson.MemberString(b, "sessionId")))
		case "tool_call":
			behind = append(behind, v.titles[" "+rawjson.MemberString(b, "toolCallId")])
		default:
			behind = append(behind, rawjson.MemberString(b, "type"))
		}
	}
	if slices.Equal(behind, v.two.behind) {
		return
	}
	v.two.behind = behind
	if len(behind) == 0 {
		v.lineLocked("nothing goes on in the background")
		return
	}
	v.lineLocked("in the background: " + cmdline.OneLine(strings.Join(behind, ", ")))
}
