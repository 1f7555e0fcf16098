package agents

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/internal/awake"
	"sandboxagent.dev/sandbox-agent/runtime/observe"
	"sandboxagent.dev/sandbox-agent/runtime/traffic"
)

const (
	startTimeout = 120 * time.Second // from start to the end of initialize: agents that unpack themselves first are slow
	backoffFirst = 250 * time.Millisecond
	backoffMax   = 15 * time.Second
	stableAfter  = 30 * time.Second // a process that lived this long resets the backoff
	linger       = 3 * time.Second  // an unused process is kept this long
)

// Agent is one adapter and the processes of its agent. Its methods are safe for
// concurrent use.
type Agent struct {
	set     *Set
	id      string
	adapter adapters.Adapter
	log     *slog.Logger
	begun   atomic.Uint64 // processes
	updates atomic.Uint64 // of sessions that were received
	shared  Backoff       // of the processes that sessions share

	mu        sync.Mutex
	byKey     map[string]*Process // those that start or run
	alive     map[*Process]bool   // those of which something is left
	listeners map[int]func(adapters.InstallProgress)
	listenerN int
	progress  *adapters.InstallProgress // of an installation in progress
	restarts  int
	lastErr   string
	auth      AuthState
	login     json.RawMessage // params of the authenticate that worked last
}

// Backoff delays starts after failures. The zero value delays nothing; it is safe
// for concurrent use.
type Backoff struct {
	mu       sync.Mutex
	failures int       // starts and early deaths in a row
	notUntil time.Time // no start before this
}

// failed counts a failure and delays the next start.
func (b *Backoff) failed() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failures++
	b.notUntil = time.Now().Add(min(backoffFirst<<min(b.failures-1, 10), backoffMax))
}

// worked forgets the failures: a process has done what it is for.
func (b *Backoff) worked() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failures, b.notUntil = 0, time.Time{}
}

// died counts the death of a process that had lived for so long. The first early
// one is met by an immediate restart.
func (b *Backoff) died(after time.Duration) {
	b.mu.Lock()
	switch {
	case after > stableAfter:
		b.failures, b.notUntil = 0, time.Time{}
	case b.failures == 0:
		b.failures = 1
	default:
		b.mu.Unlock()
		b.failed()
		return
	}
	b.mu.Unlock()
}

