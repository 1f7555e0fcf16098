package opencode

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridgetest"
	"sandboxagent.dev/sandbox-agent/internal/agentcache"
	"sandboxagent.dev/sandbox-agent/internal/scriptedmodel"
)

func asks(question string) map[string]any {
	return map[string]any{"questions": []any{map[string]any{
		"question": question, "header": "H", "options": []any{map[string]string{"label": "A", "description": "a"}, map[string]string{"label": "B", "description": "b"}},
	}}}
}

// answering answers questions with labels, and permissions with an option.
func answering(option string, labels ...string) bridgetest.Answer {
	return func(method string, params json.RawMessage) any {
		if method == acp.MethodRequestQuestion {
			return &acp.QuestionResponse{Outcome: acp.QuestionAnswered, Answers: [][]string{labels}}
		}
		return bridgetest.Pick(option)(method, params)
	}
}

func liveQuestion(t *testing.T, w *world) {
	agentcache.Long(t, `the scenarios "question ..." show it through the gateway`)
	w.Model.On(scriptedmodel.Exactly("ask"), scriptedmodel.Step{scriptedmodel.Call("question", asks("Which?"))}, scriptedmodel.Step{scriptedmodel.SayResult()})
	c := w.open(schema.ClientCapabilities{}, answering("", "B"))
	id := c.New("")
	_, got := c.Turn(id, "ask")
	if !strings.Contains(bridgetest.Said(got), "B") || len(calls(got)) != 1 || calls(got)[0].Status != schema.ToolCallStatusCompleted {
		t.Errorf("said %q with %+v", bridgetest.Said(got), calls(got))
	}
}

func livePlanAndDiffs(t *testing.T, w *world) {
	if out, err := exec.Command("git", "init", "-q", w.Cwd).CombinedOutput(); err != nil {
		t.Fatalf("git init: %v: %s", err, out)
	}
	whole := w.Write(filepath.Join(w.Cwd, "whole.txt"), "three\nfour\n", 0o600)
	old, made := filepath.Join(w.Cwd, "old.txt"), filepath.Join(w.Cwd, "made.txt")
	w.Write(old, "one\ntwo\n", 0o600)
	w.Model.On(scriptedmodel.Exactly("work"),
		scriptedmodel.Step{scriptedmodel.Call("todowrite", map[string]any{"todos": []any{map[string]string{"content": "Do it", "status": "in_progress", "priority": "high"}}})},
		scriptedmodel.Step{scriptedmodel.ReadFile(old)},
		scriptedmodel.Step{scriptedmodel.EditFile(old, "two", "TWO"), scriptedmodel.WriteFile(made, "new\n")},
		scriptedmodel.Step{scriptedmodel.ReadFile(whole)},
		scriptedmodel.Step{scriptedmodel.WriteFile(whole, "three\nFOUR\n")},
		scriptedmodel.Step{scriptedmodel.Say("done")})
	c := w.open(schema.ClientCapabilities{}, nil)
	id := c.New("")
	_, got := c.Turn(id, "work")
	var plan []schema.PlanEntry
	for _, u := range got {
		if u.Plan != nil {
			plan = u.Plan.Entries
		}
	}
	if len(plan) != 1 || plan[0].Content != "Do it" || plan[0].Status != schema.PlanEntryStatusInProgress {
		t.Errorf("the plan is %+v", plan)
	}
	diffs := map[string][2]string{}
	for _, call := range calls(got) {
		for _, one := range call.Content {
			if d := one.Diff; d != nil {
				before := "-"
				if d.OldText != nil {
					before = *d.OldText
				}
				diffs[d.Path] = [2]string{before, d.NewText}
			}
		}
	}
	if len(diffs) != 3 || diffs[whole] != [2]string{"three\nfour\n", "three\nFOUR\n"} || diffs[old] != [2]string{"one\ntwo\n", "one\nTWO\n"} || diffs[made] != [2]string{"-", "new\n"} {
		t.Errorf("the diffs are %q", diffs)
	}
}

// liveUndo shows that what was undone is not in a replay, until it is brought back.
func liveUndo(t *testing.T, w *world) {
	c := w.open(schema.ClientCapabilities{}, nil)
	id := c.New("")
	c.Turn(id, "say first")
	c.Turn(id, "say second")
	for _, one := range []struct{ command, said string }{{"/undo", "first"}, {"/redo", "firstsecond"}} {
		c.Turn(id, one.command)
		c.Must(acp.MethodSessionClose, &schema.CloseSessionRequest{SessionID: id})
		from := c.Seen()
		c.Must(acp.MethodSessionLoad, &schema.LoadSessionRequest{SessionID: id, Cwd: w.Cwd, MCPServers: []schema.MCPServer{}})
		if said := bridgetest.Said(c.Updates(from)); said != one.said {
			t.Errorf("after %s the replay says %q", one.command, said)
		}
	}
}

