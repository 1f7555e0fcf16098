package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/adapters/all"
	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
	"sandboxagent.dev/sandbox-agent/control"
	"sandboxagent.dev/sandbox-agent/control/telemetry"
	"sandboxagent.dev/sandbox-agent/internal/certificate"
	"sandboxagent.dev/sandbox-agent/internal/claim"
)

const (
	shutdownBound = 10 * time.Second // for everything a graceful end waits for
	requestsBound = 7 * time.Second  // for requests; those that are cut off then have the rest to remove what they have begun
	flushBound    = 3 * time.Second  // for the last traces to be sent
)

func serverCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:  "server",
		Usage: "run the gateway",
		Description: `Without a token the gateway binds the loopback interface only, and lets in local
processes and pages that it serves itself. SIGTERM and Ctrl-C end it in order
within 10 seconds; a second one ends it at once. A terminal that hangs up ends it,
too, unless nohup has started it.`,
		Flags: serverFlags(),
		Action: func(c *cli.Context) error {
			if _, err := cmdline.Exactly(c); err != nil {
				return err
			}
			cfg, err := serverConfigOf(c)
			if err != nil {
				return err
			}
			// Agents inherit the environment and see this process; the token is not
			// theirs.
			cfg.token = strings.Clone(cfg.token) // it may be where it is taken out
			forgetToken(cfg.token)
			signals := make(chan os.Signal, 2)
			signal.Notify(signals, cmdline.Ending(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)...)
			defer signal.Stop(signals)
			cmdline.OutlivePipes() // who reads the log may leave
			if c.Bool("end-with-stdin") {
				go func() { // a read cannot be ended: it lasts as long as the process
					_, _ = io.Copy(io.Discard, std.in)
					signals <- syscall.SIGTERM
				}()
			}
			return unknownAgent(c, serve(c.Context, cfg, signals, std))
		},
	}
}

// unknownAgent makes the error of a default agent that there is not one of wrong use.
func unknownAgent(c *cli.Context, err error) error {
	if p, ok := errors.AsType[*problem.Error](err); ok && p.Kind == problem.UnsupportedAgent {
		return cmdline.Usagef(c, "%s", p.Detail)
	}
	return err
}

// serve runs the gateway until ctx ends or a signal comes.
func serve(ctx context.Context, cfg serverConfig, signals <-chan os.Signal, std stdio) (err error) {
	log, closeLog, err := openLog(cfg, std.err)
	if err != nil {
		return err
	}
	defer closeLog()
	hub, err := openJoining(cfg.join, log)
	if err != nil {
		return err
	}
	shown, err := certificate.Open(cfg.tlsCert, cfg.tlsKey, log)
	if err != nil {
		return err
	}
	owned := "" // the data directory, when it is ours alone
	if !cfg.ephemeral {
		unlock, err := claim.DirSoon(cfg.dataDir)
		if errors.Is(err, claim.ErrHeld) {
			return cmdline.ExplainHeld(ctx, cfg.host, cfg.port, err)
		}
		if err != nil {
			return err
		}
		defer unlock()
		owned = cfg.dataDir
	}
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", net.JoinHostPort(cfg.host, cfg.port))
	if err != nil {
		return cmdline.ExplainListen(ctx, cmdline.Gateway, cfg.host, cfg.port, err)
	}
	release, err := all.Supervise(owned)
	if err != nil {
		_ = ln.Close()
		return err
	}
	defer release()
	told, err := telemetry.New(ctx, telemetry.Options{Metrics: !cfg.noMetrics, Traces: true, Version: version, Logger: log})
	if err != nil {
		_ = ln.Close()
		return fmt.Errorf("set up telemetry: %w", err)
	}
	defer flushTraces(told)
	defer cmdline.NoticeSleep()()
	if told.Traces() && !cfg.shareOTEL {
		// With them agents would send what they say to the same place, in this
		// program's name and with its credentials.
		for _, kv := range os.Environ() {
			if name, _, _ := strings.Cut(kv, "="); strings.HasPrefix(name, "OTEL_") {
				_ = os.Unsetenv(name)
			}
		}
	}
	// The program's own pages are not in what this counts, nor what it overshoots.
	debug.SetMemoryLimit(cfg.maxMemory - cfg.maxMemory/8)
	gw, err := openGateway(cfg, hub, told, log)
	if err != nil {
		_ = ln.Close()
		return err
	}
	api := control.New(control.Options{
		Sessions: gw.runtime, Travel: gw.runtime, Copies: gw.runtime, Installer: gw.installer, Files: gw.files, Processes: gw.served, RPC: gw.rpc, UI: gw.ui, Guard: cfg.guard(), Version: version, Memory: gw.messages,
		Metrics: told.Handler(), Observer: told.HTTP(), LogRequests: cfg.logRequests, Logger: log,
	})
	silent := &silentConns{open: map[net.Conn]bool{}}
	srv := cmdline.HTTPServer(api, log)
	srv.ConnState = silent.track
	connections := boundConnections(cfg.maxConnections, log)
	ln, srv.ConnContext = connections.Listen(ln), connections.Context
	hub.serve(srv, gw.runtime.AgentNames(), log)
	defer hub.close()

	served := make(chan error, 1)
	go func() { served <- shown.Serve(srv, ln) }()
	announce(cfg, ln.Addr(), log, std.err)
	defer cmdline.GiveBack()()
	defer cmdline.FitProcessors()()

	ended, err := cmdline.Await(ctx, served, signals, log)
	defer ended()
	return errors.Join(err, shutdown(api, gw, srv, silent, log))
}

