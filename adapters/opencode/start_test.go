package opencode

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridgetest"
	"sandboxagent.dev/sandbox-agent/internal/agentcache"
)

// A start that fails because another process is setting up the database, or took
// the port, is tried again; one that fails for good says why, at once.
func TestStart_TriesAgainWhatPasses(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]int{
		"Failed query: CREATE TABLE `workspace`": 2,
		"database is locked":                     2,
		"EADDRINUSE":                             2,
		"no such file: opencode.json":            1,
	} {
		t.Run(strings.Fields(said)[0], func(t *testing.T) {
			t.Parallel()
			w := &world{World: bridgetest.With(t, New(), adapters.Program{Version: version})}
			// The second start fails for good.
			count := w.failing(said, 1, "echo 'no such file: at last' >&2; exit 1")
			_, err := w.open(schema.ClientCapabilities{}, nil).Call("session/new", newIn(w))
			if got := strings.Count(w.Read(count), "x"); got != want {
				t.Errorf("it was started %d times: %v", got, err)
			}
			if last := map[int]string{1: said, 2: "at last"}[want]; err == nil || !strings.Contains(err.Error(), last) {
				t.Errorf("the failure is %v, want %s", err, last)
			}
		})
	}
}

// failing puts a program before the World's whose first starts of a server fail
// with a message; then it does something else. It returns the file that has an x
// for each start.
func (w *world) failing(said string, times int, then string) (count string) {
	w.T.Helper()
	count = filepath.Join(w.Cwd, "starts")
	w.Program.Path = w.Write(filepath.Join(w.Cwd, "wrapper"), fmt.Sprintf(`#!/bin/sh
case "$*" in *serve*) ;; *) exec %[1]q "$@" ;; esac
echo x >>%[2]q
if [ "$(wc -l <%[2]q)" -gt %[3]d ]; then %[4]s; fi
echo '%[5]s' >&2
exit 1
`, w.Program.Path, count, times, then, said), 0o700)
	return count
}

// Processes of a user that start at the same time, where none has run before, set
// up one database.
func TestLive_ManyStartAtOnce(t *testing.T) {
	t.Parallel()
	agentcache.Long(t, "three more starts of the agent that takes longest to start")
	w := newWorld(t)
	var starts sync.WaitGroup
	for range 3 {
		c := w.open(schema.ClientCapabilities{}, nil)
		starts.Go(func() {
			if _, err := c.Call("session/new", newIn(w)); err != nil {
				t.Error(err)
			}
		})
	}
	starts.Wait()
}

func newIn(w *world) any { return map[string]any{"cwd": w.Cwd, "mcpServers": []any{}} }
