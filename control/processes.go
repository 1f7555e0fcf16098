package control

import (
	"encoding/base64"
	"errors"
	"mime"
	"net/http"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/labstack/echo/v4"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/control/process"
	"sandboxagent.dev/sandbox-agent/fs"
)

// processRoutes registers the routes of processes.
func (s *Server) processRoutes(e *echo.Echo, get func(string, echo.HandlerFunc)) {
	e.POST("/v2/processes/run", s.processes(s.runProcess))
	e.POST("/v2/processes", s.processes(s.startProcess))
	get("/v2/processes", s.processes(s.listProcesses))
	get("/v2/processes/config", s.processes(s.getProcessLimits))
	e.PUT("/v2/processes/config", s.processes(s.putProcessLimits))
	get("/v2/processes/:id", s.process(s.getProcess))
	e.DELETE("/v2/processes/:id", s.process(s.deleteProcess))
	get("/v2/processes/:id/logs", s.process(s.getProcessLogs))
	e.POST("/v2/processes/:id/stdin", s.process(s.writeProcess))
	e.POST("/v2/processes/:id/signal", s.process(s.signalProcess))
	e.POST("/v2/processes/:id/stop", s.process(s.stopProcess))
	e.GET("/v2/processes/:id/terminal", s.process(s.viewTerminal))
}

// processRequest is a request about processes, or about one.
type processRequest struct {
	echo.Context
	all *process.Service
	p   *process.Process // nil when it is about none
}

// processes makes a handler of the web framework of one of processes.
func (s *Server) processes(h func(processRequest) error) echo.HandlerFunc {
	return func(c echo.Context) error {
		if s.o.Processes == nil {
			return problem.New(problem.NotSupported, "this server runs no processes for clients")
		}
		return processProblem(h(processRequest{Context: c, all: s.o.Processes}))
	}
}

// process makes one of a handler about the process that the path names.
func (s *Server) process(h func(processRequest) error) echo.HandlerFunc {
	return s.processes(func(r processRequest) error {
		id, err := pathParam(r, "id")
		if err != nil {
			return err
		}
		if r.p, err = r.all.Process(id); err != nil {
			return err
		}
		return h(r)
	})
}

var processKinds = map[process.Code]problem.Kind{
	process.Invalid: problem.InvalidRequest, process.NotFound: problem.NotFound, process.NoProgram: problem.NotFound, process.Denied: problem.PermissionDenied,
	process.Ended: problem.Conflict, process.NoTerminal: problem.Conflict, process.Busy: problem.TooManyRequests, process.TooLarge: problem.PayloadTooLarge,
	process.TimedOut: problem.Timeout, process.Unsupported: problem.NotSupported, process.Closing: problem.Unavailable,
}

// processProblem is the problem that an error about processes is.
func processProblem(err error) error {
	if e, ok := errors.AsType[*process.Error](err); ok {
		p := problem.New(processKinds[e.Code], "%s", e.Error())
		if e.Written >= 0 {
			p = p.With("written", e.Written)
		}
		return p
	}
	return fileProblem(err)
}

// readBody reads a JSON object into v, which keeps what the body does not name.
func (s *Server) readBody(r echo.Context, v any, most int64, members string) error {
	b, err := s.readBytes(r, most)
	if err != nil {
		return err
	}
	return decodeBody(r.Request(), b, v, members)
}

// decodeBody reads a body that is a JSON object, and says that it is one.
func decodeBody(r *http.Request, b []byte, v any, members string) error {
	if media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || media != echo.MIMEApplicationJSON {
		return problem.New(problem.UnsupportedMediaType, "the body must be application/json, not %q", r.Header.Get("Content-Type"))
	}
	return problem.DecodeJSON(b, v, "an object with "+members)
}

// startBody is what a request to start a process says.
type startBody struct {
	Command   string            `json:"command"`
	Args      []string          `json:"args,omitempty"`
	Cwd       string            `json:"cwd,omitempty"`
	SessionID string            `json:"sessionId,omitempty"`
	Env       map[string]string `json:"env,omitempty"`
	TTY       bool              `json:"tty,omitempty"`
	Cols      int               `json:"cols,omitempty"`
	Rows      int               `json:"rows,omitempty"`
}

// runBody is what a request to run a process to its end says.
type runBody struct {
	Command        string            `json:"command"`
	Args           []string          `json:"args,omitempty"`
	Cwd            string            `json:"cwd,omitempty"`
	SessionID      string            `json:"sessionId,omitempty"`
	Env            map[string]string `json:"env,omitempty"`
	Stdin          string            `json:"stdin,omitempty"`
	TimeoutMs      *int64            `json:"timeoutMs,omitempty"`
	MaxOutputBytes *int64            `json:"maxOutputBytes,omitempty"`
	Combined       bool              `json:"combined,omitempty"`
	Encoding       string            `json:"encoding,omitempty"`
}

