package install

import (
	"archive/tar"
	"encoding/base64"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// unpackInto unpacks an archive below a new directory, and reports what exists
// beside it that did not before.
func unpackInto(t *testing.T, kind string, archive []byte, limit int64) (dir string, err error) {
	t.Helper()
	outer := t.TempDir()
	dir = filepath.Join(outer, "stage")
	src := filepath.Join(outer, "archive")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(src, archive, 0o644); err != nil {
		t.Fatal(err)
	}
	in := New(Options{DataDir: outer, MaxUnpacked: limit})
	err = in.unpack(t.Context(), src, kind, dir, &reporter{})
	names, rerr := os.ReadDir(outer)
	if rerr != nil {
		t.Fatal(rerr)
	}
	if len(names) != 2 {
		t.Errorf("written outside the directory: %v", names)
	}
	return dir, err
}

func TestUnpack_Refused(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "victim")
	tests := []struct {
		name    string
		want    string
		entries []entry
	}{
		{"parent", "outside", []entry{{name: "../evil", body: "x"}}},
		{"parent inside", "outside", []entry{{name: "a/../../evil", body: "x"}}},
		{"absolute", "outside", []entry{{name: outside, body: "x"}}},
		{"symlink to an absolute path", "outside", []entry{{name: "l", kind: tar.TypeSymlink, link: outside}, {name: "l/evil", body: "x"}}},
		{"symlink to the parent", "outside", []entry{{name: "l", kind: tar.TypeSymlink, link: ".."}, {name: "l/evil", body: "x"}}},
		{"symlink inside, then a write through it", "file exists", []entry{{name: "d/f", body: "x"}, {name: "l", kind: tar.TypeSymlink, link: "d"}, {name: "l/f", body: "evil"}}},
		{"file, then a link in its place", "file exists", []entry{{name: "f", body: "x"}, {name: "f", kind: tar.TypeSymlink, link: "g"}}},
		{"twice the same file", "file exists", []entry{{name: "f", body: "x"}, {name: "f", body: "y"}}},
		{"links that only together lead outside", "escapes", []entry{
			{name: "a/b/c", kind: tar.TypeSymlink, link: "../.."},
			{name: "e", kind: tar.TypeSymlink, link: "a/b/c/../../.."},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for kind, archive := range map[string][]byte{"tar.gz": tarGz(t, tt.entries...), "zip": zipped(t, tt.entries...)} {
				dir, err := unpackInto(t, kind, archive, 1<<20)
				if err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("%s: error %v, want one with %q", kind, err, tt.want)
				}
				if _, err := os.Lstat(outside); err == nil {
					t.Errorf("%s: written to %s", kind, outside)
				}
				if b, err := os.ReadFile(filepath.Join(dir, "d", "f")); err == nil && string(b) != "x" {
					t.Errorf("%s: written through a link", kind)
				}
			}
		})
	}
	only := []struct {
		name, want string
		entry      entry
	}{
		{"hard link outside", "outside", entry{name: "h", kind: tar.TypeLink, link: "../../etc/passwd"}},
		{"absolute hard link", "outside", entry{name: "h", kind: tar.TypeLink, link: "/etc/passwd"}},
		{"device", "neither file", entry{name: "d", kind: tar.TypeChar}},
		{"pipe", "neither file", entry{name: "p", kind: tar.TypeFifo}},
	}
	for _, tt := range only {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := unpackInto(t, "tar.gz", tarGz(t, tt.entry), 1<<20); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
		})
	}
}

func TestUnpack_TooLarge(t *testing.T) {
	big := []entry{{name: "a", body: strings.Repeat("x", 600)}, {name: "b", body: strings.Repeat("x", 600)}}
	for kind, archive := range map[string][]byte{"tar.gz": tarGz(t, big...), "zip": zipped(t, big...)} {
		if _, err := unpackInto(t, kind, archive, 1000); err == nil || !strings.Contains(err.Error(), "larger than allowed") {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

func TestUnpack_Damaged(t *testing.T) {
	good := tarGz(t, entry{name: "a", body: strings.Repeat("xyz", 5000)})
	for _, b := range [][]byte{good[:len(good)/2], []byte("<html>"), nil} {
		if _, err := unpackInto(t, "tar.gz", b, 1<<20); err == nil {
			t.Errorf("%d bytes were unpacked", len(b))
		}
	}
}

func TestUnpack_KeepsModesAndLinks(t *testing.T) {
	entries := []entry{
		{name: "./", kind: tar.TypeDir},
		{name: "./bin/tool", body: "tool", mode: 0o755},
		{name: "./share/doc", body: "doc", mode: 0o444},
		{name: "./bin/setuid", body: "x", mode: 0o4755},
		{name: "./bin/t", kind: tar.TypeSymlink, link: "tool"},
		{name: "./hard", kind: tar.TypeLink, link: "./bin/tool"},
		{name: "./dangling", kind: tar.TypeSymlink, link: "bin/nothing"},
	}
	dir, err := unpackInto(t, "tar.gz", tarGz(t, entries...), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]fs.FileMode{"bin/tool": 0o755, "share/doc": 0o644, "bin/setuid": 0o755} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v; want %v", name, info.Mode(), err, want)
		}
	}
	for _, name := range []string{"bin/t", "hard"} {
		if got := readFile(t, filepath.Join(dir, name)); got != "tool" {
			t.Errorf("%s holds %q", name, got)
		}
	}
}

func TestUnpack_Bzip2(t *testing.T) {
	// A tar archive with one file, hello, that holds "hi\n".
	b, err := base64.StdEncoding.DecodeString(bzip2Hello)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := unpackInto(t, "tar.bz2", b, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if got := readFile(t, filepath.Join(dir, "hello")); got != "hi\n" {
		t.Errorf("hello holds %q", got)
	}
}

const bzip2Hello = "QlpoOTFBWSZTWWULd5sAAHD7hMmQAEDAAG8AAAhiZJ4AAACACCAAVDKjEyMjCZMT0ElTymjQNDINBX7vJ3QgjABIkXksYwNLEkDB0w9Wa1JUURNUadQ9Y0yvVN8ZEh8M84RYRGEkDQu5IpwoSDKFu82A"
