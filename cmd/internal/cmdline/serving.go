package cmdline

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
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
	streamsPerConn    = 1000            // of HTTP/2: one per session and more
)

// HTTPServer is a server with HTTP/1 and HTTP/2, also without TLS, that does not wait for
// headers without end.
func HTTPServer(h http.Handler, log *slog.Logger) *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: readHeaderTimeout,
		IdleTimeout:       idleTimeout,
		Protocols:         protocols,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: streamsPerConn},
		// "OPTIONS *" goes through the guard like everything else.
		DisableGeneralOptionsHandler: true,
		ErrorLog:                     slog.NewLogLogger(log.Handler(), slog.LevelDebug), // clients' mistakes
	}
}
