package session

import (
	"cmp"
	"slices"

	"sandboxagent.dev/sandbox-agent/acp"
)

// This file is what of the machine ends work that waits, or goes on, in a session that stays open.

// emptyQueue ends as cancelled the turns that have not begun.
func (m *machine) emptyQueue() {
	queue := m.queue
	m.queue = nil
	for _, t := range queue {
		m.end(t, nil, nil)
	}
}

// cancel ends the turn: by the agent when it has the prompt, at once when it has not.
// What the agent does without a prompt is ended as well.
func (m *machine) cancel() {
	switch t := m.turn; {
	case t != nil && t.phase == waiting:
		m.end(t, nil, nil)
		m.proceed()
	case t != nil && m.link != nil:
		t.phase = cancelling
		m.do(effect{do: tellCancel, link: m.link})
		m.do(effect{do: answerPeople, link: m.link})
	case t == nil && m.hosting == serving && m.busyAlone():
		m.cancelAlone()
	}
}

// cancelAlone has the agent end what it does without a prompt. It says when it has ended that, if it has said that it works: a call without
// that may go on in the background, and what is asked for it is nobody else's.
func (m *machine) cancelAlone() {
	m.ending = m.alone
	m.do(effect{do: tellCancel, link: m.link})
	m.do(effect{do: answerPeople, link: m.link})
}

// runs reports whether the agent has a prompt.
func (m *machine) runs() bool { return m.turn != nil && m.turn.phase >= running }

// ends reports whether the agent was told to end what it does, and has not: what it asks people is on its way since before, or of that.
func (m *machine) ends() bool {
	return m.ending && !m.runs() || m.turn != nil && m.turn.phase == cancelling
}

// mayNotWork reports whether the agent is in the wrong mode, and without a prompt. Nobody else decides there what it may do.
func (m *machine) mayNotWork() bool { return m.astray && !m.runs() }

// worksAstray reports whether the agent has begun something by itself in the wrong mode, and was not told to end it.
func (m *machine) worksAstray() bool { return m.mayNotWork() && m.watch == nil && m.hasOpen() }

// hasOpen reports whether something of the agent's is open that it does.
func (m *machine) hasOpen() bool { return m.asks > 0 || m.calls > m.quiet || m.alone }

// rests is called where a turn has ended, or something of asks, calls and alone. An agent that has nothing open has ended what it was told to
// end: what it begins then is something else.
func (m *machine) rests() {
	m.ending = m.ending && m.alone
	if !m.runs() && !m.hasOpen() {
		m.watch = nil
	}
}

// busyAlone reports whether the agent does something without a prompt.
func (m *machine) busyAlone() bool { return m.hasOpen() || m.calls > 0 || m.working }

// cancelNamed is cancel for these prompts alone, and does nothing for those that are over. Those that wait go first: none of them begins.
func (m *machine) cancelNamed(names []string) {
	is := func(t *turn) bool { return t.named != nil && slices.Contains(names, t.named.id()) }
	var gone []*turn
	m.queue = slices.DeleteFunc(m.queue, func(t *turn) bool {
		if is(t) {
			gone = append(gone, t)
		}
		return is(t)
	})
	for _, t := range gone {
		m.end(t, nil, nil)
	}
	if m.turn != nil && is(m.turn) {
		m.cancel()
	}
}

// withdraw ends a turn that no agent has; of the one that an agent has, that decides.
func (m *machine) withdraw(t *turn) {
	if t.same != nil { // who asked twice
		if t = t.same.turn; t == nil {
			return
		}
	}
	switch t.phase {
	case queued:
		for i, q := range m.queue {
			if q == t {
				m.queue = append(m.queue[:i:i], m.queue[i+1:]...)
				m.end(t, nil, acp.Errorf(acp.CodeCancelled, "the prompt was cancelled before it began"))
				return
			}
		}
	case waiting:
		m.end(t, nil, nil)
		m.proceed()
	case running, cancelling:
		t.withdrawn = true
		m.do(effect{do: tellWithdrawn, turn: t, link: m.link})
	}
}

// stray is what follows where the agent is not in the mode that holds the session to what it may do, and is not to be set to it now. What
// it does there ends, and its process gets no more sessions: the next one opens the session, and is set to it before it gets a prompt. An
// agent that cannot open it again would forget all: it keeps it, and is set to its mode before it gets the next prompt. It keeps it no
// longer if it goes on with what it does there.
func (m *machine) stray(e event) {
	t := m.turn
	if e.stays {
		m.astray, m.setting = true, false
		switch {
		case t == nil || t.phase == running:
			m.cancel()
			if t != nil {
				t.strayed = e.err
			}
		case t.phase == waiting: // for that
			m.end(t, nil, e.err)
			if m.worksAstray() {
				m.cancelAlone()
			}
		}
		m.watchStray()
		m.proceed()
		return
	}
	if t != nil || m.busyAlone() {
		m.do(effect{do: tellCancel, link: m.link})
	}
	if t != nil {
		m.end(t, nil, e.err)
	}
	m.do(effect{do: failCalls, reason: "the agent is not in the mode that it must be in"})
	m.do(effect{do: retireProcess, link: m.link}) // it may not close the session, and goes on with what it does
	m.release()
	m.proceed()
}

// watchStray bounds what an agent goes on with in the wrong mode, that was told to end it.
func (m *machine) watchStray() {
	if m.watch == nil && (m.runs() || m.hasOpen()) {
		m.watch = new(straying)
		m.do(effect{do: watchStray, watch: m.watch})
	}
}

// unheeded is what follows where the bound has passed. What an agent has shown since is no proof that it goes on: it may be how it ended.
func (m *machine) unheeded(still bool) {
	m.watch = nil
	if m.life == open && (m.runs() || still && m.hasOpen()) {
		m.endUnheeded(nil)
	}
}

// endUnheeded is the end of what an agent does that takes no notice of a cancel. A turn that it was not given is for another process.
func (m *machine) endUnheeded(err error) {
	m.do(effect{do: failCalls, reason: "the agent did not end it when it was cancelled"})
	if t := m.turn; t != nil && t.phase >= running {
		m.end(t, nil, cmp.Or(err, t.strayed))
	}
	m.do(effect{do: retireProcess, link: m.link}) // it may be deaf to others, too
	if m.life == open {
		m.release()
	}
	m.proceed()
}
