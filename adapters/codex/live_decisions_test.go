package codex

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridgetest"
	"sandboxagent.dev/sandbox-agent/internal/scriptedmodel"
)

// decider answers permission requests with the option of the moment, "cancelled"
// for that outcome, and counts them.
type decider struct {
	mu     sync.Mutex
	option string
	asked  []json.RawMessage
}

func (d *decider) answer(method string, params json.RawMessage) any {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked = append(d.asked, params)
	if d.option == "cancelled" {
		return map[string]any{"outcome": map[string]string{"outcome": "cancelled"}}
	}
	return bridgetest.Pick(d.option)(method, params)
}

// next takes the option of the next turn.
func (d *decider) next(option string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.option, d.asked = option, nil
}

func (d *decider) requests() []json.RawMessage {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.asked)
}

// liveFilePermissions maps every decision about a change of files.
func liveFilePermissions(t *testing.T, w *world) {
	dir := outside(t)
	file := filepath.Join(dir, "file.txt")
	d := &decider{}
	c := w.open(schema.ClientCapabilities{}, d.answer)
	id := c.New(`{"permissionMode":"write"}`)
	content := "zero\n"
	w.Write(file, content, 0o600)
	for i, one := range []struct {
		option string
		stop   schema.StopReason
		status schema.ToolCallStatus
		asked  int
	}{
		{"reject_once", schema.StopReasonEndTurn, schema.ToolCallStatusFailed, 1},
		{"cancelled", schema.StopReasonCancelled, schema.ToolCallStatusFailed, 1},
		{"allow_once", schema.StopReasonEndTurn, schema.ToolCallStatusCompleted, 1},
		{"allow_session", schema.StopReasonEndTurn, schema.ToolCallStatusCompleted, 1},
		{"reject_once", schema.StopReasonEndTurn, schema.ToolCallStatusCompleted, 0}, // allowed already
	} {
		prompt, changed := fmt.Sprintf("edit %d", i), fmt.Sprintf("changed %d\n", i)
		patch := "*** Begin Patch\n*** Update File: " + file + "\n@@\n-" + content + "+" + changed + "*** End Patch\n"
		w.Model.On(scriptedmodel.Exactly(prompt), scriptedmodel.Step{scriptedmodel.Call("apply_patch", patch)}, scriptedmodel.Step{scriptedmodel.Say("went on")})
		d.next(one.option)
		stop, got := c.Turn(id, prompt)
		call := only(t, got)
		if stop != one.stop || call.Status != one.status || len(d.requests()) != one.asked {
			t.Errorf("%s: it ended with %s, the call is %s, asked %d times\n%s", one.option, stop, call.Status, len(d.requests()), c.Quote())
		}
		for _, r := range d.requests() {
			if before, after := `"oldText":`+string(rawjson.AppendQuoted(nil, content)), `"newText":`+string(rawjson.AppendQuoted(nil, changed)); !strings.Contains(string(r), before) || !strings.Contains(string(r), after) {
				t.Errorf("%s: the request does not show the change: %s", one.option, r)
			}
		}
		if one.status == schema.ToolCallStatusCompleted {
			content = changed
		}
		if now := w.Read(file); now != content {
			t.Errorf("%s: the file holds %q, want %q", one.option, now, content)
		}
	}
}

// liveMCPPermissions maps every decision about a call of an MCP server's
// tool.
func liveMCPPermissions(t *testing.T, w *world) {
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skipf("node is not installed: %v", err)
	}
	script := w.Write("mcp.cjs", mcpServer, 0o600)
	w.Model.On(scriptedmodel.Exactly("mcp write"), scriptedmodel.Step{scriptedmodel.Call("mcp__demo/write", map[string]string{"text": "hello"})}, scriptedmodel.Step{scriptedmodel.SayResult()})
	d := &decider{}
	c := w.open(schema.ClientCapabilities{}, d.answer)
	open := func() schema.SessionID {
		r := c.Must(acp.MethodSessionNew, &schema.NewSessionRequest{Cwd: w.Cwd, MCPServers: []schema.MCPServer{{Stdio: &schema.MCPServerStdio{Name: "demo", Command: node, Args: []string{script}}}}})
		return schema.SessionID(rawjson.MemberString(r, "sessionId"))
	}
	id := open()
	for _, one := range []struct {
		option string
		stop   schema.StopReason
		status schema.ToolCallStatus
		asked  int
	}{
		{"reject_once", schema.StopReasonEndTurn, schema.ToolCallStatusFailed, 1},
		{"cancelled", schema.StopReasonCancelled, schema.ToolCallStatusFailed, 1}, // codex itself would go on
		{"allow_once", schema.StopReasonEndTurn, schema.ToolCallStatusCompleted, 1},
		{"allow_session", schema.StopReasonEndTurn, schema.ToolCallStatusCompleted, 1},
		{"reject_once", schema.StopReasonEndTurn, schema.ToolCallStatusCompleted, 0}, // allowed already
	} {
		d.next(one.option)
		stop, got := c.Turn(id, "mcp write")
		if call := only(t, got); stop != one.stop || call.Status != one.status || len(d.requests()) != one.asked {
			t.Errorf("%s: it ended with %s, the call is %s, asked %d times\n%s", one.option, stop, call.Status, len(d.requests()), c.Quote())
		}
	}
	// Another session was not asked for.
	d.next("allow_once")
	if c.Turn(open(), "mcp write"); len(d.requests()) != 1 {
		t.Errorf("another session was asked %d times", len(d.requests()))
	}
}

