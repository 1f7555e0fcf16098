package store

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	openBound  = 30 * time.Second // for a store to be found and read
	writeBound = 5 * time.Second  // for one write
)

// Options say where the store is.
type Options struct {
	Dir string // of the server in this program; "" uses URL
	URL string // of a cluster's servers, separated by commas
	// Credentials is the file with which to log in there; "" for none.
	Credentials string
	Replicas    int // of each bucket in a cluster, 0 is 1
	// LogBytes bounds the events that are kept, in bytes; 0 is no bound. At the bound
	// no more are taken until some are removed.
	LogBytes int64
	// BundleBytes bounds the bundles that are kept, likewise.
	BundleBytes int64
	// Hub names this hub among those that share the store.
	Hub string
	// Advertise is the address by which they reach it; "" when they cannot.
	Advertise string
	Logger    *slog.Logger // nil discards
}

// Store is a connection to the store. It is safe for concurrent use.
type Store struct {
	hub    string
	self   Peer // this hub
	log    *slog.Logger
	engine *engine  // nil for a cluster
	room   *reserve // likewise
	conn   *nats.Conn

	nodes        *bucket[Node]
	tokens       *bucket[kept]
	hubs         *bucket[lease]
	sessions     *bucket[*Session]
	owners       *bucket[*Owner]
	owned        atomic.Pointer[func(*Owner)]   // is told of changes of them
	erased       atomic.Pointer[func(*Owner)]   // is told of those whose session was deleted
	named        names                          // of sessions
	removed      atomic.Pointer[func(*Session)] // is told of those that are removed
	listed       atomic.Pointer[func(string)]   // is told of sessions that may be listed in another way
	gates        gates
	living       living
	js           jetstream.JetStream
	events       jetstream.Stream // the log
	part         int              // bytes of a message of the log
	logBytes     int64            // that the log may have, 0 for no bound
	shares       shares           // of it
	bundles      jetstream.ObjectStore
	bundleStream jetstream.Stream // in which they are
	bundleBytes  int64            // that they may have, 0 for no bound
	leftChunks   allLeftChunks    // of them
	placed       placed           // of them
	stop         context.CancelFunc
	ended        chan struct{}         // closed when the lease is not renewed any more
	refused      atomic.Pointer[error] // why the lease was not renewed last; nil when it was
	setBack      chan struct{}         // closed when the store has gone back behind what it has told

	left func(node, hub string) // see Open
}

// Open returns when the store is there and its buckets are read. Moved, which may be
// nil, is told of nodes that another hub, which it names, has taken, and by this hub's own name of
// those that another one has noted to be away; it must not wait.
func Open(ctx context.Context, o Options, moved func(node, hub string)) (*Store, error) {
	s := &Store{hub: o.Hub, self: Peer{URL: o.Advertise, Secret: rand.Text()}, log: o.Logger, ended: make(chan struct{}), setBack: make(chan struct{}), left: moved}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.left == nil {
		s.left = func(string, string) {}
	}
	ctx, cancel := context.WithTimeout(ctx, openBound)
	defer cancel()
	if err := s.open(ctx, o); err != nil {
		s.close()
		return nil, fullDisk(o.Dir, err)
	}
	running, stop := context.WithCancel(context.Background())
	s.stop = stop
	go s.renew(running)
	return s, nil
}

