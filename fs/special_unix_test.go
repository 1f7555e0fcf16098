//go:build unix

package fs

import (
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
