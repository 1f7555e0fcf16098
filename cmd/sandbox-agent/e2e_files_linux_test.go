package main_test

import (
	"archive/tar"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// mounted returns a new file system in memory below dir; the test is skipped
// where this user may not mount one.
func mounted(t *testing.T, dir, options string) string {
	t.Helper()
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("none", dir, "tmpfs", 0, options); err != nil {
		t.Skipf("no file system can be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func TestFiles_DiskFull(t *testing.T) {
	root := t.TempDir()
	disk := mounted(t, filepath.Join(root, "disk"), "size=1m")
	g := startGateway(t, "--fs-root", root)
	put := func(path string, size int64) (int, string) {
		return g.files("PUT", "file", at(path), io.LimitReader(newNoise(size), size))
	}
	if code, body := put("disk/f", 300<<10); code != 201 {
		t.Fatalf("%d: %s", code, body)
	}
	if code, body := put("disk/f", 4<<20); code != 507 || !strings.Contains(body, "insufficient_storage") || !strings.Contains(body, "no space left") {
		t.Errorf("%d: %s", code, body)
	}
	if code, body := put("big", 2<<20); code != 201 {
		t.Fatalf("%d: %s", code, body)
	}
	for _, what := range []string{"copy", "move"} {
		if code, body := g.files("POST", what, url.Values{"from": {"big"}, "to": {"disk/big"}}, nil); code != 507 {
			t.Errorf("%s: %d: %s", what, code, body)
		}
	}
	if got := entries(t, disk); len(got) != 1 || got[0] != "f" {
		t.Errorf("on the disk: %q", got)
	}
	if info, err := os.Stat(filepath.Join(disk, "f")); err != nil || info.Size() != 300<<10 {
		t.Errorf("%v, %v", info, err)
	}
	if info, err := os.Stat(filepath.Join(root, "big")); err != nil || info.Size() != 2<<20 {
		t.Errorf("%v, %v", info, err)
	}
	// The room is free again.
	if code, body := put("disk/f", 500<<10); code != 200 {
		t.Errorf("%d: %s", code, body)
	}
}

func TestFiles_AcrossFileSystems(t *testing.T) {
	root := t.TempDir()
	disk := mounted(t, filepath.Join(root, "disk"), "size=8m")
	g := startGateway(t, "--fs-root", root)
	for _, p := range []string{"d/a", "d/s/b"} {
		q := at(p)
		q.Set("parents", "true")
		q.Set("mode", "750")
		if code, body := g.files("PUT", "file", q, strings.NewReader(p)); code != 201 {
			t.Fatalf("%d: %s", code, body)
		}
	}
	if err := os.Symlink("s/b", filepath.Join(root, "d/l")); err != nil {
		t.Fatal(err)
	}
	if code, body := g.files("POST", "move", url.Values{"from": {"d"}, "to": {"disk/d"}}, nil); code != 200 {
		t.Fatalf("%d: %s", code, body)
	}
	if b, err := os.ReadFile(filepath.Join(disk, "d/l")); err != nil || string(b) != "d/s/b" {
		t.Errorf("%q, %v", b, err)
	}
	if info, err := os.Stat(filepath.Join(disk, "d/a")); err != nil || info.Mode().Perm() != 0o750 {
		t.Errorf("%v, %v", info, err)
	}
	if got := entries(t, root); len(got) != 1 {
		t.Errorf("left behind: %q", got)
	}
}

// Modes do not keep a privileged user from writing; a read-only file system
// does.
func TestFiles_ReadOnly(t *testing.T) {
	root := t.TempDir()
	disk := mounted(t, filepath.Join(root, "disk"), "size=1m")
	if err := os.WriteFile(filepath.Join(disk, "f"), []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("none", disk, "tmpfs", syscall.MS_REMOUNT|syscall.MS_RDONLY, "size=1m"); err != nil {
		t.Skipf("the file system cannot be made read-only: %v", err)
	}
	g := startGateway(t, "--fs-root", root)
	denied := func(code int, body string) {
		t.Helper()
		if code != 403 || !strings.Contains(body, "permission_denied") || !strings.Contains(body, "read-only file system") {
			t.Errorf("%d: %s", code, body)
		}
	}
	denied(g.files("PUT", "file", at("disk/f"), strings.NewReader("x")))
	denied(g.files("POST", "mkdir", at("disk/d"), nil))
	denied(g.files("DELETE", "entry", at("disk/f"), nil))
	denied(g.files("POST", "move", url.Values{"from": {"disk/f"}, "to": {"disk/g"}}, nil))
	denied(g.files("POST", "upload-batch", at("disk"), tarball(t, tar.Header{Name: "x"})))
	if code, body := g.files("GET", "file", at("disk/f"), nil); code != 200 || body != "old" {
		t.Errorf("%d: %s", code, body)
	}
}
