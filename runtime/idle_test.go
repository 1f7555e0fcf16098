package runtime

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/adapters"
)

// What an agent does by itself is work: the state says so, the process is kept, and a
// cancel reaches the agent.
func TestBackground_IsWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &fakeAgent{id: "fake", caps: `{"sessionCapabilities":{"resume":{},"close":{}}}`}
		r, err := New(Options{
			DataDir: t.TempDir(), Adapters: adaptersOf(a), DefaultAgent: "fake",
			IdleTimeout: time.Minute, BackgroundTimeout: time.Hour,
		})
		if err != nil {
			t.Fatal(err)
		}
		tc := connect(t, r, "")
		s := tc.session()
		a.conn().send(fmt.Sprintf(callUpdate, "tool_call", "b", "in_progress"))
		tc.next()
		time.Sleep(30 * time.Minute)
		synctest.Wait()
		if i, err := r.Session(s); err != nil || i.State != StateRunning {
			t.Errorf("with a command in the background the session is %s, %v", i.State, err)
		}
		tc.cancels("session/cancel", `{"sessionId":"`+s+`"}`)
		a.conn().next(t, "session/cancel")
		time.Sleep(61 * time.Minute)
		a.conn().result(a.conn().next(t, "session/close"), `{}`)
		synctest.Wait()
		if i, err := r.Session(s); err != nil || i.State != StateDormant {
			t.Errorf("beyond the bound the session is %s, %v", i.State, err)
		}
		m := tc.next()
		if m.Method() == "_sandboxagent/session/released" { // is told beside the log
			m = tc.next()
		}
		if statuses([]acp.Message{m}) != "b failed" {
			t.Errorf("the client was told %s", m.Frame())
		}
		tc.close()
		if err := r.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A session without clients and without work gives its process back sooner.
func TestUnattached_GivesItsProcessBackSooner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &fakeAgent{id: "fake", caps: `{"sessionCapabilities":{"resume":{}}}`}
		r, err := New(Options{
			DataDir: t.TempDir(), Adapters: adaptersOf(a), DefaultAgent: "fake", IdleTimeout: time.Hour, UnattachedTimeout: time.Minute,
		})
		if err != nil {
			t.Fatal(err)
		}
		tc, other, watcher := connect(t, r, ""), connect(t, r, ""), connect(t, r, watches)
		s, left, watched := tc.session(), other.session(), other.session()
		watcher.call("session/resume", `{"sessionId":"`+watched+`","cwd":"/tmp","mcpServers":[]}`)
		other.close()
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		for id, want := range map[string]State{s: StateIdle, left: StateDormant, watched: StateDormant} {
			if i, err := r.Session(id); err != nil || i.State != want {
				t.Errorf("%s is %s, want %s; %v", id, i.State, want, err)
			}
		}
		tc.close()
		watcher.close()
		if err := r.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// Of the processes in which nothing goes on as many are kept as the bound says, the
// newest.
func TestMaxIdleProcesses_TheOldestGoFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &fakeAgent{id: "fake", caps: `{"sessionCapabilities":{"resume":{}}}`, info: adapters.Info{PerSession: true}}
		r, err := New(Options{DataDir: t.TempDir(), Adapters: adaptersOf(a), DefaultAgent: "fake", MaxIdleProcesses: 2})
		if err != nil {
			t.Fatal(err)
		}
		tc := connect(t, r, "")
		var ids []string
		for i := range 5 {
			id := rawjson.MemberString([]byte(tc.call("session/new", fmt.Sprintf(`{"cwd":"/","mcpServers":[],"_meta":{"sandboxagent.dev":{"requestedSessionId":"s%d"}}}`, i))), "sessionId")
			ids = append(ids, id)
			tc.request("session/prompt", prompt(id, "x"))
			p := a.conn().next(t, "session/prompt")
			if i > 0 { // the first works on
				a.conn().result(p, `{"stopReason":"end_turn"}`)
			}
			synctest.Wait()
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		for i, want := range []State{StateRunning, StateDormant, StateDormant, StateIdle, StateIdle} {
			if info, err := r.Session(ids[i]); err != nil || info.State != want {
				t.Errorf("%s is %s, want %s; %v", ids[i], info.State, want, err)
			}
		}
		tc.close()
		if err := r.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// oneAgentEach has a process for each of n sessions, in the order in which they were used.
func oneAgentEach(t *testing.T, o Options, n int) (r *Runtime, tc *testClient, a *fakeAgent, prompted func(i int) (end func())) {
	t.Helper()
	a = &fakeAgent{id: "fake", caps: reopening, info: adapters.Info{PerSession: true}, shared: make(chan sent, 64), machine: &fakeMachine{rss: 100 << 20, began: time.Now()}}
	a.handle = func(c *fakeConn, m acp.Message) {
		switch m.Method() {
		case "session/new":
			c.newSession(m)
		case "session/prompt":
			a.shared <- sent{c, m}
		default:
			if m.IsRequest() {
				c.result(m, `{}`)
			}
		}
	}
	o.DataDir, o.Adapters, o.DefaultAgent = t.TempDir(), adaptersOf(a), "fake"
	r, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	tc = connect(t, r, "")
	prompted = func(i int) func() {
		id := tc.request("session/prompt", prompt(fmt.Sprintf("s%d", i), "x"))
		m := a.nextOf(t, "session/prompt")
		return func() {
			a.answer(m, `{"stopReason":"end_turn"}`)
			tc.until(id)
			time.Sleep(100 * time.Millisecond)
		}
	}
	for i := range n {
		tc.newWith(fmt.Sprintf(`{"requestedSessionId":"s%d"}`, i))
		prompted(i)()
	}
	return r, tc, a, prompted
}

func states(t *testing.T, r *Runtime, n int) (out []State) {
	t.Helper()
	synctest.Wait()
	for i := range n {
		info, err := r.Session(fmt.Sprintf("s%d", i))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, info.State)
	}
	return out
}

