package fs

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Pack writes a tar archive of what is at paths, each under the last part of
// its path, a folder with all that is in it. What can be
// known beforehand, as a path that is not there, is told before anything is
// written to w. Symbolic links are packed as such, devices, pipes and
// sockets are left out.
func (s *Service) Pack(ctx context.Context, w io.Writer, paths []string) error {
	if len(paths) == 0 {
		return failf(Invalid, "no path is given")
	}
	names, taken := make([]string, len(paths)), map[string]string{}
	for i, p := range paths {
		name, err := s.name(p)
		if err != nil {
			return err
		}
		names[i] = name
		base := s.packedName(p)
		if other, ok := taken[base]; ok && base != "" {
			return failf(Invalid, "%s and %s would have the same name in the archive: ask for them one by one", other, p)
		}
		taken[base] = p
		info, err := s.tree().Lstat(name)
		if err != nil {
			return explain(err, "open %s", p)
		}
		if typeOf(info.Mode()) == Other {
			return failf(NotFile, "%s is a device, a pipe or a socket", p)
		}
		if typeOf(info.Mode()) != Symlink {
			f, _, err := s.open(name) // what cannot be read is told before anything is sent
			if err != nil {
				return explain(err, "open %s", p)
			}
			_ = f.Close()
		}
	}
	buf := buffers.Get().(*[copySize]byte)
	defer buffers.Put(buf)
	p := packing{s: s, w: tar.NewWriter(w), buf: buf[:]}
	for i, name := range names {
		if err := p.path(ctx, name, s.packedName(paths[i])); err != nil {
			return explain(err, "pack %s", paths[i])
		}
	}
	return p.w.Close()
}

// packedName is the name of a path in an archive, "" for the root.
func (s *Service) packedName(path string) string {
	if s.top(path) {
		return ""
	}
	return filepath.Base(path)
}

type packing struct {
	s   *Service
	w   *tar.Writer
	buf []byte
}

func (p *packing) path(ctx context.Context, name, as string) error {
	if as != "" {
		dir, base, err := p.s.parent(name)
		if err != nil {
			return err
		}
		defer dir.Close()
		info, err := dir.Lstat(base)
		if err != nil {
			return err
		}
		if err := p.entry(found{dir, as, base, info}); err != nil || !info.IsDir() {
			return err
		}
	}
	dir, err := p.s.folder(name)
	if err != nil {
		return err
	}
	defer dir.Close()
	w := walk{
		s:      p.s,
		visit:  func(f found) (bool, error) { return true, p.entry(f) },
		failed: func(_ string, err error) error { return err }, // an archive that lacks something must not look whole
	}
	return w.below(ctx, dir, as)
}

func (p *packing) entry(f found) error {
	h := &tar.Header{Name: filepath.ToSlash(f.rel), Mode: int64(f.info.Mode().Perm()), ModTime: f.info.ModTime().Truncate(1e9)}
	switch typeOf(f.info.Mode()) {
	case Directory:
		h.Typeflag, h.Name = tar.TypeDir, strings.TrimSuffix(h.Name, "/")+"/"
		return p.w.WriteHeader(h)
	case Symlink:
		target, err := f.dir.Readlink(f.name)
		if replaced(err) || errors.Is(err, syscall.EINVAL) { // the second is of what is no link
			return nil
		}
		if err != nil {
			return err
		}
		h.Typeflag, h.Linkname = tar.TypeSymlink, target
		return p.w.WriteHeader(h)
	case Other:
		return nil
	}
	file, err := f.dir.OpenFile(f.name, os.O_RDONLY|nonblock, 0)
	if replaced(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return nil // replaced meanwhile
	}
	if p.s.confined() && inProc(file) {
		return failf(Escapes, "%s is in the process file system, which is not for clients of a server that is confined to a root", f.rel)
	}
	h.Typeflag, h.Size, h.Mode = tar.TypeReg, info.Size(), int64(info.Mode().Perm())
	if err := p.w.WriteHeader(h); err != nil {
		return err
	}
	// A file that grows is cut at the size that it had; one that shrinks ends
	// the archive, because its size was sent.
	n, err := io.CopyBuffer(struct{ io.Writer }{p.w}, io.LimitReader(file, h.Size), p.buf)
	if err == nil && n < h.Size {
		err = failf(Changed, "%s became shorter while it was read", f.rel)
	}
	return err
}
