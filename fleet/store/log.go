package store

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	logStream = "SA_LOG"
	logPrefix = "sa.log."

	// partSize bounds the bytes of one message of the log; a batch with more goes in
	// parts. Servers take 1 MiB if they are not told otherwise.
	partSize = 512 << 10
	headroom = 4 << 10 // of what a server takes, for headers
	maxParts = 256     // of a batch; one with more is refused
)

// The headers of a message of the log.
const (
	headNode  = "Sa-Node"
	headEpoch = "Sa-Epoch"
	headFirst = "Sa-First"
	headLast  = "Sa-Last"
	headPrev  = "Sa-Prev" // number of the last event before the batch
	headPart  = "Sa-Part" // as in 2/3
	headGap   = "Sa-Gap"
	headSize  = "Sa-Size" // bytes of the replica with this message; earlier versions do not say it
)

// ErrMoved is returned by Append when the replica does not end where it should:
// somebody else has added to it, or removed it.
var ErrMoved = errors.New("the replica was changed by another at the same time")

// ErrNoRoom is returned by Append when the log has as many bytes as it may.
var ErrNoRoom = errors.New("the hub's --replica-bytes is reached: remove some sessions there, or start it with more")

// ErrShare is returned by Append when the node would have more than its share of the log.
var ErrShare = errors.New("the hub's --replica-bytes is reached for this node, which may have the half of what other nodes leave: remove some of its sessions there, or start the hub with more")

// messageSize is about what a message of the log takes beside its events, in bytes.
const messageSize = 256

// leastRoom is what a session that begins finds in the log, in bytes: more than events have that are
// written together, but for single large ones.
const leastRoom = 300 << 10

// errCodeStoreFailed is how the server says that a stream does not take a message.
const errCodeStoreFailed jetstream.ErrorCode = 10077

// ReplicaID names the copy of the events of one session. Epoch tells sessions apart that
// have had the same id on the same node.
type ReplicaID struct {
	Node    string `json:"node"`
	Session string `json:"session"`
	Epoch   uint64 `json:"epoch"`
}

// key is the id as a key of a bucket, and as the end of a subject.
func (id ReplicaID) key() string {
	return escape(id.Node) + "." + escape(id.Session) + "." + strconv.FormatUint(id.Epoch, 10)
}

// escape writes a text with the characters that keys and subjects may have.
func escape(s string) string {
	var b strings.Builder
	for i := range len(s) {
		switch c := s[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '_':
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "=%02X", c)
		}
	}
	return b.String()
}

// Batch is some events of a session that follow each other.
type Batch struct {
	First, Last uint64 // numbers of events
	// Gap says that events before First were let go of by the node before they could be
	// copied.
	Gap   bool
	Lines []byte // the events as JSON, each with a newline behind it
}

// Place is where a replica ends. The zero value is that of one without events.
type Place struct {
	Last uint64 // number of its newest event, 0 for none
	Size uint64 // bytes that it has in the log, about
	at   uint64 // the message in the stream
}

// openLog makes the stream if there is none.
func (s *Store) openLog(ctx context.Context, js jetstream.JetStream, replicas int, most int64) (err error) {
	s.js, s.logBytes = js, most
	if most == 0 {
		most = -1
	}
	s.events, err = opened(ctx, js, logStream, settings{replicas: replicas, most: most}, s.log,
		func(ctx context.Context) (jetstream.Stream, error) { return js.Stream(ctx, logStream) },
		func(ctx context.Context) (jetstream.Stream, error) {
			return js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
				Name: logStream, Subjects: []string{logPrefix + ">"}, Storage: jetstream.FileStorage, Replicas: replicas,
				AllowDirect: true, Compression: jetstream.S2Compression, Discard: jetstream.DiscardNew, MaxBytes: most,
			})
		})
	if err != nil {
		return fmt.Errorf("open stream %s: %w", logStream, err)
	}
	s.part = partSize
	if most := int(s.conn.MaxPayload()); most > 0 {
		s.part = max(headroom, min(partSize, most-headroom))
	}
	return nil
}

