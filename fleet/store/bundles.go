package store

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// MaxBundle bounds one bundle, in bytes.
	MaxBundle = 256 << 20
	// BundleBound is how long a bundle may take to be read and written. It is as large as it may be.
	BundleBound = time.Hour
	bundleChunk = 128 << 10 // bytes of a message

	// As clients of NATS know a bucket of objects.
	bundleBucket   = "sa_bundles"
	bundleSubjects = "$O." + bundleBucket + "."
)

// ErrBundleTooLarge is returned for a bundle with more than MaxBundle bytes.
var ErrBundleTooLarge = fmt.Errorf("what the agent keeps of the session has more than %d MiB, which is more than a hub stores", MaxBundle>>20)

// ErrNoRoomForBundle is returned when the bundles have as many bytes as they may.
var ErrNoRoomForBundle = errors.New("the hub keeps as many bytes of what agents keep as it may: remove some sessions, or start it with more --bundle-bytes")

// ErrBundleShare is returned for a bundle with which its node would have more than its share.
var ErrBundleShare = errors.New("the node has its share of what the hub keeps of what agents keep, the half of what other nodes leave: remove some of its sessions, or start the hub with more --bundle-bytes")

// bundleRoom is how large a bundle may be. A node may have half of what the others leave, so that
// none takes the room of all.
func (s *Store) bundleRoom(id ReplicaID) (most uint64, beyond error) {
	s.placed.mu.Lock()
	defer s.placed.mu.Unlock()
	return s.bundleRoomLocked(id)
}

func (s *Store) bundleRoomLocked(id ReplicaID) (most uint64, beyond error) {
	if s.bundleBytes <= 0 {
		return MaxBundle, ErrBundleTooLarge
	}
	sizes := map[ReplicaID]placedSize{} // that are not noted yet
	var own, others uint64
	for _, one := range s.Sessions() {
		size := one.BundleSize
		if is, placed := s.placed.sizes[one.ReplicaID]; placed && is.size != size && is.was == notedOf(one) {
			size, sizes[one.ReplicaID] = is.size, is
		}
		switch {
		case one.ReplicaID == id: // what it has is replaced
		case one.Node == id.Node:
			own += size
		default:
			others += size
		}
	}
	s.placed.sizes = sizes
	share := (max(uint64(s.bundleBytes), others) - others) / 2
	if share = max(share, own) - own; share < MaxBundle {
		return share, ErrBundleShare
	}
	return MaxBundle, ErrBundleTooLarge
}

// placed are the sizes of bundles that are stored, or about to be, and that the records of their sessions do not say yet. Of each session
// there is one at most.
type placed struct {
	mu    sync.Mutex
	sizes map[ReplicaID]placedSize
}

// placedSize is the size of a bundle that is stored, or about to be. It counts as long as the record of its session says what it said
// then: what that says later is newer, of this hub or of another one.
type placedSize struct {
	size uint64
	was  notedBundle
}

// notedBundle is what the record of a session says of its bundle. No two bundles of a session have the same.
type notedBundle struct{ size, lastSeq, edits uint64 }

// notedOf is what is noted of a session; of one that there is not, nothing.
func notedOf(s *Session) (n notedBundle) {
	if s != nil {
		n = notedBundle{s.BundleSize, s.Bundled, s.BundledEdits}
	}
	return n
}

// place notes that a bundle is about to be stored, if there is room for it still: others may have come since it was begun.
func (s *Store) place(id ReplicaID, size uint64) error {
	s.placed.mu.Lock()
	defer s.placed.mu.Unlock()
	if most, beyond := s.bundleRoomLocked(id); size > most {
		return beyond
	}
	if s.placed.sizes != nil {
		s.placed.sizes[id] = placedSize{size, notedOf(s.Session(id))}
	}
	return nil
}

// displace notes that it is not stored.
func (s *Store) displace(id ReplicaID) {
	s.placed.mu.Lock()
	defer s.placed.mu.Unlock()
	delete(s.placed.sizes, id)
}

// sureBy is when it is known whether a bundle was stored of which nobody was told: nothing of it is on its way any more.
const sureBy = 5 * time.Minute

// Bundle is what an agent keeps of a session, as a gateway exports it without its log.
type Bundle struct {
	LastSeq uint64 // of the session when it was made
	Size    uint64 // bytes
	At      time.Time
}

const headLastSeq = "Sa-Last-Seq"

