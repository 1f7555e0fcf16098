//go:build unix

package install

import "syscall"

// freeSpace returns how many bytes a directory has room for.
func freeSpace(dir string) (free uint64, ok bool) {
	var stat syscall.Statfs_t
	if syscall.Statfs(dir, &stat) != nil {
		return 0, false
	}
	return stat.Bavail * uint64(stat.Bsize), true
}
