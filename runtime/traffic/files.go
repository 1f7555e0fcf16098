package traffic

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
	"unicode/utf8"

	"sandboxagent.dev/sandbox-agent/acp/rawjson"
)

// The files of a recording, in the session's folder.
const (
	newer = "raw.ndjson"
	older = "raw.old.ndjson"
)

// files are the two files of a recording, the newer one open.
type files struct {
	folder string
	f      *os.File
	size   int64
	gone   int64 // bytes that are not there any more
	buf    []byte
}

// open goes on with the recording in a folder, or begins one. What a kill has left of a
// last line is taken away.
func open(folder string) (*files, error) {
	f, err := os.OpenFile(filepath.Join(folder, newer), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the recording: %w", err)
	}
	w := &files{folder: folder, f: f}
	if err := w.resume(); err != nil {
		return nil, errors.Join(fmt.Errorf("open the recording: %w", err), f.Close())
	}
	return w, nil
}

func (w *files) resume() error {
	end, err := w.f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	if w.size, err = wholeLines(w.f, end); err != nil {
		return err
	}
	if w.size < end {
		err = w.f.Truncate(w.size)
	}
	if err == nil {
		_, err = w.f.Seek(w.size, io.SeekStart)
	}
	w.gone, _ = beginning(w.f)
	if before, openErr := os.Open(filepath.Join(w.folder, older)); openErr == nil {
		gone, _ := beginning(before)
		w.gone = max(w.gone, gone) // a kill came between the two
		err = errors.Join(err, before.Close())
	}
	return err
}

// wholeLines returns where the last whole line of a file's first bytes ends.
func wholeLines(f io.ReaderAt, end int64) (int64, error) {
	buf := make([]byte, 64<<10)
	for end > 0 {
		from := max(0, end-int64(len(buf)))
		n, err := f.ReadAt(buf[:end-from], from)
		if err != nil && (err != io.EOF || int64(n) < end-from) {
			return 0, err
		}
		if i := bytes.LastIndexByte(buf[:n], '\n'); i >= 0 {
			return from + int64(i) + 1, nil
		}
		end = from
	}
	return 0, nil
}

// note is a line of a recording that is none of the traffic.
type note struct {
	Time time.Time `json:"time"`
	// Gone is how much of the recording's beginning is not there any more, in bytes.
	Gone int64 `json:"goneBytes,omitempty"`
	// LeftOut is how much was not recorded here, because it came faster than it was written.
	LeftOut *leftOut `json:"leftOut,omitempty"`
}

type leftOut struct {
	Lines int `json:"lines"`
	Bytes int `json:"bytes"`
}

// beginning reads what a file's first line says of what is not there any more. It returns the
// line, which is empty when it is one of the traffic.
func beginning(f io.ReaderAt) (gone int64, line []byte) {
	b := make([]byte, 256)
	n, _ := f.ReadAt(b, 0)
	end := bytes.IndexByte(b[:n], '\n') + 1
	var said note
	if json.Unmarshal(b[:end], &said) != nil || said.Gone == 0 {
		return 0, nil
	}
	return said.Gone, b[:end]
}

// add writes lines, and what was left out behind them.
func (w *files) add(batch []entry, lost loss, clean func(string) string) error {
	for i := range batch {
		w.buf = appendEntry(w.buf[:0], &batch[i], clean)
		if err := w.write(w.buf); err != nil {
			return err
		}
	}
	if lost.lines == 0 {
		return nil
	}
	return w.note(note{LeftOut: &leftOut{Lines: lost.lines, Bytes: lost.bytes}})
}

// appendEntry appends one line of a recording. First secrets are taken out, then the line
// is cut: a part of one would not be known.
func appendEntry(b []byte, e *entry, clean func(string) string) []byte {
	text := clean(string(e.line))
	cut := 0
	if len(text) > maxLine {
		keep := maxLine
		for keep > 0 && !utf8.RuneStart(text[keep]) {
			keep--
		}
		cut, text = len(text)-keep, text[:keep]
	}
	line := rawjson.Object{}.String("time", e.at.UTC().Format(time.RFC3339Nano)).String("from", e.from).String("line", text)
	if cut > 0 {
		line = line.Raw("cutBytes", fmt.Append(nil, cut))
	}
	return append(append(b, line.End()...), '\n')
}

func (w *files) note(n note) error {
	n.Time = time.Now().UTC()
	b, err := json.Marshal(n)
	if err != nil {
		return fmt.Errorf("encode a note: %w", err)
	}
	return w.write(append(b, '\n'))
}

