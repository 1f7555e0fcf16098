package fleet

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"sync"
	"time"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/control/client"
	"sandboxagent.dev/sandbox-agent/fleet/store"
	"sandboxagent.dev/sandbox-agent/internal/awake"
	"sandboxagent.dev/sandbox-agent/runtime"
)

const (
	maxBundling = 4               // bundles that a hub fetches at one time; more wait
	maxSlow     = 4               // that take longer than bundleSoon, beside those; a further one is given up
	bundleSoon  = 5 * time.Minute // for which other sessions wait for one
	bundleEvery = 2 * time.Second // of one session: turns that follow each other closely do not pay for it each
	hangsPause  = 10 * flowStall  // of a session whose export came to no end
	attendTick  = time.Second
	attendAgain = 5 // ticks until what failed is tried again
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
	soon  map[string]store.ReplicaID // that were fetched just now, and have changed since
	later map[string]store.ReplicaID // that have failed

	extras  map[string]extra   // by session that another one owns; of the goroutine that runs
	fetched map[string]fetched // sessions that were, lately; of the goroutine that runs
	slow    *fetching          // one that takes long to be, nil for none: one of each node; of that goroutine, too
}

func (h *Hub) newAttendant(node string) *attendant {
	return &attendant{
		h: h, node: node, api: h.gateway(node, "hub"), wake: make(chan struct{}, 1),
		due: map[string]store.ReplicaID{}, soon: map[string]store.ReplicaID{}, later: map[string]store.ReplicaID{}, extras: map[string]extra{}, fetched: map[string]fetched{},
	}
}

// noted has a session looked at. It does not wait.
func (a *attendant) noted(id store.ReplicaID) {
	a.mu.Lock()
	a.due[id.Session] = id
	delete(a.soon, id.Session)
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
	defer a.endSlow()
	tick := time.NewTicker(attendTick)
	defer tick.Stop()
	for ticks := 1; ctx.Err() == nil; {
		a.keepSlow(ctx)
		if id, ok := a.next(); ok {
			a.postpone(id, a.attend(ctx, id))
			continue
		}
		select {
		case <-a.wake:
		case <-tick.C:
			ticks++
			a.again(ticks%attendAgain == 0)
		case <-ctx.Done():
		}
	}
}

// When a session is looked at again.
type when int

const (
	whenNoted when = iota // that it has changed
	whenSoon
	whenLater // as it has failed
)

// postpone has a session looked at again that has not changed meanwhile.
func (a *attendant) postpone(id store.ReplicaID, w when) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, news := a.due[id.Session]; news || w == whenNoted {
		return
	}
	if w == whenSoon {
		a.soon[id.Session] = id
		return
	}
	a.later[id.Session] = id
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

// again has sessions looked at that were postponed, those that have failed only if all are.
func (a *attendant) again(all bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.Copy(a.due, a.soon)
	clear(a.soon)
	if all {
		maps.Copy(a.due, a.later)
		clear(a.later)
	}
	for id, f := range a.fetched {
		if f.at.Ago() > f.pause {
			delete(a.fetched, id)
		}
	}
	if len(a.due) > 0 {
		a.wakeUp()
	}
}

// attend does what is due for a session.
func (a *attendant) attend(ctx context.Context, id store.ReplicaID) when {
	s := a.h.o.Store.Session(id)
	if s == nil || s.Gone != nil {
		return whenNoted
	}
	var err error
	switch o := a.h.o.Store.Owner(store.LineOf(s.Info)); {
	case o == nil:
		return a.bundle(ctx, s)
	case o.Other(a.node) != nil:
		if owner := a.h.newest(o.Node, o.Line); owner != nil && nodeIn(owner.Info) == a.node {
			return whenLater // it gave the session back, as it says, and the store, which was put back, is told so
		}
		settled := true
		if err = a.fence(ctx, s); o.Deleted == nil {
			var failed error
			settled, failed = a.countExtra(ctx, s, o)
			err = errors.Join(err, failed)
		} else if err == nil {
			err = a.erase(ctx, s)
		}
		if err == nil && !settled {
			return whenLater
		}
	case o.Node == a.node && !a.h.underWay(o.Moving) && (o.Moving != nil || nodeIn(s.Info) != ""):
		err = a.conclude(ctx, s)
	default:
		w := a.bundle(ctx, s)
		if o.Moving != nil { // a hub that ends in the middle of it changes nothing of the session
			w = whenLater
		}
		return w
	}
	if err == nil {
		return whenNoted
	}
	if ctx.Err() == nil {
		level := slog.LevelWarn
		if problem.From(err).Kind == problem.Conflict { // it works there, for hours perhaps, and is asked again all the time
			level = slog.LevelDebug
		}
		a.h.log.Log(ctx, level, "a session that others have too is not settled yet", "session", s.Session, "node", a.node, "err", err)
	}
	return whenLater
}

