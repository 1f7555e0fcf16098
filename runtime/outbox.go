package runtime

import (
	"bytes"
	"slices"
	"sync"
)

// outboxLimit is how many messages of clients wait for an agent to read; whoever
// sends more waits for room.
const outboxLimit = 64

// outbox holds, in order, the frames that wait for an agent to read. Besides those
// that waited for room there are the gateway's own, which cannot wait: answers to
// requests of the agent, which are bounded themselves, and cancellations, of which
// one of a kind is enough.
type outbox struct {
	room chan struct{} // a place for each frame that waited for room
	wake chan struct{} // receives when there is something; room for one

	mu     sync.Mutex
	frames []waitingFrame
}

type waitingFrame struct {
	frame []byte
	roomy bool // it has a place in room
}

func newOutbox() outbox {
	return outbox{room: make(chan struct{}, outboxLimit), wake: make(chan struct{}, 1)}
}

// put adds a frame. roomy says that the caller took a place in room for it.
func (o *outbox) put(frame []byte, roomy bool) {
	o.mu.Lock()
	if roomy || !o.repeatsLocked(frame) {
		o.frames = append(o.frames, waitingFrame{frame, roomy})
	}
	o.mu.Unlock()
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// repeatsLocked reports whether the same frame waits already, with no message of a
// client behind it: a cancellation behind a prompt is another one.
func (o *outbox) repeatsLocked(frame []byte) bool {
	for _, w := range slices.Backward(o.frames) {
		if w.roomy {
			return false
		}
		if bytes.Equal(w.frame, frame) {
			return true
		}
	}
	return false
}

func (o *outbox) empty() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.frames) == 0
}

// first is the frame to be written next. It stays until drop, so that nobody
// overtakes it.
func (o *outbox) first() []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.frames[0].frame
}

func (o *outbox) drop() {
	o.mu.Lock()
	roomy := o.frames[0].roomy
	o.frames[0] = waitingFrame{}
	if o.frames = o.frames[1:]; len(o.frames) == 0 {
		o.frames = nil
	}
	o.mu.Unlock()
	if roomy {
		<-o.room
	}
}
