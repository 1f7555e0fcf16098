package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
)

// view shows a turn to a person: the agent's text on the standard output,
// everything else on the standard error. It is safe for concurrent use.
type view struct {
	out, err io.Writer
	together bool // both are the same terminal, so lines of one must end before the other's
	colours  bool
	quiet    bool // no notes

	mu        sync.Mutex
	inText    bool   // the agent's text has an open line
	inDim     bool   // a thought, or what others say, has an open line
	others    string // whose words were shown last, "" when it was anything else
	othersKey string // of them
	titles    map[string]string
	shown     map[string]string // a tool call's status as shown
	two       *secondView
}

func newView(std stdio, colours, quiet bool) *view {
	return &view{
		out: std.out, err: std.err, together: terminal(std.out) && terminal(std.err), colours: colours, quiet: quiet,
		titles: map[string]string{}, shown: map[string]string{}, two: newSecondView(),
	}
}

const dim, plain = "\x1b[2m", "\x1b[0m"

// update shows one session update of version 1. Unknown ones are left out.
func (v *view) update(u json.RawMessage) {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch rawjson.MemberString(u, "sessionUpdate") {
	case "agent_message_chunk":
		v.blockLocked(contentOf(u))
	case "agent_thought_chunk":
		v.thoughtLocked(rawjson.MemberString(u, "content", "text"))
	case "tool_call", "tool_call_update":
		v.toolLocked(u, "")
	case "plan":
		v.planLocked(u)
	case "current_mode_update":
		v.lineLocked("mode " + rawjson.MemberString(u, "currentModeId"))
	case "session_info_update":
		if s := gatewaySays(u); s != "" {
			v.lineLocked(s)
		}
	case "notice":
		v.lineLocked("notice: " + rawjson.MemberString(u, "title") + " " + rawjson.MemberString(u, "description"))
	}
}

// gatewaySays is what an update of the gateway's own tells people; "" for other updates.
func gatewaySays(u json.RawMessage) string {
	list, _ := rawjson.Member(u, "_meta", acp.MetaKey, "permissionsForgotten")
	var titles []string
	for _, one := range rawjson.Elements(list) {
		titles = append(titles, cmdline.OneLine(rawjson.MemberString(one, "title")))
	}
	if len(titles) > 0 {
		return "no longer always allowed: " + strings.Join(titles, ", ")
	}
	return storageOf(u)
}

// storageOf says that the gateway cannot write the session, or can again; "" for updates
// about other things.
func storageOf(u json.RawMessage) string {
	storage, ok := rawjson.Member(u, "_meta", acp.MetaKey, "storage")
	if !ok {
		return ""
	}
	if writable, _ := rawjson.Member(storage, "writable"); string(writable) == "true" {
		return "the gateway can write the session again"
	}
	return "the gateway cannot write the session, and shows nothing of it until it can: " + rawjson.MemberString(storage, "reason")
}

func contentOf(u json.RawMessage) json.RawMessage {
	content, _ := rawjson.Member(u, "content")
	return content
}

// blockLocked shows a block of what the agent says.
func (v *view) blockLocked(block json.RawMessage) {
	if kind := rawjson.MemberString(block, "type"); kind != "text" && kind != "" {
		v.lineLocked(notText(kind, block))
		return
	}
	v.textLocked(rawjson.MemberString(block, "text"))
}

// notText names a block that cannot be shown in a terminal.
func notText(kind string, block json.RawMessage) string {
	return "[" + kind + " " + rawjson.MemberString(block, "mimeType") + rawjson.MemberString(block, "uri") + "]"
}

func (v *view) textLocked(s string) {
	if s == "" {
		return
	}
	v.breakDimLocked()
	v.others = ""
	if terminal(v.out) {
		s = cmdline.Printable(s)
	}
	_, _ = io.WriteString(v.out, s)
	v.inText = !strings.HasSuffix(s, "\n")
}

