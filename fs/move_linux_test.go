package fs

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// lookingContext is a context that looks at the files each time it is asked.
type lookingContext struct {
	context.Context
	look func()
}

func (c lookingContext) Err() error {
	c.look()
	return c.Context.Err()
}

// otherSystem returns a folder in another file system than the one of dir.
func otherSystem(t *testing.T, dir string) string {
	t.Helper()
	device := func(path string) uint64 {
		var st syscall.Stat_t
		if err := syscall.Stat(path, &st); err != nil {
			return 0
		}
		return st.Dev
	}
	for _, in := range []string{"/dev/shm", "/tmp", "/var/tmp", "."} {
		if device(in) == device(dir) {
			continue
		}
		if there, err := os.MkdirTemp(in, "fs-move-"); err == nil {
			t.Cleanup(func() { _ = os.RemoveAll(there) })
			if there, err = filepath.Abs(there); err == nil {
				return there
			}
		}
	}
	t.Fatal("this test needs a folder in another file system: /dev/shm, /tmp, /var/tmp or that of the repository")
	return ""
}

// What is changed, or comes, while a folder is copied to another file system is not lost with the rest.
func TestMove_AcrossFileSystemsWhileItIsWritten(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(from string)
		left   []string
	}{
		"nothing happens": {func(string) {}, nil},
		"a file grows":    {func(from string) { put(t, from+"/a", "1 and more") }, []string{"d/", "d/a=1 and more"}},
		"a file comes":    {func(from string) { put(t, from+"/a2", "new") }, []string{"d/", "d/a2=new"}},
		"a folder comes":  {func(from string) { put(t, from+"/n/a", "new") }, []string{"d/", "d/n/", "d/n/a=new"}},
		"in a folder":     {func(from string) { put(t, from+"/b/x", "new") }, []string{"d/", "d/b/", "d/b/x=new"}},
		"a file goes":     {func(from string) { _ = os.Remove(from + "/a") }, nil},
		"another file with its size and time": {func(from string) {
			was, _ := os.Stat(from + "/a")
			put(t, from+"/../a", "2")
			_ = os.Chtimes(from+"/../a", was.ModTime(), was.ModTime())
			_ = os.Rename(from+"/../a", from+"/a")
		}, []string{"d/", "d/a=2"}},
	} {
		t.Run(name, func(t *testing.T) {
			here := t.TempDir()
			there := otherSystem(t, here)
			for _, file := range []string{"a", "b/y", "c", "z"} {
				put(t, here+"/d/"+file, "1")
			}
			if err := os.Link(here+"/d/z", here+"/d/zz"); err != nil {
				t.Fatal(err)
			}
			changed := false
			ctx := lookingContext{t.Context(), func() {
				if copied, _ := filepath.Glob(there + "/.*/c"); len(copied) > 0 && !changed {
					changed = true
					tt.change(here + "/d")
				}
			}}
			_, err := open(t, Options{}).Move(ctx, here+"/d", there+"/d", PlaceOptions{})
			if tt.left == nil && err != nil {
				t.Error(err)
			} else if tt.left != nil {
				wantCode(t, err, Changed, "stays where it was")
			}
			if !changed {
				t.Error("nothing was copied: the two folders are in one file system")
			}
			want(t, here, tt.left...)
			want(t, there+"/d", "a=1", "b/", "b/y=1", "c=1", "z=1", "zz=1")
		})
	}
}
