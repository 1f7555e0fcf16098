package parcel

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"sandboxagent.dev/sandbox-agent/runtime"
)

// ContentType is the media type of the file.
const ContentType = "application/zstd"

const (
	manifestName  = "manifest.json"
	checksumsName = "checksums"
)

// inMemory is how much of an entry is held in memory until its size is known; more goes
// to a temporary file.
const inMemory = 4 << 20

// copySize is enough that reading and writing files costs little, and fits into caches.
const copySize = 256 << 10

// WriterBytes is about what a Writer takes of memory.
const WriterBytes = 12 << 20

// Writer writes a session's file. It is not safe for concurrent use.
type Writer struct {
	zip  *frames
	tar  *tar.Writer
	at   time.Time // of all entries
	buf  []byte    // for copies
	sums strings.Builder
	err  error // the first; nothing is written behind it
}

// NewWriter writes the beginning of a session's file.
func NewWriter(w io.Writer, m runtime.Manifest) (*Writer, error) {
	zip, err := newFrames(w)
	if err != nil {
		return nil, fmt.Errorf("compress the session: %w", err)
	}
	p := &Writer{zip: zip, tar: tar.NewWriter(zip), at: m.ExportedAt, buf: make([]byte, copySize)}
	b, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode the manifest: %w", err)
	}
	if err := p.Put(manifestName, bytes.NewReader(append(b, '\n'))); err != nil {
		return nil, err
	}
	return p, zip.Flush() // whoever reads it sees what comes
}

// Put writes one entry.
func (p *Writer) Put(name string, r io.Reader) (err error) {
	if p.err != nil {
		return p.err
	}
	defer func() { p.err = err }()
	if err := plainName(name); err != nil {
		return err
	}
	content, size, release, err := spool(r)
	if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	defer release()
	_, err = p.put(name, content, size)
	return err
}

// PutSized writes one entry of a size that is known, and returns its SHA-256. Of more it
// takes the beginning; less is io.ErrUnexpectedEOF.
func (p *Writer) PutSized(name string, size int64, r io.Reader) (sum [sha256.Size]byte, err error) {
	if p.err != nil {
		return sum, p.err
	}
	if p.err = plainName(name); p.err == nil {
		sum, p.err = p.put(name, r, size)
	}
	return sum, p.err
}

func (p *Writer) put(name string, content io.Reader, size int64) (sum [sha256.Size]byte, err error) {
	if err := p.tar.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o600, Size: size, ModTime: p.at, Format: tar.FormatPAX}); err != nil {
		return sum, fmt.Errorf("write %s: %w", name, err)
	}
	h := sha256.New()
	n, err := io.CopyBuffer(struct{ io.Writer }{io.MultiWriter(p.tar, h)}, struct{ io.Reader }{io.LimitReader(content, size)}, p.buf)
	if err == nil && n < size {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return sum, fmt.Errorf("write %s: %w", name, err)
	}
	h.Sum(sum[:0])
	if name != checksumsName {
		fmt.Fprintf(&p.sums, "%x  %s\n", sum, name)
	}
	return sum, nil
}

// Close writes the checksums and the end. A file that was not closed is not whole.
func (p *Writer) Close() error {
	if err := p.Put(checksumsName, strings.NewReader(p.sums.String())); err != nil {
		p.Abandon()
		return err
	}
	return errors.Join(p.tar.Close(), p.zip.Close())
}

// Abandon gives up a file that will not be whole.
func (p *Writer) Abandon() {
	p.zip.abandon(io.ErrClosedPipe)
}

// spool reads all of r, to know how much it is.
func spool(r io.Reader) (content io.Reader, size int64, release func(), err error) {
	var head bytes.Buffer
	n, err := io.Copy(&head, io.LimitReader(r, inMemory))
	if err != nil {
		return nil, 0, nil, err
	}
	if n < inMemory {
		return &head, n, func() {}, nil
	}
	f, err := os.CreateTemp("", "session-export-")
	if err != nil {
		return nil, 0, nil, err
	}
	// Where an open file can lose its name, nothing is left of it when this program is killed.
	named := os.Remove(f.Name()) != nil
	release = func() {
		_ = f.Close()
		if named {
			_ = os.Remove(f.Name())
		}
	}
	more, err := io.Copy(f, r)
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		release()
		return nil, 0, nil, err
	}
	return io.MultiReader(&head, f), n + more, release, nil
}