// Room returns ErrNoRoom, ErrShare or ErrDiskFull when there is no room for a session of a node
// that begins.
func (s *Store) Room(ctx context.Context, node string) error {
	if err := s.Full(); err != nil {
		return err
	}
	if err := s.fitsShare(ReplicaID{Node: node}, leastRoom); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, writeBound)
	defer cancel()
	info, err := s.events.Info(ctx)
	if err != nil {
		return fmt.Errorf("ask how full the log is: %w", err)
	}
	if most := info.Config.MaxBytes; most > 0 && info.State.Bytes+leastRoom > uint64(most) {
		return ErrNoRoom
	}
	return nil
}

// End returns where a replica ends.
func (s *Store) End(ctx context.Context, id ReplicaID) (Place, error) {
	ctx, cancel := context.WithTimeout(ctx, writeBound)
	defer cancel()
	m, err := s.events.GetLastMsgForSubject(ctx, logPrefix+id.key())
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return Place{}, nil
	}
	if err != nil {
		return Place{}, fmt.Errorf("read the end of a replica: %w", err)
	}
	h, err := parseHead(m)
	if err != nil {
		return Place{}, err
	}
	p := Place{Last: h.last, Size: h.size, at: m.Sequence}
	if h.part < h.parts { // whoever wrote it ended: the batch begins again with its first part
		p.Last = h.prev
	}
	return p, nil
}

// Append adds a batch to the replica that ends at a place, and returns where it ends then. It
// fails with ErrMoved when it does not end there. After any failure its end must be read again.
func (s *Store) Append(ctx context.Context, id ReplicaID, at Place, b Batch) (Place, error) {
	parts := (len(b.Lines) + s.part - 1) / s.part
	switch {
	case b.First <= at.Last || b.Last < b.First || len(b.Lines) < 2:
		return at, fmt.Errorf("events %d to %d cannot stand behind event %d", b.First, b.Last, at.Last)
	case parts > maxParts:
		return at, fmt.Errorf("events %d to %d have %d bytes, which is more than a replica takes at once", b.First, b.Last, len(b.Lines))
	}
	if err := s.room.fits(len(b.Lines)); err != nil {
		return at, err
	}
	size := uint64(len(b.Lines) + parts*messageSize)
	if err := s.fitsShare(id, at.Size+size); err != nil {
		return at, err
	}
	next := Place{Last: b.Last, Size: at.Size + size, at: at.at}
	for i := range parts {
		m := nats.NewMsg(logPrefix + id.key())
		m.Data = b.Lines[i*s.part : min(len(b.Lines), (i+1)*s.part)]
		number := func(name string, n uint64) { m.Header.Set(name, strconv.FormatUint(n, 10)) }
		m.Header.Set(headNode, id.Node)
		number(headEpoch, id.Epoch)
		number(headFirst, b.First)
		number(headLast, b.Last)
		number(headPrev, at.Last)
		number(headSize, next.Size)
		if parts > 1 {
			m.Header.Set(headPart, fmt.Sprintf("%d/%d", i+1, parts))
		}
		if b.Gap {
			m.Header.Set(headGap, "1")
		}
		var err error
		if next.at, err = s.publish(ctx, m, next.at); err != nil {
			return at, err
		}
	}
	s.shares.grown(id, next.Size)
	return next, nil
}

// publish adds a message to the log behind the one of its subject that is numbered last.
func (s *Store) publish(ctx context.Context, m *nats.Msg, last uint64) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, writeBound)
	defer cancel()
	ack, err := s.js.PublishMsg(ctx, m, jetstream.WithExpectLastSequencePerSubject(last))
	if err == nil {
		return ack.Sequence, nil
	}
	if err = writeError(err); errors.Is(err, errChanged) {
		return 0, ErrMoved
	}
	if e, ok := errors.AsType[*jetstream.APIError](err); ok && e.ErrorCode == errCodeStoreFailed && strings.Contains(e.Description, "maximum bytes") {
		return 0, ErrNoRoom
	}
	return 0, err
}

// head is what a message of the log says of itself.
type head struct {
	first, last, prev uint64
	part, parts       int
	gap               bool
	size              uint64
}

