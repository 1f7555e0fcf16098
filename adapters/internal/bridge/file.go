package bridge

import (
	"net/url"
	"os"
	"path/filepath"
	"time"
)

// MaxBefore bounds the files whose text is read for a diff.
const MaxBefore = 1 << 20

// TextBefore returns the text of a file that a tool is about to change; path may
// be relative to cwd. It is best effort: the result of the call has the text that
// was really there.
func TextBefore(cwd, path string) (string, bool) {
	if !filepath.IsAbs(path) {
		path = filepath.Join(cwd, path)
	}
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() || info.Size() > MaxBefore {
		return "", false
	}
	b, err := os.ReadFile(path)
	return string(b), err == nil
}

// LocalFile is the path of a file: URI; ok says that something is there.
func LocalFile(uri string) (path string, ok bool) {
	u, err := url.Parse(uri)
	if err != nil || u.Scheme != "file" || u.Path == "" {
		return "", false
	}
	_, err = os.Stat(u.Path)
	return u.Path, err == nil
}

// Written returns when a file was written last, the zero time if there is none.
func Written(path string) time.Time {
	info, err := os.Stat(path)
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}
