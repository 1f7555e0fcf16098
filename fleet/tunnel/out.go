package tunnel

import (
	"net"
	"slices"
	"sync"
)

const (
	// mostPending bounds the bytes of frames that wait for the message before them to be written. At
	// the bound whoever sends data waits. Other frames are taken beyond it: each stream has a few, and
	// one that makes room for data follows so much of that.
	mostPending = 128 << 10
)

// outgoing puts frames into messages. One that is sent while nothing is written is written by whoever
// sends it: to hand it to another goroutine would take longer than to write it. Frames that are sent
// while a message is on its way go into the next one together, and nothing waits for more to come.
//
// Its methods may be called by any goroutine.
type outgoing struct {
	// put writes a message: what stands in b behind room for the head of one. It is called by one goroutine
	// at a time.
	put func(b []byte) error
	cut func() // ends the connection, so that reading ends, too
	// Takes reports whether the connection takes a message of n bytes at once. It may be nil, and is called
	// with mu held.
	takes func(n int) bool

	writer sync.WaitGroup // flush; while there is something to write

	mu      sync.Mutex
	pending *[]byte  // frames for the next message behind room for its head, nil for none
	ping    *uint32  // a question that is to be asked with the next message
	pong    *uint32  // the answer to the newest question; those before it need none
	resets  []uint32 // streams of which pending has the reset; at most MaxStreams, further ones wait for more data
	writing bool
	room    chan struct{} // closed when pending has become less; nil while nobody waits
	err     error         // why nothing more is written
}

var writeBuffers = sync.Pool{New: func() any { b := make([]byte, 0, mostPending+mostHead); return &b }}

// free gives a buffer back that is no longer used.
func free(b *[]byte) {
	if cap(*b) == mostPending+mostHead { // others have grown
		*b = (*b)[:0]
		writeBuffers.Put(b)
	}
}

// frames returns where frames for the next message are put.
func (o *outgoing) framesLocked() *[]byte {
	if o.pending == nil {
		o.pending = writeBuffers.Get().(*[]byte)
		*o.pending = (*o.pending)[:mostHead]
	}
	return o.pending
}

// roomLocked returns what is closed when there may be room.
func (o *outgoing) roomLocked() <-chan struct{} {
	if o.room == nil {
		o.room = make(chan struct{})
	}
	return o.room
}

// await waits until there is room, or nothing more is sent.
func (o *outgoing) await() {
	for {
		o.mu.Lock()
		if o.err != nil || o.pending == nil || len(*o.pending) < mostPending {
			o.mu.Unlock()
			return
		}
		room := o.roomLocked()
		o.mu.Unlock()
		<-room
	}
}

// send sends a frame. If there is no room for its data it sends nothing, and returns what is closed when
// there may be some. It may write for as long as the other end takes something.
func (o *outgoing) send(h header, data []byte) (room <-chan struct{}, err error) {
	o.mu.Lock()
	switch {
	case o.err != nil:
		defer o.mu.Unlock()
		return nil, o.err
	case len(data) > 0 && o.pending != nil && len(*o.pending)+headerSize+len(data) > mostPending:
		defer o.mu.Unlock()
		return o.roomLocked(), nil
	case o.writing:
		defer o.mu.Unlock()
		b := o.framesLocked()
		*b = append(h.append(*b), data...)
		return nil, nil
	}
	// Nothing waits, as nobody writes.
	o.writing = true
	b := o.framesLocked()
	*b = append(h.append(*b), data...)
	message := o.nextLocked()
	o.mu.Unlock()
	o.wrote(message, o.put(*message))
	o.mu.Lock()
	defer o.mu.Unlock()
	return nil, o.err
}

// roomFor reports whether a frame with n bytes of data can be sent without waiting: it is put beside those
// that another one writes, or the connection takes it.
func (o *outgoing) roomFor(n int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.err != nil:
		return false
	case o.writing:
		return o.pending == nil || len(*o.pending)+headerSize+n <= mostPending
	}
	return o.takes != nil && o.takes(n+headerSize+mostHead)
}

// post sends frames without data. It does not wait.
func (o *outgoing) post(h header) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil {
		b := o.framesLocked()
		*b = h.append(*b)
		o.writeLocked()
	}
}

// reset tells the other end, which sends data of a stream, that nobody reads it, behind what was sent of that
// stream before. It does not wait.
func (o *outgoing) reset(stream uint32) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil || len(o.resets) >= MaxStreams || slices.Contains(o.resets, stream) {
		return
	}
	o.resets = append(o.resets, stream)
	b := o.framesLocked()
	*b = header{kind: kindWindow, flags: flagResets, stream: stream}.append(*b)
	o.writeLocked()
}

// ask sends a ping, before all that waits.
func (o *outgoing) ask(id uint32) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ping = &id
	o.writeLocked()
}

// answer answers a ping. Of several that wait for their answers the newest is answered.
func (o *outgoing) answer(id uint32) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.pong = &id
	o.writeLocked()
}

// writeLocked has what is pending written, by another goroutine.
func (o *outgoing) writeLocked() {
	if !o.writing && o.err == nil {
		o.writing = true
		o.writer.Go(o.flush)
	}
}

// nextLocked takes the next message, nil for none.
func (o *outgoing) nextLocked() *[]byte {
	message := o.pending
	o.pending, o.resets = nil, o.resets[:0]
	if o.ping != nil || o.pong != nil {
		first := o.framesLocked()
		if o.ping != nil {
			*first = header{kind: kindPing, flags: flagOpens, length: *o.ping}.append(*first)
		}
		if o.pong != nil {
			*first = header{kind: kindPing, flags: flagAccepts, length: *o.pong}.append(*first)
		}
		if message != nil {
			*first = append(*first, (*message)[mostHead:]...)
			free(message)
		}
		message, o.pending, o.ping, o.pong = first, nil, nil, nil
	}
	if o.room != nil {
		close(o.room)
		o.room = nil
	}
	return message
}

// flush writes what is pending until there is nothing.
func (o *outgoing) flush() {
	for {
		o.mu.Lock()
		message := (*[]byte)(nil)
		if o.err == nil {
			message = o.nextLocked()
		}
		if message == nil {
			o.writing = false
			o.mu.Unlock()
			return
		}
		o.mu.Unlock()
		err := o.put(*message)
		free(message)
		o.failed(err)
	}
}

// wrote notes that a message was written by who sent it. What came meanwhile is another one's.
func (o *outgoing) wrote(message *[]byte, err error) {
	free(message)
	o.failed(err)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil && (o.pending != nil || o.ping != nil || o.pong != nil) {
		o.writer.Go(o.flush)
		return
	}
	o.writing = false
}

// failed ends all sending if there is an error.
func (o *outgoing) failed(err error) {
	if err == nil {
		return
	}
	o.cut()
	o.end(err)
}

// end has nothing more sent. Who waits for room is told.
func (o *outgoing) end(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil {
		o.err = err
	}
	if o.room != nil {
		close(o.room)
		o.room = nil
	}
}

// close is called once the connection is cut, and waits for who writes by itself.
func (o *outgoing) close() {
	o.end(net.ErrClosed)
	o.writer.Wait()
}
