package runtime

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/adapters"
)

const (
	startTimeout = 120 * time.Second // from start to the answer to initialize: agents that unpack themselves first are slow
	backoffFirst = 250 * time.Millisecond
	backoffMax   = 15 * time.Second
	stableAfter  = 30 * time.Second // a process that lived this long resets the backoff
	procLinger   = 3 * time.Second  // an unused process is kept this long
)

// agent is one adapter and its live processes.
type agent struct {
	r       *Runtime
	id      string
	adapter adapters.Adapter
	started atomic.Uint64 // processes
	updates atomic.Uint64 // of sessions that went to their logs

	mu       sync.Mutex
	procs    map[string]*slot                       // by process key
	hearers  map[int]func(adapters.InstallProgress) // of an installation in progress
	hearerN  int
	progress *adapters.InstallProgress // of an installation in progress
	restarts int
	lastErr  string
	auth     AuthState
	login    json.RawMessage // params of the authenticate that worked last
	shared   backoff         // of the processes that sessions share
}

// backoff delays starts after failures; agent.mu guards it.
type backoff struct {
	failures int       // starts and early deaths in a row
	notUntil time.Time // no start before this
}

// next is the delay after one failure more.
func (b *backoff) next() time.Duration {
	b.failures++
	return min(backoffFirst<<min(b.failures-1, 10), backoffMax)
}

// slot is a process that is being started or lives: start is single-flight.
type slot struct {
	ready  chan struct{} // closed when p or err is set
	cancel context.CancelCauseFunc
	p      *proc
	err    error
}

// end ends the process, or its start, and waits until nothing is left of it.
func (s *slot) end(cause error) {
	s.cancel(cause)
	<-s.ready
	if s.p != nil {
		s.p.close(cause)
	}
}

func newAgent(r *Runtime, a adapters.Adapter) *agent {
	return &agent{r: r, id: a.Info().ID, adapter: a, procs: map[string]*slot{}, hearers: map[int]func(adapters.InstallProgress){}}
}

// processCapabilities returns the client capabilities an agent process is
// started with: the client's own, without what is between it and the gateway.
func processCapabilities(caps json.RawMessage) json.RawMessage {
	if len(caps) == 0 || caps[0] != '{' {
		return json.RawMessage("{}")
	}
	caps = rawjson.DeleteMember(caps, "_meta", acp.MetaKey)
	if meta, ok := rawjson.Member(caps, "_meta"); ok && string(meta) == "{}" {
		caps = rawjson.DeleteMember(caps, "_meta")
	}
	return caps
}

// process returns the live process for who wants it, starting it when there is
// none, and installing the agent when that is missing. ctx bounds the caller's
// wait, not the start, which others may be waiting for too. The process is held
// for the caller, who releases it.
func (a *agent) process(ctx context.Context, w want) (*proc, error) {
	key := w.key()
	if w.tell != nil {
		defer a.listen(w.tell)()
	}
	for {
		a.mu.Lock()
		if a.r.closing.Load() {
			a.mu.Unlock()
			return nil, problem.Wrap(problem.Unavailable, errShutdown, "no agent is started")
		}
		s := a.procs[key]
		if s == nil {
			from, cancel := context.WithCancelCause(within(a.r.ctx, ctx))
			s = &slot{ready: make(chan struct{}), cancel: cancel}
			a.procs[key] = s
			if w.backoff == nil {
				w.backoff = new(backoff)
				if !w.alone {
					w.backoff = &a.shared
				}
			}
			wait := time.Until(w.backoff.notUntil)
			a.r.work.Go(func() { a.start(from, s, key, wait, w) })
		}
		a.mu.Unlock()
		select {
		case <-s.ready:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for agent %s to start: %w", a.id, context.Cause(ctx))
		}
		if s.err != nil {
			return nil, s.err
		}
		if s.p.hold() {
			return s.p, nil
		}
		// It died between our look and our hold; its slot is gone or goes.
		a.drop(key, s)
	}
}

// start fills the slot. ctx is the runtime's, with the values of who wants it.
func (a *agent) start(ctx context.Context, s *slot, key string, wait time.Duration, w want) {
	defer close(s.ready)
	defer s.cancel(nil)
	if wait > 0 {
		t := time.NewTimer(wait)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			s.err = problem.Wrap(problem.Unavailable, errShutdown, "no agent is started")
			a.drop(key, s)
			return
		}
	}
	span := a.r.watch.Begin(ctx, Work{Name: WorkStart, Agent: a.id})
	defer func() { span.End(outcomeOf(s.err)) }()
	program, err := a.program(ctx, w.version)
	if err != nil {
		s.err = err
		a.drop(key, s)
		return
	}
	ctx, cancel := context.WithTimeout(within(ctx, span.Context()), startTimeout)
	defer cancel()
	p, err := a.open(ctx, key, program, w)
	a.mu.Lock()
	s.p, s.err = p, err
	a.mu.Unlock()
	if err != nil {
		a.failed(w.backoff, s.err)
		a.drop(key, s)
	}
}

