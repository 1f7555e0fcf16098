package scriptedmodel_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	sm "sandboxagent.dev/sandbox-agent/internal/scriptedmodel"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// send makes one HTTP request on a connection of its own.
func send(ctx context.Context, t *testing.T, method, url string, body any) (*http.Response, error) {
	t.Helper()
	b, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	return (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
}

// ask sends a conversation and returns the answer.
func (c *client) ask(t *testing.T, m *sm.Model, stream bool, system string, talk []said, tools ...string) reply {
	t.Helper()
	resp, err := send(t.Context(), t, http.MethodPost, m.URL+c.path(stream), c.body(stream, system, talk, tools))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusOK {
		return reply{Error: fmt.Sprintf("%d %s", resp.StatusCode, b)}
	}
	if stream {
		if ct := resp.Header.Get("Content-Type"); ct != "text/event-stream" {
			t.Errorf("content type %q", ct)
		}
		r := c.events(t, parseEvents(t, b))
		if err != nil {
			r.Error, r.Done = "cut", false
		}
		return r
	}
	if err != nil {
		t.Fatal(err)
	}
	var o obj
	if err := json.Unmarshal(b, &o); err != nil {
		t.Fatalf("%v: %s", err, b)
	}
	return c.whole(o)
}

// each runs a test for each dialect.
func each(t *testing.T, f func(t *testing.T, m *sm.Model, c *client)) {
	t.Helper()
	for i := range clients {
		t.Run(string(clients[i].dialect), func(t *testing.T) { f(t, sm.Start(t), &clients[i]) })
	}
}

const long = "many characters, and ünïcode ✓ in several chunks"

func TestAnswers(t *testing.T) {
	args := obj{"file_path": "/tmp/a b", "n": 1.5}
	tests := []struct {
		name string
		step sm.Step
		want reply // Stop is neutral
	}{
		{"text", sm.Step{sm.Say(long)}, reply{Text: long, Stop: "end_turn", In: 100, Out: 20}},
		{"thought", sm.Step{sm.Think(long), sm.Say("so")}, reply{Thought: long, Text: "so", Stop: "end_turn", In: 100, Out: 20}},
		{"several texts", sm.Step{sm.Say("one "), sm.Say("two "), sm.SayChunks("a", "b")}, reply{Text: "one two ab", Stop: "end_turn", In: 100, Out: 20}},
		{"call", sm.Step{sm.Say("I call."), sm.Call("Read", args)}, reply{
			Text: "I call.", Stop: "tool_use", In: 100, Out: 20,
			Calls: []callOf{{name: "Read", args: `{"file_path":"/tmp/a b","n":1.5}`}},
		}},
		{"parallel calls", sm.Step{sm.Call("Read", args), sm.Call("other", obj{})}, reply{
			Stop: "tool_use", In: 100, Out: 20,
			Calls: []callOf{{name: "Read", args: `{"file_path":"/tmp/a b","n":1.5}`}, {name: "other", args: `{}`}},
		}},
		{"purposes", sm.Step{sm.ReadFile("/f"), sm.Shell("ls 'x'")}, reply{
			Stop: "tool_use", In: 100, Out: 20,
			Calls: []callOf{{name: "Read", args: `{"file_path":"/f"}`}, {name: "Bash", args: `{"command":"ls 'x'","file_path":"scripted"}`}},
		}},
		{"usage", sm.Step{sm.Usage(10, 5, 30, 2), sm.Say("x")}, reply{Text: "x", Stop: "end_turn", In: 42, Out: 5, Cached: 30}},
		{"max tokens", sm.Step{sm.Say("x"), sm.Stop("max_tokens")}, reply{Text: "x", Stop: "max_tokens", In: 100, Out: 20}},
		{"refusal", sm.Step{sm.Stop("refusal")}, reply{Stop: "refusal", In: 100, Out: 20}},
		{"nothing", sm.Step{}, reply{Stop: "end_turn", In: 100, Out: 20}},
	}
	for _, stream := range []bool{true, false} {
		each(t, func(t *testing.T, m *sm.Model, c *client) {
			for _, tt := range tests {
				t.Run(fmt.Sprintf("stream=%t/%s", stream, tt.name), func(t *testing.T) {
					m.On(sm.Exactly("go"), tt.step)
					got := c.ask(t, m, stream, "be brief", []said{{user: "go"}}, "Read", "Bash")
					want := tt.want
					want.Stop, want.Done = c.stops[want.Stop], true
					seen := map[string]bool{}
					for i := range got.Calls {
						if id := got.Calls[i].id; c.dialect != sm.Gemini && (id == "" || seen[id]) {
							t.Errorf("call id %q is missing or there twice", id)
						} else {
							seen[id] = true
						}
						got.Calls[i].id, got.Calls[i].args = "", compact(got.Calls[i].args)
					}
					if diff := cmp.Diff(want, got, cmp.AllowUnexported(callOf{})); diff != "" {
						t.Errorf("(-want +got):\n%s", diff)
					}
				})
			}
		})
	}
}

func TestRounds_ChooseTheStep(t *testing.T) {
	each(t, func(t *testing.T, m *sm.Model, c *client) {
		m.On(sm.Exactly("look"), sm.Step{sm.ReadFile("/a")}, sm.Step{sm.ReadFile("/b"), sm.ReadFile("/c")}, sm.Step{sm.Say("got "), sm.SayResult()})
		talk := []said{{user: "look", calls: []callOf{{"1", "Read", `{}`, "A"}}}, {calls: []callOf{{"2", "Read", `{}`, "B"}, {"3", "Read", `{}`, "C"}}}}
		for i, want := range []string{"", "", "got B\nC"} {
			first := []said{{user: "look"}}
			if i > 0 {
				first = talk[:i]
			}
			got := c.ask(t, m, true, "", append([]said{{user: "say old"}, {assistant: "old"}}, first...), "Read")
			if got.Text != want || len(got.Calls) != []int{1, 2, 0}[i] {
				t.Errorf("round %d: %+v", i, got)
			}
		}
		after := append(talk[:2:2], said{assistant: "got B"}, said{user: "what"})
		if got := c.ask(t, m, true, "", after, "Read"); !strings.Contains(got.Text, `no rule for "what"`) {
			t.Errorf("an unknown prompt is answered with %q", got.Text)
		}
		after[len(after)-1].user = "look"
		if got := c.ask(t, m, true, "", after, "Read"); len(got.Calls) != 1 {
			t.Errorf("the same prompt again is answered with %+v", got)
		}
	})
}

func TestReadyMade(t *testing.T) {
	each(t, func(t *testing.T, m *sm.Model, c *client) {
		for prompt, want := range map[string]string{
			"say  hello there": "hello there", "echo x": "x", "think hard": "thought", "stream 3": "chunk 1 chunk 2 chunk 3 ",
			"recall": `recalled: ["say a"]`, "stream x": `The scripted model has no rule for "stream x".`,
		} {
			got := c.ask(t, m, true, "", []said{{user: "say a"}, {assistant: "a"}, {user: prompt}})
			if strings.TrimSpace(got.Text) != strings.TrimSpace(want) {
				t.Errorf("%s: %q", prompt, got.Text)
			}
		}
		calls := []callOf{{"1", "Bash", `{}`, "out"}}
		if got := c.ask(t, m, true, "", []said{{user: "run ls", calls: calls}}, "Bash"); got.Text != "ran: out" {
			t.Errorf("run: %+v", got)
		}
		if got := c.ask(t, m, true, "", []said{{user: "write /a b c"}}, "Bash"); !strings.Contains(got.Text, "found no tool for") {
			t.Errorf("write without a tool: %+v", got)
		}
	})
}

func TestErrors(t *testing.T) {
	each(t, func(t *testing.T, m *sm.Model, c *client) {
		ask := func(step sm.Step) reply {
			m.On(sm.Exactly("go"), step)
			return c.ask(t, m, true, "", []said{{user: "go"}})
		}
		last := func() sm.Request { all := m.Requests(); return all[len(all)-1] }
		if got := ask(sm.Step{sm.Fail(429, "", "slow down")}); !strings.HasPrefix(got.Error, "429 ") || !strings.Contains(got.Error, "slow down") {
			t.Errorf("HTTP error: %+v", got)
		}
		if got := ask(sm.Step{sm.Say("partly"), sm.SSEError("odd", "it broke")}); got.Text != "partly" && c.dialect != sm.Responses || got.Error != "odd: it broke" || got.Done {
			t.Errorf("error event: %+v", got)
		}
		if o := last().Outcome; o != sm.Failed {
			t.Errorf("outcome %q", o)
		}
		got := ask(sm.Step{sm.Say("partly"), sm.Drop()})
		if got.Error != "cut" || got.Done {
			t.Errorf("cut: %+v", got)
		}
		if o := last().Outcome; o != sm.Dropped {
			t.Errorf("outcome %q", o)
		}
		twice := sm.Step{sm.FailTimes(2, 503, "", "busy"), sm.Say("recovered")}
		m.On(sm.Exactly("retry"), twice)
		for i := range 3 {
			got := c.ask(t, m, true, "", []said{{user: "retry"}})
			if (got.Text == "recovered") != (i == 2) {
				t.Errorf("attempt %d: %+v", i, got)
			}
		}
	})
}

func TestRecord_IsNeutral(t *testing.T) {
	each(t, func(t *testing.T, m *sm.Model, c *client) {
		talk := []said{{user: "first"}, {assistant: "one"}, {user: "say x", calls: []callOf{{"c1", "Read", `{"file_path":"/f"}`, "content"}}}}
		c.ask(t, m, true, "be brief", talk, "Read")
		r := m.Requests()[0]
		if r.Dialect != c.dialect || r.Model != "m-1" || r.Effort != "low" || r.System != "be brief" || !r.Stream || r.Kind != sm.Turn || r.Outcome != sm.Answered {
			t.Errorf("%+v", r)
		}
		if r.Prompt != "say x" || r.Round != 1 || len(r.Tools) != 1 || r.Tools[0].Name != "Read" || !strings.Contains(string(r.Tools[0].Schema), "file_path") {
			t.Errorf("prompt %q, round %d, tools %+v", r.Prompt, r.Round, r.Tools)
		}
		if diff := cmp.Diff([]string{"first", "say x"}, r.Prompts()); diff != "" {
			t.Errorf("prompts (-want +got):\n%s", diff)
		}
		var roles []sm.Role
		var calls []sm.ToolCall
		for _, msg := range r.Messages {
			roles = append(roles, msg.Role)
			calls = append(calls, msg.Calls...)
		}
		if len(roles) > 0 && roles[len(roles)-1] == sm.User { // what the agent added after the results
			roles = roles[:len(roles)-1]
		}
		if diff := cmp.Diff([]sm.Role{sm.User, sm.Assistant, sm.User, sm.Assistant, sm.ToolRole}, roles); diff != "" {
			t.Errorf("roles (-want +got):\n%s", diff)
		}
		if len(calls) != 1 || calls[0].Name != "Read" || compact(calls[0].Args) != `{"file_path":"/f"}` {
			t.Errorf("calls %+v", calls)
		}
		if res := r.Results(); len(res) != 1 || res[0].Text != "content" || !r.Says(sm.Assistant, "one") || r.Says(sm.User, "one") {
			t.Errorf("results %+v", res)
		}
	})
}

func TestSideRequests_MatchNoPrompt(t *testing.T) {
	each(t, func(t *testing.T, m *sm.Model, c *client) {
		talk := []said{{user: "say secret"}}
		if got := c.ask(t, m, true, "You are a title generator.", talk); got.Text != "Scripted title" {
			t.Errorf("title: %+v", got)
		}
		m.On(sm.Of(sm.Title), sm.Step{sm.Say("mine")})
		if got := c.ask(t, m, true, "You are a title generator.", talk); got.Text != "mine" {
			t.Errorf("title by rule: %+v", got)
		}
		summary := append(talk, said{assistant: "secret"}, said{user: "Your task is to create a detailed summary of the conversation so far"})
		if got := c.ask(t, m, true, "", summary, "Read"); !strings.HasPrefix(got.Text, "Summary: say secret") {
			t.Errorf("compaction: %+v", got)
		}
		if len(m.Turns()) != 0 || len(m.Requests()) != 3 {
			t.Errorf("turns %+v", m.Turns())
		}
	})
}

func TestCancel_IsRecorded(t *testing.T) {
	each(t, func(t *testing.T, m *sm.Model, c *client) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		call, leave := context.WithCancel(ctx)
		resp, err := send(call, t, http.MethodPost, m.URL+c.path(true), c.body(true, "", []said{{user: "forever"}}, nil))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if _, err := io.ReadFull(resp.Body, make([]byte, 2000)); err != nil {
			t.Fatal(err)
		}
		leave()
		if _, err := m.Await(ctx, func(r *sm.Request) bool { return r.Outcome == sm.ClientLeft }); err != nil {
			t.Fatal(err)
		}
	})
}

