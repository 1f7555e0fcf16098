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
	rc := http.NewResponseController(c.Response())
	share = s.o.Memory.Open(func() { _ = rc.SetWriteDeadline(deadline.Passed) })
	ctx = memory.With(c.Request().Context(), share)
	c.SetRequest(c.Request().WithContext(ctx))
	return share, ctx, share.Close
}

// errMemory says that there is no room for what is to be read or answered.
func errMemory() error {
	return problem.New(problem.TooManyRequests, "requests of clients and answers to them take all the memory that they may have: try again, or raise it with --max-memory")
}

// giveTime gives the client time for a piece, unless the share, which may be nil, was ended.
func giveTime(rc *http.ResponseController, share *memory.Share) {
	_ = rc.SetWriteDeadline(time.Now().Add(writeTimeout)) // test recorders have none
	if share.Ended() {
		_ = rc.SetWriteDeadline(deadline.Passed)
	}
}

// writePieces writes b, each piece in its time: a client that reads nothing is dropped.
// What went out is the share's, which may be nil.
func writePieces(w http.ResponseWriter, share *memory.Share, b []byte) {
	rc := http.NewResponseController(w)
	// The connection may serve other requests afterwards.
	defer func() { _ = rc.SetWriteDeadline(time.Time{}) }()
	for len(b) > 0 {
		giveTime(rc, share)
		n, err := w.Write(b[:min(len(b), pieceBytes)])
		share.Moved(n)
		if err != nil {
			return // the client is gone, and misses nothing
		}
		b = b[n:]
	}
}
