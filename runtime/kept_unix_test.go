//go:build unix

package runtime

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp"
)

// While it is not known whether what a load asks for can be written down, no agent is opened with it.
func TestLoad_WhoseRecordIsBeingWritten(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := &fakeAgent{id: "fake", caps: reopening, info: takesPermission, shared: make(chan sent, 64)}
	a.byHand()
	tc := connect(t, newRuntime(t, dir, a), "")
	id := tc.request("session/new", `{"cwd":"/tmp","mcpServers":[]`+own(`"permissionMode":"readonly"`)+`}`)
	a.answer(a.nextOf(t, "session/new"), in("plan", `{"sessionId":"n",`+offersOf+`}`))
	tc.until(id)
	// Whatever was to be written is, and a pipe does not take it at once, which has 64 KiB.
	tc.call("_sandboxagent/session/set_metadata", `{"sessionId":"n","metadata":{"long":"`+strings.Repeat("x", 96<<10)+`"}}`)
	slow := filepath.Join(dir, "sessions", "n", "session.json.tmp")
	if err := syscall.Mkfifo(slow, 0o600); err != nil { // it is not opened to be written before somebody reads
		t.Fatal(err)
	}
	id = tc.request("session/load", loadOf("n", "/tmp", own(`"permissionMode":"write"`)))
	a.answer(a.nextOf(t, "session/close"), `{}`)
	reader, err := os.OpenFile(slow, os.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		tc.call("session/list", `{}`)
	}
	if err := os.Remove(slow); err != nil {
		t.Fatal(err)
	}
	if err := reader.Close(); err != nil {
		t.Fatal(err)
	}
	opened := a.nextOf(t, "session/resume")
	if got := given(opened, "_meta", acp.MetaKey, "permissionMode"); got != `"readonly"` {
		t.Errorf("opened with %s", opened.m.Frame())
	}
	a.answer(opened, in("plan", `{`+offersOf+`}`))
	if _, res := tc.until(id); res.Err() == nil || !strings.Contains(res.Err().Message, "cannot be written now") {
		t.Errorf("%s", res.Frame())
	}
}
