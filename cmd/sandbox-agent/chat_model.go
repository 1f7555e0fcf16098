package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"charm.land/bubbles/v2/textarea"
	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/lasting"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	acpversion "sandboxagent.dev/sandbox-agent/acp/version"
	"sandboxagent.dev/sandbox-agent/adapters/install"
	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
	"sandboxagent.dev/sandbox-agent/runtime"
)

// maxQueued bounds what waits for the agent; beyond, the text stays in the input.
const maxQueued = 64

// maxWritten bounds the lines of the input; what is pasted beyond is cut.
const maxWritten = 10000

// chatModel is the screen of a chat. Bubble Tea calls its methods one at a time.
type chatModel struct {
	session *chatSession
	o       chatOptions
	events  <-chan tea.Msg
	styles  *chatStyles

	entries []*chatEntry
	tools   map[string]*chatEntry // by call
	plan    *chatEntry            // of the present turn
	opening *chatOpening          // the session that is awaited; nil when one is open, or none can be opened
	made    bool                  // the answer to the chat's request for a new session has come
	late    map[string]bool       // sessions whose opening goes on though another one is awaited now
	left    <-chan struct{}       // closed when all sessions that were left are; nil when none was
	begun   bool                  // a session was open or gone to, and the chat stays when one cannot be opened
	busy    bool                  // a turn of another client goes on; in version 2 any turn
	queue   []string              // prompts that wait for it
	own     *chatOwn              // the prompt of this chat that is under way; nil when none is
	away    map[string]*chatOwn   // those in sessions that were left, by session
	kept    map[string]string     // by session that was left: what came back of it, and is written there when it is gone to
	apart   bool                  // a turn has ended: what comes is no part of the last entry
	turnAt  turnAt                // in version 1: of the session that is open
	words   uint64                // in version 1: the event of the newest piece of a prompt
	asks    []*chatAsk            // the first is shown
	picker  *chatPicker           // nil when nothing is chosen
	configs []chatConfig
	choices int    // that were made
	status  string // how an installation goes on; "" for none
	usage   string
	details bool
	failed  error       // why the chat ended
	gone    error       // why there is no connection any more, and none will be; nil before
	lost    time.Time   // since when there is no connection; zero while there is one
	second  *chatSecond // of version 2

	input         textarea.Model
	inputs        uint64    // keys that were pressed, and pastes
	typed         time.Time // when the newest letter of what is written was; zero when it was sent
	asked         asked     // what is on the screen
	askedAt       time.Time // since when
	askTop        int       // the first line in sight of what is asked
	hides         bool      // it has more lines
	cramped       bool      // there is no room for its choices
	lines         []string  // those of the conversation that are in sight
	top, room     int       // which of all is the first of them, and for how many there is room
	back          bool      // it is not the end that is in sight
	below         []string  // what stands under them
	width, height int
	over          bool // the session was ended, here or elsewhere
	closed        bool // it was closed elsewhere: the next prompt opens it again
	leaving       bool // a key that leaves was pressed, and something is said to that
	knows         bool // who leaves has pressed a key for it, and knows what is not sent
}

// chatConfig is something that can be chosen for a session: its mode or model.
type chatConfig struct {
	what, id, current string // id is of the config option, "" for the protocol's own methods
	sure              string // what it was before choices that are not answered
	values            []runtime.Choice
}

func newChatModel(s *chatSession, o chatOptions, events <-chan tea.Msg) *chatModel {
	in := textarea.New()
	in.Placeholder, in.ShowLineNumbers = "Say what to do", false
	in.SetPromptFunc(2, func(line textarea.PromptInfo) string { // as what was sent is shown
		if line.LineNumber == 0 {
			return "❯ "
		}
		return "  "
	})
	in.DynamicHeight, in.MaxHeight, in.MaxContentHeight = true, inputLines, maxWritten
	in.SetVirtualCursor(false)
	in.KeyMap.InsertNewline.SetKeys("alt+enter", "shift+enter", "ctrl+j")
	in.Focus()
	m := &chatModel{session: s, o: o, events: events, tools: map[string]*chatEntry{}, second: newChatSecond(), input: in}
	m.opening, m.late, m.away, m.kept = &chatOpening{id: o.session}, map[string]bool{}, map[string]*chatOwn{}, map[string]string{}
	m.paint(darkBackground(os.Getenv("COLORFGBG")))
	return m
}

