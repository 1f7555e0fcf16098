package journal

import (
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
// changes nothing. A file that ends before the entry upTo, which readers may have seen, is damaged; 0 is for who does not
// know how far they came.
func Verify(path string, upTo uint64) (Report, error) {
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
	if t.cut && t.last >= upTo {
		rep.Torn = w.end - t.size
		w.end = t.size
	}
	err = inspect(w, upTo, func(p *part, lines []byte) error {
		if p.kind == entries && p.count > 0 {
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
// read, or is not there: entries up to upTo were.
func inspect(w *walk, upTo uint64, good func(p *part, lines []byte) error, bad func(d Damaged) error) error {
	var gaps []Damaged // behind each other; the first may be the block before
	// flush tells of them, and of the entries from next up to one before first, where those are not there. What comes stands at off.
	flush := func(next, first uint64, off int64, missing bool, reason string) error {
		if missing && len(gaps) == 0 {
			gaps = append(gaps, Damaged{Offset: off, Reason: reason})
		}
		for i, d := range gaps {
			if i == 0 && missing {
				if d.First == 0 {
					d.First = next
				}
				d.Last = first - 1
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
		before := w.prev
		p, err := w.next()
		if err == io.EOF {
			return flush(before.next(), upTo+1, w.end, upTo >= before.next(), "the file ends too early")
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
		reason := "blocks before it are missing"
		if p.cutOff(&before) {
			reason = "the machine was stopped before it was written: what was not on the disk yet may be missing"
		}
		if err := flush(before.next(), p.first, p.off, p.gap, reason); err != nil {
			return err
		}
		if p.bad == "" {
			if err := good(&p, buf); err != nil {
				return err
			}
			continue
		}
		d := Damaged{Offset: p.off, Length: p.n, Reason: p.bad}
		if p.kind == entries {
			d.First, d.Last = p.first, p.last()
		}
		gaps = append(gaps, d)
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

// Cat writes the entries of a journal's file to w, one line each. What is lost, as [Verify] finds it, is a line, too.
func Cat(path string, upTo uint64, w io.Writer) error {
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
	return inspect(from, upTo, func(p *part, lines []byte) error {
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

// Repaired says what [Repair] has done.
type Repaired struct {
	Aside string // the file that has what could not be read, "" for none
	Done  bool   // there was something to do
	Taken int    // entries that come from the copy
}

// Repair writes a journal's file anew without what cannot be read. That goes to
// a file beside it. Entries that are lost are taken from the file copy if it has them, also those behind the
// end; "" means that there is no copy. One that has other entries is an error. upTo is as for [Verify]. No log may have the
// file open.
func Repair(path, copy string, upTo uint64) (did Repaired, err error) {
	out := &writer{}
	if copy != "" {
		c, err := openCopy(copy)
		if err != nil {
			return did, err
		}
		defer func() { _ = c.f.Close() }()
		last, err := c.compare(path)
		if err != nil {
			return did, err
		}
		upTo = max(upTo, last)
		out.copy, out.reserved = c.entries, c.bound
	}
	rep, err := Verify(path, upTo)
	if err != nil || rep.Format == 1 || len(rep.Damage) == 0 && (len(rep.Lost) == 0 || copy == "") {
		return did, err
	}
	f, w, err := openToRead(path)
	if err != nil {
		return did, err
	}
	defer func() { _ = f.Close() }()
	w.end -= rep.Torn
	aside := path + ".damaged"
	kept, err := os.OpenFile(aside, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return did, err
	}
	var d osDisk
	temp := tempPath(path)
	to, err := d.Create(temp)
	if err != nil {
		return did, errors.Join(err, kept.Close())
	}
	out.f = to
	err = out.beginning()
	if about, failed := About(path); err == nil && failed == nil && about == nil && copy != "" {
		if about, err = About(copy); about != nil {
			err = out.block(header{kind: aboutBlock, first: 1, boot: d.Boot()}, about)
		}
	}
	if err == nil {
		err = out.parts(w, upTo, func(b []byte) error {
			_, err := kept.Write(b)
			return err
		})
	}
	info, failed := kept.Stat()
	if err = errors.Join(err, failed, kept.Sync(), kept.Close()); err == nil {
		err = to.Sync()
	}
	if err = errors.Join(err, to.Close()); err == nil {
		err = d.Rename(temp, path)
	}
	if err != nil {
		return did, errors.Join(err, d.Remove(temp))
	}
	did = Repaired{Done: true, Taken: out.taken}
	if info.Size() > 0 {
		did.Aside = aside
	} else {
		err = d.Remove(aside)
	}
	return did, errors.Join(err, d.SyncFolder(path))
}
