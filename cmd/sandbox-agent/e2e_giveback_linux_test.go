package main_test

import (
	"testing"
	"time"
)

// What only the start needed is given back. The gateway answers as before, also when
// it reads its own program again.
func TestStart_IsGivenBack(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	g.withoutRace()
	g.start()
	pid := g.cmd.Process.Pid
	most := status(t, pid, "VmHWM")
	for deadline := time.Now().Add(20 * time.Second); status(t, pid, "VmRSS") > most*6/10; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d MiB are still resident", status(t, pid, "VmRSS")>>10, most>>10)
		}
	}
	c := connect(t, g, wsocket, options{})
	if r := c.prompt(c.newSession(), "echo still there"); r != "end_turn" {
		t.Errorf("the turn ended with %s", r)
	}
	t.Logf("at most %d MiB, then %d MiB with a session", most>>10, status(t, pid, "VmRSS")>>10)
}
