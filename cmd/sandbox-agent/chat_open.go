package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	tea "charm.land/bubbletea/v2"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
	"sandboxagent.dev/sandbox-agent/runtime"
)

// chatOpening is a session that is awaited. What is written meanwhile waits. Only one is awaited: when another session
// was chosen, the answer to the opening before it is not the chat's any more.
type chatOpening struct {
	id       string        // "" for a new session
	again    bool          // it was closed: its conversation is shown already
	waits    bool          // an opening of the same session goes on that was given up: two at a time are refused
	former   string        // the session that was left for it, and to which the chat goes back; "" for none
	refusals []string      // why other sessions could not be opened before
	request  acp.ID        // that opens it; "" before it is sent
	answered bool          // its answer has come, behind the conversation until then
	ended    *chatOwn      // whose turn ended before that: the answer may not know of it
	early    []acp.Message // of a new session: what came before its id
}

// chatLoads comes before all that an opening brings; chatOpened is its end.
type (
	chatLoads struct {
		of      *chatOpening
		request acp.ID
	}
	chatOpened struct {
		of             *chatOpening
		id, agent, cwd string
		result         json.RawMessage
		err            error
	}
)

// load opens what is awaited, after leave was left; "" for none.
func (m *chatModel) load(o *chatOpening, leave string) tea.Cmd {
	options := m.o
	options.session = o.id
	if o.id != m.o.session {
		options.agent = ""
	}
	detach, s := m.detach(leave), *m.session // as it is now
	return func() tea.Msg {
		detach()
		opened := s.open(options, o.again, func(request acp.ID) { s.tell(chatLoads{o, request}) })
		opened.of = o
		s.tell(opened) // behind the conversation
		return nil
	}
}

// detachPatience bounds how long a session is waited for that is left.
const detachPatience = 10 * time.Second

// detach returns what leaves a session. Sessions are left in the order in which that was asked for, so that one that is
// gone to again is not left after it was opened.
func (m *chatModel) detach(id string) func() {
	before, left, s := m.left, make(chan struct{}), *m.session
	m.left = left
	return func() {
		defer close(left)
		if before != nil {
			select {
			case <-before:
			case <-s.ctx.Done():
			}
		}
		if id == "" {
			return
		}
		ctx, cancel := context.WithTimeout(s.ctx, detachPatience)
		defer cancel()
		// One that cannot be left is gone, or the load fails as well.
		_, _ = s.link.call(ctx, "_sandboxagent/session/detach", object{"sessionId": id})
	}
}

// loads drops what was shown but the chat's own notes: all of the session that is awaited comes behind this.
func (m *chatModel) loads(msg chatLoads) {
	msg.of.request = msg.request
	if msg.of == m.opening && !msg.of.again {
		notes := m.notes()
		m.clear()
		m.entries = notes
	}
}

// notes are the entries that are no part of a conversation.
func (m *chatModel) notes() []*chatEntry {
	return slices.DeleteFunc(slices.Clone(m.entries), func(e *chatEntry) bool { return e.kind != "note" })
}

// clear drops the conversation, and what is known of the session.
func (m *chatModel) clear() {
	m.entries, m.tools, m.plan, m.asks, m.configs = nil, map[string]*chatEntry{}, nil, nil, nil
	m.second, m.turnAt, m.words, m.apart = newChatSecond(), 0, 0, false
	m.busy, m.over, m.closed, m.usage, m.status = false, false, false, "", ""
}

func (m *chatModel) opened(msg chatOpened) tea.Cmd {
	o := m.opening
	m.made = m.made || msg.of.id == ""
	if msg.of != o {
		return m.openedLate(msg)
	}
	m.opening = nil
	if msg.err != nil {
		return m.notOpened(o, msg.err)
	}
	m.begun = true
	m.session.id, m.session.agent, m.session.cwd = msg.id, msg.agent, msg.cwd
	for _, f := range o.early {
		m.take(f)
	}
	if m.own != nil && m.own.begun && !m.busy { // its turn ended where nobody told how
		m.own.forget()
		m.own = nil
	}
	m.readConfigs(msg.result)
	unsupported, _ := rawjson.Member(msg.result, "_meta", acp.MetaKey, "unsupported")
	for _, u := range rawjson.Elements(unsupported) {
		m.note(fmt.Sprintf("%s has no effect: %s", rawjson.MemberString(u, "field"), rawjson.MemberString(u, "reason")))
	}
	for _, e := range o.refusals {
		m.note(e)
	}
	return nil
}

// openedLate is the end of an opening that was given up for another one.
func (m *chatModel) openedLate(msg chatOpened) tea.Cmd {
	delete(m.late, msg.of.id)
	switch o := m.opening; {
	case o != nil && o.waits && o.id == msg.of.id:
		o.waits = false
		return m.load(o, o.id)
	case msg.err != nil || msg.id == m.session.id:
		return nil
	case msg.of.id == "":
		s, session := *m.session, m.session.id
		return func() tea.Msg {
			err := deleteUnused(s.ctx, s.target, msg.id, msg.agent)
			return chatDone{what: "delete the new session that was left", id: session, err: err}
		}
	}
	detach := m.detach(msg.id)
	return func() tea.Msg {
		detach()
		return nil
	}
}

