package process

import (
	"testing"
	"testing/synctest"
	"time"
)

// Nothing that was written at or after a time is left out, also when it lies in one chunk with what was written before.
func TestLog_Since(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLog(1 << 20)
		began := time.Now()
		var written []time.Duration // when each byte was
		for range 10 {
			for _, pause := range []time.Duration{together / 5, together / 5, together / 2, 3 * together} {
				time.Sleep(pause)
				written = append(written, time.Since(began))
				l.write(Stdout, []byte("x"))
			}
		}
		if len(l.chunks) == len(written) {
			t.Fatal("each is a chunk of its own")
		}
		for i, at := range written {
			first := int(l.since(began.Add(at)))
			if first > i || written[first] <= at-together {
				t.Errorf("since %v: from what was written at %v, after %d of the %d bytes before", at, written[min(first, i)], first, i)
			}
		}
		if at := l.since(time.Now().Add(1)); at != l.next {
			t.Errorf("since after all: %d, want %d", at, l.next)
		}
	})
}
