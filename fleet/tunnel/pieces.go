package tunnel

import (
	"math/bits"
	"sync"
)

const (
	leastPiece   = 512
	largestPiece = 64 << 10
)

// piece is a part of what has come and was not read. Its size is a power of two.
type piece struct {
	b          []byte
	begin, end int // of what it has
	next       *piece
}

// spare are pieces that nobody uses, by size.
var spare [8]sync.Pool

// newPiece returns an empty piece with room for n bytes, or for largestPiece.
func newPiece(n int) *piece {
	class := bits.Len(uint(max(n, leastPiece)-1)) - bits.Len(leastPiece-1)
	class = min(class, len(spare)-1)
	if p, ok := spare[class].Get().(*piece); ok {
		return p
	}
	return &piece{b: make([]byte, leastPiece<<class)}
}

// free gives back a piece of which nothing is needed.
func (p *piece) free() {
	p.begin, p.end, p.next = 0, 0, nil
	spare[bits.Len(uint(len(p.b)-1))-bits.Len(leastPiece-1)].Put(p)
}

// pieces is what has come and was not read, in order. They take little more than what is in them: only
// the last one has room left. The zero value has none.
type pieces struct {
	first, last *piece
	size        int // bytes
}

// push takes a piece behind the others.
func (q *pieces) push(p *piece) {
	if q.last == nil {
		q.first = p
	} else {
		q.last.next = p
	}
	q.last = p
	q.size += p.end - p.begin
}

// add copies b behind what there is. The more waits the larger is what it waits in.
func (q *pieces) add(b []byte) {
	for len(b) > 0 {
		p := q.last
		if p == nil || p.end == len(p.b) {
			p = newPiece(max(len(b), q.size))
			q.push(p)
		}
		n := copy(p.b[p.end:], b)
		p.end += n
		q.size += n
		b = b[n:]
	}
}

// read moves some of it into b.
func (q *pieces) read(b []byte) (n int) {
	for n < len(b) && q.first != nil {
		p := q.first
		k := copy(b[n:], p.b[p.begin:p.end])
		p.begin += k
		n += k
		if p.begin == p.end {
			if q.first = p.next; q.first == nil {
				q.last = nil
			}
			p.free()
		}
	}
	q.size -= n
	return n
}

// clear lets go of all of it.
func (q *pieces) clear() {
	for p := q.first; p != nil; {
		next := p.next
		p.free()
		p = next
	}
	*q = pieces{}
}
