package session

import (
	"encoding/json"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
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
