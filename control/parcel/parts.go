package parcel

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
)

// partSize is how much of a stream is one entry: little enough for memory, because the
// size of an entry stands before it.
const partSize = inMemory / 2

// Stream returns what writes a stream of any length as entries below a name.
func (p *Writer) Stream(name string) io.WriteCloser { return &stream{p: p, name: name} }

type stream struct {
	p    *Writer
	name string
	buf  bytes.Buffer
	n    int
}

// Write implements io.Writer.
func (s *stream) Write(b []byte) (int, error) {
	total := len(b)
	for len(b) > 0 {
		k := min(len(b), partSize-s.buf.Len())
		s.buf.Write(b[:k])
		b = b[k:]
		if s.buf.Len() == partSize {
			if err := s.flush(); err != nil {
				return total - len(b), err
			}
		}
	}
	return total, nil
}

func (s *stream) flush() error {
	s.n++
	_, err := s.p.PutSized(fmt.Sprintf("%s/%08d", s.name, s.n), int64(s.buf.Len()), bytes.NewReader(s.buf.Bytes()))
	s.buf.Reset()
	return err
}

// Close writes the last entry. A stream of nothing has one, which is empty.
func (s *stream) Close() error {
	if s.buf.Len() == 0 && s.n > 0 {
		return nil
	}
	return s.flush()
}

// OpenStream returns a stream that was written as entries below a name, nil for one that
// was not.
func OpenStream(files fs.FS, name string) (io.ReadCloser, error) {
	list, err := fs.ReadDir(files, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for %s: %w", name, err)
	}
	r := &joined{files: files}
	for _, e := range list {
		r.names = append(r.names, name+"/"+e.Name())
	}
	slices.Sort(r.names)
	return r, nil
}

// joined reads files one after the other.
type joined struct {
	files fs.FS
	names []string
	open  fs.File
	at    int64 // in all of them
}

// next opens the next file; io.EOF says that there is none.
func (j *joined) next() error {
	if len(j.names) == 0 {
		return io.EOF
	}
	f, err := j.files.Open(j.names[0])
	if err == nil {
		j.open, j.names = f, j.names[1:]
	}
	return err
}

// Seek implements io.Seeker, forward from where it is: whoever looks for names in an
// archive reads nothing else. Behind the end there is nothing to be read.
func (j *joined) Seek(offset int64, whence int) (int64, error) {
	if whence != io.SeekCurrent || offset < 0 {
		return 0, errors.New("seek in a stream: only forward from where it is")
	}
	for offset > 0 {
		if j.open == nil {
			if err := j.next(); err == io.EOF {
				return j.at, nil
			} else if err != nil {
				return j.at, err
			}
		}
		f, ok := j.open.(io.Seeker)
		if !ok {
			return j.at, errors.New("seek in a stream: its parts cannot")
		}
		here, err := f.Seek(0, io.SeekCurrent)
		if err != nil {
			return j.at, err
		}
		info, err := j.open.Stat()
		if err != nil {
			return j.at, err
		}
		skip := min(offset, info.Size()-here)
		if _, err := f.Seek(skip, io.SeekCurrent); err != nil {
			return j.at, err
		}
		j.at, offset = j.at+skip, offset-skip
		if here+skip == info.Size() {
			if err := j.Close(); err != nil {
				return j.at, err
			}
		}
	}
	return j.at, nil
}

// Read implements io.Reader.
func (j *joined) Read(b []byte) (int, error) {
	for {
		if j.open == nil {
			if err := j.next(); err != nil {
				return 0, err
			}
		}
		n, err := j.open.Read(b)
		j.at += int64(n)
		if err == io.EOF {
			err = j.Close()
		}
		if n > 0 || err != nil {
			return n, err
		}
	}
}

// Close implements io.Closer.
func (j *joined) Close() error {
	if j.open == nil {
		return nil
	}
	f := j.open
	j.open = nil
	return f.Close()
}
