package viewer

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/version"
	"sandboxagent.dev/sandbox-agent/runtime/journal"
)

// plain is a session with one reader.
type plain struct {
	log  *journal.Log
	feed *Feed
}

func newPlain(t *testing.T) *plain {
	log, err := journal.Open("", journal.Options{Memory: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	return &plain{log: log}
}

func (s *plain) ID() string                                { return "s" }
func (s *plain) Log() *journal.Log                         { return s.log }
func (s *plain) Flush()                                    { s.feed.Showing(func() { _ = s.log.Flush() }) }
func (s *plain) Enter() bool                               { return true }
func (s *plain) Exit()                                     {}
func (s *plain) Join(f *Feed, _ uint64) []uint64           { s.feed = f; return nil }
func (s *plain) OpenAsk(uint64) (e journal.Entry, ok bool) { return e, false }
func (s *plain) Leave(*Feed)                               {}
func (s *plain) BesideLog() version.About                  { return version.About{} }

// reading is a client that reads a stream as transports do.
type reading struct {
	c    *Client
	st   acp.Stream
	room func() bool // what is pushed can be written

	mu     sync.Mutex
	got    [][]byte
	pushed int
	pump   sync.WaitGroup
	came   chan struct{} // after each event that was read
}

func newReading(t *testing.T, s Session, shape acp.Shape, room func() bool) *reading {
	t.Helper()
	c := NewClient("c", 1, Capabilities{}, shape, nil, NewUnread(0))
	r := &reading{c: c, room: room, came: make(chan struct{}, 1)}
	if !c.Attach(s, 0, 0) {
		t.Fatal("the session is gone")
	}
	key := ""
	if shape == acp.PerSession {
		key = s.ID()
	}
	st, err := c.Stream(key, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.st = st
	st.Push(r.push)
	t.Cleanup(func() {
		st.Close()
		c.Close()
		r.pump.Wait()
	})
	return r
}

// run polls whenever the stream wakes its own goroutine.
func (r *reading) run(t *testing.T) {
	r.pump.Go(func() {
		for {
			select {
			case <-r.st.Wake():
				r.poll(t)
			case <-r.st.Done():
				return
			}
		}
	})
}

func (r *reading) poll(t *testing.T) {
	r.mu.Lock()
	defer r.mu.Unlock()
	events, err := r.st.Poll(8 << 10)
	if err != nil {
		t.Error(err)
	}
	r.take(events)
}

func (r *reading) take(events []acp.Event) {
	for _, e := range events {
		r.got = append(r.got, bytes.Clone(e.Frame))
	}
	r.st.Written()
	if len(events) > 0 {
		select {
		case r.came <- struct{}{}:
		default:
		}
	}
}

func (r *reading) push() bool {
	if !r.mu.TryLock() {
		return false
	}
	defer r.mu.Unlock()
	if !r.room() {
		return false
	}
	events, more, err := r.st.PollSmall(2 << 10)
	if err != nil {
		return false
	}
	r.pushed += len(events)
	r.take(events)
	return !more
}

// await waits until n events were read.
func (r *reading) await(t *testing.T, n int) [][]byte {
	t.Helper()
	late := time.After(20 * time.Second)
	for {
		r.mu.Lock()
		got := r.got
		r.mu.Unlock()
		if len(got) >= n {
			return got
		}
		select {
		case <-r.came:
		case <-late:
			t.Fatalf("%d of %d events came: nobody writes the rest", len(got), n)
		}
	}
}

// Whoever makes events, and whoever writes them: each is written once, in order, and none is
// left lying until the next one comes.
func TestStream_PushedOrWoken(t *testing.T) {
	for name, shape := range map[string]acp.Shape{"one stream": acp.OneStream, "a stream for each session": acp.PerSession} {
		t.Run(name, func(t *testing.T) {
			s := newPlain(t)
			r := newReading(t, s, shape, func() bool { return rand.IntN(4) > 0 })
			r.run(t)
			const writers, each = 3, 600
			var all sync.WaitGroup
			for w := range writers {
				all.Go(func() {
					for i := range each {
						size := []int{0, 0, 0, 300, 3000}[rand.IntN(5)]
						frame := fmt.Appendf(nil, `{"w":%d,"i":%06d,"x":"%s"}`, w, i, bytes.Repeat([]byte("x"), size))
						if shape == acp.OneStream && i%10 == 9 { // of no session
							r.c.Post(journal.Notice, frame)
							continue
						}
						s.log.Append(journal.Update, journal.Everyone, frame)
						if rand.IntN(3) == 0 && i%10 != 8 && i < each-1 {
							continue // shown with the next
						}
						s.Flush()
						runtime.Gosched() // what was made so far is read, now and then
					}
				})
			}
			all.Wait()
			got := r.await(t, writers*each)
			next := map[string]int{}
			for _, frame := range got {
				var w, i int
				if _, err := fmt.Sscanf(string(frame), `{"w":%d,"i":%d,`, &w, &i); err != nil {
					t.Fatal(err)
				}
				kind := fmt.Sprint(w, shape == acp.OneStream && i%10 == 9) // those of no session have a log of their own
				if last, ok := next[kind]; ok && i <= last {
					t.Fatalf("writer %d: event %d came behind %d", w, i, last)
				}
				next[kind] = i
			}
			if len(got) != writers*each {
				t.Errorf("%d events came", len(got))
			}
			// Whoever comes first writes, so in one run all may be written by one of the two.
			pushed := func() int { r.mu.Lock(); defer r.mu.Unlock(); return r.pushed }
			for more := len(got) + 1; pushed() == 0; more++ {
				s.log.Append(journal.Update, journal.Everyone, []byte(`{}`))
				s.Flush()
				r.await(t, more)
			}
		})
	}
}

// What waits, or is large, is left to the stream's own goroutine: who makes events must not
// take the time for it.
func TestStream_PushesSmallEventsOnly(t *testing.T) {
	s := newPlain(t)
	roomy := false
	r := newReading(t, s, acp.OneStream, func() bool { return roomy })
	settle := func() { // as its own goroutine does when it is woken
		for {
			select {
			case <-r.st.Wake():
				r.poll(t)
			default:
				return
			}
		}
	}
	settle()
	show := func(n, size int) {
		for range n {
			s.log.Append(journal.Update, journal.Everyone, fmt.Appendf(nil, `{"x":"%s"}`, bytes.Repeat([]byte("x"), size)))
		}
		s.Flush()
	}
	count := 0
	for _, step := range []struct {
		name    string
		n, size int
		room    bool
		pushed  int
	}{
		{"small", 1, 100, true, 1},
		{"a few", 4, 100, true, 4},
		{"no room", 1, 100, false, 0},
		{"many", fewEntries + 1, 10, true, 0},
		{"large", 1, 5000, true, 0},
		{"large in all", 4, 900, true, 0},
		{"small again", 2, 10, true, 2},
	} {
		before := r.pushed
		roomy = step.room
		show(step.n, step.size)
		if got := r.pushed - before; got != step.pushed {
			t.Errorf("%s: %d events were pushed, want %d", step.name, got, step.pushed)
		}
		settle()
		if count += step.n; len(r.got) != count {
			t.Fatalf("%s: %d of %d events came", step.name, len(r.got), count)
		}
	}
	large := 0
	r.st.Room(func(bytes int) error { large = bytes; return nil })
	show(1, 1<<20)
	settle()
	if len(r.got) != count+1 || large < 1<<20 {
		t.Errorf("%d events came, room was asked for %d bytes", len(r.got), large)
	}
}

// A connection that breaks and comes back, and the end of all,
// while others write: what comes on the streams that count has no gap and nothing twice.
func TestStream_TakenOverWhilePushed(t *testing.T) {
	s := newPlain(t)
	c := NewClient("c", 1, Capabilities{}, acp.Inline, nil, NewUnread(0))
	if !c.Attach(s, 0, 0) {
		t.Fatal("the session is gone")
	}
	var (
		mu      sync.Mutex // guards what follows
		current acp.Stream // what another one writes is lost with its connection
		last    uint64
		pumps   sync.WaitGroup
	)
	came := make(chan struct{}, 1)
	take := func(st acp.Stream, events []acp.Event) {
		mu.Lock()
		defer mu.Unlock()
		for _, e := range events {
			if st != current {
				return
			}
			if e.ID != last+1 {
				t.Errorf("event %d comes behind %d", e.ID, last)
			}
			last = e.ID
		}
		select {
		case came <- struct{}{}:
		default:
		}
	}
	open := func() {
		mu.Lock()
		current = nil
		after := last
		mu.Unlock()
		st, err := c.Stream("", &after)
		if err != nil {
			t.Error(err)
			return
		}
		mu.Lock()
		current = st
		mu.Unlock()
		var polling sync.Mutex
		st.Push(func() bool {
			if !polling.TryLock() {
				return false
			}
			defer polling.Unlock()
			events, more, err := st.PollSmall(2 << 10)
			if err != nil {
				return false
			}
			take(st, events)
			st.Written()
			return !more
		})
		pumps.Go(func() {
			defer st.Close()
			for {
				select {
				case <-st.Wake():
					polling.Lock()
					events, err := st.Poll(4 << 10)
					if err != nil {
						t.Error(err)
					}
					take(st, events)
					st.Written()
					polling.Unlock()
				case <-st.Done():
					return
				}
			}
		})
	}
	const writers, each = 2, 1500
	var all sync.WaitGroup
	for range writers {
		all.Go(func() {
			for i := range each {
				s.log.Append(journal.Update, journal.Everyone, fmt.Appendf(nil, `{"x":"%s"}`, bytes.Repeat([]byte("x"), rand.IntN(900))))
				s.Flush()
				if i%3 == 0 {
					runtime.Gosched()
				}
			}
		})
	}
	for range 60 {
		open()
		<-came // something was read of it, or before
	}
	all.Wait()
	for {
		mu.Lock()
		n := last
		mu.Unlock()
		if n == writers*each {
			break
		}
		select {
		case <-came:
		case <-time.After(20 * time.Second):
			t.Fatalf("%d of %d events came: nobody writes the rest", n, writers*each)
		}
	}
	for range writers { // nobody is there any more
		all.Go(func() {
			for range each {
				s.log.Append(journal.Update, journal.Everyone, []byte(`{}`))
				s.Flush()
			}
		})
	}
	c.Close()
	all.Wait()
	pumps.Wait()
}

// What was shown by who panicked then is written all the same, and what comes after it.
func TestStream_ShownByWhoPanics(t *testing.T) {
	s := newPlain(t)
	r := newReading(t, s, acp.OneStream, func() bool { return false })
	r.run(t)
	add := func() { s.log.Append(journal.Update, journal.Everyone, []byte(`{}`)) }
	func() {
		defer func() { _ = recover() }()
		add()
		s.feed.Showing(func() {
			_ = s.log.Flush()
			panic("spoilt")
		})
	}()
	r.await(t, 1)
	add()
	if err := s.log.Flush(); err != nil {
		t.Fatal(err)
	}
	r.await(t, 2)
}

// A stream that has fallen behind is not read by who makes events.
func TestStream_PushFindsWhatWaits(t *testing.T) {
	s := newPlain(t)
	c := NewClient("c", 1, Capabilities{}, acp.OneStream, nil, NewUnread(0))
	defer c.Close()
	if !c.Attach(s, 0, 0) {
		t.Fatal("the session is gone")
	}
	st, err := c.Stream("", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	add := func(size int) {
		s.log.Append(journal.Update, journal.Everyone, bytes.Repeat([]byte("x"), size))
		s.Flush()
	}
	add(10)
	add(4000)
	add(10)
	for _, want := range []struct {
		events int
		more   bool
	}{{0, true}, {0, true}} {
		if events, more, err := st.PollSmall(2 << 10); err != nil || len(events) != want.events || more != want.more {
			t.Errorf("%d events, more %v, %v; want %+v", len(events), more, err, want)
		}
	}
	if events, err := st.Poll(64 << 10); err != nil || len(events) != 3 {
		t.Errorf("then %d events, %v", len(events), err)
	}
	if events, more, err := st.PollSmall(2 << 10); err != nil || len(events) != 0 || more {
		t.Errorf("behind all: %d events, more %v, %v", len(events), more, err)
	}
}
