package memory

import (
	"cmp"
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	patience = 5 * time.Second // for room
	look     = time.Second     // between two looks at who moves
	slowest  = 64 << 10        // bytes between two looks: who moves fewer stands still
	small    = 256 << 10       // bytes that nobody waits for because of large messages
)

// ErrFull means that others hold all the memory, and move.
var ErrFull = errors.New("the messages of clients take all the memory that they may have")

// ErrEnded means that the share was ended, because its holder stood still.
var ErrEnded = errors.New("ended while it stood still, for the memory that it held")

// Bound is memory for messages. It is safe for concurrent use. Of a nil Bound all shares are
// nil.
type Bound struct {
	most   int64 // bytes; 0 is no bound
	used   atomic.Int64
	spare  atomic.Int64 // taken of what is kept for small messages, beside used
	wanted atomic.Int64 // by those who wait for room

	mu     sync.Mutex
	shares map[*Share]bool
	looked time.Time     // when all were looked at
	room   chan struct{} // closed, and replaced, when memory comes back while somebody waits
}

// NewBound returns a bound of so many bytes, 0 is none.
func NewBound(most int64) *Bound {
	return &Bound{most: most, shares: map[*Share]bool{}, room: make(chan struct{})}
}

// Fits reports whether n bytes are not more than there are in all.
func (b *Bound) Fits(n int) bool { return b.most <= 0 || int64(n) <= b.limit(int64(n)) }

// Used returns how many bytes are taken.
func (b *Bound) Used() int64 { return b.used.Load() + b.spare.Load() }

// Share is what one holder has of a bound. A nil Share has no bound. Take is for one
// goroutine at a time; the others are safe for concurrent use.
type Share struct {
	b    *Bound
	end  func()
	held atomic.Int64
	kept atomic.Int64 // the part of held that is of the bound's spare
	come atomic.Int64 // bytes that it has moved
	wait atomic.Bool  // for room
	over atomic.Bool  // end was called
	uses atomic.Int64 // how often it came to hold nothing

	seen use // at the last look; guarded by b.mu
}

// use is what a share does, as a look sees it. Who holds something at two looks in one use
// has held it all the time between them.
type use struct {
	number int64
	come   int64
	holds  bool
}

// Open returns a share that holds nothing. end ends what its holder does, such as a write
// that its client does not read; it must not wait. It is called once at most, and not
// after Close has returned. Without end the share is left alone.
func (b *Bound) Open(end func()) *Share {
	if b == nil {
		return nil
	}
	s := &Share{b: b, end: end}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.shares[s] = true
	return s
}

// Close gives everything back.
func (s *Share) Close() {
	if s == nil {
		return
	}
	s.b.mu.Lock()
	delete(s.b.shares, s)
	s.b.mu.Unlock()
	s.GiveAll()
}

// Ended reports whether the share was ended. It is so before end is called.
func (s *Share) Ended() bool { return s != nil && s.over.Load() }

// Moved says that so many bytes came from the client, or went to it.
func (s *Share) Moved(n int) {
	if s != nil {
		s.come.Add(int64(n))
	}
}

// Take takes n bytes, and waits for a moment when there is no room for them. Who wants
// more than there is for large messages gets all of it, once it is alone.
func (s *Share) Take(ctx context.Context, n int) error {
	switch {
	case s == nil:
		return nil
	case s.over.Load():
		return ErrEnded
	}
	b, want := s.b, int64(n)
	if b.most > 0 {
		want = max(min(want, b.limit(want)-s.held.Load()), 0)
	}
	if s.take(want) {
		return nil
	}
	return s.await(ctx, want)
}

// Try takes n bytes if there is room for them.
func (s *Share) Try(n int) bool {
	if s == nil {
		return true
	}
	return !s.over.Load() && s.take(int64(n))
}

// Count takes n bytes that are in memory already, whether there is room or not.
func (s *Share) Count(n int) {
	if s != nil {
		s.b.used.Add(int64(n))
		s.held.Add(int64(n))
	}
}

// limit is what may be taken when n bytes of it are. Large messages leave a quarter to
// small ones.
func (b *Bound) limit(n int64) int64 {
	if n > small {
		return b.most - b.most/4
	}
	return b.most
}

