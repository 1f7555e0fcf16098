package codex

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sourcegraph/jsonrpc2"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
	"sandboxagent.dev/sandbox-agent/internal/process"
)

const (
	startBound = 60 * time.Second // for the process to answer initialize
	callBound  = 60 * time.Second // for the answer to a request
	probeBound = 10 * time.Second // for the probe of the sandbox
)

// server is the app-server process of a connection.
type server struct {
	a     *agent
	log   *slog.Logger
	child *bridge.Child
	rpc   *jsonrpc2.Conn
	ended chan struct{} // closed when the process has ended and was read to its end
	exit  error         // how it ended; valid when ended is closed
	work  sync.WaitGroup

	adding sync.Mutex // held while a request adds to work, and while End waits for that

	ready     atomic.Bool // it was greeted
	models    []model
	confined  error // why commands cannot be confined here; nil when they can
	ephemeral bool  // credentials are not written to disk

	listsServers bool    // it can be asked for the MCP servers of a thread; set before ready
	account      account // guarded by a.mu when ready
}

// home is the folder of the program's own files.
func home(env []string) string {
	return bridge.FirstOf(bridge.Lookup(env, "CODEX_HOME"), filepath.Join(bridge.Lookup(env, "HOME"), ".codex"))
}

// start starts the process and greets it. On an error nothing is left.
func (a *agent) start(ctx context.Context) (_ *server, err error) {
	env := a.environ()
	// The program refuses a folder that does not exist if a variable names it.
	if err := os.MkdirAll(home(env), 0o700); err != nil {
		return nil, fmt.Errorf("make codex's folder: %w", err)
	}
	s := &server{a: a, log: a.log, ended: make(chan struct{})}
	key := a.key(env)
	args := append(slices.Clone(a.o.Program.Args), "app-server")
	if key != "" {
		s.ephemeral = true
		args = append(args, "-c", `cli_auth_credentials_store="ephemeral"`)
	}
	if url := a.o.Credentials.BaseURL; url != "" {
		quoted, err := schema.Encode(url)
		if err != nil {
			return nil, fmt.Errorf("encode the provider's address: %w", err)
		}
		// The user's configuration may name a provider with an address of its own.
		args = append(args, "-c", "openai_base_url="+string(quoted), "-c", `model_provider="openai"`)
	}
	probed := make(chan error, 1)
	s.work.Go(func() { probed <- a.probe(ctx, env) })
	s.child, err = bridge.Start(ctx, process.Spec{Path: a.o.Program.Path, Args: args, Env: env}, a.o.Tap)
	if err != nil {
		s.work.Wait()
		return nil, err
	}
	s.rpc = jsonrpc2.NewConn(context.Background(), &stream{child: s.child, unparsed: s.unparsed, notified: s.notified}, handler{s},
		jsonrpc2.SetLogger(log.New(io.Discard, "", 0)))
	s.work.Go(s.watch)
	defer func() {
		if err != nil {
			err = s.startError(err)
			s.End()
		}
	}()
	if err := s.greet(ctx, key); err != nil {
		return nil, err
	}
	s.confined = <-probed
	s.work.Go(s.takeAllOut)
	return s, nil
}

func (s *server) greet(ctx context.Context, key string) error {
	ctx, cancel := bridge.Within(ctx, startBound)
	defer cancel()
	hello := map[string]any{
		"clientInfo":   map[string]string{"name": "sandbox-agent", "title": "Sandbox Agent", "version": "1"},
		"capabilities": map[string]any{"experimentalApi": true, "optOutNotificationMethods": []string{"turn/diff/updated", "thread/readState/changed", "remoteControl/status/changed"}},
	}
	var is struct {
		Agent string `json:"userAgent"`
	}
	if err := s.call(ctx, "initialize", hello, &is); err != nil {
		return err
	}
	if version := versionForm.FindString(is.Agent); version != "" {
		s.listsServers = slices.Compare(numbers(version), numbers(listsServers)) >= 0
	}
	if err := s.broken("greet codex", s.rpc.Notify(ctx, "initialized", nil)); err != nil {
		return err
	}
	if key != "" {
		if err := s.call(ctx, "account/login/start", map[string]string{"type": "apiKey", "apiKey": key}, nil); err != nil {
			return err
		}
	}
	if err := s.call(ctx, "account/read", struct{}{}, &s.account); err != nil {
		return err
	}
	var list struct {
		Data []model `json:"data"`
	}
	if err := s.call(ctx, "model/list", struct{}{}, &list); err != nil {
		s.log.Debug("codex does not list its models", "err", err)
	}
	s.ready.Store(true)
	s.models = slices.DeleteFunc(list.Data, func(m model) bool { return m.Hidden })
	return nil
}

