package parcel_test

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/control/parcel"
	"sandboxagent.dev/sandbox-agent/runtime"
)

var manifest = runtime.Manifest{
	Version: runtime.ManifestVersion, SessionID: "s1", Agent: "mock", Cwd: "/work", ExportedAt: time.Unix(1_700_000_000, 0).UTC(),
}

// noise is bytes that do not become smaller.
func noise(n int) string {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(b)
	return string(b)
}

func TestParcel(t *testing.T) {
	want := map[string]string{
		"session/record.json": "{}", "session/log/00000001.jsonl": "", "agent/a/b.jsonl": strings.Repeat("line\n", 1000), "agent/large": noise(5 << 20), "workspace/x y é": "z",
	}
	var file bytes.Buffer
	w, err := parcel.NewWriter(&file, manifest)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range want {
		if err := w.Put(name, strings.NewReader(content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	m, err := parcel.Unpack(bytes.NewReader(file.Bytes()), dir, parcel.Usual, func(m runtime.Manifest) error {
		if m.SessionID != "s1" {
			t.Errorf("%+v", m)
		}
		return nil
	})
	if err != nil || m.Agent != "mock" || !m.ExportedAt.Equal(manifest.ExportedAt) {
		t.Fatalf("%+v, %v", m, err)
	}
	got := map[string]string{}
	err = fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			b, err := os.ReadFile(filepath.Join(dir, name))
			got[name] = string(b)
			return err
		}
		return err
	})
	if err != nil || len(got) != len(want) {
		t.Errorf("%d files, %v", len(got), err)
	}
	for name, content := range want {
		if got[name] != content {
			t.Errorf("%s has %d bytes, want %d", name, len(got[name]), len(content))
		}
	}
	// A part of it is none, wherever it ends, and neither is one with a changed byte.
	for _, n := range []int{0, 1, 100, file.Len() / 2, file.Len() - 1} {
		if _, err := parcel.Unpack(bytes.NewReader(file.Bytes()[:n]), t.TempDir(), parcel.Usual, nil); !refusedFor(err, "") {
			t.Errorf("%d bytes of it: %v", n, err)
		}
		damaged := slices.Clone(file.Bytes())
		damaged[n] ^= 0x40
		if _, err := parcel.Unpack(bytes.NewReader(damaged), t.TempDir(), parcel.Usual, nil); !refusedFor(err, "") {
			t.Errorf("byte %d was changed: %v", n, err)
		}
	}
	stop := errors.New("not wanted")
	if _, err := parcel.Unpack(bytes.NewReader(file.Bytes()), t.TempDir(), parcel.Usual, func(runtime.Manifest) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("not accepted: %v", err)
	}
}

func TestWriter_RefusesNames(t *testing.T) {
	for _, name := range []string{"", "x", "agent/", "agent/../x", "/agent/x", "agent//x", `agent/a\b`, "agent/a\nb", "other/x", "agent/" + strings.Repeat("x", 2000)} {
		w, err := parcel.NewWriter(io.Discard, manifest)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Put(name, strings.NewReader("")); err == nil {
			t.Errorf("%q was written", name)
		}
		if err := w.Put("agent/x", strings.NewReader("")); err == nil {
			t.Errorf("it goes on behind %q", name)
		}
		w.Abandon()
	}
}

// refusedFor reports whether the error is a refusal that says why.
func refusedFor(err error, why string) bool {
	p, ok := errors.AsType[*problem.Error](err)
	return ok && p.Kind == problem.ArchiveRefused && strings.Contains(p.Error(), why)
}

// item is an entry of a file that is made by hand.
type item struct {
	name, content string
	kind          byte
	link          string
	size          int64 // of the header, when it lies
}

