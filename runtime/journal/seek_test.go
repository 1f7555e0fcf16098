package journal

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// Every entry is found, wherever the bisection cuts: also right behind the
// beginning of a line, in the middle of its number.
func TestSeekSeq_FindsEveryEntry(t *testing.T) {
	dice := rand.New(rand.NewPCG(1, 2))
	for _, longest := range []int{1, 40, 400, 5000, 100_000} {
		var b bytes.Buffer
		var starts []int64
		seq := uint64(0)
		var seqs []uint64
		for b.Len() < 400_000 {
			seq += 1 + uint64(dice.IntN(3)) // numbers have gaps
			starts, seqs = append(starts, int64(b.Len())), append(seqs, seq)
			fmt.Fprintf(&b, `{"seq":%d,"x":"%s"}`+"\n", seq, strings.Repeat("x", dice.IntN(longest)))
		}
		r := bytes.NewReader(b.Bytes())
		for i, want := range seqs {
			if testing.Short() && i > 100 && i%31 != 0 && i < len(seqs)-10 {
				continue
			}
			off, err := seekSeq(r, int64(b.Len()), want)
			if err != nil || off != starts[i] {
				t.Fatalf("lines up to %d bytes: entry %d is at %d, %v, want %d", longest, want, off, err, starts[i])
			}
		}
		known := map[uint64]bool{}
		for _, s := range seqs {
			known[s] = true
		}
		for s := range seq {
			if !known[s] {
				if off, err := seekSeq(r, int64(b.Len()), s); err == nil {
					t.Fatalf("entry %d, which there is not, is at %d", s, off)
				}
				break
			}
		}
	}
}
