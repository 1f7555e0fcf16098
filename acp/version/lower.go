package version

import (
	"encoding/json"
	"strings"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
)

// update takes an update of the agent.
func (a *Agent) update(m *acp.Message, out []acp.Message) []acp.Message {
	token := string(m.SessionRaw())
	s := a.session(token)
	if root, child := a.roots[token]; child {
		return a.ofChild(s, m, root, out)
	}
	row, known := seconds[string(m.UpdateKind())]
	if !known || row.lower == nil {
		return append(out, *m)
	}
	switch string(m.UpdateKind()) {
	case "agent_message_chunk", "agent_message", "agent_thought_chunk", "agent_thought", "tool_call_update", "tool_call_content_chunk", "plan_update":
		s.shown = true
	}
	return row.lower(a, s, m, out)
}

// secondRow is how an update of version 2 is told in version 1.
type secondRow struct {
	to, note string
	lower    func(a *Agent, s *spoken, m *acp.Message, out []acp.Message) []acp.Message // nil passes it on
}

const (
	noteRevised = "content that goes on with what was shown is shown as what is new of it; content that replaces it is a message of its own, whose `_meta[\"sandboxagent.dev\"].replaces` is the id"
	noteCall    = "`tool_call` for the first of a call; `cancelled` is `failed`, `paused` and what is unknown `in_progress`, kinds that are unknown are `other`; a patch becomes a diff for each of its hunks, a terminal its output; lists that are cleared are empty, other fields stay"
)

// seconds are the updates of version 2. Others are passed on. It is filled by init, as the
// functions read it.
var seconds map[string]secondRow

func init() {
	seconds = map[string]secondRow{
		"user_message_chunk":        {"user_message_chunk", "the words of a prompt of the gateway's are left out, which it shows itself", (*Agent).chunk},
		"agent_message_chunk":       {"agent_message_chunk", "", (*Agent).chunk},
		"agent_thought_chunk":       {"agent_thought_chunk", "", (*Agent).chunk},
		"user_message":              {"user_message_chunk", noteRevised, (*Agent).message},
		"agent_message":             {"agent_message_chunk", noteRevised, (*Agent).message},
		"agent_thought":             {"agent_thought_chunk", noteRevised, (*Agent).message},
		"state_update":              {acp.MethodSessionPrompt, "`idle` with a `stopReason` is the result of the prompt, one that is unknown `end_turn`, and `error` its error; what goes on in the background is not told", (*Agent).state},
		"tool_call_update":          {"tool_call, tool_call_update", noteCall, (*Agent).call},
		"tool_call_content_chunk":   {"tool_call_update", "all content so far: when it has doubled, with the call's next update, and at the turn's end; of a session at most 8 MiB, and 1 MiB of a call", (*Agent).callChunk},
		"terminal_update":           {"tool_call_update", "the content of the calls that show the terminal, as above; a terminal that no call shows is not shown", (*Agent).terminal},
		"terminal_output_chunk":     {"tool_call_update", "as above; of a long output the end", (*Agent).terminal},
		"plan_update":               {"plan", "the plan that was told of last; a text or a file is its only entry", (*Agent).planUpdate},
		"plan_removed":              {"plan", "without entries", (*Agent).planRemoved},
		"available_commands_update": {"available_commands_update", "", nil},
		"config_option_update":      {"config_option_update, current_mode_update", "`configId` is `id`, `groupId` is `group`; options that are neither `select` nor `boolean` are left out; the option for modes is the modes, too", (*Agent).configUpdate},
		"session_info_update":       {"session_info_update", "", nil},
		"usage_update":              {"usage_update", "", nil},
		"notice":                    {"notice, agent_thought_chunk", "a thought for clients that do not announce `session.notices`, if it is a warning or an error", nil},
		"compaction_update":         {"compaction_update, agent_thought_chunk", "its end as a thought for clients that do not announce `session.compaction`", nil},
		"compaction_summary_chunk":  {"compaction_summary_chunk", "not for clients that do not announce `session.compaction`", nil},
		"subagent_update":           {"tool_call, tool_call_update", "a child is a call, whose content is what the child says; its calls have the call as their `_meta[\"sandboxagent.dev\"].parentToolCallId`, and what it asks is asked in the session", (*Agent).subagent},
		"session_message":           {"", "what sessions say to each other is not told", (*Agent).secondOnly},
		"session_message_chunk":     {"", "as above", (*Agent).secondOnly},
	}
}

func (a *Agent) state(s *spoken, m *acp.Message, out []acp.Message) []acp.Message {
	return s.state(m, out)
}

// secondOnly tells clients of version 2 alone.
func (a *Agent) secondOnly(_ *spoken, m *acp.Message, out []acp.Message) []acp.Message {
	return append(out, m.For(Two, nil))
}

