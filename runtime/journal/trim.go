package journal

import (
	"cmp"
	"errors"
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

// trimRest is how many bytes may come while a file is written anew, so that the rest is copied while who appends waits.
// Where more comes each time, that is done after trimRounds.
const (
	trimRest   = 1 << 20
	trimRounds = 8
)

// Trim lets the oldest entries go that are not to be kept, and returns by how many bytes
// [Log.Size] is less for it. Readers who ask for them are told with [ErrTruncated]. The rest of
// a file is written anew; who appends waits only for what came meanwhile. While entries are not
// flushed, another Trim runs, or something else replaces the file, nothing is done: sessions try it
// again a minute later.
func (l *Log) Trim(k Keep) (freed int64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.fresh > 0 || l.saveErr != nil || l.trimming != nil {
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
	l.trimming = make(chan struct{})
	defer func() {
		close(l.trimming)
		l.trimming = nil
	}()
	if freed, err = l.trimFileLocked(k); err != nil {
		return 0, fmt.Errorf("trim journal: %w", err)
	}
	return freed, nil
}

// trimFileLocked is Trim for a log with a file, which is open. What the file has does not change: the lock is not held
// while that is read and written.
func (l *Log) trimFileLocked(k Keep) (freed int64, err error) {
	old := trimmed{f: l.file, start: l.start, end: l.size, last: l.saved, next: l.next, skipped: l.skipped, boot: l.o.disk.Boot()}
	version, end := l.version, old.end
	var at cut
	l.apartLocked(func() { at, err = old.cut(k) })
	if l.version != version || err == nil && at.upTo <= l.expired {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	if err := l.o.inPlace(); err != nil {
		return 0, err
	}
	temp := trimPath(l.path)
	f, err := l.o.disk.Create(temp)
	if err != nil {
		return 0, err
	}
	out := &writer{f: f, pack: true}
	more := func(upTo int64) error {
		err := out.parts(&walk{f: old.f, off: old.end, end: upTo}, 0, nil)
		if old.end = upTo; err == nil {
			err = f.Sync()
		}
		return err
	}
	l.apartLocked(func() {
		if err = out.trimmed(l.o.about(), old, at); err == nil {
			err = f.Sync()
		}
	})
	for round := 0; round < trimRounds && err == nil && l.version == version && l.size-old.end > trimRest; round++ {
		size := l.size
		l.apartLocked(func() { err = more(size) })
	}
	drop := func(why error) error { return errors.Join(why, f.Close(), l.o.disk.Remove(temp)) }
	if l.version != version || l.saveErr != nil {
		return 0, drop(nil) // it may have failed because its file was closed
	}
	if err == nil {
		err = more(l.size)
	}
	if err == nil {
		err = l.o.inPlace() // that took a while
	}
	if err == nil {
		err = l.o.disk.Rename(temp, l.path)
	}
	if err != nil {
		return 0, drop(err)
	}
	was := l.size
	l.expired = at.upTo
	if at.off == end && l.saved == old.last { // no block is left that says what was reserved
		l.reserved, l.whole = false, false
	}
	if l.fresh == 0 { // else memory has what the file does not
		for _, b := range l.blocks {
			b.retire()
		}
		l.blocks = nil
		l.holdLocked(-l.held)
	}
	err = l.useLocked(f, out.off)
	return was - l.size, err
}

// apartLocked runs f without the lock.
func (l *Log) apartLocked(f func()) {
	l.mu.Unlock()
	defer l.mu.Lock()
	f()
}

// lockAlone takes the lock when no Trim runs.
func (l *Log) lockAlone() {
	for l.mu.Lock(); l.trimming != nil; l.mu.Lock() {
		over := l.trimming
		l.mu.Unlock()
		<-over
	}
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

// trimmed is the file of a log that is cut, as it is when that begins.
type trimmed struct {
	f          file
	start, end int64 // of its blocks
	last, next uint64
	skipped    uint64 // numbers before next that no entry had
	boot       uint32
}

// cut returns where the file is to be cut. How old the entries are that cannot be read is not known: they go with
// what is behind them.
func (t *trimmed) cut(k Keep) (cut, error) {
	w := &walk{f: t.f, off: t.start, end: t.end}
	var gone header     // of the newest block of which all goes
	unread := int64(-1) // where what cannot be read begins, behind it; -1 for none
	behind := func(off int64) cut {
		return cut{upTo: gone.next() - 1, skipped: gone.skipped, boot: gone.boot, off: off}
	}
	for {
		p, err := w.next()
		switch {
		case err == io.EOF && unread >= 0:
			return behind(unread), nil
		case err == io.EOF:
			// With numbers that are skipped: nothing else would say of them.
			return cut{upTo: t.next - 1, skipped: t.skipped, boot: t.boot, off: t.end}, nil
		case err != nil:
			return cut{}, err
		}
		if p.known && p.kind != entries && p.kind != lost { // those without entries
			continue
		}
		large := k.Bytes != 0 && t.end-p.off > k.Bytes // all of it goes
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

// trimmed writes what is left of a file that is cut.
func (w *writer) trimmed(about []byte, t trimmed, c cut) error {
	if err := w.beginning(); err != nil {
		return err
	}
	if about != nil {
		if err := w.block(header{kind: aboutBlock, first: 1, boot: c.boot}, about); err != nil {
			return err
		}
	}
	if err := w.block(header{kind: expired, first: 1, bound: c.upTo, skipped: c.skipped, boot: c.boot}, nil); err != nil {
		return err
	}
	from := &walk{f: t.f, off: c.off, end: t.end}
	if c.off < t.end {
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
	return w.parts(from, 0, nil)
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

// NewestTime returns when the newest entry that the file has, and that can be read, was appended; the zero time for a log
// without one.
func (l *Log) NewestTime() (at time.Time, err error) {
	l.mu.Lock()
	last, gone, kept := l.saved, l.expired, l.kept
	l.mu.Unlock()
	if kept != 0 {
		return time.UnixMilli(kept), nil
	}
	for back := uint64(1); at.IsZero() && last > gone; back *= 2 {
		cur := l.Whole(max(last-min(back, last), gone))
		for batch, err := cur.Next(nil, window); err != nil || len(batch) > 0; batch, err = cur.Next(batch[:0], window) {
			if err != nil {
				return at, err
			}
			if newest := batch[len(batch)-1].Time(); newest.UnixMilli() > 0 {
				at = newest
			}
		}
		if back >= last-gone {
			break
		}
	}
	return at, nil
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
	if l.path == "" || l.file != nil || l.fresh > 0 || l.saveErr != nil || l.reserved || l.whole || l.cut || l.size == 0 {
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
