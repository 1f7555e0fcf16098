package journal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
)

// Damaged is a piece of a file that cannot be read.
type Damaged struct {
	Offset int64  `json:"offset"`
	Length int64  `json:"length"`
	First  uint64 `json:"first,omitempty"` // entries that are lost with it; 0 when none is
	Last   uint64 `json:"last,omitempty"`
	Reason string `json:"reason"`
}

// Report is what [Verify] found.
type Report struct {
	Path    string    `json:"path"`
	Format  int       `json:"format"`
	Bytes   int64     `json:"bytes"`
	Text    int64     `json:"text"` // bytes of the entries, before compression
	Blocks  int       `json:"blocks"`
	Entries int       `json:"entries"`
	First   uint64    `json:"first,omitempty"`
	Last    uint64    `json:"last,omitempty"`
	Closed  bool      `json:"closed"` // it ends in good order
	Torn    int64     `json:"torn,omitempty"`
	Damage  []Damaged `json:"damage,omitempty"`
	Lost    []Damaged `json:"lost,omitempty"`    // noted by an earlier repair
	Expired uint64    `json:"expired,omitempty"` // entries up to it were let go
}

// Verify reads a journal's file from beginning to end and says what is in it. It
// changes nothing.
func Verify(path string) (Report, error) {
	rep := Report{Path: path, Format: 2}
	f, w, err := openToRead(path)
	if err != nil {
		return rep, err
	}
	defer func() { _ = f.Close() }()
	rep.Bytes = w.end
	if w.off == 0 && w.end > 0 {
		if b, err := w.bytes(0, 8); err == nil && string(b[:1]) == "{" {
			return verifyOld(rep, f)
		}
	}
	t, err := readTail(osFile{f})
	if err != nil {
		return rep, err
	}
	if t.cut {
		rep.Torn = w.end - t.size
		w.end = t.size
	}
	err = inspect(w, func(p *part, lines []byte) error {
		if p.kind == entries {
			if rep.First == 0 {
				rep.First = p.first
			}
			rep.Blocks++
			rep.Entries += int(p.count)
			rep.Text += int64(len(lines))
			rep.Last = p.last()
		}
		if p.kind == lost {
			rep.Lost = append(rep.Lost, Damaged{Offset: p.off, Length: p.n, First: p.first, Last: p.last(), Reason: "lost before"})
		}
		if p.kind == expired {
			rep.Expired = p.last()
		}
		rep.Closed = p.kind == closed
		return nil
	}, func(d Damaged) error {
		rep.Damage = append(rep.Damage, d)
		rep.Closed = false
		return nil
	})
	return rep, err
}

func openToRead(path string) (*os.File, *walk, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no regular file", path)
	}
	w := &walk{f: f}
	if err == nil {
		w.end = info.Size()
		var head []byte
		if head, err = w.bytes(0, int64(len(versionLine))+20); err == nil {
			w.off, err = dataStart(head)
		}
	}
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, w, nil
}

// inspect calls good for each block, with its lines, and bad for what cannot be
// read.
func inspect(w *walk, good func(p *part, lines []byte) error, bad func(d Damaged) error) error {
	var before uint64
	var gaps []Damaged
	flush := func(first uint64) error {
		for i, d := range gaps {
			if i == 0 && first > before+1 {
				d.First, d.Last = before+1, first-1
			}
			if err := bad(d); err != nil {
				return err
			}
		}
		gaps = gaps[:0]
		return nil
	}
	var buf []byte
	for {
		p, err := w.next()
		if err == io.EOF {
			return flush(0)
		}
		if err != nil {
			return err
		}
		if p.bad == "" {
			if buf, err = p.lines(buf[:0]); err != nil {
				p.bad = err.Error()
			}
		}
		if !p.known {
			gaps = append(gaps, Damaged{Offset: p.off, Length: p.n, Reason: p.bad})
			continue
		}
		if err := flush(p.first); err != nil {
			return err
		}
		before = p.last()
		if p.bad == "" {
			err = good(&p, buf)
		} else {
			d := Damaged{Offset: p.off, Length: p.n, Reason: p.bad}
			if p.kind == entries {
				d.First, d.Last = p.first, p.last()
			}
			err = bad(d)
		}
		if err != nil {
			return err
		}
	}
}

// nowhere takes what is written and forgets it.
type nowhere struct{}

func (nowhere) WriteAt(b []byte, _ int64) (int, error) { return len(b), nil }

