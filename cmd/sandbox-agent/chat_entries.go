package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"charm.land/lipgloss/v2"

	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
)

// chatEntry is one thing in a conversation. Its text is rendered anew when it, the
// width or what is shown has changed; of a long text of the agent to which more was
// added, the end.
type chatEntry struct {
	kind string // user, agent, thought, tool, plan, note
	text string // Markdown of the agent, else plain
	tool *chatTool

	grown strings.Builder // text, when something was added: it is not copied each time
	lines []string        // the text as it is drawn
	as    chatLook        // that lines was made for; the zero value for none
	more  bool            // something was added since
	done  chatDrawn       // what of lines stays when more is added
}

// add adds to the text.
func (e *chatEntry) add(text string) {
	if e.grown.Len() == 0 {
		e.grown.WriteString(e.text)
	}
	e.grown.WriteString(text)
	e.text, e.more = e.grown.String(), true
}

// empty removes the text.
func (e *chatEntry) empty() {
	e.grown.Reset()
	e.text, e.as = "", chatLook{}
}

type chatTool struct {
	id, title, status string
	body              string // output and diffs
	said              string // of a subagent: the message that ends body
}

// chatLook is what the rendering of an entry depends on.
type chatLook struct {
	*chatStyles
	width   int
	details bool
}

// chatStyles are the colours of a chat, for the terminal's background.
type chatStyles struct {
	user, dim, good, bad, accent, added, removed, box lipgloss.Style
}

func newChatStyles(dark bool) *chatStyles {
	pick := func(light, onDark string) lipgloss.Style {
		if dark {
			light = onDark
		}
		return lipgloss.NewStyle().Foreground(lipgloss.Color(light))
	}
	return &chatStyles{
		user: pick("25", "75").Bold(true), dim: pick("242", "245"), good: pick("28", "78"), bad: pick("160", "203"), accent: pick("90", "177"),
		added: pick("28", "78"), removed: pick("160", "203"), box: lipgloss.NewStyle().Border(lipgloss.RoundedBorder()).Padding(0, 1).BorderForeground(pick("90", "177").GetForeground()),
	}
}

// draw returns the entry's lines.
func (e *chatEntry) draw(look chatLook) []string {
	if e.as == look && !e.more {
		return e.lines
	}
	if e.kind == "agent" {
		if e.as != look {
			e.lines, e.done = nil, chatDrawn{}
		}
		e.lines = e.done.draw(e.lines, e.text, look)
	} else {
		e.lines = strings.Split(e.view(look), "\n")
	}
	e.as, e.more = look, false
	return e.lines
}

// view renders an entry that is not drawn in parts.
func (e *chatEntry) view(look chatLook) string {
	switch e.kind {
	case "user":
		return indent(lipgloss.NewStyle().Width(max(look.width-2, 10)).Render(e.text), look.user.Render("❯ "), "  ")
	case "thought":
		text := cmdline.OneLine(e.text)
		if !look.details {
			text = cmdline.Shorten(text, max(look.width-6, 20))
		}
		return look.dim.Width(look.width).Render("✻ " + text)
	case "tool":
		return e.tool.view(look)
	}
	return look.dim.Width(look.width).Render(e.text)
}

// toolLines is how much of a tool's output is shown without details.
const toolLines = 8

func (t *chatTool) view(look chatLook) string {
	mark, style := "●", look.accent
	switch t.status {
	case "completed":
		mark, style = "✓", look.good
	case "failed":
		mark, style = "✗", look.bad
	case "pending":
		mark, style = "○", look.dim
	}
	title := t.title
	if title == "" {
		title = t.id
	}
	out := style.Render(mark) + " " + cmdline.Shorten(title, max(look.width-4, 10))
	lines := strings.Split(strings.TrimRight(t.body, "\n"), "\n")
	if t.body == "" {
		return out
	}
	if hidden := len(lines) - toolLines; !look.details && hidden > 0 {
		lines = append(lines[:toolLines:toolLines], fmt.Sprintf("… %d more lines, Ctrl-T shows them", hidden))
	}
	for _, line := range lines {
		line = cmdline.Shorten(strings.ReplaceAll(line, "\t", "    "), max(look.width-4, 10))
		style := look.dim
		switch {
		case strings.HasPrefix(line, "+"):
			style = look.added
		case strings.HasPrefix(line, "-"):
			style = look.removed
		}
		out += "\n  " + style.Render(line)
	}
	return out
}

// update takes a tool_call or tool_call_update.
func (t *chatTool) update(u json.RawMessage) {
	if v := cmdline.OneLine(rawjson.MemberString(u, "title")); v != "" {
		t.title = v
	}
	if v := rawjson.MemberString(u, "status"); v != "" {
		t.status = v
	}
	content, ok := rawjson.Member(u, "content")
	if !ok {
		return
	}
	var parts []string
	for _, c := range rawjson.Elements(content) {
		switch rawjson.MemberString(c, "type") {
		case "diff":
			if _, two := rawjson.Member(c, "changes"); two {
				parts = append(parts, chatPatch(c))
				break
			}
			parts = append(parts, chatDiff(c))
		case "content":
			if text := unfenced(cmdline.Printable(rawjson.MemberString(c, "content", "text"))); text != "" {
				parts = append(parts, text)
			}
		case "terminal": // its output takes this place in version 2
			parts = append(parts, "terminal "+rawjson.MemberString(c, "terminalId"))
		}
	}
	t.body = strings.Join(parts, "\n")
}

// unfenced is the inside of a text that is one block of code, as agents send the output of a
// command: also while the block has no end yet.
func unfenced(text string) string {
	inner := strings.TrimSpace(text)
	fence := inner[:len(inner)-len(strings.TrimLeft(inner, "`"))]
	language, rest, more := strings.Cut(inner[len(fence):], "\n")
	if len(fence) < 3 || !more || strings.Contains(language, "`") {
		return text
	}
	rest = strings.TrimSuffix("\n"+rest, "\n"+fence)
	if strings.Contains(rest, "\n"+fence) {
		return text // several blocks
	}
	return strings.TrimPrefix(rest, "\n")
}

// chatDiff shows what an edit changes: without what is the same at both ends.
func chatDiff(c json.RawMessage) string {
	before, after := diffLines(rawjson.MemberString(c, "oldText")), diffLines(rawjson.MemberString(c, "newText"))
	return strings.Join(append([]string{cmdline.Printable(rawjson.MemberString(c, "path"))}, chatChange(before, after)...), "\n")
}

// chatChange shows two texts without what is the same at both ends.
func chatChange(before, after []string) (out []string) {
	same := 0
	for same < len(before) && same < len(after) && before[same] == after[same] {
		same++
	}
	end := 0
	for end < len(before)-same && end < len(after)-same && before[len(before)-1-end] == after[len(after)-1-end] {
		end++
	}
	const around = 2 // lines that are the same
	from := max(same-around, 0)
	for _, l := range before[from:same] {
		out = append(out, "  "+l)
	}
	for _, l := range before[same : len(before)-end] {
		out = append(out, "- "+l)
	}
	for _, l := range after[same : len(after)-end] {
		out = append(out, "+ "+l)
	}
	for _, l := range after[len(after)-end : min(len(after)-end+around, len(after))] {
		out = append(out, "  "+l)
	}
	return out
}

func diffLines(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(cmdline.Printable(text), "\n"), "\n")
}
