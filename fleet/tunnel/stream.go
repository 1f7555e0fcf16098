package tunnel

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// stream is a connection within a tunnel. Each direction ends by itself; the stream is gone when both
// have.
type stream struct {
	t  *Tunnel
	id uint32

	grown atomic.Int64 // bytes of the window beyond the first one, of the tunnel's budget

	readable chan struct{} // has one when a Read that waits may go on
	writable chan struct{} // has one when a Write that waits may go on
	writing  sync.Mutex    // held by Write: what is written at one time stays together

	mu       sync.Mutex
	accepts  bool // the other end was not told yet that the stream is accepted
	got      pieces
	may      int       // bytes that the other end may send beyond what is in got
	window   int       // that got and may have at most
	since    time.Time // when the window was opened last
	left     int64     // bytes that may be sent
	readErr  error     // why nothing more comes; io.EOF when all came
	writeErr error     // why nothing more is sent
	sends    bool      // a frame with data is about to be sent, or just was
	endsThen bool      // the end is to be sent behind it
	endSent  bool      // it was
	reads    time.Time // deadlines, zero for none
	writes   time.Time
	unread   bool // the other end, which may wait to send more, is to be told that nobody reads it
	isGone   bool
}

var _ net.Conn = (*stream)(nil)

var (
	errReset   = errors.New("the other end has reset the stream")
	errWindow  = errors.New("the other end has sent more than the window of a stream")
	errStopped = fmt.Errorf("the stream is closed: %w", net.ErrClosed)
)

func newStream(t *Tunnel, id uint32) *stream {
	return &stream{
		t: t, id: id, readable: make(chan struct{}, 1), writable: make(chan struct{}, 1),
		may: firstWindow, window: firstWindow, left: firstWindow, since: time.Now(),
	}
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // it has one
	}
}

// flagsLocked are those that the next frame has.
func (s *stream) flagsLocked() uint16 {
	if s.accepts {
		s.accepts = false
		return flagAccepts
	}
	return 0
}

// take takes a frame of the stream. It is called by who receives.
func (s *stream) take(h header) error {
	if h.kind == kindData && h.length > 0 {
		if err := s.receive(h.length); err != nil {
			return err
		}
	}
	if h.kind == kindWindow && h.flags&flagResets == 0 {
		s.mu.Lock()
		s.left += int64(h.length)
		s.mu.Unlock()
		poke(s.writable)
	}
	switch {
	case h.flags&flagResets != 0:
		s.broke(errReset)
		s.t.forget(s)
	case h.flags&flagEnds != 0:
		s.mu.Lock()
		if s.readErr == nil {
			s.readErr = io.EOF
		}
		s.mu.Unlock()
		poke(s.readable)
		s.settle()
	}
	return nil
}

// receive takes data.
func (s *stream) receive(size uint32) error {
	s.mu.Lock()
	if size > uint32(s.may) {
		s.mu.Unlock()
		return errWindow
	}
	s.mu.Unlock()
	for n := int(size); n > 0; { // what of the frame has not come yet may still come: it opens no window
		// What is at hand goes behind what waits; the rest comes right into a piece of its own.
		b, err := s.t.below.some(n)
		if err != nil {
			return err
		}
		if k := len(b); k > 0 {
			n -= k
			s.mu.Lock()
			s.may -= k
			s.got.add(b)
			s.mu.Unlock()
			s.t.below.skip(k)
		} else {
			p := newPiece(n)
			p.end = min(n, len(p.b))
			if err := s.t.below.full(p.b[:p.end]); err != nil {
				p.free()
				return err
			}
			n -= p.end
			s.mu.Lock()
			s.may -= p.end
			s.got.push(p)
			s.mu.Unlock()
		}
		poke(s.readable)
	}
	s.mu.Lock()
	vain := errors.Is(s.readErr, net.ErrClosed) // nobody reads it
	if vain {
		s.got.clear()
		s.unread = true
	}
	vain = vain && s.isGone
	s.mu.Unlock()
	if vain {
		s.t.out.reset(s.id)
	}
	return nil
}

