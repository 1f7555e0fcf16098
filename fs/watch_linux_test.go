package fs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"
)

// watching starts a watch and returns what it tells, as "type path", and its end. Functions are called with the first changes.
func watching(t *testing.T, s *Service, dir string, o WatchOptions, first ...func()) (changes <-chan string, end func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	told, ready, ended := make(chan string, 10000), make(chan struct{}), make(chan error, 1)
	o.Ready = func() { close(ready) }
	go func() {
		err := s.Watch(ctx, dir, o, func(c Change) error {
			if len(first) > 0 {
				first[0]()
				first = first[1:]
			}
			text := string(c.Type) + " " + strings.TrimPrefix(strings.TrimPrefix(c.Path, dir), "/")
			if c.From != "" {
				text += " from " + strings.TrimPrefix(c.From, dir+"/")
			}
			told <- text
			return nil
		})
		close(told)
		ended <- err
	}()
	select {
	case <-ready:
	case err := <-ended:
		t.Fatal(err)
	}
	t.Cleanup(cancel)
	return told, func() error { cancel(); return <-ended }
}

func expect(t *testing.T, changes <-chan string, want ...string) {
	t.Helper()
	for _, w := range want {
		select {
		case got := <-changes:
			if got != w {
				t.Fatalf("told %q, want %q", got, w)
			}
		case <-time.After(time.Minute):
			t.Fatalf("nothing was told, want %q", w)
		}
	}
}

func TestWatch(t *testing.T) {
	both(t, func(t *testing.T, s *Service, dir string) {
		put(t, dir+"/old/deep/f", "1")
		changes, end := watching(t, s, dir, WatchOptions{Recursive: true})
		put(t, dir+"/a", "1")
		expect(t, changes, "created a", "modified a")
		put(t, dir+"/old/deep/f", "2")
		expect(t, changes, "modified old/deep/f")
		if err := os.Rename(dir+"/a", dir+"/old/b"); err != nil {
			t.Fatal(err)
		}
		expect(t, changes, "renamed old/b from a")
		put(t, dir+"/.hidden", "1")
		if _, _, err := s.Write(dir+"/w", strings.NewReader("x"), WriteOptions{}); err != nil {
			t.Fatal(err)
		}
		expect(t, changes, "modified w")
		put(t, dir+"/#12", "1") // as the kernel calls a file without a name
		expect(t, changes, "created #12", "modified #12")
		if err := os.Rename(dir+"/old", dir+"/new"); err != nil {
			t.Fatal(err)
		}
		expect(t, changes, "renamed new from old")
		put(t, dir+"/new/deep/g", "1")
		expect(t, changes, "created new/deep/g", "modified new/deep/g")
		away := t.TempDir()
		if err := os.Rename(dir+"/new", away+"/x"); err != nil {
			t.Fatal(err)
		}
		expect(t, changes, "removed new")
		put(t, away+"/x/deep/h", "1") // is watched no longer
		if err := os.Rename(away+"/x", dir+"/back"); err != nil {
			t.Fatal(err)
		}
		expect(t, changes, "created back", "created back/b", "created back/deep", "created back/deep/f", "created back/deep/g", "created back/deep/h")
		if err := os.Remove(dir + "/back/b"); err != nil {
			t.Fatal(err)
		}
		expect(t, changes, "removed back/b")
		if err := end(); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
	})
}