// liveModesConfine: what each mode lets a command do.
func liveModesConfine(t *testing.T, w *world) {
	dir := outside(t)
	c := w.open(schema.ClientCapabilities{}, nil)
	id := c.New("")
	writes := func(path string) bool {
		t.Helper()
		_ = os.Remove(path)
		c.Turn(id, "run echo x > "+path)
		_, err := os.Stat(path)
		return err == nil
	}
	for _, one := range []struct {
		mode            string
		inside, outside bool
	}{
		{modeReadOnly, false, false}, {modeAgent, true, false}, {modePlan, false, false}, {modeFullAccess, true, true}, {modeReadOnly, false, false},
	} {
		c.Must(acp.MethodSessionSetMode, &schema.SetSessionModeRequest{SessionID: id, ModeID: schema.SessionModeID(one.mode)})
		if in, out := writes(filepath.Join(w.Cwd, "x")), writes(filepath.Join(dir, "x")); in != one.inside || out != one.outside {
			t.Errorf("mode %s writes inside %v, outside %v\n%s", one.mode, in, out, c.Quote())
		}
	}
}

// liveImageView: the model looks at an image on the machine.
func liveImageView(t *testing.T, w *world) {
	png, err := base64.StdEncoding.DecodeString(dot)
	if err != nil {
		t.Fatal(err)
	}
	file := w.Write(filepath.Join(w.Cwd, "dot.png"), string(png), 0o600)
	w.Model.On(scriptedmodel.Exactly("look"), scriptedmodel.Step{scriptedmodel.Call("view_image", map[string]string{"path": file})}, scriptedmodel.Step{scriptedmodel.Say("seen")})
	c := w.open(schema.ClientCapabilities{}, nil)
	_, got := c.Turn(c.New(""), "look")
	if call := only(t, got); call.Kind != schema.ToolKindRead || call.Status != schema.ToolCallStatusCompleted || len(call.Locations) != 1 || call.Locations[0].Path != file {
		t.Errorf("the call is %+v\n%s", call, c.Quote())
	}
}

// restartLoadPages replays more turns than codex gives at once, in order.
func restartLoadPages(t *testing.T, w *world, c *client) (after func(again *client)) {
	id := c.New("")
	var want strings.Builder
	for i := range turnPage + 3 {
		c.Turn(id, fmt.Sprintf("say number %d", i))
		fmt.Fprintf(&want, "say number %d\n", i)
	}
	return func(again *client) {
		from := again.Seen()
		again.Must(acp.MethodSessionLoad, &schema.LoadSessionRequest{SessionID: id, Cwd: w.Cwd, MCPServers: []schema.MCPServer{}})
		past := again.Updates(from)
		if got := userSaid(past); got != want.String() {
			t.Errorf("the replay is\n%s", got)
		}
		if said := bridgetest.Said(past); !strings.HasSuffix(said, fmt.Sprintf("number %d", turnPage+2)) {
			t.Errorf("it ends with %.40q", said[max(0, len(said)-40):])
		}
	}
}

// liveBadKeyIsStoppedEarly: codex would try again for many seconds.
func liveBadKeyIsStoppedEarly(t *testing.T, w *world) {
	c := w.open(noticing, nil)
	id := c.New("")
	began := time.Now()
	_, e := c.Result(c.Prompt(id, "fail 401"))
	if e == nil || e.Code != acp.CodeAuthRequired || !strings.Contains(e.Message, "OPENAI_API_KEY") {
		t.Errorf("it ended with %v", e)
	}
	if calls := len(w.Turns()); calls > 10 {
		t.Errorf("after %v the model was called %d times", time.Since(began), calls)
	}
	if _, got := c.Turn(id, "say alive"); bridgetest.Said(got) != "alive" {
		t.Errorf("afterwards it said %q", bridgetest.Said(got))
	}
}
