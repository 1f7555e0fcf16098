package main_test

import (
	"encoding/json"
	"os"
	"strings"
	"syscall"
	"testing"
)

// What was always allowed counts over a kill of the gateway, and not in a fork; the command line lists it and takes it back, one
// and all, and then it is asked about again. One client that takes it back tells all of them.
func TestPermissions(t *testing.T) {
	g := startGateway(t)
	c := connect(t, g, wsocket, options{agent: "mock"})
	s := c.newSession()
	says := func(from int, words string) {
		t.Helper()
		c.find(from, words, func(m *message) bool { return strings.Contains(string(m.raw), words) })
	}
	// asked has the agent do what needs a permission, and always allows it.
	asked := func(session, text string) {
		t.Helper()
		from := c.mark()
		turn := c.start("session/prompt", promptParams(session, text))
		c.answer(c.find(from, "what it asks", func(m *message) bool { return m.Method == "session/request_permission" }),
			map[string]any{"outcome": map[string]any{"outcome": "selected", "optionId": "allow_always"}})
		if _, err := c.wait(turn); err != nil {
			t.Fatal(err)
		}
		says(from, "permission: allow_always")
	}
	allowed := func(session, text string) {
		t.Helper()
		from := c.mark()
		c.prompt(session, text)
		says(from, "permission: allowed before")
	}
	line := &commandLine{t: t, env: append(os.Environ(), "SANDBOX_AGENT_ENDPOINT="+g.url)}
	permissions := func(want int, args ...string) (out, errOut string) {
		t.Helper()
		code, out, errOut := line.run(append([]string{"sessions", "permissions", s}, args...)...)
		if code != want {
			t.Errorf("%q: exit %d\n%s%s", args, code, out, errOut)
		}
		return out, errOut
	}
	asked(s, "permission")
	allowed(s, "permission")
	asked(s, "permission fetch")
	g.kill(syscall.SIGKILL)
	g.restart()
	c = connect(t, g, wsocket, options{agent: "mock"})
	c.must("session/load", map[string]any{"sessionId": s, "cwd": "/tmp", "mcpServers": []any{}})
	line.env = append(os.Environ(), "SANDBOX_AGENT_ENDPOINT="+g.url)
	allowed(s, "permission")
	var fork struct{ SessionID string }
	if err := json.Unmarshal(c.must("session/fork", map[string]any{"sessionId": s, "cwd": "/tmp"}), &fork); err != nil {
		t.Fatal(err)
	}
	asked(fork.SessionID, "permission")

	var list struct {
		Permissions []struct{ ID, Title, Where string }
	}
	out, _ := permissions(0, "--json")
	if err := json.Unmarshal([]byte(out), &list); err != nil || len(list.Permissions) != 2 || list.Permissions[1].Title != "Use a tool: fetch" || list.Permissions[0].Where != "session" {
		t.Fatalf("%v: %s", err, out)
	}
	edit := list.Permissions[0].ID
	if out, _ := permissions(0); !strings.HasPrefix(out, "ID ") || !strings.Contains(out, edit+"  Edit notes.txt") || strings.Contains(out, "cannot be taken back") {
		t.Errorf("the list:\n%s", out)
	}
	from := c.mark()
	if out, _ := permissions(0, "--forget", edit); out != "taken back: Edit notes.txt\n" {
		t.Errorf("it says %q", out)
	}
	says(from, `"permissionsForgotten":[{"id":"`+edit+`","title":"Edit notes.txt"}]`)
	if _, errOut := permissions(5, "--forget", edit); !strings.Contains(errOut, "nothing is allowed with the id") {
		t.Errorf("once more: %s", errOut)
	}
	if _, errOut := permissions(2, "--forget", edit, "--all"); !strings.Contains(errOut, "either") {
		t.Errorf("both: %s", errOut)
	}
	asked(s, "permission")
	allowed(s, "permission fetch")
	if out, _ := permissions(0, "--all"); out != "taken back: Use a tool: fetch\ntaken back: Edit notes.txt\n" {
		t.Errorf("of all it says %q", out)
	}
	if out, errOut := permissions(0, "--all", "--json"); out != "{\"forgotten\":[]}\n" || errOut != "nothing was taken back\n" {
		t.Errorf("of none it says %q, %q", out, errOut)
	}
	asked(s, "permission")
}
