package journal

import (
	"errors"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// file is what a log needs of an open file.
type file interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Size() (int64, error)
	Truncate(size int64) error
	Sync() error
	// Place says what its path names now.
	Place() place
	// WriteOut has a range written to disk and its pages given up; a hint.
	WriteOut(off, n int64)
}

// place is what the path of an open file names.
type place int

const (
	here    place = iota // the file, as far as can be told
	nothing              // it was removed
	another              // another file
)

// disk is what a log needs of the file system.
type disk interface {
	// Open opens an existing file for reading and writing.
	Open(path string) (file, error)
	// Create makes an empty file, or empties the one that is there, and the
	// folder that it is in: that one is made durable with the session's record.
	Create(path string) (file, error)
	Rename(from, to string) error
	Remove(path string) error
	// SyncFolder makes durable which files the folder of path has.
	SyncFolder(path string) error
	// Boot tells this run of the machine from others.
	Boot() uint32
}

// osDisk is the operating system's.
type osDisk struct{}

type osFile struct {
	*os.File
}

func (osDisk) Open(path string) (file, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

func (osDisk) Create(path string) (file, error) {
	const flags = os.O_RDWR | os.O_CREATE | os.O_TRUNC
	f, err := os.OpenFile(path, flags, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		dir := filepath.Dir(path)
		// The session's record may make the folder at the same time.
		if err = os.Mkdir(dir, 0o700); err == nil || errors.Is(err, fs.ErrExist) {
			f, err = os.OpenFile(path, flags, 0o600)
		}
	}
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

func (osDisk) Rename(from, to string) error { return os.Rename(from, to) }
func (osDisk) Remove(path string) error     { return os.Remove(path) }

func (osDisk) SyncFolder(path string) error { return SyncFolder(filepath.Dir(path)) }

// SyncFolder makes durable which files a folder has.
func SyncFolder(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(ignoreUnsupported(d.Sync()), d.Close())
}

// ReplaceFile writes a file that is there as a whole or not at all, also after a power cut.
func ReplaceFile(path string, content []byte) error {
	tmp := tempPath(path)
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	return SyncFolder(filepath.Dir(path))
}

// ignoreUnsupported drops the error of systems on which folders cannot be synced.
func ignoreUnsupported(err error) error {
	if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, fs.ErrInvalid) || errors.Is(err, fs.ErrPermission) {
		return nil
	}
	return err
}

var boot = sync.OnceValue(func() uint32 {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return 0 // systems without one: a power cut looks like the end of a process
	}
	return crc32.ChecksumIEEE([]byte(strings.TrimSpace(string(id))))
})

func (osDisk) Boot() uint32 { return boot() }

func (f osFile) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func (f osFile) Place() place {
	named, err := os.Stat(f.Name())
	if errors.Is(err, fs.ErrNotExist) {
		return nothing
	}
	own, ownErr := f.Stat()
	if err != nil || ownErr != nil || os.SameFile(named, own) {
		return here
	}
	return another
}

func (f osFile) WriteOut(off, n int64) { writeOut(f.File, off, n) }
