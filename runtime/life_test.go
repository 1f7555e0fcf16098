package runtime

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/internal/agentcache"
	"sandboxagent.dev/sandbox-agent/internal/reliability/figure"
)

// person is a client that reads all it is given.
type person struct {
	two  bool // it speaks version 2 of the protocol
	c    acp.Client
	st   acp.Stream
	done chan struct{}

	mu     sync.Mutex
	lastID int
	open   map[acp.ID]string // its requests that were not answered: their methods
	asks   []acp.Message     // requests it was given and has not answered
	seen   uint64            // the event that it was given last
	loads  int               // of the session: each tells it anew
	faults []string
	// answers are those that it was given, where keeps says that somebody reads them.
	keeps   bool
	answers []acp.Message
}

func newPerson(r *Runtime, two bool) (*person, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	hello := `{"protocolVersion":1,"clientCapabilities":{"terminal":true,"_meta":{"sandboxagent.dev":{"eventIds":true}}}}`
	if two {
		hello = `{"protocolVersion":2,"info":{"name":"test","version":"1"},"capabilities":{"_meta":{"sandboxagent.dev":{"eventIds":true}}}}`
	}
	c, _, err := r.Connect(ctx, acp.NewRequest("0", "initialize", []byte(hello)), acp.ConnectOptions{Shape: acp.OneStream})
	if err != nil {
		return nil, err
	}
	p := &person{two: two, c: c, done: make(chan struct{}), open: map[acp.ID]string{}}
	if p.st, err = c.Stream("", nil); err != nil {
		return nil, err
	}
	go p.read()
	return p, nil
}

func (p *person) read() {
	defer close(p.done)
	for {
		select {
		case <-p.st.Wake():
		case <-p.st.Done():
			return
		}
		events, err := p.st.Poll(64 << 10)
		if err != nil {
			return
		}
		p.mu.Lock()
		for _, e := range events {
			m := acp.MustParse(e.Frame)
			switch {
			case m.IsResponse():
				if p.open[m.ID()] == "" {
					p.faults = append(p.faults, "answered twice or unasked: "+string(m.Frame()))
				}
				delete(p.open, m.ID())
				if p.keeps {
					p.answers = append(p.answers, m.Clone())
				}
			case m.IsRequest():
				p.asks = append(p.asks, m.Clone())
			case m.Method() == acp.MethodSessionUpdate:
				raw, _ := rawjson.Member(m.Meta(), acp.MetaKey, "seq")
				seq, _ := strconv.ParseUint(string(raw), 10, 64)
				switch {
				case seq == 0 || seq > p.seen || seq == p.seen && p.two: // in version 2 an event may be several messages
				case p.loads > 0:
					p.loads--
				default:
					p.faults = append(p.faults, fmt.Sprintf("given event %d behind %d", seq, p.seen))
				}
				p.seen = cmp.Or(seq, p.seen)
			case m.Method() == acp.MethodCancelRequest:
				id, _ := rawjson.Member(m.Params(), "requestId")
				p.asks = slices.DeleteFunc(p.asks, func(a acp.Message) bool { return string(a.ID()) == string(id) })
			}
		}
		p.mu.Unlock()
		p.st.Written()
	}
}

func (p *person) close() {
	p.c.Close()
	<-p.done
}

// request sends a request and returns its id.
func (p *person) request(method, params string) acp.ID {
	p.mu.Lock()
	p.lastID++
	if method == acp.MethodSessionLoad {
		p.loads++
		if p.two {
			method, params = acp.MethodSessionResume, string(rawjson.SetMember([]byte(params), []byte(`{"type":"start"}`), "replayFrom"))
		}
	}
	id := acp.IntID(int64(p.lastID))
	select {
	case <-p.c.Done(): // nobody is told any more
	default:
		p.open[id] = method
	}
	p.mu.Unlock()
	_ = p.c.Send(context.Background(), acp.NewRequest(id, method, []byte(params)))
	return id
}

func (p *person) notify(method, params string) {
	_ = p.c.Send(context.Background(), acp.NewNotification(method, []byte(params)))
}

