package control

import (
	"bufio"
	"io"
	"net/http"

	"github.com/labstack/echo/v4"

	"sandboxagent.dev/sandbox-agent/internal/memory"
)

// heldBack is how much of a body is made before the first of it is sent.
const heldBack = 64 << 10

// sendWhole answers with a body that is made while it is sent, and that nobody may take
// for whole when it is not. What goes wrong before much of it was made, as a session
// that is deleted meanwhile, is answered with why; later the connection is cut. bytes is
// the memory that making it takes.
func (s *Server) sendWhole(c echo.Context, what, id string, bytes int, write func(w io.Writer) error) error {
	release, err := s.transfer(fileRequest{Context: c})
	if err != nil {
		return err
	}
	defer release()
	share, end, err := s.making(c, 0, bytes)
	if err != nil {
		return err
	}
	defer end()
	return s.sendMade(fileRequest{Context: c}, heldBack, share, func(w *bufio.Writer, _ *outgoing) error { return write(w) }, "what", what, "session", id)
}

// making takes memory for an answer, beside what is held for it already, until end is called.
func (s *Server) making(c echo.Context, held, bytes int) (share *memory.Share, end func(), err error) {
	share, ctx, end := s.share(c)
	share.Count(held)
	if share.Take(ctx, bytes) != nil {
		end()
		return nil, nil, errMemory()
	}
	return share, end, nil
}

// sendMade answers with a body that is made while it is sent. What goes wrong before the
// first of its bytes left is answered with why; later the connection is cut. share, which
// may be nil, learns what has left.
func (s *Server) sendMade(r fileRequest, held int, share *memory.Share, write func(w *bufio.Writer, out *outgoing) error, about ...any) error {
	out := newOutgoing(r)
	w := bufio.NewWriterSize(begun{out, r.Response(), share}, held)
	err := write(w, out)
	if err == nil {
		err = w.Flush()
	}
	if err == nil && !r.Response().Committed {
		out.WriteHeader(http.StatusOK) // an empty body
	}
	if err == nil {
		return nil
	}
	if r.Response().Committed {
		s.log.Warn("answer ended early", append(about, "err", err)...)
		panic(http.ErrAbortHandler)
	}
	r.Response().Header().Del("Content-Disposition")
	return err
}

// begun writes the header before the first bytes of a body. It has no other way to write
// them, as the one that files take: bytes that go by it would leave without a header.
type begun struct {
	out      *outgoing
	response *echo.Response
	share    *memory.Share
}

// Write implements io.Writer.
func (b begun) Write(p []byte) (int, error) {
	if !b.response.Committed {
		b.out.WriteHeader(http.StatusOK)
	}
	n, err := b.out.Write(p)
	if b.share != nil {
		b.share.Moved(n)
	}
	return n, err
}
