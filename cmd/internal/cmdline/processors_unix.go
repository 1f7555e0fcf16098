//go:build unix

package cmdline

import (
	"time"

	"golang.org/x/sys/unix"
)

// used returns how much of the processors this process has used, 0 when that is not known.
func used() time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
