package opencode

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

// An MCP server that two sessions of a directory want runs as long as one of them does. One may be closed while
// the other is opened, which may fail.
func TestTools_EndWithTheLastUser(t *testing.T) {
	var told []string
	there := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		told = append(told, r.Method+" "+r.URL.Path)
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"files":{"status":"connected"}}`))
	}))
	defer there.Close()
	a := &agent{peer: latecomer{}, log: slog.New(slog.DiscardHandler)}
	srv := &server{a: a, log: a.log, http: there.Client(), base: there.URL, ended: make(chan struct{})}
	up := &setup{Setup: &bridge.Setup{Cwd: "/w"}, servers: []mcpServer{{"files", []byte(`{}`)}}}
	box := a.tools.at(srv, up.Cwd)
	open := func() []string {
		t.Helper()
		names, failed := box.start(t.Context(), srv, up)
		if len(failed) > 0 || len(names) != 1 {
			t.Fatalf("it starts %v, and not %v", names, failed)
		}
		return names
	}
	first := &session{a: a, srv: srv, id: "first", cwd: up.Cwd, log: a.log}
	second := &session{a: a, srv: srv, id: "second", cwd: up.Cwd, log: a.log}
	names := open()
	box.use(first.id, names)
	box.opened(t.Context(), srv, up.Cwd, names)

	names = open()
	a.tools.leave(t.Context(), first)
	box.use(second.id, names)
	box.opened(t.Context(), srv, up.Cwd, names)
	if d := cmp.Diff([]string{"POST /mcp"}, told); d != "" {
		t.Errorf("as one is closed and another is opened: %s", d)
	}
	a.tools.leave(t.Context(), second)
	names = open()
	box.opened(t.Context(), srv, up.Cwd, names) // the session could not be opened
	if d := cmp.Diff([]string{"POST /mcp", "POST /mcp/files/disconnect", "POST /mcp", "POST /mcp/files/disconnect"}, told); d != "" {
		t.Error(d)
	}
}
