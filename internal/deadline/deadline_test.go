package deadline

import (
	"testing"
	"time"
)

func TestWords(t *testing.T) {
	for d, want := range map[time.Duration]string{
		time.Second: "a second", 15 * time.Second: "15 seconds", time.Minute: "a minute", 90 * time.Second: "90 seconds",
		10 * time.Minute: "10 minutes", time.Hour: "an hour", 48 * time.Hour: "48 hours", 1500 * time.Millisecond: "1.5s", 0: "0s",
	} {
		if got := Words(d); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
}

// What a deadline gives, and what is left of it when the connection is that of others.
func TestDeadline(t *testing.T) {
	const within = time.Hour
	now := time.Now()
	for name, row := range map[string]struct {
		do   func(d *Deadline)
		want func(at time.Time) bool
	}{
		"nothing":             {func(*Deadline) {}, time.Time.IsZero},
		"a piece":             {func(d *Deadline) { d.Extend() }, func(at time.Time) bool { return at.After(now) }},
		"ended":               {func(d *Deadline) { d.Extend(); d.End(); d.Extend(); _ = d.Set(now.Add(within)) }, Passed.Equal},
		"ended, then left":    {func(d *Deadline) { d.End(); d.Lift() }, time.Time.IsZero},
		"left, then ended":    {func(d *Deadline) { d.Extend(); d.Lift(); d.End(); d.Hurry(0, now); _ = d.Set(now) }, time.Time.IsZero},
		"ended, with a rest":  {func(d *Deadline) { d.End(); d.Rest(within) }, func(at time.Time) bool { return at.After(now) }},
		"a rest, then ended":  {func(d *Deadline) { d.Rest(within); d.End() }, func(at time.Time) bool { return at.After(now) }},
		"left as it is":       {func(d *Deadline) { d.End(); d.Leave(); d.Lift(); d.Rest(within) }, Passed.Equal},
		"measured by another": {func(d *Deadline) { _ = d.Set(now.Add(2 * within)) }, now.Add(2 * within).Equal},
	} {
		t.Run(name, func(t *testing.T) {
			var at time.Time
			d := New(within, func(to time.Time) error { at = to; return nil })
			row.do(d)
			if !row.want(at) {
				t.Errorf("the connection has %v", at)
			}
		})
	}
}
