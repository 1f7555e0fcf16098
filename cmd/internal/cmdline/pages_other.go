//go:build !linux

package cmdline

// givePages gives back pages of the program's file, where that can be done.
func givePages() {}
