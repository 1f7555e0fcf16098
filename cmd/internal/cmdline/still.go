package cmdline

import (
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	stillFor   = time.Second // between two looks at what a program does
	stillBelow = 256 << 10   // bytes that one which does nothing allocates in that time
	worthwhile = 4 << 20     // bytes of garbage that are worth it to be given back
)

// GiveBack returns memory to the system: at once the pages that only the start has used, and later all whenever
// the program has nothing to do after it had, such as a burst of connections, whose memory
// the runtime would keep for minutes. The returned function ends it.
func GiveBack() (end func()) {
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		givePages() // to collect garbage as well would make the first client wait
		look := time.NewTicker(stillFor)
		defer look.Stop()
		var s stillness
		for {
			select {
			case <-look.C:
				if s.noteworthy(allocated()) {
					give()
				}
			case <-stop:
				return
			}
		}
	}()
	return func() {
		close(stop)
		<-ended
	}
}

func give() {
	debug.FreeOSMemory()
	givePages()
}

// allocated returns how many bytes the program has allocated since it began.
func allocated() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// stillness knows when a program has become still.
type stillness struct {
	last  uint64 // what was allocated at the last look
	given uint64 // and when memory was given back
	begun bool
}

// noteworthy reports whether memory is to be given back, when so much was allocated: the
// first time in any case, since a start is over by then.
func (s *stillness) noteworthy(now uint64) bool {
	still := now-s.last < stillBelow && now-s.given >= worthwhile
	s.last = now
	if s.begun && !still {
		return false
	}
	s.begun, s.given = true, now
	return true
}
