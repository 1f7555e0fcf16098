package tunnel

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha1"
	"crypto/subtle"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
)

// peer is the other end of a tunnel as a test plays it: it sends what bytes it likes, and notes what it
// gets. Its connection holds nothing: what the peer does not read is not written.
type peer struct {
	t     *testing.T
	below net.Conn
	masks bool
	queue chan []byte // that is written; 4,096 pieces are more than a test has
	work  sync.WaitGroup

	mu      sync.Mutex
	reads   *sync.Cond // stuck has changed
	stuck   bool       // it reads nothing
	closed  bool
	unsent  int // pieces of queue that were not taken
	rest    []byte
	heard   map[uint32]*heard
	pongs   map[uint32]bool
	refused map[uint32]bool // lanes
}

// heard is what came of a stream.
type heard struct {
	opened, ends, reset bool
	data                int64 // bytes
	may                 int64 // what the peer has allowed it to send in all
	opens               int64 // what it allows the peer to send in all
}

// hijackable is the answer to a request whose connection is taken over.
type hijackable struct {
	*httptest.ResponseRecorder
	c net.Conn
}

// Hijack implements [http.Hijacker].
func (h hijackable) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return h.c, bufio.NewReadWriter(bufio.NewReader(h.c), bufio.NewWriter(h.c)), nil
}

// upgrading answers the request for a WebSocket with a connection.
type upgrading struct{ c net.Conn }

