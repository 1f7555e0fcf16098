package control

import (
	"errors"
	"io"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/fs"
	"sandboxagent.dev/sandbox-agent/internal/awake"
	"sandboxagent.dev/sandbox-agent/internal/deadline"
)

// truncatedHeader says of an answer that is no JSON that a limit cut it.
const truncatedHeader = "Sandbox-Agent-Truncated"

// maxWatchers bounds the watches at one time.
const maxWatchers = 64

// stall ends a transfer whose other side takes or sends nothing for so long.
const stall = 60 * time.Second

// fileRoutes registers the routes of the file service.
func (s *Server) fileRoutes(e *echo.Echo, get func(string, echo.HandlerFunc)) {
	get("/v2/fs/file", s.files(s.getFile))
	e.PUT("/v2/fs/file", s.files(s.putFile))
	get("/v2/fs/entries", s.files(s.listEntries))
	get("/v2/fs/stat", s.files(s.statEntry))
	e.POST("/v2/fs/mkdir", s.files(s.makeDirectory))
	e.POST("/v2/fs/move", s.files(s.moveEntry))
	e.POST("/v2/fs/copy", s.files(s.copyEntry))
	e.DELETE("/v2/fs/entry", s.files(s.deleteEntry))
	e.POST("/v2/fs/upload-batch", s.files(s.uploadBatch))
	e.GET("/v2/fs/download-batch", s.files(s.downloadBatch))
	get("/v2/fs/search", s.files(s.searchFiles))
	e.GET("/v2/fs/checksums", s.files(s.checksums))
	e.GET("/v2/fs/watch", s.files(s.watchFiles))
	get("/v2/fs/git/status", s.files(s.gitStatus))
	get("/v2/fs/git/diff", s.files(s.gitDiff))
}

// fileRequest is a request to the file service.
type fileRequest struct {
	echo.Context
	fs *fs.Service
}

// files makes a handler of the web framework of one of the file service.
func (s *Server) files(h func(fileRequest) error) echo.HandlerFunc {
	return func(c echo.Context) error {
		if s.o.Files == nil {
			return problem.New(problem.NotSupported, "this server gives no access to files")
		}
		return fileProblem(h(fileRequest{c, s.o.Files}))
	}
}

var fileKinds = map[fs.Code]problem.Kind{
	fs.Invalid: problem.InvalidRequest, fs.NotFound: problem.NotFound, fs.Exists: problem.AlreadyExists,
	fs.NotDirectory: problem.NotADirectory, fs.NotFile: problem.NotAFile, fs.NotEmpty: problem.DirectoryNotEmpty,
	fs.Escapes: problem.PathEscapes, fs.Denied: problem.PermissionDenied, fs.NoSpace: problem.InsufficientStorage,
	fs.Changed: problem.PreconditionFailed, fs.Conflicting: problem.Conflict, fs.Refused: problem.ArchiveRefused, fs.TooLarge: problem.PayloadTooLarge,
	fs.Busy:        problem.TooManyRequests,
	fs.Unsupported: problem.NotSupported, fs.NoRepository: problem.NotARepository, fs.TimedOut: problem.Timeout, fs.Failed: problem.Internal,
}

// fileProblem is the problem that an error of the file service is.
func fileProblem(err error) error {
	if e, ok := errors.AsType[*fs.Error](err); ok {
		p := problem.New(fileKinds[e.Code], "%s", e.Error())
		if e.Written != nil {
			p = p.With("written", e.Written)
		}
		if e.Conflicts != nil {
			p = p.With("conflicts", e.Conflicts)
		}
		return p
	}
	return err
}

// path returns the absolute form of a query parameter that is a path. Relative
// ones belong to the session's directory, if one is named.
func (s *Server) path(r fileRequest, name string) (string, error) {
	values, err := s.paths(r, name)
	if err != nil {
		return "", err
	}
	return values[0], nil
}

