package fleet

import (
	"context"
	"errors"
	"slices"
	"time"

	"sandboxagent.dev/sandbox-agent/control/client"
	"sandboxagent.dev/sandbox-agent/fleet/store"
)

// noteAgain is how long it takes until the store is told once more that a move is over, or that a node has left.
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
		return o, err
	}
	m.h.forgetDeleted(context.WithoutCancel(ctx), o)
	return o, nil
}

// forgetDeleted forgets who has a session that was deleted everywhere. The note of a move keeps that record, and so does
// what is listed of the session: whichever of the two goes last calls this.
func (h *Hub) forgetDeleted(ctx context.Context, o *store.Owner) {
	if o == nil || o.Deleted == nil || o.Moving != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, settleFor)
	defer cancel()
	if err := h.o.Store.ForgetOwner(ctx, o.Line); err != nil {
		h.log.Warn("what is left of a session that was deleted", "session", o.Session, "err", err)
	}
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
				m.h.forgetDeleted(m.h.stop, o)
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

// giveUp takes the note of a move away that has failed. The session is where it was.
func (m *move) giveUp(ctx context.Context, err error) error {
	_, failed := m.settle(ctx, func(o store.Owner) *store.Owner {
		if m.clean {
			o.Others = slices.DeleteFunc(slices.Clone(o.Others), func(l store.Other) bool { return l.Node == m.to })
		}
		return &o
	})
	if errors.Is(failed, errTaken) { // this hub stood still for long
		return during(err, "another move of session %s has begun meanwhile, and says where it is", m.line.Session)
	}
	if failed != nil {
		m.h.log.Warn("that a move was given up could not be noted; the next one finds out", "session", m.line.Session, "err", failed)
	}
	switch {
	case ctx.Err() != nil:
		err = endOf(ctx)
	case m.h.stop.Err() != nil: // what the move went through can end before the move is told
		err = errEnding
	}
	return during(err, "session %s stays at %s", m.line.Session, m.from)
}

// refused ends a move of a session that went on meanwhile. What has come to the other node is removed there, unless that has had it.
func (m *move) refused(ctx context.Context, to *client.Client, why error) error {
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveFor)
	defer cancel()
	if o := m.h.o.Store.Owner(m.line).Other(m.to); o != nil && o.Term == 0 {
		switch err := to.DeleteSession(within, m.line.Session); {
		case err == nil || isNotFound(err):
			m.clean = m.awaitUnlisted(within)
		default:
			m.h.log.Warn("what has come of a session that did not move could not be removed", "session", m.line.Session, "node", m.to, "err", err)
		}
	}
	return m.giveUp(ctx, during(why, "it went on while it was moved"))
}
