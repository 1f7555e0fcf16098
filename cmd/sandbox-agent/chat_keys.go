package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
)

// chatPicker is a list of which one thing is chosen.
type chatPicker struct {
	title string
	items []chatItem
	words string // that a line has; "" when all are shown
	shown []int  // the items that have them; nil for all
	at    int    // of those that are shown
	says  string // in place of what the keys do
	take  func(id string) tea.Cmd
}

// narrow shows the lines that have all of the words, whatever their case.
func (p *chatPicker) narrow(words string) {
	p.words, p.shown, p.at = words, nil, 0
	wanted := strings.Fields(strings.ToLower(words))
	if len(wanted) == 0 {
		return
	}
	p.shown = []int{}
	for i, item := range p.items {
		line := strings.ToLower(item.text + " " + item.id)
		if !slices.ContainsFunc(wanted, func(word string) bool { return !strings.Contains(line, word) }) {
			p.shown = append(p.shown, i)
		}
	}
}

// lines is how many lines there are to choose from.
func (p *chatPicker) lines() int {
	if p.shown == nil {
		return len(p.items)
	}
	return len(p.shown)
}

// line is one of them.
func (p *chatPicker) line(i int) chatItem {
	if p.shown != nil {
		i = p.shown[i]
	}
	return p.items[i]
}

type chatItem struct{ id, text, no string } // no says why it cannot be chosen; "" for one that can

// chatAsk is a request of the agent that waits for the person.
type chatAsk struct {
	id       acp.ID
	params   json.RawMessage
	question bool
	by       string // the subagent that asks; "" for the agent

	answers [][]string // so far, of questions
	picked  []int      // of a question of which several may be chosen
}

func (m *chatModel) ask(f acp.Message) {
	switch f.Method() {
	case acp.MethodSessionRequestPermission:
		m.asks = append(m.asks, &chatAsk{id: f.ID(), params: f.Params(), by: m.subagent(f.Session())})
	case "_sandboxagent/session/request_question":
		m.asks = append(m.asks, &chatAsk{id: f.ID(), params: f.Params(), question: true, by: m.subagent(f.Session())})
	}
	// What a terminal cannot show stays open for other clients.
}

// subagent names a subagent's session; "" is the name of the chat's own.
func (m *chatModel) subagent(session string) string {
	if e := m.second.children[session]; e != nil {
		return cmp.Or(e.tool.title, "a subagent")
	}
	return ""
}

func (m *chatModel) withdraw(id acp.ID) {
	before := len(m.asks)
	m.asks = slices.DeleteFunc(m.asks, func(a *chatAsk) bool { return a.id == id })
	if len(m.asks) < before {
		m.note("answered by another client, or withdrawn")
	}
}

// options are what may be chosen now; several says that more than one may be.
func (a *chatAsk) options() (names []string, several bool) {
	if !a.question {
		list, _ := rawjson.Member(a.params, "options")
		for _, o := range rawjson.Elements(list) {
			names = append(names, cmdline.OneLine(rawjson.MemberString(o, "name")))
		}
		return names, false
	}
	q := a.current()
	list, _ := rawjson.Member(q, "options")
	for _, o := range rawjson.Elements(list) {
		names = append(names, cmdline.OneLine(rawjson.MemberString(o, "label")))
	}
	return names, rawjson.MemberBool(q, "multiSelect")
}

// current is the question that is asked now.
func (a *chatAsk) current() json.RawMessage {
	list, _ := rawjson.Member(a.params, "questions")
	if all := rawjson.Elements(list); len(a.answers) < len(all) {
		return all[len(a.answers)]
	}
	return nil
}

func (a *chatAsk) title() string {
	by := ""
	if a.by != "" {
		by = " of " + a.by
	}
	if a.question {
		return "Question" + by + ": " + cmdline.OneLine(rawjson.MemberString(a.current(), "question"))
	}
	return "Permission" + by + ": " + cmdline.OneLine(requestTitle(a.params)) + cmdline.Printable(detail(a.params))
}

// answer gives the first ask its result.
func (m *chatModel) answer(result any) tea.Cmd {
	a := m.asks[0]
	m.asks = m.asks[1:]
	return m.session.reply(a.id, result)
}

