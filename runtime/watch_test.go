package runtime

import (
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
)

const watches = `{"elicitation":{"form":{}},"_meta":{"sandboxagent.dev":{"watch":true}}}`

// Who watches has no agent started and changes nothing of a session: a closed one stays so, also on disk.
func TestWatch_ChangesNothing(t *testing.T) {
	dir := t.TempDir()
	a := &fakeAgent{}
	r := newRuntime(t, dir, a)
	owner := connect(t, r, "")
	c := a.conn()
	s := owner.session()
	id := owner.request("session/prompt", prompt(s, "hi"))
	p := c.next(t, "session/prompt")
	c.chunk("native-1", "hello")
	c.result(p, `{"stopReason":"end_turn"}`)
	owner.until(id)
	owner.call("session/close", `{"sessionId":"`+s+`"}`)

	began := a.opened()
	for version, params := range map[int]string{
		1: `{"protocolVersion":1,"clientCapabilities":` + watches + `,"_meta":{"sandboxagent.dev":{"agent":"nobody has it"}}}`,
		2: `{"protocolVersion":2,"info":{"name":"n","version":"1"},"capabilities":` + watches + `}`,
	} {
		tc := connectAs(t, r, version, params, acp.OneStream)
		method, from := "session/load", ""
		if version == 2 {
			method, from = "session/resume", `,"replayFrom":{"type":"start"}`
		}
		before, _ := tc.until(tc.request(method, `{"sessionId":"`+s+`","cwd":"/elsewhere","mcpServers":[],"_meta":{"sandboxagent.dev":{"title":"mine"}}`+from+`}`))
		if !strings.Contains(texts(before), "hello") {
			t.Errorf("version %d is shown %s", version, texts(before))
		}
		tc.call("_sandboxagent/session/get", `{"sessionId":"`+s+`"}`)
		tc.call("session/list", `{}`)
		for _, method := range []string{"session/new", "session/prompt", "session/close", "session/fork", "_x/y"} {
			if e := tc.callErr(method, `{"sessionId":"`+s+`","cwd":"/tmp","prompt":[{"type":"text","text":"hi"}],"mcpServers":[]}`); !strings.Contains(string(rawjson.MemberString(e.Data, "type")), "permission_denied") {
				t.Errorf("version %d: %s is answered %v", version, method, e)
			}
		}
		if e := tc.callErr(method, `{"sessionId":"of the agent alone","cwd":"/tmp","mcpServers":[]}`); e.Code != acp.CodeResourceNotFound {
			t.Errorf("version %d: a session that is not here: %v", version, e)
		}
	}
	if n := a.opened(); n != began {
		t.Errorf("%d processes were started for who watches", n-began)
	}
	state := func(r *Runtime) State {
		info, err := r.Session(s)
		if err != nil {
			t.Fatal(err)
		}
		if info.Title == "mine" {
			t.Error("it has given the session a title")
		}
		return info.State
	}
	if got := state(r); got != StateClosed {
		t.Errorf("the session is %s", got)
	}
	if err := r.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if got := state(newRuntime(t, dir, &fakeAgent{})); got != StateClosed {
		t.Errorf("after a restart the session is %s", got)
	}
}

// Who watches is asked nothing, and is nobody who could answer: what an agent asks waits for others, as if
// nobody were there.
func TestWatch_IsAskedNothing(t *testing.T) {
	a := &fakeAgent{}
	r := newRuntime(t, t.TempDir(), a)
	owner := connect(t, r, `{"elicitation":{"form":{}}}`)
	c := a.conn()
	s := owner.session()
	watcher := connect(t, r, watches)
	watcher.call("session/resume", `{"sessionId":"`+s+`","cwd":"/tmp","mcpServers":[]}`)
	id := owner.request("session/prompt", prompt(s, "hi"))
	p := c.next(t, "session/prompt")
	watcher.send(`{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"` + s + `"}}`)
	owner.call("_sandboxagent/session/detach", `{"sessionId":"`+s+`"}`)
	c.send(`{"jsonrpc":"2.0","id":9,"method":"elicitation/create","params":{"sessionId":"native-1","mode":"form","message":"what?","requestedSchema":{"type":"object","properties":{}}}}`)
	c.chunk("native-1", "behind it")
	for m := watcher.next(); !strings.Contains(string(m.Frame()), "behind it"); m = watcher.next() {
		if m.IsRequest() {
			t.Errorf("who watches is asked %s", m.Frame())
		}
	}
	owner.send(`{"jsonrpc":"2.0","id":50,"method":"session/resume","params":{"sessionId":"` + s + `","cwd":"/tmp","mcpServers":[]}}`)
	ask := owner.nextRequest()
	watcher.answers(ask, `{"action":"accept","content":{}}`)
	owner.answers(ask, `{"action":"decline"}`)
	if res := c.next(t, ""); !strings.Contains(string(res.Frame()), "decline") {
		t.Errorf("the agent is answered %s", res.Frame())
	}
	c.result(p, `{"stopReason":"end_turn"}`)
	owner.until(id)
}
