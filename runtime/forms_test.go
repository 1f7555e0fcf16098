package runtime

import (
	"encoding/json"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
)

// A form has a property for the person's own words where these are an answer.
func TestForm_OwnWords(t *testing.T) {
	const questions = `{"sessionId":"native-1","questions":[` +
		`{"id":"one","header":"H","question":"Q1","options":[{"label":"a","description":""}],"multiSelect":false,"ownWords":true},` +
		`{"id":"many","header":"H","question":"Q2","options":[{"label":"b","description":""}],"multiSelect":true,"ownWords":true},` +
		`{"id":"closed","header":"H","question":"Q3","options":[{"label":"c","description":""}],"multiSelect":false}]}`
	for _, c := range []struct{ content, answers string }{
		{`{"one":"a","many":["b"],"closed":"c"}`, `[["a"],["b"],["c"]]`},
		{`{"one":"a","one_own":"mine","many":["b"],"many_own":"more","closed":"c"}`, `[["mine"],["b","more"],["c"]]`},
		{`{"one_own":" mine ","closed":"c","closed_own":"no"}`, `[["mine"],[],["c"]]`},
		{`{"one_own":"  ","closed":"c"}`, `[[],[],["c"]]`},
	} {
		a := &fakeAgent{}
		tc := connect(t, newRuntime(t, t.TempDir(), a), `{"elicitation":{"form":{}}}`)
		s := tc.session()
		id := tc.request("session/prompt", prompt(s, "x"))
		p := a.conn().next(t, "session/prompt")
		a.conn().send(`{"jsonrpc":"2.0","id":1,"method":"` + acp.MethodRequestQuestion + `","params":` + questions + `}`)
		m := tc.nextRequest()
		form, _ := rawjson.Member(m.Params(), "requestedSchema")
		var got struct {
			Properties map[string]json.RawMessage `json:"properties"`
			Required   []string                   `json:"required"`
		}
		if err := json.Unmarshal(form, &got); err != nil || len(got.Properties) != 5 || got.Properties["one_own"] == nil || got.Properties["closed_own"] != nil || strings.Join(got.Required, " ") != "closed" {
			t.Errorf("the form is %s, %v", form, err)
		}
		tc.answers(m, `{"action":"accept","content":`+c.content+`}`)
		if res := a.conn().next(t, ""); string(res.Result()) != `{"outcome":"answered","answers":`+c.answers+`}` {
			t.Errorf("%s is answered by %s", c.content, res.Frame())
		}
		a.conn().result(p, `{"stopReason":"end_turn"}`)
		tc.until(id)
	}
}

// A form of an MCP server goes to every attached client that can show it, also to one
// that came when the agent ran already; what nobody there can show is refused.
func TestForm_AnyClientThatCanShowIt(t *testing.T) {
	elicit := func(id, mode string) string {
		return `{"jsonrpc":"2.0","id":` + id + `,"method":"elicitation/create","params":{"sessionId":"native-1","message":"m","mode":"` + mode + `","url":"https://x","elicitationId":"e","requestedSchema":{"type":"object","properties":{}}}}`
	}
	a := &fakeAgent{}
	r := newRuntime(t, t.TempDir(), a)
	first := connect(t, r, "")
	s, agent := first.session(), a.conn()
	agent.send(elicit("1", "form"))
	if m := agent.next(t, ""); m.Err() == nil || m.Err().Code != acp.CodeMethodNotFound {
		t.Errorf("with nobody who can: %s", m.Frame())
	}
	later := connect(t, r, `{"elicitation":{"form":{}}}`)
	later.call("session/resume", loadOf(s, "/tmp", ""))
	agent.send(elicit("2", "url"))
	if m := agent.next(t, ""); m.Err() == nil || m.Err().Code != acp.CodeMethodNotFound {
		t.Errorf("an address for a client with forms: %s", m.Frame())
	}
	agent.send(elicit("3", "form"))
	m := later.nextRequest()
	later.answers(m, `{"action":"accept","content":{}}`)
	if got := agent.next(t, ""); got.ID() != "3" || string(got.Result()) != `{"action":"accept","content":{}}` {
		t.Errorf("the agent was answered %s", got.Frame())
	}
}
