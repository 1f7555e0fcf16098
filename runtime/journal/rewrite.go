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
	pack bool                                                                     // put small blocks together
	copy func(first, last uint64, line func(seq uint64, line []byte) error) error // entries that are lost here; may be nil

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
	err := w.copy(h.first, h.last(), func(seq uint64, line []byte) error {
		if seq > rest.first {
			gap := rest
			gap.bound = seq - 1
			if err := w.block(gap, nil); err != nil {
				return err
			}
			h.skipped += seq - rest.first
		}
		rest.first = seq + 1
		return w.add(header{kind: entries, first: seq, count: 1, bound: h.bound, skipped: h.skipped, boot: h.boot}, line)
	})
	if err != nil || rest.first > rest.bound {
		return err
	}
	return w.block(rest, nil)
}

// parts writes all parts of a file. Those that cannot be used go to aside, and
// their entries are noted as lost; with aside nil they are copied as they are.
func (w *writer) parts(from *walk, aside func(b []byte) error) error {
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
		if next := before.next(); gap && aside != nil && p.first > next {
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
	if gap && aside != nil {
		// What the end had is not known: all numbers that may have been given.
		end := max(before.bound, before.next()-1)
		if err := w.lost(header{first: before.next(), bound: end + reservation(end), skipped: before.skipped, boot: before.boot}); err != nil {
			return err
		}
	}
	return w.flush()
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
