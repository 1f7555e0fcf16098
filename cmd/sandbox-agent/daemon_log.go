package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"sandboxagent.dev/sandbox-agent/internal/pattern"
)

const (
	daemonLogBound = 16 << 20           // bytes of a daemon's log, which nobody else looks after
	daemonLogKept  = daemonLogBound / 2 // of its newest lines, when it is cut
)

// daemonLog is the log of a daemon for the server, whose output goes there. It is cut by who writes it. It implements
// io.Writer.
type daemonLog struct {
	path string
	out  *os.File // appends

	mu   sync.Mutex
	left int64 // that may be written before it is cut
}

// ownLog returns the daemon's log when that is what w writes to; nil for any other output.
func ownLog(w io.Writer, dataDir string) *daemonLog {
	out, ok := w.(*os.File)
	if !ok {
		return nil
	}
	path := (&daemon{dataDir: dataDir}).file("log")
	at, err := os.Stat(path)
	if err != nil {
		return nil
	}
	info, err := out.Stat()
	if err != nil || !os.SameFile(at, info) {
		return nil
	}
	return &daemonLog{path: path, out: out, left: daemonLogBound - info.Size()}
}

func (l *daemonLog) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.left -= int64(len(line)); l.left < 0 {
		_ = cutLog(l.path, daemonLogKept) // what cannot be cut, such as a log that somebody removed, is tried again
		l.left = daemonLogBound - daemonLogKept
	}
	return l.out.Write(line)
}

// roomInLog cuts a log to which nobody writes, so that the next server does not do it before it has said where it
// listens: that is looked for from where the log ends now. One that cannot be cut is no reason not to start.
func roomInLog(path string) {
	if info, err := os.Stat(path); err == nil && info.Size() > daemonLogBound-daemonLogKept/2 {
		_ = cutLog(path, daemonLogKept)
	}
}

// cutLog leaves the last lines of a log, of so many bytes at most. It takes no room for it: the disk may be full.
func cutLog(path string, keep int64) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || info.Size() <= keep {
		return err
	}
	from, to := info.Size()-keep, int64(0)
	buf := make([]byte, 64<<10)
	for first := true; ; {
		n, err := f.ReadAt(buf, from)
		from += int64(n)
		part := buf[:n]
		if first { // up to the first line that is whole
			_, part, _ = bytes.Cut(part, []byte{'\n'})
			first = len(part) == 0
		}
		if _, err := f.WriteAt(part, to); err != nil {
			return err
		}
		to += int64(len(part))
		if errors.Is(err, io.EOF) {
			return f.Truncate(to)
		}
		if err != nil {
			return err
		}
	}
}

// logTail is how much of what was read last a reader compares: more than most lines have, of which each has its time.
const logTail = 4 << 10

// logReader reads a log from where the file stands, and knows when it was cut meanwhile: also when it is longer than
// what was read by then, since what stands before that is not what was read. It goes on behind what was read last, or,
// when that was removed, from the beginning of what is kept. It implements io.Reader.
type logReader struct {
	f   *os.File
	at  int64
	was []byte // stands before at

	cut, missing bool // since the last askCut
}

func readLog(f *os.File) (*logReader, error) {
	r := &logReader{f: f}
	at, err := f.Seek(0, io.SeekCurrent)
	if err != nil {
		return nil, err
	}
	return r, r.move(at)
}

// move goes to another place.
func (r *logReader) move(at int64) error {
	r.at, r.was = at, make([]byte, min(at, logTail))
	n, err := r.f.ReadAt(r.was, at-int64(len(r.was)))
	if n < len(r.was) { // it is being cut
		r.was = r.was[:0]
		return err
	}
	return nil
}

// find goes to where the log goes on behind what was read last.
func (r *logReader) find() error {
	kept, err := io.ReadAll(io.NewSectionReader(r.f, 0, 2*daemonLogBound))
	if err != nil {
		return err
	}
	at := -1
	if i := bytes.Index(kept, r.was); i >= 0 && len(r.was) == logTail {
		at = i + len(r.was)
	}
	for last := r.was; at < 0 && len(last) > 0; { // or some lines of it, with which the log begins now
		if _, last, _ = bytes.Cut(last, []byte{'\n'}); len(last) > 0 && bytes.HasPrefix(kept, last) {
			at = len(last)
		}
	}
	r.cut, r.missing = true, r.missing || at < 0
	if err := r.move(int64(max(at, 0))); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// Read ends as at the end of the log when that was cut. A log is cut from its beginning on: as long as what stands before
// the place that was read is the same, what was read is, too.
func (r *logReader) Read(p []byte) (int, error) {
	n, err := r.f.ReadAt(p, r.at)
	if err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	now := make([]byte, len(r.was))
	if m, err := r.f.ReadAt(now, r.at-int64(len(now))); err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	} else if m < len(now) || !bytes.Equal(now, r.was) {
		if err := r.find(); err != nil {
			return 0, err
		}
		return 0, io.EOF
	}
	if n == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	r.at += int64(n)
	r.was = append(r.was, p[:n]...)
	r.was = bytes.Clone(r.was[max(0, len(r.was)-logTail):])
	return n, nil
}

// askCut reports whether it was cut since it was asked last, and whether lines may be missing by that.
func (r *logReader) askCut() (cut, missing bool) {
	cut, missing = r.cut, r.missing
	r.cut, r.missing = false, false
	return cut, missing
}

// seekTail moves to where the last lines of a file begin.
func seekTail(f *os.File, lines int) error {
	at, err := f.Seek(0, io.SeekEnd)
	if err != nil || lines <= 0 {
		_, err = f.Seek(0, io.SeekStart)
		return err
	}
	buf := make([]byte, 64<<10)
	first := true
	for at > 0 {
		n := min(int64(len(buf)), at)
		at -= n
		if _, err := f.ReadAt(buf[:n], at); err != nil {
			return err
		}
		for i := n - 1; i >= 0; i-- {
			if buf[i] != '\n' {
				first = false
				continue
			}
			if first { // the end of the last line
				first = false
				continue
			}
			if lines--; lines == 0 {
				_, err := f.Seek(at+i+1, io.SeekStart)
				return err
			}
		}
	}
	_, err = f.Seek(0, io.SeekStart)
	return err
}

var announced = pattern.New(`listening on (https?://\S+)|"msg":"listening","url":"([^"]+)"`)

// saidSince is what stands in the log from a position on, and the address there at
// which a server listens, "" as long as none does.
func saidSince(log *os.File, from int64) (address string, said []byte, err error) {
	said, err = io.ReadAll(io.NewSectionReader(log, from, 1<<20))
	if err != nil {
		return "", nil, fmt.Errorf("read the daemon's log: %w", err)
	}
	if m := announced.FindSubmatch(said); m != nil {
		address = string(m[1]) + string(m[2])
	}
	return address, said, nil
}