// openBundles makes the bucket of bundles if there is none.
func (s *Store) openBundles(ctx context.Context, js jetstream.JetStream, replicas int, most int64) (err error) {
	s.bundleBytes = most
	if most == 0 {
		most = -1
	}
	s.bundles, err = opened(ctx, js, "OBJ_"+bundleBucket, settings{replicas: replicas, most: most}, s.log,
		func(ctx context.Context) (jetstream.ObjectStore, error) { return js.ObjectStore(ctx, bundleBucket) },
		func(ctx context.Context) (jetstream.ObjectStore, error) {
			return js.CreateOrUpdateObjectStore(ctx, jetstream.ObjectStoreConfig{Bucket: bundleBucket, Storage: jetstream.FileStorage, Replicas: replicas, MaxBytes: most})
		})
	if err == nil {
		s.bundleStream, err = js.Stream(ctx, "OBJ_"+bundleBucket)
	}
	if err != nil {
		return fmt.Errorf("open bucket %s: %w", bundleBucket, err)
	}
	if s.engine != nil { // no other hub is writing one
		if err := s.sweepBundles(ctx); err != nil {
			s.log.Warn("look for bundles that were not written to their end", "err", err)
		}
	}
	return nil
}

// sweepBundles removes the parts of bundles that were being written when this hub was killed.
func (s *Store) sweepBundles(ctx context.Context) error {
	info, err := s.bundleStream.Info(ctx, jetstream.WithSubjectFilter(bundleSubjects+"C.>"))
	if err != nil || len(info.State.Subjects) == 0 {
		return err
	}
	list, err := s.bundles.List(ctx)
	if err != nil && !errors.Is(err, jetstream.ErrNoObjectsFound) {
		return err
	}
	for _, whole := range list {
		delete(info.State.Subjects, chunksOf(whole.NUID))
	}
	for subject := range info.State.Subjects {
		if err := s.bundleStream.Purge(ctx, jetstream.WithPurgeSubject(subject)); err != nil {
			return err
		}
	}
	return nil
}

// PutBundle keeps a bundle in the place of an earlier one of the replica. What was there stays when
// it fails. Two must not be written for a replica at the same time.
//
// It writes what the client's own Put does, which starts a goroutine that does not always end.
func (s *Store) PutBundle(ctx context.Context, id ReplicaID, lastSeq uint64, from io.Reader) (_ Bundle, err error) {
	// Who gives up ends what is read; then what was written is removed again, which takes time of its own.
	// A store that is away is waited for by each step alone, and not for the rest of the time that all may take.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), BundleBound)
	defer cancel()
	before, err := s.bundleInfo(ctx, id)
	if err != nil {
		return Bundle{}, fmt.Errorf("look for an earlier bundle: %w", err)
	}
	info := jetstream.ObjectInfo{
		Bucket: bundleBucket, NUID: rand.Text(), // each has subjects of its own
		ObjectMeta: jetstream.ObjectMeta{
			Name: id.key(), Headers: map[string][]string{headLastSeq: {strconv.FormatUint(lastSeq, 10)}},
			Opts: &jetstream.ObjectMetaOptions{ChunkSize: bundleChunk},
		},
	}
	err = s.putChunks(ctx, id, chunksOf(info.NUID), &info, from)
	unsure := false
	if err == nil {
		err = s.place(id, info.Size)
	}
	if err == nil {
		if unsure, err = s.putInfo(ctx, id, &info); err != nil && !unsure {
			s.displace(id)
		}
	}
	var left []leftChunks
	switch {
	case unsure:
		at := time.Now()
		left = append(left, leftChunks{nuid: info.NUID, of: id, unsure: at})
		if before != nil {
			left = append(left, leftChunks{nuid: before.NUID, of: id, unsure: at})
		}
	case err != nil:
		left = append(left, leftChunks{nuid: info.NUID})
	case before != nil:
		left = append(left, leftChunks{nuid: before.NUID})
	}
	if failed := s.dropChunks(ctx, left); failed != nil {
		s.log.Warn("parts of a bundle that nobody needs are left until the next one is stored", "err", failed)
	}
	if err != nil {
		return Bundle{}, err
	}
	return Bundle{LastSeq: lastSeq, Size: info.Size, At: time.Now().UTC()}, nil
}

// chunksOf is the subject of the parts of a bundle.
func chunksOf(nuid string) string { return bundleSubjects + "C." + nuid }