func (v *view) thoughtLocked(s string) {
	if s = cmdline.Printable(s); s == "" {
		return
	}
	if v.others != "" {
		v.breakDimLocked()
		v.others = ""
	}
	v.breakTextLocked()
	v.dimLocked(s)
	v.inDim = !strings.HasSuffix(s, "\n")
}

// othersLocked shows what somebody else than the agent says: a command, or a subagent. Their
// name stands before it, unless what they said last does. What has another key than that
// begins a line.
func (v *view) othersLocked(name, key, s string) {
	if s = cmdline.Printable(s); s == "" {
		return
	}
	switch {
	case v.others != name:
		v.lineLocked(cmdline.Shorten(cmdline.OneLine(name), summaryLen) + ":")
		s = strings.TrimPrefix(s, "\n") // the line that it ends was ended
	case v.othersKey != key:
		v.breakDimLocked()
	}
	v.others, v.othersKey = name, key
	v.dimLocked(s)
	v.inDim = !strings.HasSuffix(s, "\n")
}

// toolLocked shows what a tool call has come to. session is that of a subagent whose call it
// is: the ids of its calls are its own.
func (v *view) toolLocked(u json.RawMessage, session string) {
	id, status := session+" "+rawjson.MemberString(u, "toolCallId"), rawjson.MemberString(u, "status")
	if title := cmdline.OneLine(rawjson.MemberString(u, "title")); title != "" {
		v.titles[id] = title
	}
	if status == "" && v.shown[id] == "" {
		status = "pending"
	}
	if status == "" || status == v.shown[id] {
		return
	}
	v.shown[id] = status
	mark := map[string]string{"completed": "✓", "failed": "✗", "cancelled": "✗"}[status]
	if mark == "" {
		mark = "•"
	}
	title := v.titles[id]
	if title == "" {
		title = rawjson.MemberString(u, "toolCallId")
	}
	v.lineLocked(fmt.Sprintf("%s %s (%s)", mark, title, strings.ReplaceAll(status, "_", " ")))
}

func (v *view) planLocked(u json.RawMessage) {
	entries, _ := rawjson.Member(u, "entries")
	v.lineLocked("plan")
	for _, e := range rawjson.Elements(entries) {
		mark := map[string]string{"completed": "x", "in_progress": "~"}[rawjson.MemberString(e, "status")]
		if mark == "" {
			mark = " "
		}
		v.lineLocked("  [" + mark + "] " + cmdline.OneLine(rawjson.MemberString(e, "content")))
	}
}

// note shows one line about the turn itself.
func (v *view) note(s string) {
	if v.quiet {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.lineLocked(s)
}

// ask shows a question and leaves the cursor behind it.
func (v *view) ask(s string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.breakDimLocked()
	v.breakTextLocked()
	v.others = ""
	_, _ = io.WriteString(v.err, cmdline.Printable(s))
}

// end ends the last line.
func (v *view) end() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.breakDimLocked()
	if v.inText {
		_, _ = io.WriteString(v.out, "\n")
		v.inText = false
	}
}

func (v *view) lineLocked(s string) {
	v.breakDimLocked()
	v.breakTextLocked()
	v.others = ""
	v.dimLocked(cmdline.Printable(s))
	_, _ = io.WriteString(v.err, "\n")
}

func (v *view) dimLocked(s string) {
	if v.colours {
		s = dim + s + plain
	}
	_, _ = io.WriteString(v.err, s)
}

// breakTextLocked ends an open line of text where the next thing would be shown
// behind it. In a file the text stays as the agent wrote it.
func (v *view) breakTextLocked() {
	if v.inText && v.together {
		_, _ = io.WriteString(v.out, "\n")
		v.inText = false
	}
}

func (v *view) breakDimLocked() {
	if v.inDim {
		_, _ = io.WriteString(v.err, "\n")
		v.inDim = false
	}
}
