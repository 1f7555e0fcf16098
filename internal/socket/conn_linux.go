//go:build linux && !race

package socket

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"unsafe"
)

// most is how much one system call moves. One that moved more would hold the processor for longer
// than the scheduler should wait.
const most = 256 << 10 // bytes

// Conn is a TCP connection.
type Conn struct {
	*net.TCPConn
	raw     syscall.RawConn // nil for one that is plain
	in, out direction
}

// direction is one of the two of a connection.
type direction struct {
	mu    sync.Mutex // held while what is below is used
	p     []byte
	moved int
	errno syscall.Errno
	try   func(fd uintptr) (done bool)
}

// Plain returns a connection that owns c, and is no more than that.
func Plain(c *net.TCPConn) *Conn { return &Conn{TCPConn: c} }

// New returns a connection that owns c.
func New(c *net.TCPConn) (*Conn, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	s := &Conn{TCPConn: c, raw: raw}
	s.in.try, s.out.try = s.in.by(syscall.SYS_READ), s.out.by(syscall.SYS_WRITE)
	return s, nil
}

// by returns what moves p by a system call, false when the socket is not ready.
func (d *direction) by(number uintptr) func(fd uintptr) bool {
	return func(fd uintptr) bool {
		for {
			n, _, errno := syscall.RawSyscall(number, fd, uintptr(unsafe.Pointer(unsafe.SliceData(d.p))), uintptr(len(d.p)))
			switch errno {
			case syscall.EINTR:
				continue
			case syscall.EAGAIN:
				return false
			}
			d.moved, d.errno = int(n), errno
			return true
		}
	}
}

// moveLocked moves some of p by a method of the raw connection.
func (d *direction) moveLocked(p []byte, when func(func(fd uintptr) bool) error, name string) (int, error) {
	d.p = p[:min(len(p), most)]
	err := when(d.try)
	d.p = nil
	switch {
	case err != nil:
		return 0, err
	case d.errno != 0:
		return 0, os.NewSyscallError(name, d.errno)
	}
	return d.moved, nil
}

// Read implements [net.Conn].
func (c *Conn) Read(p []byte) (int, error) {
	switch {
	case c.raw == nil:
		return c.TCPConn.Read(p)
	case len(p) == 0:
		return 0, nil
	}
	c.in.mu.Lock()
	n, err := c.in.moveLocked(p, c.raw.Read, "read")
	c.in.mu.Unlock()
	switch {
	case err != nil:
		return 0, c.failed("read", err)
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

// Write implements [net.Conn].
func (c *Conn) Write(p []byte) (n int, err error) {
	if c.raw == nil {
		return c.TCPConn.Write(p)
	}
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	for n < len(p) {
		some, err := c.out.moveLocked(p[n:], c.raw.Write, "write")
		if n += some; err != nil {
			return n, c.failed("write", err)
		}
	}
	return n, nil
}

// ReadFrom implements [io.ReaderFrom]. What the system can move by itself it does.
func (c *Conn) ReadFrom(r io.Reader) (int64, error) {
	if c.raw == nil {
		return c.TCPConn.ReadFrom(r)
	}
	from := r
	if l, ok := r.(*io.LimitedReader); ok {
		from = l.R
	}
	switch from.(type) {
	case *os.File, *net.TCPConn, *net.UnixConn:
		return c.TCPConn.ReadFrom(r)
	}
	return io.Copy(struct{ io.Writer }{c}, r)
}

// WriteTo implements [io.WriterTo].
func (c *Conn) WriteTo(w io.Writer) (int64, error) {
	if c.raw == nil {
		return c.TCPConn.WriteTo(w)
	}
	return io.Copy(w, struct{ io.Reader }{c})
}

// failed is an error as it is of a TCPConn.
func (c *Conn) failed(op string, err error) error {
	if e, ok := errors.AsType[*net.OpError](err); ok {
		err = e.Err
	}
	return &net.OpError{Op: op, Net: "tcp", Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: err}
}
