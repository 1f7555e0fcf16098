package tunnel

import (
	"context"
	"errors"
	"flag"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sandboxagent.dev/sandbox-agent/internal/agentcache"
)

// FuzzFrames plays sequences of what a peer sends and of what is done with streams here, three bytes for
// each step: the peer opens, sends, makes room, ends, resets, asks, repeats itself, lies and reads nothing.
// After each step a model says what has to be, see check.
func FuzzFrames(f *testing.F) {
	for _, steps := range frameSeeds {
		f.Add(false, []byte(steps))
		f.Add(true, []byte(steps))
	}
	f.Fuzz(func(t *testing.T, node bool, steps []byte) {
		synctest.Test(t, func(t *testing.T) { playFrames(t, node, steps) })
	})
}

// What each step does is the first of its bytes, see step.
const (
	stepOpens = iota // the peer opens a stream, or the end does: who may
	stepSends
	stepRoom
	stepEnds
	stepResets
	stepAsks
	stepStrays // frames of streams that are not there
	stepBreaks // what ends the tunnel
	stepFlush  // what the peer has made until now is sent
	stepSticks // the peer reads nothing, or reads again
	stepReads  // here, as what follows
	stepWrites
	stepCloses
	stepDeadline
	stepSleeps
	stepLeaves
	stepKinds
)

// frameSeeds are sequences that a fuzzer finds late.
var frameSeeds = []string{
	"\x00\x00\x00\x08\x00\x00\x0a\x00\x05\x01\x00\x05\x08\x00\x07\x0b\x00\x06\x02\x00\x02\x08\x00\x00\x03\x00\x00\x08\x00\x00\x0c\x00\x01", // a stream that is well
	"\x00\x00\x00\x08\x00\x00\x01\x00\x07\x08\x00\x00\x0a\x00\x07\x0a\x00\x07\x0a\x00\x07\x0a\x00\x07\x01\x00\x07\x08\x00\x00\x04\x00\x00\x08\x00\x00",
	"\x00\x00\x00\x08\x00\x00\x0b\x00\x07\x0b\x00\x07\x09\x00\x00\x02\x00\x04\x08\x00\x00\x0e\x00\x02\x0c\x00\x01\x0e\x00\x03", // stuck while much is written
	"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x08\x00\x03\x06\x00\x00\x06\x01\x05\x06\x02\x00\x08\x00\x09\x0c\x00\x01\x01\x00\x05\x08\x00\x00\x04\x01\x00\x08\x00\x00",
	"\x00\x00\x00\x08\x00\x00\x0a\x00\x05\x0d\x00\x01\x0e\x00\x01\x0b\x00\x07\x0b\x00\x07\x0d\x00\x04\x0e\x00\x01\x0f\x00\x00",
	"\x00\x00\x00\x08\x00\x00\x0c\x00\x00\x03\x00\x00\x01\x00\x03\x08\x00\x00\x0a\x00\x03\x07\x00\x03\x08\x00\x00", // data behind the end, and a stream opened twice
	"\x00\x00\x00\x08\x00\x00\x01\x00\x05\x0a\x80\x06\x08\x00\x13\x0c\x00\x01\x08\x00\x00\x07\x00\x05\x08\x00\x01",
	"010800107Z01102",          // a frame as large as the window, of which the beginning is read before the rest has come
	"00070X000000100,00,01000", // both ways are closed, one after the other
	"\x05\x00\x00\x05\x01\x00\x09\x00\x00\x05\x02\x00\x08\x00\x00\x0e\x00\x03\x07\x00\x06\x08\x00\x00",
}

var (
	sizes   = []int{0, 1, 11, 100, 2 << 10, 5 << 10, 64 << 10, 300 << 10}
	rooms   = []uint32{0, 1, 1000, firstWindow, MaxWindow, math.MaxUint32}
	lengths = []time.Duration{0, time.Millisecond, time.Second, Silence - time.Second, 3 * Silence}
)

