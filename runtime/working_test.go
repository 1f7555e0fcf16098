package runtime

import (
	"testing"
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
