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

// What of a cancel's list of prompts counts. A session has fewer prompts.
const (
	maxPromptIDs  = 256     // ids
	maxPromptID   = 1 << 10 // bytes of one, as JSON
	maxPromptList = 1 << 20 // bytes of all
)

// CheckPromptID refuses a prompt with an id that a cancel could not name.
func CheckPromptID(prompt *Message) error {
	id, given := rawjson.Member(prompt.Meta(), MetaKey, "promptId")
	if !given || string(id) == "null" || isPromptID(id) {
		return nil
	}
	return Errorf(CodeInvalidParams, `_meta["%s"].promptId must be a text that is not empty, of at most %d bytes as JSON`, MetaKey, maxPromptID)
}

func isPromptID(id []byte) bool {
	return id[0] == '"' && len(id) > len(`""`) && len(id) <= maxPromptID
}

// PromptIDs returns the prompts that a session/cancel is for alone, by the promptId in their _meta. named is false where it has no list, or null:
// then it is for all that the session does. What is no id, or one of many, or longer than an id is, is left out.
func PromptIDs(cancel *Message) (ids []string, named bool) {
	list, named := rawjson.Member(cancel.Meta(), MetaKey, "promptIds")
	if !named || string(list) == "null" {
		return nil, false
	}
	if len(list) > maxPromptList {
		return nil, true
	}
	for _, id := range rawjson.Elements(list) {
		if isPromptID(id) && len(ids) < maxPromptIDs {
			ids = append(ids, rawjson.Unquote(id))
		}
	}
	return ids, true
}

// CancelOf returns the session/cancel that is for these prompts of a session alone.
func CancelOf(session string, ids []string) Message {
	list := []byte{'['}
	for i, id := range ids {
		if i > 0 {
			list = append(list, ',')
		}
		list = rawjson.AppendQuoted(list, id)
	}
	only := rawjson.Object{}.Raw("promptIds", append(list, ']')).End()
	return NewNotification(MethodSessionCancel, rawjson.Object{}.String("sessionId", session).Raw("_meta", rawjson.Object{}.Raw(MetaKey, only).End()).End())
}