// call is a method of a stream that was called.
type call struct {
	left int  // bytes that are still to be read or written
	late bool // it began when the stream was closed
	done bool
	err  error
}

// modelled is a stream as it has to be.
type modelled struct {
	id uint32
	s  *stream // nil until it was accepted

	sent, read    int64 // by the peer, and by calls here
	used          int64 // of what the peer may send
	written       int64
	may           int64 // that the end may write in all
	ends, reset   bool  // said by the peer
	closed, quits bool  // here, all of it or what is written
	reading       []*call
	writing       *call
	reads, writes time.Time   // deadlines
	had           []time.Time // deadlines since the last check
	unknown       bool        // the peer has broken its rules: nothing is said of its bytes
	mixed         bool        // several have read at one time
	vain          bool        // the peer has sent to a stream that was closed, and did not know
}

// gone reports whether the end has forgotten the stream.
func (m *modelled) gone() bool { return m.reset || (m.ends || m.closed) && m.quits }

// frames is a run of FuzzFrames.
type frames struct {
	t    *testing.T
	node bool
	end  *Tunnel
	peer *peer

	streams []*modelled
	next    uint32 // number of a stream that the peer opens
	made    []byte // by the peer and not sent yet
	then    []func()
	stuck   bool
	over    bool // the tunnel has ended, or has to
	lies    bool // what the peer sends is no sequence of frames any more
	asked   uint32
	atOnce  bool // steps are done at one time: none waits for what those before it do

	mu sync.Mutex // of what calls change
}

func newFrames(t *testing.T, node bool) *frames {
	end, p := withPeer(t, node)
	synctest.Wait()
	end.way.Store(int64(time.Second)) // windows grow
	return &frames{t: t, node: node, end: end, peer: p, next: 1}
}

// close has nothing left.
func (f *frames) close() {
	f.peer.stick(false)
	_ = f.end.Close()
	f.peer.close()
}

func playFrames(t *testing.T, node bool, steps []byte) {
	f := newFrames(t, node)
	defer f.close()
	for n := 0; len(steps) >= 3 && n < 120 && !t.Failed(); n, steps = n+1, steps[3:] {
		f.step(steps[0]%stepKinds, int(steps[1]), int(steps[2]))
		f.check()
	}
	f.last()
}

// last checks all once more, and ends the tunnel.
func (f *frames) last() {
	if f.t.Failed() {
		return
	}
	f.flush(0)
	f.stick(false)
	f.check()
	f.finish()
}

// settle waits until nothing moves.
func (f *frames) settle() {
	if !f.atOnce {
		synctest.Wait()
	}
}

// TestFrames_AtOnce plays events that meet: some steps lead to a state, and then several are done at one time.
func TestFrames_AtOnce(t *testing.T) {
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) {
			defer logSeed(t, seed)
			random := rand.New(rand.NewPCG(seed, 1))
			f := newFrames(t, seed%2 == 0)
			defer f.close()
			some := func(kinds ...byte) {
				f.step(kinds[random.IntN(len(kinds))], random.IntN(256), random.IntN(256))
			}
			for range 1 + random.IntN(3) {
				some(stepOpens)
			}
			f.flush(0)
			f.check()
			for range 1 + random.IntN(6) {
				for range random.IntN(8) {
					some(stepSends, stepRoom, stepReads, stepReads, stepWrites, stepWrites, stepDeadline, stepFlush, stepSticks)
					f.check()
				}
				f.atOnce = true
				for range 2 + random.IntN(3) {
					some(stepSends, stepRoom, stepEnds, stepResets, stepReads, stepWrites, stepCloses, stepDeadline, stepOpens, stepLeaves)
					if random.IntN(2) == 0 {
						f.flush(0)
					}
				}
				f.flush(0)
				f.atOnce = false
				f.check()
				if t.Failed() {
					break
				}
			}
			f.last()
		})
	}
}