func (s *Server) paths(r fileRequest, name string) ([]string, error) {
	values := r.QueryParams()[name]
	if len(values) == 0 {
		return nil, problem.New(problem.InvalidRequest, "the query parameter %s is missing: a path", name).With("parameter", name)
	}
	base, err := s.cwd(r.QueryParam("sessionId"))
	if err != nil {
		return nil, err
	}
	out := make([]string, len(values))
	for i, v := range values {
		if out[i], err = r.fs.Resolve(v, base); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// cwd returns a session's directory, "" for no session.
func (s *Server) cwd(session string) (string, error) {
	if session == "" {
		return "", nil
	}
	info, err := s.o.Sessions.Session(session)
	return info.Cwd, err
}

// flags reads query parameters that are true or false.
func flags(c echo.Context, values map[string]*bool) error {
	for name, p := range values {
		v := c.QueryParam(name)
		if v == "" {
			continue
		}
		b, err := strconv.ParseBool(v)
		if err != nil {
			return problem.New(problem.InvalidRequest, "%s must be true or false, not %q", name, v).With("parameter", name)
		}
		*p = b
	}
	return nil
}

// modeParam reads permissions in octal, nil when there are none.
func modeParam(c echo.Context) (*os.FileMode, error) {
	v := c.QueryParam("mode")
	if v == "" {
		return nil, nil
	}
	n, err := strconv.ParseUint(v, 8, 12)
	if err != nil || n > 0o777 {
		return nil, problem.New(problem.InvalidRequest, "mode must be permissions in octal, such as 0644, not %q", v).With("parameter", "mode")
	}
	mode := os.FileMode(n)
	return &mode, nil
}

// transfer takes one of the places for uploads and downloads.
func (s *Server) transfer(r fileRequest) (release func(), err error) {
	select {
	case s.transfers <- struct{}{}:
		return func() { <-s.transfers }, nil
	default:
		r.Response().Header().Set("Retry-After", "1")
		return nil, problem.New(problem.TooManyRequests, "%d uploads and downloads are under way, which is the most that this server does at one time: try again later", cap(s.transfers))
	}
}

// incoming is a request's body that must not stall.
type incoming struct {
	body
	rec *recorder // may be nil
	n   int64
}

func newIncoming(r fileRequest) *incoming {
	return &incoming{body: bodyOf(r.Response(), r.Request()), rec: recorderOf(r.Response())}
}

// Read implements io.Reader. Its errors are problems.
func (i *incoming) Read(p []byte) (int, error) {
	n, err := i.body.Read(p)
	i.n += int64(n)
	switch {
	case err == nil || errors.Is(err, io.EOF):
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = problem.New(problem.InvalidRequest, "nothing was received for %s, after %d bytes of the body", deadline.Words(stall), i.n)
	default:
		err = problem.Wrap(problem.InvalidRequest, err, "the body ended after %d bytes", i.n)
	}
	return n, err
}

// done counts what was read.
func (i *incoming) done() {
	if i.rec != nil {
		i.rec.uploaded += i.n
	}
}

// outgoing is a response whose body must not stall. Only while it is sent the client has a deadline: HTTP/2 ends the
// answer when one passes, also while the next part of it is made.
type outgoing struct {
	http.ResponseWriter // the framework's, which knows when the header is written
	body                http.ResponseWriter
	wait                *awake.Deadline
	refused             int // a status that is answered with a problem instead
}

func newOutgoing(r fileRequest) *outgoing {
	if rec := recorderOf(r.Response()); rec != nil {
		rec.download = true
	}
	return &outgoing{ResponseWriter: r.Response(), body: r.Response().Writer, wait: awake.NewDeadline(stall, takesOf(r.Response()).Set)}
}

// WriteHeader implements http.ResponseWriter.
func (o *outgoing) WriteHeader(status int) {
	if status >= http.StatusBadRequest {
		o.refused = status
		return
	}
	o.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (o *outgoing) Write(p []byte) (int, error) {
	if o.refused != 0 {
		return len(p), nil
	}
	o.wait.Start()
	defer o.wait.Stop()
	return o.body.Write(p)
}

// FlushError implements what http.ResponseController asks for.
func (o *outgoing) FlushError() error {
	o.wait.Start()
	defer o.wait.Stop()
	return http.NewResponseController(o.ResponseWriter).Flush()
}

// sendPart is how much the system sends of a file before the deadline is moved.
const sendPart = 2 << 20

// ReadFrom implements io.ReaderFrom, so that the system sends a file without
// this program touching it.
func (o *outgoing) ReadFrom(r io.Reader) (total int64, err error) {
	if o.refused != 0 {
		return io.Copy(io.Discard, r)
	}
	limited, ok := r.(*io.LimitedReader)
	if !ok {
		return io.Copy(struct{ io.Writer }{o}, r)
	}
	for limited.N > 0 {
		part := io.LimitedReader{R: limited.R, N: min(limited.N, sendPart)}
		o.wait.Start()
		n, err := io.Copy(o.body, &part)
		o.wait.Stop()
		total += n
		limited.N -= n
		if err != nil {
			return total, err
		}
		if n == 0 {
			return total, nil // the file became shorter
		}
	}
	return total, nil
}
