package pi

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridgetest"
	"sandboxagent.dev/sandbox-agent/internal/agentcache"
	"sandboxagent.dev/sandbox-agent/internal/scriptedmodel"
)

// counting counts the questions that an answer is given to.
func counting(n *atomic.Int32, answer bridgetest.Answer) bridgetest.Answer {
	return func(method string, params json.RawMessage) any {
		n.Add(1)
		return answer(method, params)
	}
}

func livePermissions(t *testing.T, w *world) {
	var asked atomic.Int32
	var option atomic.Value
	option.Store(optionAllow)
	c := w.open(schema.ClientCapabilities{}, counting(&asked, func(method string, params json.RawMessage) any {
		return bridgetest.Pick(option.Load().(string))(method, params)
	}))
	id := c.Fresh()
	times := func(prompt string) int32 {
		t.Helper()
		before := asked.Load()
		c.Turn(id, prompt)
		return asked.Load() - before
	}
	made := filepath.Join(w.Cwd, "made")
	touch := "run touch " + made
	for range 2 {
		if n := times(touch); n != 1 {
			t.Errorf("allowed once, then asked %d times", n)
		}
	}
	if _, err := os.Stat(made); err != nil {
		t.Error(err)
	}
	if n := times("read " + made); n != 0 {
		t.Errorf("reading was asked for %d times", n)
	}
	option.Store(optionReject)
	if n := times("run rm " + made); n != 1 {
		t.Errorf("asked %d times", n)
	}
	if _, err := os.Stat(made); err != nil {
		t.Error("what was rejected was done")
	}
	option.Store(optionAlways)
	times(touch)
	option.Store(optionReject)
	if n := times(touch); n != 0 {
		t.Errorf("always allowed, then asked %d times", n)
	}
	if n := times("run touch " + made + "-other"); n != 1 {
		t.Errorf("another command was asked for %d times", n)
	}
	option.Store(optionTool)
	times("run echo one")
	option.Store(optionReject)
	if n := times("run echo two"); n != 0 {
		t.Errorf("all commands allowed, then asked %d times", n)
	}
	other := c.New("")
	before := asked.Load()
	c.Turn(other, touch)
	if n := asked.Load() - before; n != 1 {
		t.Errorf("in another session it was asked for %d times", n)
	}
	option.Store("no such option")
	before = asked.Load()
	c.Turn(other, "write "+filepath.Join(w.Cwd, "unknown.txt")+" x")
	if _, err := os.Stat(filepath.Join(w.Cwd, "unknown.txt")); err == nil || asked.Load()-before != 1 {
		t.Error("an option that was not offered allows")
	}
}

func liveRejectWithMessage(t *testing.T, w *world) {
	c := w.open(schema.ClientCapabilities{}, func(string, json.RawMessage) any {
		return map[string]any{
			"outcome": map[string]string{"outcome": "selected", "optionId": optionReject},
			"_meta":   bridge.Meta(map[string]string{"message": "not on a Sunday"}),
		}
	})
	id := c.New("")
	if stop, got := c.Turn(id, "run touch "+filepath.Join(w.Home, "never")); stop != schema.StopReasonEndTurn || !strings.Contains(bridgetest.Said(got), "not on a Sunday") {
		t.Errorf("ended with %s, said %q", stop, bridgetest.Said(got))
	}
	if _, err := os.Stat(filepath.Join(w.Home, "never")); err == nil {
		t.Error("it was done nevertheless")
	}
}

// liveParallelCallsAskOneByOne: each call has a question of its own.
func liveParallelCallsAskOneByOne(t *testing.T, w *world) {
	one, two := filepath.Join(w.Cwd, "one"), filepath.Join(w.Cwd, "two")
	w.script("both", scriptedmodel.Step{scriptedmodel.Shell("touch " + one), scriptedmodel.Shell("touch " + two)}, scriptedmodel.Step{scriptedmodel.Say("done")})
	c := w.open(schema.ClientCapabilities{}, func(method string, params json.RawMessage) any {
		if strings.Contains(string(params), "touch "+one) {
			return bridgetest.Pick(optionReject)(method, params)
		}
		return bridgetest.Pick(optionAllow)(method, params)
	})
	if _, got := c.Turn(c.New(""), "both"); bridgetest.Said(got) != "done" {
		t.Errorf("said %q\n%s", bridgetest.Said(got), c.Quote())
	}
	_, errOne := os.Stat(one)
	_, errTwo := os.Stat(two)
	if errOne == nil || errTwo != nil {
		t.Errorf("the rejected one: %v, the allowed one: %v", errOne, errTwo)
	}
}

