//go:build !linux

package fs

import (
	"errors"
	"os"
)

// renameAt moves a file into a folder, in that very folder; here it is copied instead.
func renameAt(string, *os.File, string) error { return errors.ErrUnsupported }
