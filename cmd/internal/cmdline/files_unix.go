//go:build unix

package cmdline

import "golang.org/x/sys/unix"

// OpenFiles returns how many files this process may have open, 0 for no limit.
func OpenFiles() int {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil || uint64(limit.Cur) > 1<<30 {
		return 0
	}
	return int(limit.Cur)
}
