package journal

import (
	"bytes"
	"errors"
	"fmt"
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
		path := filepath.Join(t.TempDir(), "log.journal")
		l, err := Open(path, Options{Memory: memory})
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

func TestLog_InMemoryOnlySaysWhatIsGone(t *testing.T) {
	l, _ := Open("", Options{Memory: 4 << 10})
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

func TestFollow_SeesEveryEntryOnceWhileAppending(t *testing.T) {
	l, _ := Open(filepath.Join(t.TempDir(), "log.journal"), Options{Memory: 8 << 10})
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

func BenchmarkAppendFollow(b *testing.B) {
	l, _ := Open(filepath.Join(b.TempDir(), "log.journal"), Options{})
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
