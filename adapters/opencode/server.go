package opencode

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"sandboxagent.dev/sandbox-agent/internal/pattern"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
	"sandboxagent.dev/sandbox-agent/internal/process"
)

const (
	startBound = 90 * time.Second // for the process to listen and to report events
	// startAttempts is how often a start is tried that failed for a reason which
	// passes, startPause how long after the first failure; it doubles.
	startAttempts = 5
	startPause    = 200 * time.Millisecond
)

// ladder ends the process: it does not look at its input, and keeps nothing that
// it would have to write.
var ladder = process.Ladder{Term: 3 * time.Second}

// server is an OpenCode process.
type server struct {
	a       *agent
	kind    kind
	log     *slog.Logger
	child   *bridge.Child
	http    *http.Client
	prompts *http.Client // each on a connection of its own
	base    string       // http://127.0.0.1:PORT
	pass    string
	open    error  // why commands can see the password; nil when they cannot
	clean   func() // removes what the process has unpacked

	users int // requests that need it beside its sessions; guarded by the agent's mu

	ctx   context.Context // of everything that the server does by itself
	stop  context.CancelFunc
	work  sync.WaitGroup
	ended chan struct{} // closed when the process has ended and was read to its end
	exit  error         // how it ended; valid when ended is closed
}

// start starts a process and waits until it listens and reports events. On an
// error nothing is left.
func (a *agent) start(ctx context.Context, k kind) (*server, error) {
	ctx, cancel := bridge.Within(ctx, startBound)
	defer cancel()
	var err error
	for attempt := 1; ; attempt++ {
		var s *server
		if s, err = a.startOnce(ctx, k); err == nil {
			return s, nil
		}
		exit, ok := errors.AsType[*adapters.ExitError](err)
		if !ok || attempt == startAttempts || !passes.MatchString(exit.Stderr.Head+exit.Stderr.Tail) {
			break
		}
		a.log.Debug("start opencode again", "err", err)
		pause := time.NewTimer(startPause << (attempt - 1))
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
		}
	}
	if exit, ok := errors.AsType[*adapters.ExitError](err); ok {
		return nil, &acp.Error{Code: acp.CodeInternal, Message: "opencode did not start: " + exit.Error(), Data: exit.Data()}
	}
	return nil, fmt.Errorf("start opencode: %w", err)
}

var (
	// passes finds what is over in a moment: between the choice and the use of a port
	// somebody else took it, or another process is setting up the database, which all
	// of a user's share.
	passes    = pattern.New(`ServeError|EADDRINUSE|in use|Failed query|database is locked`)
	listening = pattern.New(`listening on (http://\S+)`)
)

func (a *agent) startOnce(ctx context.Context, k kind) (*server, error) {
	port, err := freePort(ctx)
	if err != nil {
		return nil, err
	}
	s := &server{a: a, kind: k, log: a.log, pass: rand.Text(), ended: make(chan struct{})}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.http = &http.Client{Transport: &http.Transport{
		DialContext: a.dial, DisableCompression: true, MaxIdleConnsPerHost: 4, IdleConnTimeout: 30 * time.Second,
	}}
	// A process that has died takes no new connection, so such a prompt has reached nobody.
	s.prompts = &http.Client{Transport: &http.Transport{DialContext: a.dial, DisableCompression: true, DisableKeepAlives: true}}
	args := append(slices.Clone(a.o.Program.Args), "serve", "--hostname", "127.0.0.1", "--port", strconv.Itoa(port))
	env, open, err := a.environ(ctx, k, s.pass)
	if err != nil {
		s.stop()
		return nil, err
	}
	s.clean = func() {}
	// A folder in which the shell may be run is one that libraries may be loaded from.
	if open == nil {
		var set []string
		if set, s.clean, err = a.scratch(env); err != nil {
			s.stop()
			return nil, err
		}
		env = append(env, set...)
	}
	// Sessions name their directories; this one is for requests that do not.
	s.child, err = bridge.Start(ctx, process.Spec{Path: a.o.Program.Path, Args: args, Env: env, Dir: "/"}, a.o.Tap)
	if err != nil {
		s.clean()
		s.stop()
		return nil, err
	}
	said := make(chan string, 1)
	s.work.Go(func() { s.watch(said) })
	fail := func(err error) (*server, error) {
		s.End()
		return nil, err
	}
	select {
	case s.base = <-said:
	case <-s.ended:
		return fail(s.exit)
	case <-ctx.Done():
		return fail(fmt.Errorf("it does not say that it listens: %w", ctx.Err()))
	}
	connected := make(chan struct{})
	s.work.Go(func() { s.follow(connected) })
	select {
	case <-connected:
	case <-s.ended:
		return fail(s.exit)
	case <-ctx.Done():
		return fail(fmt.Errorf("it reports no events: %w", ctx.Err()))
	}
	// It has read its environment: it knows the password.
	if s.open = open; open != nil {
		s.log.Warn("commands can read the password of opencode's server", "err", open)
	}
	if err := scrub(s.pass, hidden(nil)); err != nil {
		s.log.Debug("hide the environment of opencode", "err", err)
	}
	return s, nil
}

// freePort returns a port that nobody listens on now. The program's own choice
// is one that people use for their own servers.
func freePort(ctx context.Context) (int, error) {
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	defer ln.Close()
	return ln.Addr().(*net.TCPAddr).Port, nil
}

// watch reads the process's stdout until its end, and ends what depends on it.
// The address that it listens on goes to said.
func (s *server) watch(said chan<- string) {
	s.child.Each(func(line []byte) error {
		if m := listening.FindSubmatch(line); m != nil {
			select {
			case said <- string(m[1]):
			default:
			}
		}
		return nil
	}, func([]byte, error) {}) // it writes nothing else that matters
	s.exit = s.child.End(ladder)
	s.clean()
	// First the connection: who is told that a turn has failed may prompt again at
	// once, and must not be given this process.
	s.a.died(s)
	close(s.ended)
	s.stop()
	s.a.died(s) // in case it was taken up meanwhile
}

// Process implements [bridge.Server].
func (s *server) Process() *process.Process { return s.child.Process }

// Ended implements [bridge.Server].
func (s *server) Ended() <-chan struct{} { return s.ended }

// End ends the process, everything that it started, and every goroutine of it.
func (s *server) End() {
	s.child.Stop(ladder)
	<-s.ended
	s.work.Wait()
	s.http.CloseIdleConnections()
}
