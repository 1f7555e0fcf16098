package claude

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridgetest"
	"sandboxagent.dev/sandbox-agent/internal/agentcache"
	"sandboxagent.dev/sandbox-agent/internal/scriptedmodel"
)

func liveAlwaysAllowHoldsInUntrustedFolders(t *testing.T, w *world) {
	var mu sync.Mutex
	asked := 0
	c := w.open(noticing, func(method string, params json.RawMessage) any {
		mu.Lock()
		defer mu.Unlock()
		asked++
		return bridgetest.Pick(optionAlways)(method, params)
	})
	id := c.New("")
	for range 3 {
		if _, got := c.Turn(id, "run mkdir -p "+filepath.Join(w.Cwd, "made")); !strings.HasPrefix(bridgetest.Said(got), "ran:") {
			t.Fatalf("said %q\n%s", bridgetest.Said(got), c.Quote())
		}
	}
	mu.Lock()
	if asked != 1 {
		t.Errorf("asked %d times, want once", asked)
	}
	mu.Unlock()
	// Outside of the workspace it takes the mode and the folder.
	var options string
	outside := w.open(noticing, func(_ string, params json.RawMessage) any {
		mu.Lock()
		defer mu.Unlock()
		asked++
		options = string(params)
		return bridgetest.Pick("allow_mode_acceptEdits")("session/request_permission", params)
	})
	mu.Lock()
	asked = 0
	mu.Unlock()
	for _, name := range []string{"one", "two"} {
		file := filepath.Join(w.Home, "elsewhere", name)
		if _, got := outside.Turn(id, "write "+file+" text"); !strings.HasPrefix(bridgetest.Said(got), "wrote:") {
			t.Fatalf("said %q\n%s", bridgetest.Said(got), outside.Quote())
		}
		if _, err := os.Stat(file); err != nil {
			t.Error(err)
		}
	}
	outside.Must(acp.MethodSessionSetMode, &schema.SetSessionModeRequest{SessionID: id, ModeID: modeDefault})
	mu.Lock()
	defer mu.Unlock()
	if asked != 1 || !strings.Contains(options, "also in ") {
		t.Errorf("asked %d times to write elsewhere, want once, with %s", asked, options)
	}
	if left, _ := filepath.Glob(filepath.Join(w.Cwd, ".claude", "*")); len(left) > 0 {
		t.Errorf("the workspace has %v", left)
	}
}

func liveDenyWithMessage(t *testing.T, w *world) {
	c := w.open(noticing, func(method string, _ json.RawMessage) any {
		return map[string]any{
			"outcome": map[string]string{"outcome": "selected", "optionId": optionReject},
			"_meta":   bridge.Meta(map[string]string{"message": "not on a Sunday"}),
		}
	})
	id := c.New("")
	stop, got := c.Turn(id, "run touch "+filepath.Join(w.Home, "never"))
	if stop != schema.StopReasonEndTurn || !strings.Contains(bridgetest.Said(got), "not on a Sunday") {
		t.Errorf("ended with %s, said %q", stop, bridgetest.Said(got))
	}
	if _, err := os.Stat(filepath.Join(w.Home, "never")); err == nil {
		t.Error("it was done nevertheless")
	}
}

