package fleet

import (
	"context"
	"errors"
	"sync"
	"time"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/control/client"
	"sandboxagent.dev/sandbox-agent/fleet/store"
	"sandboxagent.dev/sandbox-agent/runtime"
)

const (
	maxBundling = 4               // bundles that a hub fetches at one time; more wait
	attendAgain = 5 * time.Second // what failed is tried again
	tellBound   = 30 * time.Second
)

// attendant looks after the sessions of a node whose tunnel this hub holds: it keeps what their
// agents keep, finishes moves that nobody finished, and has the node let go of sessions that others
// own. It looks at sessions that have changed, each once however often that was, one after the other.
type attendant struct {
	h    *Hub
	node string
	api  *client.Client
	wake chan struct{} // has one when something may be due

	mu    sync.Mutex
	due   map[string]store.ReplicaID // by session: what was noted last of each; bounded as sessions are
	later map[string]store.ReplicaID // that have failed
}

func (h *Hub) newAttendant(node string) *attendant {
	return &attendant{
		h: h, node: node, api: h.gateway(node, "hub"), wake: make(chan struct{}, 1),
		due: map[string]store.ReplicaID{}, later: map[string]store.ReplicaID{},
	}
}

// noted has a session looked at. It does not wait.
func (a *attendant) noted(id store.ReplicaID) {
	a.mu.Lock()
	a.due[id.Session] = id
	delete(a.later, id.Session)
	a.mu.Unlock()
	a.wakeUp()
}

func (a *attendant) wakeUp() {
	select {
	case a.wake <- struct{}{}:
	default: // it has one pending
	}
}

// run looks after sessions until ctx ends.
func (a *attendant) run(ctx context.Context) {
	again := time.NewTicker(attendAgain)
	defer again.Stop()
	for ctx.Err() == nil {
		id, ok := a.next()
		if ok {
			if !a.attend(ctx, id) {
				a.mu.Lock()
				if _, news := a.due[id.Session]; !news {
					a.later[id.Session] = id
				}
				a.mu.Unlock()
			}
			continue
		}
		select {
		case <-a.wake:
		case <-again.C:
			a.retry()
		case <-ctx.Done():
		}
	}
}

func (a *attendant) next() (store.ReplicaID, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for id, r := range a.due {
		delete(a.due, id)
		return r, true
	}
	return store.ReplicaID{}, false
}

func (a *attendant) retry() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for id, r := range a.later {
		a.due[id] = r
		delete(a.later, id)
	}
	if len(a.due) > 0 {
		a.wakeUp()
	}
}

// attend does what is due for a session; false asks to do it again later.
func (a *attendant) attend(ctx context.Context, id store.ReplicaID) bool {
	s := a.h.o.Store.Session(id)
	if s == nil || s.Gone != nil {
		return true
	}
	var err error
	switch o := a.h.o.Store.Owner(store.LineOf(s.Info)); {
	case o == nil:
		return a.bundle(ctx, s)
	case o.Other(a.node) != nil:
		err = a.fence(ctx, s)
	case o.Node == a.node && !a.h.underWay(o.Moving) && (o.Moving != nil || nodeIn(s.Info) != ""):
		err = a.conclude(ctx, s)
	default:
		return a.bundle(ctx, s)
	}
	if err != nil && ctx.Err() == nil {
		a.h.log.Warn("a session that others have too is not settled yet", "session", s.Session, "node", a.node, "err", err)
	}
	return err == nil
}

// errOther says that the record of a session's owner is not what it seemed to be.
var errOther = errors.New("the owner has changed meanwhile")

// conclude finishes a move that nobody does any more. The node says how far it has come: if it has
// let go of the session the other one has it, and else it is as if nothing had been begun.
func (a *attendant) conclude(ctx context.Context, s *store.Session) error {
	here, err := a.api.Session(ctx, s.Session) // the record can be older
	if err != nil {
		return err
	}
	to := nodeIn(here)
	o, err := a.h.o.Store.UpdateOwner(ctx, store.LineOf(s.Info), func(had *store.Owner) (*store.Owner, error) {
		if had == nil || had.Node != a.node || a.h.underWay(had.Moving) {
			return nil, errOther
		}
		if had.Other(to) != nil { // a node says what it likes: it went where it was to go, or nowhere
			return handOver(*had, to, here.EventCount, false, 0, ""), nil
		}
		next := *had
		next.Moving = nil
		return &next, nil
	})
	if errors.Is(err, errOther) {
		return nil // it is told of again
	}
	if err == nil {
		a.h.log.Info("a move that was not finished is settled", "session", s.Session, "from", a.node, "at", o.Node, "term", o.Term)
	}
	return err
}

