package traffic_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"sandboxagent.dev/sandbox-agent/internal/secret"
	"sandboxagent.dev/sandbox-agent/runtime/traffic"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// line is one line of a recording.
type line struct {
	Time      string
	From      string
	Line      string
	CutBytes  int
	GoneBytes int
	LeftOut   *struct{ Lines, Bytes int }
}

func clean() func(string) string { return secret.Cleaner(secret.Forms(), "a-word-of-mine") }

func unchanged(text string) string { return text }

// read returns a recording, each of whose lines is one of JSON with a time.
func read(t *testing.T, folder string) (out []line, size int) {
	t.Helper()
	r, err := traffic.Read(folder)
	if err != nil {
		t.Fatal(err)
	}
	if r == nil {
		return nil, 0
	}
	defer r.Close()
	in := bufio.NewScanner(r)
	in.Buffer(nil, 64<<20)
	for in.Scan() {
		var l line
		if err := json.Unmarshal(in.Bytes(), &l); err != nil || l.Time == "" {
			t.Fatalf("%.200s: %v", in.Bytes(), err)
		}
		out, size = append(out, l), size+len(in.Bytes())+1
	}
	if err := in.Err(); err != nil {
		t.Fatal(err)
	}
	return out, size
}

func TestRecording_BothDirectionsWithoutSecrets(t *testing.T) {
	folder := t.TempDir()
	if lines, _ := read(t, folder); lines != nil {
		t.Fatalf("nothing was recorded: %v", lines)
	}
	r := traffic.New(clean())
	r.ToAgent([]byte(`{"key":"sk-0123456789abcdefghij"}`)) // before anybody knows where it goes
	r.Into(folder, func(err error) { t.Error(err) })
	r.FromAgent([]byte("it is a-word-of-mine \xff"))
	if err := r.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	lines, _ := read(t, folder)
	if len(lines) != 2 || lines[0].From != "gateway" || lines[0].Line != `{"key":"[removed]"}` ||
		lines[1].From != "agent" || lines[1].Line != "it is [removed] \uFFFD" {
		t.Errorf("%+v", lines)
	}
	r.Close()
	r.FromAgent([]byte("too late"))
	if lines, _ := read(t, folder); len(lines) != 2 {
		t.Errorf("%+v", lines)
	}
}

// The oldest lines go, and whoever reads meanwhile misses none in between.
func TestRecording_TheOldestGoesAndIsCounted(t *testing.T) {
	folder := t.TempDir()
	r := traffic.New(unchanged)
	defer r.Close()
	r.Into(folder, func(err error) { t.Error(err) })
	const count = 300
	long := strings.Repeat("x", 64<<10)
	look := make(chan struct{}, 1) // closed when all is written
	go func() {
		defer close(look)
		for i := range count {
			r.FromAgent(append(strconv.AppendInt(nil, int64(i), 10), " "+long...))
			_ = r.Flush(t.Context())
			if i%100 == 0 {
				select {
				case look <- struct{}{}:
				default:
				}
			}
		}
	}()
	check := func() (gone, first, size int) {
		lines, size := read(t, folder)
		if len(lines) > 0 && lines[0].From == "" {
			gone, lines = lines[0].GoneBytes, lines[1:]
		}
		for i, l := range lines {
			word, _, _ := strings.Cut(l.Line, " ")
			n, err := strconv.Atoi(word)
			if i == 0 {
				first = n
			}
			if err != nil || n != first+i {
				t.Fatalf("line %d behind %d begins with %q", i, first, word)
			}
		}
		return gone, first, size
	}
	for range look {
		check()
	}
	gone, first, size := check()
	if size > 16<<20 || size < 8<<20 {
		t.Errorf("the recording has %d bytes", size)
	}
	if least := first * len(long); first == 0 || gone < least || gone > least+first*200 {
		t.Errorf("%d lines are gone, and it says %d bytes", first, gone)
	}
}

