package bridge

import (
	"bytes"
	"io"
	"unicode/utf8"

	"sandboxagent.dev/sandbox-agent/acp/ndjson"
)

// Lines reads what an agent writes. It is used by one goroutine.
type Lines struct{ *ndjson.Lines }

// NewLines returns a reader of lines up to max bytes, for 0 as many as a message
// may have.
func NewLines(r io.Reader, limit int) Lines { return Lines{ndjson.NewLines(r, limit)} }

// Next returns the next line that is not blank, without its line break, and with
// U+FFFD in place of what is not UTF-8. It is valid until the next call. With an
// *ndjson.TooLongError comes the line's beginning, and reading goes on with the
// line behind it. io.EOF is the end.
func (l Lines) Next() ([]byte, error) {
	for {
		line, err := l.Lines.Next()
		if line = bytes.TrimSpace(line); err == nil && len(line) == 0 {
			continue
		}
		if !utf8.Valid(line) {
			line = bytes.ToValidUTF8(line, []byte("\uFFFD"))
		}
		return line, err
	}
}
