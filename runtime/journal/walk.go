package journal

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
)

const window = 256 << 10 // bytes that a walk reads at once

// part is a piece of a file: a block, or bytes that cannot be read as one.
type part struct {
	off, n  int64
	header         // of a block, also of one whose payload is damaged
	payload []byte // as it is in the file; valid until the walk's next step

	bad   string // why the bytes cannot be used, "" for a block that can
	known bool   // the header can be read: which entries are lost is known
	gap   bool   // of a block: entries before it, and behind the block before, are not in the file
}

// lines appends the lines of a block of entries, checked; of another block what
// it holds.
func (p *part) lines(dst []byte) ([]byte, error) {
	start := len(dst)
	dst, err := p.appendPayload(dst, p.payload)
	if err == nil && p.kind == entries {
		err = checkLines(dst[start:], &p.header)
	}
	return dst, err
}

// walk goes through a file block by block. Damage is a part like others: behind
// it the walk goes on with the next block that can be read.
type walk struct {
	f   io.ReaderAt
	end int64
	off int64

	prev   header // of the block before; its kind is 0 when there is none
	unread bool   // bytes behind that one cannot be read as a block

	buf []byte // the file's bytes from at on
	at  int64

	room func(bytes int) error // asked before a block larger than a window is read; nil asks nobody
}

// letGo gives the memory of a large block back. Its payload is no longer valid.
func (w *walk) letGo() {
	if cap(w.buf) > 2*window {
		w.buf = nil
	}
}

// bytes returns n bytes at off, fewer at the end.
func (w *walk) bytes(off, n int64) ([]byte, error) {
	n = min(n, w.end-off)
	if off < w.at || off+n > w.at+int64(len(w.buf)) {
		size := min(max(n, window), w.end-off)
		if int64(cap(w.buf)) < size {
			w.buf = make([]byte, size)
		}
		w.buf = w.buf[:size]
		w.at = off
		if err := readZeros(w.f, w.buf, off); err != nil {
			w.buf = w.buf[:0]
			return nil, err
		}
	}
	from := off - w.at
	return w.buf[from : from+n], nil
}

// readZeros reads all of b. Where the file was cut off it reads zeros: that is
// damage like other damage.
func readZeros(f io.ReaderAt, b []byte, off int64) error {
	n, err := f.ReadAt(b, off)
	if err != nil && err != io.EOF {
		return fmt.Errorf("read journal: %w", err)
	}
	clear(b[n:])
	return nil
}

// next returns the next part, io.EOF after the last.
func (w *walk) next() (part, error) {
	p, err := w.step()
	switch {
	case err != nil:
	case !p.known:
		w.unread = true
	default:
		// The bytes between the blocks may have been entries, blocks are gone, or the machine was stopped while numbers were given.
		p.gap = p.first > w.prev.next() && (w.unread || p.cutOff(&w.prev) || p.misses(&w.prev))
		w.prev, w.unread = p.header, false
	}
	return p, err
}

func (w *walk) step() (part, error) {
	if w.off >= w.end {
		return part{}, io.EOF
	}
	b, err := w.bytes(w.off, headerSize)
	if err != nil {
		return part{}, err
	}
	p := part{off: w.off}
	h, ok := readHeader(b)
	if ok && h.length() <= w.end-w.off {
		p.header, p.n, p.known = h, h.length(), true
		if p.n > window && w.room != nil {
			// As it is in the file, for a moment, and as it is read.
			if err := w.room(int(p.n) + int(p.raw)); err != nil {
				return part{}, err
			}
		}
		if b, err = w.bytes(p.off, p.n); err != nil {
			return part{}, err
		}
		p.payload = b[headerSize:]
		if crc32.Checksum(p.payload, castagnoli) != h.sum {
			p.bad = "its checksum is wrong"
			// Perhaps it is half a block, and others were written behind it.
			at, _, err := findBlock(w.f, p.off+1, p.off+p.n, w.end)
			if err != nil {
				return part{}, err
			}
			if at >= 0 {
				p.n = at - p.off
			}
		}
		w.off += p.n
		return p, nil
	}
	p.bad = "this is no block"
	if ok {
		p.bad = "the file ends within the block"
	}
	at, _, err := findBlock(w.f, w.off+1, w.end, w.end)
	if err != nil {
		return part{}, err
	}
	if at < 0 {
		at = w.end
	}
	p.n = at - p.off
	w.off = at
	return p, nil
}