func logSeed(t *testing.T, seed uint64) {
	if t.Failed() {
		t.Logf("with the seed %d", seed)
	}
}

// TestFrames_AtRandom plays sequences that are longer than those a fuzzer makes.
func TestFrames_AtRandom(t *testing.T) {
	for seed := range seeds {
		random := rand.New(rand.NewPCG(seed, 2))
		steps := make([]byte, 3*random.IntN(120))
		for i := range steps {
			steps[i] = byte(random.Uint32())
			if kind := steps[i] % stepKinds; i%3 == 0 && (kind == stepBreaks || kind == stepLeaves) && random.IntN(10) > 0 {
				steps[i] = stepFlush
			}
		}
		synctest.Test(t, func(t *testing.T) {
			defer logSeed(t, seed)
			playFrames(t, seed%2 == 0, steps)
		})
	}
}

// How many sequences are played, and with which they begin: that of a failure is played again with
// -frames.first SEED -frames.runs 1.
var (
	runs  = flag.Uint64("frames.runs", 0, "sequences that each of TestFrames_AtOnce and TestFrames_AtRandom plays; 0 for as many as the tier has")
	first = flag.Uint64("frames.first", 0, "the seed of the first one")
)

// seeds gives those of the sequences to play.
func seeds(yield func(uint64) bool) {
	n := *runs
	switch {
	case n > 0:
	case agentcache.IsLong():
		n = 20_000
	default:
		n = uint64(agentcache.Sequences(500))
	}
	for seed := *first; seed < *first+n && yield(seed); seed++ {
	}
}

// pick returns a stream, nil if there is none.
func (f *frames) pick(i int) *modelled {
	if len(f.streams) == 0 {
		return nil
	}
	return f.streams[i%len(f.streams)]
}

func (f *frames) step(kind byte, a, b int) {
	m := f.pick(a & 127)
	switch kind {
	case stepOpens:
		f.opens()
	case stepAsks:
		f.asked++
		id := f.asked
		f.make(header{kind: kindPing, flags: flagOpens, length: id}, nil, func() { f.asked = max(f.asked, id) })
	case stepStrays:
		f.strays(a, b)
	case stepBreaks:
		f.breaks(m, b)
	case stepFlush:
		f.flush(b)
	case stepSticks:
		f.stick(!f.stuck)
	case stepSleeps:
		time.Sleep(lengths[b%len(lengths)])
		if f.stuck || f.lies { // it may not have answered for too long
			f.stick(false)
			synctest.Wait()
			f.over = f.over || closed(f.end.Done())
		}
	case stepLeaves:
		if b%8 == 0 {
			f.over = true
			f.do(func() { _ = f.end.Close() })
		}
	default:
		if m != nil && !f.over {
			f.stepOf(m, kind, a, b)
		}
	}
}

// stepOf does what is done with a stream.
func (f *frames) stepOf(m *modelled, kind byte, a, b int) {
	switch kind {
	case stepSends:
		f.sends(m, b)
	case stepRoom:
		room := rooms[b%len(rooms)]
		f.allow(m.id, int64(room))
		f.make(header{kind: kindWindow, stream: m.id, length: room}, nil, func() { m.may += int64(room) })
	case stepEnds:
		f.make(header{kind: byte(b % 2), flags: flagEnds, stream: m.id}, nil, func() { m.ends = true })
	case stepResets:
		f.make(header{kind: byte(b % 2), flags: flagResets, stream: m.id}, nil, func() { m.reset = true })
	case stepReads:
		if m.s != nil && (len(m.reading) == 0 || f.atOnce && len(m.reading) < 3) {
			f.reads(m, sizes[b%len(sizes)])
		}
	case stepWrites:
		if m.s != nil && m.writing == nil {
			f.writes(m, sizes[b%len(sizes)], a > 127)
		}
	case stepCloses:
		switch {
		case m.s == nil:
		case b%2 == 0:
			f.do(func() { _ = m.s.CloseWrite() })
			m.quits = true
		default:
			m.vain = m.vain || !f.atOnce && !f.stuck && m.sent > m.read && !m.gone() && !m.closed && !m.ends
			f.do(func() { _ = m.s.Close() })
			m.closed, m.quits = true, true
		}
	case stepDeadline:
		f.deadline(m, b)
	}
}

