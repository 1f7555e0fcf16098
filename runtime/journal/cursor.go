package journal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
)

const fileChunk = 256 << 10

// Cursor is a position in a log. It holds no entries. It is not safe for
// concurrent use.
type Cursor struct {
	log   *Log
	after uint64
	off   int64 // file offset of the entry after `after`, -1 when unknown
	buf   []byte

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
func (l *Log) Cursor(after uint64) *Cursor { return &Cursor{log: l, after: after, off: -1} }

// After returns the sequence number of the entry read last.
func (c *Cursor) After() uint64 { return c.after }

// Seek moves the cursor so that its next entry is the one after seq.
func (c *Cursor) Seek(after uint64) { c.after, c.off = after, -1 }

// Next appends the next visible entries to dst, at least one if there is one,
// and stops when they hold about limit bytes. Entries are valid until the next
// call. The error is a *TruncatedError when entries are no longer kept.
func (c *Cursor) Next(dst []Entry, limit int) ([]Entry, error) {
	l := c.log
	l.mu.Lock()
	c.unpinLocked()
	if c.after >= l.visible {
		l.mu.Unlock()
		return dst, nil
	}
	n := len(dst)
	if out, ok := l.memoryLocked(dst, c, limit); ok {
		l.mu.Unlock()
		if len(out) > n {
			c.after, c.off, c.buf = out[len(out)-1].Seq, -1, nil
		}
		return out, nil
	}
	if l.path == "" { // a file keeps everything
		err := &TruncatedError{After: c.after, Oldest: l.oldestLocked()}
		l.mu.Unlock()
		return dst, err
	}
	// Reading holds no lock: what the file has up to size never changes.
	err := l.openLocked()
	f, size := l.file, l.size
	l.mu.Unlock()
	if err != nil {
		return dst, err
	}
	out, err := c.fromFile(dst, f, size, limit)
	if errors.Is(err, os.ErrClosed) { // released meanwhile
		l.mu.Lock()
		if err = l.openLocked(); err == nil {
			f = l.file
		}
		l.mu.Unlock()
		if err == nil {
			out, err = c.fromFile(dst, f, size, limit)
		}
	}
	return out, err
}

// fromFile reads entries from the file's first size bytes.
func (c *Cursor) fromFile(dst []Entry, f *os.File, size int64, limit int) ([]Entry, error) {
	if c.off < 0 {
		off, err := seekSeq(f, size, c.after+1)
		if err != nil {
			return dst, err
		}
		c.off = off
	}
	if c.buf == nil {
		c.buf = make([]byte, fileChunk)
	}
	n := len(dst)
	for len(dst) == n {
		k, err := f.ReadAt(c.buf[:min(int64(len(c.buf)), size-c.off)], c.off)
		if err != nil && err != io.EOF {
			return dst, fmt.Errorf("read journal: %w", err)
		}
		chunk := c.buf[:k]
		if bytes.IndexByte(chunk, '\n') < 0 {
			if k < len(c.buf) {
				return dst, fmt.Errorf("read journal: entry %d is missing", c.after+1)
			}
			c.buf = make([]byte, 2*len(c.buf))
			continue
		}
		for limit > 0 {
			nl := bytes.IndexByte(chunk, '\n')
			if nl < 0 {
				break
			}
			e, ok := parseLine(chunk[:nl])
			if !ok {
				return dst, fmt.Errorf("read journal: line at byte %d is damaged", c.off)
			}
			chunk = chunk[nl+1:]
			c.off += int64(nl + 1)
			if e.Seq <= c.after {
				continue
			}
			c.after = e.Seq
			limit -= e.size()
			dst = append(dst, e)
		}
	}
	return dst, nil
}

// Follow yields the entries after seq, waiting for more, until ctx ends or an
// error occurs. An entry is valid until the loop's next turn.
func (l *Log) Follow(ctx context.Context, after uint64) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		wake := make(chan struct{}, 1)
		defer l.Watch(wake)()
		c := l.Cursor(after)
		var batch []Entry
		for {
			var err error
			if batch, err = c.Next(batch[:0], fileChunk); err != nil {
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
