package codex

import (
	"fmt"
	"unicode/utf8"
)

// maxOutput bounds the output of a command that is shown: the middle is left
// out.
const maxOutput = 64 << 10

// tail is the begin and the end of a text. The zero value is empty.
type tail struct {
	head, end []byte
	total     int
}

func (t *tail) len() int { return t.total }

func (t *tail) add(s string) {
	t.total += len(s)
	if n := min(len(s), maxOutput/2-len(t.head)); n > 0 {
		t.head = append(t.head, s[:n]...)
		s = s[n:]
	}
	t.end = append(t.end, s...)
	if len(t.end) > maxOutput {
		t.end = append(t.end[:0], t.end[len(t.end)-maxOutput/2:]...)
	}
}

// text returns what is shown.
func (t *tail) text() string {
	end := t.end
	if len(end) > maxOutput/2 {
		end = end[len(end)-maxOutput/2:]
	}
	left := t.total - len(t.head) - len(end)
	if left == 0 {
		return string(t.head) + string(end)
	}
	head := t.head
	for len(head) > 0 && !utf8.Valid(head) {
		head = head[:len(head)-1]
		if len(t.head)-len(head) >= utf8.UTFMax {
			break
		}
	}
	for i := 0; i < utf8.UTFMax && len(end) > 0 && !utf8.RuneStart(end[0]); i++ {
		end = end[1:]
	}
	return fmt.Sprintf("%s\n[... %d bytes left out ...]\n%s", head, t.total-len(head)-len(end), end)
}

// capped shortens a text as [tail] does.
func capped(s string) string {
	var t tail
	t.add(s)
	return t.text()
}
