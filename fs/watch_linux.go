package fs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"
	"unsafe"
)

const watched = syscall.IN_CREATE | syscall.IN_CLOSE_WRITE | syscall.IN_DELETE | syscall.IN_MOVED_FROM | syscall.IN_MOVED_TO |
	syscall.IN_DELETE_SELF | syscall.IN_MOVE_SELF | syscall.IN_ONLYDIR

// watcher is one run of Watch.
type watcher struct {
	s       *Service
	path    string
	o       WatchOptions
	emit    func(Change) error
	name    string // of the folder, for the tree
	inotify *os.File
	folders map[int32]string // by watch descriptor, from where the watch began
	ids     map[string]int32
	// left is a name that something was renamed from; where to comes next.
	left *event
}

type event struct {
	mask, cookie uint32
	rel          string
}

// errGone ends a watch whose folder is gone.
var errGone = errors.New("gone")

func (s *Service) watch(ctx context.Context, path, name string, o WatchOptions, emit func(Change) error) error {
	fd, err := syscall.InotifyInit1(syscall.IN_CLOEXEC | syscall.IN_NONBLOCK)
	if err != nil {
		return failf(TooLarge, "the system permits no further watcher (fs.inotify.max_user_instances): %s", err)
	}
	w := watcher{s: s, path: path, o: o, emit: emit, name: name, inotify: os.NewFile(uintptr(fd), "inotify"), folders: map[int32]string{}, ids: map[string]int32{}}
	defer w.inotify.Close()
	// Closing ends the read that waits.
	defer context.AfterFunc(ctx, func() { _ = w.inotify.Close() })()
	dir, err := s.folder(name)
	if err != nil {
		return err
	}
	err = w.add(ctx, dir, "", false)
	_ = dir.Close() // while it is held open, nobody is told that it was deleted
	if err != nil {
		return err
	}
	if o.Ready != nil {
		o.Ready()
	}
	err = w.run(ctx)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if errors.Is(err, errGone) {
		return nil
	}
	return err
}

// add watches a folder and, if asked for, those below it. tell emits what is in
// it, for a folder that was found after it was filled.
func (w *watcher) add(ctx context.Context, dir *os.Root, rel string, tell bool) error {
	k := walk{s: w.s, enter: w.observe, leave: func() {}, failed: func(at string, err error) error {
		if at == "" || errors.As(err, new(*Error)) {
			return err
		}
		return nil // it is gone already, or is not ours to see
	}}
	k.visit = func(f found) (bool, error) {
		if w.hidden(f.name) {
			return false, nil
		}
		if tell {
			if err := w.tell(Change{Type: Created, Folder: f.info.IsDir()}, f.rel); err != nil {
				return false, err
			}
		}
		return w.o.Recursive, nil
	}
	return k.below(ctx, dir, rel)
}

// observe adds a folder to those that the kernel watches. It is named by its
// descriptor: by its path another one could be meant by now.
func (w *watcher) observe(dir *os.Root, rel string) error {
	if len(w.folders) >= w.s.o.Watches {
		return failf(TooLarge, "more than %d folders are to be watched: watch a smaller part", w.s.o.Watches)
	}
	id, err := w.follow(dir)
	switch {
	case errors.Is(err, syscall.ENOSPC):
		return failf(TooLarge, "the system permits no further watched folders (fs.inotify.max_user_watches)")
	case err != nil && rel == "":
		return err
	case err != nil:
		return nil // removed meanwhile
	}
	if before, ok := w.folders[id]; ok && before != rel {
		delete(w.ids, before)
	}
	w.folders[id], w.ids[rel] = rel, id
	return nil
}

// follow has the kernel watch a folder. One that it watches already keeps its id.
func (w *watcher) follow(dir *os.Root) (id int32, err error) {
	f, err := dir.Open(".")
	if err != nil {
		return 0, err
	}
	defer f.Close()
	err = w.with(func(fd int) error {
		n, err := syscall.InotifyAddWatch(fd, fmt.Sprintf("/proc/self/fd/%d", f.Fd()), watched)
		id = int32(n)
		return err
	})
	return id, err
}

// forget takes a folder and those below it out of what is watched.
func (w *watcher) forget(rel string) {
	for at, id := range w.ids {
		if within(at, rel) {
			w.leave(id)
			delete(w.ids, at)
			delete(w.folders, id)
		}
	}
}

