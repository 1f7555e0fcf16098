package agent_test

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/internal/patient"
)

func TestPrompt_Text(t *testing.T) {
	c := start(t, t.TempDir())
	id := c.session()
	big := strings.Repeat("日本語 <&> \"\\ 😀 ", 50_000) + "end"
	for _, p := range []struct {
		name, text string
		want       []string
	}{
		{"hello", "  hello\n", []string{"Hello!", " I am the mock agent.", " Tell me what to do,", " and I will pretend to do it."}},
		{"echo", "echo  two  spaces\n\tand\x00 more", []string{" two  spaces\n\tand\x00 more"}},
		{"big echo", "echo " + big, []string{big}},
		{"words", "plan my\n day  now", []string{"plan ", "my\n ", "day  ", "now"}},
		{"not numbers", "stream of words", []string{"stream ", "of ", "words"}},
		{"usage is bare", "usage", nil},
		{"empty", "", nil},
		{"title", "title A B", nil},
	} {
		t.Run(p.name, func(t *testing.T) {
			if reason := c.prompt(id, p.text); reason != schema.StopReasonEndTurn {
				t.Errorf("stop reason %s", reason)
			}
			if diff := cmp.Diff(p.want, c.chunks()); diff != "" {
				t.Errorf("chunks (-want +got):\n%.2000s", diff)
			}
		})
	}
}

func TestPrompt_Blocks(t *testing.T) {
	c := start(t, t.TempDir())
	id := c.session()
	image := schema.ContentBlock{Image: &schema.ImageContent{Data: "AA==", MimeType: "image/png"}}
	link := schema.ContentBlock{ResourceLink: &schema.ResourceLink{Name: "n", URI: "file:///n"}}
	var r schema.PromptResponse
	c.must(acp.MethodSessionPrompt, &schema.PromptRequest{
		SessionID: id, Prompt: []schema.ContentBlock{image, link},
		Meta: map[string]json.RawMessage{"trace": json.RawMessage(`"t1"`)},
	}, &r)
	if c.said() != "received 2 non-text blocks" {
		t.Errorf("said %q", c.said())
	}
	if string(r.Meta["trace"]) != `"t1"` {
		t.Errorf("meta %s", r.Meta)
	}
	c.updates = nil
	c.must(acp.MethodSessionPrompt, &schema.PromptRequest{SessionID: id, Prompt: []schema.ContentBlock{schema.TextBlock("echo "), image, schema.TextBlock("joined")}}, nil)
	if c.said() != "joined" {
		t.Errorf("said %q", c.said())
	}
}