func (a *agent) open(ctx context.Context, key string, program adapters.Program, w want) (*proc, error) {
	o := adapters.Options{Logger: a.r.log.With("agent", a.id), Program: program, Env: w.env, Credentials: w.credentials}
	if w.alone {
		o.Dir = existing(w.dir)
	}
	if a.r.o.DataDir != "" {
		o.StateDir = filepath.Join(a.r.o.DataDir, "state", a.id)
	}
	conn, err := a.adapter.Open(ctx, o)
	if err != nil {
		if missing, ok := errors.AsType[*adapters.NotInstalledError](err); ok {
			return nil, problem.Wrap(problem.AgentNotInstalled, missing, "cannot start agent %s", a.id)
		}
		return nil, problem.Wrap(problem.AgentProcessExited, err, "cannot start agent %s", a.id)
	}
	p := newProc(a, key, conn, w.backoff)
	a.started.Add(1)
	p.ownLogin = len(w.env) > 0 || w.credentials != (adapters.Credentials{})
	params := append([]byte(`{"protocolVersion":1,"clientCapabilities":`), w.caps...)
	if len(w.info) > 0 {
		params = append(append(params, `,"clientInfo":`...), w.info...)
	}
	span := a.r.watch.Begin(ctx, Work{Name: WorkInitialize, Agent: a.id, ToAgent: true})
	res, err := p.ask(ctx, "initialize", append(params, '}'))
	span.End(outcomeOf(err))
	if err != nil {
		p.close(err)
		return nil, agentProblem(a.id, "initialize", err)
	}
	p.init = res
	if params := a.loginFor(w); params != nil {
		if _, err := p.ask(ctx, "authenticate", params); err != nil {
			a.r.log.Warn("agent did not authenticate", "agent", a.id, "err", err)
		}
	}
	p.readCapabilities()
	switch state := AuthState(rawjson.MemberString(res, "_meta", acp.MetaKey, "authState")); state {
	case AuthAuthenticated, AuthRequired:
		if !p.ownLogin {
			a.setAuth(state)
		}
	}
	return p, nil
}

// existing returns dir, or "" when it is none: an agent that cannot start there
// could not say so.
func existing(dir string) string {
	if st, err := os.Stat(dir); err != nil || !st.IsDir() {
		return ""
	}
	return dir
}

// agentProblem is err as a problem, with what is known of the process's end.
func agentProblem(id, method string, err error) error {
	if p, ok := errors.AsType[*problem.Error](err); ok {
		return p
	}
	pr := problem.Wrap(problem.AgentProcessExited, err, "agent %s failed at %s", id, method)
	if exit, ok := errors.AsType[*adapters.ExitError](err); ok {
		return pr.With("exitCode", exit.Code).With("stderr", stderrInfo(exit.Stderr))
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return problem.New(problem.Timeout, "agent %s did not answer %s within %s", id, method, startTimeout)
	}
	return pr
}

// failed notes a failure and delays the next start.
func (a *agent) failed(b *backoff, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lastErr = err.Error()
	b.notUntil = time.Now().Add(b.next())
}

// ended is told of a process's end by its pump.
func (a *agent) ended(p *proc, cause error) {
	a.r.watch.ProcessEnded(a.id, exitOf(cause))
	a.mu.Lock()
	if s := a.procs[p.key]; s != nil && s.p == p {
		delete(a.procs, p.key)
	}
	unexpected := cause != nil && !errors.Is(cause, errShutdown) && !errors.Is(cause, errUnused)
	if unexpected {
		a.restarts++
		a.lastErr = cause.Error()
		switch b := p.backoff; {
		case time.Since(p.started) > stableAfter:
			*b = backoff{}
		case b.failures == 0: // the first death is met by an immediate restart
			b.failures = 1
		default:
			b.notUntil = time.Now().Add(b.next())
		}
	}
	a.mu.Unlock()
}

// drop removes the slot if it is still the key's.
func (a *agent) drop(key string, s *slot) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.procs[key] == s {
		delete(a.procs, key)
	}
}

// slots returns the processes that run and those that start.
func (a *agent) slots() []*slot {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Collect(maps.Values(a.procs))
}

// live returns the processes that run.
func (a *agent) live() []*proc {
	var out []*proc
	for _, s := range a.slots() {
		select {
		case <-s.ready:
			if s.p != nil {
				out = append(out, s.p)
			}
		default:
		}
	}
	return out
}
