package journal

import "sync"

const (
	minBlock = 1 << 10
	maxBlock = 128 << 10
	maxBatch = 80 << 10 // what is appended between two flushes, but for large entries
)

// block is a run of entries in memory, numbered one by one. buf is never
// reallocated, so entries can refer to it while later ones are appended.
type block struct {
	first uint64
	buf   []byte
	refs  []ref
	saved struct{ bytes, entries int } // of buf and refs that are in the file

	// Guarded by the log's mu. A block is used again when no log holds it and
	// no cursor has given out entries of it.
	pins int
	dead bool // the log holds it no more
}

// spare holds blocks of maxBlock bytes for further use: a burst then keeps to
// memory that the caches know.
var spare = sync.Pool{}

func newBlock(first uint64, size int) *block {
	if size == maxBlock {
		if b, ok := spare.Get().(*block); ok {
			*b = block{first: first, buf: b.buf[:0], refs: b.refs[:0]}
			return b
		}
	}
	return &block{first: first, buf: make([]byte, 0, size)}
}

// retire gives up the log's hold on the block.
func (b *block) retire() {
	b.dead = true
	b.reuse()
}

func (b *block) reuse() {
	if b.dead && b.pins == 0 && cap(b.buf) == maxBlock {
		spare.Put(b)
	}
}

// whole reports whether the file has all of the block.
func (b *block) whole() bool { return b.saved.bytes == len(b.buf) }

// ref is where an entry is: its line is buf[line:end] and lineEnd, its frame
// buf[frame:end].
type ref struct {
	to               Recipient
	line, frame, end uint32
	kind             Kind
}

func (b *block) entry(i int) Entry {
	r := b.refs[i]
	return Entry{
		Seq: b.first + uint64(i), Kind: r.kind, To: r.to,
		head:  b.buf[r.line:r.frame:r.frame],
		Frame: b.buf[r.frame:r.end:r.end],
	}
}

// roomLocked returns the newest block, with room for need more bytes.
func (l *Log) roomLocked(need int) *block {
	size := minBlock
	if n := len(l.blocks); n > 0 {
		b := l.blocks[n-1]
		room, begins := cap(b.buf)-len(b.buf), b.whole()
		// A batch that fits one block is written with one call.
		if b.first+uint64(len(b.refs)) == l.next && room >= need && (!begins || room >= maxBatch || cap(b.buf) < maxBlock) {
			if begins {
				l.beginLocked(b)
			}
			return b
		}
		size = min(2*cap(b.buf), maxBlock)
	}
	b := newBlock(l.next, max(size, need))
	l.blocks = append(l.blocks, b)
	l.holdLocked(cap(b.buf))
	l.beginLocked(b)
	return b
}

// beginLocked begins a block of the file in one of memory. Its header's place is
// kept before the lines, so that both are written at once.
func (l *Log) beginLocked(b *block) {
	l.unsaved = append(l.unsaved, b)
	b.buf = b.buf[:len(b.buf)+headerSize]
}

// evictLocked keeps the bound: what the file does not have stays.
func (l *Log) evictLocked() { l.dropLocked(l.mayHold(), func(b *block) bool { return b.whole() }) }

// Forget lets the oldest entries of a log without a file go while it holds more than
// keep bytes: those up to seq, which nobody needs any more.
func (l *Log) Forget(seq uint64, keep int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.path == "" && l.held > keep {
		l.dropLocked(keep, func(b *block) bool { return b.first+uint64(len(b.refs)) <= seq+1 })
	}
}

// dropLocked lets the oldest blocks that may go while more than most is held.
func (l *Log) dropLocked(most int, may func(b *block) bool) {
	n := 0
	for l.held > most && n < len(l.blocks)-1 && may(l.blocks[n]) {
		b := l.blocks[n]
		if l.path == "" {
			l.expired = b.first + uint64(len(b.refs)) - 1
		}
		l.holdLocked(-cap(b.buf))
		b.retire()
		l.blocks[n] = nil
		n++
	}
	if n > 0 {
		l.blocks = append(l.blocks[:0], l.blocks[n:]...)
	}
}

// memoryLocked appends to dst the cursor's next entries from memory, up to last or until the
// batch holds limit bytes, and pins their blocks. ok is false when the next
// entry is not in memory.
func (l *Log) memoryLocked(dst []Entry, c *Cursor, last uint64, limit int) (_ []Entry, ok bool) {
	if len(l.blocks) == 0 || l.path != "" && c.after+1 < l.blocks[0].first { // a file has what was not let go
		return dst, false
	}
	i := len(l.blocks) - 1
	for i > 0 && l.blocks[i].first > c.after+1 {
		i-- // readers are near the end, nearly always
	}
	for seq := c.after + 1; i < len(l.blocks); i++ {
		b := l.blocks[i]
		if seq > last || limit <= 0 {
			return dst, true
		}
		b.pins++
		c.pinned = append(c.pinned, b)
		seq = max(seq, b.first) // numbers that no entry has
		for j := int(seq - b.first); j < len(b.refs); j++ {
			if seq > last || limit <= 0 {
				return dst, true
			}
			e := b.entry(j)
			dst = append(dst, e)
			limit -= e.size()
			seq++
		}
	}
	return dst, true
}
