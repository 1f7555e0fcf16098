package main_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"syscall"
	"testing"

	"sandboxagent.dev/sandbox-agent/internal/agentcache"
	"sandboxagent.dev/sandbox-agent/internal/reliability/figure"
)

// burst is the number of updates in one turn of the streaming tests.
func burst() int {
	switch {
	case testing.Short():
		return 5_000
	case agentcache.IsLong():
		return flood
	}
	return 40_000
}

// flood is the number of updates that is more than a connection which nobody reads holds.
const flood = 100_000

// bytesPerUpdate is about what one update of `stream` takes on the wire; the
// places of cuts are spread over it.
const bytesPerUpdate = 170

func TestStream_CompleteInOrderOnce(t *testing.T) {
	for _, kind := range dialects {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			g := startGateway(t)
			c := connect(t, g, kind, options{})
			s := c.newSession()
			turn := c.start("session/prompt", promptParams(s, fmt.Sprintf("stream %d", burst())))
			c.awaitChunks(s, 0, burst())
			r, err := c.wait(turn)
			if err != nil || stopReason(t, r) != "end_turn" {
				t.Fatalf("the turn ended with %s, %v", r, err)
			}
		})
	}
}

func TestStream_ResultFollowsItsUpdates(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	for _, kind := range dialects {
		t.Run(string(kind), func(t *testing.T) {
			c := connect(t, g, kind, options{})
			s := c.newSession()
			for range 50 {
				from := c.mark()
				c.prompt(s, "stream 20")
				// wait has returned after the event that the response names, so
				// nothing more needs to be awaited.
				n := &counter{session: s, pos: from}
				n.count(c, c.messages())
				if n.next != 20 {
					t.Fatalf("%d of 20 updates precede the result", n.next)
				}
			}
		})
	}
}

func TestStream_ReconnectByLastEventID(t *testing.T) {
	for _, kind := range []dialect{inline, standard} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			const breaks = 20
			g := startGateway(t)
			c := connect(t, g, kind, options{cuts: randomCuts(t, breaks, burst()*bytesPerUpdate)})
			s := c.newSession()
			turn := c.start("session/prompt", promptParams(s, fmt.Sprintf("stream %d", burst())))
			c.awaitChunks(s, 0, burst())
			if r, err := c.wait(turn); err != nil || stopReason(t, r) != "end_turn" {
				t.Fatalf("the turn ended with %s, %v", r, err)
			}
			if c.drops.Load() < breaks/2 {
				t.Errorf("only %d breaks happened", c.drops.Load())
			}
		})
	}
}

func TestStream_ReconnectByResumeAfter(t *testing.T) {
	turns := figure.Asked(t, "TURNS", 1)
	for _, kind := range dialects {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			g := startGateway(t)
			cuts := 0
			for range turns {
				cuts += reconnectByResumeAfter(t, g, kind)
			}
			figure.Done(t, turns*burst(), "updates")
			figure.Done(t, cuts, "cuts")
		})
	}
}

// reconnectByResumeAfter streams one turn over connections that break, and returns
// how many of them did.
func reconnectByResumeAfter(t *testing.T, g *gateway, kind dialect) (broken int) {
	t.Helper()
	const breaks = 20
	asker := connect(t, g, inline, options{})
	s := asker.newSession()
	after := uint64(0)
	for _, e := range g.events(s) {
		after = e.Seq
	}
	turn := asker.start("session/prompt", promptParams(s, fmt.Sprintf("stream %d", burst())))

	// Each connection breaks in the middle of something; the next one
	// continues after the last message that arrived complete.
	cuts := randomCuts(t, breaks, burst()*(bytesPerUpdate+60))
	n := &counter{session: s}
	for round := 0; n.next < burst(); round++ {
		o := options{eventIDs: true}
		if round < breaks {
			o.cuts = []int{cuts[round] + 8000} // beyond initialize
		}
		c := watch(t, g, kind, o)
		n.pos = 0
		if err := c.try(s, after); err == nil {
			c.untilClosed(func() bool {
				n.count(c, c.inbox)
				return n.next >= burst()
			})
		}
		c.abandon()
		n.count(c, c.messages())
		if round < breaks && n.next < burst() {
			broken++
		}
		for _, m := range c.messages() {
			if p := m.params(); p.Meta.Gateway.Seq > 0 && p.SessionID == s {
				if p.Meta.Gateway.Seq <= after {
					t.Fatalf("%s: sequence number %d after %d", kind, p.Meta.Gateway.Seq, after)
				}
				after = p.Meta.Gateway.Seq
			}
		}
	}
	if r, err := asker.wait(turn); err != nil || stopReason(t, r) != "end_turn" {
		t.Fatalf("the turn ended with %s, %v", r, err)
	}
	asker.must("session/delete", map[string]any{"sessionId": s})
	asker.close()
	return broken
}

