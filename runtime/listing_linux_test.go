package runtime

import (
	"os"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
)

// prompted is an agent that answers each prompt at once.
func prompted() *fakeAgent {
	a := &fakeAgent{}
	a.handle = func(c *fakeConn, m acp.Message) {
		switch m.Method() {
		case "session/new":
			c.newSession(m)
		case "session/prompt":
			c.result(m, `{"stopReason":"end_turn"}`)
		}
	}
	return a
}

func descriptors(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// A list looks into the logs of all sessions, and keeps no file open for that.
func TestList_KeepsNoFileOpen(t *testing.T) {
	const many = 100
	dir := t.TempDir()
	r := newRuntime(t, dir, prompted())
	tc := connect(t, r, "")
	for range many {
		tc.call("session/prompt", prompt(tc.session(), "x"))
	}
	tc.close()
	if err := r.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	r = newRuntime(t, dir, &fakeAgent{})
	before := descriptors(t)
	if list, err := r.Sessions(t.Context(), SessionFilter{}); err != nil || len(list.Sessions) != many {
		t.Fatalf("%d sessions, %v", len(list.Sessions), err)
	}
	if more := descriptors(t) - before; more > many/10 {
		t.Errorf("%d more files are open", more)
	}
}

// However many sessions are used at one time, few files of logs are open, and each session
// goes on. That is seen long before a log gives its file back because it is silent.
func TestLogs_FewFilesAreOpen(t *testing.T) {
	const many, most = 100, 16
	r := openRuntime(t, Options{DataDir: t.TempDir(), Adapters: adaptersOf(withID(prompted())), DefaultAgent: "fake", LogFiles: most})
	tc := connect(t, r, "")
	before := descriptors(t)
	var all []string
	for range many {
		s := tc.session()
		tc.call("session/prompt", prompt(s, "first"))
		all = append(all, s)
	}
	for _, s := range all {
		tc.call("session/prompt", prompt(s, "second"))
	}
	for deadline := time.Now().Add(wait / 3); descriptors(t)-before > most; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d more files are open", descriptors(t)-before)
		}
	}
	for _, s := range []string{all[0], all[many-1]} {
		if shown, _ := tc.loaded(s); texts(shown) != "user:first user:second" {
			t.Errorf("the load shows %q", texts(shown))
		}
	}
}
