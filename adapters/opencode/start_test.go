package opencode

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp"
)

// A start that fails because another process is setting up the database, or took
// the port, is tried again; one that fails for good says why, at once.
func TestStart_TriesAgainWhatPasses(t *testing.T) {
	for said, want := range map[string]int{
		"Failed query: CREATE TABLE `workspace`": 3,
		"database is locked":                     3,
		"EADDRINUSE":                             3,
		"no such file: opencode.json":            1,
	} {
		t.Run(strings.Fields(said)[0], func(t *testing.T) {
			w := newWorld(t)
			count := filepath.Join(w.Cwd, "starts")
			wrapper := w.Write(filepath.Join(w.Cwd, "wrapper"), fmt.Sprintf(`#!/bin/sh
case "$*" in *serve*) ;; *) exec %[1]q "$@" ;; esac
echo x >>%[2]q
[ "$(wc -l <%[2]q)" -ge 3 ] && exec %[1]q "$@"
echo '%[3]s' >&2
exit 1
`, w.Program.Path, count, said), 0o700)
			w.Program.Path = wrapper
			c := w.open(acp.ClientCapabilities{}, nil)
			_, err := c.Call("session/new", newIn(w))
			b, _ := os.ReadFile(count)
			if got := strings.Count(string(b), "x"); got != want {
				t.Errorf("it was started %d times: %v", got, err)
			}
			if want == 1 && (err == nil || !strings.Contains(err.Error(), said)) {
				t.Errorf("the failure is %v", err)
			}
			if want != 1 && err != nil {
				t.Error(err)
			}
		})
	}
}

// Processes of a user that start at the same time, where none has run before, set
// up one database.
func TestStart_ManyAtOnce(t *testing.T) {
	w := newWorld(t)
	var starts sync.WaitGroup
	for range 4 {
		c := w.open(acp.ClientCapabilities{}, nil)
		starts.Go(func() {
			if _, err := c.Call("session/new", newIn(w)); err != nil {
				t.Error(err)
			}
		})
	}
	starts.Wait()
}

func newIn(w *world) any { return map[string]any{"cwd": w.Cwd, "mcpServers": []any{}} }
