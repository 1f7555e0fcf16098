package journal

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
)

// The first format had one line for each entry and nothing else. A file of it is
// written anew once, when its log is opened.

// oldLines reads the lines of such a file. A line that is not one of it, or has
// a number out of order, is skipped and counted.
type oldLines struct {
	r    *bufio.Reader
	last uint64 // number of the line before
	bad  int    // lines that cannot be used, but for one that is torn
	most uint64 // largest number that a bad line may have

	ahead    []byte // a line that was read already
	aheadSeq uint64
}

// read returns the next well-formed line and its number, nil at the end.
func (o *oldLines) read() (line []byte, seq uint64, err error) {
	if o.ahead != nil {
		line, seq, o.ahead = o.ahead, o.aheadSeq, nil
		return line, seq, nil
	}
	for {
		line, err := o.r.ReadBytes('\n')
		switch {
		case err == io.EOF: // the end, or a torn line: nobody has seen it
			return nil, 0, nil
		case err != nil:
			return nil, 0, err
		}
		if e, ok := parseLine(line[:len(line)-1]); ok && json.Valid(e.Frame) {
			return line, e.Seq, nil
		}
		o.bad++
		if rest, ok := bytes.CutPrefix(line, []byte(`{"seq":`)); ok {
			if n, k := leadingInt(rest); k > 0 && n > 0 && uint64(n) < o.last+1<<20 {
				o.most = max(o.most, uint64(n))
			}
		}
	}
}

// next returns the next entry's line, nil at the end.
func (o *oldLines) next() ([]byte, uint64, error) {
	for {
		line, seq, err := o.read()
		if err != nil || line == nil {
			return nil, 0, err
		}
		if seq == o.last+1 {
			o.last = seq
			return line, seq, nil
		}
		// Lines before it are lost, or its number is damaged: the next one tells.
		if seq > o.last {
			ahead, aheadSeq, err := o.read()
			if err != nil {
				return nil, 0, err
			}
			if ahead != nil {
				o.ahead, o.aheadSeq = ahead, aheadSeq
			}
			if ahead == nil && o.bad > 0 || ahead != nil && aheadSeq == seq+1 {
				if o.last > 0 || seq > 1 {
					o.bad = max(o.bad, 1)
				}
				o.last = seq
				return line, seq, nil
			}
		}
		o.bad++
	}
}

// convert writes the entries of a file of the first format to w, and reports
// whether all of it could be used.
func convert(r io.Reader, w *writer, boot uint32) (whole bool, err error) {
	in := &oldLines{r: bufio.NewReaderSize(r, window)}
	next := uint64(1)
	for {
		line, seq, err := in.next()
		if err != nil {
			return false, err
		}
		if line == nil {
			break
		}
		if seq > next {
			if err := w.lost(next, seq-1, boot); err != nil {
				return false, err
			}
		}
		if err := w.add(header{kind: entries, first: seq, count: 1, bound: seq, boot: boot}, line); err != nil {
			return false, err
		}
		next = seq + 1
	}
	switch {
	case in.bad == 0:
		return true, w.close(next, boot)
	case next == 1 && in.most == 0:
		return false, fmt.Errorf("%w: not a line of it is an entry", ErrFormat)
	}
	// What the last lines were is not known.
	return false, w.lost(next, max(in.most, next-1)+reservation(next), boot)
}

// asideOf is where a file of the first format stays that could not be used as a
// whole, or that was written by an older program later.
func asideOf(old string) string { return old + ".kept" }

// maxAside is how many such files are kept beside each other. A further one stays where it is: nothing is lost that was kept.
const maxAside = 9

// keep puts a file of the first format aside, under a name that none has yet.
func keep(d disk, old string) error {
	to := asideOf(old)
	for n := 2; ; n++ {
		f, err := d.Open(to)
		if errors.Is(err, fs.ErrNotExist) {
			return d.Rename(old, to)
		}
		if err != nil {
			return err
		}
		if err := f.Close(); err != nil || n > maxAside {
			return err
		}
		to = asideOf(old) + "." + strconv.Itoa(n)
	}
}

// takeOver makes the file at path from one of the first format, and opens it.
func takeOver(d disk, old, path string, about []byte) (file, error) {
	from, err := d.Open(old)
	if err != nil {
		return nil, err
	}
	defer func() { _ = from.Close() }()
	size, err := from.Size()
	if err != nil {
		return nil, err
	}
	temp := tempPath(path)
	to, err := d.Create(temp)
	if err != nil {
		return nil, err
	}
	w := &writer{f: to, pack: true}
	err = w.beginning()
	if err == nil && about != nil {
		err = w.block(header{kind: aboutBlock, first: 1, boot: d.Boot()}, about)
	}
	whole := false
	if err == nil {
		whole, err = convert(io.NewSectionReader(from, 0, size), w, d.Boot())
	}
	if err == nil {
		err = to.Sync()
	}
	if err = errors.Join(err, to.Close()); err == nil {
		err = d.Rename(temp, path)
	}
	if err != nil {
		return nil, errors.Join(err, d.Remove(temp))
	}
	if err := d.SyncFolder(path); err != nil {
		return nil, err
	}
	if whole {
		err = d.Remove(old)
	} else {
		err = keep(d, old)
	}
	if err != nil {
		return nil, err
	}
	return d.Open(path)
}

// putAside deals with a file of the first format beside one of the second: what
// was left when taking it over was interrupted, or what an older program has
// written since.
func putAside(d disk, old string) error {
	from, err := d.Open(old)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := from.Close(); err != nil {
		return err
	}
	return keep(d, old)
}
