package fleet_test

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/fleet"
	"sandboxagent.dev/sandbox-agent/fleet/store"
	"sandboxagent.dev/sandbox-agent/runtime"
	"sandboxagent.dev/sandbox-agent/runtime/session"
)

// A session is deleted while it is on its way: nothing of it is left, also at the node that it was to go
// to, and clients that have it open do not wait for the move.
func TestMove_DeletedMeanwhile(t *testing.T) {
	h, source := startMeddled(t)
	c, other := h.hello(adminToken), h.hello(adminToken)
	s := c.session("one")
	c.says(s, "first")
	h.bundled(s, "one")
	source.meddle(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.URL.Query().Has("movedTo") {
			h.knows(s, "two", 1)
			other.must("session/delete", `{"sessionId":"`+s+`","_meta":{"sandboxagent.dev":{"node":"one"}}}`)
			h.await("the hub has heard that it was deleted", func() bool {
				return !slices.ContainsFunc(h.store.Sessions(), func(have *store.Session) bool { return have.Session == s && have.Node == "one" })
			})
		}
		return false
	})
	if kind, detail := h.notMoved(s, fleet.MoveRequest{Node: "two"}); kind != "session_not_found" || !strings.Contains(detail, "deleted") {
		t.Errorf("%s: %s", kind, detail)
	}
	h.await("nothing is left of it", func() bool {
		all := h.list(adminToken, "?state=moved&state=gone").Sessions
		return len(all) == 0 && len(h.listed(s)) == 0 && len(h.store.Owners()) == 0
	})
	if m := c.call("session/prompt", prompt(s, "echo second")); errorKind(m) != "session_not_found" {
		t.Errorf("%s", m.Frame())
	}
}

// Who closes a session that is on its way closes it where it goes: it is not open again there.
func TestMove_ClosedMeanwhile(t *testing.T) {
	t.Parallel() // it waits more than it computes
	for _, over := range []string{"ACP", "HTTP"} {
		t.Run(over, func(t *testing.T) {
			h, source := startMeddled(t)
			c := h.hello(adminToken)
			s := c.session("one")
			c.says(s, "first")
			h.bundled(s, "one")
			closed := make(chan string, 1)
			if over == "HTTP" {
				c.stop() // who has it open follows it, and that opens it
			}
			source.meddle(func(_ http.ResponseWriter, r *http.Request) bool {
				switch {
				case !r.URL.Query().Has("movedTo"):
				case over == "HTTP":
					go func() {
						status, body := h.ask(http.MethodPost, "/v2/sessions/"+s+"/close", adminToken, nil)
						closed <- strings.TrimPrefix(fmt.Sprintf("%d %s", status, body), "204 ")
					}()
				default:
					c.send(`{"jsonrpc":"2.0","id":"closing","method":"session/close","params":{"sessionId":"` + s + `"}}`)
					c.must("session/list", `{}`) // behind it
					go func() {
						m := c.response(`"closing"`)
						closed <- errorKind(m)
					}()
				}
				return false
			})
			h.move(s, fleet.MoveRequest{Node: "two"})
			if wrong := <-closed; wrong != "" {
				t.Error(wrong)
			}
			h.await("it is closed where it went", func() bool {
				at := h.session(s)
				return at.Node == "two" && at.State == runtime.StateClosed
			})
		})
	}
}

// A session is closed while it is on its way to a node that dies of it: it stays where it was, closed.
func TestMove_ClosedAndTheOtherNodeDies(t *testing.T) {
	for _, over := range []string{"ACP", "HTTP"} {
		t.Run(over, func(t *testing.T) {
			h := startCopier(t)
			h.box("one", nil)
			c := h.hello(adminToken)
			s := c.session("one")
			c.says(s, "first")
			h.knows(s, "one", 1)
			comes, asked := make(chan struct{}), make(chan struct{})
			var dying *node
			dying = h.join("dies", h.joinToken(), nil, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/v2/sessions/import" {
					http.NotFound(w, r)
					return
				}
				_, _ = r.Body.Read(make([]byte, 10))
				close(comes)
				<-asked
				dying.leave()
				_, _ = io.Copy(io.Discard, r.Body) // until it breaks
			}))
			moved, closed := make(chan string, 1), make(chan string, 1)
			go func() {
				kind, detail := h.notMoved(s, fleet.MoveRequest{Node: "dies"})
				moved <- kind + ": " + detail
			}()
			<-comes
			if over == "ACP" {
				c.send(`{"jsonrpc":"2.0","id":"closing","method":"session/close","params":{"sessionId":"` + s + `"}}`)
				c.must("session/list", `{}`) // behind it
				close(asked)
				closed <- errorKind(c.response(`"closing"`))
			} else {
				go func() {
					status, body := h.ask(http.MethodPost, "/v2/sessions/"+s+"/close", adminToken, nil)
					closed <- strings.TrimPrefix(fmt.Sprintf("%d %s", status, body), "204 ")
				}()
				close(asked)
			}
			if why := <-moved; !strings.Contains(why, "stays at one") {
				t.Errorf("the move: %s", why)
			}
			if wrong := <-closed; wrong != "" {
				t.Errorf("the close: %s", wrong)
			}
			h.await("it is closed where it was", func() bool {
				at := h.session(s)
				return at.Node == "one" && at.State == runtime.StateClosed
			})
		})
	}
}

