package tunnel

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// laneFrame is what the other end says of a lane.
func (p *peer) laneFrame(flags uint16, n uint32) {
	p.send(p.message(opBinary, header{kind: kindLane, flags: flags, length: n}.append(nil)))
}

// What is said of lanes by who may not say it ends the tunnel; an answer that nobody waits for does not.
func TestLane_Frames(t *testing.T) {
	for name, row := range map[string]struct {
		node  bool // the end that gets it
		flags uint16
		ends  bool
	}{
		"a node wants one":           {false, 0, true},
		"a node has none":            {false, flagResets, false},
		"a hub wants one":            {true, 0, false},
		"a hub has none":             {true, flagResets, true},
		"flags that there are not":   {true, flagEnds, true},
		"a node opens by it, and so": {false, flagOpens, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				end, p := withPeer(t, row.node)
				p.laneFrame(row.flags, 7)
				synctest.Wait()
				ended := false
				select {
				case <-end.Done():
					ended = true
				default:
				}
				if ended != row.ends {
					t.Errorf("the tunnel has ended: %v", ended)
				}
				_ = end.Close()
				p.close()
			})
		})
	}
}

// A hub that asks for more lanes than there may be is told that they do not come.
func TestLane_MoreThanMayBe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end, p := withPeer(t, true)
		for n := range uint32(MaxLanes + 3) {
			p.laneFrame(0, n+1)
		}
		synctest.Wait()
		p.mu.Lock()
		if len(p.refused) != 3 || !p.refused[MaxLanes+1] || !p.refused[MaxLanes+3] {
			t.Errorf("refused were %v", p.refused)
		}
		p.mu.Unlock()
		_ = end.Close()
		p.close()
	})
}

// Who waits for a lane waits for a bounded time, and for none while one was just in vain; also when the
// node says at once that it has none, when the caller gives up, and when the tunnel ends.
func TestLane_InVain(t *testing.T) {
	for name, row := range map[string]struct {
		do    func(end *Tunnel, p *peer, giveUp func())
		takes time.Duration
		rests bool
	}{
		"no answer":      {func(*Tunnel, *peer, func()) {}, laneBound, true},
		"refused":        {func(_ *Tunnel, p *peer, _ func()) { p.laneFrame(flagResets, 1) }, 0, true},
		"given up":       {func(_ *Tunnel, _ *peer, giveUp func()) { giveUp() }, 0, false},
		"the tunnel end": {func(end *Tunnel, _ *peer, _ func()) { end.end(errAway) }, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				end, p := withPeer(t, false)
				ctx, giveUp := context.WithCancel(t.Context())
				defer giveUp()
				done := make(chan error, 1)
				begun := time.Now()
				go func() { _, err := end.Lane(ctx); done <- err }()
				synctest.Wait()
				if !end.Awaits(1) {
					t.Error("the lane is not awaited")
				}
				row.do(end, p, giveUp)
				if err := <-done; !errors.Is(err, errNoLane) {
					t.Errorf("got %v", err)
				}
				if took := time.Since(begun); took != row.takes {
					t.Errorf("it took %v, want %v", took, row.takes)
				}
				if end.Awaits(1) {
					t.Error("the lane is awaited still")
				}
				begun = time.Now()
				short, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if _, err := end.Lane(short); !errors.Is(err, errNoLane) {
					t.Errorf("the next one: %v", err)
				}
				if asked := time.Since(begun) > 0; asked == row.rests {
					t.Errorf("the next one is asked for: %v", asked)
				}
				_ = end.Close()
				p.close()
			})
		})
	}
}
