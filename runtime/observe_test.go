package runtime

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/runtime/observe"
)

// ledger is an observer that knows what has begun and how it ended.
type ledger struct {
	observe.Nobody
	t  *testing.T
	mu sync.Mutex

	open  map[*entry]bool
	ended []string // "name result error"
	costs []string
}

type entry struct {
	observe.NoSpan
	l *ledger
	w observe.Work
}

func (l *ledger) Begin(_ context.Context, w observe.Work) observe.Span {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := &entry{l: l, w: w}
	l.open[e] = true
	return e
}

func (l *ledger) Charged(agent, currency string, amount float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.costs = append(l.costs, fmt.Sprint(agent, " ", amount, " ", currency))
}

func (e *entry) End(o observe.Outcome) {
	e.l.mu.Lock()
	defer e.l.mu.Unlock()
	if !e.l.open[e] {
		e.l.t.Errorf("%s ended twice", e.w.Name)
	}
	delete(e.l.open, e)
	e.l.ended = append(e.l.ended, fmt.Sprint(e.w.Name, " ", o.Result, " ", o.Error))
}

// expect wants n to have ended like line. Nothing waits for it: who is answered, or told,
// finds it counted.
func (l *ledger) expect(line string, n int) {
	l.t.Helper()
	if got := l.count(line); got != n {
		l.t.Errorf("%q ended %d times, want %d: %q", line, got, n, l.ended)
	}
}

func (l *ledger) count(line string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.ended {
		if e == line {
			n++
		}
	}
	return n
}

func TestObserver_WhatBeginsEndsOnce(t *testing.T) {
	l := &ledger{t: t, open: map[*entry]bool{}}
	a := &fakeAgent{id: "fake", caps: `{"sessionCapabilities":{"resume":{}}}`}
	r, err := New(Options{DataDir: t.TempDir(), Adapters: adaptersOf(a), DefaultAgent: "fake", Observer: l})
	if err != nil {
		t.Fatal(err)
	}
	tc := connect(t, r, `{"elicitation":{"form":{}}}`)
	s := tc.session()

	// A turn that ends, one that waits for it and is withdrawn, one that is
	// cancelled behind another.
	one := tc.request("session/prompt", prompt(s, "a"))
	two := tc.request("session/prompt", prompt(s, "b"))
	tc.send(fmt.Sprintf(`{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":%s}}`, two))
	tc.until(two)
	a.conn().result(a.conn().next(t, "session/prompt"), `{"stopReason":"end_turn"}`)
	tc.until(one)
	one, two = tc.request("session/prompt", prompt(s, "c")), tc.request("session/prompt", prompt(s, "d"))
	running := a.conn().next(t, "session/prompt")
	tc.send(fmt.Sprintf(`{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":%q}}`, s))
	tc.until(two)
	a.conn().next(t, "session/cancel")
	a.conn().result(running, `{"stopReason":"cancelled"}`)
	tc.until(one)
	l.expect("session/prompt cancelled ", 3)
	// Refused ones are no turns.
	tc.callErr("session/prompt", prompt("nobody", "x"))

	// An agent that dies while it asks, for a session and for none.
	tc.request("session/prompt", prompt(s, "e"))
	a.conn().next(t, "session/prompt")
	a.conn().send(`{"jsonrpc":"2.0","id":1,"method":"session/request_permission","params":{"sessionId":"native-1","toolCall":{"toolCallId":"t"},"options":[]}}`)
	a.conn().send(`{"jsonrpc":"2.0","id":2,"method":"elicitation/create","params":{"requestId":77,"message":"m","mode":"form","requestedSchema":{"type":"object","properties":{}}}}`)
	for range 2 {
		for m := tc.next(); !m.IsRequest(); m = tc.next() {
		}
	}
	a.conn().crash(errCrash)
	withdrawn := 0
	for withdrawn < 2 { // whoever was asked is told
		if m := tc.next(); m.Method() == acp.MethodCancelRequest {
			withdrawn++
		}
	}
	waitFor(t, r, s, func(i SessionInfo) bool { return i.State == StateDormant })
	for _, line := range []string{"session/request_permission dropped ", "elicitation/create dropped ", "session/prompt failed agent_process_exited"} {
		l.expect(line, 1)
	}
	// The end of the gateway ends a turn as well.
	tc.request("session/prompt", prompt(s, "f"))
	waitFor(t, r, s, func(SessionInfo) bool { return a.opened() == 2 })
	a.conn().result(a.conn().next(t, "session/resume"), "{}")
	a.conn().next(t, "session/prompt")
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	if err := r.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	for e := range l.open {
		t.Errorf("%+v has not ended", e.w)
	}
	if !slices.Contains(l.ended, "session/resume ok ") || l.count("agent/start ok ") != 2 || l.count("agent/initialize ok ") != 2 {
		t.Errorf("what ended: %q", l.ended)
	}
}