// do does something, at once with what follows if that is asked for.
func (f *frames) do(what func()) {
	if !f.atOnce {
		what()
		return
	}
	go what()
}

// make has the peer make a frame. Then says what is so once it was sent.
func (f *frames) make(h header, data []byte, then func()) {
	if f.lies {
		return
	}
	f.made = append(h.append(f.made), data...)
	f.then = append(f.then, then)
}

func (f *frames) opens() {
	if f.node {
		id := f.next
		f.next += 2
		f.make(header{kind: kindWindow, flags: flagOpens, stream: id}, nil, func() {
			if f.over {
				return
			}
			f.streams = append(f.streams, &modelled{id: id, may: firstWindow})
		})
		return
	}
	if f.stuck || f.over { // it waits until it was told of
		return
	}
	c, err := f.end.Open(context.Background())
	if err != nil {
		f.t.Errorf("open: %v", err)
		return
	}
	s := c.(*stream)
	f.streams = append(f.streams, &modelled{id: s.id, s: s, may: firstWindow})
}

// sends has the peer send as much as it may.
func (f *frames) sends(m *modelled, b int) {
	f.flush(0) // what it has sent before counts
	f.settle()
	f.peer.mu.Lock()
	left := f.peer.ofLocked(m.id).opens - m.used
	f.peer.mu.Unlock()
	n := int(min(int64(sizes[b%len(sizes)]), left, 1<<20))
	if m.gone() && !f.atOnce && !f.stuck {
		n = min(sizes[b%len(sizes)], 5<<10) // it is for nobody
	}
	if n < 0 {
		return
	}
	flags := uint16(0)
	if b&128 != 0 {
		flags = flagEnds
	}
	f.make(header{kind: kindData, flags: flags, stream: m.id, length: uint32(n)}, carried(m.id, m.sent, n), func() {
		m.used += int64(n)
		if m.gone() && !f.atOnce {
			m.vain = m.vain || m.closed && !m.ends && !m.reset && n > 0 && flags == 0
			return
		}
		m.unknown = m.unknown || m.ends && n > 0
		m.sent += int64(n)
		m.ends = m.ends || flags != 0
	})
}

// strays has the peer send frames of no stream, with all flags but the one that opens it.
func (f *frames) strays(a, b int) {
	id := uint32(a*2 + 1_000_001)
	switch a % 3 {
	case 1:
		id = 0
	case 2:
		id = uint32(a) * 2
	}
	if a%3 == 2 && !f.node && b%2 == 0 { // a node opens streams, which are refused
		f.make(header{kind: kindWindow, flags: flagOpens, stream: id}, nil, func() {})
		return
	}
	h := header{kind: byte(b % 2), flags: uint16(b) &^ flagOpens, stream: id, length: uint32(b)}
	var data []byte
	if h.kind == kindData {
		data = make([]byte, b)
	}
	f.make(h, data, func() {})
}

