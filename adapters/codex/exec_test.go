package codex

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridgetest"
	"sandboxagent.dev/sandbox-agent/internal/agentcache"
	"sandboxagent.dev/sandbox-agent/internal/scriptedmodel"
)

// early is a version whose app-server speaks another protocol.
const early = "0.45.0"

// shownRun renders what becomes of the lines of a run.
func shownRun(t *testing.T, lines []byte) string {
	t.Helper()
	out := bridgetest.NewTranscript(t)
	tr := newTranslator()
	tr.notices = true
	run, total := &execRun{id: "R", cwd: "/workspace"}, tokens{}
	in := bridge.NewLines(bytes.NewReader(lines), 0)
	for {
		line, err := in.Next()
		if err != nil {
			break
		}
		var e execEvent
		if err := bridge.Lenient(line, &e); err != nil {
			out.WriteString("unparsed " + err.Error() + "\n")
			continue
		}
		out.Updates(run.translate(tr, &e))
		if e.Type == "turn.completed" && e.Usage != nil {
			out.Note("usage", e.Usage.since(&total))
		}
	}
	out.Updates(tr.turnOver(&event{Method: "turn/completed", Turn: &turn{ID: "R", Status: "interrupted"}}, ""))
	if run.failed != nil {
		out.Note("error", (&running{}).judge(&turn{Status: "failed", Error: run.failed}).err)
	}
	return out.String()
}

func TestExec_Fixtures(t *testing.T) {
	files, err := filepath.Glob("testdata/exec/*.txtar")
	if err != nil || len(files) < 6 {
		t.Fatalf("%d fixtures, %v", len(files), err)
	}
	for _, f := range files {
		t.Run(strings.TrimSuffix(filepath.Base(f), ".txtar"), func(t *testing.T) {
			bridgetest.Golden(t, f, func(lines []byte) string { return shownRun(t, lines) })
		})
	}
}

// FuzzExec feeds lines of any kind to the translation of a run. Whatever comes
// out must be valid.
func FuzzExec(f *testing.F) {
	files, err := filepath.Glob("testdata/exec/*.txtar")
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, lines []byte) { shownRun(t, lines) })
}

// withoutServer puts a program in front of codex that refuses app-server.
func (w *world) withoutServer() {
	w.T.Helper()
	w.Program.Path = w.Write("bin/codex", "#!/bin/sh\nif [ \"$1\" = app-server ]; then echo \"error: unrecognized subcommand 'app-server'\" >&2; exit 2; fi\nexec '"+w.Program.Path+"' \"$@\"\n", 0o700)
	w.Program.Version = ""
}

// early makes the program one of an early version.
func (w *world) early() {
	w.T.Helper()
	arch := map[string]string{"amd64": "x86_64-unknown-linux-musl", "arm64": "aarch64-unknown-linux-musl"}[goruntime.GOARCH]
	if goruntime.GOOS != "linux" || arch == "" {
		w.T.Skipf("the early version is tested on Linux, not on %s/%s", goruntime.GOOS, goruntime.GOARCH)
	}
	w.Program = adapters.Program{Path: agentcache.NPM(w.T, "@openai/codex/vendor/"+arch+"/codex/codex", "@openai/codex@"+early)}
}

