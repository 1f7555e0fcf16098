package runtime

import (
	"context"
	"fmt"
	"slices"
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
	more  chan struct{} // gets something when one has ended
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
	select {
	case e.l.more <- struct{}{}:
	default:
	}
}

// await waits until n have ended like line: those who are waited for are answered first.
func (l *ledger) await(line string, n int) {
	l.t.Helper()
	late := time.After(wait)
	for l.count(line) < n {
		select {
		case <-l.more:
		case <-late:
			l.t.Fatalf("%q is not %d times among %q", line, n, l.ended)
		}
	}
	if got := l.count(line); got > n {
		l.t.Errorf("%q ended %d times", line, got)
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
	l := &ledger{t: t, open: map[*entry]bool{}, more: make(chan struct{}, 1)}
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
	l.await("session/prompt cancelled ", 3)
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
		l.await(line, 1)
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
