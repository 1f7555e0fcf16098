package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// errChanged is returned when somebody else wrote a record first.
var errChanged = errors.New("the record was changed by another at the same time")

// record is a value with its revision in the bucket.
type record[T any] struct {
	value    T
	revision uint64
}

// bucket is a bucket of the store with a copy of it in memory. Values are not
// changed once they are in it.
type bucket[T any] struct {
	kv    jetstream.KeyValue
	log   *slog.Logger
	watch jetstream.KeyWatcher
	done  chan struct{} // closed when nothing follows any more

	mu      sync.Mutex
	records map[string]record[T]
	seen    uint64                          // revision up to which the copy is the bucket
	moved   chan struct{}                   // closed and replaced when seen changes
	changed func(key string, has bool, v T) // is told of each change, one after the other; may be nil
}

// openBucket makes a bucket if there is none, and returns when its copy is complete.
func openBucket[T any](ctx context.Context, js jetstream.JetStream, c jetstream.KeyValueConfig, log *slog.Logger, changed func(string, bool, T)) (*bucket[T], error) {
	c.History = 1
	kv, err := js.CreateOrUpdateKeyValue(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("open bucket %s: %w", c.Bucket, err)
	}
	b := &bucket[T]{kv: kv, log: log, done: make(chan struct{}), records: map[string]record[T]{}, moved: make(chan struct{}), changed: changed}
	if b.watch, err = kv.WatchAll(context.Background()); err != nil { // lasts longer than ctx
		return nil, fmt.Errorf("follow bucket %s: %w", c.Bucket, err)
	}
	complete := make(chan struct{})
	go b.follow(complete)
	select {
	case <-complete:
		return b, nil
	case <-b.done:
		return nil, fmt.Errorf("follow bucket %s: it ended", c.Bucket)
	case <-ctx.Done():
		b.close()
		return nil, fmt.Errorf("read bucket %s: %w", c.Bucket, ctx.Err())
	}
}

// follow keeps the copy up to date until close.
func (b *bucket[T]) follow(complete chan struct{}) {
	defer close(b.done)
	for e := range b.watch.Updates() {
		if e == nil { // all that was there at the start
			close(complete)
			continue
		}
		var v T
		has := e.Operation() == jetstream.KeyValuePut
		if has {
			if err := json.Unmarshal(e.Value(), &v); err != nil {
				// One that a newer version wrote counts as none: what cannot be read
				// allows nothing.
				b.log.Error("a record of the store cannot be read", "bucket", e.Bucket(), "key", e.Key(), "err", err)
				has = false
			}
		}
		// Who waits for the change finds what follows from it, too.
		if b.changed != nil {
			b.changed(e.Key(), has, v)
		}
		b.mu.Lock()
		if has {
			b.records[e.Key()] = record[T]{v, e.Revision()}
		} else {
			delete(b.records, e.Key())
		}
		b.seen = max(b.seen, e.Revision())
		close(b.moved)
		b.moved = make(chan struct{})
		b.mu.Unlock()
	}
}

// close ends the copy. Of a bucket that was not opened it does nothing.
func (b *bucket[T]) close() {
	if b == nil {
		return
	}
	_ = b.watch.Stop() // fails only when it has ended
	<-b.done
}

// get returns a record of the copy; its revision is 0 when there is none.
func (b *bucket[T]) get(key string) (record[T], bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r, ok := b.records[key]
	return r, ok
}

// all returns the values of the copy, in no order.
func (b *bucket[T]) all() []T {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := make([]T, 0, len(b.records))
	for _, r := range b.records {
		out = append(out, r.value)
	}
	return out
}

func (b *bucket[T]) len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.records)
}

// put writes a record over the revision had, 0 for none, and returns the new one.
func (b *bucket[T]) put(ctx context.Context, key string, v T, had uint64) (uint64, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return 0, fmt.Errorf("encode record: %w", err)
	}
	var revision uint64
	if had == 0 {
		revision, err = b.kv.Create(ctx, key, text)
	} else {
		revision, err = b.kv.Update(ctx, key, text, had)
	}
	if err != nil {
		return 0, writeError(err)
	}
	return revision, b.await(ctx, revision)
}

// remove deletes a record of the revision had.
func (b *bucket[T]) remove(ctx context.Context, key string, had uint64) error {
	if err := b.kv.Delete(ctx, key, jetstream.LastRevision(had)); err != nil {
		return writeError(err)
	}
	return b.awaitGone(ctx, key, had)
}

func writeError(err error) error {
	if e, ok := errors.AsType[*jetstream.APIError](err); ok &&
		(e.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence || e.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant) ||
		errors.Is(err, jetstream.ErrKeyExists) {
		return errChanged
	}
	return fmt.Errorf("write to the store: %w", err)
}

// await returns when the copy has what revision wrote.
func (b *bucket[T]) await(ctx context.Context, revision uint64) error {
	return b.until(ctx, func() bool { return b.seen >= revision })
}

// awaitGone returns when the copy has no longer the record of a revision.
func (b *bucket[T]) awaitGone(ctx context.Context, key string, revision uint64) error {
	return b.until(ctx, func() bool { return b.records[key].revision != revision })
}

func (b *bucket[T]) until(ctx context.Context, reached func() bool) error {
	for {
		b.mu.Lock()
		ok, moved := reached(), b.moved
		b.mu.Unlock()
		if ok {
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
