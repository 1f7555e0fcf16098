package journal

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
)

// A batch holds at least one entry, and ends with the one that fills it.
func TestCursor_BatchesAreBounded(t *testing.T) {
	l, _ := open(t, 0)
	fill(t, l, 1, 3000)
	one := len(`{"seq":1000,"time":1795288465992,"kind":"u","to":0,"message":{"n":1000}`)
	for _, from := range []string{"memory", "the file"} {
		for _, limit := range []int{1, one, one + 1, 3 * one, 3*one + 1} {
			c := l.Cursor(1000)
			got, err := c.Next(nil, limit)
			if want := (limit + one - 1) / one; err != nil || len(got) != want {
				t.Errorf("from %s: %d entries of %d bytes in %d, want %d, %v", from, len(got), one, limit, want, err)
			}
			if c.After() != 1000+uint64(len(got)) {
				t.Errorf("the cursor is behind %d", c.After())
			}
			before := []Entry{{Seq: 7}}
			if got, err := c.Next(before, 1); err != nil || len(got) != 2 || got[0].Seq != 7 || got[1].Seq != c.After() {
				t.Errorf("from %s: %v, %v", from, got, err)
			}
		}
		l.Release(0)
	}
}

// A cursor goes from the file to memory and back, and to where it is sent.
func TestCursor_BetweenFileAndMemory(t *testing.T) {
	l, _ := open(t, 2<<10)
	fill(t, l, 1, 1000)
	c := l.Cursor(0)
	next := func(want uint64) {
		t.Helper()
		got, err := c.Next(nil, 1)
		if err != nil || len(got) != 1 || got[0].Seq != want || string(got[0].Frame) != string(frame(int(want))) {
			t.Fatalf("%v, %v, want %d", got, err, want)
		}
	}
	next(1)
	next(2)
	c.Seek(998)
	next(999)
	next(1000)
	if got, err := c.Next(nil, 1); err != nil || len(got) != 0 {
		t.Errorf("%v, %v", got, err)
	}
	c.Seek(500)
	next(501)
	l.Release(0) // the file is closed meanwhile
	next(502)
	c.Seek(998)
	next(999)
	fill(t, l, 1001, 1001)
	next(1000)
	next(1001)
	c.Seek(2000) // there is nothing yet
	if got, err := c.Next(nil, 1); err != nil || len(got) != 0 {
		t.Errorf("%v, %v", got, err)
	}
}

// A line that is longer than what is read at a time is read as a whole.
func TestCursor_LongLines(t *testing.T) {
	l, path := open(t, 0)
	sizes := []int{10, window - 200, window, 3 * window, 10, 5 * window, 1}
	check := func(l *Log) {
		t.Helper()
		got := readAll(t, l, 0)
		for i, e := range got {
			if len(e.Frame) != sizes[i]+8 {
				t.Errorf("entry %d has %d bytes, want %d", i+1, len(e.Frame), sizes[i]+8)
			}
		}
		if len(got) != len(sizes) {
			t.Errorf("%d entries", len(got))
		}
		for i := range sizes {
			if one, err := l.Cursor(uint64(i)).Next(nil, 1); err != nil || len(one) != 1 || one[0].Seq != uint64(i+1) {
				t.Errorf("entry %d: %d, %v", i+1, len(one), err)
			}
		}
	}
	for _, n := range sizes {
		if _, err := l.AppendFlush(Update, Everyone, []byte(`{"x":"`+strings.Repeat("x", n)+`"}`)); err != nil {
			t.Fatal(err)
		}
	}
	check(l)
	l.Release(0)
	check(l)
	_ = l.Close()
	again, err := Open(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	check(again)
}

// Who follows waits for what comes, and ends with its context.
func TestFollow_WaitsAndEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := open(t, 0)
		fill(t, l, 1, 2)
		ctx, cancel := context.WithCancel(t.Context())
		var got []uint64
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for e, err := range l.Follow(ctx, 0) {
				if err != nil {
					t.Error(err)
				}
				got = append(got, e.Seq)
			}
		}()
		synctest.Wait() // it waits, and does nothing
		fill(t, l, 3, 3)
		synctest.Wait()
		cancel()
		<-ended
		if diff := cmp.Diff([]uint64{1, 2, 3}, got); diff != "" {
			t.Errorf("entries differ (-want +got):\n%s", diff)
		}
	})
}

// Entries are valid until the next call, whatever the log does meanwhile: their
// memory is not used for others.
func TestCursor_EntriesStayValidUntilTheNextCall(t *testing.T) {
	text := func(i int, of byte) []byte {
		return fmt.Appendf(nil, `{"n":%d,"x":"%s"}`, i, bytes.Repeat([]byte{of}, 5000))
	}
	const n = 100
	l, _ := open(t, 2<<20)
	other, _ := open(t, 256<<10)
	for i := 1; i <= n; i++ {
		l.Append(Update, Everyone, text(i, 'a'))
	}
	_ = l.Flush()
	one, two := l.Cursor(0), l.Cursor(0)
	read := func(c *Cursor, want int) []Entry {
		t.Helper()
		got, err := c.Next(nil, math.MaxInt)
		if err != nil || len(got) != want {
			t.Fatalf("%d entries, %v", len(got), err)
		}
		return got
	}
	burst := func() { // more than the other log and all spare memory hold
		for i := range 300 {
			other.Append(Update, Everyone, text(i, 'b'))
			if i%10 == 0 {
				_ = other.Flush()
			}
		}
		other.Release(0)
	}
	check := func(got []Entry) {
		t.Helper()
		for i, e := range got {
			if e.Seq != uint64(i+1) || !bytes.Equal(e.Frame, text(i+1, 'a')) {
				t.Fatalf("entry %d has changed: %d %.40s", i+1, e.Seq, e.Frame)
			}
		}
	}
	var logs []*Log // whose cursors have read once, and hold what their logs let go
	var held [][]Entry
	for range 3 {
		l, _ := open(t, 2<<20)
		for i := 1; i <= n; i++ {
			l.Append(Update, Everyone, text(i, 'a'))
		}
		_ = l.Flush()
		held = append(held, read(l.Cursor(0), n))
		logs = append(logs, l)
	}
	for _, l := range logs {
		l.Release(0)
	}
	burst()
	for _, entries := range held {
		check(entries)
	}
	second := read(two, n)
	read(one, n)
	read(one, 0) // lets go of what the log still holds
	burst()
	check(second)
	one.Seek(0)
	first := read(one, n)
	l.Release(0) // now the log does not hold it any more
	burst()
	check(first)
	check(second)
	read(one, 0)
	burst()
	check(second) // the other cursor does
	read(two, 0)
	burst()
	check(readAll(t, l, 0))
}