// leave has the kernel watch a folder no more, which may be gone by itself.
func (w *watcher) leave(id int32) {
	_ = w.with(func(fd int) error {
		_, err := syscall.InotifyRmWatch(fd, uint32(id))
		return err
	})
}

// with calls the kernel with the descriptor of the watcher. By its number alone it could be another one's, when this
// watch is ended meanwhile.
func (w *watcher) with(call func(fd int) error) error {
	raw, err := w.inotify.SyscallConn()
	if err != nil {
		return err
	}
	if ctl := raw.Control(func(fd uintptr) { err = call(int(fd)) }); ctl != nil {
		return ctl
	}
	return err
}

// anew watches the folders that are there by now. Of those that came, went or were renamed when changes were lost nobody
// has told.
func (w *watcher) anew(ctx context.Context) error {
	before, top := w.folders, w.ids[""]
	w.folders, w.ids, w.left = map[int32]string{}, map[string]int32{}, nil
	dir, err := w.s.folder(w.name)
	if err == nil {
		err = w.add(ctx, dir, "", false)
		_ = dir.Close()
	}
	for id := range before {
		if _, ok := w.folders[id]; !ok {
			w.leave(id)
		}
	}
	if errors.Is(err, os.ErrNotExist) || err == nil && w.ids[""] != top { // it was removed, or replaced
		return errors.Join(w.tell(Change{Type: Removed, Folder: true}, ""), errGone)
	}
	return err
}

func (w *watcher) hidden(name string) bool {
	return strings.HasPrefix(name, temporary) || !w.o.Hidden && name[0] == '.'
}

func (w *watcher) tell(c Change, rel string) error {
	if rel != "" || c.Type != Overflow {
		c.Path = filepath.Join(w.path, filepath.FromSlash(rel))
	}
	if !utf8.ValidString(c.Path) {
		c.RawPath = []byte(c.Path)
	}
	return w.emit(c)
}

func (w *watcher) run(ctx context.Context) error {
	buf := make([]byte, 64<<10)
	for {
		wait := time.Time{}
		if w.left != nil {
			wait = time.Now().Add(halves)
		}
		if err := w.inotify.SetReadDeadline(wait); err != nil {
			return err
		}
		n, err := w.inotify.Read(buf)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			if err := w.lost(); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return err
		}
		for b := buf[:n]; len(b) >= syscall.SizeofInotifyEvent; {
			raw := (*syscall.InotifyEvent)(unsafe.Pointer(&b[0]))
			name := strings.TrimRight(string(b[syscall.SizeofInotifyEvent:syscall.SizeofInotifyEvent+raw.Len]), "\x00")
			b = b[syscall.SizeofInotifyEvent+raw.Len:]
			if err := w.one(ctx, raw.Wd, raw.Mask, raw.Cookie, name); err != nil {
				return err
			}
		}
	}
}

// halves is how long the kernel may take between the two halves of a rename, which it tells one after the other.
const halves = 50 * time.Millisecond

// lost tells of a rename that led to no place that is watched.
func (w *watcher) lost() error {
	l := w.left
	w.left = nil
	if l == nil {
		return nil
	}
	folder := l.mask&syscall.IN_ISDIR != 0
	if folder {
		w.forget(l.rel)
	}
	if w.hidden(filepath.Base(l.rel)) {
		return nil
	}
	return w.tell(Change{Type: Removed, Folder: folder}, l.rel)
}

