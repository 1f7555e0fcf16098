package runtime

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp/problem"
)

// A session whose files cannot be removed is not gone: it is closed, and can be deleted when they can be. Who
// has it open is told that it is closed, and still has it open.
func TestDelete_ThatFails(t *testing.T) {
	const longest = 4095 // bytes of a path: a session's folder cannot be given a longer name there, also by root
	root := t.TempDir()
	dir := root
	for len(dir) < longest-300 {
		dir = filepath.Join(dir, strings.Repeat("d", 200))
	}
	dir = filepath.Join(dir, strings.Repeat("d", longest-len(dir)-len("//sessions/ns/log.journal.tmp")-1))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	r := newRuntime(t, dir, &fakeAgent{caps: reopening})
	tc := connect(t, r, "")
	const s = "ns"
	tc.newWith(`{"requestedSessionId":"` + s + `"}`)
	if _, err := r.DeleteSession(t.Context(), s); err == nil || problem.From(err).Kind != problem.Unavailable || !strings.Contains(err.Error(), "try again") {
		t.Errorf("the delete: %v", err)
	}
	if m := tc.nextOf("_sandboxagent/session/ended"); !strings.Contains(string(m.Params()), `"reason":"closed"`) {
		t.Errorf("who reads it is told %s", m.Params())
	}
	if e := tc.callErr("session/delete", `{"sessionId":"`+s+`"}`); !strings.Contains(e.Message, "try again") {
		t.Errorf("the second delete: %v", e)
	}
	if info, err := r.Session(s); err != nil || info.State != StateClosed {
		t.Errorf("the session: %+v, %v", info, err)
	}
	other := connect(t, r, "")
	other.call("session/load", `{"sessionId":"`+s+`","cwd":"/tmp","mcpServers":[]}`)
	other.call("_sandboxagent/session/set_metadata", `{"sessionId":"`+s+`","title":"still here"}`)
	if m := tc.nextOf("session/update"); !strings.Contains(string(m.Params()), "still here") {
		t.Errorf("who had it open is told %s", m.Params())
	}
	if err := r.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	short := filepath.Join(root, "short")
	if err := os.Symlink(dir, short); err != nil {
		t.Fatal(err)
	}
	connect(t, newRuntime(t, short, &fakeAgent{caps: reopening}), "").call("session/delete", `{"sessionId":"`+s+`"}`)
	if left, err := os.ReadDir(filepath.Join(short, "sessions")); err != nil || len(left) > 0 {
		t.Errorf("%v is left, %v", left, err)
	}
}

// What a gateway that was killed has put away is no session at the next start, and goes then.
func TestDelete_KilledBeforeTheFilesAreRemoved(t *testing.T) {
	dir := t.TempDir()
	r := newRuntime(t, dir, &fakeAgent{caps: reopening})
	s := connect(t, r, "").session()
	place := filepath.Join(dir, "sessions")
	if err := r.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(place, s), filepath.Join(place, ".deleted-0")); err != nil {
		t.Fatal(err)
	}
	r = newRuntime(t, dir, &fakeAgent{caps: reopening})
	if got := connect(t, r, "").call("session/list", `{}`); !strings.Contains(got, `"sessions":[]`) {
		t.Errorf("%s", got)
	}
	if err := r.Shutdown(t.Context()); err != nil { // it waits for what goes on
		t.Fatal(err)
	}
	if left, err := os.ReadDir(place); err != nil || len(left) > 0 {
		t.Errorf("%v is left, %v", left, err)
	}
}

// A session whose log cannot be opened is deleted like others: nobody makes its folder again by looking for the log.
func TestDelete_LogThatCannotBeOpened(t *testing.T) {
	dir := t.TempDir()
	a := &fakeAgent{id: "fake", caps: reopening}
	r := newRuntime(t, dir, a)
	tc := connect(t, r, "")
	const s = "mine"
	tc.newWith(`{"requestedSessionId":"` + s + `"}`)
	id := tc.request("session/prompt", prompt(s, "x"))
	p := a.conn().next(t, "session/prompt")
	a.conn().chunk(p.Session(), "something")
	a.conn().result(p, `{"stopReason":"end_turn"}`)
	tc.until(id)
	if err := r.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	place := filepath.Join(dir, "sessions")
	logs, err := filepath.Glob(filepath.Join(place, s, "*.journal"))
	if err != nil || len(logs) != 1 {
		t.Fatalf("%q, %v", logs, err)
	}
	if err := errors.Join(os.Remove(logs[0]), os.Mkdir(logs[0], 0o700)); err != nil {
		t.Fatal(err)
	}
	r = newRuntime(t, dir, &fakeAgent{id: "fake", caps: reopening})
	if _, err := r.DeleteSession(t.Context(), s); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(place); err != nil || len(left) > 0 {
		t.Errorf("%v is left, %v", left, err)
	}
	connect(t, r, "").newWith(`{"requestedSessionId":"` + s + `"}`)
}

// The files of a deleted session go all at once, in the eyes of a gateway that starts: its folder has another name
// before the first of them is removed.
func TestDelete_AtOnce(t *testing.T) {
	dir := t.TempDir()
	r := newRuntime(t, dir, &fakeAgent{})
	s := connect(t, r, "").session()
	folders, err := filepath.Glob(filepath.Join(dir, "sessions", "*"))
	if err != nil || len(folders) != 1 {
		t.Fatalf("%q, %v", folders, err)
	}
	events, err := syscall.InotifyInit()
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(events)
	if _, err := syscall.InotifyAddWatch(events, folders[0], syscall.IN_MOVE_SELF|syscall.IN_DELETE); err != nil {
		t.Fatal(err)
	}
	if _, err := r.DeleteSession(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	first := make([]byte, 4096)
	if n, err := syscall.Read(events, first); err != nil || n < syscall.SizeofInotifyEvent {
		t.Fatalf("%d bytes, %v", n, err)
	}
	if mask := binary.NativeEndian.Uint32(first[4:]); mask&syscall.IN_MOVE_SELF == 0 {
		t.Errorf("the first thing that happened to the folder is %#x, want that it has got another name", mask)
	}
	if left, err := os.ReadDir(filepath.Join(dir, "sessions")); err != nil || len(left) > 0 {
		t.Errorf("%v is left, %v", left, err)
	}
}