// paint takes the colours for the terminal's background.
func (m *chatModel) paint(dark bool) {
	m.styles = newChatStyles(dark)
	m.input.SetStyles(textarea.Styles{
		Focused: textarea.StyleState{Prompt: m.styles.user, Placeholder: m.styles.dim, Selection: lipgloss.NewStyle().Reverse(true)},
		Cursor:  textarea.CursorStyle{Blink: true}, // the terminal's own
	})
}

// darkBackground guesses the background by a variable that some terminals set: most answer when they
// are asked, but later.
func darkBackground(colorfgbg string) bool {
	n, err := strconv.Atoi(colorfgbg[strings.LastIndex(colorfgbg, ";")+1:])
	return err != nil || n < 7 || n == 8
}

// chatBatch are messages in their order.
type (
	chatBatch    []tea.Msg
	chatSessions struct {
		list  []runtime.SessionInfo
		more  bool   // older ones are not in the list
		input uint64 // what had been typed when it was asked for
		err   error
	}
)

// chatBatchSize bounds how many messages are taken before the screen is drawn.
const chatBatchSize = 256

func (m *chatModel) Init() tea.Cmd {
	cmds := []tea.Cmd{m.listen, m.load(m.opening, "")}
	if os.Getenv("TERM") != "dumb" {
		cmds = append(cmds, tea.RequestBackgroundColor) // nothing waits for the answer
	}
	return tea.Batch(cmds...)
}

// listen takes what has come.
func (m *chatModel) listen() tea.Msg {
	var batch chatBatch
	select {
	case first := <-m.events:
		batch = append(batch, first)
	case <-m.session.ctx.Done():
		return nil
	}
	for len(batch) < chatBatchSize {
		select {
		case next := <-m.events:
			batch = append(batch, next)
		default:
			return batch
		}
	}
	return batch
}

func (m *chatModel) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	cmd := tea.Batch(m.update(msg), m.next(), m.noteAsked())
	m.layout()
	return m, cmd
}

func (m *chatModel) update(msg tea.Msg) tea.Cmd {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case chatBatch:
		cmds := []tea.Cmd{m.listen}
		for _, one := range msg {
			cmds = append(cmds, m.receive(one))
		}
		return tea.Batch(cmds...)
	case chatTick:
		if msg.of == m.lost {
			return m.tick()
		}
	case chatRead:
	case chatDone:
		return m.done(msg)
	case chatAllowed:
		m.offerAllowed(msg)
	case chatForgot:
		if msg.err != nil {
			m.note("take back: " + msg.err.Error())
		}
	case chatSessions:
		m.offerSessions(msg)
	case tea.BackgroundColorMsg:
		m.paint(msg.IsDark())
	case tea.KeyPressMsg:
		m.inputs++
		return m.key(msg)
	case tea.PasteMsg:
		m.inputs++
		if m.picker != nil {
			m.picker.narrow(m.picker.words + cmdline.OneLine(msg.Content))
			return nil
		}
		m.leaving, m.typed = false, time.Now()
		return m.write(msg)
	default:
		return m.write(msg)
	}
	return nil
}

// write gives a message to the input.
func (m *chatModel) write(msg tea.Msg) (cmd tea.Cmd) {
	m.input, cmd = m.input.Update(msg)
	return cmd
}

// done takes the end of a request.
func (m *chatModel) done(msg chatDone) tea.Cmd {
	if msg.what != "prompt" {
		if msg.id != m.session.id {
			return nil // of a session that was left
		}
		if msg.what == "choose" {
			m.chosen(msg)
		}
		if msg.err != nil {
			m.note(msg.what + ": " + msg.err.Error())
		} else if msg.what == "choose" && msg.choice == m.choices { // an older one does not know of the newest
			m.readConfigs(msg.result)
		}
		return nil
	}
	if msg.own != m.own {
		m.doneAway(msg)
		return nil
	}
	m.leaving = false
	if m.never(msg) {
		m.unbegun(msg)
		return nil
	}
	m.began()
	m.own = nil
	if msg.err != nil { // else the end was told among the messages
		m.turnOver()
		m.busy = m.busy && m.o.acp == acpversion.Two
		if n := len(m.entries); n > 0 && m.entries[n-1].kind == "user" || m.over || m.gone != nil { // nobody has said anything to it
			m.takeBack(msg.text)
		}
	}
	m.noteEnd(rawjson.MemberString(msg.result, "stopReason"), msg.err)
	return nil
}

