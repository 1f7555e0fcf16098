package runtime

import (
	"sync"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp"
)

// A connection that ends while it is given processes gives them back, whichever comes first.
func TestClient_EndsWhileItIsGivenAProcess(t *testing.T) {
	r := newRuntime(t, t.TempDir(), &fakeAgent{})
	for range 300 {
		made, _, err := r.Connect(t.Context(), acp.NewRequest("0", "initialize", []byte(`{"protocolVersion":1}`)), acp.ConnectOptions{Shape: acp.OneStream})
		if err != nil {
			t.Fatal(err)
		}
		c := made.(*Client)
		var all sync.WaitGroup
		begun := make(chan struct{}, 8)
		for range cap(begun) {
			all.Go(func() {
				for ended := false; !ended; {
					ended = c.Closed() // once more then
					if _, err := c.restart(t.Context()); err != nil {
						t.Error(err)
						return
					}
					select {
					case begun <- struct{}{}:
					default:
					}
				}
			})
		}
		<-begun
		c.Close()
		all.Wait()
		if p := c.process.Load(); p != nil {
			t.Fatal("it keeps its process")
		}
	}
}
