package control

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"mime"
	"slices"
	"time"

	"github.com/klauspost/compress/zstd"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/fs"
)

// archiveTypes are the media types of archives. Which of them a body is, is
// seen from its first bytes: clients often do not know better.
var archiveTypes = []string{
	"application/x-tar", "application/tar", "application/gzip", "application/x-gzip", "application/x-gtar", "application/x-tgz",
	"application/zstd", "application/x-zstd", "application/octet-stream",
}

// zstdWindow bounds the memory that an archive's sender can make the decoder
// take. zstd's levels up to 19 need 8 MiB.
const zstdWindow = 32 << 20

// uploadBatch unpacks the body into a folder.
func (s *Server) uploadBatch(r fileRequest) error {
	path, err := s.path(r, "path")
	if err != nil {
		return err
	}
	if v := r.Request().Header.Get("Content-Type"); v != "" {
		if media, _, err := mime.ParseMediaType(v); err != nil || !slices.Contains(archiveTypes, media) {
			return problem.New(problem.UnsupportedMediaType, "the body must be a tar archive, plain, gzip or zstd, and not %q: send it as application/x-tar, application/gzip or application/zstd", v)
		}
	}
	release, err := s.transfer(r)
	if err != nil {
		return err
	}
	defer release()
	in := newIncoming(r)
	defer in.done()
	body, consumed, end, err := decompress(in, func() int64 { return in.n })
	if err != nil {
		return err
	}
	defer end()
	done, err := r.fs.Unpack(r.Request().Context(), path, body, consumed)
	if p, ok := errors.AsType[*problem.Error](err); ok { // of the body
		return p.With("written", done)
	}
	if err != nil {
		return err
	}
	return s.writeJSON(r, done)
}

// decompress returns the plain archive of a body. taken tells how much of the
// body was read; so does consumed, which is nil when the body is not compressed.
func decompress(in io.Reader, taken func() int64) (r io.Reader, consumed func() int64, end func(), err error) {
	buf := bufio.NewReaderSize(in, 512)
	magic, err := buf.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, nil, nil, err
	}
	switch {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(bufio.NewReaderSize(buf, 64<<10))
		if err != nil {
			return nil, nil, nil, problem.Wrap(problem.InvalidRequest, err, "the body is no gzip file")
		}
		return compressed{z, "gzip"}, taken, func() { _ = z.Close() }, nil
	case bytes.Equal(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		z, err := zstd.NewReader(buf, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(zstdWindow))
		if err != nil {
			return nil, nil, nil, problem.Wrap(problem.InvalidRequest, err, "the body is no zstd file")
		}
		return compressed{z, "zstd"}, taken, z.Close, nil
	}
	return buf, nil, func() {}, nil
}

// compressed makes problems of errors of a decoder.
type compressed struct {
	io.Reader
	name string
}

func (c compressed) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	if err == nil || errors.Is(err, io.EOF) {
		return n, err
	}
	if _, ok := errors.AsType[*problem.Error](err); ok {
		return n, err
	}
	return n, problem.Wrap(problem.InvalidRequest, err, "the body is no whole %s file", c.name)
}

// downloadBatch sends a tar archive of paths.
func (s *Server) downloadBatch(r fileRequest) error {
	paths, err := s.paths(r, "path")
	if err != nil {
		return err
	}
	release, err := s.transfer(r)
	if err != nil {
		return err
	}
	defer release()
	h := r.Response().Header()
	h.Set("Content-Type", "application/x-tar")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Disposition", `attachment; filename="files.tar"`)
	return s.sendMade(r, 256<<10, nil, func(w *bufio.Writer, _ *outgoing) error {
		return r.fs.Pack(r.Request().Context(), w, paths)
	}, "what", "archive")
}

// checksums sends those of the files that would travel with a session of a folder.
func (s *Server) checksums(r fileRequest) error {
	path, err := s.path(r, "path")
	if err != nil {
		return err
	}
	release, err := s.transfer(r)
	if err != nil {
		return err
	}
	defer release()
	ctx := r.Request().Context()
	taking, err := r.fs.OpenWorkspace(ctx, path, fs.TakeOptions{})
	if err != nil {
		return err
	}
	defer taking.Close()
	h := r.Response().Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Cache-Control", "no-store")
	return s.sendMade(r, 64<<10, nil, func(w *bufio.Writer, out *outgoing) error {
		return taking.Checksums(ctx, &prompt{Writer: w, out: out, last: time.Now()})
	}, "what", "checksums")
}

// prompt is a body that is made slowly: what there is of it is sent each second.
type prompt struct {
	*bufio.Writer
	out  *outgoing
	last time.Time
}

// Write implements io.Writer.
func (p *prompt) Write(b []byte) (int, error) {
	n, err := p.Writer.Write(b)
	if now := time.Now(); err == nil && now.Sub(p.last) > time.Second {
		p.last = now
		if err = p.Flush(); err == nil {
			_ = p.out.FlushError() // test recorders have none
		}
	}
	return n, err
}