// A session is deleted in the moment in which it has gone to another node: it is not taken back, also when who
// has moved it may do so no more.
func TestMove_DeletedWhereItGoes(t *testing.T) {
	for name, revoked := range map[string]bool{"the token is good": false, "the token is revoked": true} {
		t.Run(name, func(t *testing.T) { deletedWhereItGoes(t, revoked, 0) })
	}
	t.Run("the token is revoked long before", func(t *testing.T) {
		deletedWhereItGoes(t, true, 2500*time.Millisecond) // longer than who is told so may take to read it
	})
}

func deletedWhereItGoes(t *testing.T, revoked bool, long time.Duration) {
	h := startCopier(t)
	target := &meddler{box: newBox(t)}
	h.box("one", nil)
	h.join("two", h.joinToken(), nil, target)
	c := h.hello(adminToken)
	s := c.session("one")
	c.says(s, "first")
	h.bundled(s, "one")
	token := h.token(fleet.NewToken{Kind: store.KindClient, Scope: store.ScopeDrive})
	var once sync.Once
	target.meddle(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == "/v2/rpc" { // to open it
			once.Do(func() {
				if revoked {
					h.ask(http.MethodDelete, "/v2/tokens/"+idOf(token), adminToken, nil)
					<-time.After(long)
				}
				answer := httptest.NewRecorder()
				target.box.ServeHTTP(answer, httptest.NewRequest(http.MethodDelete, "http://127.0.0.1/v2/sessions/"+s, nil))
				if answer.Code != http.StatusNoContent {
					t.Errorf("delete: %d %s", answer.Code, answer.Body)
				}
			})
		}
		return false
	})
	status, body := h.ask(http.MethodPost, "/v2/sessions/"+s+"/move", token, fleet.MoveRequest{Node: "two"})
	if status != http.StatusNotFound || kindOf(body) != "session_not_found" || !strings.Contains(string(body), "was deleted there") {
		t.Errorf("%d %s", status, body)
	}
	h.await("it is in no list", func() bool { return len(h.listed(s)) == 0 })
}

// The agent could not restore a session that had come to another node, and has begun another one there. When the
// session is back where it was, and is deleted, nothing is left of what the agent had there first.
func TestMove_DeletedWithAllThatAgentsKeep(t *testing.T) {
	h, dir := startCopier(t), t.TempDir()
	h.join("one", h.joinToken(), nil, newBoxIn(t, dir, session.Async, nil, nil))
	h.box("two", nil)
	c := h.hello(adminToken)
	s := c.session("one")
	for i, node := range []string{"two", "one"} {
		if got := h.move(s, fleet.MoveRequest{Node: node}); got.Node != node {
			t.Errorf("%+v", got)
		}
		c.says(s, fmt.Sprint(i))
	}
	kept := func() []string {
		files, err := filepath.Glob(filepath.Join(dir, "state", "mock", "*"))
		if err != nil {
			t.Fatal(err)
		}
		return files
	}
	if len(kept()) == 0 {
		t.Error("the agent keeps nothing of a session that goes on")
	}
	c.must("session/delete", `{"sessionId":"`+s+`"}`)
	if left := kept(); len(left) > 0 {
		t.Errorf("it is deleted, and the agent has %q", left)
	}
}

