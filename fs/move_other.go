//go:build !linux

package fs

import (
	"errors"
	"os"
)

// renameAt moves a file into a folder, in that very folder; here it is copied instead.
func renameAt(string, *os.File, string) error { return errors.ErrUnsupported }

// changedAt stands for when a file was changed in any way: here one file is told from another, where that can be.
func changedAt(info os.FileInfo) int64 { return int64(inode(info)) }

func linked(os.FileInfo) bool { return false }
