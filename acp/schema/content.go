package schema

import "encoding/json"

// TextBlock returns a content block of text.
func TextBlock(text string) ContentBlock {
	return ContentBlock{Text: &TextContent{Text: text}}
}

// UserMessage returns an update with a piece of the user's message.
func UserMessage(c ContentBlock) SessionUpdate {
	return SessionUpdate{UserMessageChunk: &ContentChunk{Content: c}}
}

// AgentMessage returns an update with a piece of the agent's answer.
func AgentMessage(c ContentBlock) SessionUpdate {
	return SessionUpdate{AgentMessageChunk: &ContentChunk{Content: c}}
}

// AgentThought returns an update with a piece of the agent's reasoning.
func AgentThought(c ContentBlock) SessionUpdate {
	return SessionUpdate{AgentThoughtChunk: &ContentChunk{Content: c}}
}

// ValueID returns the chosen value of a select option, false when the request
// sets a boolean option.
func (v *SetSessionConfigOptionRequest) ValueID() (SessionConfigValueID, bool) {
	var s string
	err := json.Unmarshal(v.Value, &s)
	return SessionConfigValueID(s), err == nil && string(v.Value) != "null"
}

// Bool returns the value of a boolean option, false for ok when the request
// sets a select option.
func (v *SetSessionConfigOptionRequest) Bool() (value, ok bool) {
	err := json.Unmarshal(v.Value, &value)
	return value, err == nil && string(v.Value) != "null"
}
