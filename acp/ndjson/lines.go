package ndjson

import (
	"bytes"
	"fmt"
	"io"
)

const (
	// DefaultMaxLine bounds a line; the rest of a longer one is discarded.
	DefaultMaxLine = 64 << 20

	firstBuffer = 4 << 10
	readBuffer  = 64 << 10 // the buffer grows to this under load
	keepBuffer  = 1 << 20  // a larger buffer is given up after its line
	rawKept     = 4 << 10  // bytes of a bad line that are quoted
)

// Lines reads a stream line by line, within bounds. It is used by one goroutine.
type Lines struct {
	r       io.Reader
	maxLine int

	buf        []byte
	head, tail int                       // unread bytes of buf
	newline    int                       // index of the first newline in buf[head:tail], -1 when not known
	scanned    int                       // bytes of buf[head:tail] known to hold no newline
	ahead      func([]byte) (int, error) // may be nil
	fillErr    error                     // met by Buffered, for the next Read
}

// NewLines returns a reader of lines up to maxLine bytes; 0 means
// [DefaultMaxLine].
func NewLines(r io.Reader, maxLine int) *Lines {
	if maxLine <= 0 {
		maxLine = DefaultMaxLine
	}
	return &Lines{r: r, maxLine: maxLine, newline: -1}
}

// TooLongError is a line over the limit. Its rest was read and dropped.
type TooLongError struct {
	Length, Limit int
}

func (e *TooLongError) Error() string {
	return fmt.Sprintf("line of %d bytes is over the limit of %d", e.Length, e.Limit)
}

// Ahead is [Conn.Ahead].
func (l *Lines) Ahead(read func(p []byte) (int, error)) { l.ahead = read }

// Buffered reports whether the next Next returns without waiting. It ends the
// life of the line that was read last.
func (l *Lines) Buffered() bool {
	if l.findNewline() >= 0 {
		return true
	}
	if l.ahead == nil || l.fillErr != nil || l.tail-l.head > readBuffer {
		return false
	}
	l.makeRoom()
	n, err := l.ahead(l.buf[l.tail:])
	l.tail, l.fillErr = l.tail+n, err
	return l.findNewline() >= 0
}

func (l *Lines) findNewline() int {
	if l.newline < 0 {
		if i := bytes.IndexByte(l.buf[l.head+l.scanned:l.tail], '\n'); i >= 0 {
			l.newline = l.head + l.scanned + i
		} else {
			l.scanned = l.tail - l.head
		}
	}
	return l.newline
}

// Next returns the next line without its newline. It is valid until the next
// call of any method. With a *TooLongError comes the line's beginning, and reading
// goes on with the line behind it. io.EOF is the end.
func (l *Lines) Next() (line []byte, err error) {
	if cap(l.buf) > keepBuffer && l.tail-l.head <= readBuffer {
		l.buf = append(make([]byte, 0, readBuffer), l.buf[l.head:l.tail]...)[:readBuffer]
		l.tail -= l.head
		l.head, l.newline, l.scanned = 0, -1, 0
	}
	for {
		if nl := l.findNewline(); nl >= 0 {
			line = l.buf[l.head:nl:nl]
			l.head, l.newline, l.scanned = nl+1, -1, 0
			if len(line) > l.maxLine {
				return line[:min(len(line), rawKept)], &TooLongError{len(line), l.maxLine}
			}
			return line, nil
		}
		if l.tail-l.head > l.maxLine {
			return l.discard()
		}
		err := l.fillErr
		if l.fillErr = nil; err == nil {
			err = l.fill()
		}
		if err != nil {
			if err == io.EOF && l.tail > l.head {
				line = l.buf[l.head:l.tail]
				l.head, l.scanned = l.tail, 0
				return line, nil
			}
			return nil, err
		}
	}
}

// discard consumes a line over the limit and returns its beginning.
func (l *Lines) discard() ([]byte, error) {
	kept := append([]byte(nil), l.buf[l.head:min(l.tail, l.head+rawKept)]...)
	total := l.tail - l.head
	for {
		l.head, l.tail, l.newline, l.scanned = 0, 0, -1, 0
		if err := l.fill(); err != nil && err != io.EOF {
			return nil, err
		} else if err == io.EOF {
			return kept, &TooLongError{total, l.maxLine}
		}
		if nl := l.findNewline(); nl >= 0 {
			total += nl
			l.head, l.newline, l.scanned = nl+1, -1, 0
			return kept, &TooLongError{total, l.maxLine}
		}
		total += l.tail
	}
}

// fill reads once.
func (l *Lines) fill() error {
	l.makeRoom()
	for range 100 {
		n, err := l.r.Read(l.buf[l.tail:])
		l.tail += n
		if n > 0 {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return io.ErrNoProgress
}

// makeRoom has buf take more bytes behind tail.
func (l *Lines) makeRoom() {
	if l.head == l.tail {
		l.head, l.tail, l.scanned = 0, 0, 0
	}
	if l.tail == len(l.buf) {
		n := l.tail - l.head
		switch {
		case l.head > 0 && n <= len(l.buf)/2:
			copy(l.buf, l.buf[l.head:l.tail])
		default:
			size := max(firstBuffer, 2*len(l.buf))
			if len(l.buf) < readBuffer && len(l.buf) > 0 {
				size = readBuffer
			}
			b := make([]byte, size)
			copy(b, l.buf[l.head:l.tail])
			l.buf = b
		}
		l.head, l.tail = 0, n
	}
}
