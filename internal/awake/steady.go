package awake

import "time"

// steadyBy is how much the two clocks may differ between two looks, as the one on the wall is set right bit by bit.
const steadyBy = time.Minute

// Steady knows for how long the clock on the wall has gone as time awake does: it was not set, and the machine was not
// suspended. Who removes what is old by that clock asks it before. The zero value begins with its first look; it is
// used by one goroutine.
type Steady struct {
	wall  time.Time
	at    Moment
	since Moment
	apart bool // they were, once
}

// Trusted looks at the clocks and reports whether what the one on the wall says may be acted on: it has never differed as
// far as looks tell, or not for so long. At a start nothing is known against it.
func (s *Steady) Trusted(settled time.Duration) bool { return s.trusted(s.For(), settled) }

func (s *Steady) trusted(agreed, settled time.Duration) bool { return agreed >= settled || !s.apart }

// For looks at the clocks and returns for how long they have agreed, as far as looks tell.
func (s *Steady) For() time.Duration { return s.look(time.Now().Round(0), Now()) }

func (s *Steady) look(wall time.Time, at Moment) time.Duration {
	if s.wall.IsZero() {
		s.since = at
	} else if (wall.Sub(s.wall) - time.Duration(at-s.at)).Abs() > steadyBy {
		s.since, s.apart = at, true
	}
	s.wall, s.at = wall, at
	return time.Duration(at - s.since)
}
