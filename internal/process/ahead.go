package process

import "syscall"

// ahead reads output without waiting for more. It is used by one goroutine; all of it is
// made once, since it is on the path of each message.
type ahead struct {
	raw  syscall.RawConn
	read func(fd uintptr) bool
	buf  []byte
	n    int
	err  error
}

// ReadAhead reads what Stdout has, without waiting for more: 0 bytes and no error when that is
// nothing yet. It must not run beside another read.
func (p *Process) ReadAhead(b []byte) (int, error) {
	a := &p.ahead
	if a.raw == nil {
		raw, err := p.stdout.SyscallConn()
		if err != nil {
			return 0, nil //nolint:nilerr // the next Read says what is wrong
		}
		a.raw, a.read = raw, func(fd uintptr) bool {
			a.n, a.err = readNow(fd, a.buf)
			return true // also with nothing: it does not wait
		}
	}
	a.buf, a.n, a.err = b, 0, nil
	err := a.raw.Read(a.read)
	a.buf = nil
	if err != nil {
		return 0, nil //nolint:nilerr // it was closed; the next Read says so
	}
	return a.n, a.err
}
