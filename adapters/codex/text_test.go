package codex

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func TestHunks(t *testing.T) {
	got := hunksOf("@@ -1,3 +1,3 @@\n one\n-two\n+TWO\n three\n@@ -9 +10,2 @@ func f()\n-last\n\\ No newline at end of file\n+last\n+more\n")
	want := []hunk{{1, "one\ntwo\nthree\n", "one\nTWO\nthree\n"}, {10, "last", "last\nmore\n"}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(hunk{})); diff != "" {
		t.Error(diff)
	}
	if got := hunksOf(""); got != nil {
		t.Errorf("an empty diff has %v", got)
	}
}

func TestCapped(t *testing.T) {
	if s := strings.Repeat("é", 100); capped(s) != s {
		t.Error("a short text is changed")
	}
	s := capped("BEGIN" + strings.Repeat("é", maxOutput) + "END")
	if len(s) > maxOutput+100 || !utf8.ValidString(s) || !strings.HasPrefix(s, "BEGIN") || !strings.HasSuffix(s, "END") || !strings.Contains(s, "bytes left out") {
		t.Errorf("%d bytes: %.20q ... %.20q", len(s), s, s[max(0, len(s)-20):])
	}
}
