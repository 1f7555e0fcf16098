package fleet_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	nodeapi "sandboxagent.dev/sandbox-agent/control/client"
	"sandboxagent.dev/sandbox-agent/fleet"
	"sandboxagent.dev/sandbox-agent/fleet/store"
	"sandboxagent.dev/sandbox-agent/runtime"
)

// What a client asks of a session in the moment in which its node lets go of it is done where it goes: what the node
// keeps of it is the session no more.
func TestMove_ChangedMeanwhile(t *testing.T) {
	for method, there := range map[string]func(h *hub, s string, result json.RawMessage){
		"_sandboxagent/session/set_metadata": func(h *hub, s string, _ json.RawMessage) {
			h.await("it has the metadata where it went", func() bool {
				got := h.session(s)
				return got.Node == "two" && rawjson.MemberString(got.Metadata, "ticket") == "X-1"
			})
		},
		"_sandboxagent/session/terminate": func(h *hub, s string, _ json.RawMessage) {
			h.await("it has ended where it went", func() bool { got := h.session(s); return got.Node == "two" && got.Ended != nil })
		},
		"session/fork": func(h *hub, _ string, result json.RawMessage) {
			fork := rawjson.MemberString(result, "sessionId")
			h.knows(fork, "two", 0)
		},
	} {
		for _, has := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, the session is open: %v", method, has), func(t *testing.T) {
				h, source := startMeddled(t)
				c := h.hello(adminToken)
				s := c.session("one")
				c.says(s, "first")
				h.bundled(s, "one")
				if !has {
					c.stop()
					c = h.hello(adminToken)
				}
				source.meddle(func(_ http.ResponseWriter, r *http.Request) bool {
					if r.URL.Query().Has("movedTo") {
						c.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":"changing","method":%q,"params":{"sessionId":%q,"cwd":"/tmp","mcpServers":[],"metadata":{"ticket":"X-1"}}}`, method, s))
						c.must("session/list", `{}`) // behind it
					}
					return false
				})
				h.move(s, fleet.MoveRequest{Node: "two"})
				m := c.response(`"changing"`)
				if m.Err() != nil {
					t.Fatalf("%s", m.Frame())
				}
				there(h, s, m.Result())
				if nodes := h.listed(s); !slices.Equal(nodes, []string{"two"}) {
					t.Errorf("it is listed at %v", nodes)
				}
			})
		}
	}
}

// Who opens a session, or first acts on it, as its node lets go of it has it where it goes, with each event once.
func TestMove_OpenedMeanwhile(t *testing.T) {
	for method, params := range map[string]string{
		"session/load":   `{"sessionId":%q,"cwd":"/tmp","mcpServers":[]}`,
		"session/resume": `{"sessionId":%q,"cwd":"/tmp","mcpServers":[],"_meta":{"sandboxagent.dev":{"after":0}}}`,
		"session/prompt": `{"sessionId":%q,"prompt":[{"type":"text","text":"echo second"}]}`,
	} {
		for when, gone := range map[string]bool{"before it lets go": false, "behind that": true} {
			t.Run(method+" "+when, func(t *testing.T) {
				h, source := startMeddled(t)
				c, late := h.hello(adminToken), h.hello(adminToken)
				s := c.session("one")
				c.says(s, "first")
				h.bundled(s, "one")
				source.meddle(func(w http.ResponseWriter, r *http.Request) bool {
					if !r.URL.Query().Has("movedTo") {
						return false
					}
					if gone {
						source.box.ServeHTTP(w, r)
					}
					late.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":"opening","method":%q,"params":%s}`, method, fmt.Sprintf(params, s)))
					late.must("session/list", `{}`) // behind it
					return gone
				})
				h.move(s, fleet.MoveRequest{Node: "two"})
				if m := late.response(`"opening"`); m.Err() != nil {
					t.Fatalf("%s", m.Frame())
				}
				late.says(s, "third")
				want := []string{"first", "third"}
				if method == "session/prompt" {
					want = []string{"second", "third"}
				}
				if got := late.heard(s); !slices.Equal(got, want) {
					t.Errorf("it heard %q, want %q", got, want)
				}
			})
		}
	}
}

