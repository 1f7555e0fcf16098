package main

import (
	"encoding/base64"
	"encoding/json"
	"strings"

	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
)

// chatSecond is what a chat knows of its session beyond its entries, in version 2 of the
// protocol: there messages and the output of commands come whole or in pieces, and subagents
// are sessions.
type chatSecond struct {
	messages  map[string]*chatEntry // by kind, session and id
	terminals map[string]*chatTerminal
	children  map[string]*chatEntry // by session
	behind    string                // what goes on in the background
}

// chatTerminal is a command, and the entry that shows it.
type chatTerminal struct {
	command string
	output  []byte // the end of it
	shown   *chatEntry
}

// maxChatOutput bounds what is kept of a command's output.
const maxChatOutput = 256 << 10

func newChatSecond() *chatSecond {
	return &chatSecond{messages: map[string]*chatEntry{}, terminals: map[string]*chatTerminal{}, children: map[string]*chatEntry{}}
}

// ours reports whether a session is the chat's, or one of its subagents.
func (m *chatModel) ours(session string) bool {
	return session == m.session.id || m.second.children[session] != nil
}

// showTwo takes a session update of version 2, of the session or of a subagent.
func (m *chatModel) showTwo(session string, u json.RawMessage) {
	sub := ""
	if session != m.session.id {
		sub = session
	}
	switch kind := rawjson.MemberString(u, "sessionUpdate"); kind {
	case "user_message", "agent_message", "agent_thought", "session_message":
		if content, ok := rawjson.Member(u, "content"); ok {
			m.saidTwo(kind, sub, u, rawjson.Elements(content), true)
		}
	case "user_message_chunk", "agent_message_chunk", "agent_thought_chunk", "session_message_chunk":
		m.saidTwo(strings.TrimSuffix(kind, "_chunk"), sub, u, []json.RawMessage{contentOf(u)}, false)
	case "tool_call_update":
		m.callTwo(sub, u)
	case "plan_update":
		if plan, ok := rawjson.Member(u, "plan"); ok && sub == "" {
			m.showPlan(plan)
		}
	case "terminal_update", "terminal_output_chunk":
		m.terminalTwo(sub, u)
	case "subagent_update":
		m.subagentTwo(u)
	case "compaction_update":
		m.note(compactionLine(u))
	case "notice":
		m.note(noticeLine(u))
	case "state_update":
		if sub == "" {
			m.stateTwo(u)
		}
	default:
		if sub == "" {
			m.show(u)
		}
	}
}

// saidTwo shows a message, or a piece of one.
func (m *chatModel) saidTwo(kind, sub string, u json.RawMessage, blocks []json.RawMessage, whole bool) {
	var text strings.Builder
	for _, b := range blocks {
		if of := rawjson.MemberString(b, "type"); of != "text" && of != "" {
			text.WriteString(notText(of, b))
			continue
		}
		text.WriteString(cmdline.Printable(rawjson.MemberString(b, "text")))
	}
	if kind == "user_message" && sub == "" && m.waits() && !m.replays() && text.String() == m.own.text {
		m.own.shown = true // or somebody else has said the same: the answer tells, or the end of this turn
	}
	key := messageKey(u, sub, kind)
	if e := m.second.children[sub]; e != nil { // a subagent's words are in its own entry
		if text.Len() > 0 && e.tool.said != key {
			if e.tool.body != "" {
				e.tool.body += "\n"
			}
			e.tool.said = key
		}
		e.tool.body += text.String()
		e.as = chatLook{}
		return
	}
	e := m.second.messages[key]
	if e == nil {
		if text.Len() == 0 {
			return // it begins
		}
		if len(m.second.messages) >= maxTold {
			clear(m.second.messages)
		}
		e = &chatEntry{kind: map[string]string{"user_message": "user", "agent_thought": "thought"}[kind]}
		if e.kind == "" {
			e.kind = "agent"
		}
		m.second.messages[key] = e
		m.entries = append(m.entries, e)
	}
	if whole {
		e.empty()
	}
	e.add(text.String())
}

func (m *chatModel) callTwo(sub string, u json.RawMessage) {
	e := m.toolEntry(sub+" "+rawjson.MemberString(u, "toolCallId"), u)
	e.tool.update(u)
	e.as = chatLook{}
	content, _ := rawjson.Member(u, "content")
	for _, c := range rawjson.Elements(content) {
		if rawjson.MemberString(c, "type") == "terminal" {
			t := m.terminal(sub, rawjson.MemberString(c, "terminalId"))
			t.shown = e
			t.show()
		}
	}
}