func TestPrompt_Updates(t *testing.T) {
	c := start(t, t.TempDir())
	id := c.session()
	for text, want := range map[string][]string{
		"tool":     {"tool_call pending", "tool_call_update in_progress", "tool_call_update completed", "agent_message_chunk "},
		"diff":     {"tool_call in_progress", "tool_call_update completed", "agent_message_chunk "},
		"plan":     {"plan ", "plan ", "plan ", "plan "},
		"usage":    {"usage_update "},
		"commands": {"available_commands_update "},
		"title X":  {"session_info_update "},
	} {
		c.prompt(id, text)
		var got []string
		for _, u := range c.updates {
			raw := json.RawMessage(u)
			got = append(got, rawjson.MemberString(raw, "sessionUpdate")+" "+rawjson.MemberString(raw, "status"))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
}

func TestPermission(t *testing.T) {
	for _, p := range []struct{ answer, said, status, reason string }{
		{`{"outcome":{"outcome":"selected","optionId":"allow_once"}}`, "permission: allow_once", "completed", "end_turn"},
		{`{"outcome":{"outcome":"selected","optionId":"allow_always"}}`, "permission: allow_always", "completed", "end_turn"},
		{`{"outcome":{"outcome":"selected","optionId":"reject_once"}}`, "permission: reject_once", "failed", "end_turn"},
		{`{"outcome":{"outcome":"cancelled"}}`, "", "failed", "cancelled"},
		{`!no`, "permission error: no (code -32603)", "failed", "end_turn"},
	} {
		t.Run(p.answer, func(t *testing.T) {
			c := start(t, t.TempDir())
			id := c.session()
			c.onAsk = func(m *acp.Message) string {
				if m.Method() != acp.MethodSessionRequestPermission {
					t.Errorf("request %s", m.Method())
				}
				return p.answer
			}
			if reason := c.prompt(id, "permission"); string(reason) != p.reason {
				t.Errorf("stop reason %s, want %s", reason, p.reason)
			}
			if c.said() != p.said {
				t.Errorf("said %q, want %q", c.said(), p.said)
			}
			last := json.RawMessage(c.updates[len(c.updates)-1])
			if got := rawjson.MemberString(last, "status"); got != p.status {
				t.Errorf("status %s, want %s", got, p.status)
			}
		})
	}
}

// What was always allowed is not asked about again, whatever asks, but in the mode that changes nothing.
func TestPermission_Always(t *testing.T) {
	for prompt, want := range map[string]string{
		"permission":         "permission: allowed before",
		"permission fetch":   "permission: allowed before",
		"write notes.txt me": "I wrote notes.txt.",
		"subagent":           "The subagent is done.",
	} {
		t.Run(prompt, func(t *testing.T) {
			c := start(t, t.TempDir())
			asked := 0
			c.onAsk = func(*acp.Message) string {
				asked++
				return `{"outcome":{"outcome":"selected","optionId":"allow_always"}}`
			}
			c.initialize()
			var made schema.NewSessionResponse
			c.must(acp.MethodSessionNew, &schema.NewSessionRequest{Cwd: t.TempDir()}, &made)
			c.prompt(made.SessionID, prompt)
			c.prompt(made.SessionID, prompt)
			if asked != 1 || !strings.Contains(c.said(), want) {
				t.Errorf("asked %d times, and at last it said %q", asked, c.said())
			}
			c.must(acp.MethodSessionSetMode, &schema.SetSessionModeRequest{SessionID: made.SessionID, ModeID: "plan"}, nil)
			if c.prompt(made.SessionID, prompt); asked != 2 {
				t.Errorf("in the mode plan it has asked %d times", asked)
			}
		})
	}
}

// A file is written when a client allows it, in the session's folder and nowhere else.
func TestWrite(t *testing.T) {
	for _, p := range []struct{ prompt, option, written, said string }{
		{"write notes.txt two words", "allow_once", "two words\n", "I wrote notes.txt."},
		{"write notes.txt two words", "reject_once", "", ""},
		{"write ../notes.txt two words", "allow_once", "", "write ../notes.txt two words"},
	} {
		t.Run(p.prompt+" "+p.option, func(t *testing.T) {
			c := start(t, t.TempDir())
			c.onAsk = func(*acp.Message) string { return `{"outcome":{"outcome":"selected","optionId":"` + p.option + `"}}` }
			c.initialize()
			var made schema.NewSessionResponse
			dir := t.TempDir()
			c.must(acp.MethodSessionNew, &schema.NewSessionRequest{Cwd: dir}, &made)
			if reason := c.prompt(made.SessionID, p.prompt); reason != schema.StopReasonEndTurn || c.said() != p.said {
				t.Errorf("%s, said %q, want %q", reason, c.said(), p.said)
			}
			got, err := os.ReadFile(filepath.Join(dir, "notes.txt"))
			if string(got) != p.written || (err == nil) != (p.written != "") {
				t.Errorf("the file has %q, %v", got, err)
			}
		})
	}
}

// A request that leaves the kind to the tool call, as some agents do.
func TestPermission_OfAKind(t *testing.T) {
	c := start(t, t.TempDir())
	id := c.session()
	var asked string
	c.onAsk = func(m *acp.Message) string {
		asked = rawjson.MemberString(m.Params(), "toolCall", "kind")
		return `{"outcome":{"outcome":"selected","optionId":"allow_once"}}`
	}
	c.prompt(id, "permission execute")
	first := json.RawMessage(c.updates[0])
	if kind := rawjson.MemberString(first, "kind"); kind != "execute" || asked != "" || c.said() != "permission: allow_once" {
		t.Errorf("kind %q, asked for %q, said %q", kind, asked, c.said())
	}
}

func TestStop(t *testing.T) {
	c := start(t, t.TempDir())
	if reason := c.prompt(c.session(), "stop max_tokens"); reason != schema.StopReasonMaxTokens {
		t.Errorf("stop reason %s", reason)
	}
}

func TestQuestion(t *testing.T) {
	c := start(t, t.TempDir())
	id := c.session()
	var asked acp.Message
	answer := ""
	c.onAsk = func(m *acp.Message) string { asked = m.Clone(); return answer }
	for _, p := range []struct{ text, answer, said, reason string }{
		{"question", `{"outcome":"answered","answers":[["Red"]]}`, `answers: [["Red"]]`, "end_turn"},
		{"question 2", `{"outcome":"answered","answers":[["Red"],["Apple","<Plum>"]]}`, `answers: [["Red"],["Apple","<Plum>"]]`, "end_turn"},
		{"question", `{"outcome":"rejected"}`, "question rejected", "end_turn"},
		{"question", `{"outcome":"cancelled"}`, "", "cancelled"},
		{"question", `!unknown`, "question error: unknown (code -32603)", "end_turn"},
		{"question 3", ``, "question 3", "end_turn"},
	} {
		answer = p.answer
		if reason := c.prompt(id, p.text); string(reason) != p.reason || c.said() != p.said {
			t.Errorf("%s: said %q and ended with %s, want %q and %s", p.answer, c.said(), reason, p.said, p.reason)
		}
	}
	want := `{"sessionId":"` + string(id) + `","questions":[{"id":"color","header":"Color","question":"Which color do you like?","options":[{"label":"Red","description":"Like fire"},{"label":"Blue","description":"Like the sea"}],"multiSelect":false}]}`
	if diff := cmp.Diff(want, string(asked.Params())); diff != "" {
		t.Errorf("question (-want +got):\n%s", diff)
	}
}

func TestFS(t *testing.T) {
	c := start(t, t.TempDir())
	id := c.session()
	c.onAsk = func(m *acp.Message) string {
		if rawjson.MemberString(m.Params(), "path") == "/a b" {
			return `{"content":"the <content>\n"}`
		}
		return "!no such file"
	}
	for path, want := range map[string]string{"/a b": "the <content>\n", "/x": "fs error: no such file (code -32603)"} {
		if c.prompt(id, "fs "+path); c.said() != want {
			t.Errorf("%s: said %q, want %q", path, c.said(), want)
		}
	}
}

func TestTerminal(t *testing.T) {
	c := start(t, t.TempDir())
	id := c.session()
	var methods []string
	c.onAsk = func(m *acp.Message) string {
		methods = append(methods, m.Method())
		return map[string]string{
			acp.MethodTerminalCreate:      `{"terminalId":"t"}`,
			acp.MethodTerminalWaitForExit: `{"exitCode":0}`,
			acp.MethodTerminalOutput:      `{"output":"hi\n","truncated":false,"exitStatus":{"exitCode":0}}`,
			acp.MethodTerminalRelease:     `{}`,
		}[m.Method()]
	}
	if c.prompt(id, "terminal echo hi"); c.said() != "hi\n" {
		t.Errorf("said %q", c.said())
	}
	want := []string{acp.MethodTerminalCreate, acp.MethodTerminalWaitForExit, acp.MethodTerminalOutput, acp.MethodTerminalRelease}
	if diff := cmp.Diff(want, methods); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	c.onAsk = func(*acp.Message) string { return "!no terminals" }
	if c.prompt(id, "terminal x"); c.said() != "terminal error: no terminals (code -32603)" {
		t.Errorf("said %q", c.said())
	}
}

func TestGarbage(t *testing.T) {
	c := start(t, t.TempDir())
	id := c.session()
	req := c.start(acp.MethodSessionPrompt, prompt(id, "garbage"))
	bad := 0
	for {
		line := c.line()
		m, err := acp.Parse(line)
		if err != nil {
			bad++
			continue
		}
		if err := c.rec.Gateway(line); err != nil {
			t.Fatal(err)
		}
		if m.IsResponse() && m.ID() == req {
			break
		}
		c.updates = append(c.updates, string(m.Update()))
	}
	if diff := cmp.Diff([]string{"good 0", "good 1", "good 2", "good 3"}, c.chunks()); diff != "" || bad != 4 {
		t.Errorf("%d bad lines, chunks (-want +got):\n%s", bad, diff)
	}
}

func TestCrash_LeavesState(t *testing.T) {
	dir := t.TempDir()
	c := start(t, dir)
	id := c.session()
	c.prompt(id, "echo before")
	c.start(acp.MethodSessionPrompt, prompt(id, "crash"))
	if code := c.wait(); code != 3 {
		t.Errorf("exit code %d, want 3", code)
	}
	if lines := strings.Count(c.stderr.String(), "\n"); lines != 2 {
		t.Errorf("%d lines on stderr: %s", lines, c.stderr.String())
	}
	_ = c.in.Close()
	c = start(t, dir)
	c.initialize()
	c.must(acp.MethodSessionLoad, &schema.LoadSessionRequest{SessionID: id, Cwd: "/"}, nil)
	if c.said() != "before" || len(c.updates) != 3 {
		t.Errorf("said %q in %d updates", c.said(), len(c.updates))
	}
}

func TestHang(t *testing.T) {
	dir := t.TempDir()
	c := start(t, dir)
	id := c.session()
	req := c.start(acp.MethodSessionPrompt, prompt(id, "hang"))
	// One that has not begun yet would be answered.
	if !patient.Until(time.Minute, func() bool { return strings.Contains(texts(t, dir), `"hang"`) }) {
		t.Fatal("the turn has not begun")
	}
	c.notify(acp.MethodSessionCancel, &schema.CancelNotification{SessionID: id})
	c.notify(acp.MethodCancelRequest, &schema.CancelRequestNotification{RequestID: json.RawMessage(req)})
	c.must(acp.MethodSessionList, &schema.ListSessionsRequest{}, nil)
	if client, _ := c.rec.Open(); client != 1 {
		t.Errorf("%d requests are open, want the prompt", client)
	}
}

// texts returns what the files in a folder and those below it have.
func texts(t *testing.T, dir string) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return nil // it is just being written
		}
		b, _ := os.ReadFile(path)
		all.Write(b)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}