// next sends what waits, when the agent is free: also of another client's turn, which takes what
// waits behind it along when it is cancelled. While there is no connection it goes on to wait, where who leaves is
// told of it.
func (m *chatModel) next() tea.Cmd {
	if m.opening != nil || m.own != nil || m.busy || m.over || m.gone != nil || !m.lost.IsZero() || len(m.queue) == 0 {
		return nil
	}
	if m.closed {
		return m.reopen()
	}
	text := m.queue[0]
	m.queue = m.queue[1:]
	ctx, forget := context.WithCancel(m.session.ctx)
	m.own = &chatOwn{chatEntry: &chatEntry{kind: "user", text: cmdline.Printable(text)}, forget: forget}
	return m.session.prompt(ctx, m.own, text)
}

// takeBack puts what waits, and before it what was sent in vain, back to where it was written.
func (m *chatModel) takeBack(sent ...string) {
	text := strings.TrimSpace(strings.Join(append(append(sent, m.queue...), m.input.Value()), "\n"))
	m.queue = nil
	m.input.SetValue(text)
}

// receive takes a message of the gateway, or how the connection to it is.
func (m *chatModel) receive(msg tea.Msg) tea.Cmd {
	switch msg := msg.(type) {
	case lasting.Link:
		return m.linked(msg)
	case chatGone:
		m.disconnected(msg.why)
	case chatLoads:
		m.loads(msg)
	case chatOpened:
		return m.opened(msg)
	case chatSent:
		msg.own.request = msg.id
	case chatDone:
		return m.done(msg)
	case acp.Message:
		m.take(msg)
	}
	return nil
}

// chatGone says that the connection has ended for good. What was written stays.
type chatGone struct{ why error }

func (m *chatModel) disconnected(why error) {
	m.gone, m.failed, m.lost, m.busy, m.asks = why, why, time.Time{}, false, nil
	if len(m.queue) > 0 {
		m.takeBack()
	}
	r := describe(why)
	m.note("✗ " + strings.TrimSuffix(r.Title+": "+r.Detail, ": "))
	back := "what you write stays until you leave"
	if m.session.id != "" {
		back += "; come back with: " + programName() + " chat --session " + m.session.id
	}
	m.note(back)
}

// chatTick comes each second while there is no connection: the screen says how long that is.
type chatTick struct{ of time.Time } // when the connection was lost

func (m *chatModel) linked(l lasting.Link) tea.Cmd {
	m.note(linkLine(l, m.session.id, m.own != nil || m.busy))
	if l.Lost != nil {
		m.lost = l.Since
		if m.own != nil {
			m.own.lost = true
		}
		return m.tick()
	}
	m.lost = time.Time{}
	if on, ok := l.Turns[m.session.id]; ok && !on && m.o.acp != acpversion.Two { // there the state says it
		m.busy = false // of a turn whose gateway was killed its end may be told later, or never
	}
	return nil
}

func (m *chatModel) tick() tea.Cmd {
	since := m.lost
	if since.IsZero() {
		return nil
	}
	return tea.Tick(time.Second, func(time.Time) tea.Msg { return chatTick{since} })
}

// take takes a message of the gateway.
func (m *chatModel) take(f acp.Message) {
	if f.Method() != methodInstallProgress {
		m.status = "" // it is installed, or cannot be
	}
	if f.IsResponse() {
		// Here, and not where the request ends: what was replayed stands before it, and what goes on behind it.
		if o := m.opening; o != nil && o.request == f.ID() {
			if turn := rawjson.MemberString(f.Result(), "_meta", acp.MetaKey, "turn"); turn != "" && !m.turnAt.newer(f.Result()) {
				m.busy = turn == "running" && !m.newest(o.ended)
			}
			m.recognize()
			o.answered = true
		}
		m.promptAnswered(f.ID(), f.Result())
		return
	}
	switch {
	case f.Method() == methodInstallProgress:
		var p install.Progress
		if json.Unmarshal(f.Params(), &p) == nil {
			m.status = fmt.Sprintf("installing %s: %s", p.Agent, p.Step)
			if p.Total > 0 {
				m.status += fmt.Sprintf(" %d%% of %s", 100*p.Done/p.Total, megabytes(p.Total))
			}
		}
	case f.Method() == acp.MethodCancelRequest:
		id, _ := rawjson.Member(f.Params(), "requestId")
		m.withdraw(acp.ID(id))
	case m.session.id == "":
		if m.opening != nil { // it is of the session whose id is on its way
			m.opening.early = append(m.opening.early, f)
		}
	case !m.ours(f.Session()):
	case f.IsRequest():
		m.ask(f)
	case f.Method() == methodEventsDamaged:
		m.note(damagedLine(f.Params()))
	case f.Method() == "_sandboxagent/session/turn_ended":
		if m.o.acp == acpversion.Two {
			break // the state says it
		}
		if !acp.TurnBegan(f.Params()) {
			break
		}
		m.busy = false
		m.turnAt.note(&f)
		if m.own != nil && m.own.begun { // it is said to all of a turn that its gateway knows nothing more of
			m.turnOver()
			break
		}
		m.othersEnd(f.Params())
	case f.Method() == "_sandboxagent/session/ended":
		m.busy = false
		if f.Session() == m.session.id {
			m.ended(rawjson.MemberString(f.Params(), "data", "reason"), cmdline.Printable(rawjson.MemberString(f.Params(), "data", "message")))
		}
	default:
		switch u := f.Update(); {
		case u == nil:
		case m.o.acp == acpversion.Two:
			m.showTwo(f.Session(), u)
		default:
			if string(f.UpdateKind()) == "user_message_chunk" {
				m.notePrompt(f)
				if rawjson.MemberBool(u, "_meta", acp.MetaKey, "prompt") {
					m.turnAt.note(&f)
				}
			}
			m.show(u)
		}
	}
}

