package control

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"sandboxagent.dev/sandbox-agent/internal/deadline"
	"sandboxagent.dev/sandbox-agent/internal/pattern"

	"github.com/labstack/echo/v4"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
)

// Observer is told of requests. Its methods are safe for concurrent use and do
// not wait.
type Observer interface {
	// Request says that one has come. It is served with the context returned;
	// end is called once, when it was answered.
	Request(r *http.Request, id string) (ctx context.Context, end func(Answer))
}

// Answer is how a request was answered.
type Answer struct {
	// Route is the path with the names of its parameters in place of their
	// values, "other" for what is served nowhere.
	Route   string
	Status  int          // 0 when the client was gone before
	Problem problem.Kind // "" for none
	Node    string       // of a hub that has answered, "" for none

	Uploaded, Downloaded int64 // bytes of files
}

// observe gives requests an id, logs them, tells the observer of them and turns
// panics into problems. Of a request it logs method and path: queries, headers
// and bodies can hold secrets.
func (s *Server) observe(next http.Handler) http.Handler {
	level := slog.LevelDebug
	if s.o.LogRequests {
		level = slog.LevelInfo
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		rec := &recorder{
			ResponseWriter: w, route: templateOf(r.URL.Path), id: RequestID(r.Header),
			takes: deadline.New(writeTimeout, rc.SetWriteDeadline), sends: deadline.New(stall, rc.SetReadDeadline),
		}
		w.Header().Set(problem.RequestIDHeader, rec.id)
		r.Header.Set(problem.RequestIDHeader, rec.id) // for who logs on its way
		start := time.Now()
		end := func(Answer) {}
		if s.o.Observer != nil {
			var ctx context.Context
			ctx, end = s.o.Observer.Request(r, rec.id)
			r = r.WithContext(ctx)
		}
		defer func() {
			end(rec.answer())
			if s.log.Enabled(r.Context(), level) {
				s.log.Log(r.Context(), level, "request", "request_id", rec.id, "method", r.Method, "path", r.URL.Path, "route", rec.route,
					"status", rec.status, "bytes", rec.bytes, "duration", time.Since(start), "remote", r.RemoteAddr)
			}
		}()
		defer rec.over()
		defer func() {
			if v := recover(); v != nil {
				s.recovered(rec, r, v)
			}
		}()
		next.ServeHTTP(rec, r)
	})
}

// recovered answers a request whose handler panicked. An answer that has begun
// cannot be taken back: its connection is cut, so that it does not look whole.
func (s *Server) recovered(rec *recorder, r *http.Request, v any) {
	if v == http.ErrAbortHandler {
		panic(v)
	}
	s.log.Error("handler panicked", "request_id", rec.id, "method", r.Method, "path", r.URL.Path, "err", fmt.Sprint(v), "stack", string(debug.Stack()))
	if rec.status != 0 {
		panic(http.ErrAbortHandler)
	}
	problem.Write(rec, internal())
}

// otherRoute is the route of what is served nowhere.
const otherRoute = "other"

// templateOf returns the route of a path. Those of the API are known when the
// web framework has found them.
func templateOf(path string) string {
	switch routeOf(path) {
	case routeRPC:
		return "/v2/rpc"
	case routeUI, routeToUI:
		return "/ui/"
	case routeV1:
		return "/v1/"
	case routeOpencode:
		return "/opencode/"
	}
	return otherRoute
}

// noteRoutes is middleware that tells the recorder the route of a request.
func (s *Server) noteRoutes(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if rec := recorderOf(c.Response()); rec != nil {
			if t := s.templates[c.Path()]; t != "" {
				rec.route = t
			}
		}
		return next(c)
	}
}

// checkQueries is middleware that refuses queries that the document does not have.
func (s *Server) checkQueries(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if err := queries.Check(c.Request(), s.templates[c.Path()]); err != nil {
			return err
		}
		return next(c)
	}
}

var pathParams = pattern.New(`:(\w+)`)

// templatesOf returns the routes of the API by the framework's form of them.
func templatesOf(e *echo.Echo) map[string]string {
	out := map[string]string{}
	for _, r := range e.Routes() {
		out[r.Path] = pathParams.ReplaceAllString(r.Path, "{$1}")
	}
	return out
}

// recorderOf returns the recorder that w writes to, nil in tests of parts.
func recorderOf(w http.ResponseWriter) *recorder {
	for {
		switch v := w.(type) {
		case *recorder:
			return v
		case *echo.Response:
			w = v.Writer
		case interface{ Unwrap() http.ResponseWriter }:
			w = v.Unwrap()
		default:
			return nil
		}
	}
}

// recorder remembers what was answered.
type recorder struct {
	http.ResponseWriter
	route, id string
	status    int // 0 until the header is written
	bytes     int64
	problem   problem.Kind
	uploaded  int64
	download  bool // what is sent is a file

	takes, sends *deadline.Deadline // of the client, for what control answers and reads by itself
}

// over leaves the connection to the server, which sends the rest of the answer when the handler has returned, and sets the
// deadlines of the next request by itself.
func (w *recorder) over() {
	w.sends.Leave() // what has passed stays: the server would wait for the rest of the body
	if w.status != http.StatusSwitchingProtocols {
		w.takes.Rest(writeTimeout)
	}
}

func (w *recorder) answer() Answer {
	a := Answer{Route: w.route, Status: w.status, Problem: w.problem, Uploaded: w.uploaded}
	if w.download && w.status < http.StatusBadRequest {
		a.Downloaded = w.bytes
	}
	return a
}

// Unwrap lets http.ResponseController and WebSocket upgrades find the
// connection's own writer.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (w *recorder) WriteHeader(status int) {
	if w.status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *recorder) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	if w.status >= http.StatusBadRequest && w.problem == "" && w.Header().Get("Content-Type") == problem.ContentType {
		// Whoever wrote it: the document says what it is.
		if kind, ok := strings.CutPrefix(rawjson.MemberString(b, "type"), problem.Prefix); ok {
			w.problem = problem.Kind(kind)
		}
	}
	n, err := w.ResponseWriter.Write(b)
	w.bytes += int64(n)
	return n, err
}

// ReadFrom implements io.ReaderFrom: the connection's own writer lets the system
// send a file.
func (w *recorder) ReadFrom(r io.Reader) (int64, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	n, err := io.Copy(w.ResponseWriter, r)
	w.bytes += n
	return n, err
}

// Flush implements http.Flusher.
func (w *recorder) Flush() {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	_ = http.NewResponseController(w.ResponseWriter).Flush() // a writer that cannot flush does not buffer
}
