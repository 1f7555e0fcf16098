package process

import (
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// awaitTaken returns when all was read that stands in the pipe of a number.
func awaitTaken(pipe string) error {
	fd, err := strconv.Atoi(pipe)
	for left := 1; err == nil && left > 0; runtime.Gosched() { // nobody is told
		left, err = unix.IoctlGetInt(fd, unix.TIOCINQ)
	}
	return err
}
