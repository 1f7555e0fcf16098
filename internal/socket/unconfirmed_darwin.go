package socket

import (
	"time"

	"golang.org/x/sys/unix"
)

// boundUnconfirmed bounds how long what was sent may wait to be confirmed. A system that cannot do so keeps its own bound.
func boundUnconfirmed(fd uintptr, most time.Duration) {
	_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_RXT_CONNDROPTIME, int(most.Seconds()))
}