// wait returns when a start may be made, or with the cause when ctx ends before.
func (b *Backoff) wait(ctx context.Context) error {
	b.mu.Lock()
	wait := time.Until(b.notUntil)
	b.mu.Unlock()
	if wait <= 0 {
		return nil
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func newAgent(set *Set, a adapters.Adapter) *Agent {
	id := a.Info().ID
	return &Agent{
		set: set, id: id, adapter: a, log: set.o.Logger.With("agent", id),
		byKey: map[string]*Process{}, alive: map[*Process]bool{}, listeners: map[int]func(adapters.InstallProgress){},
	}
}

// ID returns the agent's id.
func (a *Agent) ID() string { return a.id }

// Info returns what its adapter says of it.
func (a *Agent) Info() adapters.Info { return a.adapter.Info() }

// Counts returns how many processes were started, and how many updates they sent.
func (a *Agent) Counts() (processes, updates uint64) { return a.begun.Load(), a.updates.Load() }

// Processes returns the processes that run.
func (a *Agent) Processes() []*Process {
	return slices.DeleteFunc(a.all(), func(p *Process) bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.state != running
	})
}

// all returns the processes of which something is left, those that start included.
func (a *Agent) all() []*Process {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Collect(maps.Keys(a.alive))
}

// Process returns a running process for who needs it, starting it when there is
// none, and installing the agent when that is missing. ctx bounds the caller's
// wait, not the start, which others may be waiting for too. The process is held
// for the caller, who releases it.
func (a *Agent) Process(ctx context.Context, n Needs) (*Process, error) {
	if err := a.Info().Credentials.Check(a.id, n.Credentials); err != nil {
		return nil, err
	}
	key := n.key()
	if n.Progress != nil {
		defer a.listen(n.Progress)()
	}
	for {
		p, fresh, err := a.processFor(ctx, key, n)
		if err != nil {
			return nil, err
		}
		select {
		case <-p.started:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for agent %s to start: %w", a.id, context.Cause(ctx))
		}
		if p.err != nil {
			return nil, p.err
		}
		if (fresh || p.TakesNew()) && p.hold() {
			return p, nil
		}
		// It has ended since, or its program was replaced: it is in the table no more.
	}
}

// processFor returns the process of the key, which may be starting. A fresh one was not
// there before.
func (a *Agent) processFor(ctx context.Context, key string, n Needs) (_ *Process, fresh bool, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.set.closing.Load() {
		return nil, false, problem.Wrap(problem.Unavailable, ErrShutdown, "no agent is started")
	}
	if p := a.byKey[key]; p != nil {
		return p, false, nil
	}
	if n.Backoff == nil {
		n.Backoff = new(Backoff)
		if !n.Alone {
			n.Backoff = &a.shared
		}
	}
	p := newProcess(a, key, n)
	var life context.Context
	life, p.stopStart = context.WithCancelCause(observe.Within(a.set.ctx, ctx))
	a.byKey[key], a.alive[p] = p, true
	a.set.o.Tasks.Go(func() { p.start(life) })
	return p, true, nil
}

// start brings a process from starting to running, or to its end. ctx is that of
// the set, with the values of who needs the process first.
func (p *Process) start(ctx context.Context) {
	defer close(p.started)
	defer p.stopStart(nil)
	if p.err = p.needs.Backoff.wait(ctx); p.err == nil {
		span := p.agent.set.o.Observer.Begin(ctx, observe.Work{Name: observe.WorkStart, Agent: p.agent.id})
		p.err = p.open(ctx, span)
		span.End(observe.OutcomeOf(p.err))
	}
	if p.err == nil {
		return
	}
	p.end(p.err)
	if p.conn == nil {
		p.leave()
		return
	}
	_ = p.conn.Close()
	<-p.ended
}

// options are what a process for the needs is opened with, but for its program.
func (a *Agent) options(n *Needs) (o adapters.Options, err error) {
	o = adapters.Options{Logger: a.log, Env: n.Env, Credentials: n.Credentials}
	if n.Alone {
		o.Dir = existing(n.Dir)
	}
	o.StateDir, err = a.set.folder.of(a.id)
	return o, err
}

// Recorded looks at the agent's own record of a session. It starts nothing.
func (a *Agent) Recorded(n Needs, session string) adapters.Recorded {
	r, ok := a.adapter.(adapters.Recorder)
	if !ok {
		return adapters.Recorded{}
	}
	o, err := a.options(&n)
	if err != nil {
		a.log.Warn("the agent's own records are not looked at", "err", err)
		return adapters.Recorded{}
	}
	return r.Recorded(o, session)
}

// KeepsGrants reports whether what clients allow the agent for more than one call is known of it.
func (a *Agent) KeepsGrants() bool {
	_, ok := a.adapter.(adapters.Granter)
	return ok
}

// Grants lists that of a session, if it is known. It starts nothing.
func (a *Agent) Grants(session string) (list []adapters.Grant, known bool) {
	g, known := a.adapter.(adapters.Granter)
	if !known {
		return nil, false
	}
	o, err := a.options(&Needs{})
	if err != nil {
		a.log.Warn("what the agent was allowed is not looked at", "err", err)
		return nil, true
	}
	return g.Grants(o, session), true
}

// ForgetGrants takes grants of a session back that no process has open. It starts nothing.
func (a *Agent) ForgetGrants(session string, ids []string) error {
	g, known := a.adapter.(adapters.Granter)
	if !known {
		return fmt.Errorf("agent %s keeps what it is allowed itself", a.id)
	}
	o, err := a.options(&Needs{})
	if err != nil {
		return err
	}
	return g.Forget(o, session, ids)
}

// open finds the agent's program, starts it and asks it to initialize.
func (p *Process) open(ctx context.Context, span observe.Span) error {
	a, n := p.agent, &p.needs
	program, err := a.program(ctx, n.Version)
	if err != nil {
		return err
	}
	ctx, cancel := awake.WithTimeoutCause(observe.Within(ctx, span.Context()), startTimeout, context.DeadlineExceeded)
	defer cancel()
	o, err := a.options(n)
	if err != nil {
		return problem.Wrap(problem.Unavailable, err, "cannot start agent %s", a.id)
	}
	p.program, o.Program = program, program
	if in := a.set.o.Installer; in != nil {
		p.unkeep = in.Keep(ctx, program)
	}
	if n.Raw {
		p.raw = traffic.New(n.Cleaner())
		o.Tap = p.raw
	}
	conn, err := a.adapter.Open(ctx, o)
	if err != nil {
		n.Backoff.failed()
		a.failed(err)
		kind := problem.AgentProcessExited
		if missing, ok := errors.AsType[*adapters.NotInstalledError](err); ok {
			kind, err = problem.AgentNotInstalled, missing
		}
		return problem.Wrap(kind, err, "cannot start agent %s", a.id)
	}
	a.begun.Add(1)
	p.run(conn)
	err = p.initialize(ctx)
	if err == nil {
		err = p.becomeRunning()
	}
	if err != nil {
		n.Backoff.failed()
		a.failed(err)
		return err
	}
	return nil
}

func (p *Process) initialize(ctx context.Context) error {
	a, n := p.agent, &p.needs
	params := rawjson.Object{}.Raw("protocolVersion", []byte("1")).Raw("clientCapabilities", n.Capabilities)
	if len(n.ClientInfo) > 0 {
		params = params.Raw("clientInfo", n.ClientInfo)
	}
	span := a.set.o.Observer.Begin(ctx, observe.Work{Name: observe.WorkInitialize, Agent: a.id, ToAgent: true})
	bounded, cancel := awake.WithTimeoutCause(ctx, a.set.o.RequestTimeout,
		problem.New(problem.Timeout, "agent %s did not answer initialize within %s", a.id, a.set.o.RequestTimeout))
	defer cancel()
	res, err := p.Ask(bounded, acp.MethodInitialize, params.End())
	span.End(observe.OutcomeOf(err))
	if err != nil {
		return startProblem(a.id, "at initialize", err)
	}
	p.init, p.caps = res, readCapabilities(res)
	if params := a.loginFor(n); params != nil {
		if _, err := p.Ask(ctx, acp.MethodAuthenticate, params); err != nil {
			a.log.Warn("agent did not authenticate", "err", err)
		}
	}
	switch state := AuthState(rawjson.MemberString(res, "_meta", acp.MetaKey, "authState")); state {
	case AuthAuthenticated, AuthRequired:
		if !p.OwnLogin() {
			a.setAuth(state)
		}
	}
	return nil
}

// existing returns dir, or "" when it is none: an agent that cannot start there
// could not say so.
func existing(dir string) string {
	if st, err := os.Stat(dir); err != nil || !st.IsDir() {
		return ""
	}
	return dir
}

// startProblem is err as a problem, with what is known of the process's end.
func startProblem(id, when string, err error) error {
	if p, ok := errors.AsType[*problem.Error](err); ok {
		return p
	}
	pr := problem.Wrap(problem.AgentProcessExited, err, "agent %s failed %s", id, when)
	if exit, ok := errors.AsType[*adapters.ExitError](err); ok {
		return pr.With("exitCode", exit.Code).With("stderr", QuoteStderr(exit.Stderr))
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return problem.New(problem.Timeout, "agent %s did not answer initialize within %s", id, startTimeout)
	}
	return pr
}

func (a *Agent) failed(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lastErr = err.Error()
}

// lost takes a process out of the table that begins to end.
func (a *Agent) lost(p *Process, cause error, wasRunning bool) {
	if p.conn != nil {
		a.set.o.Observer.ProcessEnded(a.id, exitOf(cause))
	}
	p.Retire()
	a.mu.Lock()
	defer a.mu.Unlock()
	if wasRunning && cause != nil && !errors.Is(cause, ErrShutdown) && !errors.Is(cause, ErrUnused) {
		a.restarts++
		a.lastErr = cause.Error()
		p.needs.Backoff.died(time.Since(p.since))
	}
}

// Retire keeps the process from being given sessions that it does not have: it ends when
// these need it no more.
func (p *Process) Retire() {
	p.retired.Store(true)
	p.agent.mu.Lock()
	defer p.agent.mu.Unlock()
	if p.agent.byKey[p.key] == p {
		delete(p.agent.byKey, p.key)
	}
}

// forget drops a process of which nothing is left.
func (a *Agent) forget(p *Process) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.alive, p)
}
