package fleet_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/fleet"
	"sandboxagent.dev/sandbox-agent/fleet/store"
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
	h.stored("other")
	if why := h.session("hangs").Replica.BundleTrouble; !strings.Contains(why, "nothing has passed") {
		t.Errorf("the trouble with the one that hangs is %q", why)
	}
}

// stored returns when what the agent keeps of a session with two events is in the store.
func (h *hub) stored(id string) {
	h.t.Helper()
	h.await("what the agent keeps of "+id+" is stored", func() bool {
		for _, s := range h.store.SessionsNamed(id) {
			if s.Bundled == 2 {
				return true
			}
		}
		return false
	})
}

// Nodes that always give a little more of what an agent keeps, and never all, are not waited for either: twice as many as the hub asks at one
// time do not keep what others have from being stored.
func TestBundles_NodesTrickle(t *testing.T) {
	t.Parallel() // it waits more than it computes
	const many = 8
	h := startHubThat(t, "hub", store.Options{Dir: t.TempDir()}, fleet.Options{Replicate: true, Bundles: true, BundleSoon: 3 * time.Second, BundleWithin: 10 * time.Second})
	asked := make(chan struct{}, 100)
	for i := range many {
		g := newGateway()
		h.join(fmt.Sprint("trickles-", i), h.joinToken(), nil, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !strings.HasSuffix(r.URL.Path, "/export") {
				g.ServeHTTP(w, r)
				return
			}
			asked <- struct{}{}
			tick := time.NewTicker(100 * time.Millisecond)
			defer tick.Stop()
			for r.Context().Err() == nil {
				_, _ = w.Write([]byte("."))
				_ = http.NewResponseController(w).Flush()
				select {
				case <-tick.C:
				case <-r.Context().Done():
				}
			}
		}))
		g.put(fmt.Sprint("endless-", i), begun, some(2, nil)...)
	}
	for range many {
		<-asked
	}
	g := newGateway()
	h.join("other", h.joinToken(), nil, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/export") {
			_, _ = w.Write([]byte("what its agent keeps"))
			return
		}
		g.ServeHTTP(w, r)
	}))
	g.put("other", begun, some(2, nil)...)
	h.stored("other")
	h.await("it is said of the others", func() bool {
		for i := range many {
			if !strings.Contains(h.session(fmt.Sprint("endless-", i)).Replica.BundleTrouble, "not come to its end") {
				return false
			}
		}
		return true
	})
}

// What takes long to come is stored when it has come, and neither the node's other sessions nor those of other nodes wait for it.
func TestBundles_TakesLong(t *testing.T) {
	t.Parallel() // it waits more than it computes
	h := startHubThat(t, "hub", store.Options{Dir: t.TempDir()}, fleet.Options{Replicate: true, Bundles: true, BundleSoon: 500 * time.Millisecond})
	g := newGateway()
	asked, more := make(chan struct{}, 100), make(chan struct{})
	h.join("box", h.joinToken(), nil, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/long/export"):
			_, _ = w.Write([]byte("what its agent"))
			_ = http.NewResponseController(w).Flush()
			asked <- struct{}{}
			<-more
			_, _ = w.Write([]byte(" keeps"))
		case strings.HasSuffix(r.URL.Path, "/export"):
			_, _ = w.Write([]byte("what its agent keeps"))
		default:
			g.ServeHTTP(w, r)
		}
	}))
	g.put("long", begun, some(2, nil)...)
	<-asked
	g.put("other", begun, some(2, nil)...)
	h.stored("other")
	close(more)
	h.stored("long")
	if r := h.session("long").Replica; r.BundleTrouble != "" {
		t.Errorf("its trouble is %q", r.BundleTrouble)
	}
	if len(asked) != 0 {
		t.Errorf("it was asked for %d times more", len(asked))
	}
}

// A session that has gone and come again is stored as it is by now, also while what there was of it before takes long to come.
func TestBundles_CameAgainWhileItTakesLong(t *testing.T) {
	t.Parallel() // it waits more than it computes
	for name, removed := range map[string]bool{"as the same replica": true, "as another one": false} {
		t.Run(name, func(t *testing.T) { testCameAgain(t, removed) })
	}
}

func testCameAgain(t *testing.T, removed bool) {
	h := startHubThat(t, "hub", store.Options{Dir: t.TempDir()}, fleet.Options{Replicate: true, Bundles: true, BundleSoon: 500 * time.Millisecond})
	g := newGateway()
	asked, more := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { close(more) })
	var later atomic.Bool
	h.join("box", h.joinToken(), nil, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/export") {
			g.ServeHTTP(w, r)
			return
		}
		_, _ = w.Write([]byte("what its agent keeps"))
		if later.CompareAndSwap(false, true) {
			_ = http.NewResponseController(w).Flush()
			close(asked)
			<-more
		}
	}))
	g.put("again", begun, some(2, nil)...)
	<-asked
	g.forget("again", true)
	if removed {
		h.await("the hub has it no more", func() bool { return len(h.store.SessionsNamed("again")) == 0 })
	}
	g.put("again", begun.Add(time.Hour), some(2, nil)...)
	h.stored("again")
	if n := h.metric(`sandbox_hub_bundles_total{outcome="failed"}`); n != 0 {
		t.Errorf("%d have failed", n)
	}
}
