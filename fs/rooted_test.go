package fs

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// Every way in which a path could lead out of the root is refused, and nothing
// outside changes.
func TestRoot_NothingLeaves(t *testing.T) {
	outside := t.TempDir()
	put(t, outside+"/secret", "secret")
	dir := t.TempDir()
	s := open(t, Options{Root: dir})
	link(t, outside+"/secret", dir+"/absolute")
	link(t, outside, dir+"/folder")
	link(t, "../"+filepath.Base(filepath.Dir(outside))+"/../../../../../../../.."+outside+"/secret", dir+"/relative")
	link(t, outside+"/new", dir+"/dangling")
	link(t, "/proc/self/environ", dir+"/environ")
	link(t, "/proc/self/root", dir+"/procroot")
	put(t, dir+"/inside", "inside")
	before := everything(t, dir)
	ctx := t.Context()
	attempts := map[string]func(path string) error{
		"open": func(p string) error { _, _, err := s.Open(p); return err },
		"stat": func(p string) error { _, err := s.Stat(p, true); return err },
		"write": func(p string) error {
			_, _, err := s.Write(p, strings.NewReader("x"), WriteOptions{Parents: true})
			return err
		},
		"list": func(p string) error { _, err := s.List(ctx, p, ListOptions{Limit: 10}); return err },
		"unpack": func(p string) error {
			_, err := s.Unpack(ctx, p, bytes.NewReader(archive(t, "f=x")), nil)
			return err
		},
	}
	through := map[string]func(path string) error{
		"mkdir":     func(p string) error { _, err := s.Mkdir(p, 0o777, true); return err },
		"delete":    func(p string) error { return s.Delete(p, true) },
		"move from": func(p string) error { _, err := s.Move(ctx, p, dir+"/x", PlaceOptions{}); return err },
		"move to": func(p string) error {
			_, err := s.Move(ctx, dir+"/inside", p, PlaceOptions{Overwrite: true, Parents: true})
			return err
		},
		"copy from": func(p string) error { _, err := s.Copy(ctx, p, dir+"/x", PlaceOptions{}); return err },
		"copy to": func(p string) error {
			_, err := s.Copy(ctx, dir+"/inside", p, PlaceOptions{Overwrite: true, Parents: true})
			return err
		},
		"pack": func(p string) error {
			return s.Pack(ctx, untouched{}, []string{p})
		},
	}
	var check []string
	for _, p := range []string{"/absolute", "/folder", "/folder/secret", "/relative", "/dangling", "/environ", "/procroot/etc/passwd", "/folder/new"} {
		check = append(check, dir+p)
	}
	for what, f := range attempts {
		for _, p := range check {
			t.Run(what+" "+filepath.Base(p), func(t *testing.T) { wantCode(t, f(p), Escapes) })
		}
	}
	for what, f := range through {
		for _, p := range []string{dir + "/folder/secret", dir + "/folder/new", outside + "/secret", dir + "/../x", "/etc/passwd", "/proc/self/environ"} {
			t.Run(what+" "+p, func(t *testing.T) { wantCode(t, f(p), Escapes) })
		}
	}
	want(t, outside, "secret=secret")
	want(t, dir, before...)
}

// A root that holds the process file system does not show it.
func TestRoot_ProcessFileSystem(t *testing.T) {
	if _, err := os.Stat("/proc/self/environ"); err != nil {
		t.Skipf("there is no process file system: %v", err)
	}
	s := open(t, Options{Root: "/"})
	for _, p := range []string{"/proc/self/environ", fmt.Sprintf("/proc/%d/environ", os.Getpid()), "/proc/self/status"} {
		_, _, err := s.Open(p)
		wantCode(t, err, Escapes, "process file system")
	}
	_, err := s.List(t.Context(), fmt.Sprintf("/proc/%d", os.Getpid()), ListOptions{Limit: 10})
	wantCode(t, err, Escapes, "process file system")
	_, err = s.Copy(t.Context(), fmt.Sprintf("/proc/%d/environ", os.Getpid()), t.TempDir()+"/x", PlaceOptions{})
	wantCode(t, err, Escapes)
	pid := fmt.Sprintf("/proc/%d", os.Getpid())
	for _, p := range []string{pid + "/environ", pid, "/proc/self/environ"} {
		wantCode(t, s.Pack(t.Context(), io.Discard, []string{p}), Escapes)
	}
	if f, err := s.Search(t.Context(), pid+"/task", SearchOptions{Content: "PATH", Limit: 1}); err == nil {
		t.Errorf("it was searched: %+v", f)
	}
	if _, err := read(s, "/etc/hostname"); err != nil {
		t.Error(err)
	}
}

