package acp

import (
	"bufio"
	"bytes"
	"io"
	"sync"
)

// AgentConn is the agent's end of a connection. Read is called from one
// goroutine, and its message is the caller's to keep; its error is io.EOF at a
// clean end. WriteLines may be called concurrently: it writes whole frames, each
// followed by a newline, together. Close ends a pending Read.
type AgentConn interface {
	Read() (Message, error)
	WriteLines(lines []byte) error
	Close() error
}

// OverLines returns the agent's end of newline-delimited JSON over rwc, whose
// Close must end a pending Read. A line that is no message is answered with an
// error and skipped. Lines have no length limit.
func OverLines(rwc io.ReadWriteCloser) AgentConn {
	return &lines{rwc: rwc, r: bufio.NewReaderSize(rwc, 64<<10)}
}

type lines struct {
	rwc io.ReadWriteCloser
	r   *bufio.Reader
	mu  sync.Mutex // orders writes
}

func (l *lines) Read() (Message, error) {
	for {
		line, err := l.r.ReadBytes('\n')
		if len(bytes.TrimSpace(line)) > 0 {
			m, bad := Parse(line)
			if bad == nil {
				return m, nil
			}
			refusal := Refusal(bad)
			if err := l.WriteLines(append(refusal.Frame(), '\n')); err != nil {
				return Message{}, err
			}
		}
		if err != nil {
			return Message{}, err
		}
	}
}

func (l *lines) WriteLines(b []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err := l.rwc.Write(b)
	return err
}

func (l *lines) Close() error { return l.rwc.Close() }