// errOther says that the record of a session's owner is not what it seemed to be.
var errOther = errors.New("the owner has changed meanwhile")

// conclude finishes a move that nobody does any more. The node says how far it has come: if it has
// let go of the session the other one has it, and else it is as if nothing had been begun.
func (a *attendant) conclude(ctx context.Context, s *store.Session) error {
	ctx, cancel := context.WithTimeout(ctx, tellBound)
	defer cancel()
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

// hasLeft reports whether a session does not go on at its node: it has ended, or says that it went elsewhere. One
// that is closed, and no more, can be opened there, and another one could not take its place.
func hasLeft(i runtime.SessionInfo) bool {
	return i.State == runtime.StateEnded || i.State == runtime.StateClosed && rawjson.MemberString(i.Metadata, movedTo) != ""
}

// fence has a node let go of a session that another one owns: it was away when that one got it, or
// somebody has opened what was left there. What it has done meanwhile stays there, and in its replica.
func (a *attendant) fence(ctx context.Context, s *store.Session) error {
	if hasLeft(s.Info) {
		return nil
	}
	// Written again as it is: only what every hub agrees on closes a session.
	o, err := a.h.o.Store.UpdateOwner(ctx, store.LineOf(s.Info), func(had *store.Owner) (*store.Owner, error) {
		switch {
		case had == nil || had.Other(a.node) == nil || had.Moving != nil && had.Moving.To == a.node:
			return nil, errOther
		case had.Moving != nil && had.Moving.To == had.Node && had.Other(a.node).Term+1 == had.Term:
			// It is being taken back from here, perhaps, and its owner still says that it went here: then both would say so of the other.
			return nil, problem.New(problem.Conflict, "a move of session %s is not over", s.Session)
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
	if isNotFound(err) {
		return nil // it was deleted there, and the hub hears so in a moment
	}
	if err != nil {
		return err
	}
	if hasLeft(here) {
		return nil
	}
	if err := a.api.DepartSession(ctx, s.Session, here.EventCount, nil, nodeScheme+o.Node); isNotFound(err) {
		return nil
	} else if err != nil {
		return err // such as that it works: it is let go of at the end of its turn
	}
	a.h.log.Warn("a node had a session that another one owns: it has let go of it", "session", s.Session, "node", a.node, "owner", o.Node, "term", o.Term, "events", here.EventCount)
	return nil
}

// erase has a node delete what it has of a session that was deleted where it went.
func (a *attendant) erase(ctx context.Context, s *store.Session) error {
	ctx, cancel := context.WithTimeout(ctx, tellBound)
	defer cancel()
	here, err := a.api.Session(ctx, s.Session)
	if err == nil && store.LineOf(here) == store.LineOf(s.Info) { // else another one has the id
		err = a.api.DeleteSession(ctx, s.Session)
	}
	if isNotFound(err) {
		return nil
	}
	if err == nil {
		a.h.log.Info("what a node had of a session that was deleted is removed", "session", s.Session, "node", a.node)
	}
	return err
}

// resting are the states of sessions in which nothing goes on.
var resting = map[runtime.State]bool{runtime.StateIdle: true, runtime.StateDormant: true, runtime.StateClosed: true}

// fetched is when the export of a session ended, and how long the next one waits.
type fetched struct {
	at    awake.Moment
	pause time.Duration
}

// bundle keeps what the agent keeps of a session, if that is newer than what is there. A session
// that works is told of again when it rests.
func (a *attendant) bundle(ctx context.Context, s *store.Session) when {
	if !a.h.o.Bundles || !resting[s.Info.State] || s.Info.EventCount <= s.Bundled && s.Info.Edits == s.BundledEdits {
		return whenNoted
	}
	if a.slow != nil && a.slow.s.ReplicaID == s.ReplicaID {
		if !a.slow.of(s) { // it was deleted, and there is another one with its id
			a.slow.cancel(errAgain)
		}
		return whenNoted // it is looked at when that has ended
	}
	if f, lately := a.fetched[s.Session]; lately && f.at.Ago() < f.pause {
		return whenSoon
	}
	select {
	case a.h.bundling <- struct{}{}:
		defer func() { <-a.h.bundling }()
	case <-ctx.Done():
		return whenNoted
	}
	f := a.begin(ctx, s)
	late := time.NewTimer(cmp.Or(a.h.o.BundleSoon, bundleSoon))
	defer late.Stop()
	select {
	case <-f.done:
		return a.keep(ctx, f)
	case <-late.C:
	}
	if a.slow == nil {
		select {
		case a.h.slow <- struct{}{}:
			a.slow = f
			return whenNoted
		default:
		}
	}
	f.cancel(notWithin(problem.Unavailable, cmp.Or(a.h.o.BundleSoon, bundleSoon)))
	<-f.done
	return a.keep(ctx, f)
}

// keepSlow keeps what has come of the session that took long, if it has ended.
func (a *attendant) keepSlow(ctx context.Context) {
	if a.slow == nil {
		return
	}
	select {
	case <-a.slow.done:
	default:
		return
	}
	f := a.slow
	a.slow = nil
	<-a.h.slow
	w := a.keep(ctx, f)
	s := a.h.o.Store.Session(f.s.ReplicaID)
	if s == nil || s.Gone != nil {
		return // the session may have come again as another replica, which is looked at by itself
	}
	if !f.of(s) {
		delete(a.fetched, s.Session)
	} else if s.Info.EventCount == f.s.Info.EventCount && s.Info.Edits == f.s.Info.Edits {
		a.postpone(s.ReplicaID, w)
		return
	}
	a.noted(s.ReplicaID) // it was looked at meanwhile, and left alone
}

// endSlow waits for the end of the one that takes long: its context has ended.
func (a *attendant) endSlow() {
	if a.slow != nil {
		<-a.slow.done
		<-a.h.slow
	}
}

// fetching is a bundle that comes.
type fetching struct {
	s      *store.Session
	began  awake.Moment
	cancel context.CancelCauseFunc

	done chan struct{} // closed when the next two are set
	b    store.Bundle
	err  error
}

// of reports whether it is a bundle of a session, and not of an earlier one whose replica had the same id.
func (f *fetching) of(s *store.Session) bool {
	return store.LineOf(f.s.Info) == store.LineOf(s.Info)
}

// errAgain says that what is fetched is of no session any more: another one has its id, and is looked at by itself.
var errAgain = errors.New("the session was deleted, and another one has its id")

// begin begins to fetch a bundle, which ends with ctx.
func (a *attendant) begin(ctx context.Context, s *store.Session) *fetching {
	f := &fetching{s: s, began: awake.Now(), done: make(chan struct{})}
	ctx, f.cancel = context.WithCancelCause(ctx)
	go func() {
		defer a.wakeUp()
		defer close(f.done)
		defer f.cancel(nil)
		f.b, f.err = a.fetch(ctx, s)
	}()
	return f
}

// keep notes what has become of a bundle.
func (a *attendant) keep(ctx context.Context, f *fetching) when {
	s, b, err := f.s, f.b, f.err
	if ctx.Err() != nil || errors.Is(err, errAgain) {
		return whenNoted
	}
	pause := bundleEvery
	if err != nil && f.began.Ago() >= min(flowStall, cmp.Or(a.h.o.BundleSoon, bundleSoon)) { // one that hangs has the others wait for a small part of the time
		pause = hangsPause
	}
	a.fetched[s.Session] = fetched{awake.Now(), pause}
	p, _ := errors.AsType[*problem.Error](err)
	if p != nil && p.Kind == problem.Conflict { // it works again
		return whenNoted
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
	removed := false
	noted := a.h.o.Store.UpdateSession(ctx, s.ReplicaID, func(had *store.Session) *store.Session {
		if removed = had == nil || !f.of(had); removed {
			return had
		}
		next := *had
		if err == nil {
			next.BundleSize, next.BundledEdits = b.Size, s.Info.Edits
		}
		next.Bundled, next.BundleTrouble = max(had.Bundled, b.LastSeq), trouble[:min(len(trouble), maxTrouble)]
		return &next
	})
	if removed && err == nil { // while it was fetched
		noted = a.h.o.Store.DropBundle(ctx, s.ReplicaID)
	}
	if noted != nil {
		a.h.log.Warn("that a bundle was kept could not be noted", "session", s.Session, "err", noted)
	}
	// What a node refuses it refuses again; the rest may pass.
	if noted == nil && (err == nil || p != nil && p.Kind != problem.TooManyRequests && p.Kind != problem.Unavailable && p.Kind != problem.NodeOffline) {
		return whenNoted
	}
	return whenLater
}

const maxTrouble = 500 // bytes

// fetch has the node export a session without its log, into the store. A node that gives nothing for long, or never comes to the end,
// is not waited for.
func (a *attendant) fetch(ctx context.Context, s *store.Session) (b store.Bundle, err error) {
	most := cmp.Or(a.h.o.BundleWithin, store.BundleBound)
	ctx, cancel := context.WithTimeoutCause(ctx, most, notWithin(problem.Unavailable, most))
	defer cancel()
	ctx, flow := newFlow(ctx, problem.Unavailable)
	defer flow.end()
	body, err := a.api.ExportSession(ctx, s.Session, client.ExportOptions{KeepSecrets: true, Open: true, WithoutLog: true})
	if err == nil {
		defer body.Close()
		flow.r = body
		b, err = a.h.o.Store.PutBundle(ctx, s.ReplicaID, s.Info.EventCount, flow)
	}
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return b, err
}