// Read implements net.Conn.
func (s *stream) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for {
		s.mu.Lock()
		until := s.reads
		if !until.IsZero() && !time.Now().Before(until) {
			s.mu.Unlock()
			poke(s.readable) // others may wait, too
			return 0, os.ErrDeadlineExceeded
		}
		switch {
		case !errors.Is(s.readErr, net.ErrClosed) && s.got.size > 0:
			n := s.got.read(p)
			opened, flags := s.openLocked()
			more := s.got.size > 0 || s.readErr != nil
			s.mu.Unlock()
			if more {
				poke(s.readable)
			}
			if opened > 0 { // of an end that is gone the next Read says it
				_, _ = s.t.out.send(header{kind: kindWindow, flags: flags, stream: s.id, length: uint32(opened)}, nil)
			}
			return n, nil
		case s.readErr != nil:
			defer s.mu.Unlock()
			poke(s.readable)
			return 0, s.readErr
		}
		s.mu.Unlock()
		await(s.readable, nil, until)
	}
}

// openLocked returns by how much the other end may send more, when that is worth a frame. If the way
// is longer than the window, that grows, unless it is the reader that is slow: more on its way would
// only fill the caches of processors.
func (s *stream) openLocked() (n int, flags uint16) {
	n = s.window - s.may - s.got.size
	if n < s.window/2 || s.readErr != nil {
		return 0, 0
	}
	now := time.Now()
	if way := time.Duration(s.t.way.Load()); s.got.size < s.window/8 && way > 0 && now.Sub(s.since) < 4*way {
		if more := min(s.window, MaxWindow-s.window); more > 0 && s.t.growth.take(more) {
			s.grown.Add(int64(more))
			s.window += more
			n += more
		}
	}
	s.since = now
	s.may += n
	return n, s.flagsLocked()
}

// await waits for c, room or a time. Who waits then looks again.
func await(c, room <-chan struct{}, until time.Time) {
	var late <-chan time.Time
	if !until.IsZero() {
		timer := time.NewTimer(time.Until(until))
		defer timer.Stop()
		late = timer.C
	}
	select {
	case <-c:
	case <-room:
	case <-late:
	}
}

// Write implements net.Conn.
func (s *stream) Write(p []byte) (n int, err error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	for n < len(p) {
		s.mu.Lock()
		until, room := s.writes, int(min(s.left, int64(min(len(p)-n, mostPayload))))
		if s.writeErr != nil || !until.IsZero() && !time.Now().Before(until) {
			err := s.writeErr
			s.mu.Unlock()
			if err == nil {
				err = os.ErrDeadlineExceeded
			}
			return n, err
		}
		flags := uint16(0)
		if room > 0 {
			flags = s.flagsLocked()
			s.sends = true
		}
		s.mu.Unlock()
		var full <-chan struct{}
		if room > 0 {
			full, err = s.t.out.send(header{kind: kindData, flags: flags, stream: s.id, length: uint32(room)}, p[n:n+room])
			s.mu.Lock()
			s.sends = false
			if err == nil && full == nil {
				s.left -= int64(room)
				n += room
			} else {
				s.accepts = s.accepts || flags != 0
			}
			ends := s.endsThen
			s.endsThen = false
			s.mu.Unlock()
			if ends {
				s.sendEnd()
			}
			if err != nil {
				return n, err
			}
			if full == nil {
				continue
			}
		}
		await(s.writable, full, until)
	}
	return n, nil
}

// RoomFor reports whether a write of n bytes certainly does not wait now.
func (s *stream) RoomFor(n int) bool {
	if n > mostPayload || !s.writing.TryLock() {
		return false
	}
	defer s.writing.Unlock()
	s.mu.Lock()
	may := s.writeErr == nil && s.left >= int64(n)
	s.mu.Unlock()
	return may && s.t.out.roomFor(n)
}

var copyBuffers = sync.Pool{New: func() any { return new([mostPayload]byte) }}