func liveSubagent(t *testing.T, w *world) {
	agentcache.Long(t, `the scenario "subagent belongs to its call" shows it through the gateway`)
	task := scriptedmodel.Call("task", map[string]any{"description": "Sub job", "prompt": "run touch " + w.Home + "/child", "subagent_type": "general"})
	w.Model.On(scriptedmodel.Exactly("delegate"), scriptedmodel.Step{task}, scriptedmodel.Step{scriptedmodel.Say("parent done")})
	c := w.open(schema.ClientCapabilities{}, bridgetest.Pick("once"))
	id := c.New("")
	from := c.Seen()
	how, got := c.Turn(id, "delegate")
	all := calls(got)
	if how != schema.StopReasonEndTurn || len(all) != 2 || all[0].Status != schema.ToolCallStatusCompleted || all[1].Status != schema.ToolCallStatusCompleted {
		t.Fatalf("%s with %+v", how, all)
	}
	if parent := rawjson.MemberString(all[1].Meta[acp.MetaKey], "parentToolCallId"); parent != string(all[0].ToolCallID) {
		t.Errorf("the subagent's call belongs to %q", parent)
	}
	_, m := c.Await("the request", from, func(m *acp.Message) bool { return m.IsRequest() })
	if title := rawjson.MemberString(m.Params(), "toolCall", "title"); !strings.HasPrefix(title, "Subagent: touch") {
		t.Errorf("it asks for %q", title)
	}
	if bridgetest.Said(got) != "parent done" || !strings.Contains(textOf(all[0]), "ran: ") {
		t.Errorf("said %q, and the call %q", bridgetest.Said(got), textOf(all[0]))
	}
	never := make(chan struct{})
	defer close(never)
	w.Model.On(scriptedmodel.Exactly("stay"), scriptedmodel.Step{scriptedmodel.Say("staying"), scriptedmodel.Gate(never)})
	w.Model.On(scriptedmodel.Exactly("delegate for long"), scriptedmodel.Step{scriptedmodel.Call("task", map[string]any{"description": "Stay", "prompt": "stay", "subagent_type": "general"})},
		scriptedmodel.Step{scriptedmodel.Say("parent done")})
	c.StopSubagent(id, "delegate for long")
}

func liveCommandsAndCompaction(t *testing.T, w *world) {
	agentcache.Long(t, `the scenarios "a command is listed and run" and "compaction" show it through the gateway`)
	w.Write(filepath.Join(w.Cwd, ".opencode/command/greet.md"), "---\ndescription: greets\n---\nsay greetings to $ARGUMENTS\n", 0o600)
	c := w.open(schema.ClientCapabilities{Session: &schema.ClientSessionCapabilities{Compaction: &schema.CompactionCapabilities{}}}, nil)
	id := c.New("")
	var names []string
	for _, u := range c.Updates(0) {
		if u.AvailableCommandsUpdate != nil {
			for _, one := range u.AvailableCommandsUpdate.AvailableCommands {
				names = append(names, one.Name)
			}
		}
	}
	for _, want := range []string{"greet", "compact", "undo", "redo", "init"} {
		if !slices.Contains(names, want) {
			t.Errorf("there is no command %s among %q", want, names)
		}
	}
	if _, got := c.Turn(id, "/greet you"); bridgetest.Said(got) != "greetings to you" {
		t.Errorf("said %q", bridgetest.Said(got))
	}
	// What editors send: a line break, the file that is open, a note.
	for _, more := range [][]schema.ContentBlock{
		{schema.TextBlock("/greet\nall of you")},
		{schema.TextBlock("/greet all of you"), {ResourceLink: &schema.ResourceLink{Name: "x", URI: "file://" + w.Write("open.txt", "OPEN\n", 0o600)}}},
		{schema.TextBlock("/greet all"), schema.TextBlock("of you")},
		{schema.TextBlock("/greet all of you"), {Resource: &schema.EmbeddedResource{Resource: schema.EmbeddedResourceResource{TextResourceContents: &schema.TextResourceContents{URI: "file:///n.txt", Text: "NOTE"}}}}},
	} {
		from := c.Seen()
		c.Must(acp.MethodSessionPrompt, &schema.PromptRequest{SessionID: id, Prompt: more})
		if said := strings.Join(strings.Fields(bridgetest.Said(c.Updates(from))), " "); !strings.HasPrefix(said, "greetings to all of you") {
			t.Errorf("%+v: said %q", more, said)
		}
	}
	// The messages of a compaction have the mode of the prompt before. It is not the session's.
	from := c.Seen()
	c.Must(acp.MethodSessionSetMode, &schema.SetSessionModeRequest{SessionID: id, ModeID: "plan"})
	_, got := c.Turn(id, "/compact")
	var states []schema.CompactionStatus
	summary := 0
	for _, u := range got {
		if u.CompactionUpdate != nil {
			states = append(states, u.CompactionUpdate.Status)
		}
		if u.CompactionSummaryChunk != nil {
			summary++
		}
	}
	if !slices.Equal(states, []schema.CompactionStatus{schema.CompactionStatusInProgress, schema.CompactionStatusCompleted}) || summary == 0 || bridgetest.Said(got) != "" {
		t.Errorf("compaction is %q with %d pieces of a summary, said %q", states, summary, bridgetest.Said(got))
	}
	for _, u := range c.Updates(from) {
		if u.CurrentModeUpdate != nil && u.CurrentModeUpdate.CurrentModeID != "plan" {
			t.Errorf("a compaction turns the mode into %s", u.CurrentModeUpdate.CurrentModeID)
		}
	}
}

