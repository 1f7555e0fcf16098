package cmdline

import (
	"runtime"
	"sync"
	"testing"
	"time"
)

func TestFit(t *testing.T) {
	const short, long = time.Microsecond, time.Millisecond // waits
	type look struct {
		share float64 // of a processor, since the last look
		wait  time.Duration
		times int // that it is so
		one   bool
	}
	for name, looks := range map[string][]look{
		"nothing to do":        {{0.0001, 0, 5, false}},
		"a little":             {{0.02, short, 1, true}, {0.02, short, 100, true}},
		"much":                 {{1.5, short, 5, false}},
		"others wait":          {{0.3, long, 5, false}},
		"more than one can do": {{0.3, short, 10, true}, {0.95, short, 1, false}, {0.3, short, 7, false}, {0.3, short, 1, true}},
		"many at once":         {{0.3, short, 10, true}, {0.5, long, 1, false}},
		"pauses":               {{0.3, short, 10, true}, {0, 0, 10, true}, {0.3, short, 10, true}, {0, 0, 15, true}, {0.1, short, 1, true}, {0, 0, 19, true}},
		"nothing more to do":   {{0.3, short, 10, true}, {0, 0, 11, true}, {0, 0, 39, false}, {0.1, short, 1, true}},
		"too few again and again": {
			{0.3, short, 1, true}, {1, short, 1, false}, {0.3, short, 7, false}, {0.3, short, 1, true}, // two seconds
			{1, short, 1, false}, {0.3, short, 15, false}, {0.3, short, 1, true}, // four
			{1, short, 1, false}, {0.3, short, 31, false}, {0.3, short, 1, true}, // eight
			{0.3, short, 400, true}, {1, short, 1, false}, {0.3, short, 7, false}, {0.3, short, 1, true}, // enough for a while
		},
	} {
		t.Run(name, func(t *testing.T) {
			var f fit
			now, sum := time.Unix(0, 0), time.Duration(0)
			next := max(f.look(now, sum, 0), lookAtAll)
			for i, l := range looks {
				for n := range l.times {
					now = now.Add(next)
					sum += time.Duration(l.share * float64(next))
					next = f.look(now, sum, l.wait)
					if want := map[bool]time.Duration{true: lookAtOne, false: lookAtAll}[f.one]; next != want {
						t.Fatalf("%d: looks again after %v, want %v", i, next, want)
					}
					if last := n == l.times-1; last && f.one != l.one {
						t.Fatalf("%d: one processor: %t, want %t", i, f.one, l.one)
					}
				}
			}
		})
	}
}

// Goroutines that wait for each other are seen to wait when there is one processor for them.
func TestWaits(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	w := newWaits()
	if got := w.mean(); got != 0 {
		t.Errorf("nobody waited, and did so for %v", got)
	}
	const each = 2 * time.Millisecond
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for range 16 { // the runtime notes one in eight
				for begun := time.Now(); time.Since(begun) < each/16; {
				}
				runtime.Gosched()
			}
		})
	}
	all.Wait()
	if got := w.mean(); got < each/16 {
		t.Errorf("sixteen waited for each other, and that for %v", got)
	}
	if got := w.mean(); got != 0 {
		t.Errorf("nobody waited since, and did so for %v", got)
	}
}

func TestFitProcessors_EndsWithAll(t *testing.T) {
	was := runtime.GOMAXPROCS(0)
	FitProcessors()()
	if now := runtime.GOMAXPROCS(0); now != was {
		t.Errorf("%d processors, want %d", now, was)
	}
}
