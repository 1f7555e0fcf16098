//go:build !linux

package install

// exchange swaps two directories in one step; false when the system cannot.
func exchange(_, _ string) bool { return false }
