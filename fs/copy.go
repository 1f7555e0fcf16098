package fs

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
)

// copyTo copies src to a temporary name beside dst and moves that into place.
// moving says that src will be removed then: the copies keep their times, and lack nothing.
func (s *Service) copyTo(ctx context.Context, src, dst, to string, o PlaceOptions, moving bool) (_ string, err error) {
	dir, _ := split(dst)
	temp := dir + string(filepath.Separator) + temporaryName()
	defer func() {
		if err != nil {
			_ = s.tree().RemoveAll(temp) // what was not finished
		}
	}()
	from, base, err := s.parent(src)
	if err != nil {
		return "", err
	}
	defer from.Close()
	into, name, err := s.parent(temp)
	if err != nil {
		return "", err
	}
	defer into.Close()
	c := copying{s: s, moving: moving}
	if err := c.entry(ctx, from, base, into, name, 0); err != nil {
		return "", err
	}
	defer s.lock(filepath.Clean(to))()
	if err := s.free(dst, to, o); err != nil {
		return "", err
	}
	return dst, s.replace(temp, dst)
}

type copying struct {
	s      *Service
	moving bool
	top    os.FileInfo // of the copy, if it is a folder
}

func (c *copying) entry(ctx context.Context, from *os.Root, base string, to *os.Root, name string, depth int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	info, err := from.Lstat(base)
	if err != nil {
		return err
	}
	switch typeOf(info.Mode()) {
	case Symlink:
		target, err := from.Readlink(base)
		if err != nil {
			return err
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
		err = c.folder(ctx, from, base, to, name, info, depth)
	default:
		return failf(NotFile, "%s is a device, a pipe or a socket, which is not copied", filepath.Join(from.Name(), base))
	}
	if err == nil && c.moving {
		err = to.Chtimes(name, info.ModTime(), info.ModTime())
	}
	return err
}

func (c *copying) folder(ctx context.Context, from *os.Root, base string, to *os.Root, name string, info os.FileInfo, depth int) error {
	src, err := from.OpenRoot(base)
	if err != nil {
		return err
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
	if err != nil {
		return err
	}
	for _, n := range names {
		err := c.entry(ctx, src, n, dst, n, depth+1)
		if errors.Is(err, os.ErrNotExist) && !c.moving {
			continue // removed meanwhile
		}
		if err != nil {
			return err
		}
	}
	return dst.Chmod(".", info.Mode().Perm())
}

func (c *copying) file(ctx context.Context, from *os.Root, base string, to *os.Root, name string, info os.FileInfo) error {
	src, err := from.OpenFile(base, os.O_RDONLY|nonblock, 0)
	if err != nil {
		return err
	}
	defer src.Close()
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
	return dst.Close()
}
