package install

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp/problem"
)

// mounted returns a new file system in memory; the test is skipped where this
// user may not mount one.
func mounted(t *testing.T, flags uintptr, options string) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("none", dir, "tmpfs", flags, options); err != nil {
		t.Skipf("no file system can be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func TestDownload_RealDiskFull(t *testing.T) {
	dir := mounted(t, 0, "size=256k")
	m, _ := claudeServer(t, func(w http.ResponseWriter, _ *http.Request, _ int, body []byte) { half(w, body, len(body)) })
	in := m.installer(t, Options{DataDir: dir, Sources: []Source{Vendor}})
	_, err := in.Install(t.Context(), Request{Agent: "claude"})
	wantProblem(t, err, problem.InstallFailed, "no space left", "free some space")
	if left, _ := filepath.Glob(filepath.Join(in.root, "claude", ".*")); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
	// The room is free again for a smaller one.
	m.putClaude("0.9.0", program("0.9.0"))
	mustInstall(t, in, Request{Agent: "claude"})
}

func TestDownload_ReadOnly(t *testing.T) {
	dir := mounted(t, syscall.MS_RDONLY, "size=64k")
	m := newMaker(t)
	_, err := m.installer(t, Options{DataDir: dir}).Install(t.Context(), Request{Agent: "claude", Sources: []Source{Vendor}})
	wantProblem(t, err, problem.InstallFailed, "read-only")
}

func TestProof_NoExec(t *testing.T) {
	dir := mounted(t, syscall.MS_NOEXEC, "size=4m")
	m := newMaker(t)
	m.putClaude("1.0.0", program("1.0.0"))
	_, err := m.installer(t, Options{DataDir: dir}).Install(t.Context(), Request{Agent: "claude", Sources: []Source{Vendor}})
	wantProblem(t, err, problem.InstallFailed, "noexec", "data directory")
}

// At whichever file the disk is full, that is what the error says, and no other source is asked.
func TestInstall_NoRoomForAnotherFile(t *testing.T) {
	m := newMaker(t)
	m.putClaude("1.0.0", program("1.0.0"))
	for files := 4; ; files++ {
		dir := mounted(t, 0, fmt.Sprintf("size=4m,nr_inodes=%d", files))
		in := m.installer(t, Options{DataDir: dir, Sources: []Source{Vendor, Registry}})
		_, err := in.Install(t.Context(), Request{Agent: "claude"})
		if err == nil && files > 6 {
			return
		}
		wantProblem(t, err, problem.InstallFailed, "no space left", "free some space")
		if strings.Contains(err.Error(), "registry: ") {
			t.Fatalf("another source was asked: %v", err)
		}
	}
}
