package version

import (
	"encoding/json"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
)

// This file is what clients of version 1 are told that know subagents: those are sessions
// of their own, and all else is as it is.

// stepOne reads the next entry for such a client. In a replay it is told of past states,
// too: the last of them holds.
func (v *View) stepOne(e Entry, out *Frames) {
	switch e.Kind {
	case Echo:
		out.add(e.Frame)
		return
	case Update, First, Second, Ask, AskDone:
	default:
		return
	}
	var err error
	if v.m, err = acp.Parse(e.Frame); err != nil {
		return
	}
	m := &v.m
	switch e.Kind {
	case Second:
		v.secondOne(m, out)
	case Ask:
		v.childAsks(m, false, out)
	case AskDone:
		raw, _ := rawjson.Member(m.Params(), "requestId")
		id, _ := acp.ID(raw).Int()
		v.childAnswered(id, false, out)
	default:
		if kind := string(m.UpdateKind()); kind != "tool_call" && kind != "tool_call_update" {
			if frame := v.knows.Tell(e.Frame); frame != nil {
				out.add(frame)
			}
			return
		}
		v.call(e, m, false, out, func(m *acp.Message, home *child) {
			if home == nil {
				out.add(m.Frame())
				return
			}
			before, after := m.SplitSession()
			out.add(before, home.token, after)
		})
	}
}

// secondOne passes on what a child of an agent of version 2 says, where version 1 says it
// in the same words. Its calls, and how it does, come in version 1 by themselves.
func (v *View) secondOne(m *acp.Message, out *Frames) {
	token := string(m.SessionRaw())
	if token == string(v.session) || token == "" {
		return
	}
	kind := string(m.UpdateKind())
	switch kind {
	case "user_message_chunk", "agent_message_chunk", "agent_thought_chunk", "session_message", "session_message_chunk":
		v.begin(m, kind, false, out)
		out.add(m.Frame())
	case "user_message", "agent_message", "agent_thought":
		v.wholeOne(m, kind, out)
	}
}

// wholeOne passes on a message of a child that comes as a whole, unless pieces of it came
// before: version 1 cannot replace a message.
func (v *View) wholeOne(m *acp.Message, kind string, out *Frames) {
	content, _ := rawjson.Member(m.Update(), "content")
	blocks := rawjson.Elements(content)
	id, ok := rawjson.Member(m.Update(), "messageId")
	if len(blocks) == 0 || !ok || v.begun(m, kind, id) {
		return
	}
	before, after := m.SplitUpdate()
	for _, block := range blocks {
		update := rawjson.Object{}.String("sessionUpdate", kind+"_chunk").Raw("messageId", id).Raw("content", block)
		out.add(before, update.End(), after)
	}
}

// AskOne returns a request of an agent as a client of version 1 is given it that knows
// subagents: one of a subagent's is asked in its session.
func (v *View) AskOne(m *acp.Message) []byte {
	params := m.Params()
	child, ok := rawjson.Member(params, append(original, "sessionId")...)
	switch {
	case v == nil:
		return m.Frame()
	case ok && child[0] == '"' && v.announced(child):
		params = rawjson.SetMember(params, child, "sessionId")
	default:
		params = v.ofAsker(params)
	}
	if len(params) == len(m.Params()) && string(params) == string(m.Params()) {
		return m.Frame()
	}
	r := acp.NewRequest(m.ID(), m.Method(), params)
	return r.Frame()
}

// announced reports whether a subagent with the token of its id was told of.
func (v *View) announced(token json.RawMessage) bool {
	for _, c := range v.kids.order {
		if string(c.token) == string(token) {
			return c.announced
		}
	}
	return false
}
