package runtime

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
)

// TestTold_OfAnEnd: who is told that somebody else has ended a session finds it so, also when
// the gateway is killed then.
func TestTold_OfAnEnd(t *testing.T) {
	a := &fakeAgent{}
	a.handle = func(c *fakeConn, m acp.Message) {
		switch {
		case m.Method() == "session/new":
			c.newSession(m)
		case m.IsRequest():
			c.result(m, `{}`)
		}
	}
	dir := t.TempDir()
	r := newRuntime(t, dir, a)
	tc, other := connect(t, r, ""), connect(t, r, "")
	told := func(method string) (s string) {
		s = tc.session()
		params := `{"sessionId":"` + s + `"}`
		other.request(method, params)
		tc.nextOf("_sandboxagent/session/ended")
		return s
	}
	for range 5 {
		s := told("_sandboxagent/session/terminate")
		record, err := os.ReadFile(filepath.Join(dir, "sessions", s, "session.json"))
		if err != nil {
			t.Error(err)
		}
		if _, ended := rawjson.Member(record, "ended"); !ended {
			t.Error("a session has ended, and its record does not say so")
		}
		s = told("session/delete")
		if i, err := r.Session(s); err == nil {
			t.Errorf("a session was deleted, and is there: %+v", i)
		}
		if _, err := os.Stat(filepath.Join(dir, "sessions", s)); !os.IsNotExist(err) {
			t.Errorf("a session was deleted, and has files: %v", err)
		}
	}
}

// TestTold_OfAChoice: what a session was made with is there after a kill that follows its answer.
func TestTold_OfAChoice(t *testing.T) {
	const options = `"configOptions":[{"id":"m","name":"M","category":"model","type":"select","currentValue":"small","options":[{"value":"small","name":"S"},{"value":"large","name":"L"}]}]`
	chosen := make(chan string, 4)
	a := &fakeAgent{caps: `{"sessionCapabilities":{"resume":{}}}`}
	a.handle = func(c *fakeConn, m acp.Message) {
		switch m.Method() {
		case "session/new", "session/resume":
			c.result(m, `{"sessionId":"n",`+options+`}`)
		case "session/set_config_option":
			chosen <- rawjson.MemberString(m.Params(), "value")
			c.result(m, `{`+strings.Replace(options, `"currentValue":"small"`, `"currentValue":"large"`, 1)+`}`)
		case "session/prompt":
			c.result(m, `{"stopReason":"end_turn"}`)
		}
	}
	dir, killed := t.TempDir(), t.TempDir()
	tc := connect(t, newRuntime(t, dir, a), "")
	tc.call("session/new", `{"cwd":"/tmp","mcpServers":[],"_meta":{"sandboxagent.dev":{"model":"large"}}}`)
	if err := os.CopyFS(filepath.Join(killed, "sessions"), os.DirFS(filepath.Join(dir, "sessions"))); err != nil {
		t.Fatal(err)
	}
	connect(t, newRuntime(t, killed, a), "").call("session/prompt", prompt("n", "x"))
	for range 2 { // at the beginning, and by the gateway that was started again
		select {
		case got := <-chosen:
			if got != "large" {
				t.Errorf("the agent was told %q", got)
			}
		default:
			t.Fatal("what was chosen is forgotten")
		}
	}
}