// flushTraces sends what is left, when all that could be traced has ended.
func flushTraces(told *telemetry.Telemetry) {
	ctx, cancel := context.WithTimeout(context.Background(), flushBound)
	defer cancel()
	told.Shutdown(ctx)
}

// shutdown ends everything in order: no new work is taken, then clients hear
// how their turns end, then agents and programs are closed, then streams, then connections.
func shutdown(api *control.Server, gw *gateway, srv *http.Server, silent *silentConns, log *slog.Logger) error {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownBound)
	defer cancel()
	requests, cut := context.WithTimeout(ctx, requestsBound)
	defer cut()
	api.Drain()
	var errs []error
	var programs sync.WaitGroup // end while the sessions do
	if gw.processes != nil {
		programs.Go(func() { gw.processes.Close(ctx) })
	}
	if err := gw.runtime.Shutdown(ctx); err != nil {
		// Without its chain: what a gateway is told that cannot be reached is not what ended this one.
		errs = append(errs, errors.New("end sessions: "+err.Error()))
	}
	gw.catalog.Close()
	if err := gw.rpc.Shutdown(ctx); err != nil {
		errs = append(errs, fmt.Errorf("end connections: %w", err))
	}
	programs.Wait()
	if gw.tools != nil {
		gw.tools.Close(ctx)
	}
	api.Shutdown(requests)
	silent.close()
	if err := srv.Shutdown(requests); err != nil {
		// Whoever did not leave in time is cut off; that is no failure.
		log.Warn("connections were cut off", "err", err)
		_ = srv.Close()
		api.Await(ctx)
	}
	if err := gw.files.Close(); err != nil {
		errs = append(errs, fmt.Errorf("close the root of files: %w", err))
	}
	return errors.Join(errs...)
}

// silentConns are connections on which nothing was sent yet, which clients open
// in advance. The HTTP server would wait for them when it ends.
type silentConns struct {
	mu   sync.Mutex
	open map[net.Conn]bool
}

func (s *silentConns) track(c net.Conn, state http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if state == http.StateNew {
		s.open[c] = true
	} else {
		delete(s.open, c)
	}
}

func (s *silentConns) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.open {
		_ = c.Close()
	}
}

// openLog returns the logger and what ends it.
func openLog(cfg serverConfig, w io.Writer) (*slog.Logger, func(), error) {
	if cfg.logFile == "" {
		if own := ownLog(w, cfg.dataDir); own != nil {
			return cfg.log.To(own), func() {}, nil
		}
		log, end := cfg.log.Open(w)
		return log, end, nil
	}
	f, err := os.OpenFile(cfg.logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, nil, fmt.Errorf("open log file: %w: give --log-file a file in a folder that is there, and that this user can write", err)
	}
	log, end := cfg.log.Open(f) // it may be a pipe
	return log, func() { end(); _ = f.Close() }, nil
}
