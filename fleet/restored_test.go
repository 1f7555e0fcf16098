package fleet_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/fleet"
	"sandboxagent.dev/sandbox-agent/fleet/store"
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
			h.loses(n, "box")
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

// The store is put back as it was before some moves, or is emptied. Who has a session is found out from what the nodes say: each is
// where it went last, open, and what it left behind is not taken for another one.
func TestMove_StoreIsPutBack(t *testing.T) {
	t.Parallel() // it waits more than it computes
	for name, emptied := range map[string]bool{"an older one": false, "an empty one": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now, backup := t.TempDir(), filepath.Join(t.TempDir(), "backup")
			boxes := map[string]http.Handler{"one": newBox(t), "two": newBox(t), "three": newBox(t)}
			with := func(dir string, do func(h *hub)) {
				h := startCopierOn(t, "hub", store.Options{Dir: dir})
				var nodes []*node
				for _, name := range []string{"two", "three", "one"} {
					nodes = append(nodes, h.join(name, h.joinToken(), nil, boxes[name]))
				}
				do(h)
				for _, n := range nodes {
					n.leave()
					<-n.done
				}
				h.stop()
			}
			goes := func(h *hub, s string, to ...string) {
				for _, node := range to {
					h.move(s, fleet.MoveRequest{Node: node})
					c := h.hello(adminToken)
					c.must("session/load", fmt.Sprintf(`{"sessionId":%q,"cwd":"/tmp","mcpServers":[]}`, s))
					c.says(s, "at "+node)
					c.stop()
				}
			}
			paths := map[string][2][]string{ // before the backup, and after it
				"away":          {nil, {"two"}},
				"away and back": {nil, {"two", "one"}},
				"on":            {{"two"}, {"three"}},
				"away twice":    {nil, {"two", "three"}},
			}
			sessions := map[string]string{}
			with(now, func(h *hub) {
				c := h.hello(adminToken)
				for name := range paths {
					sessions[name] = c.session("one")
					c.says(sessions[name], "first")
				}
				c.stop()
				for name, path := range paths {
					goes(h, sessions[name], path[0]...)
				}
			})
			if err := os.CopyFS(backup, os.DirFS(now)); err != nil {
				t.Fatal(err)
			}
			with(now, func(h *hub) {
				for name, path := range paths {
					goes(h, sessions[name], path[1]...)
				}
			})
			if emptied {
				backup = t.TempDir()
			}
			with(backup, func(h *hub) {
				for name, path := range paths {
					s, last := sessions[name], path[1][len(path[1])-1]
					h.await(name+" is found where it went last", func() bool {
						status, body := h.ask(http.MethodGet, "/v2/sessions/"+s, adminToken, nil)
						return status == http.StatusOK && rawjson.MemberString(body, "node") == last
					})
					c := h.hello(adminToken)
					c.must("session/load", fmt.Sprintf(`{"sessionId":%q,"cwd":"/tmp","mcpServers":[]}`, s))
					c.says(s, "here")
					want := []string{"first"}
					for _, node := range slices.Concat(path[0], path[1]) {
						want = append(want, "at "+node)
					}
					if diff := cmp.Diff(append(want, "here"), c.heard(s)); diff != "" {
						t.Errorf("%s, -want +got:\n%s", name, diff)
					}
					c.stop()
					if _, direct := h.ask(http.MethodGet, "/nodes/"+last+"/v2/sessions/"+s, adminToken, nil); strings.Contains(string(direct), "movedTo") {
						t.Errorf("%s: %s has let go of it: %s", name, last, direct)
					}
				}
			})
		})
	}
}
