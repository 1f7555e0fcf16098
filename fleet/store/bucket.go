package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// ErrUnreadable is why a record is neither written over nor removed.
var ErrUnreadable = errors.New("a newer version of the hub has written its record, which this one cannot read: use that one")

// errChanged is returned when somebody else wrote a record first.
var errChanged = errors.New("the record was changed by another at the same time")

// record is a value with its revision in the bucket.
type record[T any] struct {
	value    T
	revision uint64
	gone     bool // it was removed; in the copy, by this hub, and the store has not told of that yet
	// unreadable says that it is there, and was written by a newer version. Its value is the last that could be read.
	unreadable bool
}

// none reports whether the record counts as none: what cannot be read allows nothing.
func (r record[T]) none() bool { return r.gone || r.unreadable }

const (
	mostMarks = 100_000 // that are remembered of a bucket; the next start finds the others
	dropMarks = 100     // in one go
)

// mark is what NATS keeps of a record that was removed, so that all hubs learn of it, and keeps for ever.
type mark struct {
	key      string
	revision uint64
}

// bucket is a bucket of the store with a copy of it in memory. Values are not
// changed once they are in it.
type bucket[T any] struct {
	kv    jetstream.KeyValue
	js    jetstream.JetStream
	log   *slog.Logger
	watch jetstream.KeyWatcher
	over  context.CancelFunc // ends what the library has for watch, also when the store was not there to stop it
	done  chan struct{}      // closed when nothing follows any more

	taking  sync.Mutex                      // orders changes; taken before mu
	changed func(key string, has bool, v T) // is told of each change, one after the other, before it is in the copy; may be nil
	taken   func(had, now T)                // is told of it when it is in the copy, before those who wait, unless it cannot be read; may be nil

	mu      sync.Mutex
	records map[string]record[T]
	newer   map[string]bool // keys of those that are unreadable
	there   int             // records that are not gone
	newest  uint64          // revision that the store has told of
	marks   []mark          // in the store, the oldest first
	moved   chan struct{}   // closed and replaced with each change
}

// openBucket makes a bucket if there is none, brings its settings up to date, and returns when its copy is complete.
func openBucket[T any](ctx context.Context, js jetstream.JetStream, c jetstream.KeyValueConfig, log *slog.Logger, changed func(string, bool, T), taken func(had, now T)) (*bucket[T], error) {
	c.History = 1
	kv, err := opened(ctx, js, "KV_"+c.Bucket, settings{c.Replicas, -1, c.TTL}, log,
		func(ctx context.Context) (jetstream.KeyValue, error) { return js.KeyValue(ctx, c.Bucket) },
		func(ctx context.Context) (jetstream.KeyValue, error) { return js.CreateOrUpdateKeyValue(ctx, c) })
	if err != nil {
		return nil, fmt.Errorf("open bucket %s: %w", c.Bucket, err)
	}
	b := &bucket[T]{kv: kv, js: js, log: log, done: make(chan struct{}), records: map[string]record[T]{}, newer: map[string]bool{}, moved: make(chan struct{}), changed: changed, taken: taken}
	watching, over := context.WithCancel(context.WithoutCancel(ctx)) // lasts longer than ctx
	b.over = over
	b.watch, err = patiently(ctx, func(context.Context) (jetstream.KeyWatcher, error) { return kv.WatchAll(watching) })
	if err != nil {
		over()
		return nil, fmt.Errorf("follow bucket %s: %w", c.Bucket, err)
	}
	complete := make(chan struct{})
	go b.follow(complete)
	select {
	case <-complete:
		return b, nil
	case <-b.done:
		b.close()
		return nil, fmt.Errorf("follow bucket %s: it ended", c.Bucket)
	case <-ctx.Done():
		b.close()
		return nil, fmt.Errorf("read bucket %s: %w", c.Bucket, ctx.Err())
	}
}

// settings are what may differ between two starts of a hub.
type settings struct {
	replicas int
	most     int64 // bytes, -1 for no bound
	age      time.Duration
}

// opened returns a stream as it is when its settings are those wanted: to write them again takes
// room, and a disk that is full must not keep a hub from what can be read and removed there. When it
// has others they are changed; if that fails for want of room, the old ones stay.
func opened[T any](ctx context.Context, js jetstream.JetStream, name string, want settings, log *slog.Logger, open, write func(context.Context) (T, error)) (T, error) {
	return patiently(ctx, func(ctx context.Context) (v T, err error) {
		stream, err := js.Stream(ctx, name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			return write(ctx)
		}
		if err != nil {
			return v, err
		}
		c := stream.CachedInfo().Config
		if (settings{c.Replicas, c.MaxBytes, c.MaxAge}) == want {
			return open(ctx)
		}
		if v, err = write(ctx); err != nil && noSpace(err) {
			log.Warn("the settings of the store could not be changed and stay as they were: the disk is full", "stream", name, "err", err)
			return open(ctx)
		}
		return v, err
	})
}

