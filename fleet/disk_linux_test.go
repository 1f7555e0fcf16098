package fleet_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"sandboxagent.dev/sandbox-agent/fleet/store"
)

// While the disk takes nothing, not even a note of that, the hub says so, and what is not copied.
func TestReplicas_FullDisk(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: it mounts a disk")
	}
	disk := t.TempDir()
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=8m"); err != nil {
		t.Skip("this machine mounts no disk: ", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(disk, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	h := startCopierOn(t, "one", store.Options{Dir: filepath.Join(disk, "store")})
	g := newGateway()
	g.put("s", begun, some(2, nil)...)
	h.join("box", h.joinToken(), nil, g)
	h.copied("s", 2)
	f, err := os.Create(filepath.Join(disk, "other"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for size := 64 << 10; size > 0; {
		if _, err := f.Write(make([]byte, size)); errors.Is(err, syscall.ENOSPC) {
			size /= 2
		} else if err != nil {
			t.Fatal(err)
		}
	}
	g.put("s", begun, some(300, nil)...)
	h.await("the trouble is told", func() bool {
		r := h.session("s").Replica
		return strings.Contains(r.Trouble, store.ErrDiskFull.Error()) && r.Missing == 298 && r.LastSeq == 2
	})
}
