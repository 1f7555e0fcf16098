package runtime

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
)

const serversMethod = "_sandboxagent/session/mcp_servers"

// tells has the agent say how its MCP servers are.
func tells(c *fakeConn, servers string) {
	c.send(`{"jsonrpc":"2.0","method":"` + serversMethod + `","params":{"sessionId":"native-1","servers":[` + servers + `]}}`)
}

// shortly are the servers, each as name=state:source:error tools.
func shortly(servers []acp.MCPServer) string {
	var out []string
	for _, one := range servers {
		var tools []string
		for _, t := range one.Tools {
			tools = append(tools, t.Name)
		}
		out = append(out, strings.TrimSpace(fmt.Sprintf("%s=%s:%s:%s:%s %s", one.Name, one.State, one.Source, one.Transport, one.Error, strings.Join(tools, "+"))))
	}
	return strings.Join(out, ", ")
}

func (tc *testClient) serversTold() string {
	tc.t.Helper()
	m := tc.nextOf(serversMethod)
	var said struct{ Servers []acp.MCPServer }
	if err := json.Unmarshal(m.Params(), &said); err != nil {
		tc.t.Fatal(err)
	}
	return shortly(said.Servers)
}

// What the agent tells of its MCP servers is one list with what the session was given: live,
// when one asks, and when the gateway was killed. Keys of the servers are not in it.
func TestMCPServers(t *testing.T) {
	const secret = "value-of-a-secret"
	given := `{"name":"files","command":"files-mcp","args":[],"env":[{"name":"KEY","value":"` + secret + `"}]},` +
		`{"type":"http","name":"far","url":"http://127.0.0.1:1/mcp?key=in-the-query","headers":[{"name":"Authorization","value":"Bearer of-the-header"}]}`
	a, dir := &fakeAgent{id: "fake", caps: reopening, shared: make(chan sent, 64)}, t.TempDir()
	r := newRuntime(t, dir, a)
	one := connect(t, r, "")
	s := rawjson.MemberString([]byte(one.call("session/new", `{"cwd":"/tmp","mcpServers":[`+given+`],"_meta":{"sandboxagent.dev":{"instructions":"Be kind. sk-0123456789abcdefghij","skills":{"paths":["/skills"]}}}}`)), "sessionId")
	serving := a.conn() // others are opened for other clients
	two, plain := connectTwo(t, r, `{"_meta":{"sandboxagent.dev":{"notices":true}}}`), connect(t, r, "{}")
	of := func(r *Runtime) SessionInfo {
		t.Helper()
		info, err := r.Session(s)
		if err != nil {
			t.Fatal(err)
		}
		return info
	}
	want := func(what, want, got string) {
		t.Helper()
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	want("before the agent has said something", "files=unknown:session:stdio:, far=unknown:session:http:", shortly(of(r).MCPServers))
	if i := of(r); len(i.Instructions) != 1 || i.Instructions[0].Field != "instructions" || i.Instructions[0].Text != "Be kind. [removed]" || len(i.Skills) != 1 || i.Skills[0] != "/skills" {
		t.Errorf("it was given %v, %v", i.Instructions, i.Skills)
	}
	for _, tc := range []*testClient{two, plain} {
		tc.call("session/resume", `{"sessionId":"`+s+`","cwd":"/tmp"}`)
	}

	tells(serving, `{"name":"own","state":"needs_login"},{"name":"files","state":"connecting"}`)
	now := "files=connecting:session:stdio:, far=unknown:session:http:, own=needs_login:agent::"
	want("live", now, one.serversTold())
	want("live, in version 2", now, two.serversTold())
	tells(serving, `{"name":"own","state":"needs_login"},{"name":"files","state":"connecting"}`) // nothing new
	failed := `{"name":"far","state":"failed","error":"GET /mcp?key=in-the-query with of-the-header: no; ` + secret + `"},` +
		`{"name":"files","state":"ready","tools":[{"name":"read","description":"Reads\n a file"},{"name":"` + strings.Repeat("x", 400) + `"}]},{"name":"new","state":"of another kind"}`
	tells(serving, failed)
	now = "files=ready:session:stdio: read+" + strings.Repeat("x", 256) + "…, far=failed:session:http:GET /mcp?key=[removed] with [removed]: no; [removed], new=unknown:agent::"
	want("one after the turn", now, one.serversTold())
	want("when one asks", now, shortly(of(r).MCPServers))
	if text := of(r).MCPServers[0].Tools[0].Description; text != "Reads a file" {
		t.Errorf("the tool is described with %q", text)
	}
	list, err := r.Sessions(t.Context(), SessionFilter{})
	if err != nil || len(list.Sessions) != 1 || list.Sessions[0].MCPServers != nil || list.Sessions[0].Instructions != nil {
		t.Errorf("the list has %v, %v", list.Sessions, err)
	}
	events, _, err := r.Events(t.Context(), s, 0, 100)
	notes := 0
	for _, e := range events {
		if m, err := acp.Parse(e.Message); err == nil && m.Method() == serversMethod {
			notes++
		}
		if strings.Contains(string(e.Message), secret) && !strings.Contains(string(e.Message), "session/new") {
			t.Errorf("a secret is in the log: %s", e.Message)
		}
	}
	if err != nil || notes != 2 {
		t.Errorf("the log has %d notes of servers, %v: want 2", notes, err)
	}

	after := t.TempDir()
	if err := r.sessions.Persist(); err != nil {
		t.Fatal(err)
	}
	copyDir(t, after, dir)
	want("when the gateway was killed", strings.Replace(now, "ready", "stopped", 1), shortly(of(newRuntime(t, after, &fakeAgent{id: "fake", caps: reopening})).MCPServers))

	serving.crash(errCrash)
	now = strings.Replace(now, "ready", "stopped", 1)
	want("at the end of the process", now, one.serversTold())
	want("when one asks then", now, shortly(of(r).MCPServers))

	// Another process has other servers: a load has taken one away.
	one.call("session/resume", `{"sessionId":"`+s+`","cwd":"/tmp","mcpServers":[{"name":"files","command":"files-mcp","args":[],"env":[]}]}`)
	want("with other servers", "files=stopped:session:stdio: read+"+strings.Repeat("x", 256)+"…, new=unknown:agent::", shortly(of(r).MCPServers))
	id := one.request("session/prompt", prompt(s, "go on"))
	opening := a.nextOf(t, "session/resume")
	a.answer(opening, `{}`)
	serving = opening.to
	turn := a.nextOf(t, "session/prompt")
	tells(serving, `{"name":"files","state":"failed","error":"gone"}`)
	want("in a turn", "files=failed:session:stdio:gone", one.serversTold())
	a.answer(turn, `{"stopReason":"end_turn"}`)
	one.until(id)

	tells(serving, "7")
	serving.chunk("native-1", "and on")
	one.nextOf("session/update")
	for m := plain.next(); string(m.UpdateKind()) != "agent_message_chunk"; m = plain.next() {
		if m.Method() == serversMethod {
			t.Error("a client was told that does not know the gateway's own notifications")
		}
	}
}

// What goes on though the turn is over is counted, in what one asks for and in the changes of
// the list.
func TestBackground_IsCounted(t *testing.T) {
	a := &fakeAgent{id: "fake", caps: reopening, shared: make(chan sent, 64)}
	r := newRuntime(t, t.TempDir(), a)
	tc := connect(t, r, "")
	s := tc.session()
	id := tc.request("session/prompt", prompt(s, "begin"))
	turn := a.nextOf(t, "session/prompt")
	a.conn().send(fmt.Sprintf(callUpdate, "tool_call", "b", "in_progress"))
	tc.nextOf("session/update")
	count := func() string {
		info, err := r.Session(s)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("%s %d", info.State, info.Background)
	}
	if got := count(); got != "running 0" {
		t.Errorf("in the turn it is %s", got)
	}
	a.answer(turn, `{"stopReason":"end_turn"}`)
	tc.until(id)
	if got := count(); got != "running 1" {
		t.Errorf("behind the turn it is %s", got)
	}
	a.conn().send(fmt.Sprintf(callUpdate, "tool_call_update", "b", "completed"))
	tc.nextOf("session/update")
	if got := count(); got != "idle 0" {
		t.Errorf("when the call has ended it is %s", got)
	}
}