func parseHead(m *jetstream.RawStreamMsg) (head, error) {
	h := head{part: 1, parts: 1, gap: m.Header.Get(headGap) != ""}
	var err error
	for name, n := range map[string]*uint64{headFirst: &h.first, headLast: &h.last, headPrev: &h.prev} {
		if *n, err = strconv.ParseUint(m.Header.Get(name), 10, 64); err != nil {
			return h, fmt.Errorf("message %d of the log is not one of this version: header %s", m.Sequence, name)
		}
	}
	h.size, _ = strconv.ParseUint(m.Header.Get(headSize), 10, 64) // 0 of earlier versions
	if p := m.Header.Get(headPart); p != "" {
		if _, err := fmt.Sscanf(p, "%d/%d", &h.part, &h.parts); err != nil || h.part < 1 || h.part > h.parts || h.parts > maxParts {
			return h, fmt.Errorf("message %d of the log is not one of this version: header %s", m.Sequence, headPart)
		}
	}
	return h, nil
}

// message returns the first message of a subject that is numbered from or later, with nil for none.
func (s *Store) message(ctx context.Context, subject string, from uint64) (*jetstream.RawStreamMsg, head, error) {
	ctx, cancel := context.WithTimeout(ctx, writeBound)
	defer cancel()
	m, err := s.events.GetMsg(ctx, from, jetstream.WithGetMsgSubject(subject))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, head{}, nil
	}
	if err != nil {
		return nil, head{}, fmt.Errorf("read a replica: %w", err)
	}
	h, err := parseHead(m)
	return m, h, err
}

// seek returns the first message whose last event is behind after, nil for none. The numbers
// of events grow with those of messages, so it is looked for by halves.
func (s *Store) seek(ctx context.Context, subject string, after uint64) (*jetstream.RawStreamMsg, head, error) {
	found, h, err := s.message(ctx, subject, 1)
	if err != nil || found == nil || h.last > after {
		return found, h, err
	}
	low := found.Sequence + 1
	bound, cancel := context.WithTimeout(ctx, writeBound)
	defer cancel()
	found, err = s.events.GetLastMsgForSubject(bound, subject)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, h, nil
	}
	if err == nil {
		h, err = parseHead(found)
	}
	if err != nil || h.last <= after {
		return nil, h, err
	}
	for high := found.Sequence; low < high; {
		middle := low + (high-low)/2
		m, mh, err := s.message(ctx, subject, middle)
		switch {
		case err != nil:
			return nil, h, err
		case m == nil || m.Sequence >= found.Sequence:
			high = middle
		case mh.last > after:
			found, h, high = m, mh, middle
		default:
			low = m.Sequence + 1
		}
	}
	return found, h, nil
}

// Batches yields what a replica has behind an event, in order and up to what there is now. The
// first batch may begin earlier. One of which parts are missing was not written whole, and is
// written again later or never. An error is the last that is yielded.
func (s *Store) Batches(ctx context.Context, id ReplicaID, after uint64) iter.Seq2[Batch, error] {
	return func(yield func(Batch, error) bool) {
		subject := logPrefix + id.key()
		var parts []byte // of the batch that is being read
		have, read := 0, uint64(0)
		m, h, err := s.seek(ctx, subject, after)
		for ; err == nil && m != nil; m, h, err = s.message(ctx, subject, m.Sequence+1) {
			read = m.Sequence
			if h.part == 1 {
				parts, have = nil, 0
			}
			if have++; h.part != have {
				continue // the beginning of it is not there
			}
			b := Batch{First: h.first, Last: h.last, Gap: h.gap, Lines: m.Data}
			if h.parts > 1 {
				parts = append(parts, m.Data...)
				b.Lines = parts
			}
			if h.part == h.parts && !yield(b, nil) {
				return
			}
		}
		if err == nil && read > 0 {
			if m, _, err = s.message(ctx, subject, read); err == nil && (m == nil || m.Sequence != read) {
				err = ErrRemoved
			}
		}
		if err != nil {
			yield(Batch{}, err)
		}
	}
}

// ErrRemoved says that a replica was removed while it was read: what was read is not all of it.
var ErrRemoved = errors.New("the copy of the session was removed while it was read")

// Oldest returns the number of the oldest event of a replica, 0 for none.
func (s *Store) Oldest(ctx context.Context, id ReplicaID) (uint64, error) {
	_, h, err := s.message(ctx, logPrefix+id.key(), 1)
	return h.first, err
}

// dropLog removes the events of a replica.
func (s *Store) dropLog(ctx context.Context, id ReplicaID) error {
	if err := s.events.Purge(ctx, jetstream.WithPurgeSubject(logPrefix+id.key())); err != nil {
		return fmt.Errorf("remove a replica: %w", err)
	}
	return nil
}
