package fs

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"
	"unicode/utf8"
)

// Type is what an entry of a folder is.
type Type string

// The types of entries.
const (
	File      Type = "file"
	Directory Type = "directory"
	Symlink   Type = "symlink"
	Other     Type = "other" // devices, pipes, sockets
)

// Entry describes a file or folder.
type Entry struct {
	// Path is absolute. Bytes that are not UTF-8 are shown as U+FFFD; RawPath
	// then has the path's own bytes, in base64.
	Path       string    `json:"path"`
	Name       string    `json:"name"`
	RawPath    []byte    `json:"rawPath,omitempty"`
	Type       Type      `json:"type"`
	Size       int64     `json:"size"` // 0 unless a file
	Mode       string    `json:"mode"` // permissions, octal
	ModifiedAt time.Time `json:"modifiedAt"`
	Target     string    `json:"target,omitempty"` // of a symbolic link, as written there
	ETag       string    `json:"etag,omitempty"`   // of a file
}

func typeOf(mode os.FileMode) Type {
	switch mode.Type() {
	case 0:
		return File
	case os.ModeDir:
		return Directory
	case os.ModeSymlink:
		return Symlink
	}
	return Other
}

func entryOf(path string, info os.FileInfo) Entry {
	e := Entry{
		Path: path, Name: filepath.Base(path), Type: typeOf(info.Mode()), ModifiedAt: info.ModTime().UTC(),
		Mode: fmt.Sprintf("%04o", unixMode(info.Mode())),
	}
	if !utf8.ValidString(path) {
		e.RawPath = []byte(path)
	}
	if e.Type == File {
		e.Size, e.ETag = info.Size(), etag(info)
	}
	return e
}

// unixMode is the mode as chmod counts it.
func unixMode(m os.FileMode) uint32 {
	n := uint32(m.Perm())
	for bit, v := range map[os.FileMode]uint32{os.ModeSetuid: 0o4000, os.ModeSetgid: 0o2000, os.ModeSticky: 0o1000} {
		if m&bit != 0 {
			n |= v
		}
	}
	return n
}

// etag tells versions of a file apart: a new file has another inode, and a
// changed one another time or size.
func etag(info os.FileInfo) string {
	b := []byte{'"'}
	b = strconv.AppendUint(b, inode(info), 36)
	b = append(b, '-')
	b = strconv.AppendInt(b, info.Size(), 36)
	b = append(b, '-')
	b = strconv.AppendInt(b, info.ModTime().UnixNano(), 36)
	return string(append(b, '"'))
}

// Stat describes the entry at path. A symbolic link is described itself unless
// follow is set.
func (s *Service) Stat(path string, follow bool) (Entry, error) {
	name, err := s.name(path)
	if err != nil {
		return Entry{}, err
	}
	stat := s.tree().Lstat
	if follow {
		stat = s.tree().Stat
	}
	info, err := stat(name)
	if err != nil {
		return Entry{}, explain(err, "stat %s", path)
	}
	return s.entry(path, name, info), nil
}

func (s *Service) entry(path, name string, info os.FileInfo) Entry {
	e := entryOf(path, info)
	if e.Type == Symlink {
		e.Target, _ = s.tree().Readlink(name) // it may be gone by now
	}
	return e
}
