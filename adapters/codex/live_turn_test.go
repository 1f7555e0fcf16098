package codex

import (
	"path/filepath"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp"
)

func TestLive_FirstTurn(t *testing.T) {
	w := newWorld(t)
	c := w.open(acp.ClientCapabilities{}, nil)
	id := c.new("")
	stop, got := c.turn(id, "say good morning")
	if stop != acp.StopReasonEndTurn || spoken(got) != "good morning" {
		t.Errorf("it ended with %s and said %q\n%s", stop, spoken(got), c.quote())
	}
	notes := w.writeAt(filepath.Join(w.cwd, "notes.txt"), "some notes\n", 0o600)
	_, got = c.turn(id, "read "+notes)
	t.Log(c.quote(), spoken(got))
}