// What has happened by the time that a watch comes to it is told as it was, and what comes then is told where it is: each row
// is done while the watch waits, and then what follows.
func TestWatch_FarBehind(t *testing.T) {
	for name, row := range map[string]struct {
		before, during, then string
		told, thenTold       []string
	}{
		"nothing is at the name of a new folder": {
			during: "mkdir new; mv new gone", told: []string{"created new", "renamed gone from new"},
			then: "put gone/f", thenTold: []string{"created gone/f", "modified gone/f"},
		},
		"another one is at the name of a new folder": {
			during: "mkdir new; mv new replaced; mkdir new; put replaced/early", told: []string{"created new", "renamed replaced from new", "created replaced/early", "created new"},
			then: "put replaced/f; put new/f", thenTold: []string{"created replaced/f", "modified replaced/f", "created new/f", "modified new/f"},
		},
		"the folder of a new one is renamed": {
			before: "mkdir old", during: "mkdir old/new; mv old is", told: []string{"created old/new", "renamed is from old"},
			then: "put is/new/f", thenTold: []string{"created is/new/f", "modified is/new/f"},
		},
		"the folder of a new one is renamed twice": {
			before: "mkdir old", during: "mkdir old/new; mv old was; mv was is", told: []string{"created old/new", "renamed was from old", "renamed is from was"},
			then: "put is/new/f", thenTold: []string{"created is/new/f", "modified is/new/f"},
		},
		"another one is at the name of the folder of a new one": {
			before: "mkdir old", during: "mkdir old/new; mv old is; mkdir old; mkdir old/new", told: []string{"created old/new", "renamed is from old", "created old", "created old/new"},
			then: "put is/new/f; put old/new/g", thenTold: []string{"created is/new/f", "modified is/new/f", "created old/new/g", "modified old/new/g"},
		},
		"a file is removed between two names": {
			before: "mkdir old; put old/f", during: "mv old was; rm was/f; mv was is; mkdir was", told: []string{"renamed was from old", "removed was/f", "renamed is from was", "created was"},
			then: "put is/f; put was/f", thenTold: []string{"created is/f", "modified is/f", "created was/f", "modified was/f"},
		},
		"two folders have changed their names": {
			before: "mkdir a; mkdir b; put a/f; put b/g", during: "mv a x; mv b a; mv x b; rm b/f; rm a/g", told: []string{"renamed x from a", "renamed a from b", "renamed b from x", "removed b/f", "removed a/g"},
			then: "put a/h", thenTold: []string{"created a/h", "modified a/h"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T, s *Service, dir string) {
				do := func(commands string) {
					for c := range strings.SplitSeq(commands, "; ") {
						w := append(strings.Fields(c), "")
						var err error
						switch w[0] {
						case "mkdir":
							err = os.Mkdir(dir+"/"+w[1], 0o755)
						case "mv":
							err = os.Rename(dir+"/"+w[1], dir+"/"+w[2])
						case "rm":
							err = os.Remove(dir + "/" + w[1])
						case "put":
							put(t, dir+"/"+w[1], "1")
						}
						if err != nil {
							t.Fatal(err)
						}
					}
				}
				do(row.before)
				busy, free := make(chan struct{}), make(chan struct{})
				changes, end := watching(t, s, dir, WatchOptions{Recursive: true}, func() {
					close(busy)
					<-free // the changes behind the first one wait with the kernel
				})
				do("mkdir first")
				<-busy
				do(row.during)
				do("mkdir last")
				close(free)
				expect(t, changes, append([]string{"created first"}, row.told...)...)
				expect(t, changes, "created last") // it is done with the others
				do(row.then)
				expect(t, changes, row.thenTold...)
				if err := end(); !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			})
		})
	}
}

// Whatever has happened to folders while a watch was behind, each that is there is watched by its path.
func TestWatch_FarBehindAtRandom(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			dir, r := t.TempDir(), rand.New(rand.NewPCG(seed, 0))
			s := open(t, Options{Root: dir})
			busy, free := make(chan struct{}), make(chan struct{})
			changes, end := watching(t, s, dir, WatchOptions{Recursive: true}, func() { close(busy); <-free })
			put(t, dir+"/first", "1")
			<-busy
			folders := func() (all []string) {
				err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
					if d.IsDir() {
						all = append(all, path)
					}
					return err
				})
				if err != nil {
					t.Fatal(err)
				}
				return all
			}
			for i := range 100 {
				all := folders()
				one, other := all[r.IntN(len(all))], all[r.IntN(len(all))]+"/"+string(rune('a'+r.IntN(3)))
				switch r.IntN(4) { // what cannot be done is not done
				case 0, 1:
					_ = os.Mkdir(other, 0o755)
				case 2:
					_ = os.Rename(one, other)
				case 3:
					_ = os.Remove(one)
				}
				if i == 50 {
					close(free) // the rest happens beside it
				}
			}
			awaitChange := func(want string) {
				for {
					select {
					case got := <-changes:
						if got == want {
							return
						}
					case <-time.After(time.Minute):
						t.Fatalf("nothing was told, want %q", want)
					}
				}
			}
			put(t, dir+"/last", "1")
			awaitChange("created last")
			for _, at := range folders() {
				put(t, at+"/marker", "1")
				awaitChange("created " + strings.TrimPrefix(at+"/marker", dir+"/"))
			}
			if err := end(); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
}

