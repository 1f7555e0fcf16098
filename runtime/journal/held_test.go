package journal

import (
	"math/rand/v2"
	"path/filepath"
	"testing"
)

// Whatever is appended, confirmed, let go of memory and opened again: readers see what was
// confirmed, and who copies the log sees what the file has.
func TestHeld_ReadersSeeWhatIsConfirmed(t *testing.T) {
	for seed := range uint64(20) {
		dice := rand.New(rand.NewPCG(seed, 1))
		path := filepath.Join(t.TempDir(), "log.journal")
		o := Options{Memory: 2 << 10, Held: true}
		open := func() *Log {
			l, err := Open(path, o)
			if err != nil {
				t.Fatal(err)
			}
			return l
		}
		l := open()
		appended, saved, confirmed := 0, 0, 0
		for range 200 {
			switch dice.IntN(6) {
			case 0, 1:
				for range dice.IntN(40) {
					appended++
					l.Append(Update, Everyone, frame(appended))
				}
			case 2:
				if err := l.Flush(); err != nil {
					t.Fatal(err)
				}
				saved = appended
			case 3:
				n := dice.IntN(appended + 3) // also what it does not have, and less than before
				l.Confirm(uint64(n))
				confirmed = max(confirmed, min(n, saved))
			case 4:
				l.Release(0) // flushes
				saved = appended
			case 5:
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
				saved, o.Reached = appended, uint64(confirmed)
				l = open()
			}
			if l.Last() != uint64(confirmed) || l.Saved() != uint64(saved) {
				t.Fatalf("seed %d: shows %d of %d, want %d of %d", seed, l.Last(), l.Saved(), confirmed, saved)
			}
			from := dice.IntN(confirmed + 1)
			checkRun(t, readAll(t, l, uint64(from)), from+1, confirmed)
			var whole []Entry
			for c := l.Whole(uint64(from)); ; {
				batch, err := c.Next(nil, 1<<10)
				if err != nil {
					t.Fatal(err)
				}
				if len(batch) == 0 {
					break
				}
				for _, e := range batch {
					e.Frame = append([]byte(nil), e.Frame...)
					whole = append(whole, e)
				}
			}
			checkRun(t, whole, from+1, saved)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// A reader that waits is woken by what is confirmed.
func TestHeld_ConfirmWakes(t *testing.T) {
	l, err := Open("", Options{Held: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.AppendFlush(Update, Everyone, frame(1)); err != nil {
		t.Fatal(err)
	}
	got := make(chan uint64)
	go func() {
		for e, err := range l.Follow(t.Context(), 0) {
			if err == nil {
				got <- e.Seq
			}
			return
		}
	}()
	select {
	case n := <-got:
		t.Fatalf("entry %d was shown before it was confirmed", n)
	default:
	}
	l.Confirm(1)
	if n := <-got; n != 1 {
		t.Errorf("entry %d was shown", n)
	}
}
