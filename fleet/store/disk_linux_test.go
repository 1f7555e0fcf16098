package store_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/fleet/store"
	"sandboxagent.dev/sandbox-agent/runtime"
)

// The bounds are what may be kept, not what must be free.
func TestStore_BoundsBeyondTheDisk(t *testing.T) {
	o := store.Options{Dir: t.TempDir(), LogBytes: 1 << 60, BundleBytes: 1 << 61}
	for range 2 {
		open(t, "one", o, nil).Close()
	}
}

// smallDisk returns a folder on a disk with so many bytes.
func smallDisk(t *testing.T, size string) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root: it mounts a disk")
	}
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skip("this machine mounts no disk: ", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// fillDisk writes until nothing more fits.
func fillDisk(t *testing.T, file string) {
	t.Helper()
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for size := 64 << 10; size > 0; { // the last bytes, too
		if _, err = f.Write(make([]byte, size)); err != nil {
			if !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, io.ErrShortWrite) {
				t.Fatal(err)
			}
			size /= 2
		}
	}
}

// A disk that is full keeps nobody from reading what is there, nor from removing it.
func TestStore_FullDisk(t *testing.T) {
	disk := smallDisk(t, "8m")
	o := store.Options{Dir: filepath.Join(disk, "store"), BundleBytes: 1_000_000}
	s := open(t, "one", o, nil)
	_, text, err := s.CreateToken(t.Context(), store.Token{Kind: store.KindClient, Scope: store.ScopeAdmin})
	if err != nil {
		t.Fatal(err)
	}
	id := store.ReplicaID{Node: "box", Session: "s", Epoch: 1}
	if err := s.UpdateSession(t.Context(), id, func(*store.Session) *store.Session {
		return &store.Session{Info: runtime.SessionInfo{ID: "s", CreatedAt: time.Now()}}
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Append(t.Context(), id, store.Place{}, store.Batch{First: 1, Last: 1, Lines: []byte("{\"seq\":1}\n")}); err != nil {
		t.Fatal(err)
	}
	s.Close()
	fillDisk(t, filepath.Join(disk, "other"))

	for _, most := range []int64{1_000_000, 2_000_000} { // as before, and with a bound that cannot be written
		o.BundleBytes = most
		s = open(t, "one", o, nil)
		if _, _, ok := s.Verify(text); !ok {
			t.Error("the token is not known")
		}
		if end, err := s.End(t.Context(), id); err != nil || end.Last != 1 {
			t.Errorf("the copy ends at %d: %v", end.Last, err)
		}
		s.Close()
	}
	s = open(t, "one", o, nil)
	defer s.Close()
	if err := s.Full(); !errors.Is(err, store.ErrDiskFull) {
		t.Errorf("the disk is not full: %v", err)
	}
	if _, err := s.Append(t.Context(), id, store.Place{Last: 1}, store.Batch{First: 2, Last: 2, Lines: []byte("{\"seq\":2}\n")}); !errors.Is(err, store.ErrDiskFull) {
		t.Errorf("an event is added to a disk that is full: %v", err)
	}
	if err := s.RemoveSession(t.Context(), id); err != nil {
		t.Errorf("a session cannot be removed: %v", err)
	}
	if s.Session(id) != nil {
		t.Error("the session is still there")
	}
}

// A disk that fills up while the hub runs is told of, leaves room to remove a session, and is
// forgotten when there is room again: nobody starts the hub anew.
func TestStore_DiskThatWasFull(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long")
	}
	disk := smallDisk(t, "12m")
	s := open(t, "one", store.Options{Dir: filepath.Join(disk, "store"), BundleBytes: 1_000_000}, nil)
	defer s.Close()
	token := func() (string, error) {
		_, text, err := s.CreateToken(t.Context(), store.Token{Kind: store.KindClient, Scope: store.ScopeRead})
		return text, err
	}
	before, err := token()
	if err != nil {
		t.Fatal(err)
	}
	id := store.ReplicaID{Node: "box", Session: "s", Epoch: 1}
	if err := s.UpdateSession(t.Context(), id, func(*store.Session) *store.Session {
		return &store.Session{Info: runtime.SessionInfo{ID: "s", CreatedAt: time.Now()}}
	}); err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(disk, "other")
	fillDisk(t, other)
	await(t, "the store says that it takes nothing", func() bool {
		_, _ = token() // what is written last fits into what is there
		return s.Ready() != nil
	})
	if _, _, ok := s.Verify(before); !ok {
		t.Error("a token is not known on a full disk")
	}
	await(t, "a session is removed", func() bool { return s.RemoveSession(t.Context(), id) == nil && s.Session(id) == nil })
	fillDisk(t, other+"2") // what was given up, too
	if err := errors.Join(os.Remove(other), os.Remove(other+"2")); err != nil {
		t.Fatal(err)
	}
	await(t, "a token is made", func() bool { _, err := token(); return err == nil })
	await(t, "the store takes everything again", func() bool { return s.Ready() == nil && s.Full() == nil })
	after, err := token()
	if err != nil {
		t.Error(err)
	}
	for _, text := range []string{before, after} {
		if _, _, ok := s.Verify(text); !ok {
			t.Error("a token is not known any more")
		}
	}
}
