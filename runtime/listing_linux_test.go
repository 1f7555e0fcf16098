package runtime

import (
	"os"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp"
)

// A list looks into the logs of all sessions, and keeps no file open for that.
func TestList_KeepsNoFileOpen(t *testing.T) {
	const many = 100
	dir := t.TempDir()
	a := &fakeAgent{}
	a.handle = func(c *fakeConn, m acp.Message) {
		switch m.Method() {
		case "session/new":
			c.newSession(m)
		case "session/prompt":
			c.result(m, `{"stopReason":"end_turn"}`)
		}
	}
	r := newRuntime(t, dir, a)
	tc := connect(t, r, "")
	for range many {
		tc.call("session/prompt", prompt(tc.session(), "x"))
	}
	tc.close()
	if err := r.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	r = newRuntime(t, dir, &fakeAgent{})
	descriptors := func() int {
		list, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	before := descriptors()
	if list, err := r.Sessions(t.Context(), SessionFilter{}); err != nil || len(list.Sessions) != many {
		t.Fatalf("%d sessions, %v", len(list.Sessions), err)
	}
	if more := descriptors() - before; more > many/10 {
		t.Errorf("%d more files are open", more)
	}
}