func (s *Store) open(ctx context.Context, o Options) (err error) {
	options := []nats.Option{
		nats.Name("sandbox-hub " + o.Hub),
		nats.MaxReconnects(-1),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			s.log.Warn("the store reports an error", "err", err)
		}),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				s.log.Warn("the store is out of reach", "err", err)
			}
		}),
		nats.ReconnectHandler(func(*nats.Conn) { s.log.Info("the store is there again") }),
	}
	address := o.URL
	if o.Dir != "" {
		if s.room = newReserve(o.Dir); s.room.give() {
			s.log.Warn("the disk is full: a part of it that was held for this is given up, to remove sessions", "dir", o.Dir, "bytes", reserveSize)
		}
		if s.engine, err = startEngine(o.Dir, s.log); err != nil {
			return err
		}
		s.holdRoom()
		address = nats.DefaultURL // not used: the connection stays in the program
		options = append(options, nats.InProcessServer(s.engine))
	} else if o.Credentials != "" {
		options = append(options, nats.UserCredentials(o.Credentials))
	}
	if s.conn, err = nats.Connect(address, options...); err != nil {
		return fmt.Errorf("connect to the store: %w", err)
	}
	js, err := jetstream.New(s.conn)
	if err != nil {
		return fmt.Errorf("use the store: %w", err)
	}
	kept := jetstream.KeyValueConfig{Storage: jetstream.FileStorage, Replicas: max(1, o.Replicas)}
	named := func(name string) jetstream.KeyValueConfig {
		c := kept
		c.Bucket = name
		return c
	}
	if s.tokens, err = openBucket(ctx, js, named("sa_tokens"), s.log, s.gates.changed, nil); err != nil {
		return err
	}
	if s.nodes, err = openBucket(ctx, js, named("sa_nodes"), s.log, s.nodeChanged, nil); err != nil {
		return err
	}
	if s.sessions, err = openBucket(ctx, js, named("sa_sessions"), s.log, nil, s.sessionTaken); err != nil {
		return err
	}
	if s.owners, err = openBucket(ctx, js, named("sa_owners"), s.log, s.ownerChanged, s.ownerTaken); err != nil {
		return err
	}
	if err = s.openLog(ctx, js, kept.Replicas, o.LogBytes); err != nil {
		return err
	}
	if err = s.openBundles(ctx, js, kept.Replicas, o.BundleBytes); err != nil {
		return err
	}
	// On the disk, too: what servers have in memory only cannot be written any more once
	// most of them were away at the same time.
	c := named("sa_leases")
	c.TTL, s.living.self = leaseLasts, s.hub
	if s.hubs, err = openBucket(ctx, js, c, s.log, s.living.renewed, nil); err != nil {
		return err
	}
	_, err = patiently(ctx, func(ctx context.Context) (struct{}, error) { return struct{}{}, s.renewLease(ctx) })
	if err != nil && s.engine != nil && noSpace(err) { // no other hub looks for the lease
		s.log.Warn("the disk is full: nothing new is stored until there is room", "dir", o.Dir, "err", err)
		s.refused.Store(&err)
		return nil
	}
	return err
}

// holdRoom has the reserve made again, if there is room for it.
func (s *Store) holdRoom() {
	if err := s.room.keep(); err != nil {
		s.log.Warn("room for removals could not be held on the disk", "err", err)
	}
}

// fullDisk says of an error for want of room where that is, and what helps.
func fullDisk(dir string, err error) error {
	if dir == "" || !noSpace(err) {
		return err
	}
	free, _ := freeAt(dir)
	return fmt.Errorf("the disk of %s is full, %d KiB are free: make some room there, %d KiB at least, and start again: %w", dir, free>>10, reserveSize>>10, err)
}

// ErrSetBack is why a hub ends whose store was set back.
var ErrSetBack = errors.New("the store was set back to an earlier state, as from a backup, while this hub ran: it knows of tokens and sessions what is not there any more, and is not told of what changes; start it anew")

// SetBack returns a channel that is closed when the store is found to be in an earlier state than it was: what is known of
// it is worth nothing then. It is found when the lease is written next, unless other hubs have written as many since
// as there were.
func (s *Store) SetBack() <-chan struct{} { return s.setBack }

// Hub returns the name of this hub.
func (s *Store) Hub() string { return s.hub }

// Ready returns why the store cannot be written to, nil when it can.
func (s *Store) Ready() error {
	if err := s.engine.gone(); err != nil {
		return err
	}
	select {
	case <-s.setBack:
		return ErrSetBack
	default:
	}
	there := s.conn.IsConnected()
	if why := s.engine.fault(); why != "" {
		what := "takes nothing of some kinds"
		if !there {
			what = "does not start anew"
		}
		return fmt.Errorf("the store %s: make room on the disk of %s, %d KiB at least: %s", what, s.engine.dir, 2*reserveSize>>10, why)
	}
	if !there {
		return errors.New("the store is out of reach")
	}
	if err := s.refused.Load(); err != nil {
		return fmt.Errorf("the store takes nothing: %w", *err)
	}
	return nil
}

// Full returns ErrDiskFull when the disk has no room for copies. What is small, as who has a session, may still be written.
func (s *Store) Full() error { return s.room.fits(leastRoom) }

// mend ends the server in this program when its folder was removed, and has it start anew when that is back, or when
// it could not write and there is room now. If
// there is none the reserve is given up for it once, so that sessions can be removed.
func (s *Store) mend() {
	if s.engine != nil && !s.engine.look() || s.engine.fault() == "" || !s.room.give() && s.room.fits(2*reserveSize) != nil {
		return
	}
	s.log.Warn("the store is started anew", "because", s.engine.fault())
	if err := s.engine.again(); err != nil {
		s.log.Error("the store does not start", "err", err)
	}
}

// Close gives the lease back and ends the connection, and the server in this program.
func (s *Store) Close() {
	s.stop()
	<-s.ended
	s.close()
}

func (s *Store) close() {
	if s.conn != nil && !s.conn.IsConnected() {
		s.conn.Close() // each copy would wait for servers that are not there to forget it
	}
	s.tokens.close()
	s.nodes.close()
	s.sessions.close()
	s.owners.close()
	s.hubs.close()
	if s.conn != nil {
		s.conn.Close()
	}
	if s.engine != nil {
		s.engine.stop()
	}
	s.gates.close()
	s.living.close()
}
