package session

import (
	"math"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp"
)

// What an agent of version 2 says of a call or a terminal behind its end does not begin it anew.
func TestCalls_SaidBehindTheEnd(t *testing.T) {
	t.Parallel()
	const (
		call     = `"sessionUpdate":"tool_call_update","toolCallId":"x"`
		terminal = `"sessionUpdate":"terminal_update","terminalId":"t"`
	)
	var c calls
	seq := uint64(0)
	for _, row := range []struct {
		said string
		from uint64
	}{
		{call + `,"title":"not begun"`, math.MaxUint64},
		{call + `,"status":"pending"`, 2},
		{call + `,"status":"in_progress"`, 2},
		{call + `,"status":"completed"`, math.MaxUint64},
		{call + `,"title":"done"`, math.MaxUint64},
		{terminal + `,"command":"ls"`, 6},
		{terminal + `,"output":{"data":""}`, 6},
		{terminal + `,"exitStatus":{"exitCode":0}`, math.MaxUint64},
		{terminal + `,"output":{"data":""}`, math.MaxUint64},
		{terminal + `,"command":"ls again"`, 10},
		{terminal + `,"exitStatus":{}`, math.MaxUint64},
		{`"sessionUpdate":"terminal_update","terminalId":"u","cwd":"/"`, 12},
		{`"sessionUpdate":"terminal_update","terminalId":"u","exitStatus":{}`, math.MaxUint64},
	} {
		seq++
		m := acp.NewNotification(acp.MethodSessionUpdate, []byte(`{"sessionId":"k","update":{`+row.said+`}}`))
		c.noteSecond(&m, false, seq)
		if got := c.from(); got != row.from {
			t.Errorf("behind %s, which is entry %d, the log is needed from %d, want %d", row.said, seq, got, row.from)
		}
	}
}
