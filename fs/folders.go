package fs

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
)

// openFolders bounds the folders that are kept open; at the bound all are
// closed and opened again when they are needed.
const openFolders = 128

// folders are the folders below one, made when they are first needed and kept
// open: archives come back to the same ones.
type folders struct {
	top  *os.Root
	open map[string]*os.Root // by path with slashes
}

// of returns the folder of an entry and the entry's name in it.
func (f *folders) of(name string) (*os.Root, string, error) {
	i := strings.LastIndexByte(name, '/')
	if i < 0 {
		return f.top, name, nil
	}
	dir, err := f.get(name[:i])
	return dir, name[i+1:], err
}

// get returns the folder at a path; it is valid until the next call.
func (f *folders) get(path string) (*os.Root, error) {
	if dir := f.open[path]; dir != nil {
		return dir, nil
	}
	name := filepath.FromSlash(path)
	dir, err := f.top.OpenRoot(name)
	if errors.Is(err, os.ErrNotExist) {
		if err := f.top.MkdirAll(name, 0o777); err != nil {
			return nil, err
		}
		dir, err = f.top.OpenRoot(name)
	}
	if err != nil {
		return nil, err
	}
	if len(f.open) >= openFolders {
		f.close()
	}
	f.open[path] = dir
	return dir, nil
}

// real reports an error unless all folders above an entry are folders and not
// symbolic links to such.
func (f *folders) real(name string) error {
	for i, r := range name {
		if r != '/' {
			continue
		}
		info, err := f.top.Lstat(filepath.FromSlash(name[:i]))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		if err == nil && !info.IsDir() {
			return failf(Refused, "%s is not a directory", name[:i])
		}
	}
	return nil
}

func (f *folders) close() {
	for _, dir := range f.open {
		_ = dir.Close()
	}
	clear(f.open)
}
