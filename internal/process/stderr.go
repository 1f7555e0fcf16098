package process

import (
	"bytes"
	"strings"
	"sync"
)

const (
	headKept = 4 << 10
	tailKept = 64 << 10
)

// tail keeps the first and the last bytes written to it.
type tail struct {
	mu    sync.Mutex
	head  []byte
	ring  []byte // the last tailKept bytes after head, rotated at pos
	pos   int
	total int
	lines int
}

func newTail() *tail { return &tail{} }

// Write never fails.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := len(p)
	t.total += n
	t.lines += bytes.Count(p, []byte{'\n'})
	if room := headKept - len(t.head); room > 0 {
		k := min(room, len(p))
		t.head = append(t.head, p[:k]...)
		p = p[k:]
	}
	if len(p) > tailKept {
		p = p[len(p)-tailKept:]
	}
	for len(p) > 0 {
		if len(t.ring) < tailKept {
			k := min(tailKept-len(t.ring), len(p))
			t.ring = append(t.ring, p[:k]...)
			p = p[k:]
			continue
		}
		k := copy(t.ring[t.pos:], p)
		t.pos = (t.pos + k) % tailKept
		p = p[k:]
	}
	return n, nil
}

func (t *tail) read() (head, end string, truncated bool, lines int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	head = strings.ToValidUTF8(string(t.head), "\uFFFD")
	end = string(t.ring[t.pos:]) + string(t.ring[:t.pos])
	truncated = t.total > len(t.head)+len(t.ring)
	if !truncated { // all of it fits: the end is the whole text's last part
		end = string(t.head) + end
	}
	if len(end) > headKept {
		end = end[len(end)-headKept:]
		truncated = true
	}
	return head, strings.TrimSpace(strings.ToValidUTF8(end, "\uFFFD")), truncated, t.lines
}
