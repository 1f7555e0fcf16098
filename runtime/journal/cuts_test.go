package journal

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/internal/reliability/figure"
)

// bootDisk is the system's disk in one run of the machine.
type bootDisk struct {
	osDisk
	boot uint32
}

func (d bootDisk) Boot() uint32 { return d.boot }

// killedOnce makes a file with numbers that no entry has, since who wrote it was killed in the middle, and returns its bytes
// and the entries that it has. Packed, its blocks are large and compressed. Stopped, the machine was, too, and readers had seen
// more than the file has; it was stopped once more later.
func killedOnce(t *testing.T, packed, stopped bool) (path string, data []byte, has []uint64) {
	t.Helper()
	l, path := open(t, 0)
	dice := rand.New(rand.NewPCG(5, 6))
	n := 1000
	if packed {
		n = 5000
	}
	halves := 2
	if stopped {
		halves = 3
	}
	for half := range halves {
		for range n / 20 {
			for range 10 {
				at := l.Given() + 1
				if seq := l.Append(Update, Everyone, fmt.Appendf(nil, `{"n":%d,"x":"%s"}`, at, noise(dice.IntN(30)))); seq != at {
					t.Fatalf("entry %d is %d", at, seq)
				}
				has = append(has, at)
			}
			if err := l.Flush(); err != nil {
				t.Fatal(err)
			}
		}
		killed := mustRead(t, path)
		if packed {
			l.Release(0)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if half < halves-1 {
			if err := os.WriteFile(path, killed, 0o600); err != nil {
				t.Fatal(err)
			}
			o := Options{}
			if stopped {
				o.disk = bootDisk{boot: uint32(half) + 1}
				if half == 0 {
					o.Reached = has[len(has)-1] + 7
				}
			}
			l = openTrimmed(t, path, o)
		}
	}
	return path, mustRead(t, path), has
}

// Whatever pieces of a file are gone: who reads it, Verify and Repair name each entry that is not there, and none that is, and
// with a copy all is there again.
func TestDamage_PiecesAreGone(t *testing.T) {
	runs := figure.Asked(t, "CUTS", 20)
	for _, how := range []string{"small", "packed", "stopped", "stopped and packed"} {
		t.Run(how, func(t *testing.T) {
			stopped := strings.HasPrefix(how, "stopped")
			path, data, has := killedOnce(t, strings.HasSuffix(how, "packed"), stopped)
			last := has[len(has)-1]
			spare := filepath.Join(t.TempDir(), "spare")
			if err := os.WriteFile(spare, data, 0o600); err != nil {
				t.Fatal(err)
			}
			var blocks []part
			w := &walk{f: bytes.NewReader(data), off: int64(len(versionLine)), end: int64(len(data))}
			for p, err := w.next(); err == nil; p, err = w.next() {
				p.payload = nil
				blocks = append(blocks, p)
			}
			if len(blocks) < 5 {
				t.Fatalf("it has %d blocks", len(blocks))
			}
			whole, err := Verify(path, last)
			if err != nil || whole.Entries != len(has) || !stopped && len(whole.Damage)+len(whole.Lost) > 0 {
				t.Fatalf("whole: %+v, %v", whole, err)
			}
			// What was told to be lost before any piece was gone is told from then on.
			most := len(whole.Damage) + len(whole.Lost)
			seed := rand.Uint64()
			dice := rand.New(rand.NewPCG(seed, 0))
			for run := range runs {
				gone := make([]bool, len(data)+1)
				for range 1 + dice.IntN(5) {
					from := dice.IntN(len(data))
					to := min(from+1+dice.IntN(len(data)/3), len(data))
					if dice.IntN(2) == 0 { // at the bounds of blocks
						from, to = int(blocks[dice.IntN(len(blocks))].off), int(blocks[dice.IntN(len(blocks))].off)
					}
					for i := from; i < to; i++ {
						gone[i] = true
					}
				}
				var rest []byte
				for i, b := range data {
					if !gone[i] {
						rest = append(rest, b)
					}
				}
				there := map[uint64]bool{}
				for _, b := range blocks {
					// Also when what is left of two blocks is one of them: both begin with the same bytes.
					whole := bytes.Contains(rest, data[b.off:b.off+b.n])
					for seq := b.first; whole && b.kind == entries && seq <= b.last(); seq++ {
						there[seq] = true
					}
				}
				if len(there) == 0 {
					continue
				}
				check := func(what string, named func(tell func(first, last uint64))) {
					t.Helper()
					told := map[uint64]bool{}
					named(func(first, last uint64) {
						for seq := first; seq <= last; seq++ {
							told[seq] = true
						}
					})
					for _, seq := range has {
						if there[seq] == told[seq] {
							t.Fatalf("seed %d, run %d, %s: entry %d is there: %v, and is named as lost: %v", seed, run, what, seq, there[seq], told[seq])
						}
					}
				}
				read := func(path string) func(tell func(first, last uint64)) {
					return func(tell func(first, last uint64)) {
						l, err := Open(path, Options{Sync: SyncNever, Reached: last})
						if err != nil {
							t.Fatal(err)
						}
						defer l.Close()
						after := uint64(0)
						for _, e := range readAllKinds(t, l) {
							if e.Kind == Damage {
								tell(after+1, e.Seq)
							} else if !there[e.Seq] || !bytes.HasPrefix(e.Frame, fmt.Appendf(nil, `{"n":%d,`, e.Seq)) {
								t.Fatalf("seed %d, run %d: entry %d is %s", seed, run, e.Seq, e.Frame)
							}
							after = e.Seq
						}
					}
				}
				write := func() {
					if err := os.WriteFile(path, rest, 0o600); err != nil {
						t.Fatal(err)
					}
				}
				write()
				check("verify", func(tell func(first, last uint64)) {
					rep, err := Verify(path, last)
					if err != nil || rep.Entries != len(there) {
						t.Fatalf("seed %d, run %d: %+v, %v", seed, run, rep, err)
					}
					for _, d := range append(rep.Damage, rep.Lost...) {
						if d.First > 0 {
							tell(d.First, d.Last)
						}
					}
				})
				check("read", read(path))
				write()
				if _, err := Repair(path, "", last); err != nil {
					t.Fatal(err)
				}
				check("repaired", func(tell func(first, last uint64)) {
					rep, err := Verify(path, last)
					if err != nil || rep.Entries != len(there) || len(rep.Damage) > 0 {
						t.Fatalf("seed %d, run %d: repaired: %+v, %v", seed, run, rep, err)
					}
					for _, d := range rep.Lost {
						tell(d.First, d.Last)
					}
				})
				check("read, repaired", read(path))
				if dice.IntN(2) == 0 { // else from what was repaired before
					write()
				}
				if _, err := Repair(path, spare, last); err != nil {
					t.Fatalf("seed %d, run %d: %v", seed, run, err)
				}
				for _, seq := range has {
					there[seq] = true
				}
				rep, err := Verify(path, last)
				if err != nil || rep.Entries != len(has) || len(rep.Damage) > 0 || len(rep.Lost) > most {
					t.Fatalf("seed %d, run %d: from a copy: %+v, %v", seed, run, rep, err)
				}
				check("from a copy", func(tell func(first, last uint64)) {
					read(path)(func(first, last uint64) {
						if tell(first, last); !stopped {
							t.Fatalf("seed %d, run %d: from a copy: %d to %d are named as lost", seed, run, first, last)
						}
					})
				})
			}
			figure.Done(t, runs, "files of which pieces are gone")
		})
	}
}
