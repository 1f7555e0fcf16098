package process

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// unread returns how many bytes lie in a pipe that nobody reads any more. It is not ok when
// somebody still may read them after wait.
func unread(w *os.File, wait time.Duration) (n int64, ok bool) {
	c, err := w.SyscallConn()
	if err != nil {
		return 0, false
	}
	_ = c.Control(func(fd uintptr) {
		state := []unix.PollFd{{Fd: int32(fd)}}
		var err error
		for end := time.Now().Add(wait); ; {
			// A signal interrupts it, such as the end of another child.
			if _, err = unix.Poll(state, int(max(0, time.Until(end)).Milliseconds())); err != unix.EINTR {
				break
			}
		}
		if err != nil || state[0].Revents&unix.POLLERR == 0 {
			return
		}
		bytes, err := unix.IoctlGetInt(int(fd), unix.TIOCINQ)
		n, ok = int64(bytes), err == nil
	})
	return n, ok
}