// The same in version 2 of the protocol, where a prompt is answered at once.
func TestMove_OpenedMeanwhile_VersionTwo(t *testing.T) {
	for name, tt := range map[string]struct {
		method, params string
		replayed       int
	}{
		"with what was said": {"session/resume", `{"sessionId":%q,"cwd":"/tmp","mcpServers":[],"replayFrom":{"type":"start"}}`, 1},
		"without":            {"session/resume", `{"sessionId":%q,"cwd":"/tmp","mcpServers":[]}`, 0},
		"by a prompt":        {"session/prompt", `{"sessionId":%q,"prompt":[{"type":"text","text":"echo second"}]}`, 0},
	} {
		t.Run(name, func(t *testing.T) {
			h, source := startMeddled(t)
			c, late := h.hello(adminToken), dial(t, h.url, adminToken)
			late.must("initialize", `{"protocolVersion":2,"info":{"name":"test","version":"1"},"capabilities":{}}`)
			s := c.session("one")
			c.says(s, "first")
			h.bundled(s, "one")
			source.meddle(func(w http.ResponseWriter, r *http.Request) bool {
				if !r.URL.Query().Has("movedTo") {
					return false
				}
				source.box.ServeHTTP(w, r)
				late.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":"opening","method":%q,"params":%s}`, tt.method, fmt.Sprintf(tt.params, s)))
				late.must("session/list", `{}`) // behind it
				return true
			})
			h.move(s, fleet.MoveRequest{Node: "two"})
			if m := late.response(`"opening"`); m.Err() != nil {
				t.Fatalf("%s", m.Frame())
			}
			late.must("session/prompt", prompt(s, "echo third"))
			late.next(0, "the last", func(m *acp.Message) bool { return saidIn(m) == "third" })
			counts := map[string]int{}
			for _, text := range late.heard(s) {
				counts[text]++
			}
			if counts["first"] != tt.replayed || counts["second"] != strings.Count(tt.params, "second") || counts["third"] != 1 {
				t.Errorf("it heard %v", counts)
			}
		})
	}
}

// A node lets go of a session, and cannot write that down, or its answer is lost: the move goes on.
func TestMove_LetGoOfWithoutAWord(t *testing.T) {
	for name, answer := range map[string]func(w http.ResponseWriter){
		"it cannot be written down": func(w http.ResponseWriter) { problem.Write(w, problem.New(problem.Unavailable, "no space left")) },
		"its answer is lost":        func(http.ResponseWriter) { panic(http.ErrAbortHandler) },
	} {
		t.Run(name, func(t *testing.T) {
			h, source := startMeddled(t)
			c := h.hello(adminToken)
			s := c.session("one")
			c.says(s, "first")
			h.bundled(s, "one")
			source.meddle(func(w http.ResponseWriter, r *http.Request) bool {
				if !r.URL.Query().Has("movedTo") {
					return false
				}
				source.box.ServeHTTP(httptest.NewRecorder(), r)
				answer(w)
				return true
			})
			if got := h.move(s, fleet.MoveRequest{Node: "two"}); got.Node != "two" || got.Missing != 0 || got.State == runtime.StateClosed {
				t.Errorf("%+v", got)
			}
			c.says(s, "second")
		})
	}
}

// What is changed at the node's own address while a session is moved, and no event tells, is not left behind: the session
// stays, and the next move takes it along.
func TestMove_EditedMeanwhile(t *testing.T) {
	for what, params := range map[string]string{"metadata": `"metadata":{"ticket":"X-1"}`, "title": `"title":"a name of its own"`} {
		t.Run(what, func(t *testing.T) {
			h, source := startMeddled(t)
			c := h.hello(adminToken)
			s := c.session("one")
			c.says(s, "first")
			h.bundled(s, "one")
			direct := dial(t, h.url+"/nodes/one", adminToken)
			direct.must("initialize", `{"protocolVersion":1,"clientCapabilities":{}}`)
			source.meddle(func(_ http.ResponseWriter, r *http.Request) bool {
				if r.URL.Query().Has("movedTo") {
					direct.must("_sandboxagent/session/set_metadata", fmt.Sprintf(`{"sessionId":%q,%s}`, s, params))
				}
				return false
			})
			if kind, detail := h.notMoved(s, fleet.MoveRequest{Node: "two"}); kind != "conflict" || !strings.Contains(detail, "it went on while it was moved") {
				t.Errorf("%s: %s", kind, detail)
			}
			source.meddle(nil)
			h.move(s, fleet.MoveRequest{Node: "two"})
			got := h.session(s)
			has := map[string]bool{"metadata": rawjson.MemberString(got.Metadata, "ticket") == "X-1", "title": got.Title == "a name of its own"}
			if got.Node != "two" || !has[what] {
				t.Errorf("at %s it has the title %q and the metadata %s", got.Node, got.Title, got.Metadata)
			}
			c.says(s, "second")
		})
	}
}

