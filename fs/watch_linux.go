package fs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
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
	tree    watchTree
	read    int64 // bytes that were read of what the kernel tells
	at      int64 // of them, where the event in hand begins
	// left is a name that something was renamed from; where to comes next.
	left *event
}

type event struct {
	mask, cookie uint32
	in           *watchedFolder
	name, rel    string
}

// errGone ends a watch whose folder is gone.
var errGone = errors.New("gone")

func (s *Service) watch(ctx context.Context, path, name string, o WatchOptions, emit func(Change) error) error {
	fd, err := syscall.InotifyInit1(syscall.IN_CLOEXEC | syscall.IN_NONBLOCK)
	if err != nil {
		return refusedWatcher(err)
	}
	w := watcher{s: s, path: path, o: o, emit: emit, name: name, inotify: os.NewFile(uintptr(fd), "inotify")}
	defer w.inotify.Close()
	// Closing ends the read that waits.
	defer context.AfterFunc(ctx, func() { _ = w.inotify.Close() })()
	if err := w.begin(ctx); err != nil {
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

// refusedWatcher says why the system gives no watcher.
func refusedWatcher(err error) error {
	switch {
	case errors.Is(err, syscall.EMFILE):
		return failf(Busy, "the system permits no further watcher: end other watches, also those of other programs, or raise fs.inotify.max_user_instances and the limit of open files")
	case errors.Is(err, syscall.ENFILE), errors.Is(err, syscall.ENOMEM):
		return failf(Busy, "the system has no room for a further watcher: %s", err)
	}
	return failf(Failed, "cannot watch: %s", err)
}

// begin watches the folder of the watch and, if asked for, those below it.
func (w *watcher) begin(ctx context.Context) error {
	w.tree = watchTree{folders: map[int32]*watchedFolder{}}
	from := w.queued()
	dir, err := w.s.folder(w.name)
	if err != nil {
		return err
	}
	defer dir.Close() // while it is held open, nobody is told that it was deleted
	return w.add(ctx, dir, nil, "", from, false)
}

// add watches a folder, which is at a name of another from a place in the queue on, and, if asked for, those below it.
// tell emits what is in it, for a folder that was found after it was filled.
func (w *watcher) add(ctx context.Context, dir *os.Root, in *watchedFolder, name string, from int64, tell bool) error {
	rel := ""
	if in != nil {
		above, _ := w.tree.path(in)
		rel = join(above, name)
	}
	top, above := rel, []*watchedFolder{in} // those that the walk is in
	k := walk{s: w.s, failed: func(at string, err error) error {
		if at == "" || errors.As(err, new(*Error)) {
			return err
		}
		return nil // it is gone already, or is not ours to see
	}}
	k.enter = func(dir *os.Root, rel string) error {
		in := above[len(above)-1]
		if in == nil && rel != "" { // it was removed before it was watched
			above = append(above, nil)
			return nil
		}
		f, err := w.observe(dir, rel, in, name, from)
		above = append(above, f)
		return err
	}
	k.leave = func() { above = above[:len(above)-1] }
	k.visit = func(f found) (bool, error) {
		if w.hidden(f.name) {
			return false, nil
		}
		if tell {
			if err := w.tell(Change{Type: Created, Folder: f.info.IsDir()}, f.rel); err != nil {
				return false, err
			}
		}
		if w.o.Recursive && f.info.IsDir() { // it is entered next
			name, from = f.name, w.queued()
		}
		return w.o.Recursive, nil
	}
	return k.below(ctx, dir, top)
}

// observe adds a folder to those that the kernel watches. It is named by its
// descriptor: by its path another one could be meant by now. Of one that is gone it returns nil.
func (w *watcher) observe(dir *os.Root, rel string, in *watchedFolder, name string, from int64) (*watchedFolder, error) {
	if len(w.tree.folders) >= w.s.o.Watches {
		return nil, failf(TooLarge, "more than %d folders are to be watched: watch a smaller part", w.s.o.Watches)
	}
	id, err := w.follow(dir)
	switch {
	case errors.Is(err, syscall.ENOSPC):
		return nil, failf(Busy, "the system permits no further watched folders: end other watches, also those of other programs, or raise fs.inotify.max_user_watches")
	case err != nil && rel == "":
		return nil, err
	case err != nil:
		return nil, nil // removed meanwhile
	}
	f := w.tree.folder(id)
	if in == nil {
		w.tree.top = f
		return f, nil
	}
	w.tree.expect(arrival{f, in, name, from})
	return f, nil
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

// look watches a folder at a name of another one, of which an event has told, and those below it.
func (w *watcher) look(ctx context.Context, in *watchedFolder, name string, tell bool) error {
	from := w.queued()
	dir := w.open(in)
	if dir == nil {
		in.unseen = append(in.unseen, unseen{name, tell})
		return nil
	}
	defer dir.Close()
	if info, err := dir.Lstat(name); err != nil || !info.IsDir() {
		return nil // gone again, as an event will tell
	}
	sub, err := dir.OpenRoot(name)
	if err != nil {
		return nil // likewise
	}
	defer sub.Close()
	return w.add(ctx, sub, in, name, from, tell)
}

// open opens a folder that is watched. It is nil when the folder is not where it was at the time of the event in hand,
// since folders above it were renamed: that will be told.
func (w *watcher) open(f *watchedFolder) *os.Root {
	rel, ok := w.tree.path(f)
	if !ok {
		return nil
	}
	dir, err := w.s.tree().OpenRoot(filepath.Join(w.name, filepath.FromSlash(rel)))
	if err != nil {
		return nil
	}
	id, err := w.follow(dir)
	if err == nil && id == f.id {
		return dir
	}
	if err == nil && w.tree.folders[id] == nil {
		w.leave(id)
	}
	_ = dir.Close()
	return nil
}

// arrive has folders be where they were found to be, if the queue was read up to there.
func (w *watcher) arrive(ctx context.Context) error {
	for f := range w.tree.arrive(w.at, w.leave) {
		if err := w.lookAgain(ctx, f); err != nil {
			return err
		}
	}
	return nil
}

// lookAgain looks at folders below one that is in its new place: what has its path now may be what they are in.
func (w *watcher) lookAgain(ctx context.Context, f *watchedFolder) error {
	left := f.unseen
	f.unseen = nil
	for _, u := range left {
		if err := w.look(ctx, f, u.name, u.tell); err != nil {
			return err
		}
	}
	for _, below := range slices.Collect(maps.Values(f.below)) {
		if err := w.lookAgain(ctx, below); err != nil {
			return err
		}
	}
	return nil
}

// forget takes what is at a name of a folder out of what is watched, with all below it.
func (w *watcher) forget(in *watchedFolder, name string) {
	in.missed(name)
	if f := in.below[name]; f != nil {
		w.tree.remove(f, w.leave)
	}
}

// queued is how far the kernel has told what happened, in bytes: an event that begins there or later has happened
// since.
func (w *watcher) queued() int64 {
	n := int32(0)
	err := w.with(func(fd int) error {
		if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), syscall.TIOCINQ, uintptr(unsafe.Pointer(&n))); errno != 0 {
			return errno
		}
		return nil
	})
	if err != nil { // the watch is over
		return w.read
	}
	return w.read + int64(n)
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
	before := w.tree
	w.left = nil
	err := w.begin(ctx)
	for id := range before.folders {
		if w.tree.folders[id] == nil {
			w.leave(id)
		}
	}
	if errors.Is(err, os.ErrNotExist) || err == nil && w.tree.top.id != before.top.id { // it was removed, or replaced
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
	if err := w.arrive(ctx); err != nil {
		return err
	}
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
		w.at, w.read = w.read, w.read+int64(n)
		for b := buf[:n]; len(b) >= syscall.SizeofInotifyEvent; {
			raw := (*syscall.InotifyEvent)(unsafe.Pointer(&b[0]))
			name := strings.TrimRight(string(b[syscall.SizeofInotifyEvent:syscall.SizeofInotifyEvent+raw.Len]), "\x00")
			if err := w.one(ctx, raw.Wd, raw.Mask, raw.Cookie, name); err != nil {
				return err
			}
			b = b[syscall.SizeofInotifyEvent+raw.Len:]
			w.at += int64(syscall.SizeofInotifyEvent + raw.Len)
			if err := w.arrive(ctx); err != nil {
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
		w.forget(l.in, l.name)
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
	in := w.tree.folders[id]
	dir, ok := w.tree.path(in)
	if !ok {
		return nil // it has been forgotten, or is not there yet
	}
	if mask&(syscall.IN_DELETE_SELF|syscall.IN_MOVE_SELF|syscall.IN_UNMOUNT|syscall.IN_IGNORED) != 0 {
		if dir != "" {
			return nil // the folder above tells
		}
		return errors.Join(w.lost(), w.tell(Change{Type: Removed, Folder: true}, ""), errGone)
	}
	rel, folder := join(dir, name), mask&syscall.IN_ISDIR != 0
	if mask&syscall.IN_MOVED_TO != 0 && w.left != nil && w.left.cookie == cookie {
		return w.renamed(ctx, in, name, rel, folder)
	}
	if err := w.lost(); err != nil {
		return err
	}
	if _, ok = w.tree.path(in); !ok {
		return nil // it went with what was lost
	}
	if mask&syscall.IN_MOVED_FROM != 0 {
		w.left = &event{mask, cookie, in, name, rel}
		return nil
	}
	if w.hidden(name) {
		return nil
	}
	switch {
	case mask&(syscall.IN_CREATE|syscall.IN_MOVED_TO) != 0:
		return w.appeared(ctx, Change{Type: Created, Folder: folder}, in, name, rel)
	case mask&syscall.IN_DELETE != 0:
		if folder {
			w.forget(in, name)
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

// renamed tells of something that was renamed from w.left to rel, which is a name in a folder.
func (w *watcher) renamed(ctx context.Context, in *watchedFolder, name, rel string, folder bool) error {
	left := w.left
	w.left = nil
	var moved *watchedFolder // nil also of one that was gone, or another one, when it was to be watched
	if folder {
		left.in.missed(left.name)
		moved = left.in.below[left.name]
		if w.forget(in, name); moved != nil { // it has replaced what was there
			w.tree.place(moved, in, name)
		}
	}
	fromHidden, toHidden := w.hidden(left.name), w.hidden(name)
	c := Change{Type: Renamed, Folder: folder, From: filepath.Join(w.path, filepath.FromSlash(left.rel))}
	switch {
	case fromHidden && toHidden:
		return nil
	case strings.HasPrefix(left.name, temporary) && !folder:
		c = Change{Type: Modified} // a file that this service has written
	case fromHidden:
		c = Change{Type: Created, Folder: folder}
	case toHidden:
		w.forget(in, name)
		return w.tell(Change{Type: Removed, Folder: folder}, left.rel)
	case moved != nil:
		if err := w.tell(c, rel); err != nil {
			return err
		}
		return w.lookAgain(ctx, moved)
	}
	return w.appeared(ctx, c, in, name, rel)
}

// appeared tells of something new, and watches it if it is a folder.
func (w *watcher) appeared(ctx context.Context, c Change, in *watchedFolder, name, rel string) error {
	if err := w.tell(c, rel); err != nil || !c.Folder || !w.o.Recursive {
		return err
	}
	return w.look(ctx, in, name, true)
}
