package viewer

import (
	"testing"

	"go.uber.org/goleak"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Of an event whose place was forgotten it is said which are still known.
func TestStream_ExpiredEventsAreTold(t *testing.T) {
	c := NewClient("c", 1, Capabilities{}, acp.Inline, nil, NewUnread(0))
	defer c.Close()
	c.event, c.expired = 120, 40
	old := uint64(39)
	_, err := c.Stream("", &old)
	if p := problem.From(err); err == nil || p.Kind != problem.EventsExpired || p.Extensions["oldestEventId"] != uint64(41) {
		t.Errorf("an expired event: %v", err)
	}
}
