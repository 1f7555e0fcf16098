package claude

import (
	"encoding/json"
	"path/filepath"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridgetest"
	"sandboxagent.dev/sandbox-agent/internal/scriptedmodel"
)

func liveForkKeepsChoice(_ *testing.T, w *world) { w.open(noticing, nil).ForkKeepsChoice("say a word") }

// liveLeftBehind: what a subagent asks that an earlier turn has left behind may be cancelled with another turn, and ends nothing then. It
// may ask again. A cancel when nobody prompts ends the subagent, and a command that is left behind.
func liveLeftBehind(t *testing.T, w *world) {
	gate := make(chan struct{})
	try := func(name string) scriptedmodel.Step {
		return scriptedmodel.Step{scriptedmodel.Say("trying"), scriptedmodel.Shell("mkdir -p " + filepath.Join(w.Cwd, name))}
	}
	w.Model.On(scriptedmodel.Exactly("try it"), try("once"), try("again"), scriptedmodel.Step{scriptedmodel.Say("tried")})
	w.Model.On(scriptedmodel.Exactly("leave it behind"),
		scriptedmodel.Step{scriptedmodel.Call("Agent", map[string]any{"description": "Try", "prompt": "try it", "subagent_type": "general-purpose", "run_in_background": true})},
		scriptedmodel.Step{scriptedmodel.Say("left")})
	never := make(chan struct{})
	defer close(never)
	w.Model.OnRequest(scriptedmodel.Exactly("think"), func(r *scriptedmodel.Request) []scriptedmodel.Step {
		wait := gate
		if notified(r) {
			wait = never // it is told of what was ended
		}
		return []scriptedmodel.Step{{scriptedmodel.Say("thinking"), scriptedmodel.Gate(wait), scriptedmodel.Say(" thought")}}
	})
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
	c.Await("the end of the subagent", from, func(m *acp.Message) bool {
		return rawjson.MemberString(m.Update(), "sessionUpdate") == "tool_call_update" && rawjson.MemberString(m.Update(), "status") == "failed"
	})
	works := func(works string) func(m *acp.Message) bool {
		return func(m *acp.Message) bool {
			now, _ := rawjson.Member(m.Params(), "working")
			return m.Method() == acp.MethodWorking && string(now) == works
		}
	}
	at, _ = c.Await("what it tells the model of that", from, works("true"))
	c.Await("the end of that", at, works("false"))
	if stop, got := c.Turn(id, "say on"); stop != "end_turn" || bridgetest.Said(got) != "on" {
		t.Errorf("the next turn ended with %s, %q", stop, bridgetest.Said(got))
	}
}