// ended takes the end of the session, or of its agent's process, and what was said of it.
func (m *chatModel) ended(reason, message string) {
	switch reason {
	case "terminated", "deleted":
		m.over, m.asks = true, nil
		if len(m.queue) > 0 {
			m.takeBack()
		}
		m.note("the session was " + reason + ", and takes no more prompts: Ctrl-S opens another")
	case "closed":
		m.closed, m.asks = true, nil
		m.note("the session was closed: the next prompt opens it again")
	case "moved":
		m.closed, m.asks = true, nil
		m.note("the session was moved: " + message)
	}
}

// show takes a session update of version 1, or one that both versions have.
func (m *chatModel) show(u json.RawMessage) {
	text := cmdline.Printable(rawjson.MemberString(u, "content", "text"))
	switch kind := rawjson.MemberString(u, "sessionUpdate"); kind {
	case "user_message_chunk":
		// The own prompt is told to others only; but agents show words of people, too.
		others := rawjson.MemberBool(u, "_meta", acp.MetaKey, "prompt")
		if m.waits() && !m.replays() && m.own.text == text && (m.own.lost || !others && !m.busy) {
			m.began()
			break
		}
		m.busy = m.busy || others
		m.grow("user", text)
	case "agent_message_chunk":
		if of := rawjson.MemberString(u, "content", "type"); of != "text" && of != "" {
			text = "[" + of + " " + rawjson.MemberString(u, "content", "mimeType") + rawjson.MemberString(u, "content", "uri") + "]"
		}
		m.grow("agent", text)
	case "agent_thought_chunk":
		m.grow("thought", text)
	case "tool_call", "tool_call_update":
		e := m.toolEntry(rawjson.MemberString(u, "toolCallId"), u)
		e.tool.update(u)
		e.as = chatLook{}
	case "plan":
		m.showPlan(u)
	case "current_mode_update":
		for i := range m.configs {
			if m.configs[i].what == "mode" {
				m.configs[i].current = rawjson.MemberString(u, "currentModeId")
				m.configs[i].sure = m.configs[i].current
			}
		}
	case "config_option_update":
		m.readConfigs(u)
	case "usage_update":
		used, _ := rawjson.Member(u, "used")
		size, _ := rawjson.Member(u, "size")
		if len(used) > 0 && len(size) > 0 {
			m.usage = string(used) + " of " + string(size) + " tokens"
		}
	case "session_info_update":
		if s := gatewaySays(u); s != "" {
			m.note(s)
		}
	case "notice":
		m.note(cmdline.OneLine(rawjson.MemberString(u, "title") + " " + rawjson.MemberString(u, "description")))
	}
}

// toolEntry returns the entry of a call, by the key that it is known by.
func (m *chatModel) toolEntry(key string, u json.RawMessage) *chatEntry {
	m.works()
	e := m.tools[key]
	if e == nil {
		e = &chatEntry{kind: "tool", tool: &chatTool{id: rawjson.MemberString(u, "toolCallId"), status: "pending"}}
		m.tools[key] = e
		m.entries = append(m.entries, e)
	}
	return e
}

