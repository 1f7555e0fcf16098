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
	err := s.p.Put(fmt.Sprintf("%s/%08d", s.name, s.n), bytes.NewReader(s.buf.Bytes()))
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
}

// Read implements io.Reader.
func (j *joined) Read(b []byte) (int, error) {
	for {
		if j.open == nil {
			if len(j.names) == 0 {
				return 0, io.EOF
			}
			f, err := j.files.Open(j.names[0])
			if err != nil {
				return 0, err
			}
			j.open, j.names = f, j.names[1:]
		}
		n, err := j.open.Read(b)
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
