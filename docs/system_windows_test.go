package docs_test

import (
	"errors"
	"syscall"
)

// Windows has no process groups: what needs them is not tested there.

func ownGroup() *syscall.SysProcAttr { return nil }

func endGroup(int) error { return errors.ErrUnsupported }

func groupEnded(int) error { return errors.ErrUnsupported }
