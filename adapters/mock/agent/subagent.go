package agent

import (
	"encoding/json"
	"strings"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/schema"
)

// own is the _meta by which bridges mark their calls.
func own(v any) map[string]json.RawMessage {
	b, _ := schema.Encode(v) // maps of plain values can be encoded
	return map[string]json.RawMessage{acp.MetaKey: b}
}

// subagent shows a subagent as bridges do: as a call, whose calls and words say whose they
// are. It asks for a permission and says which answer it got.
func (t *turn) subagent(string) (schema.StopReason, error) {
	call, edit := t.newCall(), t.newCall()
	words := ""
	says := func(text string) schema.SessionUpdate {
		words += text
		return schema.SessionUpdate{ToolCallUpdate: &schema.ToolCallUpdate{
			ToolCallID: call, Content: []schema.ToolCallContent{textContent(words)},
			Meta: own(map[string]map[string]string{"said": {"messageId": "sub-" + string(call), "text": text}}),
		}}
	}
	title, of := "Edit notes.txt", own(map[string]string{"parentToolCallId": string(call)})
	if _, err := t.sendAll(
		schema.SessionUpdate{ToolCall: &schema.ToolCall{
			ToolCallID: call, Title: "Look around", Kind: schema.ToolKindThink, Status: schema.ToolCallStatusInProgress,
			RawInput: json.RawMessage(`{"prompt":"look around"}`), Meta: own(map[string]map[string]string{"subagent": {}}),
		}},
		says("I look "),
		schema.SessionUpdate{ToolCall: &schema.ToolCall{ToolCallID: edit, Title: title, Kind: schema.ToolKindEdit, Status: schema.ToolCallStatusPending, Meta: of}},
	); err != nil {
		return "", err
	}
	answer, err := t.allowed(schema.ToolKindEdit, schema.ToolCallUpdate{ToolCallID: edit, Title: &title, Kind: schema.ToolKindEdit, Status: schema.ToolCallStatusPending, Meta: of})
	said, status := "around, without an answer.", schema.ToolCallStatusFailed
	if chosen := answer.Outcome.Selected; err == nil && chosen != nil {
		said = "around: " + string(chosen.OptionID) + "."
		if strings.HasPrefix(string(chosen.OptionID), "allow") {
			status = schema.ToolCallStatusCompleted
		}
	}
	return t.sendAll(
		schema.SessionUpdate{ToolCallUpdate: &schema.ToolCallUpdate{ToolCallID: edit, Status: status}},
		says(said),
		schema.SessionUpdate{ToolCallUpdate: &schema.ToolCallUpdate{ToolCallID: call, Status: schema.ToolCallStatusCompleted}},
		schema.AgentMessage(schema.TextBlock("The subagent is done.")),
	)
}
