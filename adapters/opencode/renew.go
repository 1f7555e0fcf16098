package opencode

import (
	"context"
	"errors"
	"maps"
	"slices"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

// OpenCode reads credentials and configuration when it looks at a directory for the
// first time, and goes on with what it has read, with errors too. What people put
// right counts when it forgets the directory; a wrong configuration it forgets
// only when its process ends.

// use returns a server of a kind. It is not ended for want of sessions before done
// is called.
func (a *agent) use(ctx context.Context, k kind) (srv *server, done func(), err error) {
	for {
		if srv, err = a.servers.Get(ctx, k); err != nil {
			return nil, nil, err
		}
		a.mu.Lock()
		srv.users++
		a.mu.Unlock()
		done = func() {
			a.mu.Lock()
			defer a.mu.Unlock()
			srv.users--
		}
		if a.servers.Serves(k, srv) {
			return srv, done, nil
		}
		done() // it was ended meanwhile
	}
}

// any returns a server that runs, and starts one when none does.
func (a *agent) any(ctx context.Context) (srv *server, done func(), err error) {
	if _, ok := a.servers.Open(asConfigured); !ok {
		if _, ok := a.servers.Open(asksCommands); ok {
			return a.use(ctx, asksCommands)
		}
	}
	return a.use(ctx, asConfigured)
}

// startOver makes OpenCode forget what it knows of a directory in which no session
// could be opened. The caller uses the server. It reports whether all is forgotten:
// where the process has sessions, a wrong configuration is not.
func (a *agent) startOver(ctx context.Context, srv *server, dir string) bool {
	a.mu.Lock()
	there, anywhere := false, false
	for _, s := range a.sessions {
		if s.srv == srv {
			anywhere = true
			there = there || s.cwd == dir
		}
	}
	idle := srv.users == 1 && !anywhere
	if idle {
		a.servers.Remove(srv.kind, srv)
	}
	a.mu.Unlock()
	switch {
	case idle:
		srv.End()
	case there:
		a.tools.at(srv, dir).stale.Store(true)
	default:
		srv.dispose(ctx, dir)
	}
	return idle
}

// dispose makes OpenCode forget a directory, in which nothing may run.
func (s *server) dispose(ctx context.Context, dir string) {
	ctx, cancel := bridge.Within(context.WithoutCancel(ctx), endBound)
	defer cancel()
	if err := s.call(ctx, "POST", at("/instance/dispose", dir), nil, nil); err != nil {
		s.log.Debug("forget a directory", "err", err)
	}
}

// refused notes that a provider did not take the credentials: they are read again
// before the next turn.
func (s *session) refused(err error) {
	if e, ok := errors.AsType[*acp.Error](err); ok && e.Code == acp.CodeAuthRequired {
		s.a.tools.at(s.srv, s.cwd).stale.Store(true)
	}
}

// renew makes OpenCode read the directory's credentials again if they were refused.
// While another session works there it is left for a later turn. It waits for who opens a
// session there, and for another session's turn that does the same, as long as ctx lasts. What has
// begun goes on behind that: others would have their MCP servers ended, and not started again. ready is called before anybody else can
// do the same.
func (s *session) renew(ctx context.Context, ready func()) {
	b := s.a.tools.at(s.srv, s.cwd)
	if !b.stale.Load() {
		if b.open.enter(ctx) == nil {
			ready()
			b.open.leave()
		}
		return
	}
	if b.open.enterAlone(ctx) != nil {
		return
	}
	done := make(chan struct{})
	s.work.Go(func() {
		defer close(done)
		defer b.open.leave()
		s.renewAlone(b)
		ready()
	})
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// renewAlone is renew when nobody else uses the place.
func (s *session) renewAlone(b *toolbox) {
	if !b.stale.Load() {
		return
	}
	s.a.mu.Lock()
	all := slices.Collect(maps.Values(s.a.sessions))
	s.a.mu.Unlock()
	for _, other := range all {
		if other != s && other.srv == s.srv && other.cwd == s.cwd && other.works() {
			return
		}
	}
	b.stale.Store(false)
	s.srv.dispose(s.ctx, s.cwd)
	if b.restart(s.ctx, s.srv, s.cwd); s.ctx.Err() != nil {
		b.stale.Store(true) // the session was closed meanwhile
	}
}

// restart starts the MCP servers again that OpenCode has ended with a directory.
func (b *toolbox) restart(ctx context.Context, srv *server, dir string) {
	b.mu.Lock()
	all := maps.Clone(b.all)
	for _, one := range all {
		one.failed = "it has ended with its directory"
		one.opens++ // it does not end while it starts
	}
	b.mu.Unlock()
	names := slices.Sorted(maps.Keys(all))
	for _, name := range names {
		if why := b.run(ctx, srv, dir, name, all[name]); why != "" {
			srv.log.Warn("start an MCP server again", "server", name, "err", bridge.OneLine(why))
		}
	}
	b.opened(ctx, srv, dir, names)
}