// dropChunks removes the parts of bundles, and those that it could not remove before: a store that has just not taken a
// part does not take their removal either.
func (s *Store) dropChunks(ctx context.Context, more []leftChunks) (err error) {
	ctx, cancel := context.WithTimeout(ctx, writeBound)
	defer cancel()
	var left []leftChunks
	for _, one := range append(s.leftChunks.take(), more...) {
		needed, unsure := false, !one.unsure.IsZero()
		if unsure && time.Since(one.unsure) < sureBy {
			left = append(left, one)
			continue
		}
		if err == nil && unsure {
			var info *jetstream.ObjectInfo
			info, err = s.bundleInfo(ctx, one.of)
			needed = info != nil && info.NUID == one.nuid
		}
		if err == nil && !needed {
			err = s.bundleStream.Purge(ctx, jetstream.WithPurgeSubject(chunksOf(one.nuid)))
		}
		if err != nil {
			left = append(left, one)
		}
	}
	s.leftChunks.put(left)
	return err
}

// leftChunks are the parts of a bundle that nobody needs. Of one of which nobody has heard whether it was stored, this is
// not known: what is known of the replica tells it later, when nothing that was sent is still on its way.
type leftChunks struct {
	nuid   string
	of     ReplicaID
	unsure time.Time // since when; zero when nobody needs them
}

// allLeftChunks are those of a store. The zero value has none.
type allLeftChunks struct {
	mu  sync.Mutex
	all []leftChunks
}

// mostLeftChunks bounds them. The oldest goes: a store of this hub's own looks for it with the next start.
const mostLeftChunks = 256

func (l *allLeftChunks) take() []leftChunks {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.all
	l.all = nil
	return all
}

func (l *allLeftChunks) put(left []leftChunks) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, left...)
	l.all = l.all[max(0, len(l.all)-mostLeftChunks):]
}

// bundleInfo returns what the store has of a bundle, nil when there is none.
func (s *Store) bundleInfo(ctx context.Context, id ReplicaID) (*jetstream.ObjectInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, writeBound)
	defer cancel()
	info, err := s.bundles.GetInfo(ctx, id.key())
	if errors.Is(err, jetstream.ErrObjectNotFound) {
		return nil, nil
	}
	return info, err
}

// putChunks writes what is read in parts, and notes what is known of all of it.
func (s *Store) putChunks(ctx context.Context, id ReplicaID, subject string, info *jetstream.ObjectInfo, from io.Reader) error {
	most, beyond := s.bundleRoom(id)
	sum, buf := sha256.New(), make([]byte, bundleChunk)
	for end := false; !end; {
		n, err := fill(from, buf)
		if end = err == io.EOF; err != nil && !end {
			return fmt.Errorf("read a bundle: %w", err)
		}
		if info.Size += uint64(n); info.Size > most {
			return beyond
		}
		if n == 0 {
			continue
		}
		sum.Write(buf[:n])
		info.Chunks++
		if err := s.publishBundle(ctx, &nats.Msg{Subject: subject, Data: buf[:n]}); err != nil {
			return err
		}
	}
	info.Digest = jetstream.GetObjectDigestValue(sum)
	return nil
}

// putInfo writes what is known of a bundle whose parts are stored: this puts it in the place of the one before. unsure says
// of an error that it may be there all the same, now or soon: the store may have taken it, and its answer was lost.
func (s *Store) putInfo(ctx context.Context, id ReplicaID, info *jetstream.ObjectInfo) (unsure bool, err error) {
	text, err := json.Marshal(info)
	if err != nil {
		return false, fmt.Errorf("encode what is known of a bundle: %w", err)
	}
	m := nats.NewMsg(bundleSubjects + "M." + base64.URLEncoding.EncodeToString([]byte(info.Name)))
	m.Data = text
	m.Header.Set(jetstream.MsgRollup, jetstream.MsgRollupSubject)
	err = s.publishBundle(ctx, m)
	if err == nil || errors.Is(err, ErrNoRoomForBundle) || errors.Is(err, ErrDiskFull) {
		return false, err
	}
	if now, failed := s.bundleInfo(ctx, id); failed == nil && now != nil && now.NUID == info.NUID {
		return false, nil
	}
	return true, err
}