// askKey takes a key while the agent asks; taken is false when it is for others.
func (m *chatModel) askKey(k tea.KeyPressMsg) (cmd tea.Cmd, taken bool) {
	a := m.asks[0]
	names, several := a.options()
	if m.cramped {
		names = nil // nobody has read what they are for
	}
	if n, err := strconv.Atoi(strings.TrimPrefix(k.String(), "alt+")); err == nil && n >= 1 && n <= len(names) && (len(names) > 0) {
		if !a.question {
			list, _ := rawjson.Member(a.params, "options")
			return m.answer(selected(rawjson.Elements(list)[n-1])), true
		}
		if !several {
			return m.answered(a, []string{names[n-1]}), true
		}
		if i := slices.Index(a.picked, n-1); i >= 0 {
			a.picked = slices.Delete(a.picked, i, i+1)
		} else {
			a.picked = append(a.picked, n-1)
		}
		return nil, true
	}
	switch k.String() {
	case "esc":
		if a.question {
			return m.answer(object{"outcome": "rejected", "answers": []any{}}), true
		}
		return m.answer(decide(a.params, reject)), true
	case "enter":
		text := strings.TrimSpace(m.input.Value())
		switch {
		case a.question && text != "":
			m.input.Reset()
			m.typed = time.Time{}
			return m.answered(a, []string{text}), true
		case a.question && len(a.picked) > 0:
			slices.Sort(a.picked)
			var chosen []string
			for _, i := range a.picked {
				chosen = append(chosen, names[i])
			}
			return m.answered(a, chosen), true
		}
		return nil, true // nothing is sent while the agent asks
	}
	return nil, false
}

// surprise is how long something asked has to be on the screen before keys are for it: who has
// pressed one earlier has not read it.
const surprise = 500 * time.Millisecond

// asked is what is asked now: of several questions of one request, how many are answered.
type asked struct {
	ask      *chatAsk
	answered int
}

// chatRead comes when something asked could have been read: the screen then says which keys answer.
type chatRead struct{}

// noteAsked notes since when what is asked now is on the screen.
func (m *chatModel) noteAsked() tea.Cmd {
	var now asked
	if len(m.asks) > 0 {
		now = asked{m.asks[0], len(m.asks[0].answers)}
	}
	if now == m.asked {
		return nil
	}
	m.asked, m.askedAt, m.askTop, m.hides, m.cramped = now, time.Now(), 0, false, false
	if now.ask == nil {
		return nil
	}
	return tea.Tick(surprise, func(time.Time) tea.Msg { return chatRead{} })
}

// surprised reports whether what is asked has just appeared.
func (m *chatModel) surprised() bool { return time.Since(m.askedAt) < surprise }

// typing is how long after a letter the next one is taken for a part of the same text.
const typing = 700 * time.Millisecond

// writes reports whether a key goes on with a text that is being written: a digit in it answers
// nothing.
func (m *chatModel) writes(k tea.KeyPressMsg) bool {
	return k.Text != "" && (m.input.Value() != "" || time.Since(m.typed) < typing)
}

// answered notes the answer to a question, and answers the request with the last.
func (m *chatModel) answered(a *chatAsk, answer []string) tea.Cmd {
	a.answers, a.picked = append(a.answers, answer), nil
	if a.current() != nil {
		return nil
	}
	return m.answer(object{"outcome": "answered", "answers": a.answers})
}

func (m *chatModel) pickKey(k tea.KeyPressMsg) tea.Cmd {
	p := m.picker
	p.says = ""
	to := p.at
	switch k.String() {
	case "up", "ctrl+p":
		to--
	case "down", "ctrl+n":
		to++
	case "pgup":
		to -= m.pickerHeight()
	case "pgdown":
		to += m.pickerHeight()
	case "home":
		to = 0
	case "end":
		to = p.lines()
	case "backspace":
		if p.words != "" {
			_, last := utf8.DecodeLastRuneInString(p.words)
			p.narrow(p.words[:len(p.words)-last])
		}
		return nil
	case "enter":
		if p.lines() == 0 {
			return nil
		}
		item := p.line(p.at)
		if p.says = item.no; p.says != "" {
			return nil
		}
		m.picker = nil
		return p.take(item.id)
	case "esc", "ctrl+c":
		m.picker = nil
		return nil
	default:
		if k.Text != "" {
			p.narrow(p.words + k.Text)
		}
		return nil
	}
	p.at = max(min(to, p.lines()-1), 0)
	return nil
}

