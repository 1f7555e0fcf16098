package fleet

import (
	"context"
	"math"
	"net/http"
	"strconv"
	"sync"
	"time"

	"sandboxagent.dev/sandbox-agent/acp/problem"
)

const (
	joinsPerSecond = 250
	joinsAtOnce    = 50 // that do not wait, if there were none for a moment
	// longestTurn is how long one waits at most for its turn; others are told to come later. Gateways give up
	// after twice that.
	longestTurn = 10 * time.Second
)

// pace lets gateways join one after the other. When a hub comes back all of its gateways want to join at
// once; they would get its processors and its store for themselves, and clients would wait. The zero value is
// one that nobody has asked.
type pace struct {
	mu   sync.Mutex
	next time.Time // the turn of who asks next
}

// turn returns how long who asks now has to wait. If that is too long, it has no turn.
func (p *pace) turn(now time.Time) (wait time.Duration, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	const each = time.Second / joinsPerSecond
	if first := now.Add(-joinsAtOnce * each); p.next.Before(first) {
		p.next = first
	}
	if wait = max(p.next.Sub(now), 0); wait > longestTurn {
		return wait, false
	}
	p.next = p.next.Add(each)
	return wait, true
}

// await waits for the turn of a gateway. When there is none, or the hub ends, it returns what to answer.
func (p *pace) await(ctx, stop context.Context, header http.Header) error {
	wait, ok := p.turn(time.Now())
	if !ok {
		header.Set("Retry-After", strconv.Itoa(int(math.Ceil(wait.Seconds()))))
		return problem.New(problem.Unavailable, "more gateways want to join than this hub takes in %v: this one tries again by itself", longestTurn)
	}
	if wait == 0 {
		return nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-stop.Done():
		return errEnding
	}
}
