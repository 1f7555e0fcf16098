//go:build unix

package cmdline_test

import (
	"bytes"
	"errors"
	"io"
	iofs "io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
)

// Where an output goes stays what it was: a pipe is written into, and of a link the file that it
// leads to is replaced.
func TestSave_KeepsWhatIsNoFile(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.Mkdir(at("folder"), 0o700))
	must(os.Mkdir(at("elsewhere"), 0o700))
	must(os.Symlink("elsewhere", at("door")))
	for _, tt := range []struct{ name, links, file string }{ // LINK=TARGET, the first is the one that is named
		{"a link to a file", "a=file", "file"},
		{"a link to a link", "b=b2 b2=" + at("file"), "file"},
		{"a link to what is not there yet", "c=folder/new", "folder/new"},
		{"a link beside the folder of a link", "door/up=../made", "made"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			must(os.WriteFile(at("file"), []byte("of before"), 0o600))
			must(os.Chmod(at("file"), 0o640))
			first := ""
			for link := range strings.FieldsSeq(tt.links) {
				name, to, _ := strings.Cut(link, "=")
				must(os.Symlink(to, at(name)))
				if first == "" {
					first = at(name)
				}
			}
			must(save(first, "of now"))
			if b, err := os.ReadFile(at(tt.file)); err != nil || string(b) != "of now" {
				t.Errorf("the file has %q, %v", b, err)
			}
			if info, err := os.Stat(at("file")); err != nil || info.Mode().Perm() != 0o640 {
				t.Errorf("the file is %v, %v", info.Mode(), err)
			}
			if info, err := os.Lstat(first); err != nil || info.Mode()&iofs.ModeSymlink == 0 {
				t.Errorf("the link became %v, %v", info.Mode(), err)
			}
		})
	}
	t.Run("a link to itself", func(t *testing.T) {
		must(os.Symlink("self", at("self")))
		if err := save(at("self"), ""); err == nil || !strings.Contains(err.Error(), "links") {
			t.Errorf("%v", err)
		}
	})
	t.Run("a folder", func(t *testing.T) {
		if err := save(at("folder"), ""); !errors.Is(err, syscall.EISDIR) {
			t.Errorf("%v", err)
		}
	})
	t.Run("a pipe", func(t *testing.T) {
		must(syscall.Mkfifo(at("pipe"), 0o600))
		must(os.Symlink("pipe", at("to-pipe")))
		reader, err := os.OpenFile(at("pipe"), os.O_RDWR, 0) // it is open before the writer comes
		must(err)
		defer reader.Close()
		must(save(at("to-pipe"), "of now"))
		b := make([]byte, 6)
		if _, err := io.ReadFull(reader, b); err != nil || string(b) != "of now" {
			t.Errorf("the pipe had %q, %v", b, err)
		}
		if info, err := os.Lstat(at("pipe")); err != nil || info.Mode()&iofs.ModeNamedPipe == 0 {
			t.Errorf("the pipe became %v, %v", info.Mode(), err)
		}
	})
	if _, err := os.Stat("/dev/full"); err == nil { // a device that not every system has
		must(os.Symlink("/dev/full", at("full")))
		if err := save(at("full"), "of now"); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("of what cannot be written: %v", err)
		}
	}
	if left, _ := filepath.Glob(at(".sandbox-agent-*")); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

// save writes a text to a file, and checks that it is said exactly when it was written.
func save(file, text string) error {
	var notes bytes.Buffer
	err := cmdline.Save(file, "the text", io.Discard, &notes, func(w io.Writer) error {
		_, err := io.WriteString(w, text)
		return err
	})
	if said := notes.String() == "wrote "+file+"\n"; said != (err == nil) {
		return errors.Join(err, errors.New("notes: "+notes.String()))
	}
	return err
}