// probe reports why the program cannot confine commands on this machine. Only
// its own failure says so; one that could not be run proves nothing.
func (a *agent) probe(ctx context.Context, env []string) error {
	ctx, cancel := bridge.Within(ctx, probeBound)
	defer cancel()
	args := append(slices.Clone(a.o.Program.Args), "sandbox", "--", "/bin/true")
	_, err := bridge.Output(ctx, process.Spec{Path: a.o.Program.Path, Args: args, Env: env, Dir: "/"})
	exit, failed := errors.AsType[*adapters.ExitError](err)
	if !failed {
		if err != nil {
			a.log.Debug("probe codex's sandbox", "err", err)
		}
		return nil
	}
	lines := strings.Split(exit.Stderr.LastWords(), "\n")
	return fmt.Errorf("codex cannot confine commands on this machine: %s (exit code %d)", bridge.OneLine(lines[len(lines)-1]), exit.Code)
}

// startError says why the process did not get ready.
func (s *server) startError(err error) error {
	if exit, ok := errors.AsType[*adapters.ExitError](err); ok {
		return &acp.Error{Code: acp.CodeInternal, Message: "codex did not start: " + exit.Error(), Data: exit.Data()}
	}
	return fmt.Errorf("start codex: %w", err)
}

// watch ends the process when it can say nothing more, and with it the
// connection.
func (s *server) watch() {
	<-s.rpc.DisconnectNotify()
	s.exit = s.child.End(process.DefaultLadder)
	// First the connection: who is told that a turn has failed may prompt again at
	// once, and must not be given this process.
	s.a.died(s)
	close(s.ended)
	s.a.died(s) // in case it was taken up meanwhile
}

// Process implements [bridge.Server].
func (s *server) Process() *process.Process { return s.child.Process }

// Ended implements [bridge.Server].
func (s *server) Ended() <-chan struct{} { return s.ended }

// End implements [bridge.Server].
func (s *server) End() {
	s.child.Stop(process.DefaultLadder)
	<-s.ended
	s.adding.Lock()
	defer s.adding.Unlock()
	s.work.Wait()
}

// run runs f for a request, in a goroutine that End waits for; not when the process has ended, since End may have returned. f must not call it.
func (s *server) run(f func()) (ok bool) {
	s.adding.Lock()
	defer s.adding.Unlock()
	select {
	case <-s.ended:
		return false
	default:
		s.work.Go(f)
		return true
	}
}

// call is ask, which waits no longer than is usual.
func (s *server) call(ctx context.Context, method string, params, result any) error {
	ctx, cancel := bridge.Within(ctx, callBound)
	defer cancel()
	return s.ask(ctx, method, params, result)
}

// ask sends a request, and waits for the answer until ctx or the process ends. The error is a refusal when codex refused, and how
// the process ended when it did.
func (s *server) ask(ctx context.Context, method string, params, result any) error {
	answer, err := s.rpc.DispatchCall(ctx, method, params)
	switch {
	case errors.Is(err, jsonrpc2.ErrClosed): // the output has ended, and nothing was written
		err = bridge.ErrUnwritten
	case err == nil:
		err = answer.Wait(ctx, result)
	}
	if e, ok := errors.AsType[*jsonrpc2.Error](err); ok {
		return refusal(e.Message)
	}
	return s.broken("ask codex for "+method, err)
}

// broken explains why nothing could be said to the process, or nothing came back.
func (s *server) broken(what string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, bridge.ErrUnwritten):
		<-s.ended
		return bridge.Unwritten(s.exit)
	case errors.Is(err, jsonrpc2.ErrClosed):
		<-s.ended
		return s.exit
	}
	return fmt.Errorf("%s: %w", what, err)
}

// refusal is what codex said when it refused a request.
type refusal string

func (r refusal) Error() string { return string(r) }

// refused returns what codex said when it refused a request, "" for other errors.
func refused(err error) string {
	r, _ := errors.AsType[refusal](err)
	return string(r)
}

func (s *server) unparsed(line []byte, reason error) {
	bridge.TellUnparsed(context.Background(), s.a.peer, s.log, line, reason)
}

// handler takes what the process sends, in order, on the goroutine that reads.
// It must not wait for an answer of the process.
type handler struct{ s *server }

func (h handler) Handle(_ context.Context, _ *jsonrpc2.Conn, r *jsonrpc2.Request) {
	var params json.RawMessage
	if r.Params != nil {
		params = *r.Params
	}
	if !r.Notif {
		h.s.asked(r.ID, r.Method, params)
		return
	}
	n := &notification{Method: r.Method, Params: params}
	for _, f := range r.ExtraFields {
		if at, ok := f.Value.(json.Number); ok && f.Name == "emittedAtMs" {
			n.At, _ = at.Int64()
		}
	}
	h.s.notified(n)
}

// notified takes a notification. Like all of handler, it is called in order and must not wait
// for an answer of the process.
func (s *server) notified(n *notification) {
	e, err := parse(n.Method, n.Params)
	if err != nil {
		s.log.Debug("codex sent a notification that cannot be read", "method", n.Method, "err", err)
		return
	}
	e.At = n.At
	s.a.take(s, e)
}