// watch opens a connection whose event stream is not opened again when it breaks.
func watch(t *testing.T, g *gateway, kind dialect, o options) *client {
	t.Helper()
	c := connect(t, g, kind, o)
	c.mu.Lock()
	c.once = true
	c.mu.Unlock()
	return c
}

// try resumes a session and returns an error when the connection broke first.
func (c *client) try(session string, after uint64) error {
	c.t.Helper()
	p := map[string]any{
		"sessionId": session, "cwd": "/", "mcpServers": []any{},
		"_meta": map[string]any{"sandboxagent.dev": map[string]any{"after": after}},
	}
	m := c.response(c.start("session/resume", p))
	if m.Error != nil {
		return m.Error
	}
	return nil
}

// untilClosed waits for ok or for the end of the connection.
func (c *client) untilClosed(ok func() bool) {
	c.t.Helper()
	c.until(func() bool { return ok() || c.closed != nil }, "the end of the stream")
}

// TestStream_OthersComeAndGo: what is little is written to the only reader of a session by
// who made it, and to several by the goroutine of each. Between the two nothing is lost.
func TestStream_OthersComeAndGo(t *testing.T) {
	const rounds, turns, chunks = 6, 20, 3
	for _, kind := range dialects {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			g := startGateway(t)
			c := connect(t, g, kind, options{})
			s := c.newSession()
			for round := range rounds {
				var ends []<-chan message
				for range turns {
					ends = append(ends, c.start("session/prompt", promptParams(s, fmt.Sprintf("stream %d", chunks))))
				}
				other := connect(t, g, dialects[round%len(dialects)], options{})
				other.attach("session/resume", s, nil)
				if round%2 == 0 { // it leaves while others wait
					other.close()
				}
				for _, end := range ends {
					if r, err := c.wait(end); err != nil || stopReason(t, r) != "end_turn" {
						t.Fatalf("the turn ended with %s, %v", r, err)
					}
				}
				if round%2 == 1 {
					c.prompt(s, fmt.Sprintf("stream %d", chunks))
					other.until(func() bool { return inTurn(t, s, chunks, other.inbox) > 0 }, "a turn that began behind it")
					other.close()
				}
			}
			want := (rounds*turns + rounds/2) * chunks
			c.until(func() bool { return inTurn(t, s, chunks, c.inbox) >= want }, "%d chunks", want)
			if got := inTurn(t, s, chunks, c.messages()); got != want {
				t.Errorf("%d chunks, want %d", got, want)
			}
		})
	}
}

// inTurn counts the chunks of a session's turns, each of so many, which must come in order;
// the first may be one in the middle.
func inTurn(t *testing.T, session string, of int, in []message) (n int) {
	t.Helper()
	next := 0
	for i := range in {
		text, ok := in[i].chunk(session)
		if !ok {
			continue
		}
		got, err := strconv.Atoi(number.FindString(text))
		if err != nil || n > 0 && got != next%of {
			t.Fatalf("chunk %q follows number %d", text, next-1)
		}
		next = got + 1
		n++
	}
	return n
}

func TestStream_StalledReaderDisturbsNobody(t *testing.T) {
	for _, kind := range dialects {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			g := startGateway(t)
			c := connect(t, g, kind, options{})
			s := c.newSession()
			// The other one attaches to the session and never reads.
			idle := connect(t, g, inline, options{noStream: true})
			idle.attach("session/resume", s, nil)
			idle.rawStream("")
			turn := c.start("session/prompt", promptParams(s, fmt.Sprintf("stream %d", flood)))
			c.awaitChunks(s, 0, flood)
			if r, err := c.wait(turn); err != nil || stopReason(t, r) != "end_turn" {
				t.Fatalf("the turn ended with %s, %v", r, err)
			}
		})
	}
}

