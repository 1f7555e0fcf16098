package main

import (
	"cmp"
	"encoding/json"
	"strconv"
	"strings"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	acpversion "sandboxagent.dev/sandbox-agent/acp/version"
)

// chatOwn is a prompt of this chat that was sent and has not ended. Until its turn begins, as far as is known, others
// may be before it: it is shown below the conversation, and while another's turn runs as one that waits.
type chatOwn struct {
	*chatEntry
	request   acp.ID // "" before it is sent
	forget    func() // ends to wait for its end
	begun     bool   // its turn, which the conversation shows
	cancelled bool   // by who has written it
	shown     bool   // in version 2: the gateway has shown a prompt with these words
	lost      bool   // in version 1: the connection was lost, or the session left, and the new one may be shown the prompt
}

// chatSent comes before the answer to a prompt.
type chatSent struct {
	own *chatOwn
	id  acp.ID
}

// drop ends to wait for a turn that has ended where nobody told how. One that has not begun is waited for: it is not lost.
func (o *chatOwn) drop() {
	if o.begun {
		o.forget()
	}
}

// waits reports whether the own prompt was sent, and its turn has not begun.
func (m *chatModel) waits() bool { return m.own != nil && !m.own.begun }

// began puts the own prompt into the conversation.
func (m *chatModel) began() {
	if !m.waits() {
		return
	}
	if !m.own.shown {
		m.entries = append(m.entries, m.own.chatEntry)
	}
	m.own.begun = true
}

// works is called for what an agent does in a turn: in version 1 this is the first that is told of
// the own turn.
func (m *chatModel) works() {
	if m.o.acp != acpversion.Two && !m.busy {
		m.began()
	}
}

// promptAnswered takes an answer, if it is that to a prompt: in version 1 the turn is over, in
// version 2 it has begun, and the prompt was shown.
func (m *chatModel) promptAnswered(id acp.ID, res json.RawMessage) {
	begins := rawjson.MemberString(res, "messageId") != ""
	for _, own := range m.away {
		own.begun = own.begun || begins && own.request == id
	}
	if m.own == nil || m.own.request != id {
		return
	}
	if begins {
		m.own.begun = true
		return
	}
	switch reason := rawjson.MemberString(res, "stopReason"); {
	case reason == "", !acp.TurnBegan(res), m.waits() && m.busy && reason == "cancelled": // it never began
	default:
		m.began()
		m.turnOver()
		m.busy = false
	}
}

// notePrompt keeps prompts apart to which nothing was said: the pieces of one follow each other
// in the log.
func (m *chatModel) notePrompt(f acp.Message) {
	raw, _ := rawjson.Member(f.Meta(), acp.MetaKey, "seq")
	seq, err := strconv.ParseUint(string(raw), 10, 64)
	if err != nil {
		return
	}
	m.apart = m.apart || seq != m.words+1
	m.words = seq
}

// unbegun takes the end of a prompt that was behind another's turn. One that was cancelled with that
// waits again, unless the cancel was meant for it, too.
func (m *chatModel) unbegun(msg chatDone, cancelled bool) {
	m.own = nil
	switch {
	case msg.err != nil:
		m.takeBack(msg.text)
		m.noteEnd("", msg.err)
	case cancelled:
		m.takeBack(msg.text)
	default:
		m.queue = append([]string{msg.text}, m.queue...)
	}
}

// doneAway takes the end of a prompt in a session that was left. How its turn ended is seen there; what was written is
// not lost when there was none.
func (m *chatModel) doneAway(msg chatDone) {
	delete(m.away, msg.id)
	dropped := rawjson.MemberString(msg.result, "stopReason") == "cancelled"
	if m.o.acp == acpversion.Two {
		dropped = dropped && !msg.own.begun
	} else {
		dropped = dropped && !acp.TurnBegan(msg.result)
	}
	if dropped {
		m.takeBack(msg.text)
		m.note("a prompt was dropped before it began, in session " + msg.id + ": it is where you write")
	}
}

// turnOver keeps what follows apart from what was before.
func (m *chatModel) turnOver() { m.apart, m.plan = true, nil }

// othersEnd takes the end of a turn of another client.
func (m *chatModel) othersEnd(of json.RawMessage) {
	reason := cmp.Or(rawjson.MemberString(of, "stopReason"), rawjson.MemberString(of, "result", "stopReason"))
	var err error
	if raw, ok := rawjson.Member(of, "error"); ok {
		failure := &acp.Error{}
		if json.Unmarshal(raw, failure) == nil && failure.Code != acp.CodeCancelled {
			err = failure
		} else {
			reason = "cancelled"
		}
	}
	m.turnOver()
	m.noteEnd(reason, err)
}

// noteEnd says how a turn has ended, if that is worth a word.
func (m *chatModel) noteEnd(reason string, err error) {
	switch {
	case err != nil:
		r := describe(err)
		m.note("✗ " + strings.TrimSuffix(r.Title+": "+r.Detail, ": "))
	case reason != "end_turn" && reason != "":
		m.note("the turn ended: " + strings.ReplaceAll(reason, "_", " "))
	}
}