// breaks has the peer do what ends the tunnel.
func (f *frames) breaks(m *modelled, b int) {
	f.stick(false)
	f.flush(0)
	synctest.Wait()
	if f.over || f.lies {
		return
	}
	ends := func() { f.over = true }
	switch b % 9 {
	case 0:
		f.made, f.then = append(f.made, 1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0), append(f.then, ends)
	case 1:
		f.make(header{kind: 4 + byte(b)%8, stream: 1}, nil, ends)
	case 2:
		f.make(header{kind: kindAway, length: uint32(b)}, nil, ends)
	case 3:
		if m != nil && f.node && !m.gone() {
			f.make(header{kind: kindWindow, flags: flagOpens, stream: m.id}, nil, ends)
		}
	case 4: // a stream with a number of the other end's
		id := uint32(1_000_001)
		if f.node {
			id--
		}
		f.make(header{kind: kindWindow, flags: flagOpens, stream: id}, nil, ends)
	case 5:
		if m != nil && !m.gone() {
			f.peer.mu.Lock()
			more := f.peer.ofLocked(m.id).opens - m.used + 1
			f.peer.mu.Unlock()
			f.make(header{kind: kindData, stream: m.id, length: uint32(more)}, make([]byte, more), ends)
		}
	case 6:
		f.peer.send(f.peer.message(0x81, []byte("this is text")))
		f.over = true
	case 7: // data that does not come: all that does is part of it
		f.make(header{kind: kindData, stream: 4_000_000_001, length: math.MaxUint32}, nil, func() {})
		defer func() { f.lies = true }()
	case 8:
		f.peer.send(f.peer.message(opBinary, header{kind: kindData, stream: 1, length: 1}.append(nil)[:5]))
		f.peer.cut()
		f.over = true
	}
	f.flush(0)
}

// flush has the peer send what it has made: in one message, in several, or in pieces of one. How says where
// they begin.
func (f *frames) flush(how int) {
	if len(f.made) == 0 || f.over {
		return
	}
	b, op := f.made, byte(opBinary)
	if how > 0 {
		for cut := how; cut < len(b) && cut < 50_000; cut = cut*3 + 1 {
			if how%2 == 0 {
				f.peer.send(f.peer.message(opBinary, b[:cut]))
			} else {
				f.peer.send(f.peer.message(op&^0x80, b[:cut]))
				op = 0x80
			}
			b = b[cut:]
		}
	}
	f.peer.send(f.peer.message(op, b))
	thens := f.then
	f.made, f.then = nil, nil
	f.settle()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, then := range thens {
		then()
	}
}

// allow notes that the end may send more, before it is told.
func (f *frames) allow(id uint32, room int64) {
	f.peer.mu.Lock()
	defer f.peer.mu.Unlock()
	f.peer.ofLocked(id).may += room
}

func (f *frames) stick(on bool) {
	f.stuck = on
	f.peer.stick(on)
}

func (f *frames) deadline(m *modelled, b int) {
	if m.s == nil {
		return
	}
	m.had = append(m.had, m.reads, m.writes)
	at := []time.Time{{}, time.Unix(1, 0), time.Now().Add(time.Second), time.Now().Add(time.Hour)}[b/2%4]
	if b%2 == 0 {
		m.reads = at
		_ = m.s.SetReadDeadline(at)
	} else {
		m.writes = at
		_ = m.s.SetWriteDeadline(at)
	}
}

// gave checks what a read of a stream has given.
func (f *frames) gave(m *modelled, c *call, b []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if want := carried(m.id, m.read, len(b)); !m.unknown && !m.mixed && string(want) != string(b) {
		f.t.Errorf("stream %d: what was read behind the first %d bytes is not what was sent", m.id, m.read)
	}
	m.read += int64(len(b))
	c.left -= len(b)
}

func (f *frames) reads(m *modelled, n int) {
	c := &call{left: n, late: m.closed && !f.atOnce && n > 0}
	f.mu.Lock()
	m.reading = append(m.reading, c)
	m.mixed = m.mixed || len(m.reading) > 1
	f.mu.Unlock()
	go func() {
		b := make([]byte, n)
		n, err := m.s.Read(b)
		f.gave(m, c, b[:n])
		f.mu.Lock()
		defer f.mu.Unlock()
		c.done, c.err = true, err
	}()
}

