package install

import "golang.org/x/sys/unix"

// exchange swaps two directories in one step; false when the file system
// cannot do it.
func exchange(a, b string) bool {
	return unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE) == nil
}
