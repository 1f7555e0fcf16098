package acp

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"sync"

	"github.com/sourcegraph/jsonrpc2"
)

// lineStream is the [jsonrpc2.ObjectStream] of an endpoint: newline-delimited
// JSON. jsonrpc2 correlates calls with answers and owns the reading goroutine;
// frames themselves never pass through its codec, which re-encodes params and
// refuses some ids. What is read is left in current for the handler, which
// jsonrpc2 calls from the reading goroutine before it reads again; what is
// written was built before.
type lineStream struct {
	rwc io.ReadWriteCloser
	r   *bufio.Reader

	current Message       // read last; reading goroutine only
	readErr error         // why reading ended; valid when ended is closed
	ended   chan struct{} // closed when reading has ended

	mu    sync.Mutex // guards calls, and orders writes
	calls map[int64][]byte
}

var _ jsonrpc2.ObjectStream = (*lineStream)(nil)

func newLineStream(rwc io.ReadWriteCloser) *lineStream {
	return &lineStream{
		rwc: rwc, r: bufio.NewReaderSize(rwc, 64<<10),
		ended: make(chan struct{}), calls: make(map[int64][]byte),
	}
}

// standIn stands for a frame with a method, which is in current.
var standIn = []byte(`{"jsonrpc":"2.0","method":"current"}`)

// ReadObject reads the next frame. A line that is no frame is answered with an
// error and skipped. Lines have no length limit.
func (s *lineStream) ReadObject(v any) error {
	for {
		line, err := s.r.ReadBytes('\n')
		if len(bytes.TrimSpace(line)) > 0 {
			m, perr := Parse(line)
			if perr != nil {
				refusal := Refusal(perr)
				if werr := s.writeFrame(refusal.Frame()); werr != nil {
					return s.end(werr)
				}
			} else if s.deliver(m, v) {
				return nil
			}
		}
		if err != nil {
			return s.end(err)
		}
	}
}

// deliver hands a frame to jsonrpc2. It reports false for a response that is
// none of ours.
func (s *lineStream) deliver(m Message, v any) bool {
	s.current = m
	if !m.IsResponse() {
		return json.Unmarshal(standIn, v) == nil
	}
	if n, ok := m.ID().Int(); !ok || n <= 0 {
		return false
	}
	// Rebuilt, since jsonrpc2 ends the connection over a member that it does
	// not understand.
	if e := m.Err(); e != nil {
		m = NewError(m.ID(), e)
	} else {
		m = NewResult(m.ID(), m.Result())
	}
	return json.Unmarshal(m.Frame(), v) == nil
}

func (s *lineStream) end(err error) error {
	s.readErr = err
	close(s.ended)
	return err
}

// WriteObject writes the call that [lineStream.prepare] stored under the id
// that jsonrpc2 gives it. Everything else is written without jsonrpc2.
func (s *lineStream) WriteObject(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	m, err := Parse(b)
	if err != nil {
		return err
	}
	n, _ := m.ID().Int()
	s.mu.Lock()
	frame := s.calls[n]
	delete(s.calls, n)
	s.mu.Unlock()
	if frame == nil {
		return fmt.Errorf("no frame for call %d", n)
	}
	return s.writeFrame(frame)
}

func (s *lineStream) prepare(id int64, frame []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls[id] = frame
}

func (s *lineStream) forget(id int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.calls, id)
}

// writeFrame writes a frame and its newline at once. frame may be appended to.
func (s *lineStream) writeFrame(frame []byte) error { return s.writeLines(append(frame, '\n')) }

func (s *lineStream) writeLines(lines []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err := s.rwc.Write(lines)
	return err
}

// Close closes the stream below, which ends a pending read.
func (s *lineStream) Close() error { return s.rwc.Close() }
