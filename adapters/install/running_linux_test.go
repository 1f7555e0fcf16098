package install

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A version of which a program runs keeps its files, however many come behind it.
func TestStore_VersionThatRuns(t *testing.T) {
	m := newMaker(t)
	in := m.installer(t, Options{Sources: []Source{Vendor}})
	want := func(version string, names ...string) {
		t.Helper()
		m.putClaude(version, append(program(version), "cat >/dev/null\n"...))
		mustInstall(t, in, Request{Agent: "claude", Version: Latest})
		if d := cmp.Diff(names, versionsOf(t, in)); d != "" {
			t.Errorf("after %s, -want +got:\n%s", version, d)
		}
	}
	want("1.0.0", "1.0.0*")
	session := exec.CommandContext(t.Context(), filepath.Join(in.root, "claude", "1.0.0", "claude"), "--version")
	end, err := session.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := session.Start(); err != nil {
		t.Fatal(err)
	}
	want("2.0.0", "2.0.0*", "1.0.0")
	want("3.0.0", "3.0.0*", "2.0.0", "1.0.0")
	_ = end.Close()
	_ = session.Wait() // its end is that of its input
	want("4.0.0", "4.0.0*", "3.0.0")
}
