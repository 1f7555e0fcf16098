package process

import (
	"time"
)

// Limits bound what clients can make the service do. All are more than 0.
type Limits struct {
	// Running is the most processes at one time; a start beyond is refused.
	Running int `json:"running"`
	// Ended is how many processes that have ended are kept, and as many that agents
	// have run; the oldest leaves.
	Ended int `json:"ended"`
	// EndedMs is how long one is kept.
	EndedMs int64 `json:"endedMs"`
	// LogBytes is how much output of a process is kept; the oldest leaves.
	LogBytes int64 `json:"logBytes"`
	// RunMs is the time for a run that names none, and MaxRunMs the most that
	// one may name.
	RunMs    int64 `json:"runMs"`
	MaxRunMs int64 `json:"maxRunMs"`
	// RunBytes is how much of each output a run returns that names no number,
	// and MaxRunBytes the most that one may name.
	RunBytes    int64 `json:"runBytes"`
	MaxRunBytes int64 `json:"maxRunBytes"`
	// InputBytes is the most input in one request.
	InputBytes int64 `json:"inputBytes"`
	// StopMs is how long a process that is asked to end has for it.
	StopMs int64 `json:"stopMs"`
}

// DefaultLimits are the limits of a service that is given none.
func DefaultLimits() Limits {
	return Limits{
		Running: 64, Ended: 32, EndedMs: time.Hour.Milliseconds(), LogBytes: 4 << 20,
		RunMs: (2 * time.Minute).Milliseconds(), MaxRunMs: time.Hour.Milliseconds(),
		RunBytes: 1 << 20, MaxRunBytes: 16 << 20, InputBytes: 4 << 20, StopMs: 3000,
	}
}

// maxLimits are what the limits themselves may be.
var maxLimits = Limits{
	Running: 4096, Ended: 4096, EndedMs: (30 * 24 * time.Hour).Milliseconds(), LogBytes: 256 << 20,
	RunMs: (24 * time.Hour).Milliseconds(), MaxRunMs: (24 * time.Hour).Milliseconds(),
	RunBytes: 256 << 20, MaxRunBytes: 256 << 20, InputBytes: 256 << 20, StopMs: 60_000,
}

// check returns an error that names the first limit that cannot be.
func (l Limits) check() error {
	m := maxLimits
	for _, f := range []struct {
		name     string
		got, max int64
	}{
		{"running", int64(l.Running), int64(m.Running)},
		{"ended", int64(l.Ended), int64(m.Ended)},
		{"endedMs", l.EndedMs, m.EndedMs},
		{"logBytes", l.LogBytes, m.LogBytes},
		{"maxRunMs", l.MaxRunMs, m.MaxRunMs},
		{"runMs", l.RunMs, l.MaxRunMs},
		{"maxRunBytes", l.MaxRunBytes, m.MaxRunBytes},
		{"runBytes", l.RunBytes, l.MaxRunBytes},
		{"inputBytes", l.InputBytes, m.InputBytes},
		{"stopMs", l.StopMs, m.StopMs},
	} {
		if f.got < 1 || f.got > f.max {
			return errorf(Invalid, "%s must be between 1 and %d, not %d", f.name, f.max, f.got)
		}
	}
	return nil
}

func millis(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
