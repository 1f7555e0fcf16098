package journal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// linesOf returns all that a log has, as lines.
func linesOf(t *testing.T, l *Log) string {
	t.Helper()
	var b []byte
	for c := l.Cursor(max(1, l.Oldest()) - 1); ; {
		batch, err := c.Next(nil, 1000)
		if err != nil {
			t.Fatal(err)
		}
		if len(batch) == 0 {
			return string(b)
		}
		for _, e := range batch {
			b = e.AppendLine(b)
		}
	}
}

func TestRestore(t *testing.T) {
	frame := func(n int) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","method":"m","params":{"n":%d,"s":%q}}`, n, strings.Repeat("x", n%300))
	}
	line := func(seq uint64, n int) string {
		return fmt.Sprintf("{\"seq\":%d,\"time\":%d,\"kind\":\"u\",\"to\":-7,\"message\":%s}\n", seq, 1_700_000_000_000+n, frame(n))
	}
	build := func(seqs ...uint64) string {
		var b strings.Builder
		for i, s := range seqs {
			b.WriteString(line(s, i))
		}
		return b.String()
	}
	many := make([]uint64, 3000)
	for i := range many {
		many[i] = uint64(i + 1)
		if i > 2000 {
			many[i] += 500
		}
	}
	for name, in := range map[string]string{
		"none": "", "from the first": build(1, 2, 3), "the first are gone": build(7, 8), "numbers are skipped": build(1, 2, 9, 10), "both": build(5, 9, 1_000_000), "many": build(many...),
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "log")
			lines := NewLines(strings.NewReader(in))
			if err := Restore(path, []byte(`{"id":"a"}`), 0, lines.Next); err != nil {
				t.Fatal(err)
			}
			if rep, err := Verify(path, 0); err != nil || len(rep.Damage) > 0 || len(rep.Lost) > 0 {
				t.Fatalf("%+v, %v", rep, err)
			}
			if b, err := About(path); err != nil || string(b) != `{"id":"a"}` {
				t.Errorf("about: %s, %v", b, err)
			}
			l, err := Open(path, Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = l.Close() }()
			if got := linesOf(t, l); got != in {
				t.Errorf("%d bytes of lines, want %d", len(got), len(in))
			}
			last := lines.last
			if seq, err := l.AppendFlush(Update, Everyone, []byte(frame(1))); err != nil || seq != last+1 {
				t.Errorf("the next entry is %d, %v; want %d", seq, err, last+1)
			}
			if strings.HasPrefix(name, "the first") {
				var gone *TruncatedError
				if _, err := l.Cursor(0).Next(nil, 1); !errors.As(err, &gone) || gone.Oldest != 7 {
					t.Errorf("what is gone: %v", err)
				}
			}
		})
	}
}

func TestRestore_Refused(t *testing.T) {
	const good = `{"seq":2,"time":1,"kind":"u","to":0,"message":{"a":1}}` + "\n"
	for in, want := range map[string]string{
		good + good:                                       "entry 2 stands behind entry 2",
		good + strings.TrimSuffix(good, "\n"):             "has no end",
		strings.Replace(good, `"u"`, `"z"`, 1):            "is no entry",
		strings.Replace(good, `:1}`, `:}}`, 1):            "is no entry",
		strings.Replace(good, `2`, `9007199254740992`, 1): "stands behind entry 0",
		"\n":                       "is no entry",
		`{"seq":1}` + "\n":         "is no entry",
		strings.Repeat("x", 1<<20): "has no end",
	} {
		path := filepath.Join(t.TempDir(), "log")
		err := Restore(path, nil, 0, NewLines(strings.NewReader(in)).Next)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: %v, want %s", in, err, want)
		}
		if found, _ := filepath.Glob(path + "*"); len(found) > 0 {
			t.Errorf("%.60q left %v", in, found)
		}
	}
}

// FuzzLines: what is read is written again as it was.
func FuzzLines(f *testing.F) {
	f.Add([]byte(`{"seq":2,"time":1,"kind":"u","to":0,"message":{"a":1}}` + "\n"))
	f.Add([]byte(`{"seq":9,"time":-1,"kind":"p","to":-5,"message":{"prompt":1,"block":0}}` + "\n\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		lines := NewLines(bytes.NewReader(b))
		var last uint64
		for {
			e, err := lines.Next()
			if err != nil {
				if err == io.EOF && len(b) > 0 && b[len(b)-1] != '\n' {
					t.Fatal("half a line was taken")
				}
				return
			}
			if e.Seq <= last {
				t.Fatalf("%d behind %d", e.Seq, last)
			}
			last = e.Seq
			again, err := NewLines(bytes.NewReader(e.AppendLine(nil))).Next()
			if err != nil || again.Seq != e.Seq || again.Kind != e.Kind || again.To != e.To || !bytes.Equal(again.Frame, e.Frame) {
				t.Fatalf("%+v became %+v, %v", e, again, err)
			}
		}
	})
}

