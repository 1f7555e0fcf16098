package runtime

import (
	"context"
	"slices"
	"sync"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/version"
	"sandboxagent.dev/sandbox-agent/runtime/journal"
	"sandboxagent.dev/sandbox-agent/runtime/session"
)

// RaisedEvents returns events as Events does, in version 2 of ACP: what a client of that
// version was told in the place of an entry, states and notices included, and what clients
// sent, as the log has it. An entry may be several events with one number, and no event;
// those of one number are on one page, which may have a few more than limit for it.
func (r *Runtime) RaisedEvents(ctx context.Context, id string, after uint64, limit int) (events []Event, hasMore bool, err error) {
	var past *reading
	var log *journal.Log
	events, hasMore, err = r.page(ctx, id, after, limit, func(s *session.Session) (showing, error) {
		log = s.Log()
		if past = r.readings.take(log, after); past == nil {
			past = &reading{view: version.NewView(s.BesideLog()), told: after}
			if err := past.upTo(ctx, s, after); err != nil {
				return nil, err
			}
		}
		return past.show, nil
	})
	if err == nil {
		r.readings.keep(log, past)
	}
	return events, hasMore, err
}

// reading is how far somebody has read a session in version 2.
type reading struct {
	view *version.View
	told uint64 // the last entry that was an event; those behind it up to at were none
	at   uint64 // entries up to here were read
	out  version.Frames
}

// upTo reads entries up to one without showing them.
func (p *reading) upTo(ctx context.Context, s *session.Session, last uint64) error {
	l := s.Log()
	for cur := l.Cursor(l.Oldest() - 1); p.at < last && ctx.Err() == nil; {
		entries, err := cur.Next(nil, 256<<10)
		if err != nil {
			return readProblem(s, err)
		}
		if len(entries) == 0 {
			break
		}
		for _, e := range entries {
			if e.Seq > last {
				break
			}
			p.step(e)
		}
		p.at = min(entries[len(entries)-1].Seq, last)
	}
	return context.Cause(ctx)
}

func (p *reading) step(e journal.Entry) {
	p.out.Reset()
	p.view.Step(version.Entry{Seq: e.Seq, Kind: version.Kind(e.Kind), To: int64(e.To), Frame: e.Frame}, false, &p.out)
	p.at = e.Seq
}

// show adds an entry: what it is by itself, and then what follows from it.
func (p *reading) show(e journal.Entry, events []Event) []Event {
	if e.Seq <= p.at {
		return events // the page before has read it, and it is no event
	}
	before := len(events)
	follows := Event{Seq: e.Seq, Time: e.Time().UTC(), Direction: FromGateway}
	switch e.Kind {
	case journal.Update, journal.Second:
		follows.Direction = FromAgent
	case journal.First, journal.Echo:
	case journal.Ask: // as the view is before it
		own := event(e)
		if m, err := acp.Parse(e.Frame); err == nil {
			own.Message = slices.Clone(p.view.Ask(&m))
		}
		events = append(events, own)
	default:
		events = append(events, event(e))
	}
	p.step(e)
	for i := range p.out.Len() {
		follows.Message = slices.Clone(p.out.At(i))
		events = append(events, follows)
	}
	if len(events) > before {
		p.told = e.Seq
	}
	return events
}

// maxReadings bounds the sessions whose reading is kept; at it any other one is forgotten,
// and read anew from its log.
const maxReadings = 16

// readings are of who reads one page behind the other, so that each begins where the one
// before has ended. The zero value has none.
type readings struct {
	mu  sync.Mutex
	all map[*journal.Log]*reading
}

// take returns the reading that goes on behind an entry, which is the caller's from then on.
func (r *readings) take(log *journal.Log, at uint64) *reading {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.all[log]
	if p == nil || at < p.told || at > p.at {
		return nil
	}
	delete(r.all, log)
	return p
}

func (r *readings) keep(log *journal.Log, p *reading) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all == nil {
		r.all = map[*journal.Log]*reading{}
	}
	if _, there := r.all[log]; !there && len(r.all) >= maxReadings {
		for other := range r.all {
			delete(r.all, other)
			break
		}
	}
	r.all[log] = p
}
