package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"

	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
	"sandboxagent.dev/sandbox-agent/runtime"
)

type choice = runtime.Choice

// inputLines bounds the height of the input.
const inputLines = 8

// layout fits everything to the terminal.
func (m *chatModel) layout() {
	m.input.SetWidth(max(m.width-2, 10))
	m.below = strings.Split(m.foot(), "\n")
	m.room = max(m.height-len(m.below), 1)
	entries := m.entries
	if m.opening != nil && !m.opening.again { // a conversation is drawn when all of it has come
		said := func(e *chatEntry) bool { return e.kind != "note" }
		entries = slices.DeleteFunc(slices.Clone(entries[max(len(entries)-m.room, 0):]), said)
	}
	if m.waits() && !m.own.shown && !m.busy {
		entries = append(slices.Clip(entries), m.own.chatEntry)
	}
	look := chatLook{m.styles, max(m.width-1, 20), m.details}
	first, all := make([]int, len(entries)), 0 // lines
	for i, e := range entries {
		if i > 0 && (e.kind != "tool" || entries[i-1].kind != "tool") {
			all++ // an empty one
		}
		first[i] = all
		all += len(e.draw(look))
	}
	end := max(all-m.room, 0)
	if !m.back {
		m.top = end
	}
	m.top = min(max(m.top, 0), end)
	m.back = m.top < end
	m.lines = make([]string, m.room)
	for i := len(entries) - 1; i >= 0; i-- {
		at, lines := first[i]-m.top, entries[i].lines
		if at+len(lines) <= 0 {
			break
		}
		if at < m.room {
			copy(m.lines[max(at, 0):], lines[max(-at, 0):])
		}
	}
}

func (m *chatModel) View() tea.View {
	v := tea.View{AltScreen: true}
	if m.height == 0 {
		return v // the size comes first
	}
	lines := append(slices.Clip(m.lines), m.below...)
	v.SetContent(strings.Join(lines[max(len(lines)-m.height, 0):], "\n")) // where there is no room for all, the end of it
	v.Cursor = m.input.Cursor()
	v.Cursor.Y += m.height - 1 - m.input.Height() // above the status line
	return v
}

// foot is what stands below the conversation.
func (m *chatModel) foot() string {
	var parts []string
	waits := m.queue
	if m.waits() && !m.own.shown && m.busy {
		waits = append([]string{m.own.text}, waits...)
	}
	for _, q := range waits {
		parts = append(parts, m.styles.dim.Render(cmdline.Shorten("waits: "+cmdline.OneLine(q), max(m.width-1, 10))))
	}
	rule := m.styles.dim.Render(strings.Repeat("─", max(m.width, 1)))
	switch {
	case m.picker != nil:
		parts = append(parts, m.viewPicker(), rule)
	case len(m.asks) > 0:
		ask, boxed := m.viewAsk(m.asks[0], max(m.height-m.input.Height()-1, 1))
		parts = append(parts, ask)
		if boxed {
			parts = append(parts, rule)
		}
	default:
		parts = append(parts, rule)
	}
	return strings.Join(append(parts, m.input.View(), m.statusLine()), "\n")
}