func textBlock(text string) []byte {
	return rawjson.Object{}.String("type", "text").String("text", text).End()
}

// planUpdate shows the plan that was told of last as the one plan of version 1.
func (*Agent) planUpdate(s *spoken, m *acp.Message, out []acp.Message) []acp.Message {
	plan, _ := rawjson.Member(m.Update(), "plan")
	s.plan = rawjson.MemberString(plan, "planId")
	entries := array(nil)
	switch rawjson.MemberString(plan, "type") {
	case "items":
		if given, ok := rawjson.Member(plan, "entries"); ok && given[0] == '[' {
			entries = list(given, lowerEntry)
		}
	case "markdown":
		entries = singleEntry(rawjson.MemberString(plan, "content"))
	case "file":
		entries = singleEntry(rawjson.MemberString(plan, "uri"))
	}
	update := rawjson.Object{}.String("sessionUpdate", "plan").Raw("entries", entries)
	return append(out, m.For(Two, nil), one(s.token, withMeta(update, m.Update()).End()))
}

func singleEntry(text string) json.RawMessage {
	return array([]json.RawMessage{rawjson.Object{}.String("content", text).String("priority", "medium").String("status", "in_progress").End()})
}

// lowerEntry returns an entry of a plan with values that version 1 has.
func lowerEntry(e json.RawMessage) json.RawMessage {
	switch rawjson.MemberString(e, "status") {
	case "pending", "in_progress", "completed":
	case "cancelled":
		e = rawjson.SetMember(e, []byte(`"completed"`), "status")
	default:
		e = rawjson.SetMember(e, []byte(`"pending"`), "status")
	}
	switch rawjson.MemberString(e, "priority") {
	case "high", "medium", "low":
	default:
		e = rawjson.SetMember(e, []byte(`"medium"`), "priority")
	}
	return e
}

func (*Agent) planRemoved(s *spoken, m *acp.Message, out []acp.Message) []acp.Message {
	out = append(out, m.For(Two, nil))
	if id := rawjson.MemberString(m.Update(), "planId"); id != s.plan {
		return out
	}
	s.plan = ""
	return append(out, one(s.token, []byte(`{"sessionUpdate":"plan","entries":[]}`)))
}

func (a *Agent) configUpdate(s *spoken, m *acp.Message, out []acp.Message) []acp.Message {
	out = append(out, m.For(Two, nil))
	options, ok := rawjson.Member(m.Update(), "configOptions")
	if !ok || options[0] != '[' {
		return out
	}
	mode := s.mode
	s.noteOptions(options)
	if s.mode != mode && s.mode != "" {
		out = append(out, one(s.token, rawjson.Object{}.String("sessionUpdate", "current_mode_update").String("currentModeId", s.mode).End()))
	}
	update := rawjson.Object{}.String("sessionUpdate", "config_option_update").Raw("configOptions", lowerOptions(options))
	return append(out, one(s.token, withMeta(update, m.Update()).End()))
}

// subagent introduces a child of the session, or tells how it does.
func (a *Agent) subagent(s *spoken, m *acp.Message, out []acp.Message) []acp.Message {
	return append(a.noteChild(s, m, s.token, out), m.For(Two, nil))
}

// subagentID begins the ids of the calls that show children.
const subagentID = "sa.subagent."

// EndsChild returns what clients of version 2 are told when the call with the id, which shows
// version 1 a child, a call of a child or what it is asked about, has ended because nobody works
// on it: nothing of what they were not told of. ok is false for a call that both versions have.
func EndsChild(id string, children []Subagent, told func(child, call string) bool) (frames [][]byte, ok bool) {
	var child *Subagent
	for i := range children {
		c := &children[i]
		if strings.HasPrefix(c.Call, subagentID) && (id == c.Call || strings.HasPrefix(id, c.Call+".")) && (child == nil || len(c.Call) > len(child.Call)) {
			child = c
		}
	}
	if child == nil {
		return nil, strings.HasPrefix(id, askedID)
	}
	says := func(session string, update rawjson.Object) []byte {
		n := acp.NewNotification(acp.MethodSessionUpdate, rawjson.Object{}.String("sessionId", session).Raw("update", update.End()).End())
		return n.Frame()
	}
	if id != child.Call {
		call := strings.TrimPrefix(id, child.Call+".")
		if !told(child.ID, call) {
			return nil, true
		}
		return [][]byte{says(child.ID, rawjson.Object{}.String("sessionUpdate", "tool_call_update").String("toolCallId", call).String("status", "failed"))}, true
	}
	ended := rawjson.Object{}.String("state", "idle").String("stopReason", "error").Raw("error", []byte(childLost))
	state := rawjson.Object{}.String("sessionUpdate", "state_update").String("state", "idle").String("stopReason", "error").Raw("error", []byte(childLost))
	return [][]byte{
		says(child.ID, state),
		says(child.Parent, rawjson.Object{}.String("sessionUpdate", "subagent_update").String("sessionId", child.ID).Raw("state", ended.End())),
	}, true
}