func TestClose_WithRequestsInFlight(t *testing.T) {
	each(t, func(t *testing.T, m *sm.Model, c *client) {
		gate := make(chan struct{})
		m.On(sm.Exactly("wait"), sm.Step{sm.Gate(gate), sm.Say("never")})
		ended := make(chan struct{}, 2)
		for _, prompt := range []string{"wait", "forever"} {
			go func() {
				defer func() { ended <- struct{}{} }()
				if resp, err := send(context.Background(), t, http.MethodPost, m.URL+c.path(true), c.body(true, "", []said{{user: prompt}}, nil)); err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
			}()
		}
		if _, err := m.Await(t.Context(), func(*sm.Request) bool { return len(m.Requests()) == 2 }); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		m.Close()
		if d := time.Since(begin); d > 20*time.Second {
			t.Errorf("Close took %v", d)
		}
		<-ended
		<-ended
	})
}

func TestGate_LetsTheTestGoFirst(t *testing.T) {
	each(t, func(t *testing.T, m *sm.Model, c *client) {
		gate := make(chan struct{})
		m.On(sm.Exactly("wait"), sm.Step{sm.Gate(gate), sm.Say("now")})
		go func() {
			defer close(gate)
			_, _ = m.Await(t.Context(), func(r *sm.Request) bool { return r.Outcome == sm.InFlight })
		}()
		if got := c.ask(t, m, true, "", []said{{user: "wait"}}); got.Text != "now" {
			t.Errorf("%+v", got)
		}
	})
}

