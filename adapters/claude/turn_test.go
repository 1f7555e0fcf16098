package claude

import (
	"errors"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/schema"
)

func TestAccount_AttemptsBeforeCredentialsAreBad(t *testing.T) {
	for _, tt := range []struct {
		account account
		missing bool
		want    int
	}{
		{account{TokenSource: "none", APIKeySource: varKey, Provider: "firstParty"}, false, 1},
		{account{TokenSource: varOAuth, Provider: "firstParty"}, false, 1},
		{account{TokenSource: "claude.ai", Provider: "firstParty"}, false, 2},
		{account{TokenSource: "none", APIKeySource: "apiKeyHelper", Provider: "firstParty"}, false, 2},
		{account{TokenSource: "none", Provider: "firstParty"}, true, 1},
		{account{TokenSource: "none", Provider: "bedrock"}, false, 1},
	} {
		if got := tt.account.attempts(); got != tt.want || tt.account.missing() != tt.missing {
			t.Errorf("%+v: %d attempts, missing %t", tt.account, got, tt.account.missing())
		}
	}
}

// TestTurn_AnswersOnlyItsOwnResult: older programs do not name the prompts that
// a result answers.
func TestTurn_AnswersOnlyItsOwnResult(t *testing.T) {
	p := &work{uuid: "mine"}
	for _, tt := range []struct {
		line string
		want bool
	}{
		{`{"type":"result"}`, true},
		{`{"type":"result","origin":{"kind":"task-notification"}}`, false},
		{`{"type":"result","user_message_uuids":["mine","other"],"origin":{"kind":"task-notification"}}`, true},
		{`{"type":"result","user_message_uuids":["other"]}`, false},
	} {
		e, err := parse([]byte(tt.line))
		if err != nil {
			t.Fatal(err)
		}
		if got := p.answers(e); got != tt.want {
			t.Errorf("%s: %t", tt.line, got)
		}
	}
}

func TestTurn_Judge(t *testing.T) {
	for _, tt := range []struct {
		name, line string
		turn       work
		reason     schema.StopReason
		code       int64
	}{
		{"success that is an error", `{"subtype":"success","is_error":true,"result":"API Error"}`, work{}, "", acp.CodeInternal},
		{"bad key after its interrupt", `{"subtype":"error_during_execution","is_error":true,"terminal_reason":"aborted_streaming"}`, work{failure: errAuth, status: 401}, "", acp.CodeAuthRequired},
		{"a regular end", `{"subtype":"success","stop_reason":"end_turn"}`, work{}, schema.StopReasonEndTurn, 0},
		{"a local command", `{"subtype":"success","stop_reason":null}`, work{}, schema.StopReasonEndTurn, 0},
	} {
		e, err := parse([]byte(`{"type":"result",` + tt.line[1:]))
		if err != nil {
			t.Fatal(err)
		}
		v := tt.turn.judge(e)
		code := int64(0)
		if failed, ok := errors.AsType[*acp.Error](v.Err); ok {
			code = failed.Code
		}
		if v.Reason != tt.reason || code != tt.code {
			t.Errorf("%s: %s, %v", tt.name, v.Reason, v.Err)
		}
	}
}
