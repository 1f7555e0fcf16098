package fs

import (
	"os"
	"time"
)

// tree is where names are looked up: an os.Root, whose names are relative, or
// the whole machine, whose names are absolute.
type tree interface {
	OpenFile(name string, flag int, perm os.FileMode) (*os.File, error)
	OpenRoot(name string) (*os.Root, error)
	Mkdir(name string, perm os.FileMode) error
	MkdirAll(name string, perm os.FileMode) error
	Rename(from, to string) error
	Remove(name string) error
	RemoveAll(name string) error
	Chmod(name string, mode os.FileMode) error
	Chtimes(name string, atime, mtime time.Time) error
	Stat(name string) (os.FileInfo, error)
	Lstat(name string) (os.FileInfo, error)
	Readlink(name string) (string, error)
	Symlink(target, name string) error
}

var (
	_ tree = (*os.Root)(nil)
	_ tree = machine{}
)

// machine is the tree of all that the process can reach.
type machine struct{}

func (machine) OpenFile(name string, flag int, perm os.FileMode) (*os.File, error) {
	return os.OpenFile(name, flag, perm)
}
func (machine) OpenRoot(name string) (*os.Root, error)       { return os.OpenRoot(name) }
func (machine) Mkdir(name string, perm os.FileMode) error    { return os.Mkdir(name, perm) }
func (machine) MkdirAll(name string, perm os.FileMode) error { return os.MkdirAll(name, perm) }
func (machine) Rename(from, to string) error                 { return os.Rename(from, to) }
func (machine) Remove(name string) error                     { return os.Remove(name) }
func (machine) RemoveAll(name string) error                  { return os.RemoveAll(name) }
func (machine) Chmod(name string, mode os.FileMode) error    { return os.Chmod(name, mode) }
func (machine) Chtimes(name string, atime, mtime time.Time) error {
	return os.Chtimes(name, atime, mtime)
}
func (machine) Stat(name string) (os.FileInfo, error)  { return os.Stat(name) }
func (machine) Lstat(name string) (os.FileInfo, error) { return os.Lstat(name) }
func (machine) Readlink(name string) (string, error)   { return os.Readlink(name) }
func (machine) Symlink(target, name string) error      { return os.Symlink(target, name) }
