package agent

import (
	"bufio"
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
)

// flushAt is how many bytes of frames are written at once.
const flushAt = 32 << 10

// session is an open session.
type session struct {
	id   schema.SessionID
	dir  string
	stop chan struct{} // closed when the session is closed

	out sync.Mutex // orders the log and the wire; taken before mu, never after
	log *os.File   // written under out

	mu     sync.Mutex
	info   info
	busy   bool // a prompt runs
	closed bool
}

// begin starts a turn and returns its number, the first being 1.
func (s *session) begin() (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy {
		return 0, acp.Errorf(acp.CodeInvalidRequest, "session %s is busy with a prompt", s.id)
	}
	s.busy = true
	s.info.Turns++
	return s.info.Turns, nil
}

// end ends a turn.
func (s *session) end() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy = false
	return s.saveLocked()
}

// change edits the session's info and saves it.
func (s *session) change(edit func(*info)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	edit(&s.info)
	return s.saveLocked()
}

func (s *session) saveLocked() error {
	if s.closed {
		return nil // it may be deleted by now
	}
	s.info.UpdatedAt = time.Now()
	return s.info.save(s.dir)
}

func (s *session) cwd() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.info.Cwd
}

// config returns a copy of the chosen values by option.
func (s *session) config() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.info.Config)
}

// allows reports whether calls with a title were always allowed, and the mode lets that count.
func (s *session) allows(title string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.info.Config[optionMode] != modePlan && s.info.Granted.Has(title)
}

func (s *session) close() {
	s.mu.Lock()
	first := !s.closed
	s.closed = true
	s.mu.Unlock()
	if first {
		close(s.stop)
		s.out.Lock()
		defer s.out.Unlock()
		_ = s.log.Close()
	}
}

// frameHead is a session/update frame up to the update.
func (s *session) frameHead() []byte {
	return acp.AppendUpdateHead(nil, rawjson.AppendQuoted(nil, string(s.id)))
}

const frameTail = acp.UpdateTail + "\n"

// record appends an update to the log and, unless w is nil, sends it.
func (s *session) record(w acp.LineWriter, update schema.SessionUpdate) error {
	b, err := schema.Encode(update)
	if err != nil {
		return err
	}
	frame := append(append(s.frameHead(), b...), frameTail...)
	return s.write(w, append(b, '\n'), frame)
}

// write appends lines to the log and then the same updates, as frames, to w.
func (s *session) write(w acp.LineWriter, lines, frames []byte) error {
	s.out.Lock()
	defer s.out.Unlock()
	if _, err := s.log.Write(lines); err != nil {
		return fmt.Errorf("record update: %w", err)
	}
	if w == nil {
		return nil
	}
	return w.WriteLines(frames)
}

// replay sends every update of the log.
func (s *session) replay(w acp.LineWriter) error {
	s.out.Lock()
	defer s.out.Unlock()
	f, err := os.Open(filepath.Join(s.dir, logFile))
	if err != nil {
		return fmt.Errorf("replay: %w", err)
	}
	defer func() { _ = f.Close() }()
	head := s.frameHead()
	var buf []byte
	for r := bufio.NewReaderSize(f, flushAt); ; {
		line, err := r.ReadBytes('\n')
		if err != nil {
			break
		}
		buf = append(append(append(buf, head...), bytes.TrimSuffix(line, []byte("\n"))...), frameTail...)
		if len(buf) >= flushAt {
			if err := w.WriteLines(buf); err != nil {
				return err
			}
			buf = buf[:0]
		}
	}
	return w.WriteLines(buf)
}
