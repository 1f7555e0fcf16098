package turn_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge/turn"
)

// What an agent does by itself is ended: by what it is told, else with the agent. The next prompt waits until it was told, and no
// longer than the bound for an agent that does not even take it.
func TestStopOwn(t *testing.T) {
	for name, tt := range map[string]struct {
		own, hangs, ends bool
		told, killed     bool
	}{
		"nothing runs":            {false, false, false, false, false},
		"it ends":                 {true, false, true, true, false},
		"it goes on":              {true, false, false, true, true},
		"the agent does not read": {true, true, false, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ts := turn.New[string](t.Context())
				if tt.own {
					ts.Own("own")
				}
				told, killed := false, false
				began := time.Now()
				ts.StopOwn(t.Context(), bound, func(ctx context.Context) {
					told = true
					if tt.hangs {
						<-ctx.Done()
					}
					if tt.ends {
						ts.OwnOver("own")
					}
				}, func() {
					killed = true
					ts.OwnOver("own")
				})
				if told != tt.told || killed != tt.killed || time.Since(began) > bound {
					t.Errorf("told %t, killed %t, after %v", told, killed, time.Since(began))
				}
				select {
				case <-ts.Rest():
				default:
					t.Error("prompts still wait")
				}
			})
		})
	}
}
