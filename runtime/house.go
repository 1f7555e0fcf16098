package runtime

import (
	"context"
	"time"
)

const (
	houseEvery = time.Second
	logIdle    = 30 * time.Second // a log silent for this long gives memory and file back
)

// keepHouse ends what nobody needs: connections whose client is gone, processes
// of idle sessions, memory of silent logs.
func (r *Runtime) keepHouse(ctx context.Context) {
	tick := time.NewTicker(houseEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			for _, c := range r.allClients() {
				if c.abandoned(now.Add(-r.o.ConnectionGrace)) {
					r.log.Info("connection ended after its client was gone", "client", c.id)
					c.Close()
				}
			}
			for _, s := range r.allSessions() {
				r.tidy(s, now)
			}
			for _, a := range r.usedAgents() {
				for _, p := range a.live() {
					if p.retire(now.Add(-procLinger)) {
						r.work.Go(func() { p.close(errUnused) })
					}
				}
			}
		}
	}
}

// abandoned reports whether the connection has had neither stream nor request since t.
func (c *Client) abandoned(t time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.streams) == 0 && len(c.requests) == 0 && time.UnixMilli(c.used.Load()).Before(t)
}

// tidy gives back what an idle session holds.
func (r *Runtime) tidy(s *Session, now time.Time) {
	silent := now.Sub(time.UnixMilli(s.active.Load()))
	s.mu.Lock()
	busy := s.turn != nil || s.opening != nil
	s.mu.Unlock()
	if busy {
		return
	}
	if idle := r.o.IdleTimeout; idle > 0 && silent > idle && s.live() != nil && s.openAsks() == 0 {
		r.log.Info("idle session gives its process back", "session", s.id)
		r.work.Go(func() { s.rest(r.ctx) })
	}
	if l := s.logp.Load(); l != nil && silent > logIdle {
		l.Release(logIdle)
	}
}

// rest makes an idle session dormant. A prompt that comes meanwhile waits until
// the agent has closed its side, and then opens the session anew.
func (s *Session) rest(ctx context.Context) {
	s.mu.Lock()
	if s.turn != nil || s.opening != nil {
		s.mu.Unlock()
		return
	}
	p := s.serving.Swap(nil)
	if p == nil {
		s.mu.Unlock()
		return
	}
	s.opening = make(chan struct{})
	native := s.rec.AgentSessionID
	s.mu.Unlock()
	s.tellAgent(ctx, p, "session/close", func(c agentCaps) bool { return c.closing })
	p.unbind(native)
	s.failCalls("the session was idle, and gave its process back")
	s.mu.Lock()
	close(s.opening)
	s.opening = nil
	s.mu.Unlock()
}
