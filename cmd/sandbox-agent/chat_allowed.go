package main

import (
	"context"
	"time"

	tea "charm.land/bubbletea/v2"

	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
	"sandboxagent.dev/sandbox-agent/runtime"
)

// chatAllowed is what a session's agent was always allowed.
type chatAllowed struct {
	id    string // of the session
	input uint64 // what had been typed when it was asked for
	list  []runtime.Grant
	err   error
}

// chatForgot comes when something of that was to be taken back. What was is an event of the session.
type chatForgot struct{ err error }

// allOfThem is what is chosen to take back all.
const allOfThem = ""

// awaits reports whether who asked for a list, when that much had been typed, still waits for it. A list that comes late opens
// under nobody's hands: who has typed since does something else, and the next Enter is meant for that.
func (m *chatModel) awaits(input uint64) bool { return m.picker == nil && input == m.inputs }

// offerAllowed shows what the session's agent was always allowed, to take one of it back.
func (m *chatModel) offerAllowed(msg chatAllowed) {
	if msg.id != m.session.id {
		return // another one is open by now
	}
	if msg.err != nil {
		m.note("list what is always allowed: " + msg.err.Error())
		return
	}
	if !m.awaits(msg.input) {
		return
	}
	p := &chatPicker{title: "Always allowed: Enter takes back", take: func(id string) tea.Cmd { return m.session.forget(msg.id, id) }}
	revocable := 0
	for _, g := range msg.list {
		p.items = append(p.items, chatItem{g.ID, cmdline.OneLine(g.Title), ""})
		if g.Revocable {
			revocable++
		} else {
			p.items[len(p.items)-1].no = "it cannot be taken back: " + cmdline.OneLine(g.Reason)
		}
	}
	if len(p.items) == 0 {
		m.note("nothing is always allowed in this session")
		return
	}
	if revocable > 1 {
		p.items = append(p.items, chatItem{allOfThem, "all of them", ""})
	}
	m.picker = p
}

// allowedBound is how long the gateway may take to list what is allowed. To take it back an agent may have to end.
const allowedBound = 10 * time.Second

// allowed asks for what the session's agent was always allowed. input is what has been typed so far.
func (c *chatSession) allowed(input uint64) tea.Cmd {
	id := c.id
	return func() tea.Msg {
		api, err := c.target.client()
		if err != nil {
			return chatAllowed{id: id, input: input, err: err}
		}
		ctx, cancel := context.WithTimeout(c.ctx, allowedBound)
		defer cancel()
		list, err := api.Permissions(ctx, id)
		return chatAllowed{id, input, list, err}
	}
}

// forget takes a grant of a session back, or all.
func (c *chatSession) forget(session, grant string) tea.Cmd {
	return func() tea.Msg {
		api, err := c.target.client()
		if err != nil {
			return chatForgot{err}
		}
		ctx, cancel := context.WithTimeout(c.ctx, agentTimeout)
		defer cancel()
		if grant == allOfThem {
			_, err = api.ForgetPermissions(ctx, session)
		} else {
			_, err = api.ForgetPermission(ctx, session, grant)
		}
		return chatForgot{err}
	}
}
