package claude

import (
	"encoding/json"
	"path/filepath"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridgetest"
	"sandboxagent.dev/sandbox-agent/internal/scriptedmodel"
)

// liveLeftBehind: what a subagent asks that an earlier turn has left behind may be cancelled with another turn, and ends nothing then. It
// may ask again. A cancel when nobody prompts leaves it, too.
func liveLeftBehind(t *testing.T, w *world) {
	gate := make(chan struct{})
	try := func(name string) scriptedmodel.Step {
		return scriptedmodel.Step{scriptedmodel.Say("trying"), scriptedmodel.Shell("mkdir -p " + filepath.Join(w.Cwd, name))}
	}
	w.Model.On(scriptedmodel.Exactly("try it"), try("once"), try("again"), scriptedmodel.Step{scriptedmodel.Say("tried")})
	w.Model.On(scriptedmodel.Exactly("leave it behind"),
		scriptedmodel.Step{scriptedmodel.Call("Agent", map[string]any{"description": "Try", "prompt": "try it", "subagent_type": "general-purpose", "run_in_background": true})},
		scriptedmodel.Step{scriptedmodel.Say("left")})
	w.Model.On(scriptedmodel.Exactly("think"), scriptedmodel.Step{scriptedmodel.Say("thinking"), scriptedmodel.Gate(gate), scriptedmodel.Say(" thought")})
	c := w.open(noticing, func(string, json.RawMessage) any { return nil })
	id := c.Fresh()
	c.Turn(id, "leave it behind")
	asked := func(m *acp.Message) bool { return m.Method() == acp.MethodSessionRequestPermission }
	cancel := func(m *acp.Message) {
		if err := c.Conn.Write(t.Context(), acp.NewResult(m.ID(), json.RawMessage(`{"outcome":{"outcome":"cancelled"}}`))); err != nil {
			t.Fatal(err)
		}
	}
	at, first := c.Await("what the subagent asks", 0, asked)
	from := c.Seen()
	p := c.Prompt(id, "think")
	c.Await("the turn", from, func(m *acp.Message) bool {
		return rawjson.MemberString(m.Update(), "sessionUpdate") == "agent_message_chunk"
	})
	cancel(first)
	c.Await("what the subagent asks again", at+1, asked)
	close(gate)
	if r, e := c.Result(p); e != nil || rawjson.MemberString(r, "stopReason") != "end_turn" || bridgetest.Said(c.Updates(from)) != "thinking thought" {
		t.Errorf("the turn: %s, %v, %q", r, e, bridgetest.Said(c.Updates(from)))
	}
	from = c.Seen()
	c.Notify(acp.MethodSessionCancel, map[string]any{"sessionId": id})
	if stop, got := c.Turn(id, "say on"); stop != "end_turn" || bridgetest.Said(got) != "on" {
		t.Errorf("the next turn ended with %s, %q", stop, bridgetest.Said(got))
	}
	for _, u := range c.Updates(from) {
		if u.ToolCallUpdate != nil && u.ToolCallUpdate.Status == schema.ToolCallStatusFailed {
			t.Errorf("it was ended: %+v", u.ToolCallUpdate)
		}
	}
}
