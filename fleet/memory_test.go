package fleet_test

import (
	"fmt"
	"net/http"
	goruntime "runtime"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"sandboxagent.dev/sandbox-agent/fleet/store"
	"sandboxagent.dev/sandbox-agent/fleet/tunnel"
	"sandboxagent.dev/sandbox-agent/runtime"
)

// BenchmarkIdleNode says what an idle node costs a hub: the memory of a thousand
// tunnels with both ends in this program, of which the hub's is less than half.
func BenchmarkIdleNode(b *testing.B) {
	const nodes = 1000
	for b.Loop() {
		h := startHub(b)
		token := h.joinToken()
		before := inUse()
		ends := make([]*tunnel.Tunnel, nodes)
		var joined sync.WaitGroup
		gate := make(chan struct{}, 16)
		for i := range nodes {
			joined.Go(func() {
				gate <- struct{}{}
				defer func() { <-gate }()
				header := hello(fmt.Sprintf("node-%d", i), map[string]string{"team": "a"}).Header()
				header.Set("Authorization", "Bearer "+token)
				ws, _, err := websocket.Dial(b.Context(), h.url+tunnel.Path, &websocket.DialOptions{
					HTTPClient: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}, HTTPHeader: header,
					Subprotocols: []string{tunnel.Subprotocol}, CompressionMode: websocket.CompressionDisabled,
				})
				if err != nil {
					b.Error(err)
					return
				}
				if ends[i], err = tunnel.Node(ws); err != nil {
					b.Error(err)
				}
			})
		}
		joined.Wait()
		b.ReportMetric(float64(inUse()-before)/nodes/1024, "KiB/node-both-ends")
		for _, end := range ends {
			if end != nil {
				_ = end.Close()
			}
		}
	}
}

// inUse is the memory of the heap and of stacks, in bytes.
func inUse() int64 {
	goruntime.GC()
	var m goruntime.MemStats
	goruntime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}

// BenchmarkListSessions says how long a page of the list takes of 10,000 sessions of 1,000 nodes.
func BenchmarkListSessions(b *testing.B) {
	h := startHub(b)
	for i := range 10_000 {
		at := begun.Add(time.Duration(i) * time.Second)
		id := store.ReplicaID{Node: fmt.Sprintf("node-%d", i%1000), Session: fmt.Sprintf("session-%d", i), Epoch: 1}
		info := runtime.SessionInfo{ID: id.Session, Agent: "mock", Title: "about " + id.Session, Cwd: "/work", State: runtime.StateIdle, CreatedAt: at, UpdatedAt: at, EventCount: 5}
		if err := h.store.UpdateSession(b.Context(), id, func(*store.Session) *store.Session {
			return &store.Session{Labels: map[string]string{"team": "a"}, Info: info, Through: 5}
		}); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		if list := h.list(adminToken, "").Sessions; len(list) != 100 {
			b.Fatalf("%d sessions", len(list))
		}
	}
}
