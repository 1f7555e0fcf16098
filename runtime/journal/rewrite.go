package journal

import (
	"fmt"
	"io"
)

// packUpTo is how many bytes of lines small blocks are put together to.
const packUpTo = 64 << 10

// loose reports whether the block's entries would take less together with others, or compressed.
func (h *header) loose() bool {
	return h.kind == entries && (h.raw < packUpTo/2 || h.codec == stored)
}

// writer writes a file anew from parts of others.
type writer struct {
	f    io.WriterAt
	off  int64
	pack bool // put small blocks together

	// copy gives entries that are lost here; see [copied.entries]. It may be nil.
	copy  func(first, last uint64, line func(seq uint64, all bool, line []byte) error) (all bool, err error)
	taken int // entries that it has given

	reserved uint64 // numbers up to it may have been given

	prev  header // of what was written last, with what waits
	open  header // of lines; its kind is 0 when there are none
	lines []byte // of entries that were not written yet
	buf   []byte
}

func (w *writer) write(b []byte) error {
	if _, err := w.f.WriteAt(b, w.off); err != nil {
		return fmt.Errorf("write journal: %w", err)
	}
	w.off += int64(len(b))
	return nil
}

func (w *writer) beginning() error { return w.write([]byte(versionLine)) }

// block writes a block with the payload raw.
func (w *writer) block(h header, raw []byte) error {
	if err := w.flush(); err != nil {
		return err
	}
	w.prev = h
	w.buf = appendBlock(w.buf[:0], h, raw)
	return w.write(w.buf)
}

// flush writes the lines that wait for more.
func (w *writer) flush() error {
	if w.open.kind == 0 {
		return nil
	}
	h := w.open
	w.open.kind = 0
	w.buf = appendBlock(w.buf[:0], h, w.lines)
	w.lines = w.lines[:0]
	return w.write(w.buf)
}

// add writes lines of entries, together with those before if they are small.
func (w *writer) add(h header, lines []byte) error {
	if w.open.kind != 0 && (w.open.last()+1 != h.first || w.open.boot != h.boot || len(w.lines)+len(lines) > packUpTo) {
		if err := w.flush(); err != nil {
			return err
		}
	}
	if w.open.kind == 0 {
		w.open = h
		w.open.count = 0
	}
	w.open.count += h.count
	w.open.bound = h.bound
	w.prev = h
	w.lines = append(w.lines, lines...)
	return nil
}

// part writes a part that can be used.
func (w *writer) part(p *part) error {
	if w.pack && p.loose() {
		lines, err := p.appendPayload(nil, p.payload)
		if err != nil {
			return err
		}
		return w.add(p.header, lines)
	}
	if err := w.flush(); err != nil {
		return err
	}
	w.prev = p.header
	b := make([]byte, headerSize, p.n)
	p.put(b)
	return w.write(append(b, p.payload...))
}

// skipped is how many numbers before one no entry had, as nothing is lost behind what was written last.
func (w *writer) skipped(first uint64) uint64 {
	next := w.prev.next()
	return w.prev.skipped + max(first, next) - next
}

// close writes the closing mark of a file that goes on with a number.
func (w *writer) close(next uint64, boot uint32) error {
	h := header{kind: closed, first: w.prev.next(), bound: next - 1, boot: boot}
	h.skipped = w.skipped(h.first)
	return w.block(h, markFor(h.first, next))
}

// lost notes that the entries from first to last are lost, but for those that the copy has.
func (w *writer) lost(first, last uint64, boot uint32) error {
	// to writes what is known of the numbers from first up to seq: that no entry has them, or that theirs are lost.
	to := func(seq uint64, all bool) error {
		if seq == first {
			return nil
		}
		h := header{kind: lost, first: first, bound: seq - 1, skipped: w.skipped(first), boot: boot}
		if all {
			h.kind = closed
		}
		return w.block(h, nil)
	}
	if w.copy == nil {
		return to(last+1, false)
	}
	all, err := w.copy(first, last, func(seq uint64, all bool, line []byte) error {
		if err := to(seq, all); err != nil {
			return err
		}
		first = seq + 1
		w.taken++
		return w.add(header{kind: entries, first: seq, count: 1, bound: last, skipped: w.skipped(seq), boot: boot}, line)
	})
	if err != nil {
		return err
	}
	return to(last+1, all)
}

