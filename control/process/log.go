package process

import (
	"bytes"
	"slices"
	"sync"
	"time"
)

// Stream names where output came from.
type Stream string

// The streams. A process with a terminal has one only.
const (
	Stdout Stream = "stdout"
	Stderr Stream = "stderr"
	PTY    Stream = "pty"
)

const (
	// chunkBytes is the most that lies in one chunk.
	chunkBytes = 32 << 10
	// chunkCost is what a chunk counts beside its bytes.
	chunkCost = 96
	// together is how far apart in time output may be in one chunk.
	together = 50 * time.Millisecond
)

// Chunk is a piece of output. Data must not be changed.
type Chunk struct {
	Position uint64 // of its first byte, among the bytes of all streams
	Time     time.Time
	Stream   Stream
	Data     []byte
}

// End is the position behind the chunk.
func (c Chunk) End() uint64 { return c.Position + uint64(len(c.Data)) }

// log keeps the end of what a process wrote, on whatever stream, in the order
// in which it was read. Writing never waits for readers; they have no queue.
type log struct {
	mu     sync.Mutex
	chunks []piece
	cost   int64         // of chunks
	limit  int64         // of cost
	next   uint64        // the position of the next byte
	ended  bool          // nothing will be written any more
	more   chan struct{} // closed at the next write; nil when nobody waits
}

// piece is a chunk of the log.
type piece struct {
	Chunk
	last time.Time // when something was written to it last
}

func newLog(limit int64) *log { return &log{limit: limit} }

// write appends what was read from a stream. It copies p.
func (l *log) write(s Stream, p []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if n := len(l.chunks); n > 0 {
		last := &l.chunks[n-1]
		if last.Stream == s && now.Sub(last.Time) < together {
			// Readers of the chunk have what is there only, not what is added.
			k := min(chunkBytes-len(last.Data), len(p))
			last.Data = append(last.Data, p[:k]...)
			if k > 0 {
				last.last = now
			}
			l.cost += int64(k)
			l.next += uint64(k)
			p = p[k:]
		}
	}
	for len(p) > 0 {
		k := min(chunkBytes, len(p))
		l.chunks = append(l.chunks, piece{Chunk{l.next, now, s, bytes.Clone(p[:k])}, now})
		l.cost += int64(k) + chunkCost
		l.next += uint64(k)
		p = p[k:]
	}
	drop := 0
	for l.cost > l.limit && drop < len(l.chunks)-1 {
		l.cost -= int64(len(l.chunks[drop].Data)) + chunkCost
		l.chunks[drop] = piece{}
		drop++
	}
	l.chunks = l.chunks[drop:]
	l.wakeLocked()
}

// end says that nothing more is written.
func (l *log) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	l.wakeLocked()
}

func (l *log) wakeLocked() {
	if l.more != nil {
		close(l.more)
		l.more = nil
	}
}

func (l *log) firstLocked() uint64 {
	if len(l.chunks) == 0 {
		return l.next
	}
	return l.chunks[0].Position
}

// Part is what a reader gets of a log.
type Part struct {
	Chunks []Chunk
	// Missed is how many bytes between where the reader was and the first chunk
	// the log has let go.
	Missed uint64
	Next   uint64          // the position to continue from
	More   <-chan struct{} // closed when there is more than this
	Ended  bool            // there will be no more
}

// read returns what follows a position, about most bytes of it.
func (l *log) read(after uint64, most int) Part {
	l.mu.Lock()
	defer l.mu.Unlock()
	// A position of the future is one of another process with the same id.
	p := Part{Next: min(after, l.next)}
	if first := l.firstLocked(); p.Next < first {
		p.Missed, p.Next = first-p.Next, first
	}
	i, _ := slices.BinarySearchFunc(l.chunks, p.Next, func(c piece, at uint64) int {
		if c.End() <= at {
			return -1
		}
		return 1
	})
	for ; i < len(l.chunks) && most > 0; i++ {
		c := l.chunks[i].Chunk
		if c.Position < p.Next {
			c.Data, c.Position = c.Data[p.Next-c.Position:], p.Next
		}
		c.Data = slices.Clip(c.Data)
		p.Chunks = append(p.Chunks, c)
		p.Next = c.End()
		most -= len(c.Data)
	}
	switch {
	case p.Next < l.next:
		p.More = ready
	case l.ended:
		p.Ended = true
	default:
		if l.more == nil {
			l.more = make(chan struct{})
		}
		p.More = l.more
	}
	return p
}

// ready is always closed.
var ready = func() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// bounds returns the position of the first byte that is kept and that of the
// next one.
func (l *log) bounds() (first, next uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.firstLocked(), l.next
}

// tail returns the position at which the last lines of some streams begin; nil
// is all streams.
func (l *log) tail(lines int, of []Stream) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if lines <= 0 {
		return l.next
	}
	last := true // the line end that ends the last line begins no other
	for _, c := range slices.Backward(l.chunks) {
		if len(of) > 0 && !slices.Contains(of, c.Stream) {
			continue
		}
		for i := len(c.Data) - 1; i >= 0; i-- {
			if c.Data[i] == '\n' && !last {
				if lines--; lines <= 0 {
					return c.Position + uint64(i) + 1
				}
			}
			last = false
		}
	}
	return l.firstLocked()
}

// since returns the position of the first chunk to which something was written at or after t. What was written before
// that, it has for as long as output is kept together.
func (l *log) since(t time.Time) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.chunks {
		if !c.last.Before(t) {
			return c.Position
		}
	}
	return l.next
}
