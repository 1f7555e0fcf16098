package journal

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A burst of entries that are like each other is compressed as it is written, and text that is not soon written as
// it is. Whoever opens the file reads either.
func TestLog_ABurstIsPacked(t *testing.T) {
	alike := func(i int) []byte {
		return fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"session/update","params":{"update":{"text":"%d"}}}`, i)
	}
	text := noise(2 << 20)
	other := func(i int) []byte { return fmt.Appendf(nil, `{"n":"%s"}`, text[100*i:100*(i+1)]) }
	tests := []struct {
		name  string
		batch int // entries of one write
		entry func(i int) []byte
		most  int // hundredths of its bytes that the file has
		least int
	}{
		{"alike", 100, alike, 25, 1},
		{"alike, and few", 10, alike, 200, 100},
		{"one by one", 1, alike, 300, 100},
		{"a long one", 1, func(i int) []byte { return fmt.Appendf(nil, `{"n":"%s"}`, strings.Repeat("again ", 10_000+i)) }, 10, 0},
		{"one that is longer than a block", 1, func(i int) []byte { return fmt.Appendf(nil, `{"n":"%s"}`, strings.Repeat("again ", 30_000+i)) }, 101, 100},
		{"not alike", 100, other, 200, 100},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			l, path := open(t, 0)
			const writes = 200
			written := 0
			for i := range writes * test.batch {
				b := test.entry(i)
				written += len(b)
				l.Append(Update, Everyone, b)
				if (i+1)%test.batch == 0 {
					if err := l.Flush(); err != nil {
						t.Fatal(err)
					}
				}
			}
			has, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			if share := int(has.Size() * 100 / int64(written)); share > test.most || share < test.least {
				t.Errorf("%d bytes take %d, %d %% of them; want %d to %d", written, has.Size(), share, test.least, test.most)
			}
			copied := filepath.Join(t.TempDir(), "log.journal") // as a program that was killed leaves it
			if err := os.WriteFile(copied, mustRead(t, path), 0o600); err != nil {
				t.Fatal(err)
			}
			again, err := Open(copied, Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer again.Close()
			got := readAll(t, again, 0)
			if len(got) != writes*test.batch {
				t.Fatalf("%d entries are read", len(got))
			}
			for i, e := range got {
				if e.Seq != uint64(i+1) || string(e.Frame) != string(test.entry(i)) {
					t.Fatalf("entry %d is %d: %.100s", i+1, e.Seq, e.Frame)
				}
			}
		})
	}
}

// Text that does not repeat itself is tried more and more seldom, and then no more than once in a thousand writes. One try
// is enough to go back.
func TestPacking_Pauses(t *testing.T) {
	var p packing
	h := header{kind: entries}
	random, alike := []byte(strings.Repeat("-", headerSize)+noise(8000)), []byte(strings.Repeat("-", headerSize+8000))
	tries, before := 0, p
	for range 10_000 {
		if p.pack(&h, random) != nil {
			t.Fatal("noise is packed")
		}
		if p.left >= before.left {
			tries++
		}
		before = p
	}
	if tries < 10 || tries > 16 {
		t.Errorf("noise is tried %d times", tries)
	}
	n := 0
	for p.pack(&h, alike) == nil {
		n++
	}
	if n > longestPause {
		t.Errorf("after %d writes it is tried again", n)
	}
	if p.pack(&h, random) != nil || p.left != firstPause {
		t.Errorf("behind a block that repeats itself the pause is %d", p.left)
	}
}
