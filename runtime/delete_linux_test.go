package runtime

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

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
	if err := r.DeleteSession(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	first := make([]byte, 4096)
	if n, err := syscall.Read(events, first); err != nil || n < syscall.SizeofInotifyEvent {
		t.Fatalf("%d bytes, %v", n, err)
	}
	if mask := binary.NativeEndian.Uint32(first[4:]); mask&syscall.IN_MOVE_SELF == 0 {
		t.Errorf("the first thing that happened to the folder is %#x, want that it has got another name", mask)
	}
	for _, folder := range []string{"sessions", "travelling"} {
		if left, err := os.ReadDir(filepath.Join(dir, folder)); err != nil || len(left) > 0 {
			t.Errorf("%s has %v, %v", folder, left, err)
		}
	}
}