// While a folder is swapped for a symbolic link and back as fast as possible,
// nothing is read or written outside.
func TestRoot_RaceOfFolderAndLink(t *testing.T) {
	outside, dir := t.TempDir(), t.TempDir()
	put(t, outside+"/f", "outside")
	put(t, dir+"/real/f", "inside")
	s := open(t, Options{Root: dir})
	link(t, outside, dir+"/evil")
	if err := os.Rename(dir+"/real", dir+"/d"); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var swapper sync.WaitGroup
	swaps := 0
	swapper.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			swaps++
			_ = os.Rename(dir+"/d", dir+"/real")
			_ = os.Rename(dir+"/evil", dir+"/d")
			_ = os.Rename(dir+"/d", dir+"/evil")
			_ = os.Rename(dir+"/real", dir+"/d")
		}
	})
	rounds := 400
	if testing.Short() {
		rounds = 150
	}
	good := 0
	for i := range rounds {
		if got, err := read(s, dir+"/d/f"); err == nil {
			good++
			if strings.Contains(got, "outside") {
				t.Fatal("the file outside was read")
			}
		}
		_, _, _ = s.Write(dir+"/d/f", strings.NewReader("inside"), WriteOptions{})
		_, _, _ = s.Write(fmt.Sprintf("%s/d/n%d/f", dir, i%5), strings.NewReader("x"), WriteOptions{Parents: true})
		_, _ = s.Unpack(t.Context(), dir+"/d", bytes.NewReader(archive(t, "u/f=x")), nil)
		_, _ = s.Mkdir(dir+"/d/m", 0o777, true)
		_ = s.Delete(dir+"/d/m", true)
		_ = s.Delete(dir+"/d/f2", true)
		_, _ = s.Copy(t.Context(), dir+"/d/f", dir+"/d/f2", PlaceOptions{})
	}
	close(stop)
	swapper.Wait()
	want(t, outside, "f=outside")
	if good == 0 || swaps < 10 {
		t.Errorf("%d good reads with %d swaps: there was no race", good, swaps)
	}
}

// Somebody removes the root and makes it anew, as with a clone, or puts another folder in its place: files are those
// of the folder that has the name. Nobody is led out of it.
func TestRoot_IsReplaced(t *testing.T) {
	above := t.TempDir()
	dir := filepath.Join(above, "w")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.Mkdir(dir, 0o700))
	s := open(t, Options{Root: dir})
	write := func(name string) error {
		path, err := s.Resolve(name, "")
		if err == nil {
			_, _, err = s.Write(path, strings.NewReader(name), WriteOptions{})
		}
		return err
	}
	must(write("first"))
	must(os.Rename(dir, dir+".old"))
	wantCode(t, write("while it is away"), NotFound)
	must(os.Mkdir(dir, 0o700))
	must(write("second"))
	must(os.RemoveAll(dir))
	must(os.Mkdir(dir, 0o700))
	must(write("third"))
	for name, want := range map[string]string{dir + ".old": "first", dir: "third"} {
		entries, err := os.ReadDir(name)
		if err != nil || len(entries) != 1 || entries[0].Name() != want {
			t.Errorf("%s has %v, %v, want %s", name, entries, err, want)
		}
	}
	must(os.Remove(filepath.Join(dir, "third")))
	must(os.Remove(dir))
	link(t, dir+".old", dir)
	wantCode(t, write("over a link"), Escapes)
	if _, err := os.Lstat(filepath.Join(dir+".old", "over a link")); err == nil {
		t.Error("a file was written outside of the root")
	}
}
