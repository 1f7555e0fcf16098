package control

import (
	"errors"
	"io"
	"net/http"
	"os"

	"github.com/labstack/echo/v4"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/internal/awake"
	"sandboxagent.dev/sandbox-agent/internal/deadline"
	"sandboxagent.dev/sandbox-agent/internal/memory"
)

// body is that of a request whose client must not stall. Only while it is waited for the client has a deadline: HTTP/2
// does not lift one that has passed, and with HTTP/1 the server itself reads behind the body, and ends the request when
// it cannot.
type body struct {
	io.ReadCloser
	sends *deadline.Deadline
	wait  *awake.Deadline
}

func bodyOf(w http.ResponseWriter, r *http.Request) body {
	sends := sendsOf(w)
	return body{r.Body, sends, awake.NewDeadline(stall, sends.Set)}
}

// sendsOf returns the deadline until which the client has to send its body.
func sendsOf(w http.ResponseWriter) *deadline.Deadline {
	if rec := recorderOf(w); rec != nil {
		return rec.sends
	}
	return deadline.New(stall, http.NewResponseController(w).SetReadDeadline)
}

// Read implements io.Reader.
func (b body) Read(p []byte) (int, error) {
	b.wait.Start()
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, os.ErrDeadlineExceeded) { // which stays: the server would wait for the rest before it answers
		b.wait.Leave()
		return n, err
	}
	b.wait.Stop()
	if err == io.EOF {
		b.sends.Lift() // what comes now is the next request
	}
	return n, err
}

// fewBytes is the most of a body, or of an answer, that nobody counts.
const fewBytes = 64 << 10

// ReadBody reads the body of a request, which has at most so many bytes. They are few: nobody counts them.
func ReadBody(w http.ResponseWriter, r *http.Request, most int64) ([]byte, error) {
	return gather(w, r, most, nil)
}

// readBytes reads the body of a request, which has at most so many bytes. While it comes its memory is a part of what all
// clients have together.
func (s *Server) readBytes(c echo.Context, most int64) ([]byte, error) {
	if most <= fewBytes { // as a signal, which is not to be refused
		return ReadBody(c.Response(), c.Request(), most)
	}
	share := s.arriving(c)
	defer share.Close()
	return gather(c.Response(), c.Request(), most, share)
}

// arriving returns a share for a body. When others need it, and the client does not send, the body ends.
func (s *Server) arriving(c echo.Context) *memory.Share {
	return s.o.Memory.Open(sendsOf(c.Response()).End)
}

func gather(w http.ResponseWriter, r *http.Request, most int64, share *memory.Share) ([]byte, error) {
	b, err := share.Gather(r.Context(), http.MaxBytesReader(w, bodyOf(w, r), most), 512, int(most)+512)
	if share.Ended() && err == nil { // with its last byte: the server may have noticed the deadline, and have ended all requests of the connection
		w.Header().Set("Connection", "close")
	}
	if errors.Is(err, memory.ErrFull) || share.Ended() {
		return nil, errMemory()
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, problem.New(problem.PayloadTooLarge, "the body has more than %d bytes", most)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, problem.New(problem.InvalidRequest, "nothing was received of the body for %s", deadline.Words(stall))
	}
	if err != nil {
		return nil, problem.Wrap(problem.InvalidRequest, err, "the body could not be read")
	}
	return b, nil
}