func TestRecording_ALongLineIsCutAndWhatComesTooFastIsLeftOut(t *testing.T) {
	folder := t.TempDir()
	r := traffic.New(clean())
	r.FromAgent([]byte(strings.Repeat("é", 1<<20))) // 2 MiB
	fill := bytes.Repeat([]byte("x"), 1<<20)
	for range 9 { // nothing is written yet
		r.ToAgent(fill)
	}
	r.Into(folder, func(err error) { t.Error(err) })
	r.Close()
	lines, _ := read(t, folder)
	if len(lines) != 8 {
		t.Fatalf("%d lines", len(lines))
	}
	if l := lines[0]; l.CutBytes != 1<<20 || l.Line != strings.Repeat("é", 1<<19) {
		t.Errorf("%d bytes, %d were cut", len(l.Line), l.CutBytes)
	}
	if lost := lines[7].LeftOut; lost == nil || lost.Lines != 3 || lost.Bytes != 3<<20 {
		t.Errorf("%+v", lines[7])
	}
}

// A kill can leave a part of a line, and a file that is missing.
func TestRecording_GoesOnBehindAKill(t *testing.T) {
	folder := t.TempDir()
	record := func(text string) {
		r := traffic.New(unchanged)
		r.Into(folder, func(err error) { t.Error(err) })
		r.FromAgent([]byte(text))
		r.Close()
	}
	record("one")
	f, err := os.OpenFile(filepath.Join(folder, "raw.ndjson"), os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteString(`{"time":"now","li`)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	if lines, _ := read(t, folder); len(lines) != 1 {
		t.Errorf("%+v", lines)
	}
	record("two")
	if err := os.Rename(filepath.Join(folder, "raw.ndjson"), filepath.Join(folder, "raw.old.ndjson")); err != nil {
		t.Fatal(err)
	}
	if lines, _ := read(t, folder); len(lines) != 2 {
		t.Errorf("%+v", lines)
	}
	record("three")
	lines, _ := read(t, folder)
	if len(lines) != 3 || lines[0].Line+lines[1].Line+lines[2].Line != "onetwothree" {
		t.Errorf("%+v", lines)
	}
}

func TestRecording_AFullDiskEndsIt(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only where there is /dev/full")
	}
	folder := t.TempDir()
	if err := os.Symlink("/dev/full", filepath.Join(folder, "raw.ndjson")); err != nil {
		t.Fatal(err)
	}
	r := traffic.New(unchanged)
	ended := make(chan error, 1)
	r.Into(folder, func(err error) { ended <- err })
	r.FromAgent([]byte("one"))
	if err := <-ended; !errors.Is(err, syscall.ENOSPC) {
		t.Error(err)
	}
	r.FromAgent([]byte("two"))
	if err := r.Flush(t.Context()); err != nil {
		t.Error(err)
	}
	r.Close()
}

// A recording whose folder was put aside, with a copy in its place, ends when its file is full. The copy stays as it is.
func TestRecording_OfAFolderThatWasReplaced(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "s")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	r := traffic.New(unchanged)
	ended := make(chan error, 1)
	r.Into(folder, func(err error) { ended <- err })
	r.FromAgent([]byte("one"))
	if err := r.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(folder, folder+".aside"); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(folder, os.DirFS(folder+".aside")); err != nil {
		t.Fatal(err)
	}
	for range 200 { // until the file is full
		select {
		case err := <-ended:
			if !strings.Contains(err.Error(), "was replaced") {
				t.Error(err)
			}
			r.Close()
			if names, err := filepath.Glob(filepath.Join(folder, "*")); err != nil || len(names) != 1 {
				t.Errorf("the copy has %q, %v", names, err)
			}
			if lines, _ := read(t, folder); len(lines) != 1 || lines[0].Line != "one" {
				t.Errorf("the copy has %d lines", len(lines))
			}
			return
		default:
			r.FromAgent(bytes.Repeat([]byte("x"), 100<<10))
			if err := r.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Error("the recording goes on")
	r.Close()
}

// Whoever deletes a session takes its folder away, which is no reason to complain.
func TestRecording_WithoutItsFolder(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "gone")
	r := traffic.New(unchanged)
	r.FromAgent([]byte("one"))
	r.Into(folder, func(err error) { t.Error(err) })
	r.Close()
	if _, err := os.Stat(folder); !os.IsNotExist(err) {
		t.Error(err)
	}
}
