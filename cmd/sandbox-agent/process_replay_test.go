package main

import (
	"strings"
	"testing"
)

// However output is cut into pieces, questions are left out, and nothing else is.
func TestReplay_WithoutQuestions(t *testing.T) {
	parts := []struct {
		text string
		asks bool
	}{
		{"plain ", false},
		{"\x1b[c", true},
		{"\x1b[0c", true},
		{"\x1b[31m", false},
		{"\x1b[>c", true},
		{"\x1b[=0c", true},
		{"\x1b[u", false}, // the cursor goes back
		{"\x1b[?u", true},
		{"\x1b[6n", true},
		{"\x1b[?25h", false},
		{"\x1b[?996n", true},
		{"\x1b[?2026$p", true},
		{"\x1b[4$p", true},
		{"\x1b[3;4H", false},
		{"\x1b[>0q", true},
		{"\x1b[2 q", false}, // a cursor's form
		{"\x1b[18t", true},
		{"\x1b[22;0t", false}, // a title is put aside
		{"\x1b]11;?\x07", true},
		{"\x1b]0;is this a title?\x07", false},
		{"\x1b]4;1;?;2;?\x1b\\", true},
		{"\x1b]52;c;?\x07", true},
		{"\x1b]52;c;aGVsbG8=\x07", false},
		{"\x1bP+q544e\x1b\\", true},
		{"\x1bP$qm\x1b\\", true},
		{"\x1bZ", true},
		{"\x1b(B", false},
		{"\xff\xfe end \x1b[", false}, // the rest has not come
	}
	var all, want strings.Builder
	for _, p := range parts {
		all.WriteString(p.text)
		if !p.asks {
			want.WriteString(p.text)
		}
	}
	for first := range all.Len() {
		for second := first; second <= all.Len(); second += 7 {
			var r replay
			var got strings.Builder
			for _, piece := range []string{all.String()[:first], all.String()[first:second], all.String()[second:]} {
				got.Write(r.without([]byte(piece)))
			}
			got.Write(r.rest())
			if got.String() != want.String() {
				t.Fatalf("cut at %d and %d:\n%q, want\n%q", first, second, got.String(), want.String())
			}
		}
	}
}
