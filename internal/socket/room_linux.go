package socket

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// Room knows whether a socket or a pipe takes a small write now. It is used by one goroutine at a
// time; all of it is made once, since it is on the path of each message.
type Room struct {
	by   Roomy // who knows it; nil for the system
	raw  syscall.RawConn
	look func(fd uintptr)
	poll [1]unix.PollFd
	now  bool
}

// RoomOf returns what knows it of c, nil when that cannot be known.
func RoomOf(c any) *Room {
	if by, ok := c.(Roomy); ok {
		return &Room{by: by}
	}
	s, ok := c.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return nil
	}
	r := &Room{raw: raw}
	r.look = func(fd uintptr) {
		r.poll[0] = unix.PollFd{Fd: int32(fd), Events: unix.POLLOUT}
		_, err := unix.Poll(r.poll[:], 0)
		r.now = err == nil && r.poll[0].Revents == unix.POLLOUT
	}
	return r
}

// For reports whether a write of n bytes certainly does not wait.
func (r *Room) For(n int) bool {
	switch {
	case r == nil || n > SmallWrite:
		return false
	case r.by != nil:
		return r.by.RoomFor(n)
	}
	r.now = false
	return r.raw.Control(r.look) == nil && r.now
}