// write writes a line, to the next file when this one is full.
func (w *files) write(line []byte) error {
	if w.size > 0 && w.size+int64(len(line)) > maxFile {
		if err := w.turn(); err != nil {
			return err
		}
	}
	n, err := w.f.Write(line)
	if err != nil {
		// A part of a line is none: what is there stays readable.
		return errors.Join(fmt.Errorf("write the recording: %w", err), w.f.Truncate(w.size))
	}
	w.size += int64(n)
	return nil
}

// turn makes of the newer file the older one, which goes, and begins another.
func (w *files) turn() error {
	newPath, oldPath := filepath.Join(w.folder, newer), filepath.Join(w.folder, older)
	if err := w.inPlace(newPath); err != nil {
		return fmt.Errorf("turn the recording: %w", err)
	}
	if st, err := os.Stat(oldPath); err == nil {
		w.gone += st.Size()
	}
	if err := w.f.Close(); err != nil {
		return fmt.Errorf("write the recording: %w", err)
	}
	if err := os.Rename(newPath, oldPath); err != nil {
		return fmt.Errorf("turn the recording: %w", err)
	}
	f, err := os.OpenFile(newPath, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("turn the recording: %w", err)
	}
	w.f, w.size = f, 0
	if w.gone == 0 {
		return nil
	}
	return w.note(note{Gone: w.gone})
}

// inPlace fails when another file has the place of the newer one, as where the folder of all sessions was put aside, and a
// copy of it stands there: that one is not written over.
func (w *files) inPlace(path string) error {
	there, err := os.Stat(path)
	if err != nil {
		return err
	}
	if own, err := w.f.Stat(); err != nil || !os.SameFile(own, there) {
		return errors.Join(fmt.Errorf("%s is another file than the one that was begun: the session's folder was replaced", path), err)
	}
	return nil
}

func (w *files) close() error {
	if err := w.f.Close(); err != nil && !errors.Is(err, fs.ErrClosed) {
		return fmt.Errorf("close the recording: %w", err)
	}
	return nil
}

// Read returns the recording in a folder as it is now: lines of JSON, the oldest first. It is
// nil when nothing was recorded there.
func Read(folder string) (io.ReadCloser, error) {
	for {
		r := &reader{}
		for _, name := range []string{newer, older} { // in this order: what moves meanwhile is seen twice, and not never
			f, err := os.Open(filepath.Join(folder, name))
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return nil, errors.Join(fmt.Errorf("read the recording: %w", err), r.Close())
			}
			r.files = append(r.files, f)
		}
		switch {
		case len(r.files) == 0:
			return nil, nil
		case len(r.files) == 2 && same(r.files[0], r.files[1]): // they have taken turns in between
			if err := r.Close(); err != nil {
				return nil, fmt.Errorf("read the recording: %w", err)
			}
			continue
		}
		slices.Reverse(r.files)
		if err := r.bound(); err != nil {
			return nil, errors.Join(fmt.Errorf("read the recording: %w", err), r.Close())
		}
		return r, nil
	}
}

// maxRestored bounds a recording that comes from elsewhere: what was taken out of it may have
// left it longer.
const maxRestored = 8 * maxFile

// Restore makes in a folder a recording of one that was read elsewhere.
func Restore(folder string, from io.Reader) error {
	f, err := os.OpenFile(filepath.Join(folder, newer), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("restore the recording: %w", err)
	}
	n, err := io.Copy(f, io.LimitReader(from, maxRestored+1))
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("restore the recording: %w", err)
	}
	if n > maxRestored {
		return fmt.Errorf("restore the recording: it has more than %d bytes", maxRestored)
	}
	return nil
}

func same(a, b *os.File) bool {
	one, err := a.Stat()
	other, err2 := b.Stat()
	return err == nil && err2 == nil && os.SameFile(one, other)
}

// reader reads whole lines of files, up to what they have when it begins.
type reader struct {
	files []*os.File
	io.Reader
}

// bound is called once. What the files say of what is gone goes before everything else, as
// the newer one has it.
func (r *reader) bound() error {
	var parts []io.Reader
	var note []byte
	for _, f := range r.files {
		info, err := f.Stat()
		if err != nil {
			return err
		}
		size, err := wholeLines(f, info.Size())
		if err != nil {
			return err
		}
		_, first := beginning(f)
		if len(first) > 0 {
			note = first
		}
		from := int64(len(first))
		parts = append(parts, io.NewSectionReader(f, from, size-from))
	}
	r.Reader = io.MultiReader(append([]io.Reader{bytes.NewReader(note)}, parts...)...)
	return nil
}

// Close implements io.Closer.
func (r *reader) Close() error {
	var errs []error
	for _, f := range r.files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}
