package fs

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// atEntry is a context in which something happens when a copy comes to its nth entry.
type atEntry struct {
	context.Context
	n  int
	do func()
}

func (c *atEntry) Err() error {
	if c.n--; c.n == 0 {
		c.do()
	}
	return c.Context.Err()
}

// What is removed when its name was read already is not in a copy, and ends none.
func TestCopy_WhileFilesAreRemoved(t *testing.T) {
	both(t, func(t *testing.T, s *Service, dir string) {
		put(t, dir+"/from/a", "1")
		put(t, dir+"/from/b", "2")
		put(t, dir+"/from/c/d", "3")
		put(t, dir+"/from/e", "4")
		ctx := &atEntry{t.Context(), 2, func() { // the first is the folder
			if err := errors.Join(os.Remove(dir+"/from/b"), os.RemoveAll(dir+"/from/c")); err != nil {
				t.Error(err)
			}
		}}
		if _, err := s.Copy(ctx, dir+"/from", dir+"/to", PlaceOptions{}); err != nil {
			t.Fatal(err)
		}
		if left, err := filepath.Glob(dir + "/to/*"); err != nil || len(left) != 2 || left[0] != dir+"/to/a" || left[1] != dir+"/to/e" {
			t.Errorf("the copy has %v, %v", left, err)
		}
	})
}

// A copy whose own folder is removed is not taken for one of which files were removed.
func TestCopy_WhileItIsRemoved(t *testing.T) {
	both(t, func(t *testing.T, s *Service, dir string) {
		put(t, dir+"/from/a/b", "1")
		ctx := &atEntry{t.Context(), 3, func() {
			made, err := filepath.Glob(dir + "/" + temporary + "*/a")
			if err != nil || len(made) != 1 {
				t.Errorf("%v, %v", made, err)
			}
			for _, m := range made {
				if err := os.RemoveAll(m); err != nil {
					t.Error(err)
				}
			}
		}}
		if _, err := s.Copy(ctx, dir+"/from", dir+"/to", PlaceOptions{}); err == nil {
			t.Error("it is a copy without what was removed from it")
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
			t.Errorf("%v is left, %v", left, err)
		}
	})
}

// What is a file, then a folder, then a file is copied as one of the two.
func TestCopy_WhileFoldersBecomeFiles(t *testing.T) {
	both(t, func(t *testing.T, s *Service, dir string) {
		put(t, dir+"/from/x", "1")
		put(t, dir+"/folder/f", "1")
		stop, ended := make(chan struct{}), make(chan error, 1)
		go func() {
			for {
				for _, step := range [][2]string{{"/from/x", "/file"}, {"/folder", "/from/x"}, {"/from/x", "/folder"}, {"/file", "/from/x"}} {
					if err := os.Rename(dir+step[0], dir+step[1]); err != nil {
						ended <- err
						return
					}
				}
				select {
				case <-stop:
					ended <- nil
					return
				default:
				}
			}
		}()
		for range 300 {
			if _, err := s.Copy(t.Context(), dir+"/from", dir+"/to", PlaceOptions{Overwrite: true}); err != nil {
				t.Error(err)
				break
			}
		}
		close(stop)
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
