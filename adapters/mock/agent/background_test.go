package agent_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
)

// Each state names every command that goes on in the background: the end of one does not
// clear the others.
func TestBackground_SeveralCommands(t *testing.T) {
	cmd := exec.Command(os.Args[0], "--acp", "2", "--state-dir", t.TempDir())
	cmd.Env = append(os.Environ(), envChild+"=1", "GORACE=atexit_sleep_ms=0")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = in.Close()
		_, _ = io.Copy(io.Discard, out)
		_ = cmd.Wait()
	}()
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	next := func(until func(m *acp.Message) bool) acp.Message {
		for lines.Scan() {
			if m, err := acp.Parse(lines.Bytes()); err == nil && until(&m) {
				return m.Clone()
			}
		}
		t.Fatalf("the agent has ended: %v", lines.Err())
		return acp.Message{}
	}
	id := 0
	send := func(method, params string) {
		id++
		fmt.Fprintf(in, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`+"\n", id, method, params)
	}
	call := func(method, params string) acp.Message {
		send(method, params)
		return next(func(m *acp.Message) bool { return m.IsResponse() })
	}
	call(acp.MethodInitialize, `{"protocolVersion":2,"info":{"name":"test","version":"1"},"capabilities":{}}`)
	opened := call(acp.MethodSessionNew, `{"cwd":"/","mcpServers":[]}`)
	session := rawjson.MemberString(opened.Result(), "sessionId")
	var running []string
	state := func(wanted string) (background []string) {
		m := next(func(m *acp.Message) bool {
			return string(m.UpdateKind()) == "state_update" && rawjson.MemberString(m.Update(), "state") == wanted
		})
		raw, _ := rawjson.Member(m.Update(), "background")
		for _, b := range rawjson.Elements(raw) {
			background = append(background, rawjson.MemberString(b, "terminalId"))
		}
		return background
	}
	for range 2 {
		call(acp.MethodSessionPrompt, `{"sessionId":"`+session+`","prompt":[{"type":"text","text":"background 9999"}]}`)
		running = state("idle")
	}
	if len(running) != 2 {
		t.Fatalf("two commands go on in the background, and the state names %q", running)
	}
	for len(running) > 0 {
		params, err := json.Marshal(map[string]string{"sessionId": session, "terminalId": running[0]})
		if err != nil {
			t.Fatal(err)
		}
		send("terminal/cancel", string(params))
		running = running[1:]
		if got := state("idle"); fmt.Sprint(got) != fmt.Sprint(running) {
			t.Errorf("behind the end of one the state names %q, want %q", got, running)
		}
	}
}
