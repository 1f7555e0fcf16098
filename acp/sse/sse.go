// Package sse encodes and decodes text/event-stream.
//
// The encoder writes events whose data is one line: JSON text without raw line
// breaks. The decoder follows the HTML standard: lines end in LF, CRLF or CR,
// several data lines join with LF, comments and unknown fields are skipped, and
// an event that the stream's end cuts off is not delivered. It keeps at most
// its limit in memory.
package sse

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strconv"
)

// ContentType is the media type of an event stream.
const ContentType = "text/event-stream"

// Heartbeat is a comment that keeps intermediaries from closing the stream.
const Heartbeat = ":\n\n"

// AppendEvent appends one event named message with a numeric id.
func AppendEvent(dst []byte, id uint64, data []byte) []byte {
	return append(append(AppendHead(dst, id), data...), Tail...)
}

// AppendHead appends what stands before the data of an event. Behind the data stands Tail.
func AppendHead(dst []byte, id uint64) []byte {
	dst = append(dst, "event: message\nid: "...)
	dst = strconv.AppendUint(dst, id, 10)
	return append(dst, "\ndata: "...)
}

// Tail ends an event.
const Tail = "\n\n"

// Event is one decoded event.
type Event struct {
	ID   string // the last id the stream gave, also when this event has none
	Type string // "message" when the stream names none
	Data []byte // valid until the next call of Next
}

// ErrTooLarge is returned for a line or an event over the decoder's limit.
var ErrTooLarge = errors.New("sse: event is over the size limit")

// Decoder reads events from a stream. It is not safe for concurrent use.
type Decoder struct {
	r      *bufio.Reader
	max    int
	id     string
	line   []byte
	data   []byte
	skipLF bool // the last line ended in CR
	begun  bool
}

// NewDecoder returns a decoder of r that refuses events over limit bytes.
func NewDecoder(r io.Reader, limit int) *Decoder { return NewDecoderSize(r, limit, 32<<10) }

// NewDecoderSize is NewDecoder with a buffer of about size bytes: for who has many streams on
// which little comes.
func NewDecoderSize(r io.Reader, limit, size int) *Decoder {
	return &Decoder{r: bufio.NewReaderSize(r, size), max: limit}
}

// Next returns the next event. At the end of the stream it returns io.EOF.
func (d *Decoder) Next() (Event, error) {
	ev := Event{Type: "message"}
	d.data = d.data[:0]
	has := false
	for {
		line, err := d.readLine()
		if err != nil {
			return Event{}, err
		}
		if len(line) == 0 {
			if !has {
				ev.Type = "message"
				continue
			}
			ev.ID, ev.Data = d.id, d.data
			return ev, nil
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(name) {
		case "data":
			if has {
				d.data = append(d.data, '\n')
			}
			if len(d.data)+len(value) > d.max {
				return Event{}, ErrTooLarge
			}
			d.data, has = append(d.data, value...), true
		case "event":
			if len(value) > 0 {
				ev.Type = string(value)
			}
		case "id":
			if bytes.IndexByte(value, 0) < 0 {
				d.id = string(value)
			}
		}
	}
}

// readLine returns a line without its end. A line that the stream's end cuts
// off is dropped.
func (d *Decoder) readLine() ([]byte, error) {
	d.line = d.line[:0]
	for {
		if _, err := d.r.Peek(1); err != nil {
			return nil, err
		}
		chunk, _ := d.r.Peek(d.r.Buffered())
		if d.skipLF {
			d.skipLF = false
			if chunk[0] == '\n' {
				_, _ = d.r.Discard(1)
				continue
			}
		}
		i := bytes.IndexAny(chunk, "\r\n")
		if i < 0 {
			if len(d.line)+len(chunk) > d.max+16 {
				return nil, ErrTooLarge
			}
			d.line = append(d.line, chunk...)
			_, _ = d.r.Discard(len(chunk))
			continue
		}
		if len(d.line)+i > d.max+16 {
			return nil, ErrTooLarge
		}
		d.line = append(d.line, chunk[:i]...)
		d.skipLF = chunk[i] == '\r'
		_, _ = d.r.Discard(i + 1)
		if !d.begun {
			d.begun = true
			d.line = bytes.TrimPrefix(d.line, []byte("\xEF\xBB\xBF"))
		}
		return d.line, nil
	}
}
