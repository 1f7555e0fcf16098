package fleet_test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"

	"sandboxagent.dev/sandbox-agent/fleet"
	"sandboxagent.dev/sandbox-agent/fleet/store"
)

// A session has left a node, that node is forgotten, and another one has its name. What the hub has of the session from the
// first one is still for those for whom that one was, and for nobody else; the node by its name now is not asked for it. It
// goes with the session, or alone.
func TestNames_OfANodeThatASessionLeft(t *testing.T) {
	for _, deleted := range []string{"the session", "the copy"} {
		t.Run(deleted, func(t *testing.T) {
			h := startCopier(t)
			n := h.box("a", map[string]string{"team": "x"})
			h.box("b", map[string]string{"team": "x"})
			c := h.hello(adminToken)
			s := c.session("a")
			c.says(s, "first")
			h.bundled(s, "a")
			h.move(s, fleet.MoveRequest{Node: "b"})
			h.knows(s, "b", 1)
			h.loses(n, "a")
			if status, body := h.ask(http.MethodDelete, "/v2/nodes/a", adminToken, nil); status != http.StatusNoContent {
				t.Fatalf("forget the node: %d %s", status, body)
			}
			h.box("a", map[string]string{"team": "y"})
			token := func(team string, scope store.Scope) string {
				return h.token(fleet.NewToken{Kind: store.KindClient, Scope: scope, Labels: map[string]string{"team": team}})
			}
			for team, theirs := range map[string]bool{"x": true, "y": false} {
				read, listed, found := token(team, store.ScopeRead), 0, http.StatusNotFound
				if theirs {
					listed, found = 1, http.StatusOK
				}
				if l := h.list(read, "?state=moved"); len(l.Sessions) != listed {
					t.Errorf("team %s lists %+v", team, l.Sessions)
				}
				for _, part := range []string{"", "/events", "/transcript"} {
					if status, body := h.ask(http.MethodGet, "/v2/sessions/"+s+part+"?node=a", read, nil); status != found {
						t.Errorf("team %s gets %q: %d %.300s", team, part, status, body)
					}
				}
				m := h.hello(read).call("session/load", fmt.Sprintf(`{"sessionId":%q,"cwd":"/tmp","mcpServers":[],"_meta":{"sandboxagent.dev":{"node":"a"}}}`, s))
				if (m.Err() == nil) != theirs {
					t.Errorf("team %s loads it by that name: %s", team, m.Frame())
				}
			}
			if status, body := h.ask(http.MethodPost, "/v2/sessions/"+s+"/close?node=a", token("x", store.ScopeDrive), nil); kindOf(body) != "session_not_found" {
				t.Errorf("close it at the node that it left: %d %s", status, body)
			}
			if status, body := h.ask(http.MethodDelete, "/v2/sessions/"+s+"?node=a", token("x", store.ScopeDrive), nil); kindOf(body) != "permission_denied" {
				t.Errorf("remove the copy, which is all that is left there: %d %s", status, body)
			}
			at, left := "?node=a", []string{"b"}
			if deleted == "the session" {
				at, left = "", nil
			}
			if status, body := h.ask(http.MethodDelete, "/v2/sessions/"+s+at, adminToken, nil); status != http.StatusNoContent {
				t.Fatalf("delete %s: %d %s", deleted, status, body)
			}
			h.await("it is gone", func() bool {
				var of []string
				for _, one := range h.store.SessionsNamed(s) {
					of = append(of, one.Node)
				}
				return slices.Equal(of, left)
			})
		})
	}
}