func TestKill_NothingSeenIsLost(t *testing.T) {
	kills := figure.Asked(t, "KILLS", 1)
	for _, kind := range dialects {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			for range kills {
				if !t.Run("", func(t *testing.T) { killInAStream(t, kind) }) {
					return
				}
			}
			figure.Done(t, kills, "kills of the gateway")
		})
	}
}

// killInAStream kills a gateway while it streams to a client, and compares what
// the client had seen with what is there afterwards.
func killInAStream(t *testing.T, kind dialect) {
	t.Helper()
	g := startGateway(t)
	c := connect(t, g, kind, options{eventIDs: true})
	s := c.newSession()
	c.prompt(s, "hello")
	turn := c.start("session/prompt", promptParams(s, fmt.Sprintf("stream %d", 20*flood)))
	n := &counter{session: s, pos: c.mark()}
	c.until(func() bool {
		n.count(c, c.inbox)
		return n.next > burst()/10
	}, "the middle of the stream")
	old := g.generation()
	g.kill(syscall.SIGKILL)
	c.response(turn) // an error made by the client
	c.abandon()

	g.restart()
	g.awaitNoProcess(old)
	log := g.events(s)
	bySeq := map[uint64]json.RawMessage{}
	for _, e := range log {
		bySeq[e.Seq] = e.Message
	}
	seen := 0
	var last uint64
	for _, m := range c.messages() {
		p := m.params()
		if p.SessionID != s {
			continue
		}
		if p.Meta.Gateway.Seq <= last {
			t.Fatalf("sequence number %d after %d in %.300s", p.Meta.Gateway.Seq, last, m.raw)
		}
		last = p.Meta.Gateway.Seq
		kept, ok := bySeq[last]
		if !ok {
			t.Fatalf("event %d was seen by the client and is not in the log of %d events", last, len(log))
		}
		var k message
		if err := json.Unmarshal(kept, &k); err != nil || !sameUpdate(m.Params, k.Params) {
			t.Fatalf("event %d was seen as %s and is kept as %s", last, m.raw, kept)
		}
		seen++
	}
	if seen < burst()/10 {
		t.Fatalf("the client saw %d events with sequence numbers, want at least %d", seen, burst()/10)
	}
	if list := g.get("/v2/sessions", nil); !bytes.Contains(list, []byte(`"`+s+`"`)) {
		t.Errorf("the session is not listed: %s", list)
	}

	// Continue in the middle of what was seen: what follows arrives
	// without gap or double.
	half := last / 2
	c = connect(t, g, kind, options{eventIDs: true})
	c.attach("session/resume", s, &half)
	want := 0 // updates in the log after half
	for _, e := range log {
		if e.Seq > half && bytes.Contains(e.Message, []byte(`"agent_message_chunk"`)) {
			want++
		}
	}
	updates, pos, prev := 0, 0, half
	c.until(func() bool {
		for ; pos < len(c.inbox); pos++ {
			m := &c.inbox[pos]
			p := m.params()
			if p.SessionID != s {
				continue
			}
			if p.Meta.Gateway.Seq <= prev {
				t.Fatalf("sequence number %d after %d", p.Meta.Gateway.Seq, prev)
			}
			prev = p.Meta.Gateway.Seq
			if _, ok := m.chunk(s); ok {
				updates++
			}
		}
		return updates >= want
	}, "%d updates", want)
	if updates != want {
		t.Errorf("%d updates follow event %d, want %d", updates, half, want)
	}

	from := c.mark()
	if r := c.prompt(s, "stream 10"); r != "end_turn" {
		t.Errorf("the next prompt ended with %s", r)
	}
	c.awaitChunks(s, from, 10)
	fresh := g.events(s)
	if end := fresh[len(fresh)-1].Seq; end <= log[len(log)-1].Seq {
		t.Errorf("sequence numbers went back from %d to %d", log[len(log)-1].Seq, end)
	}
}

// sameUpdate compares the updates, or all else but _meta, of two params.
func sameUpdate(a, b json.RawMessage) bool {
	norm := func(raw json.RawMessage) string {
		var m map[string]any
		if json.Unmarshal(raw, &m) != nil {
			return string(raw)
		}
		delete(m, "_meta")
		out, _ := json.Marshal(m)
		return string(out)
	}
	return norm(a) == norm(b)
}