// play is one sequence of events.
type play struct {
	r       *Runtime
	a       *puppet
	people  [2]*person
	session string
	deleted bool
	down    bool
	events  int
	onDisk  bool
	wrong   []string
}

// next counts what people do. What ends a turn counts for the agent.
func (w *play) next(ends bool) int {
	w.events++
	if ends {
		w.a.mu.Lock()
		w.a.ended = w.events
		w.a.mu.Unlock()
	}
	return w.events
}

func (w *play) params(more string) string { return `{"sessionId":"` + w.session + `"` + more + `}` }

// step is an event.
type step struct {
	name string
	do   func(w *play, who *person)
}

var steps = []step{
	{"prompt", func(w *play, who *person) {
		n := w.next(false)
		who.request("session/prompt", w.params(fmt.Sprintf(`,"prompt":[{"type":"text","text":"%d %d"}]`, slices.Index(w.people[:], who), n)))
	}},
	{"cancel", func(w *play, who *person) { who.notify("session/cancel", w.params("")) }},
	{"close", func(w *play, who *person) { who.request("session/close", w.params("")) }},
	{"delete", func(w *play, who *person) {
		w.deleted = true
		for _, p := range w.people { // what its agent keeps may be opened again, and is counted anew
			p.mu.Lock()
			p.loads++
			p.mu.Unlock()
		}
		who.request("session/delete", w.params(""))
	}},
	{"terminate", func(w *play, who *person) { who.request("_sandboxagent/session/terminate", w.params("")) }},
	{"load", func(w *play, who *person) { who.request("session/load", w.params(`,"cwd":"/","mcpServers":[]`)) }},
	{"resume", func(w *play, who *person) { who.request("session/resume", w.params(`,"cwd":"/","mcpServers":[]`)) }},
	{"load otherwise", func(w *play, who *person) { // with settings that it had not
		who.request("session/load", w.params(fmt.Sprintf(`,"cwd":"/","mcpServers":[{"name":"n%d","command":"/bin/true","args":[],"env":[]}]`, who.lastID)))
	}},
	{"mode", func(w *play, who *person) { who.request("session/set_mode", w.params(`,"modeId":"m"`)) }},
	{"withdraw", func(w *play, who *person) {
		who.notify(acp.MethodCancelRequest, fmt.Sprintf(`{"requestId":%d}`, who.lastID))
	}},
	{"disconnect", func(w *play, who *person) {
		i := slices.Index(w.people[:], who)
		who.close()
		who.mu.Lock()
		clear(who.open)
		who.mu.Unlock()
		if p, err := newPerson(w.r, who.two); err == nil {
			w.people[i] = p
		}
	}},
	{"answer", func(w *play, who *person) {
		who.mu.Lock()
		asks := who.asks
		who.asks = nil
		who.mu.Unlock()
		for _, m := range asks {
			result := `{"exitCode":0}`
			if m.Method() == "session/request_permission" {
				result = `{"outcome":{"outcome":"selected","optionId":"o"}}`
			}
			_ = who.c.Send(context.Background(), acp.NewResult(m.ID(), []byte(result)))
		}
	}},
	{"crash", func(w *play, _ *person) { w.a.each(func(c *puppetConn) bool { c.Close(); return true }) }},
	{"slow start", func(w *play, _ *person) { w.a.setSlow(true) }},
	{"start goes on", func(w *play, _ *person) { w.a.setSlow(false) }},
	{"the agent opens", func(w *play, _ *person) {
		w.a.each(func(c *puppetConn) bool { return c.answer(false, "session/load", "session/resume", "session/new") })
	}},
	{"the agent does not open", func(w *play, _ *person) {
		w.a.each(func(c *puppetConn) bool { return c.answer(true, "session/load", "session/resume", "session/new") })
	}},
	{"the agent answers", func(w *play, _ *person) {
		w.a.each(func(c *puppetConn) bool { return c.answer(false, "session/prompt") })
	}},
	{"the agent answers all", func(w *play, _ *person) {
		w.a.each(func(c *puppetConn) bool { return c.answer(false) })
	}},
	{"the agent refuses", func(w *play, _ *person) {
		w.a.each(func(c *puppetConn) bool { return c.answer(true) })
	}},
	{"the agent asks", func(w *play, _ *person) {
		w.a.each(func(c *puppetConn) bool {
			c.ask("session/request_permission", `,"toolCall":{"toolCallId":"t"},"options":[{"optionId":"o","name":"O","kind":"allow_once"}]`)
			return true
		})
	}},
	{"the agent waits", func(w *play, _ *person) {
		w.a.each(func(c *puppetConn) bool { c.ask("terminal/wait_for_exit", `,"terminalId":"t"`); return true })
	}},
	{"the agent withdraws", func(w *play, _ *person) {
		w.a.each(func(c *puppetConn) bool {
			c.say(fmt.Sprintf(`{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":%d}}`, c.nextAsk))
			return true
		})
	}},
	{"the agent calls", func(w *play, _ *person) {
		w.a.each(func(c *puppetConn) bool {
			c.update(`{"sessionUpdate":"tool_call","toolCallId":"c","title":"C","status":"in_progress"}`)
			return true
		})
	}},
	{"the agent talks", func(w *play, _ *person) {
		w.a.each(func(c *puppetConn) bool {
			c.update(`{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"x"}}`)
			return true
		})
	}},
	{"a moment", func(*play, *person) { time.Sleep(3 * time.Second) }},
	{"a while", func(*play, *person) { time.Sleep(40 * time.Second) }},
	{"shutdown", func(w *play, _ *person) {
		if !w.down {
			w.down = true
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			if err := w.r.Shutdown(ctx); err != nil {
				w.wrong = append(w.wrong, "shutdown: "+err.Error())
			}
		}
	}},
}

