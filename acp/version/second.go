package version

import (
	"encoding/json"
	"hash/maphash"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
)

// This file is how clients of version 2 are told what an agent of version 2 has said: as
// it was said.

// second passes on what the agent said. Past states are left out of a replay, and what
// comes in pieces begins empty there. A state that was told is not told again.
func (v *View) second(m *acp.Message, history bool, out *Frames) {
	kind := string(m.UpdateKind())
	own := string(m.SessionRaw()) == string(v.session)
	switch {
	case kind == "state_update" && own:
		v.closeMessage()
		v.stateSaid(m, history, out)
		return
	case kind == "state_update":
		v.liveOnly(Entry{}, m, history, out)
		return
	case kind == "subagent_update":
		v.subagent(Entry{}, m, history, out)
		return
	}
	if own {
		v.closeMessage()
		if kind == "tool_call_update" {
			v.noteCall(m.Update())
		}
	}
	v.begin(m, kind, history, out)
	out.add(m.Frame())
}

// stateSaid takes the state that the agent tells of. The turn's end is told once: here,
// or with the end of the prompt where the agent says none.
func (v *View) stateSaid(m *acp.Message, history bool, out *Frames) {
	update := m.Update()
	state := rawjson.MemberString(update, "state")
	background, _ := rawjson.Member(update, "background")
	was := v.behind
	v.behind = nil
	if len(rawjson.Elements(background)) > 0 {
		v.behind = append(json.RawMessage(nil), background...)
	}
	reason, _ := rawjson.Member(update, "stopReason")
	ends := state == "idle" && v.turn.open && len(reason) > 0 && reason[0] == '"'
	switch {
	case ends:
		v.turn, v.alone = turn{}, false
		clear(v.asks)
	case state == "idle":
		v.alone = false
	case !v.turn.open && (state == "running" || state == "requires_action"):
		v.alone = true
	}
	again := v.told == state && !ends && string(was) == string(v.behind) && !saysMore(update)
	if v.told = state; !history && !again {
		out.add(m.Frame())
	}
}

// saysMore reports whether a state update has more than a state and what is in the
// background.
func saysMore(update json.RawMessage) (more bool) {
	members(update, func(name, value json.RawMessage) {
		switch string(name) {
		case `"sessionUpdate"`, `"state"`, `"background"`:
		default:
			more = more || string(value) != "null"
		}
	})
	return more
}

// piece is how a thing of version 2 that comes in pieces begins.
type piece struct {
	whole, id, content string // the update with all of it, and its members
	empty              string // the content
	more               string // what else the update must have, with a comma before it
}

// pieces are the updates that bring a piece of something.
var pieces = map[string]piece{
	"user_message_chunk":       {"user_message", "messageId", "content", "[]", ""},
	"agent_message_chunk":      {"agent_message", "messageId", "content", "[]", ""},
	"agent_thought_chunk":      {"agent_thought", "messageId", "content", "[]", ""},
	"session_message_chunk":    {"session_message", "messageId", "content", "[]", ""},
	"tool_call_content_chunk":  {"tool_call_update", "toolCallId", "content", "[]", ""},
	"terminal_output_chunk":    {"terminal_update", "terminalId", "output", `{"data":""}`, ""},
	"compaction_summary_chunk": {"compaction_update", "compactionId", "summary", "[]", `,"status":"in_progress"`},
}

// wholes are the members of updates that say all of something that comes in pieces, too.
var wholes = func() map[string]piece {
	out := map[string]piece{}
	for _, p := range pieces {
		out[p.whole] = p
	}
	return out
}()

// begin tells, in a replay, that something of which the first piece follows is empty: the
// client may have it already.
func (v *View) begin(m *acp.Message, kind string, history bool, out *Frames) {
	p, isPiece := pieces[kind]
	if !isPiece {
		whole, ok := wholes[kind]
		if !ok {
			return
		}
		if _, says := rawjson.Member(m.Update(), whole.content); !says {
			return
		}
		p = whole
	}
	id, ok := rawjson.Member(m.Update(), p.id)
	if !ok || id[0] != '"' {
		return
	}
	old := v.begun(m, p.whole, id)
	if old || !isPiece || !history {
		return
	}
	empty := rawjson.Object{}.String("sessionUpdate", p.whole).Raw(p.id, id).Raw(p.content, []byte(p.empty)).End()
	if p.more != "" {
		empty = append(append(empty[:len(empty)-1:len(empty)-1], p.more...), '}')
	}
	before, after := m.SplitUpdate()
	out.add(before, empty, after)
}

// begun notes that something with the id was told of, and reports whether it was before.
func (v *View) begun(m *acp.Message, whole string, id []byte) bool {
	// With its session: a child may use the same id.
	h := maphash.Bytes(v.hash, append(append(append([]byte(whole), m.SessionRaw()...), ' '), id...))
	if string(m.SessionRaw()) == string(v.session) { // as [View.chunk] knows messages
		h = maphash.Bytes(v.hash, append([]byte(whole), id...))
	}
	_, old := v.seen[h]
	v.seen[h] = struct{}{}
	return old
}
