package journal

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// MaxLine bounds a line that is read from elsewhere.
const MaxLine = 96 << 20

// AppendLine appends the entry as one line, with its end, as files have it. An entry of
// the kind [Damage] becomes a [Notice], which says the same.
func (e Entry) AppendLine(b []byte) []byte {
	k := e.Kind
	if k == Damage {
		k = Notice
	}
	b = appendHead(b, e.Seq, e.Time().UnixMilli(), k, e.To)
	return append(append(b, e.Frame...), lineEnd...)
}

// AppendEntry appends the line of an entry that is in no log.
func AppendEntry(b []byte, seq uint64, at time.Time, k Kind, to Recipient, frame []byte) []byte {
	b = appendHead(b, seq, at.UnixMilli(), k, to)
	return append(append(b, frame...), lineEnd...)
}

// Lines reads entries that [Entry.AppendLine] has written. What is no entry, or has a
// number that does not grow, is an error.
type Lines struct {
	r    *bufio.Reader
	last uint64
}

// NewLines returns a reader of the lines of r.
func NewLines(r io.Reader) *Lines { return &Lines{r: bufio.NewReaderSize(r, window)} }

// Next returns the next entry, which is valid until the next call, and at the end io.EOF.
func (l *Lines) Next() (Entry, error) {
	line, err := l.r.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		long := append([]byte(nil), line...)
		for errors.Is(err, bufio.ErrBufferFull) {
			line, err = l.r.ReadSlice('\n')
			if long = append(long, line...); len(long) > MaxLine {
				return Entry{}, fmt.Errorf("the entry behind number %d has more than %d bytes", l.last, MaxLine)
			}
		}
		line = long
	}
	switch {
	case err == io.EOF && len(line) == 0:
		return Entry{}, io.EOF
	case err == io.EOF:
		return Entry{}, fmt.Errorf("the line behind entry %d has no end", l.last)
	case err != nil:
		return Entry{}, fmt.Errorf("read the entry behind number %d: %w", l.last, err)
	}
	e, ok := parseLine(line[:len(line)-1])
	if !ok || !json.Valid(e.Frame) {
		return Entry{}, fmt.Errorf("the line behind entry %d is no entry", l.last)
	}
	if e.Seq <= l.last || e.Seq >= 1<<53 {
		return Entry{}, fmt.Errorf("entry %d stands behind entry %d", e.Seq, l.last)
	}
	l.last = e.Seq
	return e, nil
}

// Restore makes the file of a log from entries of another one, which keep their numbers
// and times; about is what [Options.About] returns. next returns the entries in their
// order, and io.EOF behind the last. Numbers before oldest count as let go, and all before the first
// entry where oldest is 0, for who does not know; others that no entry has count as skipped. On an
// error there is no file.
func Restore(path string, about []byte, oldest uint64, next func() (Entry, error)) (err error) {
	d := osDisk{}
	f, err := d.Create(path)
	if err != nil {
		return fmt.Errorf("restore journal: %w", err)
	}
	w := &writer{f: f, pack: true}
	err = w.restore(about, d.Boot(), oldest, next)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(fmt.Errorf("restore journal: %w", err), d.Remove(path))
	}
	return nil
}

// Recall fills a log that is empty and has no file with entries of another one, as
// [Restore] does: those before oldest were let go, 0 for all before the first. Of more than the log may hold in memory the
// oldest are let go.
func (l *Log) Recall(oldest uint64, next func() (Entry, error)) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.path != "" || l.next != 1 {
		return errors.New("recall journal: the log has a file, or entries")
	}
	for {
		e, err := next()
		if err == io.EOF {
			return l.flushLocked()
		}
		if err == nil && e.Seq < l.next {
			err = fmt.Errorf("entry %d stands behind entry %d", e.Seq, l.appended)
		}
		if err != nil {
			return fmt.Errorf("recall journal: %w", err)
		}
		if l.batch = e.Time().UnixMilli(); l.batch == 0 {
			l.batch = 1
		}
		if l.appended == 0 {
			l.expired = goneBefore(e.begins(), oldest)
		}
		l.next, l.given = e.Seq, l.batch
		l.appendLocked(e.Kind, e.To, [][]byte{e.Frame})
		if l.held > l.o.Memory {
			if err := l.flushLocked(); err != nil {
				return fmt.Errorf("recall journal: %w", err)
			}
		}
	}
}

// goneBefore returns the newest entry that was let go of a log whose first entry is the one with a number, 0 for none. Numbers
// behind that are those of entries that are lost.
func goneBefore(first, oldest uint64) uint64 {
	if oldest > 0 {
		return min(first, oldest) - 1
	}
	return first - 1
}

func (w *writer) restore(about []byte, boot uint32, oldest uint64, next func() (Entry, error)) error {
	if err := w.beginning(); err != nil {
		return err
	}
	if about != nil {
		if err := w.block(header{kind: aboutBlock, first: 1, boot: boot}, about); err != nil {
			return err
		}
	}
	var last uint64
	var line []byte
	for {
		e, err := next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		first := max(e.begins(), last+1)
		switch {
		case e.Seq <= last:
			return fmt.Errorf("entry %d stands behind entry %d", e.Seq, last)
		case last == 0 && goneBefore(first, oldest) > 0:
			if err := w.block(header{kind: expired, first: 1, bound: goneBefore(first, oldest), boot: boot}, nil); err != nil {
				return err
			}
		}
		last = e.Seq
		if e.Kind == Damage {
			if err := w.lost(first, e.Seq, boot); err != nil {
				return err
			}
			continue
		}
		line = e.AppendLine(line[:0])
		if err := w.add(header{kind: entries, first: e.Seq, count: 1, bound: e.Seq, skipped: w.skipped(e.Seq), boot: boot}, line); err != nil {
			return err
		}
	}
	return w.close(last+1, boot)
}