// notOpened is the end of an opening that failed: the chat goes back to the session that it was in, if that lives.
func (m *chatModel) notOpened(o *chatOpening, err error) tea.Cmd {
	refusal := wentWrong(err)
	m.takeBack() // nobody goes there again, or the next prompt tries it anew
	switch {
	case m.gone != nil: // that was said
		m.over = true
		return nil
	case !m.begun:
		m.failed, m.over = err, true
		return tea.Quit
	case o.again:
		m.closed = true
		m.note(refusal)
		return nil
	case o.former != "" && o.former != o.id:
		return m.goTo(&chatOpening{id: o.former, refusals: append(o.refusals, refusal)})
	}
	m.entries = m.notes() // the conversation has not all come
	for _, e := range append(o.refusals, refusal) {
		m.note(e)
	}
	m.over = true
	m.note("no session is open: Ctrl-S opens one, and what you write stays")
	return nil
}

// reopen opens the session again, which was closed elsewhere.
func (m *chatModel) reopen() tea.Cmd {
	m.closed = false // unless that is said anew, or it fails
	m.opening = &chatOpening{id: m.session.id, again: true}
	return m.load(m.opening, "")
}

// offerSessions shows the sessions that the gateway has.
func (m *chatModel) offerSessions(msg chatSessions) {
	if msg.err != nil {
		m.note("list sessions: " + msg.err.Error())
		return
	}
	p := &chatPicker{title: "Sessions"}
	if msg.more {
		p.title = "The newest sessions"
	}
	lives := map[string]bool{}
	for _, s := range msg.list {
		lives[s.ID] = s.State != runtime.StateEnded
		name := cmp.Or(s.Title, s.Gist, s.ID)
		item := chatItem{s.ID, fmt.Sprintf("%s  %s  %s  %s  %s", cmdline.OneLine(name), s.Agent, s.State, cmdline.Clock(s.UpdatedAt), cmdline.OneLine(s.Cwd)), ""}
		if s.State == runtime.StateEnded {
			item.no = "it has ended, and takes no more prompts"
		}
		p.items = append(p.items, item)
	}
	for _, id := range slices.Sorted(maps.Keys(m.kept)) {
		if there, known := lives[id]; known && !there || !known && !msg.more {
			m.takeBack(m.kept[id])
			delete(m.kept, id)
			m.note("nobody can go to session " + id + " any more: what was kept for it is where you write")
		}
	}
	if !m.awaits(msg.input) {
		return
	}
	p.take = func(id string) tea.Cmd {
		if id == m.session.id && !m.over {
			return nil
		}
		if m.gone != nil {
			m.note("there is no connection any more: what you write stays until you leave")
			return nil
		}
		former := m.session.id
		switch o := m.opening; {
		case o != nil && !o.again:
			former = o.former // the one that was awaited was not open
		case m.over:
			former = ""
		}
		return m.goTo(&chatOpening{id: id, former: former})
	}
	m.picker = p
}

// goTo leaves the session for another, which is awaited from now on.
func (m *chatModel) goTo(o *chatOpening) tea.Cmd {
	old := m.session.id
	if m.own != nil {
		m.away[old] = m.own
	}
	m.clear()
	if waits := m.queue; len(waits) > 0 { // for that session: it is not sent to another, and not lost
		m.queue = nil
		m.keep(old, "what waits", waits...)
	}
	m.session.id, m.begun = o.id, true // what comes from now on is of that one
	m.own = m.away[o.id]
	delete(m.away, o.id)
	if text := m.kept[o.id]; text != "" {
		delete(m.kept, o.id)
		m.takeBack(text)
	}
	if m.own != nil {
		m.own.lost, m.own.shown = true, false // it may be shown as one of the conversation
	}
	if given := m.opening; given != nil { // it is left when it is open
		old = ""
		if !given.waits && given.id != "" {
			m.late[given.id] = true
		}
	}
	m.opening = o
	if o.waits = m.late[o.id]; o.waits {
		return nil
	}
	return m.load(o, old)
}

// offeredSessions bounds how many sessions are offered, the newest: it is a page of the gateway's list.
const offeredSessions = 1000

func (c *chatSession) list(input uint64) tea.Cmd {
	return func() tea.Msg {
		api, err := c.target.client()
		if err != nil {
			return chatSessions{err: err}
		}
		ctx, cancel := context.WithTimeout(c.ctx, 10*time.Second)
		defer cancel()
		page, err := api.Sessions(ctx, runtime.SessionFilter{Limit: offeredSessions})
		return chatSessions{page.Sessions, page.NextCursor != "", input, err}
	}
}
