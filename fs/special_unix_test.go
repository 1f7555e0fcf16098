//go:build unix

package fs

import (
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
)

func TestOpen_SpecialFiles(t *testing.T) {
	both(t, func(t *testing.T, s *Service, dir string) {
		if err := syscall.Mkfifo(dir+"/pipe", 0o644); err != nil {
			t.Fatalf("no pipe can be made: %v", err)
		}
		_, _, err := s.Open(dir + "/pipe")
		wantCode(t, err, NotFile, "pipe")
		_, _, err = s.Open(dir)
		wantCode(t, err, NotFile, "directory")
		_, _, err = s.Write(dir+"/pipe", strings.NewReader("x"), WriteOptions{})
		wantCode(t, err, NotFile)
		_, err = s.Copy(t.Context(), dir+"/pipe", dir+"/x", PlaceOptions{})
		wantCode(t, err, NotFile)
		_, _, err = s.Open(dir + "/no")
		wantCode(t, err, NotFound)
	})
}

// reading is a reader that does something before its first byte.
type reading struct {
	io.Reader
	first func()
}

func (r *reading) Read(p []byte) (int, error) {
	if r.first != nil {
		r.first()
		r.first = nil
	}
	return r.Reader.Read(p)
}

func TestWrite_ModeIsChangedMeanwhile(t *testing.T) {
	both(t, func(t *testing.T, s *Service, dir string) {
		put(t, dir+"/there", "1")
		for name, first := range map[string]func() error{
			"there": func() error { return os.Chmod(dir+"/there", 0o700) },
			"new":   func() error { return os.WriteFile(dir+"/new", nil, 0o600) },
		} {
			r := &reading{strings.NewReader("2"), func() {
				if err := first(); err != nil {
					t.Error(err)
				}
			}}
			if _, _, err := s.Write(dir+"/"+name, r, WriteOptions{}); err != nil {
				t.Fatal(err)
			}
			info, err := os.Stat(dir + "/" + name)
			if err != nil {
				t.Fatal(err)
			}
			if want := map[string]os.FileMode{"there": 0o700, "new": 0o600}[name]; info.Mode() != want {
				t.Errorf("%s has the mode %o, want %o", name, info.Mode(), want)
			}
		}
	})
}