// playOut lets the events of a seed happen, or those given, and checks what must be
// true after them.
func playOut(t *testing.T, seed uint64, dir string, script []int) (names []string, err error) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 1))
	w := &play{onDisk: dir != "", a: &puppet{
		prompts: map[int]int{},
		caps: []string{
			`{"sessionCapabilities":{"resume":{},"close":{},"delete":{}}}`, `{"loadSession":true,"sessionCapabilities":{"close":{}}}`, `{}`,
		}[rng.IntN(3)],
		alone: rng.IntN(3) == 0,
	}}
	o := Options{Adapters: []adapters.Adapter{w.a}, DefaultAgent: "puppet", Ephemeral: dir == "", DataDir: dir, IdleTimeout: 30 * time.Second, RequestTimeout: 20 * time.Second}
	w.r, err = New(o)
	if err != nil {
		return nil, err
	}
	for i := range w.people {
		if w.people[i], err = newPerson(w.r, i > 0 && seed%2 > 0); err != nil {
			return nil, err
		}
	}
	w.people[0].request("session/new", `{"cwd":"/","mcpServers":[],"_meta":{"sandboxagent.dev":{"requestedSessionId":"s"}}}`)
	w.session = "s"
	synctest.Wait()
	w.a.each(func(c *puppetConn) bool { return c.answer(false, "session/new") })
	synctest.Wait()
	for i := 0; i < 12 && script == nil || i < len(script); i++ {
		n := rng.IntN(len(steps))
		if script != nil {
			n = script[i]
		}
		who := rng.IntN(len(w.people))
		names = append(names, fmt.Sprint(steps[n].name, " ", who))
		if slices.Contains([]string{"cancel", "close", "delete", "terminate", "withdraw", "load otherwise", "disconnect", "a while", "shutdown", "crash"}, steps[n].name) {
			w.next(true)
		}
		steps[n].do(w, w.people[who])
		if rng.IntN(4) > 0 { // else the next one meets it
			synctest.Wait()
		}
	}
	return names, w.finish()
}

// waiting reports whether a client waits for an answer.
func (w *play) waiting() bool {
	return slices.ContainsFunc(w.people[:], func(p *person) bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.open) > 0
	})
}

// answerAll has the agents answer all they were asked, and lets a second pass.
func (w *play) answerAll() {
	synctest.Wait()
	w.a.each(func(c *puppetConn) bool {
		for c.answer(false) {
		}
		return false
	})
	time.Sleep(time.Second)
}