// take takes n bytes if there is room for them. Small messages have another quarter beside
// the bound, for themselves: what turned out to be larger than it was taken for, see
// [Share.Count], does not keep them out, however much it is.
func (s *Share) take(n int64) bool {
	b := s.b
	if b.used.Add(n) > b.limit(n) && b.most > 0 {
		b.used.Add(-n)
		if n > small {
			return false
		}
		if b.spare.Add(n) > b.most/4 {
			b.spare.Add(-n)
			return false
		}
		s.kept.Add(n)
	}
	s.held.Add(n)
	return true
}

// await is Take when there is no room.
func (s *Share) await(ctx context.Context, n int64) error {
	b := s.b
	s.wait.Store(true)
	defer s.wait.Store(false)
	b.wanted.Add(n)
	defer b.wanted.Add(-n)
	late, looks := time.NewTimer(patience), time.NewTicker(look)
	defer late.Stop()
	defer looks.Stop()
	b.look() // what moved long ago does not count
	for {
		b.mu.Lock()
		room := b.room
		b.mu.Unlock()
		if s.take(n) {
			return nil
		}
		select {
		case <-room:
		case <-looks.C:
			b.look()
		case <-late.C:
			return ErrFull
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// look ends shares that stood still since the last look, the largest first, until those
// that are ended hold what is wanted and not there. Who holds something for moments, again
// and again, does not stand still, however little it is. Whoever waits looks; it counts
// once in a while.
func (b *Bound) look() {
	b.mu.Lock()
	defer b.mu.Unlock()
	since := time.Since(b.looked)
	if since < look*9/10 {
		return
	}
	b.looked = time.Now()
	wanted := b.wanted.Load()
	wanted += b.used.Load() - b.limit(wanted) // more than all may have been counted
	var still []*Share
	for s := range b.shares {
		before, now := s.seen, use{number: s.uses.Load(), come: s.come.Load(), holds: s.held.Load() > 0}
		s.seen = now
		held := before.holds && now.holds && before.number == now.number
		switch {
		case s.over.Load():
			wanted -= s.held.Load() // it is coming back
		case held && now.come-before.come < slowest && s.end != nil && !s.wait.Load():
			still = append(still, s)
		}
	}
	if since > 2*look {
		return // nobody has looked when this second began
	}
	slices.SortFunc(still, func(one, other *Share) int { return cmp.Compare(other.held.Load(), one.held.Load()) })
	for _, s := range still {
		if wanted <= 0 {
			return
		}
		wanted -= s.held.Load()
		s.over.Store(true)
		s.end()
	}
}

// Gather reads src to its end, and takes memory as it comes: first of it before anything did, and no more than most. The
// error wraps ErrFull when there is no room; what was read is returned with it. With a nil share there is no bound.
func (s *Share) Gather(ctx context.Context, src io.Reader, first, most int) ([]byte, error) {
	var b []byte
	for {
		if len(b) == cap(b) {
			more := min(max(2*cap(b), first), most)
			if s != nil && !s.b.Fits(more) {
				return b, ErrFull
			}
			if err := s.Take(ctx, more-cap(b)); err != nil {
				return b, errors.Join(ErrFull, err)
			}
			b = append(make([]byte, 0, more), b...)
		}
		n, err := src.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		s.Moved(n)
		if err == io.EOF {
			return b, nil
		}
		if err != nil {
			return b, err
		}
	}
}

// Give gives n bytes back, at most those that it holds.
func (s *Share) Give(n int) {
	if s == nil {
		return
	}
	for {
		held := s.held.Load()
		give := min(held, int64(n))
		if s.held.CompareAndSwap(held, held-give) {
			if give == held {
				s.uses.Add(1)
			}
			s.back(give)
			return
		}
	}
}

// GiveAll gives everything back that it holds.
func (s *Share) GiveAll() {
	if s != nil {
		s.uses.Add(1)
		s.back(s.held.Swap(0))
	}
}

// back gives n bytes, which held has no more, to where they were taken from.
func (s *Share) back(n int64) {
	if n == 0 {
		return
	}
	b := s.b
	for {
		kept := s.kept.Load()
		spare := min(kept, n)
		if s.kept.CompareAndSwap(kept, kept-spare) {
			b.spare.Add(-spare)
			b.used.Add(spare - n)
			break
		}
	}
	if b.wanted.Load() == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.room)
	b.room = make(chan struct{})
}

type key struct{}

// With returns a context whose work takes its memory from the share.
func With(ctx context.Context, s *Share) context.Context { return context.WithValue(ctx, key{}, s) }

// From returns the share that the work of ctx takes its memory from; nil is none.
func From(ctx context.Context) *Share {
	s, _ := ctx.Value(key{}).(*Share)
	return s
}
