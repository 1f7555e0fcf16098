package parcel

import (
	"encoding/binary"
	"io"
)

// Passing counts the content of a session's file that passes, without unpacking it: each
// frame of Zstandard says how much is in it. done is told how much has passed. A file that
// says nothing passes uncounted.
func Passing(r io.Reader, done func(bytes int64)) io.Reader {
	return &passing{r: r, told: done, next: (*passing).frame, size: 4}
}

// A frame is its head, blocks, and a checksum (RFC 8878, 3.1.1).
const (
	zstdMagic     = 0xFD2FB528
	skippable     = 0x184D2A50 // and the 15 numbers behind it
	zstdBlockHead = 3
)

type passing struct {
	r    io.Reader
	told func(int64)
	n    int64 // of content

	skip int64 // bytes that pass before the head
	head []byte
	size int                           // of the head
	next func(p *passing, head []byte) // reads the head; nil when nothing is understood any more
	tail int64                         // bytes behind the last block of the frame
}

// Read implements io.Reader.
func (p *passing) Read(b []byte) (int, error) {
	n, err := p.r.Read(b)
	for b := b[:n]; len(b) > 0 && p.next != nil; {
		if k := min(p.skip, int64(len(b))); k > 0 {
			p.skip, b = p.skip-k, b[k:]
			continue
		}
		k := min(p.size-len(p.head), len(b))
		p.head, b = append(p.head, b[:k]...), b[k:]
		if len(p.head) == p.size {
			head := p.head
			p.head = p.head[:0]
			p.next(p, head)
		}
	}
	p.told(p.n)
	return n, err
}

// frame reads the number with which a frame begins.
func (p *passing) frame(head []byte) {
	switch magic := binary.LittleEndian.Uint32(head); {
	case magic == zstdMagic:
		p.next, p.size = (*passing).describe, 1
	case magic&^15 == skippable:
		p.next, p.size = (*passing).pass, 4
	default:
		p.next = nil
	}
}

// pass reads how long a frame is that has no content.
func (p *passing) pass(head []byte) {
	p.skip, p.next, p.size = int64(binary.LittleEndian.Uint32(head)), (*passing).frame, 4
}

// describe reads the byte that says what else is in the head of a frame: the window, the
// id of a dictionary, the size of the content.
func (p *passing) describe(head []byte) {
	d := head[0]
	single := d>>5&1 == 1
	p.skip, p.tail = []int64{0, 1, 2, 4}[d&3], 4*int64(d>>2&1)
	if !single {
		p.skip++
	}
	p.next, p.size = (*passing).content, []int{0, 2, 4, 8}[d>>6]
	if single && p.size == 0 {
		p.size = 1
	}
	if p.size == 0 {
		p.next, p.size = (*passing).block, zstdBlockHead
	}
}

// content reads how much is in a frame.
func (p *passing) content(head []byte) {
	switch len(head) {
	case 1:
		p.n += int64(head[0])
	case 2:
		p.n += int64(binary.LittleEndian.Uint16(head)) + 256
	case 4:
		p.n += int64(binary.LittleEndian.Uint32(head))
	default:
		p.n += int64(min(binary.LittleEndian.Uint64(head), 1<<40))
	}
	p.next, p.size = (*passing).block, zstdBlockHead
}

// block reads the head of a block: whether it is the last, its kind and its size.
func (p *passing) block(head []byte) {
	h := uint32(head[0]) | uint32(head[1])<<8 | uint32(head[2])<<16
	p.skip = int64(h >> 3)
	if h>>1&3 == 1 { // one byte, so often
		p.skip = 1
	}
	if h&1 == 1 {
		p.skip, p.next, p.size = p.skip+p.tail, (*passing).frame, 4
	}
}
