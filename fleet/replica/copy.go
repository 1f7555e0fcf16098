package replica

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/fleet/store"
	"sandboxagent.dev/sandbox-agent/runtime"
	"sandboxagent.dev/sandbox-agent/runtime/session"
)

const (
	batchBytes = 256 << 10 // events are written together up to this size
	pages      = 32        // of one session, until another one has its turn
)

// copy brings the replica of a session up to what the node has.
func (f *Follower) copy(ctx context.Context, e *followed, info runtime.SessionInfo) (out outcome) {
	rec, err := f.record(ctx, e, info)
	if err != nil {
		return outcome{err: err}
	}
	copied, more, held := true, false, info.Durability == session.Sync
	// A session that waits to be stored is asked also when there is nothing: it is told so.
	waits := held && (info.Unstored > 0 || rec.Through == 0)
	if held && rec.Through == 0 { // its client waits to be told that there is the session
		e.trouble = ""
		switch err := f.o.Store.Room(ctx, f.o.Node.Name); {
		case full(err):
			e.trouble = err.Error()
		case err != nil:
			return outcome{err: err}
		}
	}
	if Told(&info) != rec.Through || waits || e.known && !e.checked {
		more, copied, err = f.pull(ctx, e, rec, Told(&info), held)
		waits = held && e.checked
	}
	if !copied {
		f.log.Warn("a node has another history of a session than before; the one before is kept beside it", "session", info.ID, "epoch", rec.Epoch)
		if err := f.retire(ctx, rec.ReplicaID); err != nil {
			return outcome{err: err}
		}
		_, err := f.begin(ctx, e, info)
		return outcome{more: true, err: err}
	}
	// Also when the node is gone meanwhile: what it has said is what is known.
	noted := f.update(context.WithoutCancel(ctx), rec, info, err)
	if noted == nil {
		f.o.Noted(rec.ReplicaID)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	e.through = rec.Through
	return outcome{more: more, attend: waits && !more, paced: !held && !more, err: errors.Join(err, noted)}
}

// full reports whether an error says that the store has no room for what it was given.
func full(err error) bool {
	return errors.Is(err, store.ErrNoRoom) || errors.Is(err, store.ErrShare) || errors.Is(err, store.ErrDiskFull)
}

// Told returns the number of the newest event that a node has told of. Of a session that is held
// it has more than its clients are shown.
func Told(info *runtime.SessionInfo) uint64 { return info.EventCount + info.Unstored }

// record returns what the store has of a session, with a new epoch when there is no replica of
// it. The caller may change it.
func (f *Follower) record(ctx context.Context, e *followed, info runtime.SessionInfo) (*store.Session, error) {
	if e.last() == 0 {
		return f.begin(ctx, e, info)
	}
	id := f.replica(info.ID, e.last())
	had := f.o.Store.Session(id)
	switch {
	case had == nil || !had.Of(f.o.Node): // it was removed meanwhile
		return f.begin(ctx, e, info)
	case had.Info.CreatedAt.Equal(info.CreatedAt):
		rec := *had
		return &rec, nil
	case had.Gone != nil:
	case had.Instance == f.o.Node.Instance:
		// The gateway has run all the time: the session was deleted before there was
		// another one with its id. Other nodes may have it from before it went here.
		if err := f.o.Store.SessionDeleted(ctx, store.LineOf(had.Info), f.o.Node.Name); err != nil {
			return nil, err
		}
		if err := f.o.Store.RemoveSession(ctx, id); err != nil {
			return nil, err
		}
	default:
		if err := f.retire(ctx, id); err != nil {
			return nil, err
		}
	}
	return f.begin(ctx, e, info)
}

// begin makes the record of a replica that has nothing yet. An earlier node by the same name may have had a session with
// the same id: that one's replica stays what it is.
func (f *Follower) begin(ctx context.Context, e *followed, info runtime.SessionInfo) (*store.Session, error) {
	epoch := e.last()
	for _, one := range f.o.Store.SessionsNamed(info.ID) {
		if one.Node == f.o.Node.Name && !one.Of(f.o.Node) { // one of this node that another hub has begun goes on
			epoch = max(epoch, one.Epoch)
		}
	}
	rec := &store.Session{ReplicaID: f.replica(info.ID, epoch+1)}
	if err := f.update(ctx, rec, info, nil); err != nil {
		return nil, err
	}
	f.mu.Lock()
	e.epochs = append(e.epochs, rec.Epoch)
	f.mu.Unlock()
	e.known, e.checked, e.from, e.read = false, false, 0, 0
	return rec, nil
}

// update writes the record of a session that the node has.
func (f *Follower) update(ctx context.Context, rec *store.Session, info runtime.SessionInfo, failed error) error {
	rec.NodeJoined, rec.Instance, rec.Labels = f.o.Node.Joined, f.o.Node.Instance, f.o.Node.Labels
	rec.Info, rec.Gone, rec.Trouble = info, nil, ""
	if failed != nil && !errors.Is(failed, errLost) {
		text := failed.Error()
		rec.Trouble = text[:min(len(text), maxTrouble)]
	}
	return f.o.Store.UpdateSession(ctx, rec.ReplicaID, func(had *store.Session) *store.Session {
		next := *rec
		if had != nil { // which others write
			next.Bundled, next.BundledEdits, next.BundleTrouble = had.Bundled, had.BundledEdits, had.BundleTrouble
			next.Bytes = max(next.Bytes, had.Bytes) // of the same replica, which only grows
		}
		if had != nil && had.Instance == rec.Instance && had.Info.CreatedAt.Equal(info.CreatedAt) {
			// The same gateway may have joined again meanwhile and said more.
			if next.Through = max(next.Through, had.Through); had.Info.EventCount > info.EventCount {
				next.Info = had.Info
			}
		}
		return &next
	})
}

// retire notes that the node has a session no more, and keeps its replica.
func (f *Follower) retire(ctx context.Context, id store.ReplicaID) error {
	now := time.Now().UTC()
	return f.o.Store.UpdateSession(ctx, id, func(had *store.Session) *store.Session {
		if had == nil || had.Gone != nil {
			return nil
		}
		next := *had
		next.Gone = &now
		return &next
	})
}

// depart does what is due when the node has a session no more. Of one that somebody deleted
// nothing is kept, neither of what other nodes have that had it before. Whether one that the node has lost was deleted
// is known only if the same gateway ran all the time.
func (f *Follower) depart(ctx context.Context, id string, e *followed, how departure) error {
	for _, epoch := range slices.Clone(e.epochs) {
		r := f.replica(id, epoch)
		had := f.o.Store.Session(r)
		if had != nil && had.Gone != nil {
			continue
		}
		if had != nil {
			line := store.LineOf(had.Info)
			if o := f.o.Store.Owner(line); how == missing && had.Instance != f.o.Node.Instance && (o == nil || o.Deleted == nil) {
				if err := f.retire(ctx, r); err != nil {
					return err
				}
				continue
			}
			if err := f.o.Store.SessionDeleted(ctx, line, f.o.Node.Name); err != nil {
				return err
			}
		}
		if err := f.o.Store.RemoveSession(ctx, r); err != nil && !errors.Is(err, store.ErrUnreadable) { // left alone
			return err
		}
		f.mu.Lock()
		e.epochs = slices.DeleteFunc(e.epochs, func(n uint64) bool { return n == epoch })
		f.mu.Unlock()
	}
	e.known, e.checked, e.from, e.read = false, false, 0, 0
	return nil
}

// pull copies events until the replica has what the node had when its newest event was numbered
// target. What a session says meanwhile comes when the node tells of it, once a second while it works:
// to run after a stream page by page would take more than the stream itself. Copied is false when the node has another history than the replica; then nothing is.
func (f *Follower) pull(ctx context.Context, e *followed, rec *store.Session, target uint64, held bool) (more, copied bool, err error) {
	if !e.known {
		if e.at, err = f.o.Store.End(ctx, rec.ReplicaID); err != nil {
			return false, true, err
		}
		e.known = true
	}
	// One that has less may go on in another way, and is asked again until it has come as far.
	if e.at.Last == 0 {
		e.checked = true
	} else if !e.checked {
		same := false
		if same, e.checked, err = f.agrees(ctx, e, rec.ReplicaID, min(target, e.at.Last), held); err != nil || !same {
			return false, err != nil, err
		}
	}
	more = target > max(e.at.Last, e.read) && (e.checked || !held)
	for range pages {
		if !more || !held && max(e.at.Last, e.read) >= target {
			more = false
			break
		}
		if more, _, err = f.copyPage(ctx, e, rec.ReplicaID, wanted{held: held}); err != nil {
			break
		}
	}
	rec.Through, rec.Bytes = max(rec.Through, e.at.Last), max(rec.Bytes, e.at.Size)
	if err == nil && !more {
		rec.Through = max(rec.Through, target)
	}
	return more, true, err
}

// letGo returns the oldest event that a node has, if that is what an error says.
func letGo(err error) (oldest uint64, ok bool) {
	p, is := errors.AsType[*problem.Error](err)
	if !is || p.Kind != problem.EventsExpired {
		return 0, false
	}
	n, is := p.Extensions["oldestSeq"].(float64)
	return uint64(n), is && n >= 1
}

// copyPage copies the next page of events. Any says that there was something new.
func (f *Follower) copyPage(ctx context.Context, e *followed, id store.ReplicaID, w wanted) (more, any bool, err error) {
	more, any, err = f.copyNext(ctx, e, id, w)
	if oldest, expired := letGo(err); expired && oldest > max(e.at.Last, e.from)+1 {
		e.from = oldest - 1
		return true, true, nil
	}
	return more, any, err
}

// copyNext is copyPage when the node has not let go of what comes next.
func (f *Follower) copyNext(ctx context.Context, e *followed, id store.ReplicaID, w wanted) (more, any bool, err error) {
	from, count := max(e.at.Last, e.from, e.read), 0
	w.after, w.stored, w.limit, w.trouble = from, from, e.limit, e.trouble
	batch := store.Batch{Gap: e.from > e.at.Last}
	write := func() error {
		next, err := f.o.Store.Append(ctx, id, e.at, batch)
		if full(err) {
			e.trouble = err.Error()
		}
		if err != nil {
			batch.Lines = nil // written once, and said once, that it cannot be
			return fmt.Errorf("copy events %d to %d: %w", batch.First, batch.Last, err)
		}
		e.at, batch, e.trouble = next, store.Batch{}, ""
		return nil
	}
	newest := from
	a, err := f.page(ctx, id.Session, w, func(ev event) error {
		if ev.seq <= newest {
			return badAnswer("event %d stands behind event %d", ev.seq, newest)
		}
		if len(batch.Lines) > 0 && len(batch.Lines)+len(ev.line) > batchBytes {
			if err := write(); err != nil {
				return err
			}
		}
		if batch.First == 0 {
			batch.First = ev.seq
		}
		batch.Last, newest = ev.seq, ev.seq
		batch.Lines = append(append(batch.Lines, ev.line...), '\n')
		count++
		return nil
	})
	// Those before one that cannot be had are copied in any case.
	if len(batch.Lines) > 0 && !errors.Is(err, store.ErrMoved) && ctx.Err() == nil {
		if failed := write(); failed != nil {
			err = errors.Join(err, failed)
		}
	}
	f.o.Copied(count)
	if err != nil {
		return a.more, count > 0, err
	}
	any = count > 0 || w.held && a.upTo > from
	if !any && a.more {
		return false, false, badAnswer("it has more events than it gives")
	}
	if w.held {
		e.read = max(e.read, a.upTo)
	}
	if count > 0 {
		e.limit = int(min(mostPage, max(1, fullPage*int64(count)/max(1, a.size))))
	}
	return a.more, any, nil
}

// agrees reports whether the node and the replica say the same from an event on that the node has told of, and whether the
// node has come to the end of the replica: one whose disk was restored has less, and may go on in another way. Of
// a session that is held the node is told that as much is stored as was compared: who is attached to it need not wait for the
// rest.
func (f *Follower) agrees(ctx context.Context, e *followed, id store.ReplicaID, from uint64, held bool) (same, whole bool, err error) {
	w := wanted{after: max(from, 1) - 1, held: held, trouble: e.trouble}
	for {
		var own event // the newest that both may have, or the first behind those
		newest := uint64(0)
		w.limit = int(min(uint64(e.limit), e.at.Last-w.after))
		a, err := f.page(ctx, id.Session, w, func(ev event) error {
			if newest = ev.seq; own.seq == 0 || ev.seq <= e.at.Last {
				own = event{ev.seq, bytes.Clone(ev.line)}
			}
			return nil
		})
		if _, expired := letGo(err); expired {
			return true, true, nil // nobody can say
		}
		if err == nil && own.seq > 0 {
			same, err = f.says(ctx, id, own)
		}
		if err != nil || own.seq > 0 && !same {
			return false, false, err
		}
		reached := max(w.after, newest, a.upTo)
		if reached >= e.at.Last || !held || reached == w.stored {
			return true, reached >= e.at.Last, nil
		}
		w.after, w.stored = reached, reached
	}
}

// says reports whether a replica says the same of an event as the node. What it does not have, neither in a gap nor at
// all, the node has in the place of what it has lost.
func (f *Follower) says(ctx context.Context, id store.ReplicaID, own event) (bool, error) {
	for b, err := range f.o.Store.Batches(ctx, id, own.seq-1) {
		if err != nil {
			return false, err
		}
		for line := range bytes.Lines(b.Lines) {
			if line = bytes.TrimSuffix(line, []byte{'\n'}); SeqOf(line) == own.seq {
				return alike(line, own.line), nil
			}
		}
		return b.First > own.seq, nil // in a gap
	}
	return true, nil // the node has lost it, and goes on with later numbers
}

// alike reports whether two lines tell the same event. A newer gateway may say more of it, and
// say in its own words what neither agent nor client has sent.
func alike(a, b []byte) bool {
	one, err := EventOf(a)
	if err != nil {
		return false
	}
	other, err := EventOf(b)
	return err == nil && one.Time.Equal(other.Time) && one.Direction == other.Direction &&
		(one.Direction == runtime.FromGateway || bytes.Equal(one.Message, other.Message))
}

// SeqOf returns the number of an event as it stands in a replica.
func SeqOf(line []byte) uint64 {
	v, _ := rawjson.Member(line, "seq")
	var n uint64
	for _, c := range v {
		if c < '0' || c > '9' {
			return 0
		}
		n = n*10 + uint64(c-'0')
	}
	return n
}
