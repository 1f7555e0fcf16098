package replica

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"time"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/fleet/store"
	"sandboxagent.dev/sandbox-agent/internal/awake"
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
	// A node that was started anew may have come to the same number in another way.
	if Told(&info) != rec.Through || waits || e.owed || !e.checked && !info.UpdatedAt.Equal(rec.Info.UpdatedAt) {
		more, copied, err = f.pull(ctx, e, rec, Told(&info), held)
		waits, e.owed = held, err != nil
	}
	if !copied && e.begun != 0 && e.begun.Ago() < e.rest {
		more, e.owed, err = false, true, errRestless
	} else if !copied {
		e.begun, e.rest = awake.Now(), min(max(restFirst, 2*e.rest), restMost)
		f.log.Warn("a node has another history of a session than before; the one before is kept beside it", "session", info.ID, "epoch", rec.Epoch)
		if err := f.retire(ctx, rec.ReplicaID); err != nil {
			return outcome{err: err}
		}
		_, err := f.begin(ctx, e, info)
		return outcome{more: true, err: err}
	}
	if err != nil && !e.checked { // whoever looks next, also when the node has joined again, sees that there is something to compare
		info.UpdatedAt = rec.Info.UpdatedAt
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

// restFirst and restMost are how long a replica is begun anew no more after it was, the longer the more often it was: records are
// kept until somebody removes them.
const (
	restFirst = time.Minute
	restMost  = time.Hour
)

var errRestless = errors.New("the node says something else of events that were copied already, as it did lately: what it says now is copied later")

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
			next.Extra = had.Extra
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
// to run after a stream page by page would take more than the stream itself. Copied is false when the node has another
// history than the replica; then nothing is.
func (f *Follower) pull(ctx context.Context, e *followed, rec *store.Session, target uint64, held bool) (more, copied bool, err error) {
	if !e.known {
		if e.at, err = f.o.Store.End(ctx, rec.ReplicaID); err != nil {
			return false, true, err
		}
		e.known, e.end = true, 0
	}
	w := wanted{held: held, joined: e.at.Last > 0}
	more = w.joined || target > max(e.at.Last, e.read)
	for range pages {
		if !more || !held && !w.joined && max(e.at.Last, e.read) >= target {
			more = false
			break
		}
		if more, _, err = f.copyPage(ctx, e, rec.ReplicaID, w); err != nil {
			break
		}
		w.joined, e.checked = false, true
	}
	if errors.Is(err, errOther) {
		return false, false, nil
	}
	rec.Through, rec.Bytes = max(rec.Through, e.at.Last), max(rec.Bytes, e.at.Size)
	if err == nil && !more {
		rec.Through = max(rec.Through, target)
	}
	return more, true, err
}

// errOther says that the node does not have the last event of the replica, or another one by its number: its log is not
// the one that was copied, but an earlier state of it, what has gone on from there, or one that a move has put in its place.
var errOther = errors.New("the node has another history of the session")

// letGo returns the oldest event that a node has, if that is what an error says.
func letGo(err error) (oldest uint64, ok bool) {
	p, is := errors.AsType[*problem.Error](err)
	if !is || p.Kind != problem.EventsExpired {
		return 0, false
	}
	n, is := p.Extensions["oldestSeq"].(float64)
	return uint64(n), is && n >= 1
}

// endsBefore reports whether an error of a node says that its newest event is before the one behind which more was asked for.
func endsBefore(err error) bool {
	p, is := errors.AsType[*problem.Error](err)
	return is && p.Kind == problem.InvalidRequest && p.Extensions["parameter"] == "after"
}

// copyPage copies the next page of events. Any says that there was something new.
func (f *Follower) copyPage(ctx context.Context, e *followed, id store.ReplicaID, w wanted) (more, any bool, err error) {
	more, any, err = f.copyNext(ctx, e, id, w)
	oldest, expired := letGo(err)
	switch {
	case expired && oldest > max(e.at.Last, e.from)+1:
		e.from = oldest - 1
		return true, true, nil
	case w.joined && endsBefore(err):
		return false, false, errOther
	case expired && w.joined && oldest > e.at.Last: // nobody can say whether it was the same
		return true, true, nil
	}
	return more, any, err
}

// copyNext is copyPage when the node has not let go of what comes next.
func (f *Follower) copyNext(ctx context.Context, e *followed, id store.ReplicaID, w wanted) (more, any bool, err error) {
	from, count := max(e.at.Last, e.from, e.read), 0
	w.after, w.stored, w.limit, w.trouble = from, from, e.limit, e.trouble
	joins := w.joined // until the event was seen that both have
	if joins {
		w.after, w.stored = e.at.Last-1, 0
	}
	batch, end := store.Batch{Gap: e.from > e.at.Last}, uint64(0) // end is the check of its last line
	write := func() error {
		next, err := f.o.Store.Append(ctx, id, e.at, batch)
		if full(err) {
			e.trouble = err.Error()
		}
		if err != nil {
			batch.Lines = nil // written once, and said once, that it cannot be
			return fmt.Errorf("copy events %d to %d: %w", batch.First, batch.Last, err)
		}
		e.at, e.end, batch, e.trouble = next, end, store.Batch{}, ""
		return nil
	}
	newest := from
	a, err := f.page(ctx, id.Session, w, func(ev event) error {
		if joins {
			joins = false
			return f.joins(ctx, e, id, ev)
		}
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
		batch.Last, newest, end = ev.seq, ev.seq, checkOf(ev.line)
		batch.Lines = append(append(batch.Lines, ev.line...), '\n')
		count++
		return nil
	})
	if err == nil && joins && !a.more {
		err = errOther // it ends before
	}
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
	any = count > 0 || w.joined || w.held && a.upTo > from
	if a.more && (joins || !any) {
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

// joins reports by an error whether the first event that a node gives is not the last one of the replica.
func (f *Follower) joins(ctx context.Context, e *followed, id store.ReplicaID, own event) error {
	if own.seq != e.at.Last {
		return errOther
	}
	check := checkOf(own.line)
	if e.end == check {
		return nil
	}
	for b, err := range f.o.Store.Batches(ctx, id, own.seq-1) {
		if err != nil {
			return err
		}
		for line := range bytes.Lines(b.Lines) {
			if line = bytes.TrimSuffix(line, []byte{'\n'}); SeqOf(line) == own.seq {
				if !Alike(line, own.line) {
					return errOther
				}
				e.end = check // as this gateway says it
				return nil
			}
		}
	}
	return store.ErrMoved
}

// seed is that of checkOf.
var seed = maphash.MakeSeed()

// checkOf tells a line from others, to this process. It is not 0, which is for one that is not known.
func checkOf(line []byte) uint64 { return maphash.Bytes(seed, line) | 1 }

// Alike reports whether two lines of the same number tell the same event. A newer gateway may say more of it, and
// say in its own words what neither agent nor client has sent.
func Alike(a, b []byte) bool {
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
