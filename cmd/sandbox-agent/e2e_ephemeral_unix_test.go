//go:build unix

package main_test

import (
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
)

// briefAmp plays the program: it begins, and ends each turn at once.
const briefAmp = `#!/bin/sh
case "$1" in --help|--version) exit 0;; esac
echo '{"type":"system","subtype":"init","session_id":"T-01a1ff59-511e-77f1-8249-a632ffe175a2"}'
while read line; do
	echo '{"type":"assistant","message":{"content":[{"type":"text","text":"done"}],"stop_reason":"end_turn"}}'
done
`

// A gateway that keeps nothing on the disk has no data directory for what agents keep beside their sessions. That
// is not the folder in which it was started: what is there is somebody's, whatever its name.
func TestEphemeral_LeavesItsFolderAlone(t *testing.T) {
	home, programs, temp := t.TempDir(), t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(programs, "amp"), []byte(briefAmp), 0o700); err != nil {
		t.Fatal(err)
	}
	theirs := []string{filepath.Join(home, "run", "theirs"), filepath.Join(home, "sessions", "theirs.json")}
	for _, file := range theirs {
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	begun := func() *gateway {
		g := newGateway(t, "--ephemeral")
		g.env = []string{"HOME=" + t.TempDir(), "TMPDIR=" + temp, "PATH=" + programs + string(os.PathListSeparator) + os.Getenv("PATH"), "AMP_API_KEY=sgamp_somebody"}
		g.wrap = []string{"/bin/sh", "-c", `cd "$0" && exec "$@"`, home}
		g.start()
		c := connect(t, g, wsocket, options{agent: "amp", cwd: t.TempDir()})
		if reason := c.prompt(c.newSession(), "say done"); reason != "end_turn" {
			t.Errorf("the turn ended with %s", reason)
		}
		return g
	}
	// What others can change is not looked into, whatever its name: its lock could be a link to any file.
	if err := os.Mkdir(filepath.Join(temp, "sandbox-agent-state-theirs"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(temp, "sandbox-agent-state-theirs", "lock"), []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	g := begun()
	found := func(dir string) []string {
		all, err := filepath.Glob(filepath.Join(dir, "*", "*"))
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	if got := found(home); len(got) != len(theirs) || got[0] != theirs[0] || got[1] != theirs[1] {
		t.Errorf("the folder in which it was started has %q, want %q", got, theirs)
	}
	if len(found(temp)) < 2 {
		t.Error("nothing among the temporary files, so that this test sees nothing")
	}
	folders := func(when string, want int) []os.DirEntry {
		all, err := os.ReadDir(temp)
		if err != nil || len(all) != 1+want {
			t.Errorf("%s there are %v among the temporary files, want %d: %v", when, all, want, err)
		}
		return all
	}
	// The next one removes what one that was killed has left, and nothing of one that runs.
	g.kill(syscall.SIGKILL)
	left := folders("behind a killed one", 1)
	running := begun()
	if now := folders("with the next one", 1); slices.EqualFunc(left, now, func(a, b os.DirEntry) bool { return a.Name() == b.Name() }) {
		t.Error("the folder of the killed one is still there")
	}
	last := begun()
	folders("with two that run", 2)
	last.kill(syscall.SIGTERM)
	folders("with the first of the two", 1)
	running.kill(syscall.SIGTERM)
	folders("behind all", 0)
	if b, err := os.ReadFile(filepath.Join(temp, "sandbox-agent-state-theirs", "lock")); err != nil || string(b) != "precious" {
		t.Errorf("somebody else's folder: %q, %v", b, err)
	}
}
