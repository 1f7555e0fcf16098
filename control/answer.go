package control

import (
	"context"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/internal/deadline"
	"sandboxagent.dev/sandbox-agent/internal/memory"
)

// pieceBytes is how much of an answer is written before its deadline is moved.
const pieceBytes = 256 << 10

// share has the work of the request take its memory from what all clients have together,
// until end is called. When others need it, and the client does not read, its answer is
// cut off.
func (s *Server) share(c echo.Context) (share *memory.Share, ctx context.Context, end func()) {
	if share = memory.From(c.Request().Context()); share != nil {
		return share, c.Request().Context(), func() {} // it has one
	}
	share = s.o.Memory.Open(takesOf(c.Response()).End)
	ctx = memory.With(c.Request().Context(), share)
	c.SetRequest(c.Request().WithContext(ctx))
	return share, ctx, share.Close
}

// errMemory says that there is no room for what is to be read or answered.
func errMemory() error {
	return problem.New(problem.TooManyRequests, "requests of clients and answers to them take all the memory that they may have: try again, or raise it with --max-memory")
}

// takesOf returns the deadline until which the client has to take what it is sent, of all that answers this request. The connection is
// left to the next request when this one was answered.
func takesOf(w http.ResponseWriter) *deadline.Deadline {
	if rec := recorderOf(w); rec != nil {
		return rec.takes
	}
	return deadline.New(writeTimeout, func(time.Time) error { return nil }) // the hub bounds all that it writes
}

// timed is an answer that others write. Its client has time for each piece.
type timed struct {
	http.ResponseWriter
	takes *deadline.Deadline
}

// Write implements http.ResponseWriter.
func (t timed) Write(p []byte) (int, error) {
	t.takes.Extend()
	return t.ResponseWriter.Write(p)
}

// writePieces writes b, each piece in its time: a client that reads nothing is dropped.
// What went out is the share's, which may be nil.
func writePieces(w http.ResponseWriter, share *memory.Share, b []byte) {
	takes := takesOf(w)
	for len(b) > 0 {
		takes.Extend()
		n, err := w.Write(b[:min(len(b), pieceBytes)])
		share.Moved(n)
		if err != nil {
			return // the client is gone, and misses nothing
		}
		b = b[n:]
	}
}
