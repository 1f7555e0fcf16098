package fleet

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sandboxagent.dev/sandbox-agent/acp/problem"
)

// Gateways that come at once join one after the other; those for which that takes too long are told when to
// come again, and then they can.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many = 4000
		var p pace
		var mu sync.Mutex
		bySecond := map[int]int{}
		later, again := 0, 0
		begun := time.Now()
		var all sync.WaitGroup
		for range many {
			all.Go(func() {
				for header := (http.Header{}); ; {
					err := p.await(t.Context(), context.Background(), header)
					mu.Lock()
					if err == nil {
						bySecond[int(time.Since(begun)/time.Second)]++
						mu.Unlock()
						return
					}
					later++
					mu.Unlock()
					if e, ok := errors.AsType[*problem.Error](err); !ok || e.Kind != problem.Unavailable {
						t.Error(err)
						return
					}
					seconds, err := strconv.Atoi(header.Get("Retry-After"))
					if err != nil || seconds < 10 || seconds > 11 {
						t.Errorf("come again after %q", header.Get("Retry-After"))
						return
					}
					time.Sleep(time.Duration(seconds) * time.Second)
				}
			})
		}
		all.Wait()
		for second, n := range bySecond {
			again += n
			if n > joinsPerSecond+joinsAtOnce {
				t.Errorf("%d join in second %d", n, second)
			}
		}
		if took := time.Since(begun); again != many || later == 0 || took > 2*many*time.Second/joinsPerSecond {
			t.Errorf("%d joined after %v, %d were told to come later", again, took, later)
		}
	})
}

// Who goes away does not wait, nor does anybody when the hub ends. A few that come now and then never do.
func TestPace_Ends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p pace
		for range 10 {
			for range joinsAtOnce {
				if wait, ok := p.turn(time.Now()); wait > 0 || !ok {
					t.Fatalf("it waits for %v", wait)
				}
			}
			time.Sleep(time.Second)
		}
		for range 2 * joinsAtOnce {
			p.turn(time.Now())
		}
		gone, leave := context.WithCancel(t.Context())
		leave()
		if err := p.await(gone, context.Background(), nil); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if err := p.await(t.Context(), gone, nil); !errors.Is(err, errEnding) {
			t.Error(err)
		}
	})
}