// childLost is the error of a child that has failed, or that nobody works for any more.
const childLost = `{"code":-32603,"message":"the subagent has failed, or was ended"}`

// askedID begins the ids of the calls that show version 1 what it is asked about where that is
// no call in version 2.
const askedID = "sa.asked."

// noteChild shows a child as a call of the session whose token root is.
func (a *Agent) noteChild(s *spoken, m *acp.Message, root string, out []acp.Message) []acp.Message {
	id, ok := rawjson.Member(m.Update(), "sessionId")
	if !ok || id[0] != '"' || string(id) == root {
		return out
	}
	token := string(id)
	if _, known := a.roots[token]; !known {
		if len(a.roots) >= maxChildren {
			return out
		}
		a.roots[token] = root
		child := a.session(token)
		child.child, child.parent = subagentID+rawjson.Unquote(id), s
	}
	child := a.session(token)
	call := rawjson.Object{}.String("toolCallId", child.child)
	if title, ok := rawjson.Member(m.Update(), "title"); ok && title[0] == '"' {
		call = call.Raw("title", title)
	} else if s.calls.byID[child.child] == nil {
		call = call.String("title", "Subagent")
	}
	if s.calls.byID[child.child] == nil {
		about := rawjson.Object{}.Raw("subagent", rawjson.Object{}.Raw("sessionId", id).End())
		if s.child != "" {
			about = about.String("parentToolCallId", s.child)
		}
		call = call.String("kind", "other").Raw("_meta", rawjson.Object{}.Raw(acp.MetaKey, about.End()).End())
	}
	state, _ := rawjson.Member(m.Update(), "state")
	if status := statusOf(state); status != "" {
		call = call.String("status", status)
	}
	return s.lowerCall(call.End(), root, out)
}

// statusOf returns the status of the call that shows a child in the state.
func statusOf(state json.RawMessage) string {
	switch rawjson.MemberString(state, "state") {
	case "running", "requires_action":
		return "in_progress"
	case "idle":
		switch rawjson.MemberString(state, "stopReason") {
		case "error", "cancelled", "refusal":
			return "failed"
		}
		return "completed"
	}
	return ""
}

// ofChild takes an update of a child of the session that root names. Clients of version 2
// see it as it is.
func (a *Agent) ofChild(s *spoken, m *acp.Message, root string, out []acp.Message) []acp.Message {
	first := len(out)
	switch kind := string(m.UpdateKind()); kind {
	case "agent_message_chunk":
		if content, ok := rawjson.Member(m.Update(), "content"); ok {
			out = a.childSays(s, content, root, out)
		}
	case "agent_message":
		content, _ := rawjson.Member(m.Update(), "content")
		for _, block := range rawjson.Elements(content) {
			out = a.childSays(s, block, root, out)
		}
	case "tool_call_update":
		out = s.lowerCall(m.Update(), root, out)
	case "tool_call_content_chunk":
		out = s.lowerCallChunk(m.Update(), root, out)
	case "terminal_update", "terminal_output_chunk":
		out = s.lowerTerminal(m.Update(), root, out)
	case "subagent_update":
		out = a.noteChild(s, m, root, out)
	case "state_update":
		if status := statusOf(m.Update()); status != "" {
			if status != "in_progress" {
				out = s.leave(m.Update(), root, s.flushTo(root, out))
			}
			call := rawjson.Object{}.String("toolCallId", s.child).String("status", status).End()
			out = s.parent.lowerCall(call, root, out)
		}
	}
	for i := range out[first:] {
		out[first+i] = out[first+i].For(One, nil)
	}
	return append(out, m.For(Two, []byte(root)))
}

// childSays adds what a child says to the call that shows it.
func (*Agent) childSays(s *spoken, block json.RawMessage, root string, out []acp.Message) []acp.Message {
	content := rawjson.Object{}.String("type", "content").Raw("content", block).End()
	update := rawjson.Object{}.String("toolCallId", s.child).Raw("content", content).End()
	return s.parent.lowerCallChunk(update, root, out)
}

// chunkOf is a piece of a message of version 1.
func chunkOf(role, id, replaces string, block []byte) []byte {
	o := rawjson.Object{}.String("sessionUpdate", role+"_chunk").Raw("content", block)
	if id != "" {
		o = o.String("messageId", id)
	}
	if replaces != "" {
		o = o.Raw("_meta", rawjson.Object{}.Raw(acp.MetaKey, rawjson.Object{}.String("replaces", replaces).End()).End())
	}
	return o.End()
}

// roleOf is the role of a message, by the kind of its update.
func roleOf(kind string) string { return strings.TrimSuffix(kind, "_chunk") }
