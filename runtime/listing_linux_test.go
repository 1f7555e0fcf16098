package runtime

import (
	"os"
	"path/filepath"
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

// A list after a restart is made of what the records know: the logs are not read for it. Where a log
// is another one than the record knows, it is read.
func TestList_IsMadeOfRecords(t *testing.T) {
	dir := t.TempDir()
	r := newRuntime(t, dir, prompted())
	tc := connect(t, r, "")
	var all []string
	for range 3 {
		s := tc.session()
		tc.call("session/prompt", prompt(s, "How are you?\nFine"))
		all = append(all, s)
	}
	tc.close()
	listed := func(r *Runtime) map[string]SessionInfo {
		t.Helper()
		list, err := r.Sessions(t.Context(), SessionFilter{})
		if err != nil || len(list.Sessions) != len(all) {
			t.Fatalf("%d sessions, %v", len(list.Sessions), err)
		}
		byID := map[string]SessionInfo{}
		for _, s := range list.Sessions {
			byID[s.ID] = s
		}
		return byID
	}
	before := listed(r)
	if err := r.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	log := func(id string) string { return filepath.Join(dir, "sessions", id, "log.journal") }
	damage := func(id string, more int) { // what the file has is gone
		t.Helper()
		b, err := os.ReadFile(log(id))
		if err != nil {
			t.Fatal(err)
		}
		clear(b)
		if err := os.WriteFile(log(id), append(b, make([]byte, more)...), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	damage(all[1], 0)
	damage(all[2], 1)

	after := listed(newRuntime(t, dir, prompted()))
	for _, id := range all[:2] {
		was, is := before[id], after[id]
		if is.EventCount != was.EventCount || !is.UpdatedAt.Equal(was.UpdatedAt) || is.OldestSeq != was.OldestSeq || is.Gist != "How are you?" {
			t.Errorf("session %s is listed as %+v, was %+v", id, is, was)
		}
	}
	if is := after[all[2]]; is.EventCount == before[all[2]].EventCount {
		t.Errorf("the log of %s is another one, and its session is listed as %+v", all[2], is)
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
