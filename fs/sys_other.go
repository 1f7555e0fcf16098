//go:build !unix

package fs

import (
	"os"
	"syscall"
)

const nonblock = 0

func inode(os.FileInfo) uint64 { return 0 }

func keepOwner(*os.File, os.FileInfo) {}

// errCrossDevice is ERROR_NOT_SAME_DEVICE.
const errCrossDevice = syscall.Errno(17)