// noSpace reports whether a server has refused something because its disk is full. It has no code for that.
func noSpace(err error) bool { return strings.Contains(err.Error(), syscall.ENOSPC.Error()) }

// follow keeps the copy up to date until close.
func (b *bucket[T]) follow(complete chan struct{}) {
	defer close(b.done)
	for e := range b.watch.Updates() {
		if e == nil { // all that was there at the start
			close(complete)
			continue
		}
		b.saw(e.Revision())
		var v T
		r := record[T]{revision: e.Revision(), gone: e.Operation() != jetstream.KeyValuePut}
		if r.gone {
			b.marked(mark{e.Key(), e.Revision()})
		} else if err := json.Unmarshal(e.Value(), &v); err != nil {
			b.log.Error("a record of the store cannot be read", "bucket", e.Bucket(), "key", e.Key(), "err", err)
			r.unreadable = true
		} else {
			r.value = v
		}
		b.take(e.Key(), r)
	}
}

// saw notes a revision that the store has told of, and returns the newest before it.
func (b *bucket[T]) saw(revision uint64) (before uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	before = b.newest
	b.newest = max(before, revision)
	return before
}

func (b *bucket[T]) marked(m mark) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.marks) < mostMarks {
		b.marks = append(b.marks, m)
	}
}

// drop removes some of the marks from the store: for a hub that shares it with none, and knows of the removals.
func (b *bucket[T]) drop(ctx context.Context) error {
	b.mu.Lock()
	some := slices.Clone(b.marks[:min(len(b.marks), dropMarks)])
	b.mu.Unlock()
	if len(some) == 0 {
		return nil
	}
	stream, err := b.js.Stream(ctx, "KV_"+b.kv.Bucket())
	done := 0
	for err == nil && done < len(some) { // a record that was made anew since is of a later revision
		m := some[done]
		if err = stream.Purge(ctx, jetstream.WithPurgeSubject("$KV."+b.kv.Bucket()+"."+m.key), jetstream.WithPurgeSequence(m.revision+1)); err == nil {
			done++
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.marks = slices.Delete(b.marks, 0, done) // only this drops some
	return err
}

// take takes a change into the copy. What this hub writes is there before the store tells
// of it, which it may do late when a server has just gone: then it is known already.
func (b *bucket[T]) take(key string, r record[T]) {
	b.taking.Lock()
	defer b.taking.Unlock()
	b.takeLocked(key, r)
}

// wrote is take for what this hub has written. It may learn of that later than the store has told of the removal of the
// record, by another hub, of which the copy keeps nothing.
func (b *bucket[T]) wrote(key string, r record[T]) {
	b.taking.Lock()
	defer b.taking.Unlock()
	b.mu.Lock()
	_, known := b.records[key]
	// What the store tells is taken in its order: without a record, and behind this revision, it was removed.
	removed := !known && b.newest > r.revision
	b.mu.Unlock()
	if !removed {
		b.takeLocked(key, r)
	}
}

func (b *bucket[T]) takeLocked(key string, r record[T]) {
	b.mu.Lock()
	known := b.records[key]
	b.mu.Unlock()
	own := r.gone && r.revision == known.revision && !known.none() // a removal names what it removes
	if r.revision <= known.revision && !own {
		return
	}
	// Who waits for the change finds what follows from it, too.
	if b.changed != nil && !(r.none() && known.none()) {
		b.changed(key, !r.none(), r.value)
	}
	if r.unreadable {
		r.value = known.value // until it is told what has come in its place
	}
	b.enter(key, known, r, r.gone && !own)
	if b.taken != nil && !r.unreadable && !(r.gone && known.gone) {
		b.taken(known.value, r.value)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.moved)
	b.moved = make(chan struct{})
}

// enter puts a record into the copy in the place of the one that is known, or drops that.
func (b *bucket[T]) enter(key string, known, r record[T], drop bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if known.revision > 0 && !known.none() {
		b.there--
	}
	if !r.none() {
		b.there++
	}
	if r.unreadable {
		b.newer[key] = true
	} else {
		delete(b.newer, key)
	}
	if drop {
		delete(b.records, key)
	} else {
		b.records[key] = r
	}
}

// close ends the copy. Of a bucket that was not opened it does nothing.
func (b *bucket[T]) close() {
	if b == nil {
		return
	}
	_ = b.watch.Stop() // fails when it has ended, or the store is not there
	b.over()
	<-b.done
}

// get returns a record of the copy; its revision is 0 when there is none.
func (b *bucket[T]) get(key string) (record[T], bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r, ok := b.records[key]
	if r.none() {
		return record[T]{}, false
	}
	return r, ok
}

func (b *bucket[T]) isUnreadable(key string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.newer[key]
}

// unreadable returns the keys of the records that a newer version has written.
func (b *bucket[T]) unreadable() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Collect(maps.Keys(b.newer))
}

// told is get once who is told of changes was told of all that the copy has, and of no more.
func (b *bucket[T]) told(key string) (record[T], bool) {
	b.taking.Lock()
	defer b.taking.Unlock()
	return b.get(key)
}

// all returns the values of the copy, in no order.
func (b *bucket[T]) all() []T {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := make([]T, 0, len(b.records))
	for _, r := range b.records {
		if !r.none() {
			out = append(out, r.value)
		}
	}
	return out
}

func (b *bucket[T]) len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.there
}

