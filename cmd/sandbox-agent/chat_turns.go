package main

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	acpversion "sandboxagent.dev/sandbox-agent/acp/version"
)

// A prompt of the chat waits to be sent, was sent, has begun, or has ended. One that waits is a text of the queue, and is
// of the session that is open: it is kept for that when it is left. One that was sent is a chatOwn, in the
// session that is open or in one that was left, until its end comes. never says whether there was a turn; when
// there was none, the text is in the queue again, in the input, or kept for the session.

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

// waits reports whether the own prompt was sent, and its turn has not begun.
func (m *chatModel) waits() bool { return m.own != nil && !m.own.begun }

// replays reports whether what comes is the conversation until now of the session that is awaited.
func (m *chatModel) replays() bool { return m.opening != nil && !m.opening.answered }

// recognize looks for the own prompt in the conversation that has come, in version 1: its turn is the newest one. Older
// prompts with these words are others. In version 2 the answer to it tells.
func (m *chatModel) recognize() {
	if m.waits() && m.o.acp != acpversion.Two {
		m.own.begun = m.newest(m.own)
	}
}

// newest reports whether the newest prompt of the conversation has the words of one of this chat.
func (m *chatModel) newest(own *chatOwn) bool {
	for _, e := range slices.Backward(m.entries) {
		if e.kind == "user" {
			return own != nil && e.text == own.text
		}
	}
	return false
}

// began puts the own prompt into the conversation. One that is told from its beginning has it.
func (m *chatModel) began() {
	if !m.waits() {
		return
	}
	if !m.own.shown && !m.replays() {
		m.entries = append(m.entries, m.own.chatEntry)
	}
	m.own.begun = true
}

// works is called for what an agent does in a turn: in version 1 this is the first that is told of
// the own turn.
func (m *chatModel) works() {
	if m.o.acp != acpversion.Two && !m.busy && !m.replays() {
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
		if m.busy = false; m.replays() {
			m.opening.ended = m.own
		}
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

// never reports whether a prompt has ended whose turn never began. What the end says counts more than what was seen: in
// version 1 another client's prompt may have had the same words.
func (m *chatModel) never(msg chatDone) bool {
	here := msg.own == m.own
	cancelled := rawjson.MemberString(msg.result, "stopReason") == "cancelled"
	switch {
	case msg.err != nil:
		return !msg.own.begun && (m.busy || !here) // else it was the first in line, and is shown
	case m.o.acp == acpversion.Two:
		return cancelled && !msg.own.begun
	}
	return !acp.TurnBegan(msg.result) || cancelled && here && m.waits() && m.busy
}

// unbegun takes the end of a prompt whose turn never began. One that was cancelled with another's turn waits again,
// unless the cancel was meant for it, too.
func (m *chatModel) unbegun(msg chatDone) {
	cancelled := m.own.cancelled
	m.own = nil
	if msg.err == nil && !cancelled && !m.over && m.gone == nil {
		m.queue = append([]string{msg.text}, m.queue...)
		return
	}
	m.takeBack(msg.text)
	m.noteEnd("", msg.err)
}

// doneAway takes the end of a prompt in a session that was left. How its turn ended is seen there; what was written is
// not lost when there was none, and not put into what is being written for another session.
func (m *chatModel) doneAway(msg chatDone) {
	if m.away[msg.id] == msg.own {
		delete(m.away, msg.id)
	}
	if !m.never(msg) {
		return
	}
	what := "a prompt that did not begin"
	if msg.err != nil {
		m.note("session " + msg.id + ": " + wentWrong(msg.err))
		if m.o.acp != acpversion.Two { // there a turn is told to who is in its session
			what = "a prompt that failed, and may have begun,"
		}
	}
	if msg.id == m.session.id {
		m.takeBack(msg.text)
		return
	}
	m.keep(msg.id, what, msg.text)
}

// keep has texts that were for a session where they are written when that is gone to.
func (m *chatModel) keep(session, what string, texts ...string) {
	if session == "" { // nobody can go there
		m.takeBack(texts...)
		return
	}
	text := strings.Join(texts, "\n")
	m.kept[session] = strings.TrimSpace(m.kept[session] + "\n" + text)
	m.note(what + " in session " + session + " is where you write when you go there: " + text)
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
		m.note(wentWrong(err))
	case reason != "end_turn" && reason != "":
		m.note("the turn ended: " + strings.ReplaceAll(reason, "_", " "))
	}
}

// wentWrong is what is said of an error.
func wentWrong(err error) string {
	r := describe(err)
	return "✗ " + strings.TrimSuffix(r.Title+": "+r.Detail, ": ")
}
