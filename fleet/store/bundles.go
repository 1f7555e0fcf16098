package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	// MaxBundle bounds one bundle, in bytes.
	MaxBundle = 256 << 20
	// bundleBound is how long a bundle may take to be written or read. It is as large as it may be.
	bundleBound = 5 * time.Minute
)

// ErrBundleTooLarge is returned for a bundle with more than MaxBundle bytes.
var ErrBundleTooLarge = fmt.Errorf("what the agent keeps of the session has more than %d MiB, which is more than a hub stores", MaxBundle>>20)

// ErrNoRoomForBundle is returned when the bundles have as many bytes as they may.
var ErrNoRoomForBundle = errors.New("the hub keeps as many bytes of what agents keep as it may: remove some sessions, or start it with more --bundle-bytes")

// Bundle is what an agent keeps of a session, as a gateway exports it without its log.
type Bundle struct {
	LastSeq uint64 // of the session when it was made
	Size    uint64 // bytes
	At      time.Time
}

const headLastSeq = "Sa-Last-Seq"

// openBundles makes the bucket of bundles if there is none.
func (s *Store) openBundles(ctx context.Context, js jetstream.JetStream, replicas int, most int64) (err error) {
	if most == 0 {
		most = -1
	}
	s.bundles, err = patiently(ctx, func(ctx context.Context) (jetstream.ObjectStore, error) {
		return js.CreateOrUpdateObjectStore(ctx, jetstream.ObjectStoreConfig{Bucket: "sa_bundles", Storage: jetstream.FileStorage, Replicas: replicas, MaxBytes: most})
	})
	if err != nil {
		return fmt.Errorf("open bucket sa_bundles: %w", err)
	}
	return nil
}

// PutBundle keeps a bundle in the place of an earlier one of the replica. What was there stays when
// it fails. Two must not be written for a replica at the same time.
func (s *Store) PutBundle(ctx context.Context, id ReplicaID, lastSeq uint64, from io.Reader) (Bundle, error) {
	// Who gives up ends what is read; then what was written is removed again, which takes time of its own.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), bundleBound)
	defer cancel()
	bounded := &atMost{r: from, left: MaxBundle}
	meta := jetstream.ObjectMeta{Name: id.key(), Headers: map[string][]string{headLastSeq: {strconv.FormatUint(lastSeq, 10)}}}
	info, err := s.bundles.Put(ctx, meta, bounded)
	switch {
	case bounded.err != nil:
		return Bundle{}, bounded.err
	case err != nil && strings.Contains(err.Error(), "maximum bytes"):
		return Bundle{}, ErrNoRoomForBundle
	case err != nil:
		return Bundle{}, fmt.Errorf("keep a bundle: %w", err)
	}
	return Bundle{LastSeq: lastSeq, Size: info.Size, At: info.ModTime}, nil
}

// Bundle returns the bundle of a replica, nil when there is none. The caller closes it; it is
// checked as it is read, and one that was changed ends with an error.
func (s *Store) Bundle(ctx context.Context, id ReplicaID) (*Bundle, io.ReadCloser, error) {
	got, err := s.bundles.Get(ctx, id.key())
	if errors.Is(err, jetstream.ErrObjectNotFound) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read a bundle: %w", err)
	}
	info, err := got.Info()
	if err == nil {
		var b *Bundle
		if b, err = bundleOf(info); err == nil {
			return b, got, nil
		}
	}
	return nil, nil, errors.Join(fmt.Errorf("read a bundle: %w", err), got.Close())
}

// AboutBundle returns what is known of the bundle of a replica, nil when there is none.
func (s *Store) AboutBundle(ctx context.Context, id ReplicaID) (*Bundle, error) {
	ctx, cancel := context.WithTimeout(ctx, writeBound)
	defer cancel()
	info, err := s.bundles.GetInfo(ctx, id.key())
	if errors.Is(err, jetstream.ErrObjectNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for a bundle: %w", err)
	}
	return bundleOf(info)
}

func bundleOf(info *jetstream.ObjectInfo) (*Bundle, error) {
	last, err := strconv.ParseUint(info.Headers.Get(headLastSeq), 10, 64)
	if err != nil {
		return nil, fmt.Errorf("bundle %s is not one of this version: header %s", info.Name, headLastSeq)
	}
	return &Bundle{LastSeq: last, Size: info.Size, At: info.ModTime}, nil
}

// dropBundle removes the bundle of a replica. That there is none is no error.
func (s *Store) dropBundle(ctx context.Context, id ReplicaID) error {
	if err := s.bundles.Delete(ctx, id.key()); err != nil && !errors.Is(err, jetstream.ErrObjectNotFound) {
		return fmt.Errorf("remove a bundle: %w", err)
	}
	return nil
}

// atMost fills what it reads into, as a message of the store is made of each read. It fails when
// there is more than there may be, and keeps why reading failed.
type atMost struct {
	r    io.Reader
	left int64
	err  error
}

// Read implements io.Reader.
func (a *atMost) Read(p []byte) (int, error) {
	n, err := 0, error(nil)
	for n < len(p) && err == nil {
		var more int
		more, err = a.r.Read(p[n:])
		n += more
	}
	if a.left -= int64(n); a.left < 0 {
		err = ErrBundleTooLarge
	}
	if err != nil && err != io.EOF {
		a.err = err
	}
	return n, err
}
