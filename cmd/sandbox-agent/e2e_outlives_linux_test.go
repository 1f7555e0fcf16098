package main_test

import (
	"strings"
	"syscall"
	"testing"
)

// A gateway that nohup has started outlives its terminal, which others do not. Its programs can be hung up on
// nevertheless.
func TestServer_OutlivesItsTerminal(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	g.wrap = []string{"nohup"}
	g.start()
	id := g.program(false, "trap 'echo hung up' HUP; echo ready; while :; do sleep 0.05; done")
	if err := g.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if status, text := g.post("POST", "/v2/processes/"+id+"/signal", `{"signal":"SIGHUP"}`); status >= 300 {
		t.Errorf("%d: %s", status, text)
	}
	g.awaitLog(id, "hung up")
	g.kill(syscall.SIGTERM)
	if all := g.stderr.String(); strings.Contains(all, "signal=hangup") || !strings.Contains(all, "signal=terminated") {
		t.Errorf("it ended otherwise:\n%s", all)
	}
}