func (w *watcher) one(ctx context.Context, id int32, mask, cookie uint32, name string) error {
	if mask&syscall.IN_Q_OVERFLOW != 0 {
		// Before it is told: what changes from then on is told, too.
		if err := errors.Join(w.lost(), w.anew(ctx)); err != nil {
			return err
		}
		return w.tell(Change{Type: Overflow}, "")
	}
	dir, ok := w.folders[id]
	if !ok {
		return nil // it has been forgotten
	}
	if mask&(syscall.IN_DELETE_SELF|syscall.IN_MOVE_SELF|syscall.IN_UNMOUNT|syscall.IN_IGNORED) != 0 {
		if dir != "" {
			return nil // the folder above tells
		}
		return errors.Join(w.lost(), w.tell(Change{Type: Removed, Folder: true}, ""), errGone)
	}
	rel, folder := join(dir, name), mask&syscall.IN_ISDIR != 0
	if mask&syscall.IN_MOVED_TO != 0 && w.left != nil && w.left.cookie == cookie {
		return w.renamed(ctx, rel, folder)
	}
	if err := w.lost(); err != nil {
		return err
	}
	if _, ok = w.folders[id]; !ok {
		return nil // it went with what was lost
	}
	if mask&syscall.IN_MOVED_FROM != 0 {
		w.left = &event{mask, cookie, rel}
		return nil
	}
	if w.hidden(name) {
		return nil
	}
	switch {
	case mask&(syscall.IN_CREATE|syscall.IN_MOVED_TO) != 0:
		return w.appeared(ctx, Change{Type: Created, Folder: folder}, rel)
	case mask&syscall.IN_DELETE != 0:
		if folder {
			w.forget(rel)
		}
		return w.tell(Change{Type: Removed, Folder: folder}, rel)
	case mask&syscall.IN_CLOSE_WRITE != 0 && !w.nameless(name, rel):
		return w.tell(Change{Type: Modified}, rel)
	}
	return nil
}

// nameless reports whether a name is not that of a file, but what the kernel says of one that has none.
func (w *watcher) nameless(name, rel string) bool {
	number, ok := strings.CutPrefix(name, "#")
	if _, err := strconv.ParseUint(number, 10, 64); !ok || err != nil {
		return false
	}
	_, err := w.s.tree().Lstat(filepath.Join(w.name, filepath.FromSlash(rel)))
	return errors.Is(err, os.ErrNotExist)
}

// renamed tells of something that was renamed from w.left to rel.
func (w *watcher) renamed(ctx context.Context, rel string, folder bool) error {
	from := w.left.rel
	w.left = nil
	if folder {
		w.moved(from, rel)
	}
	fromHidden, toHidden := w.hidden(filepath.Base(from)), w.hidden(filepath.Base(rel))
	c := Change{Type: Renamed, Folder: folder, From: filepath.Join(w.path, filepath.FromSlash(from))}
	switch {
	case fromHidden && toHidden:
		return nil
	case strings.HasPrefix(filepath.Base(from), temporary) && !folder:
		c = Change{Type: Modified} // a file that this service has written
	case fromHidden:
		c = Change{Type: Created, Folder: folder}
	case toHidden:
		w.forget(rel)
		return w.tell(Change{Type: Removed, Folder: folder}, from)
	default:
		if err := w.tell(c, rel); err != nil || !folder {
			return err
		}
		return w.verify(ctx, rel)
	}
	return w.appeared(ctx, c, rel)
}

// verify watches a folder that was renamed, unless it is watched already. Of one that was made a moment before, what its
// old name led to may have been nothing by the time it was to be watched, or another folder.
func (w *watcher) verify(ctx context.Context, rel string) error {
	if !w.o.Recursive {
		return nil
	}
	dir, err := w.s.tree().OpenRoot(filepath.Join(w.name, filepath.FromSlash(rel)))
	if err != nil {
		return nil // gone again
	}
	defer dir.Close()
	known, ok := w.ids[rel]
	if id, err := w.follow(dir); ok && err == nil && id == known {
		return nil
	}
	w.forget(rel)
	return w.add(ctx, dir, rel, true)
}

// moved gives folders that are watched their new paths.
func (w *watcher) moved(from, to string) {
	for id, at := range w.folders {
		if within(at, from) {
			delete(w.ids, at)
			w.folders[id] = to + strings.TrimPrefix(at, from)
		}
	}
	for id, at := range w.folders {
		w.ids[at] = id
	}
}

// appeared tells of something new, and watches it if it is a folder.
func (w *watcher) appeared(ctx context.Context, c Change, rel string) error {
	if err := w.tell(c, rel); err != nil {
		return err
	}
	if !c.Folder || !w.o.Recursive {
		return nil
	}
	dir, err := w.s.tree().OpenRoot(filepath.Join(w.name, filepath.FromSlash(rel)))
	if err != nil {
		return nil // gone again
	}
	defer dir.Close()
	return w.add(ctx, dir, rel, c.Type == Created)
}