// parts writes all parts of a file. Those that cannot be used go to aside, and
// their entries are noted as lost, as are those up to upTo that are not there; with aside nil they are copied as they are.
func (w *writer) parts(from *walk, upTo uint64, aside func(b []byte) error) error {
	var end part // the bytes behind the last block that can be read
	for {
		before := from.prev
		p, err := from.next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		if aside != nil && p.bad == "" {
			_, err := p.lines(nil)
			if err != nil {
				p.bad = err.Error()
			}
		}
		if p.bad != "" {
			if err := w.aside(from, &p, aside); err != nil {
				return err
			}
			if aside == nil || !p.known {
				if end.n += p.n; end.n == p.n {
					end.off = p.off
				}
				continue
			}
		}
		end, w.reserved = part{}, max(w.reserved, p.bound)
		switch {
		case aside != nil:
			if p.gap {
				err = w.lost(before.next(), p.first-1, p.boot)
			}
			p.skipped = w.skipped(p.first)
		case before.kind == closed && w.pack && !p.gap && p.first > before.next():
			err = w.block(before, nil)
		}
		if err != nil {
			return err
		}
		switch {
		case p.kind == closed && w.pack && from.off < from.end:
			// Only at the end it says something, and where numbers are skipped behind it.
		case p.kind == closed && p.bad != "": // which number comes next
			err = w.close(p.bound+1, p.boot)
		case p.kind == lost || p.kind == entries && p.bad != "":
			err = w.lost(p.first, p.last(), p.boot)
		case p.bad == "":
			err = w.part(&p)
		}
		if err != nil {
			return err
		}
	}
	next := from.prev.next()
	switch {
	case aside == nil, end.n == 0 && next > upTo && (w.prev.kind == closed || w.prev.bound >= w.reserved):
		return w.flush()
	case end.n == 0 && next > upTo:
		return w.reserve(w.reserved, from.prev.boot)
	}
	// What the end had may not be known: all numbers that may have been given.
	given := max(w.reserved, next-1, upTo)
	if end.n > 0 {
		given += reservation(given)
	}
	mark, err := from.markAt(&end)
	if err != nil {
		return err
	}
	last := given // that is lost
	switch {
	case next <= upTo:
		last = upTo
	case mark == end.off && end.n > 0 && upTo > 0: // it was the closing mark alone
		last = next - 1
	}
	if err := w.lost(next, last, from.prev.boot); err != nil {
		return err
	}
	if mark > 0 { // nobody was stopped
		return w.close(given+1, from.prev.boot)
	}
	return w.reserve(given, from.prev.boot)
}

// reserve writes that numbers up to one may have been given: whether theirs were written is not known.
func (w *writer) reserve(upTo uint64, boot uint32) error {
	next := w.prev.next()
	return w.block(header{kind: entries, first: next, bound: upTo, skipped: w.skipped(next), boot: boot}, nil)
}

// markAt returns where the closing mark begins with which bytes end that cannot be read, 0 for none: what ends with them is as long, and
// begins like one.
func (w *walk) markAt(end *part) (int64, error) {
	for _, n := range []int64{headerSize, longestMark} {
		if end.n < n {
			break
		}
		at := end.off + end.n - n
		b, err := w.bytes(at, headerSize)
		if err != nil {
			return 0, err
		}
		if string(b[:len(blockMark)]) == blockMark && b[len(blockMark)] == closed {
			return at, nil
		}
	}
	return 0, nil
}

// aside copies a part that cannot be used, however large, to the function, or
// to the new file.
func (w *writer) aside(from *walk, p *part, to func(b []byte) error) error {
	if to == nil {
		if err := w.flush(); err != nil {
			return err
		}
		to = w.write
	}
	for done := int64(0); done < p.n; {
		b, err := from.bytes(p.off+done, min(window, p.n-done))
		if err == nil {
			err = to(b)
		}
		if err != nil {
			return err
		}
		done += int64(len(b))
	}
	return nil
}