func verifyOld(rep Report, f *os.File) (Report, error) {
	rep.Format = 1
	w := &writer{f: nowhere{}, pack: true}
	whole, err := convert(io.NewSectionReader(f, 0, rep.Bytes), w, 0)
	rep.Closed = whole
	if !whole && err == nil {
		rep.Damage = append(rep.Damage, Damaged{Length: rep.Bytes, Reason: "some lines are not entries of this format: the file is kept when it is taken over"})
	}
	return rep, err
}

// Cat writes the entries of a journal's file to w, one line each.
func Cat(path string, w io.Writer) error {
	f, from, err := openToRead(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if b, err := from.bytes(0, 1); err == nil && string(b) == "{" {
		_, err := io.Copy(w, io.NewSectionReader(f, 0, from.end))
		return err
	}
	if _, err := readTail(osFile{f}); err != nil { // as of a file that is no log
		return err
	}
	return inspect(from, func(p *part, lines []byte) error {
		if p.kind == lost {
			_, err := fmt.Fprintf(w, `{"lost":{"first":%d,"last":%d}}`+"\n", p.first, p.last())
			return err
		}
		if p.kind != entries {
			return nil
		}
		_, err := w.Write(lines)
		return err
	}, func(d Damaged) error {
		_, err := fmt.Fprintf(w, `{"damaged":{"offset":%d,"length":%d,"first":%d,"last":%d,"reason":%q}}`+"\n", d.Offset, d.Length, d.First, d.Last, d.Reason)
		return err
	})
}

// About returns what a journal's file says of its session, nil when it does not.
func About(path string) ([]byte, error) {
	f, w, err := openToRead(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	for {
		p, err := w.next()
		switch {
		case err == io.EOF:
			return nil, nil
		case err != nil:
			return nil, err
		case p.known && p.bad == "" && p.kind == aboutBlock:
			return p.appendPayload(nil, p.payload)
		case p.known && p.kind == entries: // it stands before them
			return nil, nil
		}
	}
}

// Repair writes a journal's file anew without what cannot be read. That goes to
// a file beside it, whose name it returns, "" when there was nothing to do.
// Entries that are lost are taken from the file copy if it has them; "" means
// that there is none. No log may have the file open.
func Repair(path, copy string) (aside string, err error) {
	rep, err := Verify(path)
	if err != nil || rep.Format == 1 || len(rep.Damage) == 0 && (len(rep.Lost) == 0 || copy == "") {
		return "", err
	}
	f, w, err := openToRead(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	w.end -= rep.Torn
	aside = path + ".damaged"
	kept, err := os.OpenFile(aside, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return "", err
	}
	var d osDisk
	temp := tempPath(path)
	to, err := d.Create(temp)
	if err != nil {
		return "", errors.Join(err, kept.Close())
	}
	out := &writer{f: to}
	if copy != "" {
		out.copy = func(first, last uint64, line func(uint64, []byte) error) error {
			return entriesOf(copy, first, last, line)
		}
	}
	err = out.beginning()
	if err == nil {
		err = out.parts(w, func(b []byte) error {
			_, err := kept.Write(b)
			return err
		})
	}
	if err = errors.Join(err, kept.Sync(), kept.Close()); err == nil {
		err = to.Sync()
	}
	if err = errors.Join(err, to.Close()); err == nil {
		err = d.Rename(temp, path)
	}
	if err != nil {
		return "", errors.Join(err, d.Remove(temp))
	}
	return aside, d.SyncFolder(path)
}

// entriesOf calls line for each entry from first to last that the file has.
func entriesOf(path string, first, last uint64, line func(seq uint64, line []byte) error) error {
	f, w, err := openToRead(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if w.off, err = seek(f, w.off, w.end, first-1); err != nil {
		return err
	}
	for {
		p, err := w.next()
		switch {
		case err == io.EOF || err == nil && p.known && p.kind == entries && p.first > last:
			return nil
		case err != nil:
			return err
		case !p.known || p.bad != "" || p.kind != entries || p.last() < first:
			continue
		}
		lines, err := p.lines(nil)
		if err != nil {
			continue // it is damaged here, too
		}
		for seq := p.first; len(lines) > 0; seq++ {
			end := bytes.IndexByte(lines, '\n') + 1
			if seq >= first && seq <= last {
				if err := line(seq, lines[:end]); err != nil {
					return err
				}
			}
			lines = lines[end:]
		}
	}
}