// viewAsk shows what is asked in at most room lines: where there are few, without a box and a rule
// below it, and of a long title a part, in which PgUp and PgDn move. What there is no room to read
// cannot be answered.
func (m *chatModel) viewAsk(a *chatAsk, room int) (view string, boxed bool) {
	width := max(m.width-4, 20)
	title := strings.Split(lipgloss.NewStyle().Width(width-2).Render(a.title()), "\n")
	names, several := a.options()
	const frame, readable = 3, 3 // the lines of a box and its rule; those of a title that is cut, and what says so
	free := room - len(names) - 1
	boxed = free-frame >= min(len(title), readable)
	if boxed {
		free -= frame
	}
	m.cramped = free < min(len(title), readable)
	if m.cramped {
		names, free = nil, max(room-1, 0)
	}
	m.hides = len(title) > free
	lines := title[:min(free, len(title))]
	if m.hides && free > 1 {
		free--
		m.askTop = max(min(m.askTop, len(title)-free), 0)
		where := fmt.Sprintf("… %d more: PgDn", len(title)-free-m.askTop)
		if len(title)-free == m.askTop {
			where = "… the end; back: PgUp"
		}
		lines = append(slices.Clone(title[m.askTop:m.askTop+free]), m.styles.dim.Render(where))
	}
	for i, name := range names {
		mark := ""
		if several {
			mark = "[ ] "
			for _, p := range a.picked {
				if p == i {
					mark = "[x] "
				}
			}
		}
		lines = append(lines, m.styles.accent.Render(fmt.Sprint(i+1))+" "+mark+cmdline.Shorten(name, max(width-10, 10)))
	}
	how := "a number answers, Escape rejects"
	writes := m.input.Value() != "" // digits are a part of it
	switch {
	case m.cramped:
		how = "make the window larger to answer; Escape rejects"
	case m.surprised():
		how = "Alt and a number answers"
	case writes && a.question:
		how = "Enter answers with what you write, Alt and a number with that; Escape rejects"
	case writes:
		how = "Alt and a number answers, Escape rejects; what you write is sent later"
	case several:
		how = "numbers choose, Enter answers, Escape rejects; or write an answer"
	case a.question:
		how = "a number answers, Escape rejects; or write an answer"
	}
	if n := len(m.asks); n > 1 {
		how += fmt.Sprintf("; %d more wait", n-1)
	}
	lines = append(lines, m.styles.dim.Render(cmdline.Shorten(how, width-2)))
	view = strings.Join(lines, "\n")
	if boxed {
		view = m.styles.box.Width(width + 2).Render(view)
	}
	return view, boxed
}

func (m *chatModel) viewPicker() string {
	p, width := m.picker, max(m.width-4, 20)
	shown := m.pickerHeight()
	from := min(max(p.at-shown/2, 0), max(p.lines()-shown, 0))
	title := p.title
	if p.words != "" {
		title += " with " + strings.TrimSpace(p.words)
	}
	if 0 < p.lines() && shown < len(p.items) {
		title += fmt.Sprintf(", %d of %d", p.at+1, p.lines())
	}
	lines := []string{m.styles.user.Render(cmdline.Shorten(title, width-2))}
	for i := from; i < min(from+shown, p.lines()); i++ {
		line := "  " + cmdline.Shorten(p.line(i).text, max(width-6, 10))
		if i == p.at {
			line = m.styles.accent.Render("❯" + line[1:])
		}
		lines = append(lines, line)
	}
	if p.lines() == 0 {
		lines = append(lines, m.styles.dim.Render("  nothing here has that"))
	}
	lines = append(lines, m.styles.dim.Render(cmdline.Shorten(cmp.Or(p.says, "↑ ↓ move, letters narrow, Enter takes, Escape leaves"), width-2)))
	return m.styles.box.Width(width + 2).Render(strings.Join(lines, "\n"))
}

// pickerHeight is how many lines of what can be chosen are shown at one time.
func (m *chatModel) pickerHeight() int {
	const around = 7 // lines: its title, its keys, its box, and what stands below
	return max(min(len(m.picker.items), m.height/2, m.height-around), 1)
}

func (m *chatModel) statusLine() string {
	state := "ready"
	switch {
	case m.leaving && m.farewell() != "":
		state = m.farewell()
	case m.gone != nil:
		state = "no connection any more, Ctrl-C leaves"
	case !m.lost.IsZero():
		state = fmt.Sprintf("no connection for %v, connecting again", time.Since(m.lost).Truncate(time.Second))
	case m.status != "":
		state = m.status
	case m.opening != nil:
		state = "opening the session"
		if !m.opening.again && len(m.entries) > 0 {
			state += fmt.Sprintf(", %d parts so far", len(m.entries))
		}
	case m.over:
		state = "the session has ended"
	case len(m.asks) > 0:
		state = "waits for you"
	case m.own != nil || m.busy:
		state = "working, Escape cancels"
	}
	parts := []string{state, m.session.agent}
	for _, what := range []string{"model", "mode"} {
		if c := m.config(what); c != nil {
			name := c.current
			for _, v := range c.values {
				if v.ID == c.current && v.Name != "" {
					name = v.Name
				}
			}
			parts = append(parts, name)
		}
	}
	if m.usage != "" {
		parts = append(parts, m.usage)
	}
	if m.second.behind != "" {
		parts = append(parts, "in the background: "+m.second.behind)
	}
	parts = append(parts, m.session.cwd)
	return m.styles.dim.Render(cmdline.Shorten(cmdline.OneLine(strings.Join(parts, " · ")), max(m.width-1, 10)))
}
