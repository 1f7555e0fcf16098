package fs

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
)

// copyTo copies what is in a folder to a temporary name beside dst and moves that into place. With moved, where it
// notes what it copies, that will be removed: the copies keep their times, and lack nothing.
func (s *Service) copyTo(ctx context.Context, from *os.Root, base, dst, to string, o PlaceOptions, moved *copied) (err error) {
	dir, _ := split(dst)
	temp := dir + string(filepath.Separator) + temporaryName()
	defer func() {
		if err != nil {
			_ = s.tree().RemoveAll(temp) // what was not finished
		}
	}()
	into, name, err := s.parent(temp)
	if err != nil {
		return err
	}
	defer into.Close()
	c := copying{s: s, moved: moved, at: base}
	if err := c.entry(ctx, from, base, into, name, 0); err != nil {
		return err
	}
	defer s.lock(filepath.Clean(to))()
	if err := s.free(dst, to, o); err != nil {
		return err
	}
	if err := s.replace(temp, dst); err != nil || moved == nil {
		return err
	}
	return syncAt(into, ".")
}

// changedError is why something cannot be copied that is not what it was a moment before: it was removed, or something
// else has its name.
type changedError struct{ err error }

func (e *changedError) Error() string { return e.err.Error() }
func (e *changedError) Unwrap() error { return e.err }

// ofSource is an error with what is copied.
func ofSource(err error) error {
	if replaced(err) {
		return &changedError{err}
	}
	return err
}

type copying struct {
	s     *Service
	moved *copied     // see copyTo; nil when nothing is moved
	at    string      // what is copied
	top   os.FileInfo // of the copy, if it is a folder
}

// note notes what is moved, as it was before it was read.
func (c *copying) note(info os.FileInfo) {
	if c.moved != nil {
		c.moved.note(c.at, info)
	}
}

func (c *copying) entry(ctx context.Context, from *os.Root, base string, to *os.Root, name string, depth int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	info, err := from.Lstat(base)
	if err != nil {
		return ofSource(err)
	}
	switch typeOf(info.Mode()) {
	case Symlink:
		c.note(info)
		target, err := from.Readlink(base)
		if errors.Is(err, syscall.EINVAL) { // it is no link any more
			return &changedError{err}
		}
		if err != nil {
			return ofSource(err)
		}
		return to.Symlink(target, name)
	case File:
		err = c.file(ctx, from, base, to, name, info)
	case Directory:
		if c.top != nil && os.SameFile(info, c.top) {
			return failf(Invalid, "cannot copy %s into itself: the new path leads there over a symbolic link", from.Name())
		}
		if depth > maxDepth {
			return failf(TooLarge, "folders are more than %d levels deep", maxDepth)
		}
		c.note(info)
		err = c.folder(ctx, from, base, to, name, info, depth)
	default:
		return failf(NotFile, "%s is a device, a pipe or a socket, which is not copied", filepath.Join(from.Name(), base))
	}
	if err == nil && c.moved != nil {
		err = to.Chtimes(name, info.ModTime(), info.ModTime())
	}
	return err
}

func (c *copying) folder(ctx context.Context, from *os.Root, base string, to *os.Root, name string, info os.FileInfo, depth int) error {
	src, err := from.OpenRoot(base)
	if err != nil {
		return ofSource(err)
	}
	defer src.Close()
	// Writable until all is in it.
	if err := to.Mkdir(name, 0o700); err != nil {
		return err
	}
	if c.top == nil {
		top, err := to.Lstat(name)
		if err != nil {
			return err
		}
		c.top = top
	}
	dst, err := to.OpenRoot(name)
	if err != nil {
		return err
	}
	defer dst.Close()
	names, err := c.s.names(src)
	if err != nil && (c.moved != nil || !errors.Is(err, os.ErrNotExist)) { // else it was removed meanwhile, and has nothing
		return err
	}
	for _, n := range names {
		if err := c.below(ctx, src, n, dst, depth+1); err != nil {
			return err
		}
	}
	return dst.Chmod(".", info.Mode().Perm())
}

// attempts is how often something is tried that is another thing each time. Who exchanges it without end makes it an error, and no more.
const attempts = 100

// below copies what is in a folder. What was removed since its name was read is not copied; what something else has taken
// the place of is that. Who moves loses nothing like this: it is an error.
func (c *copying) below(ctx context.Context, from *os.Root, name string, to *os.Root, depth int) (err error) {
	in := c.at
	c.at = filepath.Join(in, name)
	defer func() { c.at = in }()
	for range attempts {
		err = c.entry(ctx, from, name, to, name, depth)
		if _, changed := errors.AsType[*changedError](err); !changed || c.moved != nil {
			return err
		}
		if _, err := from.Lstat(name); errors.Is(err, os.ErrNotExist) {
			return nil
		}
	}
	return err
}

func (c *copying) file(ctx context.Context, from *os.Root, base string, to *os.Root, name string, info os.FileInfo) error {
	src, err := from.OpenFile(base, os.O_RDONLY|nonblock, 0)
	if err != nil {
		return ofSource(err)
	}
	defer src.Close()
	now, err := src.Stat()
	if err == nil && typeOf(now.Mode()) != File {
		err = &changedError{failf(NotFile, "%s is not a file any more", src.Name())}
	}
	if err != nil {
		return err
	}
	c.note(now)
	if c.s.confined() && inProc(src) {
		return failf(Escapes, "%s is in the process file system", src.Name())
	}
	dst, err := to.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer dst.Close()
	// In parts, so that it can be cancelled; the kernel copies each.
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		if _, err = io.CopyN(dst, src, 8<<20); err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
	}
	if err := dst.Chmod(info.Mode().Perm()); err != nil {
		return err
	}
	if c.moved != nil { // else a power cut could take it from both places
		if err := forced(dst); err != nil {
			return err
		}
	}
	return dst.Close()
}