func (m *chatModel) key(k tea.KeyPressMsg) tea.Cmd {
	if same, ok := sameKeys[k.String()]; ok {
		k = same
	}
	if m.picker != nil {
		return m.pickKey(k)
	}
	if len(m.asks) > 0 && (k.Mod.Contains(tea.ModAlt) || !m.writes(k) && !m.surprised()) {
		if cmd, taken := m.askKey(k); taken {
			return cmd
		}
	}
	asked := m.leaving
	m.leaving = false
	switch k.String() {
	case "ctrl+c":
		return m.leave(asked)
	case "ctrl+d":
		if m.input.Value() == "" {
			return m.leave(asked)
		}
	case "esc":
		if len(m.queue) > 0 { // what waits is not sent, and not lost
			m.takeBack()
		}
		if m.own != nil || m.busy {
			if m.own != nil {
				m.own.cancelled = true
			}
			return m.session.cancel()
		}
		return nil
	case "enter":
		return m.submit()
	case "shift+tab":
		if c := m.config("mode"); c != nil {
			i := slices.IndexFunc(c.values, func(v choice) bool { return v.ID == c.current })
			return m.choose(c, c.values[(i+1)%len(c.values)].ID)
		}
		return nil
	case "ctrl+o":
		m.offerModels()
		return nil
	case "ctrl+s":
		return m.session.list(m.inputs)
	case "ctrl+g":
		if m.session.id == "" {
			return nil
		}
		return m.session.allowed(m.inputs)
	case "ctrl+t":
		m.details = !m.details
		return nil
	case "pgup":
		if len(m.asks) > 0 && m.hides {
			m.askTop--
			return nil
		}
		m.top, m.back = m.top-m.room, true
		return nil
	case "pgdown":
		if len(m.asks) > 0 && m.hides {
			m.askTop++
			return nil
		}
		m.top += m.room
		return nil
	}
	if k.Text != "" {
		m.typed = time.Now()
	}
	return m.write(k)
}

// sameKeys are keys that newer terminals tell apart, and what others send for them.
var sameKeys = map[string]tea.KeyPressMsg{
	"ctrl+[": {Code: tea.KeyEscape}, "ctrl+m": {Code: tea.KeyEnter}, "ctrl+enter": {Code: tea.KeyEnter}, "shift+backspace": {Code: tea.KeyBackspace},
}

// leave ends the chat. When something of it would be lost, or goes on, it says so in the status line
// first, and ends with the next key that leaves.
func (m *chatModel) leave(asked bool) tea.Cmd {
	if asked || m.farewell() == "" {
		m.knows = true
		return tea.Quit
	}
	m.leaving = true
	if n := len(m.entries); n == 0 || m.entries[n-1].text != m.farewell() {
		m.note(m.farewell()) // it stays when the turn ends before it was seen
	}
	return nil
}

// farewell is what is said to who wants to leave; "" when there is nothing to say.
func (m *chatModel) farewell() string {
	var lost []string
	switch n := len(m.queue); {
	case n == 1:
		lost = append(lost, "a prompt that waits")
	case n > 1:
		lost = append(lost, fmt.Sprintf("%d prompts that wait", n))
	}
	if len(m.kept) > 0 {
		lost = append(lost, "what waits for other sessions")
	}
	if strings.TrimSpace(m.input.Value()) != "" {
		lost = append(lost, "the text you write")
	}
	switch works := m.own != nil && m.lost.IsZero() && m.gone == nil; {
	case len(lost) > 0:
		return "Ctrl-C again leaves, without sending " + strings.Join(lost, " and ")
	case m.doubtful() != "":
		return "Ctrl-C again leaves, and what you sent last may not have arrived"
	case works:
		return "Ctrl-C again leaves, and the agent goes on; Escape cancels"
	}
	return ""
}

// unsent is what was written, and neither sent nor given up by who has left, and what is kept for other sessions, which
// is not seen here.
func (m *chatModel) unsent() string {
	kept := slices.Collect(maps.Values(m.kept))
	if m.knows {
		return strings.Join(kept, "\n")
	}
	m.takeBack(kept...)
	return m.input.Value()
}

// doubtful is what was sent of which nobody has heard, and will not before there is a connection again, unless who has
// left has given it up.
func (m *chatModel) doubtful() string {
	if m.knows || m.lost.IsZero() {
		return ""
	}
	var texts []string
	for _, own := range append(slices.Collect(maps.Values(m.away)), m.own) {
		if own != nil && !own.begun {
			texts = append(texts, own.text)
		}
	}
	return strings.Join(texts, "\n")
}

// submit sends what was written, or lets it wait for the agent.
func (m *chatModel) submit() tea.Cmd {
	text := strings.TrimSpace(m.input.Value())
	if text == "" {
		return nil
	}
	if m.gone != nil {
		m.note("there is no connection any more: what you write stays until you leave")
		return nil
	}
	if m.over {
		m.note("the session has ended, and takes no more prompts: Ctrl-S opens another, and what you write stays")
		return nil
	}
	if len(m.queue) >= maxQueued {
		m.note(fmt.Sprintf("%d prompts wait already", maxQueued))
		return nil
	}
	m.input.Reset()
	m.typed = time.Time{} // it is written
	m.queue = append(m.queue, text)
	m.back = false
	return nil
}

func (m *chatModel) offerModels() {
	c := m.config("model")
	if c == nil {
		m.note("this agent offers no models")
		return
	}
	p := &chatPicker{title: "Models", take: func(id string) tea.Cmd { return m.choose(c, id) }}
	for i, v := range c.values {
		p.items = append(p.items, chatItem{v.ID, cmdline.OneLine(v.Name), ""})
		if v.ID == c.current {
			p.at = i
		}
	}
	m.picker = p
}
