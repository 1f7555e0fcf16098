package bridge

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"sandboxagent.dev/sandbox-agent/acp/ndjson"
	"sandboxagent.dev/sandbox-agent/adapters"
)

// SameDir reports whether two paths lead to one directory.
func SameDir(a, b string) bool {
	if a == b {
		return true
	}
	x, errX := filepath.EvalSymlinks(a)
	y, errY := filepath.EvalSymlinks(b)
	return errX == nil && errY == nil && x == y
}

// EachEntry calls f for each line of an agent's own record of a conversation, with
// its number. A line that is no entry is left out: the agent may be writing the
// last one. It ends with f's error.
func EachEntry[E any](path string, f func(n int, e *E) error) error {
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("read a conversation: %w", err)
	}
	defer func() { _ = file.Close() }()
	lines := NewLines(file, 0)
	for n := 0; ; n++ {
		line, err := lines.Next()
		if err == io.EOF {
			return nil
		}
		if _, tooLong := errors.AsType[*ndjson.TooLongError](err); tooLong {
			continue
		}
		if err != nil {
			return fmt.Errorf("read a conversation: %w", err)
		}
		e := new(E)
		if Lenient(line, e) != nil {
			continue
		}
		if err := f(n, e); err != nil {
			return err
		}
	}
}

// Recorded looks at a record of lines, those of prompts with their time: a message of
// the user is in "message" or in "payload".
func Recorded(path string) adapters.Recorded {
	r := adapters.Recorded{Written: Written(path)}
	f, err := os.Open(path)
	if err != nil {
		return r
	}
	defer func() { _ = f.Close() }()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return r
	}
	tail := make([]byte, min(recordTail, size))
	if _, err := f.ReadAt(tail, size-int64(len(tail))); err != nil {
		return r
	}
	lines := bytes.Split(tail, []byte("\n"))
	for _, line := range slices.Backward(lines) {
		if !bytes.Contains(line, []byte(`"role":"user"`)) {
			continue
		}
		var entry struct {
			Timestamp        time.Time
			Message, Payload struct{ Role string }
		}
		if json.Unmarshal(line, &entry) == nil && (entry.Message.Role == "user" || entry.Payload.Role == "user") {
			r.Prompted = entry.Timestamp
			break
		}
	}
	return r
}

const (
	recordHead = 128 << 10
	recordTail = 64 << 10
)

// Ends reads so much of a record as a listing needs: its two ends, which scan gets
// one after the other. long says that something lies between them.
func Ends(path string, scan func(lines []byte)) (long bool) {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	head, _ := io.ReadAll(io.LimitReader(f, recordHead))
	scan(head)
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil || end <= recordHead {
		return false
	}
	tail := make([]byte, min(recordTail, end-recordHead))
	if n, err := f.ReadAt(tail, end-int64(len(tail))); n > 0 && (err == nil || err == io.EOF) {
		scan(tail[:n])
	}
	return true
}
