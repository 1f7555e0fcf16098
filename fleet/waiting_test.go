package fleet

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/fleet/store"
)

// As many requests wait for the nodes of a hub that was just started as may: one more is told that, however it is asked.
func TestReturning_Bound(t *testing.T) {
	dir := t.TempDir()
	open := func(name string) *store.Store {
		s, err := store.Open(t.Context(), store.Options{Dir: dir, Hub: name}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	before := open("before")
	if _, err := before.Join(t.Context(), store.Node{Name: "box", Version: "test", Instance: "instance"}, func(store.Node) error { return nil }); err != nil {
		t.Fatal(err)
	}
	before.Close()
	after := open("after")
	defer after.Close()
	h := New(Options{Store: after, AdminToken: "admin"})
	defer func() {
		if err := h.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	h.returning.waits.Store(maxReturning)
	const want = "has not joined again yet"
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/nodes/box/v2/processes", strings.NewReader("{}"))
	r.Header.Set("Authorization", "Bearer admin")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if body := w.Body.String(); w.Code != http.StatusServiceUnavailable || !strings.Contains(body, want) || strings.Contains(body, `"done"`) {
		t.Errorf("over HTTP: %d %s", w.Code, body)
	}
	if _, err := h.gateway("box", "hub").Session(t.Context(), "s"); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("by the hub itself: %v", err)
	}
	anyone := store.Token{Kind: store.KindClient, Scope: store.ScopeAdmin}
	if _, err := (nodes{h}).Dial(t.Context(), anyone, "box", false); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("over ACP: %v", err)
	}
}
