package bridge

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/ndjson"
)

const (
	readBuffer = 32 << 10
	keepBuffer = 256 << 10 // a larger buffer is given up after its line
	rawKept    = 4 << 10   // bytes of a bad line that are quoted
)

// Lines reads a stream line by line. It is used by one goroutine.
type Lines struct {
	r    *bufio.Reader
	max  int
	long []byte // of a line that does not fit the reader's buffer
}

// NewLines returns a reader of lines up to max bytes, for 0 as many as a message
// may have.
func NewLines(r io.Reader, limit int) *Lines {
	if limit <= 0 {
		limit = ndjson.DefaultMaxLine
	}
	return &Lines{r: bufio.NewReaderSize(r, readBuffer), max: limit}
}

// TooLongError is a line over the limit. Its rest was read and dropped.
type TooLongError struct {
	Length, Limit int
}

func (e *TooLongError) Error() string {
	return fmt.Sprintf("line of %d bytes is over the limit of %d", e.Length, e.Limit)
}

// Next returns the next line that is not blank, without its line break, and with
// U+FFFD in place of what is not UTF-8. It is valid until the next call. With a *TooLongError comes the line's beginning,
// and reading goes on with the line behind it. io.EOF is the end.
func (l *Lines) Next() ([]byte, error) {
	for {
		line, err := l.next()
		if err != nil || len(line) > 0 {
			if !utf8.Valid(line) {
				line = bytes.ToValidUTF8(line, []byte("\uFFFD"))
			}
			return line, err
		}
	}
}

func (l *Lines) next() ([]byte, error) {
	if cap(l.long) > keepBuffer {
		l.long = nil
	}
	l.long = l.long[:0]
	total := 0
	for {
		part, err := l.r.ReadSlice('\n')
		total += len(part)
		switch {
		case err == nil && total == len(part) && total <= l.max+1:
			return bytes.TrimSpace(part), nil // as it is nearly always
		case total <= l.max+1:
			l.long = append(l.long, part...)
		}
		if err == bufio.ErrBufferFull {
			continue
		}
		if err != nil && total == 0 {
			return nil, err
		}
		if total > l.max+1 {
			if len(l.long) == 0 {
				l.long = append(l.long, part...)
			}
			return l.long[:min(len(l.long), rawKept)], &TooLongError{total, l.max}
		}
		return bytes.TrimSpace(l.long), nil // without a line break at the stream's end
	}
}

// Unparsed returns the method and params of the notification that stands for a
// line which is no message.
func Unparsed(line []byte, reason error) (method string, params []byte) {
	sum := sha256.Sum256(line)
	p := append([]byte(nil), `{"error":`...)
	p = acp.AppendQuoted(p, reason.Error())
	p = append(p, `,"raw":`...)
	p = acp.AppendQuoted(p, strings.ToValidUTF8(string(line[:min(len(line), rawKept)]), "\uFFFD"))
	p = append(p, `,"rawHash":"sha256:`...)
	p = hex.AppendEncode(p, sum[:])
	return ndjson.MethodUnparsed, append(p, `"}`...)
}