func liveModes(t *testing.T, w *world) {
	outside := t.TempDir()
	if err := os.Symlink(outside, filepath.Join(w.Cwd, "link")); err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int32
	c := w.open(schema.ClientCapabilities{}, counting(&asked, bridgetest.Pick(optionReject)))
	id := c.New("")
	for _, tt := range []struct {
		mode, prompt, made string
		asked              int32
		done               bool
	}{
		{modeReadonly, "write CWD/a.txt x", "CWD/a.txt", 0, false},
		{modeReadonly, "run touch CWD/b", "CWD/b", 0, false},
		{modeWrite, "write CWD/new/c.txt x", "CWD/new/c.txt", 0, true},
		{modeWrite, "run touch CWD/d", "CWD/d", 1, false},
		{modeWrite, "write CWD/link/e.txt x", outside + "/e.txt", 1, false},
		{modeWrite, "write " + outside + "/f.txt x", outside + "/f.txt", 1, false},
		{modeBypass, "run touch CWD/g", "CWD/g", 0, true},
		{modeDefault, "write CWD/h.txt x", "CWD/h.txt", 1, false},
	} {
		before := asked.Load()
		in := func(s string) string { return strings.ReplaceAll(s, "CWD", w.Cwd) }
		c.set(id, configMode, tt.mode)
		c.Turn(id, in(tt.prompt))
		if _, err := os.Stat(in(tt.made)); (err == nil) != tt.done || asked.Load()-before != tt.asked {
			t.Errorf("%s: %s: asked %d times, then %v", tt.mode, tt.prompt, asked.Load()-before, err)
		}
	}
	wished := c.NewResult(`{"permissionMode":"` + modeReadonly + `"}`)
	if mode := rawjson.MemberString(wished, "modes", "currentModeId"); mode != modeReadonly {
		t.Errorf("it begins in mode %s", mode)
	}
}

func liveModeInARunningTurn(t *testing.T, w *world) {
	made := filepath.Join(w.Cwd, "made")
	c := w.open(schema.ClientCapabilities{}, nil)
	id := c.New("")
	gate := make(chan struct{})
	w.script("wait, then run", scriptedmodel.Step{scriptedmodel.Say("well "), scriptedmodel.Gate(gate), scriptedmodel.Shell("touch " + made)}, scriptedmodel.Step{scriptedmodel.Say("done")})
	from := c.Seen()
	p := c.Prompt(id, "wait, then run")
	c.Await("text", from, has("well"))
	c.Must(acp.MethodSessionSetMode, &schema.SetSessionModeRequest{SessionID: id, ModeID: modeBypass})
	c.Await("the mode", from, has("current_mode_update"))
	close(gate)
	if r, e := c.Result(p); e != nil || rawjson.MemberString(r, "stopReason") != "end_turn" {
		t.Fatalf("%s, %v\n%s", r, e, c.Quote())
	}
	if _, err := os.Stat(made); err != nil {
		t.Error(err)
	}
	_, e := c.Call(acp.MethodSessionSetMode, &schema.SetSessionModeRequest{SessionID: id, ModeID: "nope"})
	if e == nil || !strings.Contains(e.Message, "default, readonly, write, bypass") {
		t.Errorf("an unknown mode: %v", e)
	}
	c.Must(acp.MethodSessionSetMode, &schema.SetSessionModeRequest{SessionID: id, ModeID: modeDefault})
}