// finish lets everything come to its end and checks that nothing is left.
func (w *play) finish() error {
	var wrong []error
	fail := func(format string, args ...any) { wrong = append(wrong, fmt.Errorf(format, args...)) }
	synctest.Wait()
	w.next(true)
	w.a.setSlow(false)
	for i := 0; i < 40 && (i < 7 || w.waiting()); i++ { // the agent answers what it was asked, and what it was asked then
		synctest.Wait()
		w.a.each(func(c *puppetConn) bool {
			c.update(`{"sessionUpdate":"tool_call_update","toolCallId":"c","status":"completed"}`)
			return false
		})
		w.answerAll()
	}
	synctest.Wait()
	for i, p := range w.people {
		p.mu.Lock()
		for id, method := range p.open {
			fail("client %d was not answered %s %s", i, method, id)
		}
		for _, f := range p.faults {
			fail("client %d was %s", i, f)
		}
		p.mu.Unlock()
	}
	info, err := w.r.Session(w.session)
	known := err == nil
	if known && !w.down {
		switch info.State {
		case StateRunning:
			fail("the session is running, and nobody works")
		case StateDormant, StateClosed, StateEnded:
			if info.Pending > 0 {
				fail("%d requests are open in a session that is %s", info.Pending, info.State)
			}
		}
	}
	// What people are asked is answered in the end.
	for _, p := range w.people {
		for _, s := range steps {
			if s.name == "answer" && !w.down {
				s.do(w, p)
			}
		}
	}
	synctest.Wait()
	if known && !w.down {
		for _, p := range w.people {
			p.request("session/close", w.params(""))
		}
		for i := 0; i < 20 && (i < 2 || w.waiting()); i++ {
			w.answerAll()
		}
	}
	if known && (!w.down || !w.onDisk) { // files are closed with the gateway
		events, _, err := w.r.Events(context.Background(), w.session, 0, 1000)
		if err != nil {
			fail("the log: %v", err)
		}
		calls, asks := map[string]string{}, map[string]bool{}
		for _, e := range events {
			m := acp.MustParse(e.Message)
			if id := rawjson.MemberString(m.Update(), "toolCallId"); id != "" {
				calls[id] = rawjson.MemberString(m.Update(), "status")
			}
			if m.IsRequest() && e.Direction == FromAgent {
				asks[string(m.ID())] = true
			}
			if id, ok := rawjson.Member(m.Params(), "requestId"); ok && e.Direction == FromGateway {
				delete(asks, string(id))
			}
		}
		for id, status := range calls {
			if status != "failed" && status != "completed" {
				fail("call %s is %s in the log of a closed session", id, status)
			}
		}
		if len(asks) > 0 {
			fail("%d requests of the agent are open in the log of a closed session", len(asks))
		}
	}
	for _, p := range w.people {
		p.close()
	}
	if !w.down {
		time.Sleep(10 * time.Second) // unused processes are kept for a moment
		synctest.Wait()
		w.a.each(func(c *puppetConn) bool { fail("process %d has neither a session nor a client", c.n); return false })
		if err := w.r.Shutdown(context.Background()); err != nil {
			fail("shutdown: %v", err)
		}
	}
	for _, s := range w.wrong {
		fail("%s", s)
	}
	w.a.mu.Lock()
	defer w.a.mu.Unlock()
	for _, c := range w.a.conns {
		c.mu.Lock()
		for _, f := range c.faults {
			fail("process %d: %s", c.n, f)
		}
		c.mu.Unlock()
		if !c.ended() {
			fail("process %d lives on", c.n)
		}
	}
	return errors.Join(wrong...)
}

var (
	lifeSeed  = flag.Int64("life.seed", -1, "play only this sequence of TestLife")
	lifeFirst = flag.Uint64("life.first", 0, "the sequence with which TestLife_AMillionSequences begins")
)

// Whatever happens to a session, in whatever order: everything that was asked is
// answered once, nothing stays open without an owner, no process without a session,
// and the log says what happened. A sequence that fails is played again by
// go test ./runtime -run TestLife -life.seed=N.
func TestLife_RandomSequences(t *testing.T) {
	from, n := uint64(0), uint64(figure.Asked(t, "SEQUENCES", 300))
	if *lifeSeed >= 0 {
		from, n = uint64(*lifeSeed), 1
	}
	playAll(t, from, n)
	figure.Done(t, int(n), "sequences")
}

