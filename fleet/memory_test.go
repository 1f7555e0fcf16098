package fleet_test

import (
	"fmt"
	"net/http"
	"runtime"
	"sync"
	"testing"

	"github.com/coder/websocket"

	"sandboxagent.dev/sandbox-agent/fleet/tunnel"
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
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}
