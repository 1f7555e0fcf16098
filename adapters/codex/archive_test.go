package codex

import (
	"os"
	"strings"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridgetest"
	"sandboxagent.dev/sandbox-agent/internal/agentcache"
)

// A session that is closed goes through codex's archive. Where codex does not take it out again, its next process is told to.
func TestClose_LeavesNothingInTheArchive(t *testing.T) {
	t.Run("it refuses", func(t *testing.T) { leavesNothingInTheArchive(t, keepsArchived, "the disk is full") })
	t.Run("it ends", func(t *testing.T) { leavesNothingInTheArchive(t, endsArchiving, "") })
}

// leavesNothingInTheArchive closes a session of a codex that plays what, and then fails with why, "" for not.
func leavesNothingInTheArchive(t *testing.T, what, why string) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	w := &world{bridgetest.With(t, New(), adapters.Program{Path: exe, Env: []string{playerVar + "=" + what}, Version: agentcache.Codex})}
	c := w.open(schema.ClientCapabilities{}, nil)
	id := c.New("")
	closing := c.Begin(acp.MethodSessionClose, &schema.CloseSessionRequest{SessionID: id})
	if why == "" {
		_ = c.Ended()
	} else if _, e := c.Result(closing); e == nil || !strings.Contains(e.Message, why) {
		t.Errorf("it is closed: %v", e)
	}
	c.Close()
	archived := func() bool {
		r, _ := newStore(w.State).Load(string(id))
		return r.Archived
	}
	if !archived() {
		t.Error("it is not known that it is in the archive")
	}
	w.Program.Env = []string{playerVar + "=" + startedBefore}
	c = w.open(schema.ClientCapabilities{}, nil)
	c.Must(acp.MethodSessionList, &schema.ListSessionsRequest{})
	for until := time.Now().Add(bridgetest.Patience); archived(); time.Sleep(time.Millisecond) { // there is no event for it
		if time.Now().After(until) {
			t.Fatal("it stays in the archive")
		}
	}
}