// How bytes are written in JSON.
const (
	plainText = "utf8"
	inBase64  = "base64"
)

// runAnswer says how a run ended.
type runAnswer struct {
	ExitCode   *int       `json:"exitCode,omitempty"`
	Signal     string     `json:"signal,omitempty"`
	TimedOut   bool       `json:"timedOut"`
	DurationMs int64      `json:"durationMs"`
	Stdout     outputBody `json:"stdout"`
	Stderr     outputBody `json:"stderr"`
	// Combined is both in the order in which they came, if that was wanted.
	Combined *outputBody `json:"combined,omitempty"`
}

type outputBody struct {
	Data      string `json:"data"`
	Bytes     int64  `json:"bytes"`
	Truncated bool   `json:"truncated"`
}

// bodyRoom is what a body may be larger than the input that it holds.
const bodyRoom = 4 << 20

func (s *Server) runProcess(r processRequest) error {
	var b runBody
	limits := r.all.Limits()
	if err := s.readBody(r, &b, 2*limits.InputBytes+bodyRoom, "command and any of args, cwd, sessionId, env, stdin, timeoutMs, maxOutputBytes, combined and encoding"); err != nil {
		return err
	}
	o := process.RunOptions{Combined: b.Combined, Stdin: []byte(b.Stdin)}
	encode := func(c process.Captured) outputBody {
		return outputBody{validText(c), c.Bytes, c.Truncated}
	}
	switch b.Encoding {
	case "", plainText:
	case inBase64:
		var err error
		if o.Stdin, err = base64.StdEncoding.DecodeString(b.Stdin); err != nil {
			return problem.Wrap(problem.InvalidRequest, err, "stdin is not the base64 that encoding says")
		}
		encode = func(c process.Captured) outputBody {
			return outputBody{base64.StdEncoding.EncodeToString(c.Data), c.Bytes, c.Truncated}
		}
	default:
		return problem.New(problem.InvalidRequest, "encoding must be %s or %s, not %q", plainText, inBase64, b.Encoding)
	}
	if b.TimeoutMs != nil {
		if *b.TimeoutMs < 1 || *b.TimeoutMs > limits.MaxRunMs {
			return problem.New(problem.InvalidRequest, "timeoutMs must be between 1 and %d, the limit maxRunMs", limits.MaxRunMs)
		}
		o.Timeout = time.Duration(*b.TimeoutMs) * time.Millisecond
	}
	if b.MaxOutputBytes != nil {
		if o.Bytes = *b.MaxOutputBytes; o.Bytes < 1 {
			return problem.New(problem.InvalidRequest, "maxOutputBytes must be between 1 and %d, the limit maxRunBytes", limits.MaxRunBytes)
		}
	}
	dir, err := s.startDirectory(b.Cwd, b.SessionID)
	if err != nil {
		return err
	}
	end := sync.OnceFunc(blanks(r))
	defer end()
	// A client that leaves ends the program.
	result, err := r.all.Run(r.Request().Context(), process.Spec{Command: b.Command, Args: b.Args, Dir: dir, Env: b.Env}, o)
	end()
	switch {
	case err != nil && r.Response().Committed:
		s.log.Warn("answer ended early", "err", err)
		panic(http.ErrAbortHandler)
	case err != nil:
		return err
	}
	a := runAnswer{Signal: result.Signal, TimedOut: result.TimedOut, DurationMs: result.Duration.Milliseconds(), Stdout: encode(result.Stdout), Stderr: encode(result.Stderr)}
	if result.Signal == "" {
		a.ExitCode = &result.Code
	}
	if b.Combined {
		both := encode(result.Combined)
		a.Combined = &both
	}
	return s.writeJSON(r, a)
}

// validText returns output as text. A character that a limit has cut is left
// out.
func validText(c process.Captured) string {
	b := c.Data
	if c.Truncated {
		for i := 1; i < utf8.UTFMax && i <= len(b); i++ {
			if first := b[len(b)-i]; utf8.RuneStart(first) {
				if first >= utf8.RuneSelf && !utf8.FullRune(b[len(b)-i:]) {
					b = b[:len(b)-i]
				}
				break
			}
		}
	}
	return strings.ToValidUTF8(string(b), "\uFFFD")
}

// startDirectory returns where a process starts. Under a root of files that is
// in the root, though the process itself is confined to nothing.
func (s *Server) startDirectory(cwd, session string) (string, error) {
	base, err := s.cwd(session)
	if err != nil {
		return "", err
	}
	if cwd == "" {
		cwd = "."
	}
	if s.o.Files == nil {
		return "", problem.New(problem.NotSupported, "this server gives no access to files")
	}
	dir, err := s.o.Files.Resolve(cwd, base)
	if err != nil {
		return "", err
	}
	if err := startsIn(s.o.Files, dir); err != nil {
		return "", err
	}
	return dir, nil
}