// RoundTrip implements [http.RoundTripper].
func (u upgrading) RoundTrip(r *http.Request) (*http.Response, error) {
	c, err := Wire(func(context.Context, string, string) (net.Conn, error) { return u.c, nil })(r.Context(), "", "")
	sum := sha1.Sum([]byte(r.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	return &http.Response{StatusCode: http.StatusSwitchingProtocols, Request: r, Body: c, Header: http.Header{
		"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Protocol": {Subprotocol},
		"Sec-Websocket-Accept": {base64.StdEncoding.EncodeToString(sum[:])},
	}}, err
}

// withPeer returns an end of a tunnel and who plays the other.
func withPeer(t *testing.T, node bool) (*Tunnel, *peer) {
	t.Helper()
	own, far := net.Pipe()
	p := &peer{t: t, below: far, masks: !node, queue: make(chan []byte, 4096), heard: map[uint32]*heard{}, pongs: map[uint32]bool{}, refused: map[uint32]bool{}}
	p.reads = sync.NewCond(&p.mu)
	var end *Tunnel
	var err error
	if node {
		end, _, err = Dial(context.Background(), &http.Client{Transport: upgrading{own}}, "http://hub.test", nil)
	} else {
		r := httptest.NewRequest(http.MethodGet, "http://hub.test/v2/join", nil)
		for k, v := range map[string]string{"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "MDEyMzQ1Njc4OWFiY2RlZg==", "Sec-WebSocket-Protocol": Subprotocol} {
			r.Header.Set(k, v)
		}
		end, err = Accept(hijackable{httptest.NewRecorder(), own}, r)
	}
	if err != nil {
		t.Fatal(err)
	}
	p.work.Go(p.write)
	p.work.Go(p.read)
	return end, p
}

// of returns what came of a stream.
func (p *peer) ofLocked(id uint32) *heard {
	h := p.heard[id]
	if h == nil {
		h = &heard{may: firstWindow, opens: firstWindow}
		p.heard[id] = h
	}
	return h
}

// message returns a WebSocket message, or a piece of one that goes on.
func (p *peer) message(op byte, b []byte) []byte {
	m := []byte{op}
	masked := byte(0)
	if p.masks {
		masked = isMasked
	}
	switch n := len(b); {
	case n < 126:
		m = append(m, masked|byte(n))
	case n < 1<<16:
		m = binary.BigEndian.AppendUint16(append(m, masked|126), uint16(n))
	default:
		m = binary.BigEndian.AppendUint64(append(m, masked|127), uint64(n))
	}
	if p.masks {
		m = append(m, 0, 0, 0, 0)
	}
	return append(m, b...)
}

// send has bytes written.
func (p *peer) send(b []byte) {
	p.mu.Lock()
	p.unsent++
	p.mu.Unlock()
	p.queue <- b
}

func (p *peer) write() {
	for b := range p.queue {
		_, err := p.below.Write(b)
		p.mu.Lock()
		p.unsent--
		p.mu.Unlock()
		if err != nil { // the rest is for nobody
			for range p.queue {
				p.mu.Lock()
				p.unsent--
				p.mu.Unlock()
			}
		}
	}
}

// waits reports whether the other end does not take what is sent.
func (p *peer) waits() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.unsent > 0
}

// stick has the peer read nothing, or read again.
func (p *peer) stick(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stuck = on
	p.reads.Broadcast()
}

// cut ends the connection.
func (p *peer) cut() { _ = p.below.Close() }

// close ends all of it.
func (p *peer) close() {
	p.cut()
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.stick(false)
	close(p.queue)
	p.work.Wait()
}

// patient reads when the peer does.
type patient struct{ p *peer }

// Read implements [io.Reader].
func (r patient) Read(b []byte) (int, error) {
	r.p.mu.Lock()
	for r.p.stuck {
		r.p.reads.Wait()
	}
	r.p.mu.Unlock()
	return r.p.below.Read(b)
}

func (p *peer) read() {
	in := bufio.NewReader(patient{p})
	for {
		b, err := p.readMessage(in)
		if err != nil {
			return
		}
		p.mu.Lock()
		p.takeLocked(b)
		p.mu.Unlock()
	}
}

// readMessage returns what a binary message has, nothing for others.
func (p *peer) readMessage(in *bufio.Reader) ([]byte, error) {
	var head [8]byte
	if _, err := io.ReadFull(in, head[:2]); err != nil {
		return nil, err
	}
	op, n, masked := head[0], int(head[1]&^isMasked), head[1]&isMasked != 0
	more := map[int]int{126: 2, 127: 8}[n]
	if more > 0 {
		if _, err := io.ReadFull(in, head[8-more:]); err != nil {
			return nil, err
		}
		clear(head[:8-more])
		n = int(binary.BigEndian.Uint64(head[:]))
	}
	if n > 1<<20 {
		p.t.Errorf("a message of %d bytes", n)
		return nil, io.ErrShortBuffer
	}
	var key [4]byte
	if masked {
		if _, err := io.ReadFull(in, key[:]); err != nil {
			return nil, err
		}
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(in, b); err != nil {
		return nil, err
	}
	if masked == p.masks {
		p.t.Errorf("a message of an end is masked: %v", masked)
	}
	if masked {
		unmask(b, key)
	}
	if op != opBinary {
		return nil, nil
	}
	return b, nil
}

// unmask undoes what a client does with what it sends. It shares nothing with how that is done, and the race
// detector looks at pieces of it and not at each byte.
func unmask(b []byte, key [4]byte) {
	keys := bytes.Repeat(key[:], 1<<10)
	for len(b) > 0 {
		b = b[subtle.XORBytes(b, b, keys):]
	}
}

// takeLocked takes what a message has.
func (p *peer) takeLocked(b []byte) {
	p.rest = append(p.rest, b...)
	for len(p.rest) >= headerSize {
		h, err := parseHeader(p.rest)
		if err != nil {
			p.t.Error(err)
			return
		}
		n := headerSize
		if h.kind == kindData {
			n += int(h.length)
		}
		if len(p.rest) < n {
			return
		}
		if err := p.frameLocked(h, p.rest[headerSize:n]); err != nil {
			p.t.Errorf("%+v: %v", h, err)
		}
		p.rest = p.rest[n:]
	}
}

func (p *peer) frameLocked(h header, data []byte) error {
	switch h.kind {
	case kindPing:
		if h.flags&flagOpens == 0 {
			p.pongs[h.length] = true
		} else if !p.closed {
			answer := p.message(opBinary, header{kind: kindPing, flags: flagAccepts, length: h.length}.append(nil))
			p.unsent++
			p.queue <- answer
		}
		return nil
	case kindAway:
		return nil
	case kindLane:
		if h.flags == flagResets {
			p.refused[h.length] = true
		}
		return nil
	}
	s := p.ofLocked(h.stream)
	if h.flags&flagOpens != 0 {
		if s.opened {
			return fmt.Errorf("the stream was opened before")
		}
		s.opened = true
	}
	if s.ends && (len(data) > 0 || h.flags&flagEnds != 0) {
		return fmt.Errorf("it comes behind the end of the stream")
	}
	if want := carried(h.stream, s.data, len(data)); !bytes.Equal(data, want) {
		return fmt.Errorf("the data behind the first %d bytes is not what was written", s.data)
	}
	s.data += int64(len(data))
	if s.data > s.may {
		return fmt.Errorf("%d bytes came, %d may", s.data, s.may)
	}
	if h.kind == kindWindow && h.flags&flagResets == 0 {
		s.opens += int64(h.length)
	}
	s.ends = s.ends || h.flags&flagEnds != 0
	s.reset = s.reset || h.flags&flagResets != 0
	return nil
}

const patternPeriod = 65521 // a prime: no size that is used is a multiple of it

var patterned = sync.OnceValue(func() []byte {
	b := make([]byte, patternPeriod+1<<20)
	for i := range b {
		k := i % patternPeriod
		b[i] = byte(k ^ k>>8*31)
	}
	return b
})

// carried returns what a stream carries, in both directions, behind its first bytes.
func carried(stream uint32, behind int64, n int) []byte {
	from := (int64(stream)*977 + behind) % patternPeriod
	return patterned()[from : from+int64(n)]
}
