package fleet_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sandboxagent.dev/sandbox-agent/fleet"
	"sandboxagent.dev/sandbox-agent/runtime/session"
)

// A node whose disk was restored from a backup goes on from an earlier event, in a session whose clients are shown
// only what is stored. None of them waits for ever, and what is said then is not put behind what had been said.
func TestSync_DiskIsRestored(t *testing.T) {
	h, dir, backup := startCopier(t), t.TempDir(), filepath.Join(t.TempDir(), "backup")
	s := ""
	visit := func(name, dir string, does func(c *client)) {
		t.Run(name, func(t *testing.T) {
			box := newBoxIn(t, dir, session.Sync, nil, nil)
			n := h.join("box", h.joinToken(), nil, box)
			c := h.hello(adminToken)
			if s == "" {
				s = c.session("box")
			} else {
				c.must("session/load", fmt.Sprintf(`{"sessionId":%q,"cwd":"/tmp","mcpServers":[]}`, s))
			}
			does(c)
			h.await("all of it is stored", func() bool { got := h.session(s); return got.Unstored == 0 && got.Replica.Missing == 0 })
			c.stop()
			n.leave()
			<-n.done
			h.awaitState("box", fleet.StateOffline)
		})
	}
	visit("before", dir, func(c *client) { c.says(s, "first") })
	if err := os.CopyFS(backup, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	visit("after the backup", dir, func(c *client) { c.says(s, "second") })
	had := h.lines(s, 100)
	visit("restored", backup, func(c *client) {
		c.says(s, "third")
		c.says(s, "fourth")
	})
	if diff := cmp.Diff(had, h.lines(s+"?epoch=1", 100)); diff != "" {
		t.Errorf("what had been said, -want +got:\n%s", diff)
	}
	text := strings.Join(h.lines(s, 100), "\n")
	if !strings.Contains(text, "first") || strings.Contains(text, "second") || !strings.Contains(text, "third") || !strings.Contains(text, "fourth") {
		t.Errorf("what is said now:\n%s", text)
	}
}
