package journal

import (
	"cmp"
	"fmt"
	"io"
	"time"
)

// Keep says which entries a log keeps. The zero value keeps all.
type Keep struct {
	Since time.Time // entries from then on; the zero time keeps all
	Bytes int64     // of the file, or of memory; 0 keeps all, less than nothing none
	After uint64    // entries behind it, in any case
}

// Trim lets the oldest entries go that are not to be kept, and returns by how many bytes
// [Log.Size] is less for it. Readers who ask for them are told with [ErrTruncated]. The rest of
// a file is written anew, and who appends waits for that. While entries are not flushed nothing goes:
// whoever appended them shows them.
func (l *Log) Trim(k Keep) (freed int64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.fresh > 0 || l.saveErr != nil {
		return 0, nil
	}
	if l.path == "" {
		was := l.held
		l.trimMemoryLocked(k)
		return int64(was - l.held), nil
	}
	if l.size <= l.start {
		return 0, nil
	}
	if err := l.openLocked(false); err != nil {
		return 0, err
	}
	cut, err := l.cutLocked(k)
	if err != nil || cut.upTo <= l.expired {
		return 0, err
	}
	was := l.size
	if err := l.rewriteLocked(true, func(out *writer) error { return out.trimmed(l, cut) }); err != nil {
		return 0, fmt.Errorf("trim journal: %w", err)
	}
	l.expired, l.reserved = cut.upTo, false // the numbers that were reserved are not in the file any more
	for _, b := range l.blocks {
		b.retire()
	}
	l.blocks = nil
	l.holdLocked(-l.held)
	return was - l.size, nil
}

// trimMemoryLocked is Trim for a log without a file, which lets go of whole blocks.
func (l *Log) trimMemoryLocked(k Keep) {
	l.dropLocked(-1, func(b *block) bool {
		newest := b.entry(len(b.refs) - 1)
		return newest.Seq <= k.After && (!k.Since.IsZero() && newest.Time().Before(k.Since) || k.Bytes != 0 && int64(l.held) > k.Bytes)
	})
}

// cut is where a file is cut: in front of what is at off, or within that block.
type cut struct {
	upTo    uint64 // entries up to it go
	skipped uint64 // numbers up to it that no entry had
	boot    uint32 // of the block behind
	off     int64  // of the first part of which something stays; the file's end if there is none
}

// cutLocked returns where the file is to be cut. How old the entries are that cannot be read is not known: they go with
// what is behind them.
func (l *Log) cutLocked(k Keep) (cut, error) {
	w := &walk{f: l.file, off: l.start, end: l.size}
	var gone header     // of the newest block of which all goes
	unread := int64(-1) // where what cannot be read begins, behind it; -1 for none
	behind := func(off int64) cut {
		return cut{upTo: gone.next() - 1, skipped: gone.last() - gone.total(), boot: gone.boot, off: off}
	}
	for {
		p, err := w.next()
		switch {
		case err == io.EOF && unread >= 0:
			return behind(unread), nil
		case err == io.EOF:
			return cut{upTo: l.appended, skipped: l.appended - l.total, boot: l.o.disk.Boot(), off: l.size}, nil
		case err != nil:
			return cut{}, err
		}
		if p.known && p.kind != entries && p.kind != lost { // those without entries
			continue
		}
		large := k.Bytes != 0 && l.size-p.off > k.Bytes // all of it goes
		if p.known && large && p.last() <= k.After {
			gone, unread = p.header, -1
			continue
		}
		lines, bad := p.entries()
		if bad {
			if unread < 0 {
				unread = p.off
			}
			if p.known && p.last() > k.After {
				return behind(unread), nil
			}
			continue
		}
		upTo := goesUpTo(lines, p.first, func(e Entry) bool { return e.Seq <= k.After && (large || e.Time().Before(k.Since)) })
		switch {
		case upTo < p.first && unread >= 0:
			return behind(unread), nil
		case upTo < p.last():
			return cut{upTo, p.skipped, p.boot, p.off}, nil
		}
		gone, unread = p.header, -1
	}
}