// What an agent keeps of a session is on its way to the hub when the session is deleted: it is not kept.
func TestBundle_OfASessionThatIsDeletedMeanwhile(t *testing.T) {
	h, source := startMeddled(t)
	given, pass := make(chan bool, 10), make(chan bool)
	source.meddle(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, "/export") {
			return false
		}
		whole := httptest.NewRecorder()
		source.box.ServeHTTP(whole, r)
		given <- true
		<-pass
		maps.Copy(w.Header(), whole.Header())
		w.WriteHeader(whole.Code)
		_, _ = w.Write(whole.Body.Bytes())
		return true
	})
	c := h.hello(adminToken)
	s := c.session("one")
	c.says(s, "first")
	<-given
	id := h.store.SessionsNamed(s)[0].ReplicaID
	c.must("session/delete", `{"sessionId":"`+s+`"}`)
	h.await("the hub knows that it is deleted", func() bool { return h.store.Session(id) == nil })
	source.meddle(nil)
	close(pass)
	other := c.session("one")
	c.says(other, "second")
	h.bundled(other, "one") // one after the other
	if b, err := h.store.AboutBundle(t.Context(), id); b != nil || err != nil {
		t.Errorf("the hub keeps %+v, %v", b, err)
	}
}

// A session that somebody had closed goes on without its node. When that is back it has let go of the session as
// of any other: it does not open it, and the session can come back to it.
func TestMove_ClosedAndItsNodeIsAway(t *testing.T) {
	h := startCopier(t)
	box := newBox(t)
	n := h.join("one", h.joinToken(), nil, box)
	h.box("two", nil)
	c := h.hello(adminToken)
	s := c.session("one")
	c.says(s, "first")
	c.must("session/close", `{"sessionId":"`+s+`"}`)
	h.bundled(s, "one")
	h.loses(n, "one")
	if got := h.move(s, fleet.MoveRequest{Node: "two"}); got.Node != "two" {
		t.Errorf("%+v", got)
	}
	h.join("one", h.joinToken(), nil, box)
	h.await("its node says where it went", func() bool {
		_, direct := h.ask(http.MethodGet, "/nodes/one/v2/sessions/"+s, adminToken, nil)
		return strings.Contains(string(direct), "node://two")
	})
	if got := h.move(s, fleet.MoveRequest{Node: "one"}); got.Node != "one" {
		t.Errorf("%+v", got)
	}
	c = h.hello(adminToken)
	c.must("session/load", `{"sessionId":"`+s+`","cwd":"/tmp","mcpServers":[]}`)
	c.says(s, "second")
	if got := c.heard(s); !slices.Equal(got, []string{"first", "second"}) {
		t.Errorf("loaded: %q", got)
	}
}

// A session that was moved is deleted: nothing of it is left at the nodes that had it before, as soon as they are there.
func TestMove_DeletedLater(t *testing.T) {
	for name, c := range map[string]struct {
		away  bool // the first node is away when the session is deleted
		alone bool // and the session was open there when it went on without it
	}{
		"the first node is there":     {},
		"the first node is away":      {away: true},
		"the first node went on, too": {away: true, alone: true},
	} {
		t.Run(name, func(t *testing.T) {
			here, there := peers(t)
			box := newBox(t)
			n := here.join("one", here.joinToken(), nil, box)
			there.box("two", nil)
			here.awaitState("two", fleet.StateOnline)
			there.awaitState("one", fleet.StateOnline)
			user := there.hello(adminToken)
			s := user.session("one")
			user.says(s, "first")
			here.bundled(s, "one")
			leave := func() {
				there.loses(n, "one")
			}
			if c.alone {
				leave()
			}
			there.move(s, fleet.MoveRequest{Node: "two"})
			if c.away && !c.alone {
				leave()
			}
			user.must("session/delete", `{"sessionId":"`+s+`"}`)
			here.await("no copy is left", func() bool { return len(here.store.Sessions()) == 0 && len(there.store.Sessions()) == 0 })
			if c.away {
				if len(here.store.Owners()) == 0 {
					t.Error("nobody remembers that something of it is at the first node")
				}
				here.join("one", here.joinToken(), nil, box)
			}
			here.await("nothing is left of it", func() bool {
				status, _ := here.ask(http.MethodGet, "/nodes/one/v2/sessions/"+s, adminToken, nil)
				return status == http.StatusNotFound && len(here.store.Sessions()) == 0 && len(here.store.Owners()) == 0
			})
		})
	}
}

// A session is closed as soon as it is at its new node, before the hub is told that it was open: the
// move does not wait for the hub to be told that.
func TestMove_ClosedWhereItGoes(t *testing.T) {
	h := startCopier(t)
	c, s, moved, free := h.movingToQuiet()
	c.next(0, "that it has moved", func(m *acp.Message) bool { return m.Method() == "_sandboxagent/session/moved" })
	c.must("session/close", `{"sessionId":"`+s+`"}`)
	close(free)
	select {
	case status := <-moved:
		if status != http.StatusOK {
			t.Errorf("the move was answered with %d", status)
		}
	case <-time.After(10 * time.Second):
		t.Error("the move waits for what is true no more")
		<-moved
	}
}
