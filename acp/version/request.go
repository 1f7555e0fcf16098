package version

import (
	"encoding/json"
	"strings"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
)

// The methods that version 1 does not have, or has by another name.
const (
	MethodAuthLogin      = "auth/login"
	MethodAuthLogout     = "auth/logout"
	MethodToolCallCancel = "tool_call/cancel"
	MethodTerminalCancel = "terminal/cancel"
)

// Request returns a request or notification of a client of version 2 as version 1 has it,
// or why it cannot be carried out. session/set_config_option may be about the session's
// modes; see [SetMode].
func Request(m *acp.Message) (acp.Message, *acp.Error) {
	if m.IsRequest() && !validID(m.ID()) {
		return acp.Message{}, errID
	}
	row, known := methods[m.Method()]
	if !known {
		return *m, nil
	}
	if row.lower == nil {
		return acp.Message{}, acp.Errorf(acp.CodeMethodNotFound, "%s", row.Note)
	}
	name, params, err := row.lower(m.Params())
	if err != nil {
		return acp.Message{}, err
	}
	if m.IsNotification() {
		return acp.NewNotification(name, params), nil
	}
	return acp.NewRequest(m.ID(), name, params), nil
}

// CancelOfCall returns terminal/cancel of a terminal that a call of version 1 has as
// tool_call/cancel of the call, and other messages as they are.
func CancelOfCall(m *acp.Message) acp.Message {
	terminal := rawjson.MemberString(m.Params(), "terminalId")
	call, ok := strings.CutPrefix(terminal, terminalPrefix)
	if m.Method() != MethodTerminalCancel || !m.IsRequest() || !ok {
		return *m
	}
	params := rawjson.SetMember(rawjson.DeleteMember(m.Params(), "terminalId"), rawjson.AppendQuoted(nil, call), "toolCallId")
	return acp.NewRequest(m.ID(), MethodToolCallCancel, params)
}

// Result returns the result of a request, which had the given method in version 1, as
// version 2 has it. options and modes are those of the session it is about, if the result
// does not say.
func Result(method string, result, options, modes json.RawMessage) json.RawMessage {
	switch method {
	case acp.MethodSessionNew, acp.MethodSessionLoad, acp.MethodSessionResume, acp.MethodSessionFork:
		options, _ := rawjson.Member(result, "configOptions")
		modes, _ := rawjson.Member(result, "modes")
		result = rawjson.DeleteMember(result, "modes")
		return rawjson.SetMember(result, Options(options, modes), "configOptions")
	case acp.MethodSessionSetConfigOption, acp.MethodSessionSetMode:
		if own, ok := rawjson.Member(result, "configOptions"); ok {
			options = own
		}
		return rawjson.SetMember(result, Options(options, modes), "configOptions")
	}
	return result
}

// Reply returns a response to a client of version 2, in version 1 to a request with
// the given method there, as version 2 has it.
func Reply(method string, m *acp.Message, options, modes json.RawMessage) []byte {
	if m.Result() == nil {
		return m.Frame()
	}
	if method == acp.MethodSessionPrompt { // one that has begun was answered then
		r := acp.NewError(m.ID(), acp.Errorf(acp.CodeCancelled, "the prompt was cancelled before it began"))
		return r.Frame()
	}
	r := acp.NewResult(m.ID(), Result(method, m.Result(), options, modes))
	return r.Frame()
}

// lower says how a request or notification is said in version 1.
type lower func(params json.RawMessage) (method string, _ json.RawMessage, _ *acp.Error)

func renamed(method string) lower {
	return func(params json.RawMessage) (string, json.RawMessage, *acp.Error) { return method, params, nil }
}

func lowerSetup(method string) lower {
	return func(params json.RawMessage) (string, json.RawMessage, *acp.Error) {
		params, err := lowerServers(params)
		return method, params, err
	}
}

func lowerResume(params json.RawMessage) (string, json.RawMessage, *acp.Error) {
	method := acp.MethodSessionResume
	if from, ok := rawjson.Member(params, "replayFrom"); ok && string(from) != "null" {
		if kind := rawjson.MemberString(from, "type"); kind != "start" {
			return "", nil, acp.Errorf(acp.CodeInvalidParams, "params.replayFrom has a type that is unknown: %q; send start, or leave it out", kind)
		}
		method = acp.MethodSessionLoad
	}
	params, err := lowerServers(rawjson.DeleteMember(params, "replayFrom"))
	return method, params, err
}

// lowerServers returns params whose MCP servers are as version 1 has them.
func lowerServers(params json.RawMessage) (json.RawMessage, *acp.Error) {
	servers, ok := rawjson.Member(params, "mcpServers")
	if !ok || string(servers) == "null" {
		if len(params) == 0 || params[0] != '{' {
			return params, nil
		}
		return rawjson.SetMember(params, []byte("[]"), "mcpServers"), nil
	}
	var bad *acp.Error
	lowered := list(servers, func(s json.RawMessage) json.RawMessage {
		fill := func(name string) {
			if v, ok := rawjson.Member(s, name); !ok || string(v) == "null" {
				s = rawjson.SetMember(s, []byte("[]"), name)
			}
		}
		switch kind := rawjson.MemberString(s, "type"); kind {
		case "stdio":
			s = rawjson.DeleteMember(s, "type")
			fill("args")
			fill("env")
		case "http":
			fill("headers")
		case "acp":
		default:
			bad = acp.Errorf(acp.CodeInvalidParams, "params.mcpServers has the transport %q, which is not supported: use stdio or http", kind).
				WithData(map[string]string{"type": kind})
		}
		return s
	})
	return rawjson.SetMember(params, lowered, "mcpServers"), bad
}

func lowerSetOption(params json.RawMessage) (string, json.RawMessage, *acp.Error) {
	value, ok := rawjson.Member(params, "value")
	bad := ""
	switch kind := rawjson.MemberString(params, "type"); {
	case !ok:
		bad = "params.value is missing"
	case kind == "id" && value[0] != '"':
		bad = "params.value must be a string, as params.type is id"
	case kind == "id":
		params = rawjson.DeleteMember(params, "type")
	case kind == "boolean" && value[0] != 't' && value[0] != 'f':
		bad = "params.value must be true or false, as params.type is boolean"
	case kind == "boolean":
	default:
		bad = "params.type must be id or boolean"
	}
	if bad != "" {
		return "", nil, acp.Errorf(acp.CodeInvalidParams, "%s", bad)
	}
	return acp.MethodSessionSetConfigOption, params, nil
}

// lowerCancel refuses to cancel a single call or terminal: no agent of version 1 can do
// it, so no call or terminal says that it can be.
func lowerCancel(field, what string) lower {
	return func(params json.RawMessage) (string, json.RawMessage, *acp.Error) {
		id := rawjson.MemberString(params, field)
		return "", nil, acp.Errorf(acp.CodeInvalidParams, "%s %q is unknown or cannot be cancelled by itself: send session/cancel", what, id).
			WithData(map[string]string{field: id})
	}
}
