package fleet

import (
	"context"
	"errors"
	"time"

	"sandboxagent.dev/sandbox-agent/fleet/store"
)

// noteAgain is how long it takes until the store is told once more that a move is over.
const noteAgain = 5 * time.Second

// errTaken says that a move was taken for dead, and another one has begun.
var errTaken = errors.New("another move has begun meanwhile")

// settle takes the note of the move away, and changes the owner in the same step if change is not
// nil.
func (m *move) settle(ctx context.Context, change func(store.Owner) *store.Owner) (*store.Owner, error) {
	end := over
	if change != nil {
		end = func(o store.Owner) *store.Owner { return over(*change(o)) }
	}
	o, err := m.note(ctx, end)
	if err != nil {
		m.later(err, end)
	}
	return o, err
}

// over returns a copy of the record in which nobody moves the session.
func over(o store.Owner) *store.Owner {
	o.Moving = nil
	return &o
}

// later notes how a move has ended, or that nobody does it any more, when the store takes it, which has just failed. This hub
// goes by it at once: nobody waits here for a move that is over.
func (m *move) later(failed error, end func(store.Owner) *store.Owner) {
	if errors.Is(failed, errTaken) {
		return
	}
	if o := m.h.o.Store.Owner(m.line); o != nil && o.Moving != nil && o.Moving.ID == m.id {
		m.h.relay.Owned(end(*o))
	}
	if !m.h.enter() {
		return // what this hub was doing when it ended is over for all
	}
	go func() {
		defer m.h.serving.Done()
		tick := time.NewTicker(noteAgain)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-m.h.stop.Done():
				return
			}
			o, err := m.noteIn(m.h.stop, end)
			if err == nil {
				m.h.log.Info("how a move has ended is noted now", "session", m.line.Session, "at", o.Node, "term", o.Term)
			}
			if err == nil || errors.Is(err, errTaken) {
				return
			}
		}
	}()
}

// note changes the owner as long as the move is noted. It is done also when whoever wanted the move is gone.
func (m *move) note(ctx context.Context, change func(store.Owner) *store.Owner) (*store.Owner, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleFor)
	defer cancel()
	return m.noteIn(ctx, change)
}

// noteIn is note for as long as ctx lasts.
func (m *move) noteIn(ctx context.Context, change func(store.Owner) *store.Owner) (*store.Owner, error) {
	return m.h.o.Store.UpdateOwner(ctx, m.line, func(had *store.Owner) (*store.Owner, error) {
		if had == nil || had.Moving == nil || had.Moving.ID != m.id {
			return nil, errTaken
		}
		return change(*had), nil
	})
}
