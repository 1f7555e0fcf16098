//go:build !unix

package fs

import (
	"os"
	"os/exec"
	"syscall"
)

const nonblock = 0

func inode(os.FileInfo) uint64 { return 0 }

func keepOwner(*os.File, os.FileInfo) {}

func ownGroup(*exec.Cmd) {}

// errCrossDevice is ERROR_NOT_SAME_DEVICE.
const errCrossDevice = syscall.Errno(17)
