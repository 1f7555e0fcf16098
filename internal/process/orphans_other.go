//go:build !linux

package process

import (
	"os"
)

// Waiting reports nothing here.
func (p *Process) Waiting() bool { return false }

func claim(int) {}

func widen(*os.File) {}

func forget(int) {}

// killMarked does nothing here: other processes' environments cannot be read.
func killMarked(string) {}

// folderID is not needed here.
func folderID(string) string { return "" }

// ReapOrphans does nothing here: orphans go to process 1.
func ReapOrphans(_ <-chan os.Signal, stop <-chan struct{}) { <-stop }

// Now is not known here.
func Now() int64 { return 0 }

// Commands are not known here.
func (p *Process) Commands() []int64 { return nil }

// RSS returns 0: unknown on this system.
func RSS(int) int64 { return 0 }
