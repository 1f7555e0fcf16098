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
		if m := tc.next(); statuses([]acp.Message{m}) != "b failed" {
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
		tc, other := connect(t, r, ""), connect(t, r, "")
		s, left := tc.session(), other.session()
		other.close()
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		for id, want := range map[string]State{s: StateIdle, left: StateDormant} {
			if i, err := r.Session(id); err != nil || i.State != want {
				t.Errorf("%s is %s, want %s; %v", id, i.State, want, err)
			}
		}
		tc.close()
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