// wordServer is an MCP server with a tool that says a word.
const wordServer = `const answers = {
  initialize: (p) => ({ protocolVersion: p.protocolVersion, capabilities: { tools: {} }, serverInfo: { name: "t", version: "1" } }),
  "tools/list": () => ({ tools: [{ name: "word", description: "says the word", inputSchema: { type: "object", properties: {} } }] }),
  "tools/call": () => ({ content: [{ type: "text", text: "the word is " + process.env.WORD }] }),
};
require("node:readline").createInterface({ input: process.stdin }).on("line", (line) => {
  const m = JSON.parse(line);
  if (m.id !== undefined) console.log(JSON.stringify({ jsonrpc: "2.0", id: m.id, result: answers[m.method]?.(m.params) ?? {} }));
});
`

func liveMCP(t *testing.T, w *world) {
	script, node := w.Write("mcp.cjs", wordServer, 0o600), agentcache.Node(t)
	w.Model.On(scriptedmodel.Exactly("use"), scriptedmodel.Step{scriptedmodel.Call("tools_word", map[string]any{})}, scriptedmodel.Step{scriptedmodel.SayResult()})
	w.Model.On(scriptedmodel.Exactly("use 2"), scriptedmodel.Step{scriptedmodel.Call("s2_tools_word", map[string]any{})}, scriptedmodel.Step{scriptedmodel.SayResult()})
	c := w.open(schema.ClientCapabilities{}, nil)
	make := func(word string) schema.SessionID {
		r := c.Must(acp.MethodSessionNew, &schema.NewSessionRequest{Cwd: w.Cwd, MCPServers: []schema.MCPServer{{Stdio: &schema.MCPServerStdio{
			Name: "tools", Command: node, Args: []string{script}, Env: []schema.EnvVariable{{Name: "WORD", Value: word}},
		}}, {Stdio: &schema.MCPServerStdio{Name: "gone", Command: "/no/such/program"}}}})
		return schema.SessionID(rawjson.MemberString(r, "sessionId"))
	}
	one, two := make("heron"), make("egret")
	for _, id := range []schema.SessionID{one, two} {
		c.Servers(id, 0, "gone=failed! tools=ready") // each its own, by its own names
	}
	if _, got := c.Turn(one, "use"); !strings.Contains(bridgetest.Said(got), "heron") {
		t.Errorf("the first session said %q", bridgetest.Said(got))
	}
	if _, got := c.Turn(two, "use 2"); !strings.Contains(bridgetest.Said(got), "egret") {
		t.Errorf("the second session said %q", bridgetest.Said(got))
	}
	for id, prompt := range map[schema.SessionID]string{one: "use 2", two: "use"} {
		if _, got := c.Turn(id, prompt); strings.Contains(bridgetest.Said(got), "the word is") {
			t.Errorf("a session uses another's server: %q", bridgetest.Said(got))
		}
	}
	if strings.Contains(w.Read(filepath.Join(w.Home, ".config/opencode/opencode.json")), "tools") {
		t.Error("the server is in the user's configuration")
	}
}

