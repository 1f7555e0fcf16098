//go:build unix

package session

import (
	"io/fs"
	"syscall"
)

// readFile is os.ReadFile for one of very many small files: a file of package os takes seven
// more system calls, to find out that it is none that can be waited for.
func readFile(path string) (b []byte, err error) {
	defer func() {
		if err != nil {
			err = &fs.PathError{Op: "read", Path: path, Err: err}
		}
	}()
	fd, err := again(func() (int, error) { return syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0) })
	if err != nil {
		return nil, err
	}
	defer func() { _ = syscall.Close(fd) }()
	b = make([]byte, 0, 4096)
	for {
		n, err := again(func() (int, error) { return syscall.Read(fd, b[len(b):cap(b)]) })
		if n <= 0 || err != nil {
			return b, err
		}
		if b = b[:len(b)+n]; len(b) == cap(b) {
			b = append(b, 0)[:len(b)]
		}
	}
}

// again does what a signal has interrupted again.
func again(do func() (int, error)) (n int, err error) {
	for {
		if n, err = do(); err != syscall.EINTR { //nolint:errorlint // it is one
			return n, err
		}
	}
}
