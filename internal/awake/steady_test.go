package awake

import (
	"testing"
	"time"
)

// The time in which the clocks agree begins anew when the one on the wall was set, either way, and when the machine slept.
func TestSteady(t *testing.T) {
	var s Steady
	wall, at := time.Unix(1_700_000_000, 0), Moment(time.Hour)
	for i, step := range []struct {
		wall, awake, want time.Duration
		trusted           bool // when half an hour is enough
	}{
		{0, 0, 0, true},
		{time.Minute, time.Minute, time.Minute, true},
		{time.Minute + 50*time.Second, time.Minute, 2 * time.Minute, true}, // it is set right bit by bit
		{time.Hour, time.Minute, 0, false},                                 // set forth, or a sleep
		{time.Minute, time.Minute, time.Minute, false},
		{-time.Hour, time.Minute, 0, false}, // set back
		{29 * time.Minute, 29 * time.Minute, 29 * time.Minute, false},
		{time.Hour, time.Hour, 89 * time.Minute, true},
	} {
		wall, at = wall.Add(step.wall), at+Moment(step.awake)
		if got := s.look(wall, at); got != step.want {
			t.Errorf("step %d: %v, want %v", i, got, step.want)
		}
		if trusted := s.trusted(step.want, 30*time.Minute); trusted != step.trusted {
			t.Errorf("step %d: it is trusted: %v", i, trusted)
		}
	}
}
