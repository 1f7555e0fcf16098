package fs

import (
	"crypto/rand"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
)

// WriteOptions say how a file is written.
type WriteOptions struct {
	// Mode is the file's; nil keeps that of the file which is replaced, and
	// gives a new one what the system gives new files.
	Mode *os.FileMode
	// Parents makes missing folders.
	Parents bool
	// Check, if not nil, is asked whether to go on, with the ETag of the file
	// that is there or "": once before anything is read, and once before the
	// new file takes its place, when no other writer of this service can come
	// in between. Its error is returned as it is.
	Check func(etag string) error
	// New refuses to replace anything, whoever made it.
	New bool
	// Sync forces the content to disk before it takes its place.
	Sync bool
}

// copySize is large enough that the body of a request is read from its
// connection directly, and small enough for a processor's cache.
const copySize = 256 << 10

var buffers = sync.Pool{New: func() any { return new([copySize]byte) }}

// transfer copies with a pooled buffer.
func transfer(w io.Writer, r io.Reader) (int64, error) {
	buf := buffers.Get().(*[copySize]byte)
	defer buffers.Put(buf)
	return io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{r}, buf[:])
}

// temporary begins the names of files that are not finished. They are short:
// the name that they will get may have the length that the system permits.
const temporary = ".sandbox-agent-tmp-"

func temporaryName() string { return temporary + rand.Text()[:13] }

// Write makes the file at path one with r's content. A symbolic link is
// followed. When r fails, its error is returned and nothing has changed.
func (s *Service) Write(path string, r io.Reader, o WriteOptions) (e Entry, created bool, err error) {
	name, err := s.name(path)
	if err != nil {
		return Entry{}, false, err
	}
	if s.top(path) {
		return Entry{}, false, failf(NotFile, "%s is a directory and not a regular file", path)
	}
	if o.Parents {
		dir, _ := split(name)
		if err := s.mkdirAll(dir, 0o777); err != nil {
			return Entry{}, false, explain(err, "make the folders of %s", path)
		}
	}
	if name, err = s.follow(name); err != nil {
		return Entry{}, false, explain(err, "write %s", path)
	}
	dir, base, err := s.parent(name)
	if err != nil {
		return Entry{}, false, explain(err, "open the folder of %s", path)
	}
	defer dir.Close()
	w := writing{s: s, path: path, dir: dir, base: base, o: o}
	if err := w.check(); err != nil {
		return Entry{}, false, err
	}
	info, err := w.fill(r)
	if err != nil {
		return Entry{}, false, err
	}
	defer func() {
		if err != nil {
			_ = dir.Remove(w.temp) // what was not finished
		}
	}()
	defer s.lock(filepath.Clean(path))()
	if err := w.check(); err != nil {
		return Entry{}, false, err
	}
	if err := w.place(); err != nil {
		return Entry{}, false, explain(err, "put %s into its place", path)
	}
	return entryOf(path, info), w.old == nil, nil
}

// writing is a file on its way to its place.
type writing struct {
	s          *Service
	path, base string
	dir        *os.Root
	o          WriteOptions
	old        os.FileInfo // what was there when it was last looked at, nil for nothing
	temp       string
}

// check looks at what is there and asks whether to go on.
func (w *writing) check() error {
	info, err := w.dir.Lstat(w.base)
	switch {
	case errors.Is(err, os.ErrNotExist):
		w.old = nil
	case err != nil:
		return explain(err, "stat %s", w.path)
	case info.IsDir():
		return failf(NotFile, "%s is a directory and not a regular file", w.path)
	case !info.Mode().IsRegular():
		return failf(NotFile, "%s is %s and not a regular file", w.path, article(typeOf(info.Mode())))
	default:
		w.old = info
	}
	tag := ""
	if w.old != nil {
		tag = etag(w.old)
	}
	if w.o.Check != nil {
		if err := w.o.Check(tag); err != nil {
			return err
		}
	}
	if w.o.New && w.old != nil {
		return failf(Exists, "%s is there already", w.path)
	}
	return nil
}

// create makes the temporary file. Where it can be it has no name before linkAt gives it one in the folder: then nobody
// sees it grow, and nothing is left of it when this program is killed meanwhile.
func (w *writing) create(temp string, perm os.FileMode) (f, folder *os.File, err error) {
	if f, folder = w.s.unnamed(w.dir, perm); f != nil {
		return f, folder, nil
	}
	f, err = w.dir.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
	return f, nil, err
}

// fill writes the temporary file. It is gone when fill fails.
func (w *writing) fill(r io.Reader) (info os.FileInfo, err error) {
	perm := os.FileMode(0o666) // less what the process's mask takes away
	if w.o.Mode != nil || w.old != nil {
		perm = 0o600 // until all is there
	}
	temp := temporaryName()
	f, folder, err := w.create(temp, perm)
	if err != nil {
		return nil, explain(err, "make a file beside %s", w.path)
	}
	w.temp = temp
	defer func() {
		_ = f.Close() // closed before if all went well
		_ = folder.Close()
		if err != nil {
			_ = w.dir.Remove(temp)
		}
	}()
	in := &source{r: r}
	if _, err := transfer(f, in); err != nil {
		if in.err != nil {
			return nil, in.err
		}
		return nil, explain(err, "write %s", w.path)
	}
	// As long as the file is of this program's own user: a system may permit no links to those of others.
	if folder != nil {
		if err := linkAt(f, folder, temp); err != nil {
			return nil, explain(err, "make a file beside %s", w.path)
		}
	}
	// What is there may have been made, or got another mode, while the content came.
	if info, err := w.dir.Lstat(w.base); err == nil && info.Mode().IsRegular() {
		w.old = info
	}
	switch {
	case w.old != nil:
		keepOwner(f, w.old)
		perm = w.old.Mode().Perm()
	default:
		perm = 0
	}
	if w.o.Mode != nil {
		perm = *w.o.Mode
	}
	if w.o.Mode != nil || w.old != nil {
		if err := f.Chmod(perm); err != nil {
			return nil, explain(err, "set the mode of %s", w.path)
		}
	}
	if w.o.Sync {
		if err := f.Sync(); err != nil {
			return nil, explain(err, "force %s to disk", w.path)
		}
	}
	if info, err = f.Stat(); err != nil {
		return nil, explain(err, "stat %s", w.path)
	}
	// Some file systems tell only now that there is no room.
	if err := f.Close(); err != nil {
		return nil, explain(err, "write %s", w.path)
	}
	return info, nil
}

// place moves the temporary file to its place.
func (w *writing) place() error {
	if w.o.New {
		// A link is made only where nothing is, in one step.
		err := w.dir.Link(w.temp, w.base)
		if err == nil || errors.Is(err, os.ErrExist) {
			if err == nil {
				err = w.dir.Remove(w.temp)
			}
			return err
		}
	}
	return w.dir.Rename(w.temp, w.base)
}

// source remembers what its reader failed with, to tell that from a failure to
// write.
type source struct {
	r   io.Reader
	n   int64 // bytes that were read
	err error
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	s.n += int64(n)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}
