package runtime

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"sandboxagent.dev/sandbox-agent/acp/rawjson"
)

// An agent that works though nobody has prompted it is running; a cancel reaches it, and
// settings that a load brings wait. Clients are not told of the bridge's own words.
func TestWorking_WithoutAPrompt(t *testing.T) {
	a := &fakeAgent{id: "fake", caps: reopening, shared: make(chan sent, 64)}
	r := newRuntime(t, t.TempDir(), a)
	tc := connect(t, r, "")
	s := tc.session()
	state := func() State {
		info, err := r.Session(s)
		if err != nil {
			t.Fatal(err)
		}
		return info.State
	}
	works := func(now string) {
		a.conn().send(`{"jsonrpc":"2.0","method":"_sandboxagent/session/working","params":{"sessionId":"native-1","working":` + now + `}}`)
		a.conn().chunk("native-1", now) // what is seen of it was read behind it
		if m := tc.next(); string(m.UpdateKind()) != "agent_message_chunk" {
			t.Errorf("the client was given %s", m.Frame())
		}
	}
	works("true")
	if got := state(); got != StateRunning {
		t.Errorf("it works, and the state is %s", got)
	}
	if got := member(tc.call("session/resume", loadOf(s, "/tmp", `,"mcpServers":[`+serverB+`]`)), "unsupported"); got == "" {
		t.Error("settings were applied while it works")
	}
	tc.send(`{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"` + s + `"}}`)
	a.nextOf(t, "session/cancel")
	works("false")
	if got := state(); got != StateIdle {
		t.Errorf("it has ended, and the state is %s", got)
	}
	works("true")
	a.conn().crash(errCrash)
	tc.nextOf("_sandboxagent/session/ended")
	if got := state(); got != StateDormant {
		t.Errorf("its process is gone, and the state is %s", got)
	}
}

// Clients of version 2 are told of it as a state: as it happens, when they come, when the
// process is gone, and when the gateway was.
func TestWorking_InVersionTwo(t *testing.T) {
	a, dir := &fakeAgent{caps: reopening}, t.TempDir()
	r := newRuntime(t, dir, a)
	two := connectTwo(t, r, "")
	s := two.session()
	states := func(tc *testClient, n int) (got []string) {
		for len(got) < n {
			m := tc.next()
			if string(m.UpdateKind()) == "state_update" {
				got = append(got, rawjson.MemberString(m.Update(), "state"))
			}
		}
		return got
	}
	stateOf := func(r *Runtime) string {
		tc := connectTwo(t, r, "")
		before, _ := tc.until(tc.request("session/resume", `{"sessionId":"`+s+`","cwd":"/tmp"}`))
		for _, m := range before {
			if string(m.UpdateKind()) == "state_update" {
				return rawjson.MemberString(m.Update(), "state")
			}
		}
		return ""
	}
	works := func(now string) {
		a.conn().send(`{"jsonrpc":"2.0","method":"_sandboxagent/session/working","params":{"sessionId":"native-1","working":` + now + `}}`)
	}
	works("true")
	works("false")
	works("true")
	if diff := cmp.Diff([]string{"running", "idle", "running"}, states(two, 3)); diff != "" {
		t.Errorf("as it happens (-want +got):\n%s", diff)
	}
	if got := stateOf(r); got != "running" {
		t.Errorf("who comes is told %q", got)
	}
	after := t.TempDir()
	copyDir(t, after, dir)
	if got := stateOf(newRuntime(t, after, &fakeAgent{caps: reopening})); got != "idle" {
		t.Errorf("when the gateway was killed: %q", got)
	}
	a.conn().crash(errCrash)
	if diff := cmp.Diff([]string{"idle"}, states(two, 1)); diff != "" {
		t.Errorf("at the end of the process (-want +got):\n%s", diff)
	}
}