// Idle processes take so much memory together, and those that go are the oldest. Clients
// are told why, and the session is opened again with its next prompt.
func TestMaxIdleMemory_TheOldestGoFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, tc, a, prompted := oneAgentEach(t, Options{MaxIdleMemory: 250 << 20}, 2)
		if got := fmt.Sprint(states(t, r, 2)); got != "[idle idle]" {
			t.Errorf("within the bound: %s", got)
		}
		tc.newWith(`{"requestedSessionId":"s2"}`)
		end := prompted(2)
		time.Sleep(2 * time.Second)
		if got := fmt.Sprint(states(t, r, 3)); got != "[idle idle running]" {
			t.Errorf("one works: %s", got)
		}
		end()
		time.Sleep(2 * time.Second)
		if got := fmt.Sprint(states(t, r, 3)); got != "[dormant idle idle]" {
			t.Errorf("beyond the bound: %s", got)
		}
		if m := tc.next(); m.Method() != "_sandboxagent/session/released" || string(m.Params()) != `{"sessionId":"s0","reason":"max_idle_memory"}` {
			t.Errorf("the client was told %s", m.Frame())
		}
		before := a.opened()
		prompted(0)()
		time.Sleep(2 * time.Second)
		if got := fmt.Sprint(states(t, r, 3)); got != "[idle dormant idle]" || a.opened() != before+1 {
			t.Errorf("the first is used again: %s, %d processes were started", got, a.opened()-before)
		}
		if i, err := r.Session("s0"); err != nil || i.Continuity != ContinuityNative {
			t.Errorf("opened again: %+v, %v", i, err)
		}
		tc.close()
		if err := r.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A process whose agent has left a command running is in use, for every bound; one that
// was started when no turn ran is the agent's own.
func TestCommands_LeftRunningKeepTheProcess(t *testing.T) {
	for name, o := range map[string]Options{
		"idle": {IdleTimeout: time.Minute, BackgroundTimeout: 5 * time.Hour}, "unattached": {UnattachedTimeout: time.Minute, BackgroundTimeout: 5 * time.Hour},
		"count": {MaxIdleProcesses: 1, BackgroundTimeout: 5 * time.Hour}, "memory": {MaxIdleMemory: 1, BackgroundTimeout: 5 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, tc, a, prompted := oneAgentEach(t, o, 0)
				tc.newWith(`{"requestedSessionId":"s0"}`)
				left := a.conn()
				end := prompted(0)
				a.machine.start(left)
				end()
				prompted(0)() // in which the command goes on
				tc.newWith(`{"requestedSessionId":"s1"}`)
				a.machine.start(a.conn())
				time.Sleep(time.Second)
				prompted(1)()
				if name == "count" {
					tc.newWith(`{"requestedSessionId":"s2"}`)
					prompted(2)()
				}
				tc.close()
				time.Sleep(2 * time.Hour)
				if got := fmt.Sprint(states(t, r, 2)); got != "[idle dormant]" {
					t.Errorf("with a command: %s", got)
				}
				a.machine.stop(left)
				time.Sleep(time.Minute)
				if got := fmt.Sprint(states(t, r, 2)); got != "[dormant dormant]" && name != "count" {
					t.Errorf("without one: %s", got)
				}
				if err := r.Shutdown(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		r, tc, a, prompted := oneAgentEach(t, Options{IdleTimeout: time.Minute, BackgroundTimeout: 5 * time.Hour}, 1)
		end := prompted(0)
		a.machine.start(a.conn())
		end()
		time.Sleep(6 * time.Hour)
		if got := fmt.Sprint(states(t, r, 1)); got != "[dormant]" {
			t.Errorf("beyond the bound for what goes on in the background: %s", got)
		}
		if m := tc.next(); string(m.Params()) != `{"sessionId":"s0","reason":"background_timeout"}` {
			t.Errorf("the client was told %s", m.Frame())
		}
		tc.close()
		if err := r.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A hundred sessions in which nothing goes on leave as much garbage as one: how still the program is
// says whether memory is given back.
func TestLookAfter_SessionsAtRestLeaveNoGarbage(t *testing.T) {
	r := newRuntime(t, t.TempDir(), &fakeAgent{})
	tc := connect(t, r, "")
	garbage := func(sessions int) float64 {
		for len(r.sessions.All()) < sessions {
			s := tc.session()
			tc.call("session/close", fmt.Sprintf(`{"sessionId":%q}`, s))
		}
		return testing.AllocsPerRun(100, r.lookAfter)
	}
	if one, hundred := garbage(1), garbage(100); hundred > one {
		t.Errorf("%v allocations with a hundred sessions, %v with one", hundred, one)
	}
}