// pack makes a file of entries, with correct checksums unless it has some.
func pack(t testing.TB, items ...item) []byte {
	t.Helper()
	var out bytes.Buffer
	zip, err := zstd.NewWriter(&out, zstd.WithEncoderConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(zip)
	var sums strings.Builder
	has := false
	for _, i := range items {
		if i.kind == 0 {
			i.kind = tar.TypeReg
		}
		has = has || i.name == "checksums"
		size := int64(len(i.content))
		if i.size > 0 {
			size = i.size
		}
		if err := w.WriteHeader(&tar.Header{Name: i.name, Typeflag: i.kind, Linkname: i.link, Size: size, Mode: 0o777}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, i.content); err != nil {
			t.Fatal(err)
		}
		if i.size > 0 {
			break
		}
		sum := sha256.Sum256([]byte(i.content))
		fmt.Fprintf(&sums, "%s  %s\n", hex.EncodeToString(sum[:]), i.name)
	}
	if last := items[len(items)-1]; !has && last.size == 0 {
		if err := w.WriteHeader(&tar.Header{Name: "checksums", Typeflag: tar.TypeReg, Size: int64(sums.Len()), Mode: 0o600}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, sums.String()); err != nil {
			t.Fatal(err)
		}
	}
	_ = w.Close() // of one whose sizes lie
	if err := zip.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestUnpack_Hostile(t *testing.T) {
	b, err := json.Marshal(manifest)
	if err != nil {
		t.Fatal(err)
	}
	first := item{name: "manifest.json", content: string(b)}
	sums := func(lines ...string) item { return item{name: "checksums", content: strings.Join(lines, "\n") + "\n"} }
	own := sha256.Sum256(b)
	good := hex.EncodeToString(own[:]) + "  manifest.json"
	many := []item{first}
	for i := range 50 {
		many = append(many, item{name: fmt.Sprintf("agent/%d", i)})
	}
	for _, c := range []struct {
		name, why string
		file      []byte
	}{
		{"no archive", "not a session's file", []byte("hello, this is text")},
		{"nothing", "", nil},
		{"an archive of something else", "its first entry must be manifest.json", pack(t, item{name: "README"})},
		{"the manifest comes later", "its first entry must be manifest.json", pack(t, item{name: "agent/x"}, first)},
		{"two manifests", "nothing else be called so", pack(t, first, first)},
		{"another version", "it has version 2", pack(t, item{name: "manifest.json", content: `{"version":2,"sessionId":5}`})},
		{"no manifest in it", "its manifest cannot be read", pack(t, item{name: "manifest.json", content: `[]`})},
		{"a manifest of nothing", "does not name a session", pack(t, item{name: "manifest.json", content: `{"version":1}`})},
		{"a path that leads out", "not a plain relative path", pack(t, first, item{name: "agent/../../x"})},
		{"an absolute path", "not a plain relative path", pack(t, first, item{name: "/etc/x"})},
		{"a path of another system", "not a plain relative path", pack(t, first, item{name: `agent/..\x`})},
		{"a place that there is not", "there is no place for", pack(t, first, item{name: "bin/x"})},
		{"a symbolic link", "is a link or a special file", pack(t, first, item{name: "agent/l", kind: tar.TypeSymlink, link: "/etc"}, item{name: "agent/l/x"})},
		{"a hard link", "is a link or a special file", pack(t, first, item{name: "agent/l", kind: tar.TypeLink, link: "manifest.json"})},
		{"a device", "is a link or a special file", pack(t, first, item{name: "agent/d", kind: tar.TypeChar})},
		{"a folder", "is a link or a special file", pack(t, first, item{name: "agent/d", kind: tar.TypeDir})},
		{"a name twice", "would be one file", pack(t, first, item{name: "agent/x"}, item{name: "agent/x"})},
		{"names that differ in case", "would be one file", pack(t, first, item{name: "agent/x"}, item{name: "agent/X"})},
		{"a file that is a folder", "cannot stand beside", pack(t, first, item{name: "agent/x"}, item{name: "agent/x/y"})},
		{"too many entries", "more than 40 entries", pack(t, many...)},
		{"a huge entry", "are the most", pack(t, first, item{name: "agent/x", size: 1 << 40})},
		{"a huge record", "are the most", pack(t, first, item{name: "session/record.json", size: 17 << 20})},
		{"a bomb", "made to fill disks", pack(t, first, item{name: "agent/x", content: strings.Repeat("\x00", 90<<20)})},
		{"no checksums", "a part of it is missing", pack(t, item{name: "manifest.json", content: string(b), size: int64(len(b))})},
		{"a wrong checksum", "checksum of agent/x is wrong", pack(t, first, item{name: "agent/x"}, sums(good, strings.Repeat("0", 64)+"  agent/x"))},
		{"an entry without one", "checksum of agent/x is wrong", pack(t, first, item{name: "agent/x"}, sums(good))},
		{"a checksum without an entry", "agent/y is missing", pack(t, first, sums(good, strings.Repeat("0", 64)+"  agent/y"))},
		{"checksums that are none", "checksums cannot be read", pack(t, first, sums("x"))},
		{"something behind the checksums", "behind the checksums", pack(t, first, sums(good), item{name: "agent/x"})},
		{"something behind its end", "behind its end", append(pack(t, first), pack(t, first)...)},
	} {
		t.Run(c.name, func(t *testing.T) {
			parent := t.TempDir()
			dir := filepath.Join(parent, "in")
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			limits := parcel.Usual
			limits.Entries = 40
			if _, err := parcel.Unpack(bytes.NewReader(c.file), dir, limits, nil); !refusedFor(err, c.why) {
				t.Errorf("%v, want %q", err, c.why)
			}
			if left, _ := os.ReadDir(parent); len(left) != 1 {
				t.Errorf("something was written outside: %v", left)
			}
		})
	}
}

// Whatever is read, nothing is written outside of the folder, and what is taken is whole.
func FuzzUnpack(f *testing.F) {
	b, _ := json.Marshal(manifest)
	first := item{name: "manifest.json", content: string(b)}
	for _, items := range [][]item{
		{first},
		{first, {name: "agent/x", content: "y"}},
		{first, {name: "agent/l", kind: tar.TypeSymlink, link: ".."}},
		{{name: "../x", content: "y"}},
	} {
		unzip, err := zstd.NewReader(nil)
		if err != nil {
			f.Fatal(err)
		}
		plain, err := unzip.DecodeAll(pack(f, items...), nil)
		unzip.Close()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(plain)
	}
	f.Fuzz(func(t *testing.T, archive []byte) {
		var file bytes.Buffer
		zip, err := zstd.NewWriter(&file, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = zip.Write(archive)
		_ = zip.Close()
		parent := t.TempDir()
		dir := filepath.Join(parent, "in")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		m, err := parcel.Unpack(&file, dir, parcel.Limits{Total: 1 << 20, Entries: 100, Ratio: 100}, nil)
		if err == nil && (m.SessionID == "" || m.Version != runtime.ManifestVersion) {
			t.Errorf("taken: %+v", m)
		}
		if left, _ := os.ReadDir(parent); len(left) != 1 {
			t.Errorf("something was written outside: %v", left)
		}
	})
}
