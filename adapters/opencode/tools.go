package opencode

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"

	"sandboxagent.dev/sandbox-agent/internal/pattern"

	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

// mcpServer is an MCP server that a session wants.
type mcpServer struct {
	name   string
	config json.RawMessage // in OpenCode's form; it may hold secrets
}

// odd are characters that OpenCode replaces in the names of tools.
var odd = pattern.New(`[^A-Za-z0-9_-]`)

// tools are the MCP servers that sessions have started. OpenCode runs them per
// directory; here they belong to sessions, and others are kept from using them.
// The zero value is empty. Its methods are safe for concurrent use.
type tools struct {
	mu     sync.Mutex
	places map[place]*toolbox
}

// place is where OpenCode runs MCP servers.
type place struct {
	srv *server
	dir string
}

// toolbox is the MCP servers of a place, and who is about to use it.
type toolbox struct {
	// Who opens a session enters, and who makes OpenCode forget the place does so alone.
	open  door
	stale atomic.Bool // credentials were refused since OpenCode has read them
	left  atomic.Bool // a session has left, and it was not looked whether the place is used

	mu  sync.Mutex // not held while a server starts
	all map[string]*tool
}

// tool is an MCP server.
type tool struct {
	config json.RawMessage
	users  map[schema.SessionID]bool
	opens  int           // how many sessions are being opened with it
	failed string        // why it does not run; "" when it does
	starts chan struct{} // closed when its start is over; nil when nobody starts it
}

func (t *tools) at(srv *server, dir string) *toolbox {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.places == nil {
		t.places = map[place]*toolbox{}
	}
	b := t.places[place{srv, dir}]
	if b == nil {
		b = &toolbox{all: map[string]*tool{}}
		t.places[place{srv, dir}] = b
	}
	return b
}

// start starts what a session wants and does not run there yet. It returns the
// names under which it runs, which the caller gives back with opened when the session is
// known or is not to be, and why some of it does not. Another session's
// server of the same name stays: this session's gets a number, and so does one
// whose tools a rule about the other would match.
func (b *toolbox) start(ctx context.Context, srv *server, up *setup) (names, failed []string) {
	for _, want := range up.servers {
		name, one := b.wanted(want, names)
		names = append(names, name)
		if why := b.run(ctx, srv, up.Cwd, name, one); why != "" {
			failed = append(failed, fmt.Sprintf("MCP server %s does not run: %s", want.name, why))
		}
	}
	return names, failed
}

// wanted returns the server that a session is being opened with, and its name. own are the
// names of the session's others.
func (b *toolbox) wanted(want mcpServer, own []string) (string, *tool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	name := want.name
	for n := 2; b.mixedUp(name, want.config, own); n++ {
		name = fmt.Sprintf("s%d_%s", n, want.name)
	}
	one := b.all[name]
	if one == nil {
		one = &tool{config: want.config, failed: "it was not started", users: map[schema.SessionID]bool{}}
		b.all[name] = one
	}
	one.opens++
	return name, one
}

// run starts a server that does not run, and returns why it does not run then. Who is opened with it
// at the same time waits for that start.
func (b *toolbox) run(ctx context.Context, srv *server, dir, name string, one *tool) string {
	b.mu.Lock()
	for one.starts != nil {
		over := one.starts
		b.mu.Unlock()
		select {
		case <-over:
		case <-ctx.Done():
			return ctx.Err().Error()
		}
		b.mu.Lock()
	}
	if one.failed == "" {
		b.mu.Unlock()
		return ""
	}
	over := make(chan struct{})
	one.starts = over
	b.mu.Unlock()
	failed := srv.connect(ctx, dir, name, one.config)
	b.mu.Lock()
	defer b.mu.Unlock()
	one.failed, one.starts = failed, nil
	close(over)
	return failed
}

// mixedUp reports whether a name cannot be told from that of another server than
// the session's own.
func (b *toolbox) mixedUp(name string, config json.RawMessage, own []string) bool {
	if one := b.all[name]; one != nil && bytes.Equal(one.config, config) {
		return false
	}
	for other := range b.all {
		if !slices.Contains(own, other) && (matches(prefix(other), name+"_") || matches(prefix(name), other+"_")) {
			return true
		}
	}
	return false
}

// use notes that a session uses servers.
func (b *toolbox) use(id schema.SessionID, names []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, name := range names {
		if one := b.all[name]; one != nil {
			one.users[id] = true
		}
	}
}

// fences are the rules that keep a session from servers that are not its own.
// had are the rules that it has already: one that kept it from a server which is
// its own now gives way to a question.
func (b *toolbox) fences(own []string, had []rule) []rule {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []rule
	for _, name := range slices.Sorted(maps.Keys(b.all)) {
		r := rule{prefix(name), "*", "deny"}
		switch denied := slices.Contains(had, r); {
		case slices.Contains(own, name) && denied:
			out = append(out, rule{r.Permission, "*", "ask"})
		case !slices.Contains(own, name) && !denied:
			out = append(out, r)
		}
	}
	return out
}

// prefix matches the names of a server's tools.
func prefix(name string) string { return odd.ReplaceAllString(name, "_") + "_*" }

// connect starts an MCP server and returns why it does not run.
func (s *server) connect(ctx context.Context, dir, name string, config json.RawMessage) string {
	var states map[string]serverStatus
	body := map[string]any{"name": name, "config": config}
	if err := s.call(ctx, "POST", at("/mcp", dir), body, &states); err != nil {
		return err.Error()
	}
	switch one := states[name]; one.Status {
	case "connected":
		return ""
	case "needs_auth", "needs_client_registration":
		return loginRemedy(name)
	default:
		return bridge.FirstOf(bridge.OneLine(one.Error), one.Status, "opencode does not say why")
	}
}

// leave ends the servers that nobody but the session uses.
func (t *tools) leave(ctx context.Context, s *session) {
	b := t.at(s.srv, s.cwd)
	b.mu.Lock()
	defer b.mu.Unlock()
	for name, one := range b.all {
		if one.users[s.id] {
			delete(one.users, s.id)
			b.endUnusedLocked(ctx, s.srv, s.cwd, name)
		}
	}
}

// opened says that a session which was opened with servers is one of their users, or is not to
// be: those that nobody uses end.
func (b *toolbox) opened(ctx context.Context, srv *server, dir string, names []string) {
	ctx, cancel := bridge.Within(context.WithoutCancel(ctx), endBound)
	defer cancel()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, name := range names {
		b.all[name].opens--
		b.endUnusedLocked(ctx, srv, dir, name)
	}
}

// endUnusedLocked ends a server that no session uses, and none that is being opened; mu is held.
func (b *toolbox) endUnusedLocked(ctx context.Context, srv *server, dir, name string) {
	if one := b.all[name]; one.opens > 0 || len(one.users) > 0 {
		return
	}
	delete(b.all, name)
	if err := srv.call(ctx, "POST", at("/mcp/"+url.PathEscape(name)+"/disconnect", dir), nil, nil); err != nil {
		srv.log.Debug("end an MCP server", "server", name, "err", err)
	}
}
