package fs

import (
	"context"
	"errors"
	"hash/maphash"
	"os"
	"path/filepath"
)

// copied knows of each entry how it was when it was copied, so that it is removed only if it is still that. It keeps a
// number of eight bytes for each: a folder can have millions.
type copied struct {
	seed maphash.Seed
	all  map[uint64]struct{}
}

// note notes how something is, at a path of what is copied.
func (c *copied) note(path string, info os.FileInfo) {
	c.all[c.number(path, info, linked(info))] = struct{}{}
}

// has reports whether what is at a path is what was copied. It may have had more names, which were removed since.
func (c *copied) has(path string, info os.FileInfo) bool {
	_, same := c.all[c.number(path, info, false)]
	if !same {
		_, same = c.all[c.number(path, info, true)]
	}
	return same
}

// number stands for an entry as it is. When a file with further names was changed does not count: that changes with each
// name that is removed.
func (c *copied) number(path string, info os.FileInfo, linked bool) uint64 {
	type entry struct {
		path              string
		kind              os.FileMode
		size, at, changed int64
	}
	e := entry{path: path, kind: info.Mode().Type()}
	if !info.IsDir() { // of which each entry is looked at
		e.size, e.at, e.changed = info.Size(), info.ModTime().UnixNano(), changedAt(info)
		if linked {
			e.changed = int64(inode(info))
		}
	}
	return maphash.Comparable(c.seed, e)
}

// moveAcross moves src to dst in another file system.
func (s *Service) moveAcross(ctx context.Context, src, dst, from, to string, o PlaceOptions) error {
	in, base, err := s.parent(src) // what is deleted is what was copied, also when the root is replaced meanwhile
	if err != nil {
		return err
	}
	defer in.Close()
	moved := &copied{maphash.MakeSeed(), map[uint64]struct{}{}}
	if err := s.copyTo(ctx, in, base, dst, to, o, moved); err != nil {
		return err
	}
	left, err := s.removeMoved(in, base, base, moved)
	if err == nil && left != "" {
		if left, err = filepath.Rel(base, left); err == nil {
			err = failf(Changed, "%s was copied to %s, and some of it was changed meanwhile, which stays where it was: %s", from, to, filepath.Join(from, left))
		}
	}
	return err
}

// removeMoved removes what was copied, at a path of it. It returns the path of something that stays, because it
// came or was changed since; "" for nothing.
func (s *Service) removeMoved(in *os.Root, name, path string, moved *copied) (left string, err error) {
	info, err := in.Lstat(name)
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	if !moved.has(path, info) {
		return path, nil
	}
	if info.IsDir() {
		dir, err := in.OpenRoot(name)
		if err != nil {
			return "", err
		}
		defer dir.Close()
		names, err := s.names(dir)
		if err != nil {
			return "", err
		}
		for _, n := range names {
			stays, err := s.removeMoved(dir, n, filepath.Join(path, n), moved)
			if err != nil {
				return "", err
			}
			if stays != "" {
				left = stays
			}
		}
		if left != "" {
			return left, nil
		}
	}
	err = in.Remove(name)
	if info.IsDir() && err != nil && codeOf(err) == NotEmpty { // something came in this moment
		return path, nil
	}
	return "", err
}
