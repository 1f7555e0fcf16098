package journal

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// oldFile is a file of the first format with the entries first to last.
func oldFile(first, last int) []byte {
	var b []byte
	for i := first; i <= last; i++ {
		b = append(appendHead(b, uint64(i), 5, Update, 0), frame(i)...)
		b = append(b, lineEnd...)
	}
	return b
}

// A file of the first format is taken over: its entries are there, the log goes
// on in the new form, and the old file goes. One that cannot be used as a whole
// stays beside it, and what is lost is told.
func TestOpen_TakesOverTheFirstFormat(t *testing.T) {
	good := string(oldFile(1, 300))
	behind := string(oldFile(301, 400))
	line := func(s string) string { return good + s + "\n" + behind }
	for name, tt := range map[string]struct {
		file string
		want []string
		next uint64 // 0: it goes on at some later number
		kept bool
	}{
		"empty":             {"", nil, 1, false},
		"good":              {good, []string{"u 1-300"}, 301, false},
		"torn":              {good + `{"seq":301,"ti`, []string{"u 1-300"}, 301, false},
		"only a torn line":  {"x", nil, 1, false},
		"an unknown kind":   {line(`{"seq":301,"time":5,"kind":"?","to":0,"message":{}}`), []string{"u 1-400"}, 0, true},
		"not JSON":          {strings.Replace(good, `{"n":77}`, `{"n"x77}`, 1), []string{"u 1-76", "x 77-77", "u 78-300"}, 0, true},
		"a damaged number":  {strings.Replace(good, `{"seq":77,`, `{"seq":97,`, 1), []string{"u 1-76", "x 77-77", "u 78-300"}, 0, true},
		"a missing line":    {strings.Replace(good, string(oldFile(77, 77)), "", 1), []string{"u 1-76", "x 77-77", "u 78-300"}, 0, true},
		"zeros in between":  {line(strings.Repeat("\x00", 5000)), []string{"u 1-400"}, 0, true},
		"newer lines last":  {good + "\n" + `{"seq":309,"time":5,"kind":"z","to":0,"message":{}}` + "\n", []string{"u 1-300", "x 301-600"}, 0, true},
		"no line of it":     {"\n\x00\x00\n", nil, 0, true},
		"a line and a line": {good + good, []string{"u 1-300"}, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			o := Options{Old: filepath.Join(dir, "log.jsonl")}
			path := filepath.Join(dir, "log.journal")
			if err := os.WriteFile(o.Old, []byte(tt.file), 0o600); err != nil {
				t.Fatal(err)
			}
			l, err := Open(path, o)
			if name == "no line of it" {
				if b, err2 := os.ReadFile(o.Old); !errors.Is(err, ErrFormat) || err2 != nil || string(b) != tt.file {
					t.Errorf("%v; the file is %q, %v", err, b, err2)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got := tell(t, l)
			if len(got) > 0 && strings.HasPrefix(got[len(got)-1], "x 301-") && name == "newer lines last" {
				got[len(got)-1] = "x 301-600" // how many are skipped is not what is tested
			} else if len(got) > 1 && tt.kept && strings.HasPrefix(got[len(got)-1], "x ") {
				got = got[:len(got)-1]
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("what is read (-want +got):\n%s", diff)
			}
			seq, err := l.AppendFlush(Update, Everyone, frame(7))
			if err != nil || tt.next != 0 && seq != tt.next || seq <= 300 && tt.next == 0 {
				t.Errorf("it goes on with %d, %v, want %d", seq, err, tt.next)
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(o.Old); err == nil {
				t.Error("the old file is still there")
			}
			if b, err := os.ReadFile(asideOf(o.Old)); tt.kept != (err == nil) || tt.kept && string(b) != tt.file {
				t.Errorf("kept aside: %v", err)
			}
			if b, err := os.ReadFile(path); err != nil || !bytes.HasPrefix(b, []byte(versionLine)) {
				t.Errorf("the new file begins with %.40q, %v", b, err)
			}
			if l, err = Open(path, o); err != nil || l.Last() != seq {
				t.Errorf("opened again: %v", err)
			}
			_ = l.Close()
		})
	}
}

// What an older program wrote beside a file of the second format is kept aside.
func TestOpen_BothFormats(t *testing.T) {
	l, path := open(t, 0)
	fill(t, l, 1, 10)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	o := Options{Old: filepath.Join(filepath.Dir(path), "log.jsonl")}
	for again := range maxAside + 2 { // what was kept before stays
		if err := os.WriteFile(o.Old, oldFile(1, 3+again), 0o600); err != nil {
			t.Fatal(err)
		}
		l, err := Open(path, o)
		if err != nil {
			t.Fatal(err)
		}
		checkRun(t, readAll(t, l, 0), 1, 10)
		_ = l.Close()
		for n := range again + 1 {
			kept := asideOf(o.Old)
			switch {
			case n == again && n >= maxAside:
				kept = o.Old // there is no room beside it
			case n >= maxAside:
				continue // the older program went on in it
			case n > 0:
				kept = fmt.Sprintf("%s.%d", kept, n+1)
			}
			if b, err := os.ReadFile(kept); err != nil || !bytes.Equal(b, oldFile(1, 3+n)) {
				t.Errorf("what was kept as number %d, when it was done %d times: %v", n, again+1, err)
			}
		}
	}
}

// A file that cannot be taken over as a whole does not take the place of one that was kept.
func TestOpen_KeepsBoth(t *testing.T) {
	dir := t.TempDir()
	o := Options{Old: filepath.Join(dir, "log.jsonl")}
	first, second := []byte("what was kept first"), append(oldFile(1, 3), "x\n"...)
	if err := errors.Join(os.WriteFile(asideOf(o.Old), first, 0o600), os.WriteFile(o.Old, second, 0o600)); err != nil {
		t.Fatal(err)
	}
	l, err := Open(filepath.Join(dir, "log.journal"), o)
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	for path, want := range map[string][]byte{asideOf(o.Old): first, asideOf(o.Old) + ".2": second} {
		if b, err := os.ReadFile(path); err != nil || !bytes.Equal(b, want) {
			t.Errorf("%s has %q, %v", path, b, err)
		}
	}
}
