package control

import (
	"errors"
	"io"
	"net/http"
	"os"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/internal/awake"
)

// body is that of a request whose client must not stall. Only while it is waited for the client has a deadline: HTTP/2
// does not lift one that has passed, and with HTTP/1 the server itself reads behind the body, and ends the request when
// it cannot.
type body struct {
	io.ReadCloser
	wait *awake.Deadline
}

func bodyOf(w http.ResponseWriter, r *http.Request) body {
	return body{r.Body, awake.NewDeadline(stall, http.NewResponseController(w).SetReadDeadline)}
}

// Read implements io.Reader.
func (b body) Read(p []byte) (int, error) {
	b.wait.Start()
	n, err := b.ReadCloser.Read(p)
	if !errors.Is(err, os.ErrDeadlineExceeded) { // which stays: the server would wait for the rest before it answers
		b.wait.Stop()
	}
	return n, err
}

// ReadBody reads the body of a request, which has at most so many bytes.
func ReadBody(w http.ResponseWriter, r *http.Request, most int64) ([]byte, error) {
	b, err := io.ReadAll(http.MaxBytesReader(w, bodyOf(w, r), most))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, problem.New(problem.PayloadTooLarge, "the body has more than %d bytes", most)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, problem.New(problem.InvalidRequest, "nothing was received of the body for %s", stall)
	}
	if err != nil {
		return nil, problem.Wrap(problem.InvalidRequest, err, "the body could not be read")
	}
	return b, nil
}