func (s *Store) publishBundle(ctx context.Context, m *nats.Msg) error {
	if err := s.room.fits(len(m.Data)); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, writeBound)
	defer cancel()
	_, err := s.js.PublishMsg(ctx, m)
	if e, ok := errors.AsType[*jetstream.APIError](err); ok && strings.Contains(e.Description, "maximum bytes") {
		return ErrNoRoomForBundle
	}
	if err != nil {
		return fmt.Errorf("keep a bundle: %w", err)
	}
	return nil
}

// fill reads until b is full. At the end the error is io.EOF.
func fill(r io.Reader, b []byte) (n int, err error) {
	for n < len(b) && err == nil {
		var more int
		more, err = r.Read(b[n:])
		n += more
	}
	return n, err
}

// Bundle returns the bundle of a replica, nil when there is none. It is read while ctx lasts, as slowly as the caller
// likes, and checked as it is read: one that was changed, removed or replaced meanwhile ends with an error.
func (s *Store) Bundle(ctx context.Context, id ReplicaID) (*Bundle, io.Reader, error) {
	info, err := s.bundleInfo(ctx, id)
	var b *Bundle
	if err == nil && info != nil {
		b, err = bundleOf(info)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read a bundle: %w", err)
	}
	if b == nil {
		return nil, nil, nil
	}
	subject := chunksOf(info.NUID)
	return b, &chunks{info: info, sum: sha256.New(), next: func(from uint64) (*jetstream.RawStreamMsg, error) {
		ctx, cancel := context.WithTimeout(ctx, writeBound)
		defer cancel()
		return s.bundleStream.GetMsg(ctx, from, jetstream.WithGetMsgSubject(subject))
	}}, nil
}

// chunks reads the parts of a bundle, each by a request with a bound of its own. The client's own Get has one bound for
// all of them, and cannot be broken off while it waits for one.
type chunks struct {
	next func(from uint64) (*jetstream.RawStreamMsg, error) // the first one with this number or a later one

	info *jetstream.ObjectInfo
	sum  hash.Hash
	had  uint32 // parts
	size uint64 // their bytes
	last uint64 // number of the newest of them
	rest []byte // of it
	err  error  // behind it
}

// Read implements [io.Reader].
func (c *chunks) Read(p []byte) (int, error) {
	for len(c.rest) == 0 {
		if c.err != nil {
			return 0, c.err
		}
		c.err = c.take()
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

// take gets the next part. At the end the error is io.EOF.
func (c *chunks) take() error {
	if c.had == c.info.Chunks {
		if c.size != c.info.Size || jetstream.GetObjectDigestValue(c.sum) != c.info.Digest {
			return errors.New("read a bundle: it is not what was stored")
		}
		return io.EOF
	}
	m, err := c.next(c.last + 1)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return fmt.Errorf("read a bundle: part %d of %d is not there: it was removed or replaced meanwhile", c.had+1, c.info.Chunks)
	}
	if err != nil {
		return fmt.Errorf("read a bundle: %w", err)
	}
	c.had, c.size, c.last, c.rest = c.had+1, c.size+uint64(len(m.Data)), m.Sequence, m.Data
	c.sum.Write(m.Data)
	return nil
}

// AboutBundle returns what is known of the bundle of a replica, nil when there is none.
func (s *Store) AboutBundle(ctx context.Context, id ReplicaID) (*Bundle, error) {
	info, err := s.bundleInfo(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("look for a bundle: %w", err)
	}
	if info == nil {
		return nil, nil
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

// DropBundle removes the bundle of a replica. That there is none is no error.
func (s *Store) DropBundle(ctx context.Context, id ReplicaID) error {
	s.displace(id)
	err := s.bundles.Delete(ctx, id.key())
	if err != nil && !errors.Is(err, jetstream.ErrObjectNotFound) {
		return fmt.Errorf("remove a bundle: %w", err)
	}
	// Nobody needs the mark that is left of it, unless another hub stores one at this moment: then it is that one.
	subject := bundleSubjects + "M." + base64.URLEncoding.EncodeToString([]byte(id.key()))
	last, err := s.bundleStream.GetLastMsgForSubject(ctx, subject)
	var about jetstream.ObjectInfo
	if err == nil && json.Unmarshal(last.Data, &about) == nil && about.Deleted {
		err = s.bundleStream.Purge(ctx, jetstream.WithPurgeSubject(subject), jetstream.WithPurgeSequence(last.Sequence+1))
	}
	if err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) {
		s.log.Debug("the mark of a bundle that was removed stays", "session", id.Session, "err", err)
	}
	return nil
}
