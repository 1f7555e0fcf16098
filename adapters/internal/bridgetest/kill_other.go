//go:build !unix

package bridgetest

import (
	"errors"
	"os"
)

// Kill ends a process at once.
func Kill(pid int) error {
	p, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	return p.Kill()
}

// Stop has a process do nothing any more, which there is not everywhere.
func Stop(int) error { return errors.ErrUnsupported }
