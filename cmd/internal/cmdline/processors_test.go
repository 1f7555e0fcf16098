package cmdline

import (
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
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
		"pauses":               {{0.3, short, 10, true}, {0, 0, 10, true}, {0.3, short, 10, true}, {0, 0, 15, true}, {0.3, short, 1, true}, {0, 0, 19, true}},
		"nothing more to do":   {{0.3, short, 10, true}, {0, 0, 11, true}, {0, 0, 39, false}, {0.1, short, 1, true}},
		"only looks":           {{0.3, short, 10, true}, {0.006, 0, 11, true}, {0.006, 0, 39, false}},
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
					want := map[bool]time.Duration{true: lookAtOne, false: lookAtAll}[f.one]
					if !f.one && l.share < nothing {
						want = idleFor
					}
					if next != want {
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
	var w waits
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

// What is used between two looks is one number for each, in order; the last one goes on.
func TestFitProcessors(t *testing.T) {
	for name, c := range map[string]struct {
		shares []float64 // of a processor, in each 50 milliseconds
		want   []bool    // what is set; at the end it is all
	}{
		"idle":         {[]float64{0}, nil},
		"busy":         {[]float64{2}, nil},
		"some":         {[]float64{0.1}, []bool{true, false}},
		"much at once": {append(slices.Repeat([]float64{0.1}, 20), 2), []bool{true, false}},
		"a pause":      {append(slices.Repeat([]float64{0.1}, 20), 0), []bool{true, false}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begun, stop := time.Now(), make(chan struct{})
				used := func() (sum time.Duration) {
					for n := range int(time.Since(begun) / lookAtOne) {
						sum += time.Duration(c.shares[min(n, len(c.shares)-1)] * float64(lookAtOne))
					}
					return sum
				}
				var got []bool
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					fitProcessors(stop, used, func() time.Duration { return 0 }, func(one bool) { got = append(got, one) })
				}()
				time.Sleep(10 * time.Second)
				close(stop)
				<-ended
				if !slices.Equal(got, c.want) {
					t.Errorf("set to one: %v, want %v", got, c.want)
				}
			})
		})
	}
}

func TestUseProcessors(t *testing.T) {
	was := runtime.GOMAXPROCS(0)
	useProcessors(true)
	one := runtime.GOMAXPROCS(0)
	useProcessors(false)
	if all := runtime.GOMAXPROCS(0); one != 1 || all != was {
		t.Errorf("%d and %d processors, want 1 and %d", one, all, was)
	}
}
