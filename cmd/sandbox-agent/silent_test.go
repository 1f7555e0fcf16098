package main

import (
	"net"
	"strings"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
)

// A gateway whose process is stopped takes connections, for its system does, and answers none. Who begins something
// there is told, also where a turn may last for ever.
func TestCommands_GatewayIsSilent(t *testing.T) {
	defer func(was time.Duration) { answerBound = was }(answerBound)
	answerBound = 100 * time.Millisecond
	var lc net.ListenConfig
	ln, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0") // nobody accepts
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	for _, line := range []string{
		"prompt --agent mock hello", "prompt hello", "prompt --session s hello", "rpc call session/list", "rpc call session/close --session s",
		"rpc stream --session s", "sessions terminate s", "agents login mock",
	} {
		args := append(strings.Fields(line), "--endpoint", "http://"+ln.Addr().String())
		if code, _, errOut := tool(t, "", args...); code != cmdline.ExitUnreachable || !strings.Contains(errOut, "takes connections, and does not answer") {
			t.Errorf("%s: exit code %d, %s", line, code, errOut)
		}
	}
}