// findBlock returns the first block that begins in [from, to), -1 when there is
// none. Its payload may be damaged, but not its header.
func findBlock(f io.ReaderAt, from, to, end int64) (int64, header, error) {
	buf := make([]byte, 4<<10)
	for from < to {
		n := min(int64(len(buf)), end-from)
		if err := readZeros(f, buf[:n], from); err != nil {
			return -1, header{}, err
		}
		for i := 0; ; i++ {
			k := bytes.Index(buf[i:n], []byte(blockMark))
			if k < 0 {
				break
			}
			i += k
			if from+int64(i) >= to {
				return -1, header{}, nil
			}
			if n-int64(i) < headerSize && from+n < end {
				break // the next read has it whole
			}
			if h, ok := readHeader(buf[i:n]); ok {
				return from + int64(i), h, nil
			}
		}
		if from+n >= end {
			break
		}
		from += n - headerSize + 1
		if len(buf) < window {
			buf = make([]byte, 4*len(buf))
		}
	}
	return -1, header{}, nil
}

// lastBlock returns the last block's place, -1 when there is none.
func lastBlock(f io.ReaderAt, start, end int64) (int64, header, error) {
	for size := int64(4 << 10); ; size *= 8 {
		from := max(start, end-size)
		found, last := int64(-1), header{}
		for at := from; ; {
			off, h, err := findBlock(f, at, end, end)
			if err != nil {
				return -1, header{}, err
			}
			if off < 0 {
				break
			}
			found, last = off, h
			at = off + headerSize // and not behind the block: perhaps it is half a one
		}
		if found >= 0 || from == start {
			return found, last, nil
		}
	}
}

// seek returns where to begin to read the entries after a number: a block, or
// start, with no later one that begins before them and is far away.
func seek(f io.ReaderAt, start, end int64, after uint64) (int64, error) {
	lo, hi := start, end
	for hi-lo > 4<<10 {
		mid := lo + (hi-lo)/2
		off, h, err := findBlock(f, mid, hi, end)
		if err != nil {
			return 0, err
		}
		if off < 0 || h.first > after+1 {
			hi = mid
			continue
		}
		lo = off
	}
	return lo, nil
}

// tail says how a file ends.
type tail struct {
	start   int64  // of the blocks
	size    int64  // where the next block goes
	closed  bool   // it ends in good order
	cut     bool   // what stands there was written in part, and nobody has seen it
	last    uint64 // newest entry
	skipped uint64 // numbers before it that no entry had
	next    uint64 // number of the next entry
	bound   uint64 // numbers up to it are reserved
	boot    uint32 // the machine's run in which the last block was written; 0 when something behind it cannot be read
}

// readTail looks at the end of a file, which costs the same however large it is.
func readTail(f file) (t tail, err error) {
	end, err := f.Size()
	if err != nil {
		return t, err
	}
	head := make([]byte, min(end, int64(len(versionLine))+20))
	if _, err := f.ReadAt(head, 0); err != nil && err != io.EOF {
		return t, err
	}
	if t.start, err = dataStart(head); err != nil {
		return t, err
	}
	if bytes.HasPrefix([]byte(versionLine), head) && end <= int64(len(versionLine)) { // it was just made
		return tail{next: 1, cut: end > 0}, nil
	}
	off, h, err := lastBlock(f, t.start, end)
	if err != nil {
		return t, err
	}
	rest := off + h.length() // where the last block ends
	switch {
	case off < 0 && t.start == 0 && len(bytes.Trim(head, "\x00")) > 0:
		return t, fmt.Errorf("%w: it holds nothing that this version can read", ErrFormat)
	case off < 0:
		if half, err := torn(f, t.start, end); err != nil || half {
			return tail{next: 1, cut: true}, err
		}
		// Not one block is left, or a power cut has left zeros where the first one
		// was to be: how many entries there were can only be bounded.
		t.size, t.next = end, 64*uint64(end)+1<<20
		return t, nil
	case rest > end: // the last block is torn: what counts is the one before
		return beforeTorn(f, t, off, h)
	}
	return endsWith(f, t, off, h, end)
}

