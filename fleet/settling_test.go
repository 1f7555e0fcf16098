package fleet_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"sandboxagent.dev/sandbox-agent/fleet"
	"sandboxagent.dev/sandbox-agent/fleet/store"
	"sandboxagent.dev/sandbox-agent/fleet/store/storetest"
)

// The store goes away as a move comes to its end: the session goes on where it is then, and when the store is back all hubs
// learn of that.
func TestMove_StoreIsAwayAtItsEnd(t *testing.T) {
	t.Parallel() // it waits more than it computes
	for when, noted := range map[string]bool{"before its owner is noted": false, "behind that": true} {
		t.Run(when, func(t *testing.T) {
			t.Parallel()
			nats := storetest.NewCluster(t, 1)
			nats.Start(0)
			shared := store.Options{URL: nats.URL(), Advertise: advertised}
			h, other := startCopierOn(t, "one", shared), startCopierOn(t, "two", shared)
			source, target := &meddler{box: newBox(t)}, &meddler{box: newBox(t)}
			other.join("one", other.joinToken(), nil, source)
			other.join("two", other.joinToken(), nil, target)
			h.awaitState("one", fleet.StateOnline)
			h.awaitState("two", fleet.StateOnline)
			c := h.hello(adminToken)
			s := c.session("one")
			c.says(s, "first")
			h.bundled(s, "one")
			var left atomic.Bool
			away := sync.OnceFunc(func() { nats.Stop(0) })
			source.meddle(func(w http.ResponseWriter, r *http.Request) bool {
				if !r.URL.Query().Has("movedTo") || left.Swap(true) {
					return false
				}
				c.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":"held","method":"session/prompt","params":%s}`, prompt(s, "echo second")))
				c.must("session/list", `{}`) // behind it
				source.box.ServeHTTP(w, r)
				if !noted {
					away()
				}
				return true
			})
			target.meddle(func(_ http.ResponseWriter, r *http.Request) bool {
				if noted && left.Load() && r.URL.Path == "/v2/rpc" { // it is to be opened
					away()
				}
				return false
			})
			status, body := h.ask(http.MethodPost, "/v2/sessions/"+s+"/move", adminToken, fleet.MoveRequest{Node: "two"})
			if moved := status == http.StatusOK; moved != noted {
				t.Errorf("it was moved: %d %s", status, body)
			}
			if m := c.response(`"held"`); m.Err() != nil {
				t.Errorf("what waited for the move: %s", m.Frame())
			}
			c.says(s, "third")
			nats.Start(0)
			other.await("the other hub knows where it is, and that nobody moves it", func() bool {
				for _, o := range other.store.Owners() {
					if o.Session == s && o.Node == "two" && o.Term == 2 && o.Moving == nil {
						return true
					}
				}
				return false
			})
		})
	}
}

// The node to which a session goes does not open it, and the store goes away as it is taken back. What is told of that is so, and stays
// so when the store is there again.
func TestMove_StoreIsAwayAsItIsTakenBack(t *testing.T) {
	t.Parallel() // it waits more than it computes
	for when, tt := range map[string]struct {
		taken bool // back
		told  string
		node  string
	}{
		"before that is noted": {false, "is at two, closed, and could not be taken back", "two"},
		"behind that":          {true, "was taken back to one", "one"},
	} {
		t.Run(when, func(t *testing.T) {
			t.Parallel()
			nats := storetest.NewCluster(t, 1)
			nats.Start(0)
			shared := store.Options{URL: nats.URL(), Advertise: advertised}
			h, other := startCopierOn(t, "one", shared), startCopierOn(t, "two", shared)
			source, target := &meddler{box: newBox(t)}, &meddler{box: newBox(t)}
			other.join("one", other.joinToken(), nil, source)
			other.join("two", other.joinToken(), nil, target)
			h.awaitState("one", fleet.StateOnline)
			h.awaitState("two", fleet.StateOnline)
			c := h.hello(adminToken)
			s := c.session("one")
			c.says(s, "first")
			h.bundled(s, "one")
			c.stop()
			var left atomic.Bool
			away := sync.OnceFunc(func() { nats.Stop(0) })
			source.meddle(func(_ http.ResponseWriter, r *http.Request) bool {
				if r.URL.Query().Has("movedTo") {
					left.Store(true)
				}
				if tt.taken && left.Load() && r.URL.Path == "/v2/rpc" { // it is to be opened again
					away()
				}
				return false
			})
			target.meddle(func(w http.ResponseWriter, r *http.Request) bool {
				if !left.Load() || r.URL.Path != "/v2/rpc" {
					return false
				}
				if !tt.taken {
					away()
				}
				http.Error(w, "it opens nothing", http.StatusInternalServerError)
				return true
			})
			status, body := h.ask(http.MethodPost, "/v2/sessions/"+s+"/move", adminToken, fleet.MoveRequest{Node: "two"})
			if status == http.StatusOK || !strings.Contains(string(body), tt.told) {
				t.Errorf("%d %s", status, body)
			}
			target.meddle(nil)
			nats.Start(0)
			for _, hub := range []*hub{h, other} {
				hub.await("the hub knows where it is, and that nobody moves it", func() bool {
					for _, o := range hub.store.Owners() {
						if o.Session == s && o.Node == tt.node && o.Moving == nil {
							return true
						}
					}
					return false
				})
			}
			again := other.hello(adminToken)
			again.must("session/load", `{"sessionId":"`+s+`","cwd":"/tmp","mcpServers":[]}`)
			again.says(s, "second")
			if got := again.heard(s); fmt.Sprint(got) != "[first second]" {
				t.Errorf("it heard %q", got)
			}
		})
	}
}
