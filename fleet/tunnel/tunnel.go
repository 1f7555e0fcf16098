package tunnel

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
)

// Subprotocol is the WebSocket subprotocol of a tunnel. Another version of the
// tunnel gets another name.
const Subprotocol = "tunnel.sandboxagent.dev"

const (
	// MaxStreams bounds the streams of a tunnel. More are refused to who opens them.
	MaxStreams = 256
	// Heartbeat is how often an end that hears nothing asks for an answer.
	Heartbeat = 5 * time.Second
	// Silence is how long an end may be silent until the tunnel ends.
	Silence = 15 * time.Second
	// LongestPause is how long a node whose tunnel ended waits at most before it tries to open another one.
	LongestPause = 15 * time.Second

	// MaxWindow bounds what is on its way in one direction of one stream.
	MaxWindow = 4 << 20
	// maxGrowth bounds the sum of what windows of one end grow beyond firstWindow.
	// At the bound windows stay as they are: streams are slower over far networks.
	maxGrowth   = 16 << 20
	firstWindow = 256 << 10 // as both ends know it

	measureEvery = 30 * time.Second // how long the way is, which says how large windows must be
)

// ErrFull is returned by Open when the tunnel holds MaxStreams streams.
var ErrFull = errors.New("the tunnel has no room for another stream")

// Tunnel is one end of a tunnel. It is safe for concurrent use.
type Tunnel struct {
	below  *conn
	out    outgoing
	node   bool         // this end accepts streams; the other one opens them
	fresh  chan *stream // that nobody has accepted yet; bounded by MaxStreams. nil at the hub
	growth *budget
	lanes  lanes
	done   chan struct{}  // closed when the tunnel has ended
	work   sync.WaitGroup // the goroutine that receives

	heard atomic.Int64 // when something came last, since begun
	way   atomic.Int64 // how long an answer takes, in ns; 0 until that is known
	begun time.Time    // of the tunnel

	mu      sync.Mutex
	streams map[uint32]*stream
	last    uint32        // id of the newest stream
	asked   uint32        // number of the newest ping
	pinged  time.Duration // when that was sent, since begun
	waiting bool          // for its answer
	beat    *time.Timer
	err     error // why the tunnel has ended
}

// hub returns the hub's end of a tunnel over ws, which the tunnel then owns.
func hub(ws *websocket.Conn, w *framing) *Tunnel { return open(newConn(ws, w), false) }

// Node returns the node's end of a tunnel over ws, which the tunnel then owns. [Dial] opens one
// that writes in larger pieces.
func Node(ws *websocket.Conn) (*Tunnel, error) { return open(newConn(ws, nil), true), nil }

func open(below *conn, node bool) *Tunnel {
	t := &Tunnel{below: below, node: node, growth: &budget{left: maxGrowth}, done: make(chan struct{}), begun: time.Now(), streams: map[uint32]*stream{}}
	below.came = func() { t.heard.Store(int64(time.Since(t.begun))) }
	t.out.put, t.out.cut, t.out.takes = below.put, func() { _ = below.cut() }, below.takes()
	if node {
		t.fresh = make(chan *stream, MaxStreams)
		t.lanes.asked = make(chan uint32, MaxLanes)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.beat = time.AfterFunc(0, t.look) // measures the way
	t.work.Go(func() { t.end(t.receive()) })
	return t
}

// look asks whether the other end is there when nothing came for a time, and ends the tunnel when it
// does not answer.
func (t *Tunnel) look() {
	t.mu.Lock()
	if t.err != nil {
		t.mu.Unlock()
		return
	}
	now := time.Since(t.begun)
	silent := now - time.Duration(t.heard.Load())
	if silent >= Silence {
		t.mu.Unlock()
		t.end(errSilent)
		return
	}
	next := Heartbeat - silent
	if silent >= Heartbeat || t.asked == 0 || now-t.pinged >= measureEvery {
		if next = Silence - silent; !t.waiting {
			t.asked++
			t.pinged, t.waiting = now, true
			t.out.ask(t.asked)
		}
		if silent < Heartbeat {
			next = Heartbeat - silent
		}
	}
	t.beat.Reset(next)
	t.mu.Unlock()
}

var errSilent = fmt.Errorf("nothing was heard of the other end for %v", Silence)

// answered notes the answer to a ping.
func (t *Tunnel) answered(id uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.waiting || id != t.asked {
		return
	}
	t.waiting = false
	took := time.Since(t.begun) - t.pinged
	if had := time.Duration(t.way.Load()); had > 0 {
		took = had/2 + took/2
	}
	t.way.Store(int64(took))
}

// Open opens a stream to the node.
func (t *Tunnel) Open(ctx context.Context) (net.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("open stream: %w", err)
	}
	t.mu.Lock()
	switch {
	case t.err != nil:
		defer t.mu.Unlock()
		return nil, fmt.Errorf("open stream: %w", t.err)
	case len(t.streams) >= MaxStreams:
		t.mu.Unlock()
		return nil, ErrFull
	case t.last > math.MaxUint32-2: // so many do not come together
		t.mu.Unlock()
		return nil, errors.New("open stream: the tunnel has no numbers left")
	}
	t.last += 2
	s := newStream(t, t.last-1)
	t.streams[s.id] = s
	t.mu.Unlock()
	// The other end is told of it now: it may be the one that speaks first.
	if _, err := t.out.send(header{kind: kindWindow, flags: flagOpens, stream: s.id}, nil); err != nil {
		return nil, fmt.Errorf("open stream: %w", err)
	}
	return s, nil
}