// Who closes a session at a hub that has not heard yet that another one moves it finds it closed: whether its node is asked before it gives
// the session, while it does, or behind that.
func TestMove_ClosedElsewhere(t *testing.T) {
	given := func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/export") }
	for when, is := range map[string]func(*http.Request) bool{
		"before it is given":                     given,
		"before it is given, and the look fails": given,
		"as the node lets go":                    func(r *http.Request) bool { return r.URL.Query().Has("movedTo") },
		"as the other takes it":                  nil,
	} {
		t.Run(when, func(t *testing.T) {
			h, source := startCopier(t), &meddler{box: newBox(t)}
			target := &meddler{box: newBox(t)}
			h.join("one", h.joinToken(), nil, source)
			h.join("two", h.joinToken(), nil, target)
			c := h.hello(adminToken)
			s := c.session("one")
			c.says(s, "first")
			h.bundled(s, "one")
			c.stop()
			closes := func() {
				if status, body := h.ask(http.MethodPost, "/nodes/one/v2/sessions/"+s+"/close", adminToken, nil); status != http.StatusNoContent {
					t.Errorf("close: %d %s", status, body)
				}
			}
			if is == nil {
				target.meddle(func(_ http.ResponseWriter, r *http.Request) bool {
					if strings.HasSuffix(r.URL.Path, "/import") {
						closes()
					}
					return false
				})
			} else {
				var fails atomic.Bool
				source.meddle(func(w http.ResponseWriter, r *http.Request) bool {
					if is(r) {
						closes()
						fails.Store(strings.HasSuffix(when, "fails"))
					} else if fails.Load() && r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/sessions/"+s) {
						problem.Write(w, problem.New(problem.Conflict, "it cannot say"))
						return true
					}
					return false
				})
			}
			if kind, detail := h.notMoved(s, fleet.MoveRequest{Node: "two"}); kind != "conflict" || !strings.Contains(detail, "it went on while it was moved") {
				t.Errorf("%s: %s", kind, detail)
			}
			h.await("it is closed where it was", func() bool { got := h.session(s); return got.Node == "one" && got.State == runtime.StateClosed })
			source.meddle(nil)
			target.meddle(nil)
			if got := h.move(s, fleet.MoveRequest{Node: "two"}); got.State != runtime.StateClosed {
				t.Errorf("when it is moved again it is %s", got.State)
			}
		})
	}
}

// A close, or a delete, is under way to the node of a session when a move begins, and comes there behind that. It is done
// where the session is then.
func TestMove_EndedAsItBegins(t *testing.T) {
	deleted := func(h *hub, s string) bool { return len(h.listed(s)) == 0 }
	for what, end := range map[string]struct {
		method, path string
		ended        func(h *hub, s string) bool
		heard        bool // before the move has noted who has the session
	}{
		"close": {http.MethodPost, "/close", func(h *hub, s string) bool {
			got := h.session(s)
			return got.Node == "two" && got.State == runtime.StateClosed
		}, false},
		"delete":                   {http.MethodDelete, "", deleted, false},
		"delete, that is heard of": {http.MethodDelete, "", deleted, true},
	} {
		t.Run(what, func(t *testing.T) {
			h, source, target := startCopier(t), &meddler{box: newBox(t)}, &meddler{box: newBox(t)}
			h.join("one", h.joinToken(), nil, source)
			h.join("two", h.joinToken(), nil, target)
			gone := make(chan struct{})
			target.meddle(func(w http.ResponseWriter, r *http.Request) bool {
				if !end.heard || r.Method != http.MethodDelete || !strings.HasPrefix(r.URL.Path, "/v2/sessions/") {
					return false
				}
				target.meddle(nil)
				target.box.ServeHTTP(w, r)
				close(gone)
				return true
			})
			c := h.hello(adminToken)
			s := c.session("one")
			c.says(s, "first")
			h.bundled(s, "one")
			c.stop() // who has it open follows it, and that opens it
			come, left := make(chan struct{}), make(chan struct{})
			source.meddle(func(w http.ResponseWriter, r *http.Request) bool {
				switch {
				case r.URL.Query().Has("movedTo"):
					source.box.ServeHTTP(w, r)
					close(left)
					if end.heard {
						<-gone // the hub takes what is deleted for the session, and removes what has come to the other node
					}
					return true
				case r.Method == end.method && r.URL.Path == "/v2/sessions/"+s+end.path:
					close(come)
					<-left
				}
				return false
			})
			status := make(chan int, 1)
			go func() {
				got, _ := h.ask(end.method, "/v2/sessions/"+s+end.path, adminToken, nil)
				status <- got
			}()
			<-come
			// A delete may come there before the move has opened it, which says so then.
			if got, body := h.ask(http.MethodPost, "/v2/sessions/"+s+"/move", adminToken, fleet.MoveRequest{Node: "two"}); got != http.StatusOK && (end.method != http.MethodDelete || kindOf(body) != "session_not_found") {
				t.Errorf("move: %d %s", got, body)
			}
			if got := <-status; got != http.StatusNoContent {
				t.Errorf("%d", got)
			}
			h.await("it has ended where it went", func() bool { return end.ended(h, s) })
		})
	}
}

