package journal

import (
	"errors"
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
	b := make([]byte, headerSize, p.n)
	p.put(b)
	return w.write(append(b, p.payload...))
}

// lost notes that the entries of h are lost, but for those that the copy has.
func (w *writer) lost(h header) error {
	h.kind, h.count = lost, 0
	if w.copy == nil {
		return w.block(h, nil)
	}
	rest := h
	// to writes what is known of the numbers before seq: that no entry has them, or that theirs are lost.
	to := func(seq uint64, all bool) error {
		gap := rest
		gap.bound = seq - 1
		if all {
			gap.kind, gap.bound = closed, h.bound
		}
		if seq == rest.first {
			return nil
		}
		if err := w.block(gap, nil); err != nil {
			return err
		}
		if all {
			rest.skipped += seq - rest.first
		}
		return nil
	}
	all, err := w.copy(h.first, h.last(), func(seq uint64, all bool, line []byte) error {
		if err := to(seq, all); err != nil {
			return err
		}
		rest.first = seq + 1
		w.taken++
		return w.add(header{kind: entries, first: seq, count: 1, bound: h.bound, skipped: rest.skipped, boot: h.boot}, line)
	})
	if err != nil {
		return err
	}
	return to(h.bound+1, all)
}

// parts writes all parts of a file. Those that cannot be used go to aside, and
// their entries are noted as lost, as are those up to upTo that are not there; with aside nil they are copied as they are.
func (w *writer) parts(from *walk, upTo uint64, aside func(b []byte) error) error {
	before, gap := header{}, false // the block before, and whether unreadable bytes are behind it
	for {
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
				gap = true
				continue
			}
		}
		if next := before.next(); aside != nil && p.first > next && (gap || p.misses(&before)) {
			if err := w.lost(header{first: next, bound: p.first - 1, skipped: before.skipped, boot: p.boot}); err != nil {
				return err
			}
		}
		gap = false
		if before.kind == closed && w.pack && p.first > before.next() {
			if err := w.block(before, nil); err != nil {
				return err
			}
		}
		switch {
		case p.kind == closed && w.pack && from.off < from.end:
			// Only at the end it says something, and where numbers are skipped behind it.
		case p.kind == lost || p.kind == entries && p.bad != "":
			err = w.lost(header{first: p.first, bound: p.last(), skipped: p.skipped, boot: p.boot})
		case p.bad == "":
			err = w.part(&p)
		}
		if err != nil {
			return err
		}
		before = p.header
	}
	if aside == nil || !gap && before.next() > upTo {
		return w.flush()
	}
	// What the end had may not be known: all numbers that may have been given.
	end := max(before.bound, before.next()-1)
	if gap {
		end += reservation(end)
	}
	h := header{first: before.next(), bound: end, skipped: before.skipped, boot: before.boot}
	if before.next() > upTo {
		return errors.Join(w.lost(h), w.flush())
	}
	h.bound = upTo
	if err := w.lost(h); err != nil {
		return err
	}
	// The numbers behind are not given again.
	return w.block(header{kind: entries, first: upTo + 1, bound: max(end, upTo), skipped: before.skipped, boot: before.boot}, nil)
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
