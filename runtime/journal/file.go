package journal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// recoverTail returns the newest complete entry of the file at path and where
// it ends, and cuts off what follows it. A missing file is an empty log.
func recoverTail(path string) (last uint64, size int64, err error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, 0, nil
	}
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return 0, 0, err
	}
	last, size, err = lastEntry(f, end)
	if err == nil && size < end {
		err = f.Truncate(size)
	}
	return last, size, err
}

// lastEntry finds the newest well-formed line within the first end bytes.
func lastEntry(f io.ReaderAt, end int64) (seq uint64, size int64, err error) {
	for end > 0 {
		start, err := lineStart(f, end)
		if err != nil {
			return 0, 0, err
		}
		line := make([]byte, end-start)
		if _, err := f.ReadAt(line, start); err != nil {
			return 0, 0, err
		}
		if body, ok := bytes.CutSuffix(line, []byte{'\n'}); ok {
			if e, ok := parseLine(body); ok {
				return e.Seq, end, nil
			}
		}
		end = start
	}
	return 0, 0, nil
}

// lineStart returns where the line begins whose last byte is at end-1.
func lineStart(f io.ReaderAt, end int64) (int64, error) {
	buf := make([]byte, 64<<10)
	at := end - 1 // the line's own newline is no boundary
	for at > 0 {
		n := min(int64(len(buf)), at)
		if _, err := f.ReadAt(buf[:n], at-n); err != nil {
			return 0, err
		}
		if i := bytes.LastIndexByte(buf[:n], '\n'); i >= 0 {
			return at - n + int64(i) + 1, nil
		}
		at -= n
	}
	return 0, nil
}

// seekSeq returns the offset of the line of entry seq, which is among the
// first size bytes. Lines are in order, so it bisects.
func seekSeq(f io.ReaderAt, size int64, seq uint64) (int64, error) {
	lo, hi := int64(0), size // the line is at or after lo and before hi
	for hi-lo > 4<<10 {
		at, got, err := lineAfter(f, lo+(hi-lo)/2, hi, size)
		if err != nil {
			return 0, err
		}
		if at < 0 || got > seq {
			hi = lo + (hi-lo)/2
			continue
		}
		lo = at
		if got == seq {
			return lo, nil
		}
	}
	for lo < size {
		end, err := newlineFrom(f, lo, size)
		if err != nil {
			return 0, err
		}
		got, err := seqAt(f, lo, size)
		if err != nil {
			return 0, err
		}
		if got == seq {
			return lo, nil
		}
		if got > seq || end < 0 {
			break
		}
		lo = end + 1
	}
	return 0, fmt.Errorf("read journal: entry %d is missing", seq)
}

// lineAfter returns the first line that begins after from and before hi, -1
// when there is none. The line may end behind hi.
func lineAfter(f io.ReaderAt, from, hi, size int64) (at int64, seq uint64, err error) {
	nl, err := newlineFrom(f, from, hi)
	if err != nil || nl < 0 || nl+1 >= hi {
		return -1, 0, err
	}
	seq, err = seqAt(f, nl+1, size)
	return nl + 1, seq, err
}

// newlineFrom returns the offset of the first newline in [from, to), or -1.
func newlineFrom(f io.ReaderAt, from, to int64) (int64, error) {
	buf := make([]byte, 4<<10)
	for from < to {
		n := min(int64(len(buf)), to-from)
		if _, err := f.ReadAt(buf[:n], from); err != nil {
			return 0, err
		}
		if i := bytes.IndexByte(buf[:n], '\n'); i >= 0 {
			return from + int64(i), nil
		}
		from += n
		if len(buf) < 256<<10 {
			buf = make([]byte, 4*len(buf))
		}
	}
	return -1, nil
}

// seqAt reads the sequence number of the line at off.
func seqAt(f io.ReaderAt, off, end int64) (uint64, error) {
	var buf [32]byte
	n, err := f.ReadAt(buf[:min(int64(len(buf)), end-off)], off)
	if err != nil && err != io.EOF {
		return 0, err
	}
	rest, ok := bytes.CutPrefix(buf[:n], []byte(`{"seq":`))
	seq, k := leadingInt(rest)
	if !ok || k == 0 || seq <= 0 {
		return 0, fmt.Errorf("read journal: line at byte %d is damaged", off)
	}
	return uint64(seq), nil
}