// Another hub has moved a session, and this one, which the store does not reach, has not heard of it. A close, or a delete, or what
// else changes the session, meets what its node keeps of it: that is no close of the session, and nobody is told so who can ask for it where it is.
func TestMove_ChangedAtAHubThatHasNotHeard(t *testing.T) {
	t.Parallel() // it waits more than it computes
	for name, change := range map[string]func(h *hub, token, s string) (kind string){
		"close over HTTP": func(h *hub, token, s string) string {
			_, body := h.ask(http.MethodPost, "/v2/sessions/"+s+"/close", token, nil)
			return kindOf(body)
		},
		"delete over HTTP": func(h *hub, token, s string) string {
			_, body := h.ask(http.MethodDelete, "/v2/sessions/"+s, token, nil)
			return kindOf(body)
		},
		"session/delete": func(h *hub, token, s string) string {
			return errorKind(h.hello(token).call("session/delete", fmt.Sprintf(`{"sessionId":%q}`, s)))
		},
		"set_metadata": func(h *hub, token, s string) string {
			return errorKind(h.hello(token).call("_sandboxagent/session/set_metadata", fmt.Sprintf(`{"sessionId":%q,"metadata":{}}`, s)))
		},
	} {
		for follows, want := range map[bool]string{true: "conflict", false: ""} {
			t.Run(fmt.Sprintf("%s, the token is for the other node: %v", name, follows), func(t *testing.T) {
				t.Parallel()
				h := startCopier(t)
				h.box("one", map[string]string{"team": "a"})
				h.box("two", nil)
				c := h.hello(adminToken)
				s := c.session("one")
				c.says(s, "first")
				h.bundled(s, "one")
				c.stop()
				api, err := nodeapi.New(h.url+"/nodes/one", nodeapi.Options{Token: adminToken})
				if err != nil {
					t.Fatal(err)
				}
				here := must(api.Session(t.Context(), s))
				if err := api.DepartSession(t.Context(), s, here.EventCount, nil, "node://two"); err != nil {
					t.Fatal(err)
				}
				token := adminToken
				if !follows {
					token = h.token(fleet.NewToken{Kind: store.KindClient, Scope: store.ScopeAdmin, Labels: map[string]string{"team": "a"}})
				}
				if kind := change(h, token, s); kind != want {
					t.Errorf("it is answered %q", kind)
				}
			})
		}
	}
}

// The hub that moved a session ended before it took its note of that away, and the node with the session is away. Another node that has
// had it lets go of it all the same.
func TestMove_LetGoOfWhileANoteIsLeft(t *testing.T) {
	h := startCopier(t)
	h.box("one", nil)
	c := h.hello(adminToken)
	s := c.session("one")
	c.says(s, "first")
	h.knows(s, "one", 1)
	line := store.LineOf(h.store.SessionsNamed(s)[0].Info)
	if _, err := h.store.UpdateOwner(t.Context(), line, func(*store.Owner) (*store.Owner, error) {
		return &store.Owner{
			Node: "two", Term: 3, Since: time.Now(), Moving: &store.Moving{ID: "left", To: "two", Hub: "over", Since: time.Now()},
			Others: []store.Other{{Node: "one", Term: 1}, {Node: "three", Term: 2}},
		}, nil
	}); err != nil {
		t.Fatal(err)
	}
	h.await("the node says where it went", func() bool {
		_, body := h.ask(http.MethodGet, "/nodes/one/v2/sessions/"+s, adminToken, nil)
		return strings.Contains(string(body), `"state":"closed"`) && strings.Contains(string(body), "node://two")
	})
}

// The gateway of a session that is being moved is started anew without its data, when all of that has come to the other node: it is not
// removed there.
func TestMove_TheNodeComesBackWithoutItsData(t *testing.T) {
	h, target := startCopier(t), &meddler{box: newBox(t)}
	token := h.joinToken()
	n := h.join("one", token, nil, newBox(t))
	h.join("two", h.joinToken(), nil, target)
	c := h.hello(adminToken)
	s := c.session("one")
	c.says(s, "first")
	h.bundled(s, "one")
	target.meddle(func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != "/v2/sessions/import" {
			return false
		}
		answer := httptest.NewRecorder()
		target.box.ServeHTTP(answer, r)
		h.loses(n, "one")
		h.join("one", token, nil, newBox(t))
		w.WriteHeader(answer.Code)
		_, _ = w.Write(answer.Body.Bytes())
		return true
	})
	if kind, detail := h.notMoved(s, fleet.MoveRequest{Node: "two"}); kind != "session_not_found" || !strings.Contains(detail, "still there") {
		t.Errorf("%s: %s", kind, detail)
	}
	if status, body := h.ask(http.MethodGet, "/nodes/two/v2/sessions/"+s, adminToken, nil); status != http.StatusOK {
		t.Errorf("at the other node: %d %s", status, body)
	}
}