func TestWatch_EndsWithItsFolder(t *testing.T) {
	both(t, func(t *testing.T, s *Service, dir string) {
		if err := os.Mkdir(dir+"/d", 0o755); err != nil {
			t.Fatal(err)
		}
		changes, end := watching(t, s, dir+"/d", WatchOptions{})
		if err := os.Remove(dir + "/d"); err != nil {
			t.Fatal(err)
		}
		expect(t, changes, "removed ")
		if _, more := <-changes; more {
			t.Error("it goes on")
		}
		if err := end(); err != nil {
			t.Error(err)
		}
		err := s.Watch(t.Context(), dir+"/no", WatchOptions{}, nil)
		wantCode(t, err, NotFound)
	})
}

func TestWatch_TooManyFolders(t *testing.T) {
	dir := t.TempDir()
	for i := range 5 {
		put(t, fmt.Sprintf("%s/d%d/f", dir, i), "x")
	}
	s := open(t, Options{Root: dir, Watches: 3})
	err := s.Watch(t.Context(), dir, WatchOptions{Recursive: true}, func(Change) error { return nil })
	wantCode(t, err, TooLarge, "3 folders")
}

// What the system refuses at this moment is not a request that is too large. The system has bounds of its own for what is in a user namespace.
func TestWatch_SystemRefuses(t *testing.T) {
	const bound = "FS_TEST_BOUND"
	if name := os.Getenv(bound); name != "" {
		if err := os.WriteFile("/proc/sys/user/"+name, []byte("3"), 0o600); err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		for i := range 5 {
			put(t, fmt.Sprintf("%s/d%d/f", dir, i), "x")
		}
		for range 2 {
			fd, err := syscall.InotifyInit1(syscall.IN_CLOEXEC)
			if err != nil {
				t.Fatal(err)
			}
			defer syscall.Close(fd)
		}
		s := open(t, Options{Root: dir})
		if name == "max_inotify_instances" {
			_, end := watching(t, s, dir, WatchOptions{}) // the last one
			defer func() { _ = end() }()
		}
		err := s.Watch(t.Context(), dir, WatchOptions{Recursive: true}, func(Change) error { return nil })
		wantCode(t, err, Busy, "end other watches", "fs.inotify.")
		return
	}
	for _, name := range []string{"max_inotify_instances", "max_inotify_watches"} {
		c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestWatch_SystemRefuses$")
		c.Env = append(os.Environ(), bound+"="+name)
		c.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		}
		out, err := c.CombinedOutput()
		switch {
		case err != nil && c.ProcessState == nil: // nobody may make such a namespace here
			wantCode(t, refusedWatcher(syscall.EMFILE), Busy, "end other watches", "fs.inotify.")
		case err != nil:
			t.Errorf("%s: %v: %s", name, err, out)
		}
	}
}

// Who does not take changes is told that some are lost. What comes then is told, also in a folder of which it was lost that
// it is there.
func TestWatch_Overflow(t *testing.T) {
	t.Parallel()
	limit, err := os.ReadFile("/proc/sys/fs/inotify/max_queued_events")
	if err != nil {
		t.Skipf("the length of the queue is not known: %v", err)
	}
	var queued int
	if _, err := fmt.Sscan(string(limit), &queued); err != nil || queued > 100_000 {
		t.Skipf("the queue is too long to be filled: %s", limit)
	}
	dir := t.TempDir()
	s := open(t, Options{Root: dir})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ready, busy, free := make(chan struct{}), make(chan struct{}), make(chan struct{})
	overflow, late, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		first, lost := true, false
		_ = s.Watch(ctx, dir, WatchOptions{Recursive: true, Ready: func() { close(ready) }}, func(c Change) error {
			if first {
				first = false
				close(busy)
				<-free
			}
			switch {
			case c.Type == Overflow && !lost:
				lost = true
				close(overflow)
			case c.Path == dir+"/late/f":
				close(late)
				return errStop
			}
			return nil
		})
	}()
	<-ready
	put(t, dir+"/first", "")
	<-busy
	from, to := dir+"/first", dir+"/second"
	for range queued/2 + 2000 { // each is told twice: gone, and come
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
		from, to = to, from
	}
	if err := os.Mkdir(dir+"/late", 0o755); err != nil {
		t.Fatal(err)
	}
	close(free)
	select {
	case <-overflow:
	case <-time.After(time.Minute):
		t.Fatal("no overflow was told")
	}
	put(t, dir+"/late/f", "x")
	select {
	case <-late:
	case <-time.After(time.Minute):
		t.Error("what came into the folder was not told")
	}
	cancel()
	<-ended
}

