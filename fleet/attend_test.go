package fleet_test

import (
	"net/http"
	"strings"
	"testing"
)

// A node that hangs while it gives what an agent keeps of one session does not hold up what the hub keeps of others.
func TestBundles_NodeHangs(t *testing.T) {
	t.Parallel() // it waits for a minute
	h := startCopier(t)
	g := newGateway()
	hangs := make(chan struct{}, 100)
	h.join("box", h.joinToken(), nil, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/hangs/export"):
			hangs <- struct{}{}
			<-r.Context().Done()
		case strings.HasSuffix(r.URL.Path, "/export"):
			_, _ = w.Write([]byte("what its agent keeps"))
		default:
			g.ServeHTTP(w, r)
		}
	}))
	g.put("hangs", begun, some(2, nil)...)
	<-hangs
	g.put("other", begun, some(2, nil)...)
	h.await("what the agent keeps of the other session is stored", func() bool {
		for _, s := range h.store.Sessions() {
			if s.Session == "other" {
				return s.Bundled == 2
			}
		}
		return false
	})
	if why := h.session("hangs").Replica.BundleTrouble; !strings.Contains(why, "nothing has passed") {
		t.Errorf("the trouble with the one that hangs is %q", why)
	}
}