// ReadFrom implements [io.ReaderFrom]: what is large passes in frames of the largest size.
func (s *stream) ReadFrom(r io.Reader) (n int64, err error) {
	b := copyBuffers.Get().(*[mostPayload]byte)
	defer copyBuffers.Put(b)
	for {
		k, err := r.Read(b[:])
		if k > 0 {
			w, failed := s.Write(b[:k])
			n += int64(w)
			if failed != nil {
				return n, failed
			}
		}
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
}

// CloseWrite says that nothing more is written. What comes is read further.
func (s *stream) CloseWrite() error {
	s.mu.Lock()
	if s.writeErr != nil {
		s.mu.Unlock()
		return nil
	}
	s.writeErr = errStopped
	s.endsThen = s.sends
	now := !s.sends
	s.mu.Unlock()
	poke(s.writable)
	if now {
		s.sendEnd()
	}
	return nil
}

// sendEnd tells the other end that nothing more is written, behind all that was.
func (s *stream) sendEnd() {
	s.mu.Lock()
	flags := s.flagsLocked()
	s.mu.Unlock()
	s.t.out.post(header{kind: kindWindow, flags: flags | flagEnds, stream: s.id})
	s.mu.Lock()
	s.endSent = true
	s.mu.Unlock()
	s.settle()
}

// Close implements net.Conn. What was written arrives; what comes is not read any more, and who sends it is told
// so. It does not wait.
func (s *stream) Close() error {
	s.mu.Lock()
	if s.readErr == nil {
		s.unread = s.got.size > 0
	}
	if s.readErr == nil || errors.Is(s.readErr, io.EOF) {
		s.readErr = errStopped
	}
	s.got.clear()
	s.mu.Unlock()
	poke(s.readable)
	_ = s.CloseWrite() // never fails
	s.settle()
	return nil
}

// settle has the tunnel forget the stream when both directions have ended, and the other end was told: what
// is said to it of a stream that is gone comes behind that.
func (s *stream) settle() {
	s.mu.Lock()
	gone := s.readErr != nil && s.endSent && !s.isGone
	s.isGone = s.isGone || gone
	unread := s.unread
	s.mu.Unlock()
	if gone {
		s.t.forget(s)
	}
	if gone && unread {
		s.t.out.reset(s.id)
	}
}

// broke ends both directions.
func (s *stream) broke(why error) {
	s.mu.Lock()
	if s.readErr == nil {
		s.readErr = why
		s.got.clear()
	}
	if s.writeErr == nil {
		s.writeErr = why
	}
	s.isGone = true
	s.mu.Unlock()
	poke(s.readable)
	poke(s.writable)
}

// SetDeadline implements net.Conn.
func (s *stream) SetDeadline(t time.Time) error {
	_ = s.SetReadDeadline(t)
	return s.SetWriteDeadline(t)
}

// SetReadDeadline implements net.Conn.
func (s *stream) SetReadDeadline(t time.Time) error {
	s.mu.Lock()
	s.reads = t
	s.mu.Unlock()
	poke(s.readable) // who waits looks again
	return nil
}

// SetWriteDeadline implements net.Conn. A frame that is being written is not interrupted: the other end
// takes it, or the tunnel ends.
func (s *stream) SetWriteDeadline(t time.Time) error {
	s.mu.Lock()
	s.writes = t
	s.mu.Unlock()
	poke(s.writable)
	return nil
}

// Idle reports whether nothing has come that was not read, and more may come.
func (s *stream) Idle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.got.size == 0 && s.readErr == nil && s.writeErr == nil
}

// LocalAddr implements net.Conn.
func (s *stream) LocalAddr() net.Addr { return address{} }

// RemoteAddr implements net.Conn.
func (s *stream) RemoteAddr() net.Addr { return address{} }

// address is that of both ends of a tunnel's streams.
type address struct{}

// Network implements net.Addr.
func (address) Network() string { return "tunnel" }

// String implements net.Addr.
func (address) String() string { return "tunnel" }
