package awake

import (
	"testing"
	"time"
)

// The time in which the clocks agree begins anew when the one on the wall was set, either way, and when the machine slept.
func TestSteady(t *testing.T) {
	var s Steady
	wall, at := time.Unix(1_700_000_000, 0), Moment(time.Hour)
	for i, step := range []struct{ wall, awake, want time.Duration }{
		{0, 0, 0},
		{time.Minute, time.Minute, time.Minute},
		{time.Minute + 50*time.Second, time.Minute, 2 * time.Minute}, // it is set right bit by bit
		{time.Hour, time.Minute, 0},                                  // set forth, or a sleep
		{time.Minute, time.Minute, time.Minute},
		{-time.Hour, time.Minute, 0}, // set back
		{time.Hour, time.Hour, time.Hour},
	} {
		wall, at = wall.Add(step.wall), at+Moment(step.awake)
		if got := s.look(wall, at); got != step.want {
			t.Errorf("step %d: %v, want %v", i, got, step.want)
		}
	}
}