// beforeTorn is readTail for a file whose last block, with the header half, is
// not whole.
func beforeTorn(f file, t tail, at int64, half header) (tail, error) {
	off, h, err := lastBlock(f, t.start, at)
	if err != nil {
		return t, err
	}
	t.cut = true
	if off < 0 && at == t.start {
		return tail{next: 1, cut: true}, nil
	}
	if off < 0 {
		h = header{kind: entries, first: 1}
		off = at // nothing before it can be read
	}
	t.bound = half.bound
	return endsWith(f, t, off, h, at)
}

// endsWith is readTail for a file whose last whole block is at off. What is reserved
// already is in t.
func endsWith(f file, t tail, off int64, h header, end int64) (tail, error) {
	rest := min(off+h.length(), end)
	half, err := torn(f, rest, end)
	if err != nil {
		return t, err
	}
	if half {
		end, t.cut = rest, true
	}
	t.size, t.last, t.bound, t.skipped = end, h.last(), max(t.bound, h.bound), h.skipped
	if h.kind == closed && end == rest && !t.cut {
		if t.next, t.closed, err = skipsTo(f, off, h); err != nil || t.closed {
			return t, err
		}
	}
	if end == rest {
		t.boot = h.boot
	}
	// Nobody knows whether later entries were written, and lost: their numbers
	// are not given again.
	t.next = max(t.bound, t.last) + 1
	if end != rest {
		t.next += reservation(t.next) // the damage may have been a later reservation
	}
	return t, nil
}

// markFor is the payload of a closing mark behind which the entry with a number comes next, where the one next to it would be first.
func markFor(first, next uint64) []byte {
	if next == first {
		return nil
	}
	return binary.LittleEndian.AppendUint64(nil, next)
}

// longestMark is how many bytes a closing mark takes at most.
const longestMark = headerSize + 8

// skipsTo returns the number of the next entry, which a closing mark has for a payload behind which some are skipped. ok is
// false for one that cannot be read.
func skipsTo(f io.ReaderAt, off int64, h header) (next uint64, ok bool, err error) {
	if h.stored == 0 {
		return h.first, true, nil
	}
	w := &walk{f: f, off: off, end: off + h.length()}
	p, err := w.next()
	if err != nil || p.bad != "" || len(p.payload) != 8 {
		return 0, false, err
	}
	return max(h.first, binary.LittleEndian.Uint64(p.payload)), true, nil
}

// torn reports whether the bytes from off to the end are the beginning of a
// block: a write that did not come to its end.
func torn(f io.ReaderAt, off, end int64) (bool, error) {
	if off >= end {
		return false, nil
	}
	b := make([]byte, min(end-off, headerSize))
	if err := readZeros(f, b, off); err != nil {
		return false, err
	}
	if h, ok := readHeader(b); ok {
		return h.length() > end-off, nil
	}
	return len(b) < headerSize && bytes.HasPrefix(b, []byte(blockMark)[:min(len(b), len(blockMark))]), nil
}

// reservation is how many numbers are reserved at once when the next is n: few
// in short logs, so that a crash skips few, and ever more in long ones.
func reservation(n uint64) uint64 { return min(max(n, 1<<10), 1<<22) }
