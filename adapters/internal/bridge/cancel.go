package bridge

import (
	"encoding/json"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/acp/version"
)

// MethodCancelCall cancels one call; it is of version 2.
const MethodCancelCall = version.MethodToolCallCancel

// CancelsCalls says, in the answer to initialize, that the agent takes tool_call/cancel. A
// call that can be cancelled says so in its [Own].
func CancelsCalls(hello *schema.InitializeResponse) {
	hello.AgentCapabilities.Meta = Meta(map[string]any{version.CancelsCalls: struct{}{}})
}

// CallToCancel reads the parameters of tool_call/cancel.
func CallToCancel(params json.RawMessage) (id schema.SessionID, call schema.ToolCallID, err error) {
	call = schema.ToolCallID(rawjson.MemberString(params, "toolCallId"))
	if call == "" {
		return "", "", acp.Errorf(acp.CodeInvalidParams, "tool_call/cancel needs params.toolCallId, the id of a tool call")
	}
	return schema.SessionID(rawjson.MemberString(params, "sessionId")), call, nil
}

// NotCancellable is the answer to tool_call/cancel of a call that is over, unknown, or
// cannot be cancelled by itself.
func NotCancellable(call schema.ToolCallID) error {
	return acp.Errorf(acp.CodeInvalidParams, "tool call %q is unknown, over, or cannot be cancelled by itself: send session/cancel", call).
		WithData(map[string]string{"toolCallId": string(call)})
}