// fence has a node let go of a session that another one owns: it was away when that one got it, or
// somebody has opened what was left there. What it has done meanwhile stays there, and in its replica.
func (a *attendant) fence(ctx context.Context, s *store.Session) error {
	if s.Info.State == runtime.StateClosed || s.Info.State == runtime.StateEnded {
		return nil
	}
	// Written again as it is: only what every hub agrees on closes a session.
	o, err := a.h.o.Store.UpdateOwner(ctx, store.LineOf(s.Info), func(had *store.Owner) (*store.Owner, error) {
		if had == nil || had.Other(a.node) == nil || had.Moving != nil && had.Moving.To == a.node {
			return nil, errOther
		}
		return had, nil
	})
	if errors.Is(err, errOther) {
		return nil
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, tellBound)
	defer cancel()
	here, err := a.api.Session(ctx, s.Session)
	if err != nil {
		return err
	}
	if here.State == runtime.StateClosed || here.State == runtime.StateEnded {
		return nil
	}
	if err := a.api.DepartSession(ctx, s.Session, here.EventCount, nodeScheme+o.Node); err != nil {
		return err // such as that it works: it is let go of at the end of its turn
	}
	a.h.log.Warn("a node had a session that another one owns: it has let go of it", "session", s.Session, "node", a.node, "owner", o.Node, "term", o.Term, "events", here.EventCount)
	return nil
}

// resting are the states of sessions in which nothing goes on.
var resting = map[runtime.State]bool{runtime.StateIdle: true, runtime.StateDormant: true, runtime.StateClosed: true}

// bundle keeps what the agent keeps of a session, if that is newer than what is there. A session
// that works is told of again when it rests.
func (a *attendant) bundle(ctx context.Context, s *store.Session) bool {
	if !a.h.o.Bundles || !resting[s.Info.State] || s.Info.EventCount <= s.Bundled {
		return true
	}
	select {
	case a.h.bundling <- struct{}{}:
		defer func() { <-a.h.bundling }()
	case <-ctx.Done():
		return true
	}
	b, err := a.fetch(ctx, s)
	if ctx.Err() != nil {
		return true
	}
	p, _ := errors.AsType[*problem.Error](err)
	if p != nil && p.Kind == problem.Conflict { // it works again
		return true
	}
	trouble := ""
	if err != nil {
		trouble = err.Error()
		a.h.metrics.bundles.WithLabelValues("failed").Inc()
		if trouble != s.BundleTrouble {
			a.h.log.Warn("what an agent keeps could not be kept", "session", s.Session, "node", a.node, "err", err)
		}
	} else {
		a.h.metrics.bundles.WithLabelValues("stored").Inc()
		a.h.metrics.bundleBytes.Add(float64(b.Size))
	}
	noted := a.h.o.Store.UpdateSession(ctx, s.ReplicaID, func(had *store.Session) *store.Session {
		if had == nil {
			return nil
		}
		next := *had
		next.Bundled, next.BundleTrouble = max(had.Bundled, b.LastSeq), trouble[:min(len(trouble), maxTrouble)]
		return &next
	})
	if noted != nil {
		a.h.log.Warn("that a bundle was kept could not be noted", "session", s.Session, "err", noted)
	}
	// What a node refuses it refuses again; the rest may pass.
	return noted == nil && (err == nil || p != nil && p.Kind != problem.TooManyRequests && p.Kind != problem.Unavailable && p.Kind != problem.NodeOffline)
}

const maxTrouble = 500 // bytes

// fetch has the node export a session without its log, into the store.
func (a *attendant) fetch(ctx context.Context, s *store.Session) (store.Bundle, error) {
	body, err := a.api.ExportSession(ctx, s.Session, client.ExportOptions{KeepSecrets: true, Open: true, WithoutLog: true})
	if err != nil {
		return store.Bundle{}, err
	}
	defer body.Close()
	return a.h.o.Store.PutBundle(ctx, s.ReplicaID, s.Info.EventCount, body)
}
