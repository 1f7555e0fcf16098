package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

// copied is a copy of a log, from which lost entries are taken.
type copied struct {
	path  string
	f     *os.File
	start int64 // of its blocks
	end   int64
	last  uint64 // its newest entry
}

// openCopy opens a copy. Who does closes f.
func openCopy(path string) (*copied, error) {
	f, w, err := openToRead(path)
	if err != nil {
		return nil, fmt.Errorf("open the copy: %w", err)
	}
	t, err := readTail(osFile{f})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read the copy: %w", err), f.Close())
	}
	return &copied{path, f, w.off, w.end, t.last}, nil
}

// compare returns an error when the file at path is of another log.
func (c *copied) compare(path string) error {
	if was, is := sessionOf(path), sessionOf(c.path); was != is && was != "" && is != "" {
		return fmt.Errorf("%s is of session %s, and %s of %s", c.path, is, path, was)
	}
	f, w, err := openToRead(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if b, err := w.bytes(0, 1); err == nil && string(b) == "{" {
		return nil // of the first format: it is not repaired
	}
	return inspect(w, 0, func(p *part, lines []byte) error {
		if p.kind != entries || p.count == 0 {
			return nil
		}
		at := p.first
		_, err := c.entries(p.first, p.last(), func(seq uint64, _ bool, line []byte) error {
			for ; at < seq; at++ {
				_, lines = cutLine(lines)
			}
			if !bytes.HasPrefix(lines, line) {
				return fmt.Errorf("%s is of another log than %s: entry %d differs", c.path, path, seq)
			}
			return nil
		})
		return err
	}, func(Damaged) error { return nil })
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
	var before header
	at, gap := first, false
	for {
		p, err := w.next()
		switch {
		case err == io.EOF:
			return false, nil
		case err != nil:
			return false, err
		case !p.known:
			gap = true
			continue
		}
		all := !gap && before.next() <= at && !p.misses(&before) && !p.cutOff(&before)
		before, gap = p.header, false
		switch {
		case p.kind != lost && p.kind != expired && p.first > last:
			return all, nil
		case p.bad != "" || p.kind != entries || p.last() < first:
			gap = p.bad != ""
			continue
		}
		lines, err := p.lines(nil)
		if err != nil {
			gap = true // it is damaged here, too
			continue
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