// startsIn says why no process can start in a directory, nil if one can.
func startsIn(files *fs.Service, dir string) error {
	e, err := files.Stat(dir, true)
	failed, known := errors.AsType[*fs.Error](err)
	switch {
	case known && failed.Code == fs.NotFound:
		return problem.New(problem.NotFound, "a process cannot start in %s, which does not exist: make the directory, or name another one as cwd", dir)
	case err != nil:
		return err
	case e.Type != fs.Directory:
		return problem.New(problem.NotADirectory, "a process cannot start in %s: it is no directory", dir)
	}
	return nil
}

func (s *Server) startProcess(r processRequest) error {
	var b startBody
	if err := s.readBody(r, &b, bodyRoom, "command and any of args, cwd, sessionId, env, tty, cols and rows"); err != nil {
		return err
	}
	if !b.TTY && (b.Cols != 0 || b.Rows != 0) {
		return problem.New(problem.InvalidRequest, "cols and rows are of a terminal: set tty")
	}
	dir, err := s.startDirectory(b.Cwd, b.SessionID)
	if err != nil {
		return err
	}
	p, err := r.all.Start(r.Request().Context(), process.Spec{Command: b.Command, Args: b.Args, Dir: dir, Env: b.Env, TTY: b.TTY, Cols: b.Cols, Rows: b.Rows})
	if err != nil {
		return err
	}
	h := r.Response().Header()
	h.Set("Location", "/v2/processes/"+p.ID())
	h.Set("Cache-Control", "no-store")
	return r.JSON(http.StatusCreated, p.Info())
}

type processesBody struct {
	Processes []process.Info `json:"processes"`
}

func (s *Server) listProcesses(r processRequest) error {
	body := processesBody{[]process.Info{}}
	for _, p := range r.all.Processes() {
		body.Processes = append(body.Processes, p.Info())
	}
	return s.writeJSON(r, body)
}

func (s *Server) getProcess(r processRequest) error { return s.writeJSON(r, r.p.Info()) }

// deleteProcess ends a process, if it runs, and forgets it.
func (s *Server) deleteProcess(r processRequest) error {
	r.all.Delete(r.p)
	return r.NoContent(http.StatusNoContent)
}

func (s *Server) getProcessLimits(r processRequest) error { return s.writeJSON(r, r.all.Limits()) }

// putProcessLimits replaces the limits that the body names.
func (s *Server) putProcessLimits(r processRequest) error {
	b, err := ReadBody(r.Response(), r.Request(), fewBytes) // first: another request may change others meanwhile
	if err == nil {
		err = r.all.ChangeLimits(func(l *process.Limits) error {
			return decodeBody(r.Request(), b, l, "any of the limits that GET shows, which are whole numbers")
		})
	}
	if err != nil {
		return err
	}
	return s.writeJSON(r, r.all.Limits())
}

type writtenBody struct {
	Written int64 `json:"written"`
}

// writeProcess gives a process the body as its input.
func (s *Server) writeProcess(r processRequest) error {
	end := false
	if err := flags(r, map[string]*bool{"close": &end}); err != nil {
		return err
	}
	most := r.all.Limits().InputBytes
	b, err := s.readBytes(r, most)
	if p, ok := errors.AsType[*problem.Error](err); ok && p.Kind == problem.PayloadTooLarge {
		return problem.New(problem.PayloadTooLarge, "the input has more than %d bytes: send it in parts", most)
	}
	if err != nil {
		return err
	}
	ctx, cancel := s.bounded(r.Request().Context())
	defer cancel()
	n, err := r.p.Write(ctx, b, end)
	if err != nil {
		return err
	}
	return s.writeJSON(r, writtenBody{n})
}

type signalBody struct {
	Signal string `json:"signal"`
}

func (s *Server) signalProcess(r processRequest) error {
	var b signalBody
	if err := s.readBody(r, &b, fewBytes, "signal, such as SIGINT"); err != nil {
		return err
	}
	if err := r.p.Signal(b.Signal); err != nil {
		return err
	}
	return r.NoContent(http.StatusNoContent)
}

// stopProcess ends a process and answers when nothing of it is left.
func (s *Server) stopProcess(r processRequest) error {
	patience := time.Duration(-1)
	if v := r.QueryParam("patienceMs"); v != "" {
		n, err := uintParam("patienceMs", v, 0)
		if err != nil {
			return err
		}
		if n > 60_000 {
			return problem.New(problem.InvalidRequest, "patienceMs must be between 0 and 60000").With("parameter", "patienceMs")
		}
		patience = time.Duration(n) * time.Millisecond
	}
	r.p.Stop(patience)
	return s.writeJSON(r, r.p.Info())
}