// TestLive_Exec runs prompts without an app-server: of a real early version, and of
// the tested one behind a program that refuses it.
func TestLive_Exec(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(w *world){"early": (*world).early, "refused": (*world).withoutServer} {
		t.Run(name, func(t *testing.T) {
			if name == "early" {
				agentcache.Long(t, "an early version, which few still have")
			}
			w := newWorld(t)
			prepare(w)
			c := w.open(schema.ClientCapabilities{Session: &schema.ClientSessionCapabilities{Notices: &schema.NoticeCapabilities{}}}, nil)
			result := c.NewResult(`{"permissionMode":"bypass","instructions":"I","mcp":{"x":{"command":"x"}},"agentSpecific":{"codex":{"config":{}}}}`)
			for _, s := range []string{`"by":"codex exec --json"`, `"field":"instructions"`, `"field":"mcpServers"`, `"field":"agentSpecific.codex.config"`} {
				if !bytes.Contains(result, []byte(s)) {
					t.Errorf("the result does not say %s: %s", s, result)
				}
			}
			c.Await("a notice of what it lacks", 0, func(m *acp.Message) bool { return strings.Contains(string(m.Update()), "runs with less") })
			id := schema.SessionID(rawjson.MemberString(result, "sessionId"))

			stop, got := c.Turn(id, "say an apple")
			if stop != schema.StopReasonEndTurn || bridgetest.Said(got) != "an apple" {
				t.Errorf("it ended with %s and said %q\n%s", stop, bridgetest.Said(got), c.Quote())
			}
			_, got = c.Turn(id, "run echo one; exit 3")
			if call := only(t, got); call.Status != schema.ToolCallStatusFailed || !strings.Contains(contentText(call), "one") {
				t.Errorf("the command is %s: %q", call.Status, contentText(call))
			}
			if _, got = c.Turn(id, "recall"); !strings.Contains(bridgetest.Said(got), "an apple") {
				t.Errorf("it recalls %q", bridgetest.Said(got))
			}
			// A run that resumes has the mode of the moment.
			modes := map[schema.SessionModeID]bool{modeReadOnly: false, modeAgent: true}
			if name == "early" { // of others TestLive_ExecModesCancelFailures shows it
				modes[modeFullAccess] = true
			}
			for mode, writes := range modes {
				c.Must(acp.MethodSessionSetMode, &schema.SetSessionModeRequest{SessionID: id, ModeID: mode})
				if c.Turn(id, "run touch "+filepath.Join(w.Cwd, string(mode))); w.made(string(mode)) != writes {
					t.Errorf("mode %s writes: %v\n%s", mode, !writes, c.Quote())
				}
			}
			r, e := c.Call(acp.MethodSessionPrompt, &schema.PromptRequest{SessionID: id, Prompt: []schema.ContentBlock{schema.TextBlock("say tokens")}})
			if e != nil || rawjson.MemberString(r, "stopReason") != "end_turn" || !bytes.Contains(r, []byte(`"usage":{`)) {
				t.Errorf("it ended with %s, %v", r, e)
			}
			if _, e := c.Call(acp.MethodSessionList, &schema.ListSessionsRequest{}); e == nil || e.Code != acp.CodeMethodNotFound {
				t.Errorf("session/list: %v", e)
			}
			if _, e := c.Call(acp.MethodSessionPrompt, &schema.PromptRequest{SessionID: id, Prompt: []schema.ContentBlock{{Image: &schema.ImageContent{Data: "AA==", MimeType: "image/png"}}}}); e == nil || e.Code != acp.CodeInvalidParams {
				t.Errorf("an image: %v", e)
			}
			c.Close()

			// The next connection goes on with the thread.
			again := w.open(schema.ClientCapabilities{}, nil)
			again.Must(acp.MethodSessionResume, w.again(id))
			if _, got := again.Turn(id, "recall"); !strings.Contains(bridgetest.Said(got), "an apple") {
				t.Errorf("after a restart it recalls %q", bridgetest.Said(got))
			}
			for _, unknown := range []schema.SessionID{"01a1fbe6-5ec2-7403-ba5c-c9e13d7fed9c", "../../x"} {
				if _, e := again.Call(acp.MethodSessionResume, w.again(unknown)); e == nil || e.Code != acp.CodeResourceNotFound {
					t.Errorf("session %s: %v", unknown, e)
				}
			}
		})
	}
}

