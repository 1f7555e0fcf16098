package store

import (
	"testing"
	"testing/synctest"
	"time"
)

// A token ends at its time as the clock says it, whatever timers make of it: they stand still with a machine that is
// suspended, and a clock can be set. For a gate it is the same whether the clock is set or the expiry, as here.
func TestGates_TheClockIsSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g gates
		defer g.close()
		expires := time.Now().Add(24 * time.Hour)
		set := func(clock time.Duration) {
			g.mu.Lock()
			defer g.mu.Unlock()
			expires = expires.Add(-clock)
		}
		token := Token{ID: "one", Kind: KindClient, Expires: &expires}
		g.changed("one", true, kept{token, hashOf("text")})

		_, first, ok := g.enter("one", hashOf("text"))
		if _, _, other := g.enter("one", hashOf("another")); !ok || other {
			t.Fatalf("let in: %t, with another text: %t", ok, other)
		}
		time.Sleep(time.Hour)
		if first.Err() != nil {
			t.Fatal("it has ended a day early")
		}
		set(24 * time.Hour) // forth, or a night's sleep
		time.Sleep(gateLook)
		synctest.Wait()
		if _, _, ok := g.enter("one", hashOf("text")); ok || first.Err() == nil {
			t.Errorf("behind its time it is let in: %t, and what is open stays so: %t", ok, first.Err() == nil)
		}
		set(-24 * time.Hour) // back: it was wrong
		_, second, ok := g.enter("one", hashOf("text"))
		if !ok || second.Err() != nil || first.Err() == nil {
			t.Fatalf("before its time it is let in: %t", ok)
		}
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		if _, _, ok := g.enter("one", hashOf("text")); ok || second.Err() == nil {
			t.Error("a clock that was set back has made it last for ever")
		}

		// One that a hub has found expired at its start, since its clock was wrong.
		set(-2 * time.Hour)
		_, third, ok := g.enter("one", hashOf("text"))
		if !ok {
			t.Fatal("it is not let in")
		}
		g.changed("one", false, kept{})
		set(-time.Hour)
		if _, _, ok := g.enter("one", hashOf("text")); ok || third.Err() == nil {
			t.Error("a revoked token is worth something")
		}
	})
}
