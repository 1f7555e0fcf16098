package pi

import (
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridgetest"
)

func replaceURL(s, url string) string { return strings.ReplaceAll(s, "URL", url) }

func TestLive_Text(t *testing.T) {
	onBoth(t, func(t *testing.T, w *world) {
		c := w.open(acp.ClientCapabilities{}, bridgetest.Pick(optionAllow))
		id := c.New("")
		if stop, got := c.Turn(id, "say hello there"); stop != acp.StopReasonEndTurn || bridgetest.Said(got) != "hello there" {
			t.Errorf("ended with %s, said %q\n%s", stop, bridgetest.Said(got), c.Quote())
		}
		if stop, got := c.Turn(id, "run echo one two"); stop != acp.StopReasonEndTurn || !strings.Contains(bridgetest.Said(got), "one two") {
			t.Errorf("ended with %s, said %q\n%s", stop, bridgetest.Said(got), c.Quote())
		}
		t.Log(c.Quote())
	})
}
