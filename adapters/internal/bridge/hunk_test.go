package bridge

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestHunks_OfADiff(t *testing.T) {
	const diff = `Index: /w/a.txt
===================================================================
--- /w/a.txt
+++ /w/a.txt
@@ -1,3 +1,3 @@
 one
-two
+TWO
 three
@@ -10 +10,2 @@ func x() {
-ten
\ No newline at end of file
+ten
+eleven
`
	want := []Hunk{{1, "one\ntwo\nthree\n", "one\nTWO\nthree\n"}, {10, "ten", "ten\neleven\n"}}
	if d := cmp.Diff(want, Hunks(diff)); d != "" {
		t.Error(d)
	}
	for _, none := range []string{"", "no diff", "@@", "@@ -1 +x @@", "--- a\n+++ b\n"} {
		if got := Hunks(none); len(got) > 0 {
			t.Errorf("%q has %+v", none, got)
		}
	}
}

func TestCapped_LeavesOutTheMiddle(t *testing.T) {
	if got := Capped("short", 100); got != "short" {
		t.Error(got)
	}
	long := "begin" + string(make([]byte, 1000)) + "ende"
	if got := Capped(long, 20); got[:5] != "begin" || got[len(got)-4:] != "ende" || len(got) > 70 {
		t.Errorf("%q", got)
	}
	if got := Capped("äöüäöüäöüäöüäöüäöü", 9); got != "äö\n[... 29 bytes left out ...]\nü" && len(got) == 0 {
		t.Errorf("%q", got)
	}
}
