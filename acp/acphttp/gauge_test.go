package acphttp

import (
	"sync"
	"testing"
)

func TestGauge_GrowsWhileSomebodyWaits(t *testing.T) {
	var g gauge
	<-g.empty()
	g.add(1)
	first := g.empty()
	var all sync.WaitGroup
	for range 100 {
		all.Go(func() {
			g.add(1)
			_ = g.empty()
			g.add(-1)
		})
	}
	all.Wait()
	select {
	case <-first:
		t.Error("empty with one in progress")
	default:
	}
	g.add(-1)
	<-first
	g.add(1) // somebody late
	g.add(-1)
	<-g.empty()
}
