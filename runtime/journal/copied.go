package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
)

// copied is a copy of a log, from which lost entries are taken.
type copied struct {
	path  string
	f     *os.File
	start int64 // of its blocks
	end   int64
	bound uint64 // numbers up to it may have been given
}

// openCopy opens a copy. Who does closes f.
func openCopy(path string) (*copied, error) {
	f, w, err := openToRead(path)
	if err != nil {
		return nil, fmt.Errorf("open the copy: %w", err)
	}
	t, err := readTail(osFile{f})
	if err != nil { // as of a file that is no log
		return nil, errors.Join(fmt.Errorf("read the copy: %w", err), f.Close())
	}
	return &copied{path, f, w.off, w.end, t.bound}, nil
}

// compare returns the copy's newest entry, and an error when the file at path is of another log.
func (c *copied) compare(path string) (last uint64, err error) {
	if was, is := sessionOf(path), sessionOf(c.path); was != is && was != "" && is != "" {
		return 0, fmt.Errorf("%s is of session %s, and %s of %s", c.path, is, path, was)
	}
	f, w, err := openToRead(path)
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }()
	if b, err := w.bytes(0, 1); err == nil && string(b) == "{" {
		return 0, nil // of the first format: it is not repaired
	}
	// Both are read once, beside each other.
	next, stop := iter.Pull2(readable(&walk{f: c.f, off: c.start, end: c.end}))
	defer stop()
	theirs, err, more := next()
	for ours, failed := range readable(w) {
		if failed != nil {
			return 0, failed
		}
		for more && err == nil && theirs.seq < ours.seq {
			last = theirs.seq
			theirs, err, more = next()
		}
		if more && err == nil && theirs.seq == ours.seq && !bytes.Equal(theirs.text, ours.text) {
			return 0, fmt.Errorf("%s is of another log than %s: entry %d differs", c.path, path, ours.seq)
		}
	}
	for more && err == nil {
		last = theirs.seq
		theirs, err, more = next()
	}
	return last, err
}

// line is that of an entry, without its end.
type line struct {
	seq  uint64
	text []byte // valid until the next one
}

// readable yields the entries of a walk that can be read.
func readable(w *walk) iter.Seq2[line, error] {
	return func(yield func(line, error) bool) {
		var buf []byte
		for {
			p, err := w.next()
			if err == io.EOF {
				return
			}
			if err != nil {
				yield(line{}, err)
				return
			}
			if !p.known || p.bad != "" || p.kind != entries {
				continue
			}
			if buf, err = p.lines(buf[:0]); err != nil {
				continue // it is damaged
			}
			l, rest := line{seq: p.first}, buf
			for ; len(rest) > 0; l.seq++ {
				if l.text, rest = cutLine(rest); !yield(l, nil) {
					return
				}
			}
		}
	}
}

// sessionOf returns the id of the session that a file says it is of, "" where it does not.
func sessionOf(path string) string {
	var about struct {
		ID string `json:"id"`
	}
	if b, err := About(path); err != nil || json.Unmarshal(b, &about) != nil {
		return ""
	}
	return about.ID
}

// entries calls line for each entry from first to last that the copy has, with its end. all says that the numbers between it
// and the one before, or first, are of no entry; the result says so of those behind the last.
func (c *copied) entries(first, last uint64, line func(seq uint64, all bool, line []byte) error) (all bool, err error) {
	w := &walk{f: c.f, end: c.end}
	if w.off, err = seek(c.f, c.start, c.end, first-1); err != nil {
		return false, err
	}
	at := first
	for {
		next := w.prev.next()
		p, err := w.next()
		switch {
		case err == io.EOF:
			return false, nil
		case err != nil:
			return false, err
		case !p.known:
			continue
		}
		all := !p.gap && next <= at
		switch {
		case p.kind != lost && p.kind != expired && p.first > last:
			return all, nil
		case p.bad != "" || p.kind != entries || p.last() < first:
			continue
		}
		lines, err := p.lines(nil)
		if err != nil {
			continue // it is damaged here, too
		}
		for seq := p.first; len(lines) > 0; seq++ {
			end := bytes.IndexByte(lines, '\n') + 1
			if seq > last {
				return true, nil
			}
			if seq >= first {
				if err := line(seq, all || seq > p.first, lines[:end]); err != nil {
					return false, err
				}
				at = seq + 1
			}
			lines = lines[end:]
		}
	}
}