func (m *chatModel) terminal(sub, id string) *chatTerminal {
	key := sub + " " + id
	t := m.second.terminals[key]
	if t == nil {
		if len(m.second.terminals) >= maxTold {
			clear(m.second.terminals)
		}
		t = &chatTerminal{}
		m.second.terminals[key] = t
	}
	return t
}

func (m *chatModel) terminalTwo(sub string, u json.RawMessage) {
	t := m.terminal(sub, rawjson.MemberString(u, "terminalId"))
	if command := rawjson.MemberString(u, "command"); command != "" {
		t.command = command
	}
	if whole, ok := rawjson.Member(u, "output"); ok {
		t.output = nil
		if b, err := base64.StdEncoding.DecodeString(rawjson.MemberString(whole, "data")); err == nil {
			t.output = b
		}
	}
	if b, err := base64.StdEncoding.DecodeString(rawjson.MemberString(u, "data")); err == nil {
		t.output = append(t.output, b...)
	}
	t.output = t.output[max(len(t.output)-maxChatOutput, 0):]
	t.show()
}

// show puts the output into the entry that shows the command.
func (t *chatTerminal) show() {
	if t.shown == nil {
		return
	}
	t.shown.tool.body, t.shown.as = cmdline.Printable(string(t.output)), chatLook{}
}

// subagentTwo shows a subagent as a tool whose output is what it says.
func (m *chatModel) subagentTwo(u json.RawMessage) {
	id := rawjson.MemberString(u, "sessionId")
	e := m.second.children[id]
	if e == nil {
		if len(m.second.children) >= maxTold {
			clear(m.second.children)
		}
		e = &chatEntry{kind: "tool", tool: &chatTool{id: "subagent " + id, status: "pending"}}
		m.second.children[id] = e
		m.entries = append(m.entries, e)
	}
	if title := cmdline.OneLine(rawjson.MemberString(u, "title")); title != "" {
		e.tool.title = "subagent " + title
	}
	switch rawjson.MemberString(u, "state", "state") {
	case "running", "requires_action":
		e.tool.status = "in_progress"
	case "idle":
		e.tool.status = "completed"
	}
	e.as = chatLook{}
}

// stateTwo takes what the session is doing: its turn, and what goes on in the background.
func (m *chatModel) stateTwo(u json.RawMessage) {
	switch rawjson.MemberString(u, "state") {
	case "running", "requires_action":
		m.busy = true
	case "idle":
		if m.own != nil {
			m.own.shown = false
		}
		if m.busy && !(m.own != nil && m.own.begun) { // else it is said with the prompt, or was
			m.othersEnd(u)
		}
		m.busy = false
		m.turnOver()
	}
	list, _ := rawjson.Member(u, "background")
	var behind []string
	for _, b := range rawjson.Elements(list) {
		name := rawjson.MemberString(b, "type")
		switch name {
		case "terminal":
			name = m.terminal("", rawjson.MemberString(b, "terminalId")).command
		case "subagent":
			if e := m.second.children[rawjson.MemberString(b, "sessionId")]; e != nil {
				name = e.tool.title
			}
		case "tool_call":
			if e := m.tools[" "+rawjson.MemberString(b, "toolCallId")]; e != nil {
				name = e.tool.title
			}
		}
		behind = append(behind, name)
	}
	m.second.behind = cmdline.OneLine(strings.Join(behind, ", "))
}

// chatPatch shows what the diff of a call of version 2 changes.
func chatPatch(c json.RawMessage) string {
	text := rawjson.MemberString(c, "patch", "text")
	var out []string
	changes, _ := rawjson.Member(c, "changes")
	for _, change := range rawjson.Elements(changes) {
		out = append(out, cmdline.Printable(rawjson.MemberString(change, "path")))
	}
	var before, after []string
	hunk := func() {
		if len(before)+len(after) > 0 {
			out = append(out, chatChange(before, after)...)
		}
		before, after = nil, nil
	}
	inHunk := false
	for line := range strings.Lines(text) {
		line = cmdline.Printable(strings.TrimSuffix(line, "\n"))
		switch {
		case strings.HasPrefix(line, "@@"):
			hunk()
			inHunk = true
		case strings.HasPrefix(line, "diff "):
			hunk()
			inHunk = false
		case !inHunk || strings.HasPrefix(line, `\`):
		case strings.HasPrefix(line, "-"):
			before = append(before, line[1:])
		case strings.HasPrefix(line, "+"):
			after = append(after, line[1:])
		default:
			before, after = append(before, strings.TrimPrefix(line, " ")), append(after, strings.TrimPrefix(line, " "))
		}
	}
	hunk()
	return strings.Join(out, "\n")
}