// entries returns the lines of a block of entries. bad says that they cannot be read, or are lost.
func (p *part) entries() (lines []byte, bad bool) {
	if p.kind != entries || p.bad != "" {
		return nil, true
	}
	lines, err := p.lines(nil)
	return lines, err != nil
}

// goesUpTo returns the last entry of the lines' beginning that goes, or the number before the first. What shows a prompt
// goes with it.
func goesUpTo(lines []byte, first uint64, goes func(e Entry) bool) uint64 {
	upTo := first - 1
	for len(lines) > 0 {
		line, rest := cutLine(lines)
		e, ok := parseLine(line)
		if !ok || !goes(e) && (e.Kind != Echo || upTo != e.Seq-1) {
			break
		}
		upTo, lines = e.Seq, rest
	}
	return upTo
}

// trimmed writes what is left of a log that is cut.
func (w *writer) trimmed(l *Log, c cut) error {
	if about := l.o.about(); about != nil {
		if err := w.block(header{kind: aboutBlock, first: 1, boot: c.boot}, about); err != nil {
			return err
		}
	}
	if err := w.block(header{kind: expired, first: 1, bound: c.upTo, skipped: c.skipped, boot: c.boot}, nil); err != nil {
		return err
	}
	from := &walk{f: l.file, off: c.off, end: l.size}
	if c.off < l.size {
		p, err := from.next()
		if err != nil {
			return err
		}
		if p.first > c.upTo || p.kind != entries {
			from.off = c.off
		} else if err := w.rest(&p, c.upTo); err != nil {
			return err
		}
	}
	return w.parts(from, nil)
}

// rest writes the entries of a block behind a number.
func (w *writer) rest(p *part, upTo uint64) error {
	lines, err := p.lines(nil)
	if err != nil {
		return err
	}
	h := p.header
	for h.first <= upTo {
		_, lines = cutLine(lines)
		h.first++
		h.count--
	}
	return w.add(h, lines)
}

// readExpired returns the newest entry that a file has let go, 0 for none.
func readExpired(f io.ReaderAt, start, end int64) (uint64, error) {
	w := &walk{f: f, off: start, end: end}
	for range 2 { // what is known of the session may stand before it
		b := make([]byte, min(headerSize, end-w.off))
		if err := readZeros(f, b, w.off); err != nil {
			return 0, err
		}
		h, ok := readHeader(b)
		switch {
		case ok && h.kind == expired:
			return h.bound, nil
		case !ok || h.kind != aboutBlock:
			return 0, nil
		}
		w.off += h.length()
	}
	return 0, nil
}

// OldestTime returns when the oldest entry that is kept, and can be read, was appended; the zero
// time for a log without one.
func (l *Log) OldestTime() (time.Time, error) {
	for cur := l.Whole(cmp.Or(l.Oldest(), 1) - 1); ; {
		first, err := cur.Next(nil, 1)
		if err != nil || len(first) == 0 {
			return time.Time{}, err
		}
		if first[0].Kind != Damage {
			return first[0].Time(), nil
		}
	}
}

// NewestTime returns the time of the newest entry that was appended since the log was
// opened and that the file has, as the entry has it; the zero time for none.
func (l *Log) NewestTime() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.kept == 0 {
		return time.Time{}
	}
	return time.UnixMilli(l.kept)
}

// End is how the file of a log ends that nobody uses.
type End struct {
	Bytes  int64  `json:"bytes"`
	Last   uint64 `json:"last"`
	Oldest uint64 `json:"oldest"`
}

// AtRest returns how the file ends. ok is false while the log uses it, or has what it has not.
func (l *Log) AtRest() (_ End, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.path == "" || l.file != nil || l.fresh > 0 || l.saveErr != nil || l.reserved || l.cut || l.size == 0 {
		return End{}, false
	}
	return End{l.size, l.saved, l.oldestLocked()}, true
}

// Size returns the bytes of the file, or of memory for a log without one.
func (l *Log) Size() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.path == "" {
		return int64(l.held)
	}
	return l.size
}
