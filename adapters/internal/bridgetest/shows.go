package bridgetest

import (
	"bytes"
	"slices"
	"strings"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/adapters/adaptertest"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
	"sandboxagent.dev/sandbox-agent/internal/scriptedmodel"
)

// Shows are how an agent shows a feature in the contract suite.
type Shows map[adapters.Feature]func(s *adaptertest.Scene)

// Own is an edit of session/new that adds our _meta.
func Own(own map[string]any) func(p *schema.NewSessionRequest) {
	return func(p *schema.NewSessionRequest) { p.Meta = bridge.Meta(own) }
}

// Asked returns the newest turn of the model that has the prompt; the scene
// fails when there is none.
func (w *World) Asked(s *adaptertest.Scene, prompt string) scriptedmodel.Request {
	s.Helper()
	turns := w.Model.Turns()
	for _, r := range slices.Backward(turns) {
		if slices.Contains(r.Prompts(), prompt) {
			return r
		}
	}
	s.Fail("the model was not asked %q", prompt)
	return scriptedmodel.Request{}
}

// Heard fails the scene when the model was not told all of the texts.
func (w *World) Heard(s *adaptertest.Scene, prompt string, texts ...string) {
	s.Helper()
	body := w.Asked(s, prompt).Body
	for _, text := range texts {
		if !bytes.Contains(body, []byte(text)) {
			s.Fail("the model did not hear %.40s", text)
		}
	}
}

// Finished is the last content of the act's calls, by the name of the tool.
func Finished(act *adaptertest.Act) map[string]*schema.ToolCallUpdate {
	names := map[schema.ToolCallID]string{}
	out := map[string]*schema.ToolCallUpdate{}
	for _, u := range act.Updates {
		if u.ToolCall != nil {
			names[u.ToolCall.ToolCallID] = *u.ToolCall.Name
		}
		if up := u.ToolCallUpdate; up != nil && up.Status == schema.ToolCallStatusCompleted {
			out[names[up.ToolCallID]] = up
		}
	}
	return out
}

// Encoded is a value as JSON.
func Encoded(v any) []byte {
	b, _ := schema.Encode(v)
	return b
}

// Option returns the first value of a config option that is offered, is not the
// present one and begins with prefix.
func Option(s *adaptertest.Scene, r *schema.NewSessionResponse, id, prefix string) schema.SessionConfigValueID {
	s.Helper()
	for _, o := range r.ConfigOptions {
		if string(o.ID) != id || o.Select == nil {
			continue
		}
		for _, v := range o.Select.Options.Ungrouped {
			if v.Value != o.Select.CurrentValue && strings.HasPrefix(string(v.Value), prefix) {
				return v.Value
			}
		}
	}
	s.Fail("nothing to choose of %s", id)
	return ""
}

// Choose sets a config option.
func Choose(s *adaptertest.Scene, session schema.SessionID, id string, value schema.SessionConfigValueID) {
	s.Helper()
	s.Call(acp.MethodSessionSetConfigOption, map[string]any{"sessionId": session, "configId": id, "value": value})
}

// Used waits for the usage of a turn in a session.
func Used(s *adaptertest.Scene, id schema.SessionID, ok func(u *schema.UsageUpdate) bool) {
	s.Helper()
	s.Say(id, "say used")
	s.Await(id, "the usage", func(u *schema.SessionUpdate) bool { return u.UsageUpdate != nil && ok(u.UsageUpdate) })
}
