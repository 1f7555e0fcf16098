package agent_test

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/schema"
)

func TestInitialize(t *testing.T) {
	r := start(t, t.TempDir()).initialize()
	got, err := schema.Encode(r)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"protocolVersion":1,"agentCapabilities":{"loadSession":true,"promptCapabilities":{"image":true,"audio":true,"embeddedContext":true},"mcpCapabilities":{"http":true,"sse":true},"sessionCapabilities":{"list":{},"delete":{},"additionalDirectories":{},"fork":{},"resume":{},"close":{}},"auth":{"logout":{}}},"authMethods":[],"agentInfo":{"name":"mock-agent","title":"Mock agent","version":"1.0.0"}}`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("initialize (-want +got):\n%s", diff)
	}
}

func TestNoLoad(t *testing.T) {
	c := start(t, t.TempDir(), "MOCK_NO_LOAD=1")
	r := c.initialize()
	if r.AgentCapabilities.LoadSession || r.AgentCapabilities.SessionCapabilities.Resume != nil {
		t.Error("load or resume is advertised")
	}
	wantCode(t, c.call(acp.MethodSessionLoad, &schema.LoadSessionRequest{SessionID: "mock-x", Cwd: "/"}, nil), acp.CodeMethodNotFound)
	wantCode(t, c.call(acp.MethodSessionResume, &schema.ResumeSessionRequest{SessionID: "mock-x", Cwd: "/"}, nil), acp.CodeMethodNotFound)
}

func TestAuthRequired(t *testing.T) {
	c := start(t, t.TempDir(), "MOCK_AUTH_REQUIRED=1")
	r := c.initialize()
	if len(r.AuthMethods) != 1 || r.AuthMethods[0].Agent.ID != "mock-login" {
		t.Fatalf("login methods %+v", r.AuthMethods)
	}
	create := &schema.NewSessionRequest{Cwd: "/"}
	wantCode(t, c.call(acp.MethodSessionNew, create, nil), acp.CodeAuthRequired)
	wantCode(t, c.call(acp.MethodAuthenticate, &schema.AuthenticateRequest{MethodID: "other"}, nil), acp.CodeInvalidParams)
	c.must(acp.MethodAuthenticate, &schema.AuthenticateRequest{MethodID: "mock-login"}, nil)
	c.must(acp.MethodSessionNew, create, nil)
	c.must(acp.MethodLogout, &schema.LogoutRequest{}, nil)
	wantCode(t, c.call(acp.MethodSessionNew, create, nil), acp.CodeAuthRequired)
}

// TestLoad_ReplaysVerbatim runs every kind of prompt and loads the session in a
// process that did not see it.
func TestLoad_ReplaysVerbatim(t *testing.T) {
	dir := t.TempDir()
	c := start(t, dir)
	id := c.session()
	var want []string
	user := func(text string) string {
		b, err := schema.Encode(schema.UserMessage(schema.TextBlock(text)))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	for _, text := range []string{"hello", "tool", "diff", "plan", "usage", "commands", "title A <b> & c", "stream 100 200", "echo ä <&> \u2028 \x01", "any other words"} {
		c.prompt(id, text)
		want = append(append(want, user(text)), c.updates...)
	}
	c.updates = nil
	c.must(acp.MethodSessionSetMode, &schema.SetSessionModeRequest{SessionID: id, ModeID: "plan"}, nil)
	want = append(want, c.updates...)
	c.end()

	c = start(t, dir)
	c.initialize()
	var loaded schema.LoadSessionResponse
	c.must(acp.MethodSessionLoad, &schema.LoadSessionRequest{SessionID: id, Cwd: "/project"}, &loaded)
	if diff := cmp.Diff(want, c.updates); diff != "" {
		t.Errorf("replay (-want +got):\n%s", diff)
	}
	if loaded.Modes.CurrentModeID != "plan" {
		t.Errorf("mode %s, want plan", loaded.Modes.CurrentModeID)
	}
	if reason := c.prompt(id, "hello"); reason != schema.StopReasonEndTurn {
		t.Errorf("stop reason %s", reason)
	}
}

func TestResume_DoesNotReplay(t *testing.T) {
	dir := t.TempDir()
	c := start(t, dir)
	id := c.session()
	c.prompt(id, "hello")
	c.end()

	c = start(t, dir)
	c.initialize()
	wantCode(t, c.call(acp.MethodSessionPrompt, prompt(id, "hello"), nil), acp.CodeResourceNotFound)
	c.must(acp.MethodSessionResume, &schema.ResumeSessionRequest{SessionID: id, Cwd: "/project"}, nil)
	if len(c.updates) != 0 {
		t.Errorf("resume sent %d updates", len(c.updates))
	}
	c.prompt(id, "echo again")
	if c.said() != "again" {
		t.Errorf("said %q", c.said())
	}
}

func TestFork_Copies(t *testing.T) {
	c := start(t, t.TempDir())
	id := c.session()
	c.prompt(id, "echo one")
	var fork schema.ForkSessionResponse
	c.must(acp.MethodSessionFork, &schema.ForkSessionRequest{SessionID: id, Cwd: "/other"}, &fork)
	if fork.SessionID == id {
		t.Fatal("the fork has the id of its source")
	}
	c.prompt(fork.SessionID, "echo two")
	texts := func(id schema.SessionID) string {
		c.updates = nil
		c.must(acp.MethodSessionLoad, &schema.LoadSessionRequest{SessionID: id, Cwd: "/"}, nil)
		return c.said()
	}
	if a, b := texts(id), texts(fork.SessionID); a != "one" || b != "onetwo" {
		t.Errorf("source said %q and fork %q", a, b)
	}
}

func TestListCloseDelete(t *testing.T) {
	c := start(t, t.TempDir())
	id := c.session()
	c.prompt(id, "title Named")
	var second schema.NewSessionResponse
	c.must(acp.MethodSessionNew, &schema.NewSessionRequest{Cwd: "/elsewhere"}, &second)
	list := func(cwd *string) map[schema.SessionID]string {
		var r schema.ListSessionsResponse
		c.must(acp.MethodSessionList, &schema.ListSessionsRequest{Cwd: cwd}, &r)
		out := make(map[schema.SessionID]string)
		for _, s := range r.Sessions {
			out[s.SessionID] = s.Cwd
			if s.Title != nil {
				out[s.SessionID] += " " + *s.Title
			}
		}
		return out
	}
	both := map[schema.SessionID]string{id: "/project Named", second.SessionID: "/elsewhere"}
	if diff := cmp.Diff(both, list(nil)); diff != "" {
		t.Errorf("list (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[schema.SessionID]string{id: "/project Named"}, list(new("/project"))); diff != "" {
		t.Errorf("list of a directory (-want +got):\n%s", diff)
	}
	c.must(acp.MethodSessionClose, &schema.CloseSessionRequest{SessionID: id}, nil)
	wantCode(t, c.call(acp.MethodSessionPrompt, prompt(id, "hello"), nil), acp.CodeResourceNotFound)
	wantCode(t, c.call(acp.MethodSessionClose, &schema.CloseSessionRequest{SessionID: id}, nil), acp.CodeResourceNotFound)
	c.must(acp.MethodSessionDelete, &schema.DeleteSessionRequest{SessionID: id}, nil)
	wantCode(t, c.call(acp.MethodSessionDelete, &schema.DeleteSessionRequest{SessionID: id}, nil), acp.CodeResourceNotFound)
	wantCode(t, c.call(acp.MethodSessionLoad, &schema.LoadSessionRequest{SessionID: id, Cwd: "/"}, nil), acp.CodeResourceNotFound)
	wantCode(t, c.call(acp.MethodSessionLoad, &schema.LoadSessionRequest{SessionID: "mock-../x", Cwd: "/"}, nil), acp.CodeResourceNotFound)
	if diff := cmp.Diff(map[schema.SessionID]string{second.SessionID: "/elsewhere"}, list(nil)); diff != "" {
		t.Errorf("list after delete (-want +got):\n%s", diff)
	}
}

func TestConfig(t *testing.T) {
	c := start(t, t.TempDir())
	c.initialize()
	var s schema.NewSessionResponse
	c.must(acp.MethodSessionNew, &schema.NewSessionRequest{Cwd: "/project"}, &s)
	chosen := func(options []schema.SessionConfigOption) string {
		var out []string
		for _, o := range options {
			out = append(out, string(o.Category)+"="+string(o.Select.CurrentValue))
		}
		return strings.Join(out, " ")
	}
	if got := chosen(s.ConfigOptions); got != "mode=ask model=mock-small thought_level=low" {
		t.Errorf("options %s", got)
	}
	set := func(id schema.SessionConfigID, value string) (string, *acp.Error) {
		c.updates = nil
		var r schema.SetSessionConfigOptionResponse
		req := &schema.SetSessionConfigOptionRequest{SessionID: s.SessionID, ConfigID: id, Value: json.RawMessage(value)}
		if value == "true" {
			req.Type = new("boolean")
		}
		e := c.call(acp.MethodSessionSetConfigOption, req, &r)
		return chosen(r.ConfigOptions), e
	}
	if got, _ := set("model", `"mock-large"`); got != "mode=ask model=mock-large thought_level=low" || len(c.updates) != 1 {
		t.Errorf("options %s after %d updates", got, len(c.updates))
	}
	if _, e := set("model", `"mock-large"`); e != nil || len(c.updates) != 0 {
		t.Errorf("setting the same value sent %d updates: %v", len(c.updates), e)
	}
	if got, _ := set("mode", `"code"`); got != "mode=code model=mock-large thought_level=low" || len(c.updates) != 2 {
		t.Errorf("options %s after %d updates", got, len(c.updates))
	}
	for _, bad := range []struct {
		id    schema.SessionConfigID
		value string
	}{{"model", `"gpt"`}, {"color", `"red"`}, {"model", `true`}} {
		_, e := set(bad.id, bad.value)
		wantCode(t, e, acp.CodeInvalidParams)
	}
	c.updates = nil
	c.must(acp.MethodSessionSetMode, &schema.SetSessionModeRequest{SessionID: s.SessionID, ModeID: "ask"}, nil)
	if len(c.updates) != 2 || c.updates[0] != `{"sessionUpdate":"current_mode_update","currentModeId":"ask"}` {
		t.Errorf("updates %q", c.updates)
	}
	wantCode(t, c.call(acp.MethodSessionSetMode, &schema.SetSessionModeRequest{SessionID: s.SessionID, ModeID: "x"}, nil), acp.CodeInvalidParams)
}

func TestStream_OrderAndCount(t *testing.T) {
	c := start(t, t.TempDir())
	id := c.session()
	const n = 100_000
	req := c.start(acp.MethodSessionPrompt, prompt(id, "stream "+strconv.Itoa(n)))
	before, after := []byte(nil), []byte(nil)
	for i := range n {
		line := c.line()
		if i == 0 { // one frame goes through the validator, the others differ in the number only
			if err := c.rec.Gateway(line); err != nil {
				t.Fatal(err)
			}
			at := strings.Index(string(line), `"0 "`) + 1
			before, after = line[:at], line[at+1:]
		}
		if want := string(before) + strconv.Itoa(i) + string(after); string(line) != want {
			t.Fatalf("frame %d is %s, want %s", i, line, want)
		}
	}
	done := c.await(req)
	if string(done.Result()) != `{"stopReason":"end_turn"}` {
		t.Errorf("response %s", done.Frame())
	}
}

func TestStream_Size(t *testing.T) {
	c := start(t, t.TempDir())
	id := c.session()
	for _, command := range []string{"stream", "flood"} {
		c.prompt(id, command+" 12 5000")
		for i, chunk := range c.chunks() {
			if len(chunk) != 5000 || !strings.HasPrefix(chunk, strconv.Itoa(i)+" ") {
				t.Errorf("chunk %d has %d bytes: %.20s", i, len(chunk), chunk)
			}
		}
		if len(c.updates) != 12 {
			t.Errorf("%d updates, want 12", len(c.updates))
		}
	}
}

func TestCancel(t *testing.T) {
	for _, text := range []string{"slow", "stream 100000000"} {
		t.Run(text, func(t *testing.T) {
			c := start(t, t.TempDir())
			id := c.session()
			req := c.start(acp.MethodSessionPrompt, prompt(id, text))
			c.read()
			wantCode(t, c.call(acp.MethodSessionPrompt, prompt(id, "hello"), nil), acp.CodeInvalidRequest)
			c.notify(acp.MethodSessionCancel, &schema.CancelNotification{SessionID: id})
			done := c.await(req)
			if string(done.Result()) != `{"stopReason":"cancelled"}` {
				t.Errorf("response %s", done.Frame())
			}
			if c.prompt(id, "echo alive"); c.said() != "alive" {
				t.Errorf("said %q", c.said())
			}
		})
	}
}

func TestClose_CancelsTheTurn(t *testing.T) {
	c := start(t, t.TempDir())
	id := c.session()
	req := c.start(acp.MethodSessionPrompt, prompt(id, "slow"))
	c.read()
	closing := c.start(acp.MethodSessionClose, &schema.CloseSessionRequest{SessionID: id})
	answers := make(map[acp.ID]string)
	for len(answers) < 2 {
		if m := c.read(); m.IsResponse() {
			answers[m.ID()] = string(m.Result())
		}
	}
	if diff := cmp.Diff(map[acp.ID]string{req: `{"stopReason":"cancelled"}`, closing: `{}`}, answers); diff != "" {
		t.Errorf("answers (-want +got):\n%s", diff)
	}
}

func wantCode(t *testing.T, e *acp.Error, code int64) {
	t.Helper()
	if e == nil || e.Code != code {
		t.Errorf("error %v, want code %d", e, code)
	}
}