// As many as there is time for, a million at most.
func TestLife_AMillionSequences(t *testing.T) {
	agentcache.Long(t, "an hour; the same with some hundred sequences is always run")
	until := time.Now().Add(time.Hour)
	if end, ok := t.Deadline(); ok {
		until = time.Now().Add(time.Until(end) * 2 / 3)
	}
	n := *lifeFirst
	for ; n < 1_000_000 && time.Now().Before(until) && !t.Failed(); n += 1000 {
		if n%50_000 == 0 {
			t.Logf("%d is the next sequence", n)
		}
		playAll(t, n, 1000)
	}
	t.Logf("played %d to %d", *lifeFirst, n)
}

// Sequences that failed before their mends, and only in one of hundreds of runs: two
// goroutines had to meet in the wrong order.
func TestLife_SequencesThatFailed(t *testing.T) {
	rounds := agentcache.Sequences(300)
	if agentcache.IsLong() {
		rounds = 10_000
	}
	for _, tt := range []struct {
		seed  uint64 // of who does it, and of what waits for what
		names []string
	}{
		// A start is given up while the answer that creates the session comes in.
		{122229, []string{
			"resume", "cancel", "prompt", "crash", "crash", "prompt", "slow start", "close", "the agent answers all", "prompt", "the agent answers", "cancel",
		}},
		// A client attaches anew while the session is deleted, and waits for an answer.
		{47900, []string{
			"a moment", "the agent withdraws", "a moment", "a moment", "start goes on", "mode", "delete", "load otherwise", "cancel", "the agent asks", "a while", "cancel",
		}},
	} {
		var script []int
		for _, name := range tt.names {
			i := slices.IndexFunc(steps, func(s step) bool { return s.name == name })
			if i < 0 {
				t.Fatalf("there is no step %q", name)
			}
			script = append(script, i)
		}
		for range rounds {
			synctest.Test(t, func(t *testing.T) {
				if names, err := playOut(t, tt.seed, "", script); err != nil {
					t.Errorf("%s\n%v", strings.Join(names, ", "), err)
				}
			})
		}
	}
}

func playAll(t *testing.T, from, n uint64) {
	t.Helper()
	for seed := from; seed < from+n && !t.Failed(); seed++ {
		synctest.Test(t, func(t *testing.T) {
			dir := ""
			if seed%50 == 0 { // with files, which cost more
				dir = t.TempDir()
			}
			if names, err := playOut(t, seed, dir, nil); err != nil {
				t.Errorf("seed %d: %s\n%v", seed, strings.Join(names, ", "), err)
			}
		})
	}
}

// Any two events, in whatever way the agent is at work, lead to no other end. Each pair
// is tried in one situation always, and in every one in the long tier.
func TestLife_AllPairs(t *testing.T) {
	pairs := len(steps) * len(steps)
	playPairs(t, pairs/agentcache.Sequences(pairs), false)
}

func TestLife_AllPairsInEverySituation(t *testing.T) {
	agentcache.Long(t, "each pair is tried in one of the situations always")
	playPairs(t, 1, true)
}

func playPairs(t *testing.T, every int, all bool) {
	t.Helper()
	var names []string
	for _, s := range steps {
		names = append(names, s.name)
	}
	situations := [][]string{
		nil,
		{"prompt"},
		{"prompt", "the agent asks", "the agent calls", "the agent waits"},
		{"close"},
		{"crash", "slow start", "prompt"},
		{"crash", "a moment", "prompt"},
	}
	for n := range len(steps) * len(steps) {
		if (n+n/len(steps))%every != 0 { // each first step has some, in all situations
			continue
		}
		for k, before := range situations {
			if !all && n%len(situations) != k {
				continue
			}
			var script []int
			for _, name := range before {
				script = append(script, slices.Index(names, name))
			}
			script = append(script, n/len(steps), n%len(steps))
			synctest.Test(t, func(t *testing.T) {
				if played, err := playOut(t, uint64(n), "", script); err != nil {
					t.Errorf("seed %d: %s\n%v", n, strings.Join(played, ", "), err)
				}
			})
			if t.Failed() {
				return
			}
		}
	}
}
