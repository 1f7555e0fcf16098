//go:build !unix

package cmdline

// OpenFiles returns how many files this process may have open, 0 for no limit.
func OpenFiles() int { return 0 }
