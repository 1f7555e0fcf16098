package fs

import (
	"io"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A file that is being written is not to be seen: not by an agent that commits all there is, and not after this
// program was killed.
func TestWrite_NobodySeesHalfAFile(t *testing.T) {
	both(t, func(t *testing.T, s *Service, dir string) {
		fd, err := syscall.Open(dir, openUnnamed|syscall.O_WRONLY, 0o600)
		if err != nil {
			t.Fatalf("the tests' folder is in a file system without files that have no name: %v", err)
		}
		_ = syscall.Close(fd)
		put(t, dir+"/old", "old")
		before := []string{"old"}
		for _, one := range []struct {
			name string
			o    WriteOptions
			then []string
		}{
			{"old", WriteOptions{}, before},
			{"new", WriteOptions{New: true}, []string{"new", "old"}},
			{"third", WriteOptions{Sync: true}, []string{"new", "old", "third"}},
		} {
			r, w := io.Pipe()
			done := make(chan error, 1)
			go func() {
				_, _, err := s.Write(dir+"/"+one.name, r, one.o)
				done <- err
			}()
			if _, err := w.Write(make([]byte, 3*copySize)); err != nil { // more than is read at once: some is written
				t.Fatal(err)
			}
			if diff := cmp.Diff(before, entriesOf(t, dir)); diff != "" {
				t.Errorf("while %s is written, -before +now:\n%s", one.name, diff)
			}
			_ = w.Close()
			if err := <-done; err != nil {
				t.Errorf("%s: %v", one.name, err)
			}
			if diff := cmp.Diff(one.then, entriesOf(t, dir)); diff != "" {
				t.Errorf("when %s is written, -want +got:\n%s", one.name, diff)
			}
			if info, err := os.Stat(dir + "/" + one.name); err != nil || info.Size() != 3*copySize {
				t.Errorf("%s: %v", one.name, err)
			}
			before = one.then
		}
	})
}

func entriesOf(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// The same of a large file in an archive.
func TestUnpack_NobodySeesHalfAFile(t *testing.T) {
	both(t, func(t *testing.T, s *Service, dir string) {
		put(t, dir+"/in/old", "old")
		large := strings.Repeat("x", 3*copySize)
		b := archive(t, "old="+large, "new="+large)
		before := []string{"old"}
		r, w := io.Pipe()
		done := make(chan error, 1)
		go func() {
			_, err := s.Unpack(t.Context(), dir+"/in", r, nil)
			done <- err
		}()
		for _, n := range []int{512 + 2*copySize, copySize + 512 + 2*copySize} { // to the middle of each
			if _, err := w.Write(b[:n]); err != nil {
				t.Fatal(err)
			}
			b = b[n:]
			if diff := cmp.Diff(before, entriesOf(t, dir+"/in")); diff != "" {
				t.Errorf("in the middle of a file, -before +now:\n%s", diff)
			}
		}
		if _, err := w.Write(b); err != nil {
			t.Fatal(err)
		}
		_ = w.Close()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"old", "new"} {
			if got, err := os.ReadFile(dir + "/in/" + name); err != nil || string(got) != large {
				t.Errorf("%s has %d bytes, %v", name, len(got), err)
			}
		}
		if diff := cmp.Diff([]string{"new", "old"}, entriesOf(t, dir+"/in")); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	})
}
