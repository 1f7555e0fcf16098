//go:build unix

package runtime

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestNew_ReadsSessionsMeanwhile: who needs no session does not wait for ten thousand of
// them. Here one waits until its record is written.
func TestNew_ReadsSessionsMeanwhile(t *testing.T) {
	dir := t.TempDir()
	before := newRuntime(t, dir, &fakeAgent{})
	tc := connect(t, before, "")
	s := tc.session()
	tc.close()
	if err := before.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "sessions", s, "session.json")
	record, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}

	r := newRuntime(t, dir, &fakeAgent{})
	found := make(chan error, 3)
	go func() { _, err := r.Session(s); found <- err }()
	go func() { found <- r.Ready() }()
	go func() {
		for c, err := range r.FollowSessions(t.Context(), 0) {
			if c.Type == ChangeReset && err == nil {
				continue
			}
			if c.SessionID != s {
				t.Errorf("the first change is %+v", c)
			}
			found <- err
			return
		}
	}()
	connect(t, r, "") // an agent is started for it
	if len(found) > 0 {
		t.Errorf("the sessions are known before they were read: %v", <-found)
	}
	if err := os.WriteFile(path, record, 0o600); err != nil { // what waits to read it goes on
		t.Fatal(err)
	}
	for range cap(found) {
		if err := <-found; err != nil {
			t.Error(err)
		}
	}
}
