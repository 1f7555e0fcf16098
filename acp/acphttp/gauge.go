package acphttp

import "sync"

// gauge counts what is in progress. Unlike a sync.WaitGroup it may grow from
// nothing while somebody waits: requests arrive when they like. The zero gauge is
// empty.
type gauge struct {
	mu   sync.Mutex
	n    int
	none []chan struct{} // to be closed when n is 0
}

func (g *gauge) add(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.n += n; g.n > 0 {
		return
	}
	for _, c := range g.none {
		close(c)
	}
	g.none = nil
}

// empty returns a channel that is closed when nothing is in progress, now or
// later.
func (g *gauge) empty() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := make(chan struct{})
	if g.n == 0 {
		close(c)
	} else {
		g.none = append(g.none, c)
	}
	return c
}
