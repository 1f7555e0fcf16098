package cmdline

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"sandboxagent.dev/sandbox-agent/internal/awake"
)

// Log is how a server writes its log.
type Log struct {
	Level slog.Level
	JSON  bool
}

// LogLevel is a flag that [LogOf] reads.
func LogLevel(env []string) cli.Flag {
	return &cli.StringFlag{Name: "log-level", Usage: "debug, info, warn or error", Value: "info", EnvVars: env}
}

// LogFormat is the other one.
func LogFormat(env []string) cli.Flag {
	return &cli.StringFlag{Name: "log-format", Usage: "text or json", Value: "text", EnvVars: env}
}

// LogOf returns what the flags say.
func LogOf(c *cli.Context) (l Log, err error) {
	if err := l.Level.UnmarshalText([]byte(c.String("log-level"))); err != nil {
		return l, Usagef(c, "--log-level %s: use debug, info, warn or error", c.String("log-level"))
	}
	switch f := c.String("log-format"); f {
	case "text", "json":
		l.JSON = f == "json"
	default:
		return l, Usagef(c, "--log-format %s: use text or json", f)
	}
	return l, nil
}

// To returns the logger that writes to w.
func (l Log) To(w io.Writer) *slog.Logger {
	o := &slog.HandlerOptions{Level: l.Level}
	if l.JSON {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}

// Await returns when the server has failed, ctx has ended or a signal has come. From then
// on until ended is called a further signal ends the program at once.
func Await(ctx context.Context, served <-chan error, signals <-chan os.Signal, log *slog.Logger) (ended func(), err error) {
	select {
	case err = <-served: // only a failure ends it by itself
		err = fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	case s := <-signals:
		log.Info("shutting down", "signal", s.String())
	}
	return ExitOnSignal(signals), err
}

// ExitOnSignal ends the program with the next signal, until stop is called.
func ExitOnSignal(signals <-chan os.Signal) (stop func()) {
	stopped := make(chan struct{})
	go func() {
		select {
		case s := <-signals:
			os.Exit(SignalExit(s))
		case <-stopped:
		}
	}()
	return func() { close(stopped) }
}

// SignalExit is the exit code of a program that a signal has ended.
func SignalExit(s os.Signal) int {
	if n, ok := s.(syscall.Signal); ok {
		return 128 + int(n)
	}
	return ExitFailure
}

// NoticeSleep has a machine that sleeps use up nobody's time, until stop is called.
func NoticeSleep() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		awake.Watch(ctx)
	}()
	return func() { cancel(); <-watched }
}

const (
	readHeaderTimeout = 10 * time.Second
	idleTimeout       = 2 * time.Minute // of a connection without a request
	restTimeout       = 10 * time.Second
	streamsPerConn    = 1000 // of HTTP/2: one per session and more
)

// HTTPServer is a server with HTTP/1 and HTTP/2, also without TLS, that does not wait for
// headers without end, nor for the rest of a body that nobody reads.
func HTTPServer(h http.Handler, log *slog.Logger) *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler:           boundRest(h, restTimeout),
		ReadHeaderTimeout: readHeaderTimeout,
		IdleTimeout:       idleTimeout,
		Protocols:         protocols,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: streamsPerConn},
		// "OPTIONS *" goes through the guard like everything else.
		DisableGeneralOptionsHandler: true,
		ErrorLog:                     slog.NewLogLogger(log.Handler(), slog.LevelDebug), // clients' mistakes
	}
}

// boundRest bounds how long a request's body may take to come of which the handler has not read all, as when it
// has refused the request. The server waits for it before it writes the answer, and bounds only its length.
func boundRest(h http.Handler, within time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength == 0 {
			h.ServeHTTP(w, r)
			return
		}
		body, answer := &openBody{ReadCloser: r.Body}, &openConn{ResponseWriter: w}
		given := r.WithContext(r.Context()) // the server goes by the body of its own: what was expected, read or closed of it
		given.Body = body
		h.ServeHTTP(answer, given)
		if !body.over.Load() && !answer.taken {
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(within)) // where there is none, nothing waits
		}
	})
}

// openBody notes that nothing more comes of a body.
type openBody struct {
	io.ReadCloser
	over atomic.Bool // a proxy may read it behind the answer
}

// Read implements io.Reader.
func (b *openBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.over.Store(true)
	}
	return n, err
}

// openConn notes that the connection was taken over.
type openConn struct {
	http.ResponseWriter
	taken bool
}

// Unwrap is for http.ResponseController.
func (w *openConn) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Hijack implements http.Hijacker.
func (w *openConn) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	w.taken = true
	return http.NewResponseController(w.ResponseWriter).Hijack()
}
