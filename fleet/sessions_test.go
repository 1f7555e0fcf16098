package fleet_test

import (
	"net/http"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp/sse"
	"sandboxagent.dev/sandbox-agent/fleet"
	"sandboxagent.dev/sandbox-agent/fleet/store"
	"sandboxagent.dev/sandbox-agent/runtime"
)

// What only the node of a session can do is asked of the hub as it is asked of a gateway, also of
// another hub than the one that the node has joined.
func TestSessions_AtTheirNode(t *testing.T) {
	shared := store.Options{URL: natsServer(t), Advertise: advertised}
	one, two := startCopierOn(t, "first", shared), startCopierOn(t, "second", shared)
	hubs := []*hub{one, two}
	n := one.box("one", map[string]string{"team": "a"})
	two.awaitState("one", fleet.StateOnline)
	c := one.hello(adminToken)
	s, kept := c.session("one"), c.session("one")
	c.says(s, "hello")
	c.says(kept, "hello")
	one.knows(kept, "one", 5)
	read := one.token(fleet.NewToken{Kind: store.KindClient})
	drive := one.token(fleet.NewToken{Kind: store.KindClient, Scope: store.ScopeDrive})
	other := one.token(fleet.NewToken{Kind: store.KindClient, Scope: store.ScopeDrive, Labels: map[string]string{"team": "b"}})
	type request struct {
		method, path, token string
		want                int
		says                string // in the answer
	}
	check := func(h *hub, requests ...request) {
		t.Helper()
		for _, r := range requests {
			if status, body := h.ask(r.method, "/v2/sessions/"+r.path, r.token, nil); status != r.want || !strings.Contains(string(body), r.says) {
				t.Errorf("%s %s: %d %.200s", r.method, r.path, status, body)
			}
		}
	}
	for _, h := range hubs {
		h.knows(s, "one", 5)
		check(h,
			request{http.MethodGet, s + "/events?acp=2&limit=1", read, http.StatusOK, `"seq":1`},
			request{http.MethodGet, s + "/export?node=one&keepSecrets=true", drive, http.StatusOK, ""},
			request{http.MethodGet, s + "/export?nonsense=1", drive, http.StatusBadRequest, "nonsense"},
			request{http.MethodPost, s + "/close", read, http.StatusForbidden, "drive"},
			request{http.MethodPost, s + "/close", other, http.StatusNotFound, "session_not_found"},
			request{http.MethodPost, s + "/close?node=two", drive, http.StatusNotFound, "session_not_found"},
			request{http.MethodPost, s + "/nothing", drive, http.StatusNotFound, "there is nothing at"},
			request{http.MethodGet, s + "/raw", read, http.StatusNotFound, "nothing was recorded"},
			request{http.MethodPost, s + "/close", drive, http.StatusNoContent, ""},
		)
		req := must(http.NewRequestWithContext(t.Context(), http.MethodGet, h.url+"/v2/sessions/"+s+"/events", nil))
		req.Header.Set("Authorization", "Bearer "+read)
		req.Header.Set("Accept", sse.ContentType)
		resp, err := plain.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		if ev, err := sse.NewDecoder(resp.Body, 1<<20).Next(); err != nil || !strings.Contains(string(ev.Data), "hello") {
			t.Errorf("a session that is followed: %s %v %s", resp.Status, err, ev.Data)
		}
		resp.Body.Close()
	}
	check(two, request{http.MethodDelete, s, read, http.StatusForbidden, ""}, request{http.MethodDelete, s + "?copy=true", adminToken, http.StatusConflict, "is connected"}, request{http.MethodDelete, s + "?copy=yes", adminToken, http.StatusBadRequest, "true or false"}, request{http.MethodDelete, s + "?copy=false&node=one", drive, http.StatusNoContent, ""})
	one.await("its copy is removed, too", func() bool {
		for _, known := range one.store.Sessions() {
			if known.Session == s {
				return false
			}
		}
		return true
	})

	check(two,
		request{http.MethodGet, kept + "/permissions", read, http.StatusOK, `{"permissions":[]}`},
		request{http.MethodDelete, kept + "/permissions", read, http.StatusForbidden, "scope drive"},
		request{http.MethodDelete, kept + "/permissions", drive, http.StatusOK, `{"forgotten":[]}`},
		request{http.MethodDelete, kept + "/permissions/x", drive, http.StatusNotFound, "nothing is allowed"},
	)
	n.leave()
	for _, h := range hubs {
		h.awaitState("one", fleet.StateOffline)
		check(h,
			request{http.MethodPost, kept + "/close", drive, http.StatusServiceUnavailable, "node_offline"},
			request{http.MethodGet, kept + "/permissions", read, http.StatusServiceUnavailable, "node_offline"},
			request{http.MethodDelete, kept + "/permissions", drive, http.StatusServiceUnavailable, "node_offline"},
			request{http.MethodDelete, kept, drive, http.StatusForbidden, "one is not there"},
		)
	}
	if got := two.session(kept).State; got != fleet.SessionOffline && got != runtime.StateClosed {
		t.Errorf("the session that is left is %s", got)
	}
	check(two, request{http.MethodDelete, kept + "?copy=true", adminToken, http.StatusNoContent, ""})
}

// Who waits for what a node has not told of yet does so no longer than with a token that is good.
func TestSessions_WaitEndsWithTheToken(t *testing.T) {
	h := startCopier(t)
	let := make(chan struct{})
	defer close(let)
	h.join("one", h.joinToken(), nil, slowToTell(newBox(t), let))
	h.awaitState("one", fleet.StateOnline)
	s := h.hello(adminToken).session("one")
	token := h.token(fleet.NewToken{Kind: store.KindClient})
	answer := make(chan int)
	go func() {
		status, _ := h.ask(http.MethodGet, "/v2/sessions/"+s, token, nil)
		answer <- status
	}()
	if status, body := h.ask(http.MethodDelete, "/v2/tokens/"+idOf(token), adminToken, nil); status != http.StatusNoContent {
		t.Fatalf("revoke: %d %s", status, body)
	}
	if status := <-answer; status != http.StatusUnauthorized {
		t.Errorf("the answer is %d", status)
	}
}
