//go:build unix

package store

import "syscall"

// freeAt returns how many bytes a folder has room for; false when that is not known.
func freeAt(dir string) (free uint64, ok bool) {
	var st syscall.Statfs_t
	if syscall.Statfs(dir, &st) != nil {
		return 0, false
	}
	return st.Bavail * uint64(st.Bsize), true
}
