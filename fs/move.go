package fs

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"
)

// copied is how something was when it was copied, so that it is removed only if it is still that.
type copied struct {
	kind os.FileMode
	size int64
	at   time.Time // of its last change
}

func copiedAs(info os.FileInfo) copied {
	if info.IsDir() { // of which each entry is looked at
		return copied{kind: info.Mode().Type()}
	}
	return copied{info.Mode().Type(), info.Size(), info.ModTime()}
}

// moveAcross moves src to dst in another file system.
func (s *Service) moveAcross(ctx context.Context, src, dst, from, to string, o PlaceOptions) error {
	in, base, err := s.parent(src) // what is deleted is what was copied, also when the root is replaced meanwhile
	if err != nil {
		return err
	}
	defer in.Close()
	moved := map[string]copied{}
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
func (s *Service) removeMoved(in *os.Root, name, path string, moved map[string]copied) (left string, err error) {
	info, err := in.Lstat(name)
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	was, known := moved[path]
	if now := copiedAs(info); !known || was.kind != now.kind || was.size != now.size || !was.at.Equal(now.at) {
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
