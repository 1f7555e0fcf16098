package amp

import (
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridgetest"
	"sandboxagent.dev/sandbox-agent/internal/scriptedmodel"
)

// Amp goes on with a turn in which it was killed, as soon as it starts. The end of that
// turn is not the end of the prompt that it was started for; a cancel reaches it, and the
// prompt behind that is answered.
func TestLive_TurnThatWasLeft(t *testing.T) {
	w := newWorld(t)
	// Input reaches the program when the file is there: it is quicker than the prompt.
	open := filepath.Join(w.Home, "open")
	quoted := "'" + w.Program.Path + "' '" + strings.Join(w.Program.Args, "' '") + "'"
	script := w.Write("amp.sh", "#!/bin/bash\nexec "+quoted+` "$@" < <(while [ ! -e '`+open+`' ]; do sleep 0.05; done; exec cat)`+"\n", 0o700)
	w.Program.Path, w.Program.Args = "/bin/bash", []string{script}
	never := make(chan struct{})
	defer close(never)
	var ends atomic.Bool
	w.Model.OnRequest(scriptedmodel.Exactly("be killed"), func(*scriptedmodel.Request) []scriptedmodel.Step {
		if ends.Load() {
			return []scriptedmodel.Step{{scriptedmodel.Shell("echo begun")}, {scriptedmodel.Say("left over")}}
		}
		return []scriptedmodel.Step{{scriptedmodel.Shell("echo begun")}, {scriptedmodel.Gate(never)}}
	})
	thinks := func(times int) {
		t.Helper()
		if _, err := w.Model.Await(t.Context(), func(*scriptedmodel.Request) bool {
			n := 0
			for _, r := range w.Model.Turns() {
				if r.Prompt == "be killed" && r.Messages[len(r.Messages)-1].Role == scriptedmodel.ToolRole {
					n++
				}
			}
			return n >= times
		}); err != nil {
			t.Fatal(err)
		}
	}
	// left is a session in whose turn Amp was killed. It has written down that a call has
	// ended, and nothing of how the turn does.
	left := func(thought int) schema.SessionID {
		t.Helper()
		w.Write("open", "", 0o600)
		c := w.open(nil)
		id := c.New("")
		c.Prompt(id, "be killed")
		thinks(thought)
		for copied := ""; !strings.Contains(copied, `"tool_result"`); { // nobody tells
			if t.Context().Err() != nil {
				t.Fatal("amp keeps no copy of the call's result")
			}
			b, _ := os.ReadFile(filepath.Join(w.Home, ".local/share/amp/threads", string(id)+".json"))
			copied = string(b)
			time.Sleep(10 * time.Millisecond)
		}
		if err := bridgetest.Kill(c.Conn.(adapters.Process).PID()); err != nil {
			t.Fatal(err)
		}
		c.Close()
		return id
	}
	begin := func(id schema.SessionID) (*bridgetest.Client, acp.ID) {
		t.Helper()
		if err := os.RemoveAll(open); err != nil {
			t.Fatal(err)
		}
		c := w.open(nil)
		if _, e := c.Call(acp.MethodSessionResume, &schema.ResumeSessionRequest{SessionID: id, Cwd: w.Cwd, MCPServers: []schema.MCPServer{}}); e != nil {
			t.Fatal(e)
		}
		return c, c.Prompt(id, "say after")
	}

	id := left(1)
	c, turn := begin(id)
	thinks(2)
	c.Notify(acp.MethodSessionCancel, &schema.CancelNotification{SessionID: id})
	if r, e := c.Result(turn); e != nil || rawjson.MemberString(r, "stopReason") != "cancelled" {
		t.Errorf("cancelled: %s, %v", r, e)
	}
	c.Close()

	// Another session: Amp may have written down the end of that one.
	id = left(3)
	ends.Store(true)
	c, turn = begin(id)
	c.Await("what was left", 0, func(m *acp.Message) bool { return strings.Contains(string(m.Update()), "left over") })
	w.Write("open", "", 0o600)
	r, e := c.Result(turn)
	if got := bridgetest.Said(c.Updates(0)); e != nil || rawjson.MemberString(r, "stopReason") != "end_turn" || got != "left overafter" {
		t.Errorf("the turn ended with %s, %v; amp said %q", r, e, got)
	}
	if _, got := c.Turn(id, "say more"); bridgetest.Said(got) != "more" {
		t.Errorf("the next turn: %q\n%s", bridgetest.Said(got), c.Quote())
	}
}
