//go:build unix

package process

import (
	"io"
	"os"
	"strings"
	"testing"
	"time"
)

// What a process has written is read when the reader stood still until its time was over, also of a pipe that
// somebody else holds.
func TestReadRest_OfAPipeThatIsHeld(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	defer r.Close()
	for _, text := range []string{"first line\n", "the reason\n"} {
		if _, err := w.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.SetReadDeadline(time.Now()); err != nil {
		t.Fatal(err)
	}
	rest := newTail()
	if _, err := io.Copy(rest, r); err == nil {
		t.Error("it is read in spite of its deadline")
	}
	ReadRest(r, rest)
	ReadRest(r, rest)
	if _, end, _, lines := rest.read(); lines != 2 || !strings.Contains(end, "the reason") {
		t.Errorf("%d lines, %q", lines, end)
	}
}
