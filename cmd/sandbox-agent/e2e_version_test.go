package main_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/coder/websocket"

	"sandboxagent.dev/sandbox-agent/acp/acptest"
)

// hello is an initialize request that asks for a version.
func hello(id, version, rest string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"initialize","params":{"protocolVersion":` + version + rest + `,"_meta":{"sandboxagent.dev":{"agent":"mock"}}}}`
}

const info = `,"info":{"name":"e2e","version":"1"}`

// answered is what an initialize request is answered with.
type answered struct {
	ID     any
	Result struct{ ProtocolVersion int }
	Error  struct {
		Code int
		Data struct {
			Requested int
			Supported []int
		}
	}
}

func TestVersions(t *testing.T) {
	both, first, second := startGateway(t), startGateway(t, "--acp-versions", "1"), startGateway(t, "--acp-versions", "2")
	for _, c := range []struct {
		name      string
		g         *gateway
		body      string
		version   int
		code      int
		supported []int
	}{
		{"one", both, hello("1", "1", ""), 1, 0, nil},
		{"two", both, hello("1", "2", info), 2, 0, nil},
		{"three gets two", both, hello("1", "3", ""), 2, 0, nil},
		{"two gets one where there is one", first, hello("1", "2", info), 1, 0, nil},
		{"two in the first form gets one where there is one", first, hello("1", "2", `,"clientCapabilities":{}`), 1, 0, nil},
		{"one where there is two", second, hello("1", "1", ""), 0, -32022, []int{2}},
		{"two where there is two", second, hello("1", "2", info), 2, 0, nil},
		{"zero", both, hello("1", "0", ""), 0, -32022, []int{1, 2}},
		{"no number", both, hello("1", `"2"`, info), 0, -32602, nil},
		{"no info", both, hello("1", "2", ""), 0, -32602, nil},
		{"a fraction for an id", both, hello("1.5", "2", info), 0, -32600, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			check := func(how string, raw []byte) {
				t.Helper()
				var a answered
				if err := json.Unmarshal(raw, &a); err != nil || a.Result.ProtocolVersion != c.version || a.Error.Code != c.code || !slices.Equal(a.Error.Data.Supported, c.supported) {
					t.Errorf("%s: %v, %s, want version %d or code %d", how, err, raw, c.version, c.code)
				}
				if (a.ID == nil) != strings.Contains(c.body, "1.5") {
					t.Errorf("%s: the id in %s", how, raw)
				}
			}
			cl := &client{t: t, g: c.g, kind: standard}
			resp, raw := do(t, cl, call{header: http.Header{cl.kind.header(): nil}, body: c.body})
			check("http", raw)
			if want := map[bool]int{true: http.StatusOK, false: http.StatusBadRequest}[c.code == 0]; resp.StatusCode != want {
				t.Errorf("http status %s, want %d", resp.Status, want)
			}
			ws, _, err := upgrade(t, c.g, nil)
			if err != nil {
				t.Fatal(err)
			}
			exchange := func(frame string) []byte {
				t.Helper()
				if err := ws.Write(t.Context(), websocket.MessageText, []byte(frame)); err != nil {
					t.Fatal(err)
				}
				_, raw, err := ws.Read(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				return raw
			}
			check("ws", exchange(c.body))
			if c.code != 0 { // the socket stays, and it may be tried again
				if raw := exchange(hello("2", "2", info)); !strings.Contains(string(raw), `"protocolVersion":2`) {
					t.Errorf("ws, tried again: %s", raw)
				}
			}
			switch repeated := exchange(hello("3", "2", info)); {
			case c.version == 1 && !strings.Contains(string(repeated), "-32600"),
				c.version == 2 && !strings.Contains(string(repeated), `"protocolVersion":2`):
				t.Errorf("ws, repeated: %s", repeated)
			}
			if raw := exchange(hello("4", "1", "")); !strings.Contains(string(raw), "-32600") {
				t.Errorf("ws, repeated with version 1: %s", raw)
			}
			exchange(`{"jsonrpc":"2.0","id":5,"method":"session/list","params":{}}`)
			if raw := exchange(hello("6", "2", info)); !strings.Contains(string(raw), "-32600") {
				t.Errorf("ws, repeated after another request: %s", raw)
			}
		})
	}
}

// The inline dialect is one of version 1.
func TestVersions_InlineIsOne(t *testing.T) {
	g := startGateway(t)
	c := &client{t: t, g: g, kind: inline}
	resp, raw := do(t, c, call{header: http.Header{c.kind.header(): nil}, body: hello("1", "2", info)})
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%s %s", resp.Status, raw)
	}
	id := resp.Header.Get("Acp-Connection-Id")
	resp, raw = do(t, c, call{header: http.Header{"X-Acp-Connection-Id": {id}}})
	if resp.StatusCode != http.StatusBadRequest || !strings.Contains(string(raw), "version 2") {
		t.Errorf("inline in version 2: %s %s", resp.Status, raw)
	}
	resp, raw = do(t, c, call{header: http.Header{"X-Acp-Connection-Id": nil, "Acp-Connection-Id": {id}}})
	if resp.StatusCode != http.StatusAccepted {
		t.Errorf("the standard dialect after that: %s %s", resp.Status, raw)
	}
}

// The official SDK in version 2 of the protocol, unmodified, over all transports, with a
// client of version 1 on the same session, with agents of either version.
func TestOfficialSDK_VersionTwo(t *testing.T) {
	dir := filepath.Join("testdata", "node")
	if _, err := os.Stat(filepath.Join(dir, "node_modules", "ws")); err != nil {
		t.Skipf("the SDK is not installed, run ./task node:deps: %v", err)
	}
	bin, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ transport, agent string }{{"http", "mock"}, {"ws", "mock"}, {"stdio", "mock"}, {"http", "mock2"}, {"ws", "mock2"}, {"remote", "mock"}, {"remote", "mock2"}} {
		t.Run(c.transport+" "+c.agent, func(t *testing.T) {
			t.Parallel()
			args := []string{"official2.mjs", c.transport}
			cut := func() {}
			switch c.transport {
			case "remote": // an editor's agent, whose connection to the gateway breaks at each step
				g := withAgentOfTwo(t, "--token", token)
				p := newCutter(t, g.url)
				args = []string{"official2.mjs", "stdio", bin, "acp", "--agent", c.agent, "--log-level", "warn", "--endpoint", p.url(), "--token", token}
				cut = p.cut
			case "stdio":
				args = append(args, bin, "acp", "--agent", "mock", "--log-level", "warn", "--data-dir", t.TempDir())
			default:
				g := withAgentOfTwo(t, "--token", token)
				args = append(args, g.url+"/v2/rpc", token, c.agent)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
			defer cancel()
			cmd := exec.CommandContext(ctx, "node", args...)
			cmd.Dir = dir
			stdout, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			var stderr strings.Builder
			cmd.Stderr = &stderr
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			var steps []string
			for sc := bufio.NewScanner(stdout); sc.Scan(); {
				if steps = append(steps, sc.Text()); len(steps) > 2 && sc.Text() != "what cannot be done" { // an editor's first connection is not made again, nor what may have been carried out
					cut()
				}
			}
			if err := cmd.Wait(); err != nil || len(steps) == 0 || steps[len(steps)-1] != "ok" {
				t.Errorf("%v, steps %v\n%s", err, steps, stderr.String())
			}
		})
	}
}

// second is a client of version 2 over WebSocket.
type second struct {
	t       *testing.T
	ws      *websocket.Conn
	id      int
	check   func(direction string, frame []byte)
	updates []map[string]any // of all sessions, in order
}

func dialSecond(t *testing.T, g *gateway) *second {
	t.Helper()
	return dialSecondFor(t, g, "mock")
}

// dialSecondFor connects to an agent.
func dialSecondFor(t *testing.T, g *gateway, agent string) *second {
	t.Helper()
	ws, _, err := upgrade(t, g, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := acptest.NewRecorderFor(t, 2)
	s := &second{t: t, ws: ws, check: func(direction string, frame []byte) {
		t.Helper()
		if direction == "out" {
			r.Client(frame)
		} else if err := r.Gateway(frame); err != nil {
			t.Error(err)
		}
	}}
	s.call("initialize", map[string]any{
		"protocolVersion": 2, "info": map[string]any{"name": "e2e", "version": "1"}, "_meta": map[string]any{"sandboxagent.dev": map[string]any{"agent": agent}},
	})
	return s
}

// call sends a request and returns its result.
func (s *second) call(method string, params map[string]any) map[string]any {
	s.t.Helper()
	s.id++
	frame, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": s.id, "method": method, "params": params})
	if err != nil {
		s.t.Fatal(err)
	}
	s.check("out", frame)
	if err := s.ws.Write(s.t.Context(), websocket.MessageText, frame); err != nil {
		s.t.Fatal(err)
	}
	for {
		m := s.next()
		if m["id"] == float64(s.id) && m["method"] == nil {
			result, ok := m["result"].(map[string]any)
			if !ok {
				s.t.Fatalf("%s: %v", method, m["error"])
			}
			return result
		}
	}
}

func (s *second) next() map[string]any {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	_, frame, err := s.ws.Read(ctx)
	if err != nil {
		s.t.Fatal(err)
	}
	s.check("in", frame)
	var m map[string]any
	if err := json.Unmarshal(frame, &m); err != nil {
		s.t.Fatal(err)
	}
	if m["method"] == "session/update" {
		params := m["params"].(map[string]any)
		update := params["update"].(map[string]any)
		update["_session"] = params["sessionId"]
		s.updates = append(s.updates, update)
	}
	return m
}

// until reads updates until one matches, and returns it.
func (s *second) until(match func(u map[string]any) bool, from int) map[string]any {
	s.t.Helper()
	for i := from; ; i++ {
		for i >= len(s.updates) {
			s.next()
		}
		if match(s.updates[i]) {
			return s.updates[i]
		}
	}
}

func (s *second) prompt(session, text string) {
	s.t.Helper()
	s.call("session/prompt", map[string]any{"sessionId": session, "prompt": []any{map[string]any{"type": "text", "text": text}}})
}

func isState(state string) func(u map[string]any) bool {
	return func(u map[string]any) bool { return u["sessionUpdate"] == "state_update" && u["state"] == state }
}

// conversation is what the updates are about, without states: ids and texts by message.
func (s *second) conversation() []string {
	var order []string
	texts := map[string]string{}
	for _, u := range s.updates {
		id, _ := u["messageId"].(string)
		if id == "" {
			continue
		}
		id = fmt.Sprint(u["_session"], " ", id) // children may use the same
		if _, known := texts[id]; !known {
			order = append(order, id)
		}
		switch content := u["content"].(type) {
		case []any: // the whole message
			texts[id] = ""
			for _, b := range content {
				texts[id] += fmt.Sprint(b.(map[string]any)["text"])
			}
		case map[string]any:
			texts[id] += fmt.Sprint(content["text"])
		}
	}
	for i, id := range order {
		order[i] = id + " " + texts[id]
	}
	return order
}

// A gateway that is killed in a turn of version 2 has all of it when it is back, under the
// same ids, for clients of either version.
func TestVersions_Killed(t *testing.T) {
	g := startGateway(t)
	two := dialSecond(t, g)
	session, _ := two.call("session/new", map[string]any{"cwd": t.TempDir()})["sessionId"].(string)
	two.prompt(session, "echo before")
	two.until(isState("idle"), 0)
	from := len(two.updates)
	two.prompt(session, "slow")
	two.until(func(u map[string]any) bool { return u["sessionUpdate"] == "agent_message_chunk" }, from)
	g.kill(syscall.SIGKILL)
	g.start()

	again := dialSecond(t, g)
	again.call("session/resume", map[string]any{"sessionId": session, "cwd": t.TempDir(), "replayFrom": map[string]any{"type": "start"}})
	if last := again.updates[len(again.updates)-1]; !isState("idle")(last) {
		t.Errorf("behind the replay the state is %v", last)
	}
	was, is := two.conversation(), again.conversation()
	if len(was) < 4 || len(is) != len(was) || !slices.Equal(was[:len(was)-1], is[:len(is)-1]) || !strings.HasPrefix(is[len(is)-1], was[len(was)-1]) {
		t.Errorf("the conversation was\n%s\nand is\n%s", strings.Join(was, "\n"), strings.Join(is, "\n"))
	}

	one := connect(t, g, wsocket, options{})
	one.attach("session/load", session, nil)
	from = len(again.updates)
	if got := one.prompt(session, "echo after"); got != "end_turn" {
		t.Errorf("a turn of version 1 after the restart ended with %s", got)
	}
	again.until(isState("idle"), from)
	again.prompt(session, "echo at last")
	one.find(0, "the prompt of version 2", func(m *message) bool { return strings.Contains(string(m.raw), "echo at last") })
}
