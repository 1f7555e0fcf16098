package opencode

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"sync"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

// mcpServer is an MCP server that a session wants.
type mcpServer struct {
	name   string
	config json.RawMessage // in OpenCode's form; it may hold secrets
}

// odd are characters that OpenCode replaces in the names of tools.
var odd = regexp.MustCompile(`[^A-Za-z0-9_-]`)

// mcp lists the MCP servers: those of _meta in the form of a .mcp.json file, and
// ACP's own, which win.
func (s *setup) mcp(raw json.RawMessage, servers []acp.MCPServer) error {
	if len(raw) > 0 && string(raw) != "null" {
		if inner, ok := acp.Member(raw, "mcpServers"); ok {
			raw = inner
		}
		var named map[string]struct {
			Command string            `json:"command"`
			Args    []string          `json:"args"`
			Env     map[string]string `json:"env"`
			URL     string            `json:"url"`
			Headers map[string]string `json:"headers"`
		}
		if err := json.Unmarshal(raw, &named); err != nil {
			return acp.Errorf(acp.CodeInvalidParams, "_meta mcp must be an object of servers by name: %v", err)
		}
		for _, name := range slices.Sorted(maps.Keys(named)) {
			if one := named[name]; one.URL != "" {
				s.remote(name, one.URL, one.Headers)
			} else {
				s.local(name, one.Command, one.Args, one.Env)
			}
		}
	}
	for _, one := range servers {
		switch {
		case one.Stdio != nil:
			env := map[string]string{}
			for _, v := range one.Stdio.Env {
				env[v.Name] = v.Value
			}
			s.local(one.Stdio.Name, one.Stdio.Command, one.Stdio.Args, env)
		case one.HTTP != nil:
			s.remote(one.HTTP.Name, one.HTTP.URL, headersOf(one.HTTP.Headers))
		case one.SSE != nil:
			s.remote(one.SSE.Name, one.SSE.URL, headersOf(one.SSE.Headers))
		default:
			s.cannot("mcpServers", "opencode connects to servers of type stdio, http and sse only")
		}
	}
	return nil
}

func headersOf(list []acp.HTTPHeader) map[string]string {
	out := map[string]string{}
	for _, h := range list {
		out[h.Name] = h.Value
	}
	return out
}

func (s *setup) local(name, command string, args []string, env map[string]string) {
	config := map[string]any{"type": "local", "command": append([]string{command}, args...), "enabled": true}
	if len(env) > 0 {
		config["environment"] = env
	}
	s.server(name, config)
}

func (s *setup) remote(name, url string, headers map[string]string) {
	config := map[string]any{"type": "remote", "url": url, "enabled": true}
	if len(headers) > 0 {
		config["headers"] = headers
	}
	s.server(name, config)
}

func (s *setup) server(name string, config map[string]any) {
	b, err := acp.Encode(config) // maps are encoded in order
	if err != nil || name == "" {
		s.cannot("mcpServers", "server %q has no name or cannot be encoded", name)
		return
	}
	s.servers = slices.DeleteFunc(s.servers, func(m mcpServer) bool { return m.name == name })
	s.servers = append(s.servers, mcpServer{name, b})
}

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

// toolbox is the MCP servers of a place.
type toolbox struct {
	mu  sync.Mutex // held while servers start, so that each starts once
	all map[string]*tool
}

// tool is an MCP server.
type tool struct {
	config json.RawMessage
	users  map[acp.SessionID]bool
	failed string // why it does not run; "" when it does
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
// names under which it runs, and why some of it does not. Another session's
// server of the same name stays: this session's gets a number.
func (b *toolbox) start(ctx context.Context, srv *server, up *setup) (names, failed []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, want := range up.servers {
		name := want.name
		for n := 2; b.all[name] != nil && !bytes.Equal(b.all[name].config, want.config); n++ {
			name = fmt.Sprintf("%s_%d", want.name, n)
		}
		one := b.all[name]
		if one == nil || one.failed != "" {
			one = &tool{config: want.config, users: map[acp.SessionID]bool{}}
			one.failed = srv.connect(ctx, up.cwd, name, want.config)
			b.all[name] = one
		}
		if one.failed != "" {
			failed = append(failed, fmt.Sprintf("MCP server %s does not run: %s", want.name, one.failed))
		}
		names = append(names, name)
	}
	return names, failed
}

// use notes that a session uses servers.
func (b *toolbox) use(id acp.SessionID, names []string) {
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
	var states map[string]struct {
		Status string `json:"status"`
		Error  string `json:"error"`
	}
	body := map[string]any{"name": name, "config": config}
	if err := s.call(ctx, "POST", at("/mcp", dir), body, &states); err != nil {
		return err.Error()
	}
	switch one := states[name]; one.Status {
	case "connected":
		return ""
	case "needs_auth", "needs_client_registration":
		return "it wants a login; run `opencode mcp auth " + name + "` in a terminal"
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
		if !one.users[s.id] {
			continue
		}
		if delete(one.users, s.id); len(one.users) > 0 {
			continue
		}
		delete(b.all, name)
		path := at("/mcp/"+url.PathEscape(name)+"/disconnect", s.cwd)
		if err := s.srv.call(ctx, "POST", path, nil, nil); err != nil {
			s.log.Debug("end an MCP server", "err", err)
		}
	}
}