func liveDiffs(t *testing.T, w *world) {
	c := w.open(noticing, bridgetest.Pick(optionAllow))
	file := filepath.Join(w.Cwd, "a.txt")
	if err := os.WriteFile(file, []byte("alpha\nbeta\ngamma\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	fresh := filepath.Join(w.Cwd, "new.txt")
	w.Model.On(scriptedmodel.Exactly("edit"),
		scriptedmodel.Step{scriptedmodel.ReadFile(file)},
		scriptedmodel.Step{scriptedmodel.EditFile(file, "beta", "BETA"), scriptedmodel.WriteFile(fresh, "one\n")},
		scriptedmodel.Step{scriptedmodel.Say("edited")})
	id := c.New("")
	_, got := c.Turn(id, "edit")
	diffs := map[string]*schema.Diff{}
	first := map[string]*schema.Diff{}
	note := func(content []schema.ToolCallContent) {
		for _, one := range content {
			if d := one.Diff; d != nil {
				diffs[d.Path] = d
				if first[d.Path] == nil {
					first[d.Path] = d
				}
			}
		}
	}
	for _, u := range got {
		if u.ToolCall != nil {
			note(u.ToolCall.Content)
		}
		if u.ToolCallUpdate != nil {
			note(u.ToolCallUpdate.Content)
		}
	}
	for when, m := range map[string]map[string]*schema.Diff{"before": first, "after": diffs} {
		if d := m[file]; d == nil || d.OldText == nil || *d.OldText != "alpha\nbeta\ngamma\n" || d.NewText != "alpha\nBETA\ngamma\n" {
			t.Errorf("%s the edit its diff is %+v", when, d)
		}
		if d := m[fresh]; d == nil || d.OldText != nil || d.NewText != "one\n" {
			t.Errorf("%s the write its diff is %+v", when, d)
		}
	}
	if b, _ := os.ReadFile(file); string(b) != "alpha\nBETA\ngamma\n" {
		t.Errorf("the file has %q", b)
	}
	// A diff is what happens to the file, line ends included.
	ends := w.Write(filepath.Join(w.Cwd, "ends.txt"), "alpha\r\nbeta\r\ngamma\r\n", 0o600)
	again := w.Write(filepath.Join(w.Cwd, "again.txt"), "alpha\r\nbeta\r\n", 0o600)
	w.Model.On(scriptedmodel.Exactly("edit ends"),
		scriptedmodel.Step{scriptedmodel.ReadFile(ends), scriptedmodel.ReadFile(again)},
		scriptedmodel.Step{scriptedmodel.EditFile(ends, "alpha\nbeta", "ALPHA\nBETA"), scriptedmodel.WriteFile(again, "alpha\nBETA\n")},
		scriptedmodel.Step{scriptedmodel.Say("edited")})
	_, got = c.Turn(id, "edit ends")
	clear(diffs)
	clear(first)
	for _, u := range got {
		if u.ToolCall != nil {
			note(u.ToolCall.Content)
		}
		if u.ToolCallUpdate != nil {
			note(u.ToolCallUpdate.Content)
		}
	}
	for path, was := range map[string]string{ends: "alpha\r\nbeta\r\ngamma\r\n", again: "alpha\r\nbeta\r\n"} {
		is := w.Read(path)
		if d := diffs[path]; d == nil || d.OldText == nil || *d.OldText != was || d.NewText != is {
			t.Errorf("the diff of %s is %+v, the file has %q", filepath.Base(path), d, is)
		}
	}
	if d := first[ends]; d == nil || d.OldText == nil || *d.OldText != "alpha\r\nbeta\r\ngamma\r\n" || d.NewText != w.Read(ends) {
		t.Errorf("before the edit its diff is %+v", d)
	}
}

func liveQuestion(t *testing.T, w *world) {
	agentcache.Long(t, `the scenarios "question ..." show it through the gateway`)
	type object = map[string]any
	w.Model.On(scriptedmodel.Exactly("ask me"),
		scriptedmodel.Step{scriptedmodel.Call("AskUserQuestion", object{"questions": []object{{
			"question": "Which color?", "header": "Color", "multiSelect": false,
			"options": []object{{"label": "Red", "description": "warm"}, {"label": "Blue", "description": "cold"}},
		}, {
			"question": "Which sizes?", "header": "Sizes", "multiSelect": true,
			"options": []object{{"label": "S", "description": "small"}, {"label": "L", "description": "large"}},
		}}})},
		scriptedmodel.Step{scriptedmodel.SayResult()})
	answer := object{"outcome": "answered", "answers": [][]string{{"Blue"}, {"S", "L"}}}
	c := w.open(noticing, func(method string, params json.RawMessage) any {
		if method != acp.MethodRequestQuestion || !strings.Contains(string(params), "Which sizes?") || !strings.Contains(string(params), `"ownWords":true`) {
			t.Errorf("asked %s %s", method, params)
		}
		return answer
	})
	id := c.New("")
	_, got := c.Turn(id, "ask me")
	for _, want := range []string{"Blue", "S, L"} {
		if !strings.Contains(bridgetest.Said(got), want) {
			t.Errorf("the model heard %q, want %s in it", bridgetest.Said(got), want)
		}
	}
	answer = object{"outcome": "rejected", "answers": []string{}}
	if _, got = c.Turn(id, "ask me"); !strings.Contains(bridgetest.Said(got), "does not want to answer") {
		t.Errorf("the model heard %q", bridgetest.Said(got))
	}
	answer = object{"outcome": "cancelled", "answers": []string{}}
	if stop, _ := c.Turn(id, "ask me"); stop != schema.StopReasonCancelled {
		t.Errorf("ended with %s", stop)
	}
}

func livePlanApproval(t *testing.T, w *world) {
	planFile := regexp.MustCompile(`[^\s"'\\]+/\.claude/plans/[\w.-]+\.md`) // the program names it to the model
	w.Model.OnRequest(scriptedmodel.Exactly("plan it"), func(r *scriptedmodel.Request) []scriptedmodel.Step {
		file := string(planFile.Find(r.Body))
		return []scriptedmodel.Step{
			{scriptedmodel.Call("EnterPlanMode", map[string]any{})},
			{scriptedmodel.WriteFile(file, "# The plan\n1. Do it")},
			{scriptedmodel.Call("ExitPlanMode", map[string]any{})},
			{scriptedmodel.Say("done")},
		}
	})
	option := string(modeAcceptEdits)
	plan := false
	c := w.open(noticing, func(method string, params json.RawMessage) any {
		plan = plan || strings.Contains(string(params), "ExitPlanMode") && strings.Contains(string(params), "# The plan")
		return bridgetest.Pick(option)(method, params)
	})
	id := c.New("")
	modes := func(list []schema.SessionUpdate) string {
		var out []string
		for _, u := range list {
			if u.CurrentModeUpdate != nil {
				out = append(out, string(u.CurrentModeUpdate.CurrentModeID))
			}
		}
		return strings.Join(out, " ")
	}
	if _, got := c.Turn(id, "plan it"); modes(got) != "plan acceptEdits" || !plan || bridgetest.Said(got) != "done" {
		t.Errorf("modes %q, plan %t, said %q\n%s", modes(got), plan, bridgetest.Said(got), c.Quote())
	}
	option = optionReject
	if _, got := c.Turn(id, "plan it"); modes(got) != "plan" {
		t.Errorf("rejected: modes %q", modes(got))
	}
	option = modeDefault
	if _, got := c.Turn(id, "plan it"); modes(got) != "default" {
		t.Errorf("accepted in mode plan: modes %q\n%s", modes(got), c.Quote())
	}
}

func liveSubagents(t *testing.T, w *world) {
	w.Model.On(scriptedmodel.Exactly("look around"), scriptedmodel.Step{scriptedmodel.Say("looking"), scriptedmodel.Shell("touch " + filepath.Join(w.Cwd, "by-sub"))},
		scriptedmodel.Step{scriptedmodel.Say("the report")})
	for _, background := range []bool{false, true} {
		w.Model.OnRequest(scriptedmodel.Exactly("delegate"), func(r *scriptedmodel.Request) []scriptedmodel.Step {
			say := "delegated"
			if notified(r) {
				say = "noticed"
			}
			return []scriptedmodel.Step{{scriptedmodel.Call("Agent", map[string]any{
				"description": "Look", "prompt": "look around", "subagent_type": "general-purpose", "run_in_background": background,
			})}, {scriptedmodel.Say(say)}}
		})
		c := w.open(noticing, bridgetest.Pick(optionAllow))
		id := c.New("")
		from := c.Seen()
		if stop, _ := c.Turn(id, "delegate"); stop != schema.StopReasonEndTurn {
			t.Fatalf("ended with %s", stop)
		}
		if background {
			c.Await("the turn about the end", from, func(m *acp.Message) bool { return strings.Contains(string(m.Frame()), "noticed") })
		}
		var parent, child schema.ToolCallID
		status := map[schema.ToolCallID]schema.ToolCallStatus{}
		report, titles := "", map[schema.ToolCallID]string{}
		for _, u := range c.Updates(from) {
			if call := u.ToolCall; call != nil {
				switch of := rawjson.MemberString(call.Meta[acp.MetaKey], "parentToolCallId"); {
				case *call.Name == "Agent":
					parent = call.ToolCallID
				case of != "" && of == string(parent):
					child = call.ToolCallID
				}
			}
			if up := u.ToolCallUpdate; up != nil {
				if up.Status != "" {
					status[up.ToolCallID] = up.Status
				}
				if up.Title != nil {
					titles[up.ToolCallID] = *up.Title
				}
				if b, _ := schema.Encode(up); up.ToolCallID == parent {
					report += string(b)
				}
			}
		}
		if parent == "" || child == "" || status[parent] != schema.ToolCallStatusCompleted || status[child] != schema.ToolCallStatusCompleted {
			t.Errorf("parent %q %s, child %q %s\n%s", parent, status[parent], child, status[child], c.Quote())
		}
		if title := titles[parent]; title != "Look" {
			t.Errorf("a subagent that has ended is called %q", title)
		}
		for _, want := range []string{"looking", "the report"} {
			if !strings.Contains(report, want) {
				t.Errorf("the parent call does not show %q", want)
			}
		}
		if said := bridgetest.Said(c.Updates(from)); strings.Contains(said, "report") || strings.Contains(said, "looking") {
			t.Errorf("the subagent's words are the agent's: %q", said)
		}
		w.Model.On(scriptedmodel.Exactly("stay"), scriptedmodel.Step{scriptedmodel.Say("staying"), scriptedmodel.Shell("echo here")}, scriptedmodel.Step{scriptedmodel.Forever()})
		w.Model.On(scriptedmodel.Exactly("delegate for long"), scriptedmodel.Step{scriptedmodel.Call("Agent", map[string]any{
			"description": "Stay", "prompt": "stay", "subagent_type": "general-purpose", "run_in_background": background,
		})}, scriptedmodel.Step{scriptedmodel.Say("stopped")})
		c.StopSubagent(id, "delegate for long")
	}
}