// TestLive_GateFailsClosed: a Pi that does not load the gate gets no session, and
// neither one whose gate is another's.
func TestLive_GateFailsClosed(t *testing.T) {
	for _, v := range versions {
		t.Run(v, func(t *testing.T) {
			t.Parallel()
			if v != version {
				agentcache.Long(t, "an early version, which few still have")
			}
			w := newWorldOf(t, v)
			script := w.Program
			// A program that leaves out the extensions that it is given.
			filter := `a=""; skip=""; for x; do if [ -n "$skip" ]; then skip=""; elif [ "$x" = --extension ]; then skip=1; else set -- "$@" "$x"; fi; shift; done; exec "$@"`
			w.Program.Path, w.Program.Args = "/bin/sh", []string{"-c", filter, "sh", script.Path, script.Args[0]}
			c := w.open(schema.ClientCapabilities{}, nil)
			_, e := c.Call(acp.MethodSessionNew, &schema.NewSessionRequest{Cwd: w.Cwd, MCPServers: []schema.MCPServer{}})
			if e == nil || !strings.Contains(e.Message, "permission gate") || !strings.Contains(e.Message, "bypass") {
				t.Fatalf("session/new without a gate: %v", e)
			}
			if left, _ := filepath.Glob(filepath.Join(w.State, "run", "*")); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
			// Whoever wants no gate does without.
			id := c.New(`{"permissionMode":"bypass"}`)
			if _, got := c.Turn(id, "run echo free"); !strings.Contains(bridgetest.Said(got), "free") {
				t.Errorf("said %q", bridgetest.Said(got))
			}
			if _, e := c.Call(acp.MethodSessionSetMode, &schema.SetSessionModeRequest{SessionID: id, ModeID: modeDefault}); e == nil || !strings.Contains(e.Message, "without the permission gate") {
				t.Errorf("a mode that cannot be kept: %v", e)
			}
		})
	}
}

func liveDiffs(t *testing.T, w *world) {
	file, fresh, large := filepath.Join(w.Cwd, "a.txt"), filepath.Join(w.Cwd, "sub/new.txt"), filepath.Join(w.Cwd, "large.txt")
	w.Write(file, "alpha\nbeta\ngamma\n", 0o600)
	w.Write(large, strings.Repeat("x", bridge.MaxBefore+1), 0o600)
	write := func(path, s string) scriptedmodel.Action {
		return scriptedmodel.Call("write", map[string]string{"path": path, "content": s})
	}
	w.script("edit",
		scriptedmodel.Step{editing("a.txt", "alpha", "ALPHA", "gamma", "GAMMA")},
		scriptedmodel.Step{write("sub/new.txt", "one\n")}, scriptedmodel.Step{write(file, "instead\n")}, scriptedmodel.Step{write(large, "small")},
		scriptedmodel.Step{scriptedmodel.Say("edited")})
	var mu atomic.Int32
	shownInAsk := []string{}
	c := w.open(schema.ClientCapabilities{}, counting(&mu, func(method string, params json.RawMessage) any {
		content, _ := rawjson.Member(params, "toolCall", "content")
		shownInAsk = append(shownInAsk, string(content))
		return bridgetest.Pick(optionAllow)(method, params)
	}))
	_, got := c.Turn(c.New(""), "edit")
	last := map[schema.ToolCallID][]schema.ToolCallContent{}
	var order []schema.ToolCallID
	for _, u := range got {
		var id schema.ToolCallID
		var content []schema.ToolCallContent
		switch {
		case u.ToolCall != nil:
			id, content = u.ToolCall.ToolCallID, u.ToolCall.Content
			order = append(order, id)
		case u.ToolCallUpdate != nil:
			id, content = u.ToolCallUpdate.ToolCallID, u.ToolCallUpdate.Content
		}
		if len(content) > 0 {
			last[id] = content
		}
	}
	if len(order) != 4 || len(shownInAsk) != 4 {
		t.Fatalf("%d calls, %d questions\n%s", len(order), len(shownInAsk), c.Quote())
	}
	old := func(d *schema.Diff) string {
		if d == nil || d.OldText == nil {
			return "none"
		}
		return *d.OldText
	}
	for i, want := range []struct{ path, before, after string }{
		{file, "alpha\nbeta\ngamma\n", "ALPHA\nbeta\nGAMMA\n"}, {fresh, "none", "one\n"}, {file, "ALPHA\nbeta\nGAMMA\n", "instead\n"},
	} {
		content := last[order[i]]
		if len(content) != 1 || content[0].Diff == nil || content[0].Diff.Path != want.path || old(content[0].Diff) != want.before || content[0].Diff.NewText != want.after {
			t.Errorf("call %d shows %s", i, bridgetest.Encoded(content))
		}
		if inAsk, _ := schema.Encode(content); shownInAsk[i] != string(inAsk) {
			t.Errorf("the question of call %d shows %s", i, shownInAsk[i])
		}
	}
	if s := text(last[order[3]]); !strings.Contains(s, "too large to show") {
		t.Errorf("a large file is shown as %.200s", bridgetest.Encoded(last[order[3]]))
	}
	if w.Read(file) != "instead\n" || w.Read(large) != "small" {
		t.Error("the files are not as they should be")
	}
}
