package journal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
)

// Cursor is a position in a log. It is not safe for concurrent use.
type Cursor struct {
	// Room is asked before a block larger than 256 KiB is read from the file, with the bytes that
	// takes. Its error ends the reading. nil asks nobody.
	Room func(bytes int) error

	// Paced is set by who follows the log for somebody: who appends waits a moment for it, see [Log.Room].
	Paced bool

	log   *Log
	after uint64
	whole bool // see Log.Whole

	prompt prompt   // that was shown last
	file   *reading // its place in the file, nil while memory has what comes next
	pinned []*block // hold the entries of the last Next; guarded by log.mu
}

// unpinLocked lets go of the entries of the last Next.
func (c *Cursor) unpinLocked() {
	for i, b := range c.pinned {
		b.pins--
		b.reuse()
		c.pinned[i] = nil
	}
	c.pinned = c.pinned[:0]
}

// Cursor returns a cursor whose first entry is the one after seq.
func (l *Log) Cursor(after uint64) *Cursor { return &Cursor{log: l, after: after} }

// Whole returns a cursor that reads all that the file has. It is for who owns the log, and
// for who copies it: what it gives may be held back from readers still.
func (l *Log) Whole(after uint64) *Cursor { return &Cursor{log: l, after: after, whole: true} }

// lastLocked returns the newest entry that the cursor comes to.
func (c *Cursor) lastLocked() uint64 {
	if c.whole {
		return c.log.saved
	}
	return c.log.visible
}

// After returns the sequence number of the entry read last.
func (c *Cursor) After() uint64 { return c.after }

// Seek moves the cursor so that its next entry is the one after seq.
func (c *Cursor) Seek(after uint64) { c.after, c.file = after, nil }

// Next appends the next entries to dst, at least one if there is one to be seen,
// and stops when they hold about limit bytes. Entries are valid until the next
// call. The error is a *TruncatedError when entries are no longer kept; those
// that are damaged come as one entry of the kind Damage.
func (c *Cursor) Next(dst []Entry, limit int) ([]Entry, error) {
	out, err := c.next(dst, limit)
	if more := out[len(dst):]; len(more) > 0 {
		if failed := c.expand(more); failed != nil {
			return dst, failed
		}
	}
	return out, err
}

// next is Next with entries as they are in the file.
func (c *Cursor) next(dst []Entry, limit int) ([]Entry, error) {
	l := c.log
	for {
		l.mu.Lock()
		c.unpinLocked()
		last := c.lastLocked()
		if c.after >= last {
			l.mu.Unlock()
			c.file = nil // it may hold a large block
			return dst, nil
		}
		if c.after < l.expired {
			err := &TruncatedError{After: c.after, Oldest: l.oldestLocked()}
			l.mu.Unlock()
			return dst, err
		}
		n := len(dst)
		if out, ok := l.memoryLocked(dst, c, last, limit); ok {
			if len(out) > n {
				c.after, c.file = out[len(out)-1].Seq, nil
				if c.Paced {
					l.readLocked(c.after)
				}
			}
			l.mu.Unlock()
			return out, nil
		}
		if l.path == "" { // a file has what was not let go
			err := &TruncatedError{After: c.after, Oldest: l.oldestLocked()}
			l.mu.Unlock()
			return dst, err
		}
		err := l.openLocked(false)
		if err != nil {
			l.mu.Unlock()
			return dst, err
		}
		if c.file == nil || c.file.version != l.version {
			c.file = &reading{walk: walk{room: c.Room}, version: l.version, start: l.start, log: l}
		}
		r := c.file
		r.f, r.end = l.file, l.size
		l.mu.Unlock()
		// Reading holds no lock: what the file has up to end never changes.
		out, err := r.entries(dst, c.after, last, limit)
		if errors.Is(err, os.ErrClosed) { // released meanwhile
			c.file = nil
			continue
		}
		if len(out) > n {
			c.after = out[len(out)-1].Seq
		}
		return out, err
	}
}

// reading is a cursor's place in the file.
type reading struct {
	walk
	log     *Log
	version int // of the log's file
	start   int64
	placed  bool // the walk is at the entries that come next

	lines   []byte // of the current block that were not given out yet
	line    []byte // the one before those, of decoded; nil for none
	ms      int64  // time of the newest entry before the current block, 0 where that is not known
	decoded []byte // backs lines and entries of this call
}

