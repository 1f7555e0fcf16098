package cmdline

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"

	"github.com/mattn/go-isatty"
)

// Written returns a writer in place of w, and what tells why something could not be written to
// it: a disk that is full must not look like success. That nobody reads any more is no failure
// of the program. A terminal stays what it is.
func Written(w io.Writer) (io.Writer, func() error) {
	f, ok := w.(*os.File)
	if !ok || isatty.IsTerminal(f.Fd()) || isatty.IsCygwinTerminal(f.Fd()) {
		return w, func() error { return nil }
	}
	o := &output{f: f}
	return o, o.failed
}

type output struct {
	f *os.File

	mu  sync.Mutex
	err error // the first one
}

// Write implements [io.Writer].
func (o *output) Write(p []byte) (int, error) {
	n, err := o.f.Write(p)
	if err != nil && !errors.Is(err, syscall.EPIPE) {
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.err == nil {
			o.err = err
		}
	}
	return n, err
}

func (o *output) failed() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil {
		return nil
	}
	return fmt.Errorf("write the output: %w", o.err)
}
