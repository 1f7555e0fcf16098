package process

import (
	"context"
	"sync"
	"testing"
)

// Who leaves while his input is written takes nothing from who writes next.
func TestWrite_BehindWhoHasLeft(t *testing.T) {
	s := service(t)
	p := start(t, s, shell("cat >/dev/null"))
	for range 10_000 {
		ctx, leave := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(leave)
		all.Go(func() {
			if _, err := p.Write(ctx, []byte("one"), false); err != nil && ctx.Err() == nil {
				t.Errorf("who leaves: %v", err)
			}
		})
		for range 4 {
			all.Go(func() {
				if n, err := p.Write(t.Context(), []byte("two"), false); n != 3 || err != nil {
					t.Errorf("who comes behind: %d bytes, %v", n, err)
				}
			})
		}
		all.Wait()
		if t.Failed() {
			return
		}
	}
}