// showPlan shows the plan of the turn.
func (m *chatModel) showPlan(plan json.RawMessage) {
	m.works()
	if m.plan == nil {
		m.plan = &chatEntry{kind: "plan"}
		m.entries = append(m.entries, m.plan)
	}
	entries, _ := rawjson.Member(plan, "entries")
	lines := []string{"Plan"}
	for _, e := range rawjson.Elements(entries) {
		mark := map[string]string{"completed": "☑", "in_progress": "▶"}[rawjson.MemberString(e, "status")]
		if mark == "" {
			mark = "☐"
		}
		lines = append(lines, "  "+mark+" "+cmdline.OneLine(rawjson.MemberString(e, "content")))
	}
	for _, other := range []string{"uri", "content"} { // plans of version 2 that are a file or a text
		if v := rawjson.MemberString(plan, other); v != "" {
			lines = append(lines, cmdline.Printable(v))
		}
	}
	m.plan.text, m.plan.as = strings.Join(lines, "\n"), chatLook{}
}

// grow adds text to the last entry when that is of the kind and the turn, else as a new one.
func (m *chatModel) grow(kind, text string) {
	if text == "" {
		return
	}
	if kind != "user" {
		m.works()
	}
	if n := len(m.entries); n > 0 && m.entries[n-1].kind == kind && !m.apart {
		m.entries[n-1].add(text)
		return
	}
	m.apart = false
	m.entries = append(m.entries, &chatEntry{kind: kind, text: text})
}

func (m *chatModel) note(text string) {
	m.entries = append(m.entries, &chatEntry{kind: "note", text: cmdline.Printable(text)})
}

// readConfigs takes what a session offers to choose.
func (m *chatModel) readConfigs(res json.RawMessage) {
	options, ok := rawjson.Member(res, "configOptions")
	if list := rawjson.Elements(options); ok && len(list) > 0 {
		m.configs = nil
		for _, o := range list {
			id := rawjson.MemberString(o, "id")
			if id == "" { // version 2
				id = rawjson.MemberString(o, "configId")
			}
			c := chatConfig{what: rawjson.MemberString(o, "category"), id: id, current: rawjson.MemberString(o, "currentValue"), values: choicesOf(o)}
			if c.what == "" {
				c.what = c.id
			}
			c.sure = c.current
			m.configs = append(m.configs, c)
		}
		return
	}
	for _, what := range []string{"mode", "model"} {
		offered, ok := rawjson.Member(res, what+"s")
		if !ok {
			continue
		}
		idName := map[string]string{"mode": "id", "model": "modelId"}[what]
		c := chatConfig{what: what, current: rawjson.MemberString(offered, "current"+strings.ToUpper(what[:1])+what[1:]+"Id")}
		values, _ := rawjson.Member(offered, "available"+strings.ToUpper(what[:1])+what[1:]+"s")
		for _, v := range rawjson.Elements(values) {
			c.values = append(c.values, runtime.Choice{ID: rawjson.MemberString(v, idName), Name: rawjson.MemberString(v, "name")})
		}
		c.sure = c.current
		m.configs = append(m.configs, c)
	}
}

func (m *chatModel) config(what string) *chatConfig {
	for i := range m.configs {
		if m.configs[i].what == what && len(m.configs[i].values) > 0 {
			return &m.configs[i]
		}
	}
	return nil
}

// choose asks the gateway for another mode or model.
func (m *chatModel) choose(c *chatConfig, value string) tea.Cmd {
	c.current = value
	m.choices++
	method, params := acp.MethodSessionSetModel, object{"modelId": value}
	switch {
	case m.o.acp == acpversion.Two:
		method, params = acp.MethodSessionSetConfigOption, object{"configId": c.id, "type": "id", "value": value}
	case c.id != "":
		method, params = acp.MethodSessionSetConfigOption, object{"configId": c.id, "value": value}
	case c.what == "mode":
		method, params = acp.MethodSessionSetMode, object{"modeId": value}
	}
	request, choice, what := m.session.request("choose", method, params), m.choices, c.what
	return func() tea.Msg {
		done, _ := request().(chatDone)
		done.choice, done.of, done.text = choice, what, value
		return done
	}
}

// chosen takes the answer to a choice. One that was refused is not shown any more, unless there is a newer one.
func (m *chatModel) chosen(msg chatDone) {
	c := m.config(msg.of)
	switch {
	case c == nil:
	case msg.err == nil:
		c.sure = msg.text
	case c.current == msg.text:
		c.current = c.sure
	}
}
