package tunnel

import (
	"errors"
	"net"
	"testing"
	"testing/synctest"
)

// TestFrames_Endings plays all sequences of some steps of what ends a stream or meets its end. At random these
// come rarely on one stream, one right behind the other.
func TestFrames_Endings(t *testing.T) {
	ways := []func(f *frames){
		func(f *frames) { f.step(stepCloses, 0, 0) }, // what is written
		func(f *frames) { f.step(stepCloses, 0, 1) }, // all of it
		func(f *frames) { f.step(stepEnds, 0, 1) },
		func(f *frames) { f.step(stepResets, 0, 1) },
		func(f *frames) { f.step(stepSends, 0, 3) },
		func(f *frames) { f.step(stepReads, 0, 3) },
		func(f *frames) { f.step(stepWrites, 0, 7) }, // more than the peer takes
	}
	steps := 3
	if !testing.Short() {
		steps = 4
	}
	for _, node := range []bool{false, true} {
		sequence := make([]int, steps)
		for more := true; more && !t.Failed(); more = next(sequence, len(ways)) {
			synctest.Test(t, func(t *testing.T) {
				f := newFrames(t, node)
				defer f.close()
				f.step(stepOpens, 0, 0)
				f.flush(0)
				f.check()
				for _, way := range sequence {
					ways[way](f)
					f.flush(0)
					f.check()
				}
				f.last()
			})
			if t.Failed() {
				t.Logf("at the node %v, with the steps %v", node, sequence)
			}
		}
	}
}

// next makes the next sequence of numbers below most, false when there is none.
func next(sequence []int, most int) bool {
	for i := range sequence {
		if sequence[i]++; sequence[i] < most {
			return true
		}
		sequence[i] = 0
	}
	return false
}

// A stream whose opening is at hand when the tunnel ends is not handed out, whatever stands before it.
func TestFrames_OpenedAsItEnds(t *testing.T) {
	for before := range 3 {
		synctest.Test(t, func(t *testing.T) {
			f := newFrames(t, true)
			defer f.close()
			for range before {
				f.opens()
				f.flush(0)
				f.check()
			}
			f.end.below.came = func() { f.end.end(net.ErrClosed) } // what came is read, and not taken yet
			f.over = true
			f.peer.send(f.peer.message(opBinary, header{kind: kindWindow, flags: flagOpens, stream: f.next}.append(nil)))
			f.check()
			for range 3 {
				if c, err := f.end.Accept(); err == nil {
					t.Errorf("stream %d was handed out", c.(*stream).id)
				} else if !errors.Is(err, net.ErrClosed) {
					t.Error(err)
				}
			}
		})
	}
}

// Who sends a frame to a stream that is closed while that comes is told so.
func TestFrames_ClosedWithinAFrame(t *testing.T) {
	for _, size := range []int{100, 5000} { // one is copied, the other comes to where it stays
		for _, early := range []int{0, 10} {
			synctest.Test(t, func(t *testing.T) {
				f := newFrames(t, true)
				defer f.close()
				f.opens()
				f.flush(0)
				f.check()
				m := f.streams[0]
				b := append(header{kind: kindData, stream: m.id, length: uint32(size)}.append(nil), carried(m.id, 0, size)...)
				f.peer.send(f.peer.message(opBinary, b[:headerSize+early]))
				synctest.Wait()
				_ = m.s.Close()
				f.peer.send(f.peer.message(opBinary, b[headerSize+early:]))
				synctest.Wait()
				f.peer.mu.Lock()
				got := *f.peer.ofLocked(m.id)
				f.peer.mu.Unlock()
				if n := f.end.Streams(); n > 0 || !got.ends || !got.reset {
					t.Errorf("%d of %d bytes came before: the end has %d streams, the peer heard %+v", early, size, n, got)
				}
			})
		}
	}
}
