package bridgetest

import (
	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/acp/version"
)

// StopSubagent prompts for a subagent that does not end by itself, cancels it when it has
// said something, and waits for its end and that of the turn. It fails the test when a
// subagent that is over can be cancelled once more.
func (c *Client) StopSubagent(id schema.SessionID, text string) {
	c.W.T.Helper()
	from := c.Seen()
	turn := c.Begin(acp.MethodSessionPrompt, &schema.PromptRequest{SessionID: id, Prompt: []schema.ContentBlock{schema.TextBlock(text)}})
	_, m := c.Await("the words of a subagent", from, func(m *acp.Message) bool {
		_, said := rawjson.Member(m.Update(), "_meta", acp.MetaKey, "said")
		return said
	})
	call := rawjson.MemberString(m.Update(), "toolCallId")
	params := map[string]string{"sessionId": string(id), "toolCallId": call}
	c.Must(version.MethodToolCallCancel, params)
	c.Await("the end of a subagent that is cancelled", from, func(m *acp.Message) bool {
		return rawjson.MemberString(m.Update(), "toolCallId") == call && rawjson.MemberString(m.Update(), "status") == "failed"
	})
	if _, err := c.Result(turn); err != nil {
		c.W.T.Errorf("a turn whose subagent was cancelled ended with %v", err)
	}
	if _, err := c.Call(version.MethodToolCallCancel, params); err == nil || err.Code != acp.CodeInvalidParams {
		c.W.T.Errorf("a subagent that is over was cancelled: %v", err)
	}
}