func liveForkListDeleteTitle(t *testing.T, w *world) {
	c := w.open(schema.ClientCapabilities{}, nil)
	c.ForkKeepsChoice("say a word")
	id := c.New("")
	c.Turn(id, "say the past")
	r := c.Must(acp.MethodSessionFork, &schema.ForkSessionRequest{SessionID: id, Cwd: w.Cwd})
	fork := schema.SessionID(rawjson.MemberString(r, "sessionId"))
	if _, got := c.Turn(fork, "recall"); fork == id || !strings.Contains(bridgetest.Said(got), "the past") {
		t.Errorf("the fork %s recalls %q", fork, bridgetest.Said(got))
	}
	c.Must(acp.MethodSessionSetTitle, map[string]any{"sessionId": id, "title": "Named by hand"})
	list := func() map[string]string {
		var r schema.ListSessionsResponse
		if err := json.Unmarshal(c.Must(acp.MethodSessionList, &schema.ListSessionsRequest{Cwd: &w.Cwd}), &r); err != nil {
			t.Fatal(err)
		}
		out := map[string]string{}
		for _, s := range r.Sessions {
			out[string(s.SessionID)] = *s.Title
		}
		return out
	}
	if got := list(); len(got) != 2 || got[string(id)] != "Named by hand" {
		t.Errorf("listed are %q", got)
	}
	c.Must(acp.MethodSessionDelete, &schema.DeleteSessionRequest{SessionID: id})
	if got := list(); len(got) != 1 || got[string(fork)] == "" {
		t.Errorf("then listed are %q", got)
	}
	if _, e := c.Call(acp.MethodSessionLoad, &schema.LoadSessionRequest{SessionID: id, Cwd: w.Cwd, MCPServers: []schema.MCPServer{}}); e == nil || e.Code != acp.CodeResourceNotFound {
		t.Errorf("the deleted session: %v", e)
	}
}

func liveSessionOfATerminal(t *testing.T, w *world) {
	agentcache.Long(t, `the scenario "session of a terminal is listed and loaded" and TestReal_Travel show it through the gateway`)
	cmd := exec.CommandContext(t.Context(), w.Program.Path, "run", "say", "in", "a", "terminal")
	cmd.Dir = w.Cwd
	cmd.Env = append(cmd.Environ(), w.Env...) // with PWD, which opencode goes by
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	c := w.open(schema.ClientCapabilities{}, nil)
	var r schema.ListSessionsResponse
	if err := json.Unmarshal(c.Must(acp.MethodSessionList, &schema.ListSessionsRequest{Cwd: &w.Cwd}), &r); err != nil || len(r.Sessions) != 1 {
		t.Fatalf("%+v, %v", r, err)
	}
	id := r.Sessions[0].SessionID
	from := c.Seen()
	c.Must(acp.MethodSessionLoad, &schema.LoadSessionRequest{SessionID: id, Cwd: w.Cwd, MCPServers: []schema.MCPServer{}})
	if got := bridgetest.Said(c.Updates(from)); got != "in a terminal" {
		t.Errorf("the replay says %q", got)
	}
	if _, e := c.Call(acp.MethodSessionDelete, &schema.DeleteSessionRequest{SessionID: id}); e == nil {
		t.Error("it was deleted")
	}
}

// liveLinkedDirectory has a working directory by another name. What is
// asked there can be answered.
func liveLinkedDirectory(t *testing.T, w *world) {
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(w.Cwd, link); err != nil {
		t.Fatal(err)
	}
	w.Cwd = link
	c := w.open(schema.ClientCapabilities{}, bridgetest.Pick("once"))
	id := c.New("")
	_, got := c.Turn(id, "run touch made; pwd")
	if all := calls(got); len(all) != 1 || all[0].Status != schema.ToolCallStatusCompleted {
		t.Errorf("calls %+v", all)
	}
	if _, err := os.Stat(filepath.Join(link, "made")); err != nil {
		t.Error(err)
	}
	var r schema.ListSessionsResponse
	if err := json.Unmarshal(c.Must(acp.MethodSessionList, &schema.ListSessionsRequest{Cwd: &link}), &r); err != nil || len(r.Sessions) != 1 {
		t.Errorf("listed are %+v, %v", r.Sessions, err)
	}
}
