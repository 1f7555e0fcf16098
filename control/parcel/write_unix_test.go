//go:build unix

package parcel_test

import (
	"io"
	"os"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/control/parcel"
)

// looking is an end at which a folder is looked at.
type looking struct {
	dir   string
	there []os.DirEntry
	err   error
}

func (l *looking) Read([]byte) (int, error) {
	l.there, l.err = os.ReadDir(l.dir)
	return 0, io.EOF
}

// What is too large for memory is in a file without a name: a program that is killed leaves nothing of it.
func TestWriter_LeavesNoFile(t *testing.T) {
	end := &looking{dir: t.TempDir()}
	t.Setenv("TMPDIR", end.dir)
	w, err := parcel.NewWriter(io.Discard, manifest)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Put("agent/large", io.MultiReader(strings.NewReader(noise(9<<20)), end)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if end.err != nil || len(end.there) > 0 {
		t.Errorf("while it is written there is %v, %v", end.there, end.err)
	}
}
