package main_test

import (
	"errors"
	"io/fs"
	"syscall"
)

// Windows has none of them: what needs them is not tested there.
const (
	sigStop = syscall.Signal(0x13)
	sigCont = syscall.Signal(0x12)
)

func kill(int, syscall.Signal) error { return errors.ErrUnsupported }

func ownGroup() *syscall.SysProcAttr { return nil }

func ownerOf(fs.FileInfo) (uid int, ok bool) { return 0, false }
