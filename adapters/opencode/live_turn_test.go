package opencode

import (
	"testing"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridgetest"
)

func TestLive_Turn(t *testing.T) {
	w := newWorld(t)
	c := w.open(acp.ClientCapabilities{}, bridgetest.Pick("once"))
	id := c.New("")
	how, got := c.Turn(id, "say hello there")
	if how != acp.StopReasonEndTurn || bridgetest.Said(got) != "hello there" {
		t.Errorf("%s, said %q", how, bridgetest.Said(got))
	}
	how, got = c.Turn(id, "run touch "+w.Home+"/made")
	t.Log(how, bridgetest.Said(got))
	t.Log(c.Quote())
}