// Accept returns the next stream that the hub has opened. It fails when the tunnel
// has ended.
func (t *Tunnel) Accept() (net.Conn, error) {
	select {
	case s := <-t.fresh:
		return s, nil
	case <-t.done:
		return nil, fmt.Errorf("accept stream: %w", t.why())
	}
}

func (t *Tunnel) why() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}

// Streams returns how many streams are open.
func (t *Tunnel) Streams() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.streams)
}

// Lanes returns how many lanes are open.
func (t *Tunnel) Lanes() int {
	t.lanes.mu.Lock()
	defer t.lanes.mu.Unlock()
	return len(t.lanes.open)
}

// Done is closed when the tunnel has ended.
func (t *Tunnel) Done() <-chan struct{} { return t.done }

// Close ends the tunnel and all its streams, and waits for what belongs to it. It may be called more
// than once.
func (t *Tunnel) Close() error {
	t.end(net.ErrClosed)
	t.work.Wait()
	t.out.close()
	return nil
}

// end ends the tunnel and its streams.
func (t *Tunnel) end(why error) {
	t.mu.Lock()
	if t.err != nil {
		t.mu.Unlock()
		return
	}
	t.err = why
	t.beat.Stop()
	streams := t.streams
	t.streams = map[uint32]*stream{}
	t.mu.Unlock()
	close(t.done)
	_ = t.below.cut()
	t.out.end(why)
	t.lanes.end()
	for _, s := range streams {
		s.broke(fmt.Errorf("the tunnel has ended: %w", why))
	}
}

// forget takes a stream from the tunnel of which nothing comes and goes any more.
func (t *Tunnel) forget(s *stream) {
	t.mu.Lock()
	delete(t.streams, s.id)
	t.mu.Unlock()
	t.growth.give(s)
}

func (t *Tunnel) stream(id uint32) *stream {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.streams[id]
}

// receive takes what the other end sends, until there is nothing more.
func (t *Tunnel) receive() error {
	for {
		b, err := t.below.peek(headerSize)
		if err != nil {
			return err
		}
		h, err := parseHeader(b)
		if err != nil {
			return err
		}
		t.below.skip(headerSize)
		if err := t.take(h); err != nil {
			return err
		}
	}
}

// take takes a frame.
func (t *Tunnel) take(h header) error {
	switch h.kind {
	case kindPing:
		if h.flags&flagOpens != 0 {
			t.out.answer(h.length)
		} else {
			t.answered(h.length)
		}
		return nil
	case kindAway:
		return errAway
	case kindLane:
		return t.askedFor(h)
	}
	if h.flags&flagOpens != 0 {
		if err := t.opened(h.stream); err != nil {
			return err
		}
	}
	s := t.stream(h.stream)
	switch {
	case s != nil:
		return s.take(h)
	case h.kind == kindData: // it was closed here, or refused
		if h.length > 0 && h.flags&(flagEnds|flagResets) == 0 {
			t.out.reset(h.stream) // else who sends it would wait for room for ever
		}
		return t.below.discard(int64(h.length))
	}
	return nil
}

var errAway = errors.New("the other end has ended the tunnel")

// opened takes a stream that the other end has opened.
func (t *Tunnel) opened(id uint32) error {
	if own := id%2 == 1; own != t.node {
		return fmt.Errorf("the other end has opened the stream %d, which is not one of its own", id)
	}
	t.mu.Lock()
	if t.err != nil { // what was at hand is not taken: nobody would end such a stream
		defer t.mu.Unlock()
		return t.err
	}
	_, twice := t.streams[id]
	full := !t.node || len(t.streams) >= MaxStreams
	if !twice && !full {
		s := newStream(t, id)
		s.accepts = true
		select {
		case t.fresh <- s:
			t.streams[id] = s
		default:
			full = true
		}
	}
	t.mu.Unlock()
	switch {
	case twice:
		return fmt.Errorf("the other end has opened the stream %d twice", id)
	case full:
		t.out.await() // who opens streams without end, and reads none of the answers, is not read any more
		t.out.post(header{kind: kindWindow, flags: flagResets, stream: id})
	}
	return nil
}

// budget is what the windows of one end may still grow, in bytes.
type budget struct {
	mu   sync.Mutex
	left int
}

// take takes some for the window of a stream; false when there is too little.
func (b *budget) take(size int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.left < size {
		return false
	}
	b.left -= size
	return true
}

// give gives back what the window of a stream has. It may be called more than once.
func (b *budget) give(s *stream) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left += int(s.grown.Swap(0))
}
