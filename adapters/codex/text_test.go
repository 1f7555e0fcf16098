package codex

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestCapped(t *testing.T) {
	if s := strings.Repeat("é", 100); capped(s) != s {
		t.Error("a short text is changed")
	}
	s := capped("BEGIN" + strings.Repeat("é", maxOutput) + "END")
	if len(s) > maxOutput+100 || !utf8.ValidString(s) || !strings.HasPrefix(s, "BEGIN") || !strings.HasSuffix(s, "END") || !strings.Contains(s, "bytes left out") {
		t.Errorf("%d bytes: %.20q ... %.20q", len(s), s, s[max(0, len(s)-20):])
	}
}