func TestOtherRoutes(t *testing.T) {
	m := sm.Start(t)
	tests := []struct {
		method, path string
		status       int
		contains     string
	}{
		{"HEAD", "/", 200, ""},
		{"GET", "/v1/models", 200, `"data":[{`},
		{"POST", "/v1/messages/count_tokens", 200, `"input_tokens":`},
		{"POST", "/v1beta/models/x:countTokens", 200, `"totalTokens":`},
		{"GET", "/elsewhere", 404, "no route GET /elsewhere"},
		{"POST", "/v1/messages", 400, "cannot read the request"},
		{"POST", "/v1/responses", 400, "cannot read the request"},
	}
	for _, tt := range tests {
		resp, err := send(t.Context(), t, tt.method, m.URL+tt.path, "no object")
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != tt.status || !strings.Contains(string(b), tt.contains) {
			t.Errorf("%s %s: %s %s", tt.method, tt.path, resp.Status, b)
		}
	}
	if diff := cmp.Diff([]string{"GET /elsewhere"}, m.Unknown()); diff != "" {
		t.Errorf("unknown (-want +got):\n%s", diff)
	}
}

// answerTo posts a body and returns the events of its answer.
func answerTo(t *testing.T, m *sm.Model, path string, body obj) []byte {
	t.Helper()
	resp, err := send(t.Context(), t, http.MethodPost, m.URL+path, body)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestResponses_ToolTypes(t *testing.T) {
	classic := []any{
		obj{"type": "function", "name": "exec_command", "parameters": obj{"properties": obj{"cmd": obj{"type": "string"}}, "required": []string{"cmd"}}},
		obj{"type": "custom", "name": "apply_patch"},
		obj{"type": "namespace", "name": "mcp__demo", "tools": []any{obj{"type": "function", "name": "add"}}},
	}
	patch := "*** Begin Patch\n*** Add File: f\n+a\n+b\n*** End Patch\n"
	tests := []struct {
		name  string
		tools []any
		do    sm.Action
		want  callOf
	}{
		{"shell", classic, sm.Shell("ls"), callOf{name: "exec_command", args: `{"cmd":"ls"}`}},
		{"read by shell", classic, sm.ReadFile("it's"), callOf{name: "exec_command", args: `{"cmd":"cat 'it'\\''s'"}`}},
		{"write by patch", classic, sm.WriteFile("f", "a\nb\n"), callOf{name: "apply_patch", args: patch}},
		{"namespace", classic, sm.Call("add", obj{"a": 1}), callOf{name: "mcp__demo/add", args: `{"a":1}`}},
		{"local shell", []any{obj{"type": "local_shell"}}, sm.Shell("ls"), callOf{name: "", args: "[bash -c ls]"}},
		{"code mode", []any{obj{"type": "custom", "name": "exec"}}, sm.Shell("ls"), callOf{name: "exec", args: `const r = await tools.exec_command({cmd:"ls"}); text(r.output);`}},
	}
	m := sm.Start(t)
	for _, tt := range tests {
		m.On(sm.Exactly("go"), sm.Step{tt.do})
		body := responsesClient.body(true, "", []said{{user: "go"}}, nil)
		body["tools"] = tt.tools
		if tt.name == "code mode" {
			body["tools"] = nil
			namespace := obj{"type": "namespace", "name": "functions", "tools": tt.tools}
			body["input"] = append([]any{obj{"type": "additional_tools", "role": "developer", "tools": []any{namespace}}}, list(body, "input")...)
		}
		got := responsesClient.events(t, parseEvents(t, answerTo(t, m, "/v1/responses", body)))
		if len(got.Calls) != 1 || got.Calls[0].name != tt.want.name || got.Calls[0].args != tt.want.args || !got.Done {
			t.Errorf("%s: %+v", tt.name, got)
		}
	}
}

func TestSay_JoinsTexts(t *testing.T) {
	m := sm.Start(t)
	m.On(sm.Exactly("go"), sm.Step{sm.Say("a"), sm.Usage(1, 1, 0, 0), sm.Say("b"), sm.Think("c"), sm.Say("d"), sm.Call("x", obj{}), sm.Say("e")})
	var o obj
	if err := json.Unmarshal(answerTo(t, m, "/v1/messages", anthropicClient.body(false, "", []said{{user: "go"}}, nil)), &o); err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, b := range list(o, "content") {
		kinds = append(kinds, str(b, "type")+" "+str(b, "text"))
	}
	if diff := cmp.Diff([]string{"text ab", "thinking ", "text d", "tool_use ", "text e"}, kinds); diff != "" {
		t.Errorf("blocks (-want +got):\n%s", diff)
	}
}

func TestStructured_SatisfiesTheSchema(t *testing.T) {
	m := sm.Start(t)
	body := geminiClient.body(false, "", []said{{user: "say x"}}, nil)
	body["generationConfig"] = obj{"responseMimeType": "application/json", "responseJsonSchema": obj{
		"type": "object", "required": []string{"next_speaker", "score", "list", "ok"},
		"properties": obj{
			"next_speaker": obj{"type": "string", "enum": []string{"model", "user"}}, "score": obj{"type": "INTEGER"},
			"list": obj{"type": "array"}, "ok": obj{"type": "boolean"}, "more": obj{"type": "string"},
		},
	}}
	var o obj
	if err := json.Unmarshal(answerTo(t, m, geminiClient.path(false), body), &o); err != nil {
		t.Fatal(err)
	}
	if got, want := geminiClient.whole(o).Text, `{"list":[],"next_speaker":"user","ok":false,"score":1}`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestPrompts_AreTheUsersWords(t *testing.T) {
	for text, want := range map[string]string{
		"hello": "hello",
		" <a>x</a>\n\n<b c=\"d\">y\nz</b>\nhello\n": "hello",
		"hello\n<reminder>x</reminder>":             "hello",
		"<a>only</a>\n<a>this</a>":                  "",
		"say <b>x</b>":                              "say <b>x</b>",
		"<b>x</b> is bold":                          "<b>x</b> is bold",
		"is <b>x</b> bold":                          "is <b>x</b> bold",
		"<unclosed> hello":                          "<unclosed> hello",
		"hello </unopened>":                         "hello </unopened>",
	} {
		r := sm.Request{Messages: []sm.Message{{Role: sm.User, Texts: []string{text}}}}
		if got := strings.Join(r.Prompts(), "|"); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
