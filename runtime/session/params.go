package session

import (
	"encoding/json"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
)

const (
	methodPrompt        = "session/prompt"
	methodCancel        = "session/cancel"
	methodClose         = "session/close"
	methodDelete        = "session/delete"
	methodNew           = "session/new"
	methodLoad          = "session/load"
	methodResume        = "session/resume"
	methodSetMode       = "session/set_mode"
	methodSetOption     = "session/set_config_option"
	methodUpdate        = "session/update"
	methodCancelRequest = "$/cancel_request"
)

// sessionParams are params that name a session and nothing else.
func sessionParams(id string) json.RawMessage {
	return append(append([]byte(`{"sessionId":`), rawjson.AppendQuoted(nil, id)...), '}')
}

// requestParams are the params of a $/cancel_request.
func requestParams(id int64) json.RawMessage {
	return append(append([]byte(`{"requestId":`), acp.IntID(id)...), '}')
}

// withParam adds a member to params. value is raw JSON.
func withParam(params json.RawMessage, name string, value []byte) json.RawMessage {
	return rawjson.SetMember(params, value, name)
}