// entries appends the entries after a number, which the file has.
func (r *reading) entries(dst []Entry, after, last uint64, limit int) ([]Entry, error) {
	if !r.placed {
		off, err := seek(r.f, r.start, r.end, after)
		if err != nil {
			return dst, err
		}
		r.off, r.placed = off, true
	}
	n := len(dst)
	if len(r.lines) == 0 {
		r.decoded = r.decoded[:0]
	}
	for limit > 0 && after < last {
		if len(r.lines) == 0 {
			damage, err := r.block(&after, last)
			if damage != nil {
				dst = append(dst, *damage)
				limit -= damage.size()
				after = max(after, damage.Seq)
			}
			switch {
			case err == io.EOF && len(dst) > n:
				return dst, nil
			case err == io.EOF:
				return dst, fmt.Errorf("read journal: entry %d is missing", after+1)
			case err != nil && len(dst) > n:
				return dst, nil // the next call says it
			case err != nil:
				return dst, err
			}
			continue
		}
		line, rest := cutLine(r.lines)
		e, _ := parseLine(line) // block has parsed it
		if e.Seq > last {
			return dst, nil // and no entry has that number
		}
		r.line, r.lines = line, rest
		if e.Seq <= after {
			continue
		}
		after = e.Seq
		limit -= e.size()
		dst = append(dst, e)
	}
	return dst, nil
}

// block makes the lines of the next block current. It returns an entry for what
// was damaged before it, or instead of it.
func (r *reading) block(after *uint64, last uint64) (*Entry, error) {
	if e, ok := parseLine(r.line); ok {
		r.line, r.ms = nil, e.Time().UnixMilli()
	}
	p, err := r.next()
	if err == io.EOF && r.unread && *after < last {
		r.unread = false
		return r.damaged(*after+1, last), nil
	}
	if err != nil {
		return nil, err
	}
	if !p.known {
		return nil, nil
	}
	var lines []byte
	if p.bad == "" && p.kind == entries && p.last() > *after {
		start := len(r.decoded)
		if cap(r.decoded)-start < int(p.raw) {
			// Entries of this call refer to the old one.
			r.decoded, start = make([]byte, 0, max(int(p.raw), 64<<10)), 0
		}
		if r.decoded, err = p.lines(r.decoded); err != nil {
			p.bad, r.decoded = err.Error(), r.decoded[:start]
		}
		lines = r.decoded[start:]
		r.letGo()
	}
	var damage *Entry
	if p.gap && p.first > *after+1 {
		damage = r.damaged(*after+1, p.first-1)
	}
	switch {
	case p.kind == lost && p.last() > *after, p.kind == entries && p.bad != "" && p.last() > *after:
		first := max(p.first, *after+1)
		if damage != nil {
			first = *after + 1 // the two become one
		}
		damage = r.damaged(first, p.last())
	default:
		r.lines = lines
	}
	return damage, nil
}

// damaged is the entry that stands for those from first to last. It has the time of the one before.
func (r *reading) damaged(first, last uint64) *Entry {
	return &Entry{
		Seq: last, Kind: Damage, To: Everyone, Frame: r.log.damage(first, last),
		head: appendHead(nil, last, r.ms, Damage, Everyone),
	}
}

// Follow yields the entries after seq, waiting for more, until ctx ends or an
// error occurs. An entry is valid until the loop's next turn.
func (l *Log) Follow(ctx context.Context, after uint64) iter.Seq2[Entry, error] {
	return l.Cursor(after).Follow(ctx)
}

// Follow is [Log.Follow] from where the cursor is, which it moves.
func (c *Cursor) Follow(ctx context.Context) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		wake := make(chan struct{}, 1)
		defer c.log.Watch(wake)()
		var batch []Entry
		for {
			var err error
			if batch, err = c.Next(batch[:0], window); err != nil {
				yield(Entry{}, err)
				return
			}
			for _, e := range batch {
				if !yield(e, nil) {
					return
				}
			}
			if len(batch) > 0 {
				continue
			}
			select {
			case <-wake:
			case <-ctx.Done():
				return
			}
		}
	}
}