// A watch that has ended does not call the kernel with a number that is another file's by now.
func TestWatch_EndedUsesNoDescriptor(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	_, _ = r.Close(), w.Close()
	ended := watcher{inotify: r}
	if err := ended.with(func(int) error { t.Error("it was called"); return nil }); err == nil {
		t.Error("it did not fail")
	}
}

// What appears in a new folder while the watch comes to it is told: a folder is watched before it is read.
func TestWatch_NewFolderIsFilled(t *testing.T) {
	both(t, func(t *testing.T, s *Service, dir string) {
		name, err := s.name(dir)
		if err != nil {
			t.Fatal(err)
		}
		root, err := s.tree().OpenRoot(name)
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()
		seen := map[string]bool{}
		k := walk{
			s: s,
			enter: func(at *os.Root, rel string) error {
				if rel == "" {
					return at.Mkdir("late", 0o755)
				}
				return at.WriteFile("file", nil, 0o600)
			},
			leave:  func() {},
			visit:  func(f found) (bool, error) { seen[f.rel] = true; return true, nil },
			failed: func(_ string, err error) error { return err },
		}
		if err := k.below(t.Context(), root, ""); err != nil {
			t.Fatal(err)
		}
		if !seen["late"] || !seen["late/file"] {
			t.Errorf("of what appeared when the folders were entered it has seen %v", seen)
		}
	})
}

// The kernel tells of a rename in two halves, which may come apart. What comes from a folder that was moved away in
// between is nobody's business any more.
func TestWatch_HalvesOfARename(t *testing.T) {
	from, kernel, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	var told []string
	top, d := &watchedFolder{id: 1}, &watchedFolder{id: 2}
	tree := watchTree{folders: map[int32]*watchedFolder{1: top, 2: d}, top: top}
	tree.place(d, top, "d")
	w := watcher{
		s: open(t, Options{Home: t.TempDir()}), path: "/w", o: WatchOptions{Recursive: true}, name: "/nowhere", inotify: from, tree: tree,
		emit: func(c Change) error {
			told = append(told, strings.TrimSpace(string(c.Type)+" "+c.Path+" "+c.From))
			return nil
		},
	}
	ended := make(chan error, 1)
	go func() { ended <- w.run(t.Context()) }()
	says := func(id int32, mask, cookie uint32, name string) {
		b := make([]byte, syscall.SizeofInotifyEvent+16)
		*(*syscall.InotifyEvent)(unsafe.Pointer(&b[0])) = syscall.InotifyEvent{Wd: id, Mask: mask, Cookie: cookie, Len: 16}
		copy(b[syscall.SizeofInotifyEvent:], name)
		if _, err := kernel.Write(b); err != nil {
			t.Fatal(err)
		}
		for { // until it was read
			n := int32(0)
			if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, kernel.Fd(), syscall.TIOCINQ, uintptr(unsafe.Pointer(&n))); errno != 0 {
				t.Fatal(errno)
			}
			if n == 0 {
				return
			}
			runtime.Gosched()
		}
	}
	says(1, syscall.IN_MOVED_FROM, 7, "a")
	says(1, syscall.IN_MOVED_TO, 7, "b")
	says(1, syscall.IN_MOVED_FROM|syscall.IN_ISDIR, 8, "d")
	says(2, syscall.IN_CREATE, 0, "private")
	says(1, syscall.IN_MOVED_FROM, 9, "c")
	says(1, syscall.IN_DELETE, 0, "e")
	_ = kernel.Close()
	if err := <-ended; !errors.Is(err, io.EOF) {
		t.Errorf("it ended with %v", err)
	}
	want := []string{"renamed /w/b /w/a", "removed /w/d", "removed /w/c", "removed /w/e"}
	if diff := cmp.Diff(want, told); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
