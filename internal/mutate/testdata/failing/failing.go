// Package failing has a test that fails.
package failing

// Is is.
func Is() bool { return true }
