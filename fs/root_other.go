//go:build !linux

package fs

import "os"

// withoutLinks returns what a path leads to; its last part is no symbolic link.
func withoutLinks(path string) (os.FileInfo, error) { return os.Lstat(path) }
