//go:build !linux

package main

import "runtime/debug"

// giveBackStart returns the memory that only the start needed.
func giveBackStart() { debug.FreeOSMemory() }
