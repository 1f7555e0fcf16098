package store

import (
	"testing"
	"testing/synctest"
	"time"
)

// A hub whose lease runs out is over, and what waits for that is told. While this hub is cut off from
// the store it hears of nobody: then nobody is, and all have their time again when it is back.
func TestLiving(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &living{self: "self"}
		renew := func(hubs ...string) {
			for _, hub := range hubs {
				l.renewed(hub, true, lease{})
			}
			l.sweep()
		}
		lives := func(when, hub string, want bool) {
			t.Helper()
			if got := l.of(hub) != nil; got != want {
				t.Errorf("%s: %s lives: %v", when, hub, got)
			}
		}
		renew("self", "other", "lost")
		lost, other := l.of("lost").over, l.of("other").over
		for range leaseLasts / leaseEvery {
			time.Sleep(leaseEvery)
			renew("self", "other")
			lives("in its time", "lost", true)
		}
		time.Sleep(time.Second)
		lives("after its time", "lost", false)
		if l.sweep(); lost.Err() == nil {
			t.Error("who waits for the end of a hub is not told")
		}

		time.Sleep(time.Hour)
		lives("cut off", "other", true)
		renew("self")
		lives("back", "other", true)
		time.Sleep(leaseEvery)
		renew("self", "other")
		if other.Err() != nil {
			t.Error("a hub that lives was taken for dead")
		}
		l.renewed("other", false, lease{})
		lives("at its end", "other", false)
		if other.Err() == nil {
			t.Error("who waits for the end of a hub is not told of its word")
		}
		l.close()
	})
}