// A session is deleted at its node while another hub than the node's moves it. That one does not know why the node has it no more, and does not
// say that it stays there.
func TestMove_DeletedAtAnotherHub(t *testing.T) {
	h, by := peers(t)
	source := &meddler{box: newBox(t)}
	h.join("one", h.joinToken(), nil, source)
	by.box("two", nil)
	h.awaitState("two", fleet.StateOnline)
	c := h.hello(adminToken)
	s := c.session("one")
	c.says(s, "first")
	h.bundled(s, "one")
	by.await("it can ask for the session", func() bool {
		status, _ := by.ask(http.MethodGet, "/nodes/one/v2/sessions/"+s, adminToken, nil)
		return status == http.StatusOK && len(by.listed(s)) == 1
	})
	source.meddle(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.URL.Query().Has("movedTo") {
			c.must("session/delete", `{"sessionId":"`+s+`","_meta":{"sandboxagent.dev":{"node":"one"}}}`)
		}
		return false
	})
	if kind, detail := by.notMoved(s, fleet.MoveRequest{Node: "two"}); kind != "session_not_found" || strings.Contains(detail, "stays at") {
		t.Errorf("%s: %s", kind, detail)
	}
	h.await("nothing is left of it", func() bool {
		return len(h.listed(s)) == 0 && len(by.listed(s)) == 0 && len(h.store.Owners()) == 0 && len(by.store.Owners()) == 0
	})
}

// A session that was moved is deleted at its node's own address while the hub has no way there, and another one is made with its id. What
// the node that had it before has of the first one is removed all the same, and so is the hub's copy.
func TestMove_DeletedWhileAwayAndMadeAgain(t *testing.T) {
	t.Parallel() // it waits more than it computes
	h := startCopier(t)
	var shut atomic.Bool
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if shut.Load() {
			http.Error(w, "the hub is out of reach", http.StatusBadGateway)
			return
		}
		h.hub.ServeHTTP(w, r)
	}))
	t.Cleanup(front.Close) // behind the node's end
	box := newBox(t)
	own := httptest.NewServer(box)
	t.Cleanup(own.Close)
	h.box("one", nil)
	h.begin(front.URL, "two", h.joinToken(), nil, box)
	h.awaitState("two", fleet.StateOnline)
	user := h.hello(adminToken)
	s := user.session("one")
	user.says(s, "first")
	h.bundled(s, "one")
	h.move(s, fleet.MoveRequest{Node: "two"})
	user.says(s, "second")
	h.bundled(s, "two")
	user.stop()
	shut.Store(true)
	h.hub.Moved("two", "another") // its tunnel ends
	h.awaitState("two", fleet.StateOffline)
	req := must(http.NewRequestWithContext(t.Context(), http.MethodDelete, own.URL+"/v2/sessions/"+s, nil))
	resp := must(plain.RoundTrip(req))
	if resp.Body.Close(); resp.StatusCode != http.StatusNoContent {
		t.Fatalf("delete: %s", resp.Status)
	}
	there := dial(t, own.URL, "")
	there.must("initialize", `{"protocolVersion":1,"clientCapabilities":{}}`)
	there.must("session/new", `{"cwd":"/tmp","mcpServers":[],"_meta":{"sandboxagent.dev":{"requestedSessionId":"`+s+`"}}}`)
	there.says(s, "anew")
	there.stop()
	shut.Store(false)
	h.await("there is the new one alone", func() bool {
		status, _ := h.ask(http.MethodGet, "/nodes/one/v2/sessions/"+s, adminToken, nil)
		all := h.store.SessionsNamed(s)
		return status == http.StatusNotFound && len(all) == 1 && all[0].Node == "two" && all[0].Gone == nil && len(h.store.Owners()) == 0
	})
	again := h.hello(adminToken)
	again.must("session/load", `{"sessionId":"`+s+`","cwd":"/tmp","mcpServers":[]}`)
	if got := again.heard(s); !slices.Equal(got, []string{"anew"}) {
		t.Errorf("loaded: %q", got)
	}
}
