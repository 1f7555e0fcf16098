package agents

import (
	"bytes"
	"slices"
	"sync"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/internal/memory"
)

// outboxLimit is how many messages of clients wait for an agent to read; whoever
// sends more waits for room.
const outboxLimit = 64

// outbox holds, in order, the messages that wait for an agent to read. Besides those
// that waited for room there are the gateway's own, which cannot wait: the prompt of
// each session, the requests that waited for the process with it, what waited for a load, answers to requests of the agent, which are bounded
// themselves, and cancellations, of which one of a kind is enough.
type outbox struct {
	room   chan struct{} // a place for each message that waited for room
	wake   chan struct{} // receives when there is something; room for one
	memory *memory.Share // of what waits

	mu      sync.Mutex
	waiting []outgoing
	closed  bool
}

type outgoing struct {
	m     acp.Message
	id    int64 // of a request that must not wait
	roomy bool  // it has a place in room
	once  bool  // another like it may take its place
}

func newOutbox(bound *memory.Bound) outbox {
	return outbox{room: make(chan struct{}, outboxLimit), wake: make(chan struct{}, 1), memory: bound.Open(nil)}
}

// close gives back the memory of what nobody will write any more.
func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	o.memory.Close()
}

// put adds a message. Who calls it calls signal, or writes what is there.
func (o *outbox) put(out outgoing) {
	o.mu.Lock()
	if !out.once || !o.repeatsLocked(out.m.Frame()) {
		o.waiting = append(o.waiting, out)
		if !o.closed {
			o.memory.Count(len(out.m.Frame())) // what is there already; at the bound no more arrives
		}
	}
	o.mu.Unlock()
}

// signal tells who writes that something was put.
func (o *outbox) signal() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// repeatsLocked reports whether the same notification waits already, with nothing
// but its like behind it: a cancellation behind a prompt is another one.
func (o *outbox) repeatsLocked(frame []byte) bool {
	for _, w := range slices.Backward(o.waiting) {
		if !w.once {
			return false
		}
		if bytes.Equal(w.m.Frame(), frame) {
			return true
		}
	}
	return false
}

func (o *outbox) empty() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.waiting) == 0
}

// first is the message to be written next. It stays until drop, so that nobody
// overtakes it.
func (o *outbox) first() (next outgoing, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.waiting) == 0 {
		return outgoing{}, false
	}
	return o.waiting[0], true
}

func (o *outbox) drop() {
	o.mu.Lock()
	roomy := o.waiting[0].roomy
	o.memory.Give(len(o.waiting[0].m.Frame()))
	o.waiting[0] = outgoing{}
	if o.waiting = o.waiting[1:]; len(o.waiting) == 0 {
		o.waiting = nil
	}
	o.mu.Unlock()
	if roomy {
		<-o.room
	}
}
