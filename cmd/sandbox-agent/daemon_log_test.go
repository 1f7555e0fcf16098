package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A daemon may run for months, and nobody else looks after its log.
func TestDaemonLog(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "daemon", "log")
	if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	open := func(path string) *os.File {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		return f
	}
	out := open(path)
	if ownLog(new(bytes.Buffer), dir) != nil || ownLog(open(filepath.Join(dir, "other")), dir) != nil || ownLog(out, t.TempDir()) != nil {
		t.Error("a file of somebody else is taken for the daemon's log")
	}
	log := ownLog(out, dir)
	if log == nil {
		t.Fatal("the daemon's log is not known as such")
	}
	reader, err := readLog(open(path))
	if err != nil {
		t.Fatal(err)
	}
	read := func() string {
		b, err := io.ReadAll(reader)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	const lines, each = 4500, 16 << 10
	cuts, before := 0, int64(0)
	for i := range lines {
		line := fmt.Sprintf("%d %s %[1]d\n", i, strings.Repeat("x", i*7919%each))
		if n, err := log.Write([]byte(line)); err != nil || n != len(line) {
			t.Fatal(n, err)
		}
		info, err := out.Stat()
		if err != nil {
			t.Fatal(err)
		}
		if info.Size() > daemonLogBound+each {
			t.Fatalf("the log has %d bytes", info.Size())
		}
		got := read()
		cut, missing := reader.askCut()
		if cut != (info.Size() < before) || missing {
			t.Fatal(cut, missing)
		}
		if cut { // who follows it goes on where it was
			cuts++
			got += read()
		}
		before = info.Size()
		if got != line {
			t.Fatalf("line %d reads %.60q", i, got)
		}
	}
	if cuts < 2 {
		t.Errorf("it was cut %d times", cuts)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	next := -1
	for line := range strings.Lines(string(b)) {
		var i int
		if _, err := fmt.Sscan(line, &i); err != nil || next >= 0 && i != next || len(line) != 2*len(fmt.Sprint(i))+3+i*7919%each {
			t.Fatalf("after line %d there is %.60q: %v", next-1, line, err)
		}
		next = i + 1
	}
	if next != lines {
		t.Errorf("its last line is %d", next-1)
	}
	// One that somebody removed keeps nobody from writing.
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	for range daemonLogBound / each {
		if _, err := log.Write(bytes.Repeat([]byte("y"), each)); err != nil {
			t.Fatal(err)
		}
	}
}

// Who reads slowly, as a pager does, is told that lines are missing also where the log is longer than what was read of it,
// and is given all that is kept, but not what it has read.
func TestDaemonLog_SlowReader(t *testing.T) {
	for _, quarters := range []int{0, 1, 2, 3, 4} {
		path := filepath.Join(t.TempDir(), "log")
		f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		const lines = 4000
		for i := range lines {
			fmt.Fprintf(f, "line %06d %s\n", i, strings.Repeat("x", 1000))
		}
		info, err := f.Stat()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			t.Fatal(err)
		}
		reader, err := readLog(f)
		if err != nil {
			t.Fatal(err)
		}
		all, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		each := info.Size() / lines
		if _, err := io.CopyN(io.Discard, reader, each*lines/4*int64(quarters)); err != nil {
			t.Fatal(err)
		}
		if err := cutLog(path, info.Size()/2); err != nil {
			t.Fatal(err)
		}
		var got bytes.Buffer
		for range 2 {
			if _, err := io.Copy(&got, reader); err != nil {
				t.Fatal(err)
			}
		}
		if _, missing := reader.askCut(); missing != (quarters == 1 || quarters == 2) { // who has read nothing has what there is
			t.Errorf("behind %d quarters: told %v", quarters, missing)
		}
		if want := all[max(len(all)/4*quarters, len(all)/2+int(each)):]; got.String() != string(want) {
			t.Errorf("behind %d quarters it goes on with %.40q, %d bytes, want %.40q, %d", quarters, got.String(), got.Len(), want, len(want))
		}
	}
}

// cutter cuts a log as soon as somebody prints of it.
type cutter struct {
	got  bytes.Buffer
	path string
	size int64
}

func (c *cutter) Write(b []byte) (int, error) {
	if c.size > 0 {
		if err := cutLog(c.path, c.size); err != nil {
			return 0, err
		}
		c.size = 0
	}
	return c.got.Write(b)
}

// Who prints it without following it is given its end, too, when it is cut meanwhile.
func TestDaemonLog_CutWhilePrinted(t *testing.T) {
	dir := t.TempDir()
	log := new(bytes.Buffer)
	for i := range 4000 {
		fmt.Fprintf(log, "line %06d %s\n", i, strings.Repeat("x", 1000))
	}
	out, errOut := &cutter{path: filepath.Join(dir, "daemon", "log"), size: int64(log.Len() / 2)}, newScreen()
	write(t, out.path, log.String())
	if code := run(t.Context(), []string{"daemon", "logs", "--data-dir", dir, "-n", "0"}, stdio{in: bytes.NewReader(nil), out: out, err: errOut}); code != 0 {
		t.Fatalf("exit %d: %s", code, errOut.String())
	}
	if !strings.Contains(out.got.String(), "line 003999 ") || !strings.Contains(errOut.String(), "lines may be missing") {
		t.Errorf("it ends with %q; %s", out.got.String()[out.got.Len()-1020:], errOut.String())
	}
}
