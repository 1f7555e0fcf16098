package journal

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

func frame(i int) []byte { return fmt.Appendf(nil, `{"n":%d}`, i) }

// readAll reads everything after seq.
func readAll(t *testing.T, l *Log, after uint64) []Entry {
	t.Helper()
	c := l.Cursor(after)
	var out []Entry
	for {
		batch, err := c.Next(nil, 1<<10)
		if err != nil {
			t.Fatal(err)
		}
		if len(batch) == 0 {
			return out
		}
		for _, e := range batch {
			e.Frame = bytes.Clone(e.Frame)
			out = append(out, e)
		}
	}
}

func checkRun(t *testing.T, got []Entry, first, last int) {
	t.Helper()
	if len(got) != last-first+1 {
		t.Fatalf("got %d entries, want %d..%d", len(got), first, last)
	}
	for i, e := range got {
		if n := first + i; e.Seq != uint64(n) || string(e.Frame) != string(frame(n)) {
			t.Fatalf("entry %d is %d %s", n, e.Seq, e.Frame)
		}
	}
}

func TestLog_ReadsFromMemoryAndFile(t *testing.T) {
	for _, memory := range []int{2 << 10, 0} {
		path := filepath.Join(t.TempDir(), "log.jsonl")
		l, err := Open(path, memory)
		if err != nil {
			t.Fatal(err)
		}
		for i := 1; i <= 5000; i++ {
			if seq := l.Append(Update, 0, frame(i)); seq != uint64(i) {
				t.Fatalf("seq %d, want %d", seq, i)
			}
			if i%7 == 0 {
				if err := l.Flush(); err != nil {
					t.Fatal(err)
				}
			}
		}
		if got := l.Last(); got != 4998 {
			t.Fatalf("unflushed entries are visible: last %d", got)
		}
		if err := l.Flush(); err != nil {
			t.Fatal(err)
		}
		for _, after := range []int{0, 1, 2499, 4999} {
			checkRun(t, readAll(t, l, uint64(after)), after+1, 5000)
		}
		l.Release(0)
		checkRun(t, readAll(t, l, 10), 11, 5000)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestOpen_DropsATornLineAndContinues(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log.jsonl")
	l, _ := Open(path, 0)
	for i := 1; i <= 100; i++ {
		l.Append(Update, 0, frame(i))
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lastLine := bytes.LastIndexByte(whole[:len(whole)-1], '\n') + 1
	for cut := lastLine; cut <= len(whole); cut++ {
		if err := os.WriteFile(path, whole[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		want := 99
		if cut == len(whole) {
			want = 100
		}
		l, err := Open(path, 0)
		if err != nil {
			t.Fatal(err)
		}
		if l.Last() != uint64(want) {
			t.Fatalf("cut at %d: last %d, want %d", cut, l.Last(), want)
		}
		if seq, err := l.AppendFlush(Update, 0, frame(want+1)); err != nil || seq != uint64(want+1) {
			t.Fatalf("seq %d: %v", seq, err)
		}
		checkRun(t, readAll(t, l, 0), 1, want+1)
		_ = l.Close()
	}
}

func TestLog_InMemoryOnlySaysWhatIsGone(t *testing.T) {
	l, _ := Open("", 4<<10)
	for i := 1; i <= 1000; i++ {
		_, _ = l.AppendFlush(Update, 0, frame(i))
	}
	_, err := l.Cursor(0).Next(nil, 1)
	var gone *TruncatedError
	if !errors.As(err, &gone) || !errors.Is(err, ErrTruncated) {
		t.Fatalf("err %v", err)
	}
	checkRun(t, readAll(t, l, gone.Oldest-1), int(gone.Oldest), 1000)
}

func TestLog_DiskFailureKeepsEntriesAndRecovers(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "missing", "too")
	path := filepath.Join(dir, "log.jsonl")
	l, err := Open(path, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.AppendFlush(Update, 0, frame(1)); err == nil {
		t.Fatal("no error though the directory is missing")
	}
	checkRun(t, readAll(t, l, 0), 1, 1)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := l.AppendFlush(Update, 0, frame(2)); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := Open(path, 0)
	if err != nil {
		t.Fatal(err)
	}
	checkRun(t, readAll(t, again, 0), 1, 2)
}

func TestFollow_SeesEveryEntryOnceWhileAppending(t *testing.T) {
	l, _ := Open(filepath.Join(t.TempDir(), "log.jsonl"), 8<<10)
	const n = 20000
	done := make(chan error, 3)
	for range 3 {
		go func() {
			want := uint64(1)
			for e, err := range l.Follow(t.Context(), 0) {
				if err != nil || e.Seq != want {
					done <- fmt.Errorf("entry %d: got %d, %w", want, e.Seq, err)
					return
				}
				if want++; want > n {
					done <- nil
					return
				}
			}
		}()
	}
	for i := 1; i <= n; i++ {
		l.Append(Update, 0, frame(i))
		if i%13 == 0 || i == n {
			_ = l.Flush()
		}
	}
	for range 3 {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
}

func TestRecipient_Includes(t *testing.T) {
	for _, c := range []struct {
		to, client Recipient
		want       bool
	}{{0, 5, true}, {5, 5, true}, {5, 6, false}, {Except(5), 5, false}, {Except(5), 6, true}} {
		if got := c.to.Includes(c.client); got != c.want {
			t.Errorf("%d includes %d: %v", c.to, c.client, got)
		}
	}
}

func FuzzOpen(f *testing.F) {
	good := append(appendHead(nil, 1, 2, Update, 0), "{}}\n"...)
	f.Add(good)
	f.Add(append(good, `{"seq":2,"time":3,"kind":"u","to":-4,"message":{"a":`...))
	f.Add([]byte("{\"seq\":1\n\n\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		path := filepath.Join(t.TempDir(), "log.jsonl")
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		l, err := Open(path, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		last := l.Last()
		if _, err := l.AppendFlush(Update, 0, frame(1)); err != nil {
			t.Fatal(err)
		}
		got, err := l.Cursor(last).Next(nil, 1)
		if err != nil || len(got) != 1 || got[0].Seq != last+1 {
			t.Fatalf("after recovery: %v %v", got, err)
		}
	})
}

func BenchmarkAppendFollow(b *testing.B) {
	l, _ := Open(filepath.Join(b.TempDir(), "log.jsonl"), 0)
	defer l.Close()
	line := bytes.Repeat([]byte("x"), 190)
	c := l.Cursor(0)
	var batch []Entry
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		l.Append(Update, 0, line)
		if i++; i%256 == 0 {
			_ = l.Flush()
			for {
				batch, _ = c.Next(batch[:0], 1<<20)
				if len(batch) == 0 {
					break
				}
			}
		}
	}
}
