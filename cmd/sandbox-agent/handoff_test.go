package main

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
	"sandboxagent.dev/sandbox-agent/control/client"
)

// Another agent is given the conversation with its first prompt, once, and clients see
// only what was said.
func TestHandoff(t *testing.T) {
	url, _ := start(t)
	t.Setenv("SANDBOX_AGENT_ENDPOINT", url)
	_, _, errOut := tool(t, "", "prompt", "--agent", "mock", "--title", "A title", "echo the word is heron and the key is sk-ant-0123456789abcdef0123")
	old := sessionIn(errOut)
	code, out, errOut := tool(t, "", "sessions", "handoff", old, "--agent", "mock", "--json", "--redact", "the key is")
	var made struct{ SessionID, Agent, From string }
	if err := json.Unmarshal([]byte(out), &made); code != cmdline.ExitOK || err != nil || made.SessionID == "" || made.SessionID == old || made.From != old || made.Agent != "mock" {
		t.Fatalf("exit %d, %s%s, %v", code, out, errOut, err)
	}
	api, err := client.New(url, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	before, err := api.Session(t.Context(), old)
	if err != nil {
		t.Fatal(err)
	}
	s, err := api.Session(t.Context(), made.SessionID)
	if err != nil || s.Continuity != "replayed" || s.Cwd != before.Cwd || s.Title != "A title" {
		t.Errorf("%+v, %v", s, err)
	}
	prompt := func(text string) string {
		t.Helper()
		code, out, errOut := tool(t, "", "prompt", "--session", made.SessionID, text)
		if code != cmdline.ExitOK {
			t.Fatalf("exit %d, %s", code, errOut)
		}
		return strings.TrimSpace(out)
	}
	// The agent echoes what it does not take for a command.
	if got := prompt("/help"); got != "/help" {
		t.Errorf("a command is given as %q", got)
	}
	got := prompt("where were we")
	for _, part := range []string{`<conversation-so-far agent="mock"`, "the word is heron", "[removed]", "</conversation-so-far>", "where were we"} {
		if !strings.Contains(got, part) {
			t.Errorf("%q is not in what the agent was given: %s", part, got)
		}
	}
	if strings.Contains(got, "sk-ant") || strings.Contains(got, "the key is") {
		t.Errorf("the agent was given a key: %s", got)
	}
	if got := prompt("echo once"); got != "once" {
		t.Errorf("given again: %q", got)
	}
	page, err := api.Events(context.Background(), made.SessionID, 0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range page.Events {
		if strings.Contains(string(e.Message), "user_message_chunk") && strings.Contains(string(e.Message), "conversation-so-far") {
			t.Errorf("it is shown as said by the user: %s", e.Message)
		}
	}
	for _, args := range [][]string{{old}, {"--agent", "mock"}, {old, "--agent", "mock", "--redact", "("}} {
		if code, _, errOut := tool(t, "", append([]string{"sessions", "handoff"}, args...)...); code != cmdline.ExitUsage {
			t.Errorf("%q: exit %d, %s", args, code, errOut)
		}
	}
	if code, _, errOut := tool(t, "", "sessions", "handoff", "no-such-session", "--agent", "mock"); code != cmdline.ExitNotFound {
		t.Errorf("exit %d, %s", code, errOut)
	}
	if code, _, errOut := tool(t, "", "sessions", "handoff", old, "--agent", "nobody"); code == cmdline.ExitOK || !strings.Contains(errOut, "nobody") {
		t.Errorf("exit %d, %s", code, errOut)
	}
	// What is given otherwise is looked at, too.
	for own, want := range map[string]string{
		`{"handover":5}`:  "must be a text",
		`{"handover":""}`: "must be a text",
		`{"handover":"` + strings.Repeat("x", 256<<10+1) + `"}`: "are the most",
	} {
		code, out, errOut := tool(t, `{"cwd":"/","mcpServers":[],"_meta":{"sandboxagent.dev":`+own+`}}`, "rpc", "call", "--agent", "mock", "session/new", "-")
		if code == cmdline.ExitOK || !strings.Contains(out+errOut, want) {
			t.Errorf("%.40s: exit %d, %s%s", own, code, out, errOut)
		}
	}
}
