package version

import (
	"encoding/json"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
)

// Ask returns a request of an agent as version 2 has it. The view may be nil for a
// request of no session.
func (v *View) Ask(m *acp.Message) []byte {
	switch m.Method() {
	case acp.MethodSessionRequestPermission:
		r := acp.NewRequest(m.ID(), m.Method(), v.permission(m.Params()))
		return r.Frame()
	case acp.MethodElicitationCreate:
		r := acp.NewRequest(m.ID(), m.Method(), v.elicitation(m.Params()))
		return r.Frame()
	}
	return m.Frame()
}

// original is where a request that was said in version 1 for an agent of version 2 has
// what the agent said: the members of its params that were changed.
var original = []string{"_meta", acp.MetaKey, "version2"}

// restored returns the params of a request as the agent of version 2 said them, and false
// for one of version 1.
func restored(params json.RawMessage) (json.RawMessage, bool) {
	said, ok := rawjson.Member(params, original...)
	if !ok || said[0] != '{' {
		return params, false
	}
	params = withoutOwn(params, original[len(original)-1])
	params = rawjson.DeleteMember(params, "toolCall")
	members(said, func(name, value json.RawMessage) {
		params = rawjson.SetMember(params, value, rawjson.Unquote(name))
	})
	return params, true
}

func (v *View) permission(params json.RawMessage) json.RawMessage {
	if said, ok := restored(params); ok {
		return said
	}
	call, given := rawjson.Member(params, "toolCall")
	given = given && call[0] == '{'
	title := rawjson.MemberString(call, "title")
	if title == "" && v != nil {
		title = v.titles[rawjson.MemberString(call, "toolCallId")]
	}
	if title == "" {
		title = "Permission is needed"
	}
	if v != nil {
		params = v.ofAsker(params)
	}
	params = rawjson.DeleteMember(params, "toolCall")
	params = rawjson.SetMember(params, rawjson.AppendQuoted(nil, title), "title")
	if given {
		if v != nil {
			call = v.raiseCall(call)
		}
		subject := rawjson.Object{}.String("type", "tool_call").Raw("toolCall", call)
		params = rawjson.SetMember(params, subject.End(), "subject")
	}
	return params
}

// elicitation fills in what version 1 may leave out.
func (v *View) elicitation(params json.RawMessage) json.RawMessage {
	if said, ok := restored(params); ok {
		return said
	}
	if v != nil {
		params = v.ofAsker(params)
	}
	form, ok := rawjson.Member(params, "requestedSchema")
	if !ok || form[0] != '{' {
		return params
	}
	if _, ok := rawjson.Member(form, "type"); !ok {
		params = rawjson.SetMember(params, []byte(`"object"`), "requestedSchema", "type")
	}
	if _, ok := rawjson.Member(form, "properties"); !ok {
		params = rawjson.SetMember(params, []byte("{}"), "requestedSchema", "properties")
	}
	return params
}

// Answer returns what a client of version 2 answered to a request with the given method
// and params as version 1 has it. What is no approval there is none here: an outcome that
// is unknown, or an option that was not offered, is cancelled.
func Answer(method string, params json.RawMessage, m *acp.Message) acp.Message {
	switch method {
	case acp.MethodSessionRequestPermission:
		if m.Result() != nil && !offered(params, m.Result()) {
			return acp.NewResult(m.ID(), []byte(`{"outcome":{"outcome":"cancelled"}}`))
		}
	case acp.MethodElicitationCreate:
		switch rawjson.MemberString(m.Result(), "action") {
		case "accept", "decline", "cancel":
		default:
			if m.Result() != nil {
				return acp.NewResult(m.ID(), []byte(`{"action":"cancel"}`))
			}
		}
	}
	return *m
}

func offered(params, result json.RawMessage) bool {
	switch rawjson.MemberString(result, "outcome", "outcome") {
	case "cancelled":
		return true
	case "selected":
	default:
		return false
	}
	chosen, ok := rawjson.Member(result, "outcome", "optionId")
	options, _ := rawjson.Member(params, "options")
	for _, o := range rawjson.Elements(options) {
		if id, has := rawjson.Member(o, "optionId"); ok && has && chosen[0] == '"' && id[0] == '"' && rawjson.Unquote(id) == rawjson.Unquote(chosen) {
			return true
		}
	}
	return false
}
