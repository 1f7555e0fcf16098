// Package failing has a test that fails.
package failing

// Is is, and has something to change.
func Is(a, b int) bool { return a < b }