func TestCancelRequest(t *testing.T) {
	c := start(t, t.TempDir())
	id := c.session()
	req := c.start(acp.MethodSessionPrompt, prompt(id, "slow"))
	c.read()
	c.notify(acp.MethodCancelRequest, &schema.CancelRequestNotification{RequestID: json.RawMessage(req)})
	m := c.await(req)
	wantCode(t, m.Err(), acp.CodeCancelled)
}

func TestIgnoreEOF(t *testing.T) {
	c := start(t, t.TempDir())
	id := c.session()
	c.prompt(id, "ignore-eof")
	_ = c.in.Close()
	c.stderr.waitFor("stdin has ended")
	// An ignored signal is discarded before the call returns.
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	c.wait()
	if status := c.cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signal() != syscall.SIGKILL {
		t.Errorf("the process ended by %v", c.cmd.ProcessState)
	}
}

func TestForkChild(t *testing.T) {
	c := start(t, t.TempDir())
	id := c.session()
	c.prompt(id, "fork-child")
	pid, err := strconv.Atoi(strings.TrimPrefix(c.said(), "child: "))
	if err != nil {
		t.Fatal(err)
	}
	c.end()
	p, err := os.FindProcess(pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("the child is gone: %v", err)
	}
	if err := p.Kill(); err != nil {
		t.Error(err)
	}
}

func TestBadLine_DoesNotEndTheConnection(t *testing.T) {
	c := start(t, t.TempDir())
	if _, err := io.WriteString(c.in, "{nonsense\n"); err != nil {
		t.Fatal(err)
	}
	m := c.read()
	wantCode(t, m.Err(), acp.CodeParseError)
	c.initialize()
	if err := c.cmd.Process.Signal(syscall.Signal(0)); errors.Is(err, os.ErrProcessDone) {
		t.Error("the process is gone")
	}
}