// TestLive_ExecModesCancelFailures: what a run may do, and how it ends.
func TestLive_ExecModesCancelFailures(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.withoutServer()
	w.Model.On(scriptedmodel.Exactly("escalate"), scriptedmodel.Step{scriptedmodel.Call("exec_command", map[string]any{
		"cmd": "touch " + filepath.Join(w.Cwd, "escalated"), "sandbox_permissions": "require_escalated", "justification": "because",
	})}, scriptedmodel.Step{scriptedmodel.Say("gave up")})
	c := w.open(schema.ClientCapabilities{}, nil)
	id := c.New(`{"permissionMode":"readonly"}`)
	made := func(name string) bool { _, err := os.Stat(filepath.Join(w.Cwd, name)); return err == nil }
	c.Turn(id, "run touch "+filepath.Join(w.Cwd, "read-only"))
	c.Turn(id, "escalate")
	if made("read-only") || made("escalated") {
		t.Error("mode read-only writes")
	}
	c.Must(acp.MethodSessionSetMode, &schema.SetSessionModeRequest{SessionID: id, ModeID: modeFullAccess})
	if c.Turn(id, "run touch "+filepath.Join(w.Cwd, "full")); !made("full") {
		t.Errorf("mode full-access does not write\n%s", c.Quote())
	}
	if _, e := c.Call(acp.MethodSessionSetMode, &schema.SetSessionModeRequest{SessionID: id, ModeID: modePlan}); e == nil || e.Code != acp.CodeInvalidParams {
		t.Errorf("mode plan: %v", e)
	}

	if _, e := c.Result(c.Prompt(id, "fail 401")); e == nil || e.Code != acp.CodeAuthRequired {
		t.Errorf("401: %v", e)
	}
	if _, e := c.Result(c.Prompt(id, "fail 400")); e == nil || e.Code != acp.CodeInternal {
		t.Errorf("400: %v", e)
	}

	pid := filepath.Join(w.Cwd, "pid")
	p := c.Prompt(id, "run echo $$ > "+pid+"; while true; do sleep 0.2; done")
	for deadline := time.Now().Add(bridgetest.Patience); ; {
		if b, err := os.ReadFile(pid); err == nil && bytes.HasSuffix(b, []byte("\n")) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the command does not run\n%s", c.Quote())
		}
		time.Sleep(20 * time.Millisecond) // nobody tells of its begin
	}
	q := c.Prompt(id, "say waited")
	c.Notify(acp.MethodSessionCancel, map[string]any{"sessionId": id})
	for _, one := range []acp.ID{p, q} {
		if r, e := c.Result(one); e != nil || rawjson.MemberString(r, "stopReason") != "cancelled" {
			t.Errorf("a cancelled prompt ended with %s, %v", r, e)
		}
	}
	if alive(t, pid) {
		t.Error("the command runs on")
	}
	for _, call := range calls(c.Updates(0)) {
		if call.Status != schema.ToolCallStatusFailed && call.Status != schema.ToolCallStatusCompleted {
			t.Errorf("%s was left %s", call.Title, call.Status)
		}
	}
	if _, got := c.Turn(id, "say alive"); bridgetest.Said(got) != "alive" {
		t.Errorf("afterwards it said %q", bridgetest.Said(got))
	}

	// It dies: the prompt fails and tells how, the session lives.
	crash := w.Write("crash.sh", bridgetest.AgentPID(`tr '\0' ' ' < /proc/$p/cmdline | grep -q 'codex exec'`)+`echo "about to crash" > /proc/$p/fd/2; kill -KILL $p`, 0o700)
	if _, e := c.Result(c.Prompt(id, "run sh "+crash)); e == nil || !strings.Contains(string(e.Data), "about to crash") {
		t.Errorf("a crash: %v", e)
	}
	if _, got := c.Turn(id, "say alive again"); bridgetest.Said(got) != "alive again" {
		t.Errorf("after a crash it said %q", bridgetest.Said(got))
	}
}

// TestLive_ExecKeyStaysOffDisk: a key that came with the session is in the run's
// environment only.
func TestLive_ExecKeyStaysOffDisk(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.openAI()
	w.withoutServer()
	w.Credentials = adapters.Credentials{APIKey: "sk-brought-along", BaseURL: w.Model.URL + "/v1"}
	c := w.open(schema.ClientCapabilities{}, nil)
	if _, got := c.Turn(c.New(""), "say mine"); bridgetest.Said(got) != "mine" {
		t.Errorf("said %q\n%s", bridgetest.Said(got), c.Quote())
	}
	if key := w.last().Header.Get("Authorization"); key != "Bearer sk-brought-along" {
		t.Errorf("the model was given %q", key)
	}
	found, err := exec.Command("grep", "-rl", "sk-brought-along", w.Home, w.State).Output()
	if len(bytes.TrimSpace(found)) > 0 {
		t.Errorf("the key is in %s (%v)", found, err)
	}
}