func TestObserver_CostsCountOnce(t *testing.T) {
	l := &ledger{t: t, open: map[*entry]bool{}}
	dir := t.TempDir()
	report := func(a *fakeAgent, tc *testClient, s string, amounts ...string) {
		t.Helper()
		id := tc.request("session/prompt", prompt(s, "x"))
		p := a.conn().next(t, "session/prompt")
		for _, amount := range amounts {
			a.conn().send(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"native-1","update":{"sessionUpdate":"usage_update","used":1,"size":2,"cost":{"amount":` + amount + `,"currency":"USD"}}}}`)
		}
		a.conn().result(p, `{"stopReason":"end_turn"}`)
		tc.until(id)
	}
	start := func() (*fakeAgent, *Runtime, *testClient) {
		a := &fakeAgent{id: "fake", caps: `{"sessionCapabilities":{"resume":{}}}`}
		r := openRuntime(t, Options{DataDir: dir, Adapters: adaptersOf(a), DefaultAgent: "fake", Observer: l})
		return a, r, connect(t, r, "")
	}
	a, r, tc := start()
	s := tc.session()
	report(a, tc, s, "0.5", "0.75", "0.75") // a sum
	report(a, tc, s, "0.25", "0.5")         // that begins anew
	want := []string{"fake 0.5 USD", "fake 0.25 USD", "fake 0.25 USD", "fake 0.25 USD"}
	if !slices.Equal(l.costs, want) {
		t.Errorf("%q, want %q", l.costs, want)
	}
	tc.close()
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	if err := r.Shutdown(ctx); err != nil {
		t.Fatal(err)
	}
	// What was before is not counted again.
	l.costs = nil
	a, _, tc = start()
	tc.request("session/resume", fmt.Sprintf(`{"sessionId":%q,"cwd":"/","mcpServers":[]}`, s))
	id := tc.request("session/prompt", prompt(s, "x"))
	a.awaitOpened(t, 1)
	a.conn().result(a.conn().next(t, "session/resume"), "{}")
	p := a.conn().next(t, "session/prompt")
	for _, amount := range []string{"10", "11"} {
		a.conn().send(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"native-1","update":{"sessionUpdate":"usage_update","used":1,"size":2,"cost":{"amount":` + amount + `,"currency":"USD"}}}}`)
	}
	a.conn().result(p, `{"stopReason":"end_turn"}`)
	tc.until(id)
	if want := []string{"fake 1 USD"}; !slices.Equal(l.costs, want) {
		t.Errorf("after a restart %q, want %q", l.costs, want)
	}
}

// awaitOpened waits until the agent has been started n times.
func (f *fakeAgent) awaitOpened(t *testing.T, n int) {
	t.Helper()
	for end := time.After(wait); f.opened() < n; {
		select {
		case <-end:
			t.Fatalf("the agent was started %d times", f.opened())
		case <-time.After(time.Millisecond):
		}
	}
}

// shownFirst is an observer that finds out whether the log shows already what it is told.
type shownFirst struct {
	observe.Nobody
	t    *testing.T
	dir  string
	told chan string // what it was told, in order
}

// is says that the observer is told of what, of which the log must not show text yet.
func (o shownFirst) is(what, text string) {
	o.told <- what
	logs, err := filepath.Glob(filepath.Join(o.dir, "sessions", "*", "log.journal"))
	if err != nil {
		o.t.Error(err)
	}
	for _, path := range logs {
		log, err := os.ReadFile(path)
		if err != nil {
			o.t.Error(err)
		}
		if strings.Contains(string(log), text) {
			o.t.Errorf("when the observer is told of %s, the log shows %q already", what, text)
		}
	}
}

func (o shownFirst) Begin(_ context.Context, w observe.Work) observe.Span {
	return shownSpan{o: o, name: w.Name}
}

func (o shownFirst) Charged(string, string, float64) { o.is("a cost", "usage_update") }

type shownSpan struct {
	observe.NoSpan
	o    shownFirst
	name string
}

func (s shownSpan) FirstUpdate() { s.o.is("a first update", "agent_message_chunk") }

func (s shownSpan) End(observe.Outcome) {
	switch s.name {
	case acp.MethodSessionPrompt:
		s.o.is("a turn's end", "stopReason")
	case acp.MethodSessionRequestPermission:
		s.o.is("an answer", "$/cancel_request")
	}
}

// TestObserver_IsToldFirst: what clients are shown has been counted by then, or a scrape
// behind an answer finds the turn still open.
func TestObserver_IsToldFirst(t *testing.T) {
	o := shownFirst{t: t, dir: t.TempDir(), told: make(chan string, 16)}
	a := &fakeAgent{id: "fake"}
	r := openRuntime(t, Options{DataDir: o.dir, Adapters: adaptersOf(a), DefaultAgent: "fake", Observer: o})
	tc := connect(t, r, "")
	s := tc.session()
	id := tc.request("session/prompt", prompt(s, "a"))
	p := a.conn().next(t, "session/prompt")
	update := func(of string) {
		a.conn().send(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"native-1","update":` + of + `}}`)
	}
	update(`{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"hi"}}`)
	update(`{"sessionUpdate":"usage_update","used":1,"size":2,"cost":{"amount":0.5,"currency":"USD"}}`)
	a.conn().send(`{"jsonrpc":"2.0","id":1,"method":"session/request_permission","params":{"sessionId":"native-1","toolCall":{"toolCallId":"t"},"options":[]}}`)
	ask := tc.next()
	for ; !ask.IsRequest(); ask = tc.next() {
	}
	answer := acp.NewResult(ask.ID(), []byte(`{"outcome":{"outcome":"cancelled"}}`))
	tc.send(string(answer.Frame()))
	a.conn().next(t, "")
	a.conn().result(p, `{"stopReason":"end_turn"}`)
	tc.until(id)
	for _, want := range []string{"a first update", "a cost", "an answer", "a turn's end"} {
		select {
		case got := <-o.told:
			if got != want {
				t.Errorf("the observer was told of %s, want %s", got, want)
			}
		default:
			t.Fatalf("the observer was not told of %s", want)
		}
	}
}