func (f *frames) writes(m *modelled, n int, from bool) {
	c := &call{left: n}
	m.writing = c
	b := carried(m.id, m.written, n)
	go func() {
		var k int
		var err error
		if from {
			var long int64
			long, err = m.s.ReadFrom(struct{ io.Reader }{&limited{b}})
			k = int(long)
		} else {
			k, err = m.s.Write(b)
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		m.written += int64(k)
		c.left -= k
		c.done, c.err = true, err
	}()
}

// limited gives out what it has.
type limited struct{ b []byte }

// Read implements [io.Reader].
func (l *limited) Read(p []byte) (int, error) {
	if len(l.b) == 0 {
		return 0, io.EOF
	}
	n := copy(p, l.b)
	l.b = l.b[n:]
	return n, nil
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func expired(at time.Time) bool { return !at.IsZero() && !time.Now().Before(at) }

// check compares the tunnel with the model, once nothing moves any more.
func (f *frames) check() {
	synctest.Wait()
	if f.stuck && f.peer.waits() { // it waits for room
		f.stick(false)
		synctest.Wait()
	}
	if f.over != closed(f.end.Done()) {
		f.t.Fatalf("the tunnel has ended: %v (%v); it should have: %v", !f.over, f.end.why(), f.over)
	}
	if f.peer.waits() && !f.over {
		f.t.Fatal("what the peer sends is not taken")
	}
	f.accepts()
	live := 0
	for _, m := range f.streams {
		if !m.gone() {
			live++
		}
		f.checkStream(m)
	}
	if n := f.end.Streams(); f.over && n > 0 || !f.over && !f.stuck && n != live || n > MaxStreams {
		f.t.Fatalf("the end has %d streams, %d are open: %+v", n, live, f.streams)
	}
	f.checkMemory()
	if f.asked > 0 && !f.stuck && !f.over && len(f.made) == 0 && !f.lies {
		f.peer.mu.Lock()
		if !f.peer.pongs[f.asked] {
			f.t.Errorf("the peer has asked, and nothing came")
		}
		f.peer.mu.Unlock()
	}
}

// accepts takes what the peer has opened.
func (f *frames) accepts() {
	for _, m := range f.streams {
		if m.s == nil && !f.over {
			c, err := f.end.Accept()
			if err != nil {
				f.t.Fatal(err)
			}
			if m.s = c.(*stream); m.s.id != m.id {
				f.t.Fatalf("stream %d was accepted, want %d", m.s.id, m.id)
			}
		}
	}
}

// checkStream checks that nobody waits without a reason, that errors have one, and what the peer got.
func (f *frames) checkStream(m *modelled) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.peer.mu.Lock()
	got := *f.peer.ofLocked(m.id)
	f.peer.mu.Unlock()
	ended := f.over || m.reset || m.closed
	waiting := m.reading[:0]
	for _, c := range m.reading {
		switch {
		case c.done && c.err == nil && c.late:
			f.t.Errorf("stream %d: it was read after it was closed", m.id)
		case c.done && c.err != nil && !f.explains(m, c.err, append(m.had, m.reads), m.ends && m.read >= m.sent):
			f.t.Errorf("stream %d: read: %v", m.id, c.err)
		case !c.done && !f.stuck && (ended || m.ends || m.sent > m.read || expired(m.reads)):
			f.t.Errorf("stream %d: a read waits. It has %d bytes of %d, %+v", m.id, m.read, m.sent, *m)
		}
		if !c.done {
			waiting = append(waiting, c)
		}
	}
	m.reading = waiting
	if c := m.writing; c != nil {
		switch {
		case c.done && c.err == nil && c.left > 0:
			f.t.Errorf("stream %d: %d bytes less were written", m.id, c.left)
		case c.done && c.err != nil && !m.quits && !f.explains(m, c.err, append(m.had, m.writes), false):
			f.t.Errorf("stream %d: write: %v", m.id, c.err)
		case !c.done && !f.stuck && (ended || m.quits || got.data < m.may || expired(m.writes)):
			f.t.Errorf("stream %d: a write waits. It has written %d bytes of %d that may be, %+v", m.id, got.data, m.may, *m)
		}
		if c.done {
			m.writing = nil
		}
	}
	m.had = nil
	if f.stuck || f.over || m.s == nil {
		return
	}
	switch {
	case m.vain && !m.ends && !m.reset && !got.reset:
		f.t.Errorf("stream %d: the peer sends, and was not told that nobody reads it", m.id)
	case m.writing == nil && got.data != m.written:
		f.t.Errorf("stream %d: %d bytes were written, %d came", m.id, m.written, got.data)
	case m.quits && !m.reset && !got.ends:
		f.t.Errorf("stream %d: the peer was not told that nothing more is written", m.id)
	case got.ends && !m.quits:
		f.t.Errorf("stream %d: the peer was told that nothing more is written", m.id)
	case !m.gone() && !m.closed && !m.ends && m.sent == m.read && got.opens-m.sent < firstWindow/2:
		f.t.Errorf("stream %d: all was read, and the peer may send %d bytes", m.id, got.opens-m.sent)
	case got.opens-m.read > MaxWindow:
		f.t.Errorf("stream %d: the peer may send %d bytes more than were read", m.id, got.opens-m.read)
	}
}

// explains reports whether there is a reason for an error.
func (f *frames) explains(m *modelled, err error, deadlines []time.Time, ended bool) bool {
	switch {
	case f.over: // why is told as it may be
		return true
	case errors.Is(err, os.ErrDeadlineExceeded):
		return slices.ContainsFunc(deadlines, expired)
	case errors.Is(err, net.ErrClosed):
		return m.closed
	case errors.Is(err, errReset):
		return m.reset
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return ended || m.ends && m.unknown
	}
	return false
}

// checkMemory checks the bounds.
func (f *frames) checkMemory() {
	grown := 0
	f.end.mu.Lock()
	for _, s := range f.end.streams {
		s.mu.Lock()
		grown += s.window - firstWindow
		if s.may < 0 || s.may+s.got.size > s.window || s.window > MaxWindow {
			f.t.Errorf("stream %d has %d bytes, in a window of %d of which %d may come", s.id, s.got.size, s.window, s.may)
		}
		s.mu.Unlock()
	}
	f.end.mu.Unlock()
	f.end.growth.mu.Lock()
	if left := f.end.growth.left; !f.over && left != maxGrowth-grown || left < 0 || left > maxGrowth {
		f.t.Errorf("windows have grown by %d, and may by %d more", grown, left)
	}
	f.end.growth.mu.Unlock()
	f.end.out.mu.Lock()
	if p := f.end.out.pending; p != nil && len(*p) > 2*mostPending {
		f.t.Errorf("%d bytes wait to be written", len(*p))
	}
	f.end.out.mu.Unlock()
}

// finish ends the tunnel, from one side or the other. Nothing may be left: synctest says what is.
func (f *frames) finish() {
	if len(f.streams)%2 == 0 {
		f.peer.cut()
		synctest.Wait()
	}
	_ = f.end.Close()
	f.over = true
	f.check()
	for _, m := range f.streams {
		if len(m.reading) > 0 || m.writing != nil {
			f.t.Errorf("stream %d: somebody waits", m.id)
		}
		if m.s == nil {
			continue
		}
		if _, err := m.s.Write([]byte("x")); err == nil {
			f.t.Error("a stream takes something after the end of the tunnel")
		}
		if _, err := io.Copy(io.Discard, struct{ io.Reader }{m.s}); err == nil && !m.ends {
			f.t.Error("a stream has ended as if all had come")
		}
	}
	if _, err := f.end.Open(context.Background()); err == nil {
		f.t.Error("a tunnel that has ended opens streams")
	}
}
