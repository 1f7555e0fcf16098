package acp

import (
	"encoding/json"
	"strconv"

	"sandboxagent.dev/sandbox-agent/acp/rawjson"
)

// TurnBegan reports whether the turn began whose end the params of a
// _sandboxagent/session/turn_ended tell, or the result of a prompt in version 1. A prompt that
// was cancelled or refused while it waited ends before the turn that it waited for: its end
// says nothing of that one. Older gateways say it by the code of the error alone, and not always.
func TurnBegan(ended json.RawMessage) bool {
	if rawjson.MemberBool(ended, "began") {
		return true
	}
	if _, said := rawjson.Member(ended, "began"); said {
		return false
	}
	if _, said := rawjson.Member(ended, "_meta", MetaKey, "began"); said {
		return rawjson.MemberBool(ended, "_meta", MetaKey, "began")
	}
	code, _ := rawjson.Member(ended, "error", "code")
	return string(code) != strconv.FormatInt(CodeCancelled, 10)
}