// news returns a channel that is closed when a record changes.
func (b *bucket[T]) news() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.moved
}

// put writes a record over the revision had, 0 for none, and returns the new one.
func (b *bucket[T]) put(ctx context.Context, key string, v T, had uint64) (uint64, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return 0, fmt.Errorf("encode record: %w", err)
	}
	if had == 0 && b.isUnreadable(key) { // who finds none would try to make it again and again
		return 0, ErrUnreadable
	}
	revision, err := untilTaken(ctx, func() (uint64, error) {
		if had == 0 {
			return b.kv.Create(ctx, key, text)
		}
		return b.kv.Update(ctx, key, text, had)
	})
	if err != nil {
		return 0, writeError(err)
	}
	b.wrote(key, record[T]{value: v, revision: revision})
	return revision, nil
}

// remove deletes a record of the revision had.
func (b *bucket[T]) remove(ctx context.Context, key string, had uint64) error {
	_, err := untilTaken(ctx, func() (struct{}, error) {
		return struct{}{}, b.kv.Delete(ctx, key, jetstream.LastRevision(had))
	})
	if err != nil {
		return writeError(err)
	}
	b.take(key, record[T]{revision: had, gone: true})
	return nil
}

// awaitGone returns when the copy has no longer the record of a revision.
func (b *bucket[T]) awaitGone(ctx context.Context, key string, revision uint64) error {
	for {
		moved := b.news()
		if r, ok := b.get(key); !ok || r.revision != revision {
			return nil
		}
		select {
		case <-moved:
		case <-b.done:
			return fmt.Errorf("wait for the store: %w", nats.ErrConnectionClosed)
		case <-ctx.Done():
			return fmt.Errorf("wait for the store: %w", ctx.Err())
		}
	}
}

// untilTaken repeats a write that no server has taken, as when a bucket has no leader yet,
// until ctx ends. One that may have been taken is not repeated.
func untilTaken[T any](ctx context.Context, write func() (T, error)) (T, error) {
	for {
		v, err := write()
		if !errors.Is(err, jetstream.ErrNoStreamResponse) {
			return v, err
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return v, err
		}
	}
}

func writeError(err error) error {
	if e, ok := errors.AsType[*jetstream.APIError](err); ok &&
		(e.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence || e.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant) ||
		errors.Is(err, jetstream.ErrKeyExists) {
		return errChanged
	}
	if passes(err) || errors.Is(err, nats.ErrConnectionReconnecting) || errors.Is(err, nats.ErrDisconnected) {
		return fmt.Errorf("its store did not answer, so that it may have been done or not: look, and try again when /v2/ready says that the hub is ready (%w)", err)
	}
	return fmt.Errorf("write to the store: %w", err)
}

// attemptBound limits one request to a store that may have no leader: it is not answered.
const attemptBound = 5 * time.Second

// patiently asks the store for something until it has it, or ctx ends: a cluster that
// starts, or has lost a server, refuses and forgets requests for some seconds.
func patiently[T any](ctx context.Context, ask func(ctx context.Context) (T, error)) (v T, err error) {
	for {
		within, cancel := context.WithTimeout(ctx, attemptBound)
		v, err = ask(within)
		cancel()
		if err == nil || !passes(err) || ctx.Err() != nil {
			return v, err
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return v, err
		}
	}
}

// passing are errors of requests that nobody answers at the moment.
var passing = []error{context.DeadlineExceeded, nats.ErrTimeout, nats.ErrNoResponders, nats.ErrNoStreamResponse, jetstream.ErrNoStreamResponse}

// passes reports whether an error of the store may be over in a moment.
func passes(err error) bool {
	const noPeers = 10005 // as many servers as hold each record are not there
	if e, ok := errors.AsType[*jetstream.APIError](err); ok {
		return e.Code == 503 || e.ErrorCode == noPeers
	}
	if e, ok := errors.AsType[*nats.APIError](err); ok { // of the library's older part, which watches
		return e.Code == 503 || e.ErrorCode == noPeers
	}
	return slices.ContainsFunc(passing, func(e error) bool { return errors.Is(err, e) })
}
