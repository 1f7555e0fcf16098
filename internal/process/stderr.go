package process

import (
	"bytes"
	"io"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"
)

const (
	headKept = 4 << 10
	tailKept = 64 << 10

	headLines = 20
	tailLines = 50
	maxEnd    = 16 << 10 // bytes of the last lines
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

// read returns the first lines and the last ones, none of them twice: where all fits
// into the last ones, there are no first ones. Colours and other escapes are left out.
func (t *tail) read() (head, end string, truncated bool, lines int) {
	t.mu.Lock()
	first, last := string(t.head), string(t.ring[t.pos:])+string(t.ring[:t.pos])
	lost := t.total > len(t.head)+len(t.ring)
	lines = t.lines
	t.mu.Unlock()
	if !lost {
		all := linesOf(first + last)
		cut := max(0, len(all)-tailLines)
		before := all[:min(cut, headLines)]
		head, end = strings.Join(before, "\n"), strings.Join(all[cut:], "\n")
		truncated = len(before) < cut
	} else {
		before, after := linesOf(first), linesOf(last)
		head = strings.Join(before[:min(len(before), headLines)], "\n")
		end, truncated = strings.Join(after[max(0, len(after)-tailLines):], "\n"), true
	}
	if len(end) > maxEnd {
		end, truncated = strings.ToValidUTF8(end[len(end)-maxEnd:], ""), true
	}
	return head, end, truncated, lines
}

// escapes are what programs say to terminals: colours, titles, and how the cursor moves.
var escapes = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)|[@-Z\\^_])`)
})

func linesOf(text string) []string {
	text = escapes().ReplaceAllString(strings.ToValidUTF8(text, "\uFFFD"), "")
	text = strings.TrimSpace(strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\x1b", ""))
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

// ReadRest reads what a pipe or a terminal has, and does not wait for more of it: no more than a pipe can have. Nobody
// else reads from it any more.
func ReadRest(from *os.File, to io.Writer) {
	raw, err := from.SyscallConn()
	if err != nil || from.SetReadDeadline(time.Time{}) != nil {
		return
	}
	_ = raw.Read(func(fd uintptr) bool { // fails for what is closed, which has no rest
		b := make([]byte, 64<<10)
		for range 16 {
			n, err := readNow(fd, b)
			if n == 0 || err != nil {
				break
			}
			_, _ = to.Write(b[:n])
		}
		return true
	})
}
