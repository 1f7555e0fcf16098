package cmdline

import (
	"os"
	"runtime"
	"runtime/metrics"
	"slices"
	"time"
)

const (
	lookAtOne = 50 * time.Millisecond  // between two looks whether one processor is too few
	lookAtAll = 250 * time.Millisecond // and whether one would do
	idleFor   = time.Second            // until all are used again, for what comes next, and between two looks then
	nothing   = 0.01                   // of a processor's time: who takes less does nothing, though to look takes half of that on a slow machine
	fits      = 0.7                    // who takes less has room on one
	tooMuch   = 0.9                    // who takes more has not
	tooLong   = 200 * time.Microsecond
	holdFirst = 2 * time.Second // all processors are kept when one was too few
	holdMost  = time.Minute     // and when that is so time and again
)

// FitProcessors has the Go runtime use one processor while one is enough for what the program does, until end is
// called. With more, a goroutine that wakes another one wakes a processor, too. Who sets GOMAXPROCS keeps it.
func FitProcessors() (end func()) {
	if runtime.GOMAXPROCS(0) == 1 || os.Getenv("GOMAXPROCS") != "" || used() == 0 {
		return func() {}
	}
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		fitProcessors(stop, used, new(waits).mean, useProcessors)
	}()
	return func() {
		close(stop)
		<-ended
	}
}

func useProcessors(one bool) {
	if one {
		runtime.GOMAXPROCS(1)
	} else {
		runtime.SetDefaultGOMAXPROCS() // as many as the machine, or the container, has now
	}
}

// fitProcessors calls set whenever one processor is enough, or is not any more; at the end it is not.
func fitProcessors(stop <-chan struct{}, used, wait func() time.Duration, set func(one bool)) {
	var f fit
	f.look(time.Now(), used(), wait())
	look := time.NewTimer(lookAtAll)
	defer look.Stop()
	for going := true; going; {
		was := f.one
		select {
		case <-look.C:
			look.Reset(f.look(time.Now(), used(), wait())) // not the time at which it was to look
		case <-stop:
			f.one, going = false, false
		}
		if f.one != was {
			set(f.one)
		}
	}
}

// fit knows whether one processor is enough. When there is nothing to do it is all of them again: what comes next may
// be much.
type fit struct {
	one   bool
	since time.Time     // it is one, or all
	until time.Time     // all are kept
	hold  time.Duration // how long they are kept, after one was too few the last time

	seen moment // at the last look
	busy moment // when it was last found that there is something to do
}

// moment is how much of the processors was used until then.
type moment struct {
	at   time.Time
	used time.Duration
}

// share is how much of one processor's time was used in between.
func (m moment) share(next moment) float64 {
	return float64(next.used-m.used) / float64(max(next.at.Sub(m.at), 1))
}

// look decides, when so much of the processors was used in all and goroutines waited so long for one, and says
// when to look again.
func (f *fit) look(now time.Time, used, wait time.Duration) time.Duration {
	next := moment{now, used}
	share := f.seen.share(next)
	f.seen = next
	if f.one {
		switch long := now.Sub(f.busy.at) >= idleFor; {
		case share >= tooMuch || wait >= tooLong:
			if now.Sub(f.since) > 2*f.hold {
				f.hold = 0 // it was enough for a while
			}
			f.hold = min(max(2*f.hold, holdFirst), holdMost)
			f.one, f.since, f.until = false, now, now.Add(f.hold)
		case long && f.busy.share(next) < nothing:
			f.one, f.since = false, now
		case long:
			f.busy = next
		}
	} else if share >= nothing && share < fits && wait < tooLong && !now.Before(f.until) {
		f.one, f.since, f.busy = true, now, next
	}
	switch {
	case f.one:
		return lookAtOne
	case share < nothing: // who wakes up often is not idle
		return idleFor
	}
	return lookAtAll
}

// waits are how long goroutines wait for a processor: the runtime notes one in eight.
type waits struct {
	sample []metrics.Sample
	counts []uint64 // at the last look
}

// fewWaits tell nothing: with so few, it is the time that was used which tells.
const fewWaits = 4

// mean returns the mean since it was last called.
func (w *waits) mean() time.Duration {
	if w.sample == nil {
		w.sample = []metrics.Sample{{Name: "/sched/latencies:seconds"}}
	}
	metrics.Read(w.sample)
	h := w.sample[0].Value.Float64Histogram()
	if w.counts == nil {
		w.counts = slices.Clone(h.Counts)
	}
	n, seconds := uint64(0), 0.0
	for i, count := range h.Counts {
		n += count - w.counts[i]
		seconds += float64(count-w.counts[i]) * max(h.Buckets[i], 0) // the first begins below all
	}
	copy(w.counts, h.Counts)
	if n < fewWaits {
		return 0
	}
	return time.Duration(seconds / float64(n) * float64(time.Second))
}
