package control

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"

	"sandboxagent.dev/sandbox-agent/acp/problem"
)

// observe logs requests and turns panics into problems. Of a request it logs
// method and path: queries, headers and bodies can hold secrets.
func (s *Server) observe(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rec := &recorder{ResponseWriter: w}
		start := time.Now()
		defer func() {
			if v := recover(); v != nil {
				s.recovered(rec, r, v)
			}
			if s.log.Enabled(r.Context(), slog.LevelDebug) {
				s.log.Debug("request", "method", r.Method, "path", r.URL.Path, "status", rec.status,
					"bytes", rec.bytes, "duration", time.Since(start), "remote", r.RemoteAddr)
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
	s.log.Error("handler panicked", "method", r.Method, "path", r.URL.Path, "err", fmt.Sprint(v), "stack", string(debug.Stack()))
	if rec.status != 0 {
		panic(http.ErrAbortHandler)
	}
	problem.Write(rec, internal())
}

// recorder remembers what was answered.
type recorder struct {
	http.ResponseWriter
	status int // 0 until the header is written
	bytes  int64
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