// A log is killed, and its file lost to some point, or wholly. Who keeps elsewhere how far
// it may have gone has no number given twice, and is told of all that was lost.
func TestOpen_KnowsHowFarNumbersWent(t *testing.T) {
	const path = "log"
	disk := newFaultDisk(nil) // that does not fail
	var kept uint64           // what somebody keeps, as of a moment that numbers were reserved
	var l *Log
	reserved := false
	open := func(o Options) *Log {
		t.Helper()
		o.Sync, o.disk, o.ReservedMore = SyncNever, disk, func() { reserved = true }
		l, err := Open(path, o)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	var reached uint64
	l = open(Options{})
	for i := range 3000 {
		if i == 200 { // closed in good order, and opened again
			reached = l.Last()
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			l = open(Options{Reached: reached})
		}
		if _, err := l.AppendFlush(Update, Everyone, frame(i)); err != nil {
			t.Fatal(err)
		}
		if reserved {
			reserved, kept = false, l.Reserved()
		}
	}
	given := l.Last()
	whole := slices.Clone(disk.files[path].cache)
	for at := 0; at <= len(whole); at += 1 + len(whole)/500 {
		disk.files[path] = &faultFile{cache: slices.Clone(whole[:at])}
		if at == 0 {
			delete(disk.files, path)
		}
		again := open(Options{Reached: reached, Bound: kept})
		seq, err := again.AppendFlush(Update, Everyone, []byte(`{}`))
		if err != nil || seq <= given {
			t.Fatalf("%d of %d bytes are left: %d is given behind %d, %v", at, len(whole), seq, given, err)
		}
		if again.Last() < seq || len(readAllKinds(t, again)) == 0 {
			t.Fatalf("%d bytes: the last is %d", at, again.Last())
		}
		_ = again.Close()
	}
	// What was closed in good order has no gap.
	disk.files[path] = &faultFile{cache: slices.Clone(whole)}
	again := open(Options{Reached: reached, Bound: kept})
	last, err := again.AppendFlush(Update, Everyone, []byte(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	kept = again.Reserved()
	if err := again.Close(); err != nil || again.Reserved() != 0 {
		t.Fatalf("%v, %d are reserved", err, again.Reserved())
	}
	if seq, err := open(Options{Reached: last, Bound: kept}).AppendFlush(Update, Everyone, []byte(`{}`)); err != nil || seq != last+1 {
		t.Errorf("behind %d comes %d, %v", last, seq, err)
	}
}

// Numbers that were never given, as behind a crash before the first entry, were not let go.
func TestRestore_BeginsLate(t *testing.T) {
	in := `{"seq":1025,"time":1700000000000,"kind":"u","to":0,"message":{}}` + "\n"
	for oldest, want := range map[uint64]uint64{0: 1025, 1: 1, 7: 7, 1025: 1025, 2000: 1025} {
		path := filepath.Join(t.TempDir(), "log")
		if err := Restore(path, nil, oldest, NewLines(strings.NewReader(in)).Next); err != nil {
			t.Fatal(err)
		}
		if rep, err := Verify(path, 0); err != nil || len(rep.Damage) > 0 || len(rep.Lost) > 0 {
			t.Errorf("%d: %+v, %v", oldest, rep, err)
		}
		l, err := Open(path, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if got := l.Oldest(); got != want {
			t.Errorf("%d: the oldest is %d, want %d", oldest, got, want)
		}
		if got := linesOf(t, l); got != in {
			t.Errorf("%d: %s", oldest, got)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Entries that the other log has lost are lost here, too, and which those are is told as it was.
func TestRestore_WhatIsLost(t *testing.T) {
	type lost struct{ first, last uint64 }
	for name, tt := range map[string]struct {
		oldest uint64 // of the log that they come from
		in     []any  // entries, by their numbers, and what is lost
		want   string
	}{
		"at the beginning":           {1, []any{lost{1, 4}, 5}, "1: 1-4 5"},
		"all":                        {1, []any{lost{1, 4}}, "1: 1-4"},
		"in the middle":              {1, []any{1, 2, lost{3, 3}, 4, lost{5, 9}, 10}, "1: 1 2 3-3 4 5-9 10"},
		"at the end":                 {1, []any{1, lost{2, 1024}}, "1: 1 2-1024"},
		"behind what was let go of":  {5, []any{lost{5, 7}, 8}, "5: 5-7 8"},
		"behind skipped numbers":     {1, []any{1, lost{5, 7}, 20}, "1: 1 5-7 20"},
		"it is said to begin before": {1, []any{1, 2, lost{1, 7}, 8}, "1: 1 2 3-7 8"},
		"the oldest is not known":    {0, []any{lost{5, 7}, 8}, "5: 5-7 8"},
	} {
		t.Run(name, func(t *testing.T) {
			next := func() (Entry, error) {
				if len(tt.in) == 0 {
					return Entry{}, io.EOF
				}
				one := tt.in[0]
				tt.in = tt.in[1:]
				at := time.UnixMilli(1_700_000_000_000)
				if l, ok := one.(lost); ok {
					return NewEntry(l.last, at, Notice, Everyone, []byte(`{"x":{}}`)).Damage(l.first), nil
				}
				return NewEntry(uint64(one.(int)), at, Update, Everyone, []byte(`{"x":{}}`)), nil
			}
			path := filepath.Join(t.TempDir(), "log")
			if err := Restore(path, nil, tt.oldest, next); err != nil {
				t.Fatal(err)
			}
			l, err := Open(path, Options{Damage: func(first, last uint64) []byte { return fmt.Appendf(nil, `{"lost":"%d-%d"}`, first, last) }})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = l.Close() }()
			batch, err := l.Cursor(l.Oldest()-1).Next(nil, 1<<20)
			got := fmt.Sprint(l.Oldest(), ":")
			for _, e := range batch {
				if text, ok := strings.CutPrefix(string(e.Frame), `{"lost":"`); ok && e.Kind == Damage {
					got += " " + strings.TrimSuffix(text, `"}`)
				} else {
					got += fmt.Sprint(" ", e.Seq)
				}
			}
			if got != tt.want || err != nil {
				t.Errorf("it has %s, %v; want %s", got, err, tt.want)
			}
			if rep, err := Verify(path, 0); err != nil || len(rep.Damage) > 0 {
				t.Errorf("%+v, %v", rep, err)
			}
		})
	}
}
