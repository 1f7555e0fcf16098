package runtime

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
)

// brief is a frame of version 2 in a few words.
func brief(m acp.Message) string {
	switch {
	case m.IsResponse() && m.Err() != nil:
		return fmt.Sprintf("%s error %d", m.ID(), m.Err().Code)
	case m.IsResponse():
		return strings.TrimSpace(fmt.Sprintf("%s result %s", m.ID(), rawjson.MemberString(m.Result(), "messageId")))
	case m.Method() != "session/update":
		return strings.TrimSpace(m.Method() + " " + rawjson.MemberString(m.Params(), "title"))
	}
	u := m.Update()
	words := []string{string(m.UpdateKind())}
	for _, path := range [][]string{{"messageId"}, {"toolCallId"}, {"state"}, {"stopReason"}, {"error", "message"}, {"status"}, {"content", "text"}} {
		if w := rawjson.MemberString(u, path...); w != "" {
			words = append(words, w)
		}
	}
	return strings.Join(words, " ")
}

// expect reads frames and finds those wanted.
func (tc *testClient) expect(want ...string) {
	tc.t.Helper()
	var got []string
	for range want {
		got = append(got, brief(tc.next()))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		tc.t.Fatalf("(-want +got):\n%s", diff)
	}
}

func TestVersionTwo_Turn(t *testing.T) {
	a := &fakeAgent{}
	r := newRuntime(t, t.TempDir(), a)
	two := connectTwo(t, r, "")
	s := two.session()
	id := two.request("session/prompt", prompt(s, "hi"))
	p := a.conn().next(t, "session/prompt")
	two.expect("user_message sa.1", "state_update running", string(id)+" result sa.1")

	// The prompt is answered: its id is free, and an error under it is another request's.
	two.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"session/set_config_option","params":{"sessionId":%q,"configId":"x","type":"id","value":"y"}}`, id, s))
	set := a.conn().next(t, "session/set_config_option")
	a.conn().send(`{"jsonrpc":"2.0","id":` + string(set.ID()) + `,"error":{"code":-32602,"message":"no such option"}}`)
	two.expect(string(id) + " error -32602")

	c := a.conn()
	c.chunk("native-1", "one")
	c.send(`{"jsonrpc":"2.0","id":7,"method":"session/request_permission","params":{"sessionId":"native-1","toolCall":{"toolCallId":"t","title":"Do it"},"options":[{"optionId":"o","name":"O","kind":"allow_once"}]}}`)
	two.expect("agent_message_chunk sa.6 one")
	ask := two.next()
	if got := brief(ask); got != "session/request_permission Do it" {
		t.Fatalf("asked: %s", got)
	}
	two.expect("state_update requires_action")
	two.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"outcome":{"outcome":"selected","optionId":"o"}}}`, ask.ID()))
	two.expect("state_update running")
	if got := c.next(t, ""); string(got.Result()) != `{"outcome":{"outcome":"selected","optionId":"o"}}` {
		t.Errorf("the agent was answered %s", got.Frame())
	}
	c.chunk("native-1", "two")
	c.result(p, `{"stopReason":"max_tokens"}`)
	two.expect("agent_message_chunk sa.6 two", "state_update idle max_tokens")

	two.call("session/prompt", prompt(s, "again")) // the answer comes though the turn goes on
	a.conn().next(t, "session/prompt")
}

// What is given again on a stream that broke is what was given, wherever it broke.
func TestVersionTwo_EventsAgain(t *testing.T) {
	a := &fakeAgent{}
	r := newRuntime(t, t.TempDir(), a)
	for _, caps := range []string{"{}", `{"_meta":{"sandboxagent.dev":{"eventIds":true,"turns":true,"notices":true}}}`} {
		c, _, err := r.Connect(t.Context(), acp.NewRequest("0", "initialize", []byte(`{"protocolVersion":2,"info":{"name":"t","version":"1"},"capabilities":`+caps+`}`)), acp.ConnectOptions{Shape: acp.PerSession})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		control, err := c.Stream("", nil)
		if err != nil {
			t.Fatal(err)
		}
		ask := func(id, method, params string) {
			t.Helper()
			if err := c.Send(t.Context(), acp.NewRequest(acp.ID(id), method, []byte(params))); err != nil {
				t.Fatal(err)
			}
		}
		ask("1", "session/new", `{"cwd":"/tmp"}`)
		_, frame, _ := strings.Cut(collect(t, control, 1)[0], " ")
		s := rawjson.MemberString([]byte(frame), "result", "sessionId")
		st, err := c.Stream(s, nil)
		if err != nil {
			t.Fatal(err)
		}
		conn := a.conn()
		native := fmt.Sprintf("native-%d", conn.n)
		ask("2", "session/prompt", prompt(s, "hi"))
		p := conn.next(t, "session/prompt")
		conn.chunk(native, "one")
		conn.chunk(native, "two")
		conn.send(`{"jsonrpc":"2.0","id":7,"method":"session/request_permission","params":{"sessionId":"` + native + `","toolCall":{"toolCallId":"t","title":"Do it"},"options":[{"optionId":"o","name":"O","kind":"allow_once"}]}}`)
		conn.send(`{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":7}}`)
		conn.next(t, "")
		conn.send(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"` + native + `","update":{"sessionUpdate":"tool_call","toolCallId":"t","title":"Do it","content":[{"type":"diff","path":"/a","newText":"x"}]}}}`)
		conn.chunk(native, "three")
		conn.result(p, `{"stopReason":"end_turn"}`)
		var events []string
		until := func(end string) {
			t.Helper()
			for !slices.ContainsFunc(events, func(e string) bool { return strings.Contains(e, end) }) {
				events = append(events, collect(t, st, 1)...)
			}
		}
		until(`"state":"idle","stopReason":"end_turn"`)
		ask("3", "session/resume", `{"sessionId":"`+s+`","cwd":"/tmp","replayFrom":{"type":"start"}}`)
		until(`"state":"idle"}`)
		ask("4", "session/prompt", prompt(s, "more"))
		p = conn.next(t, "session/prompt")
		conn.chunk(native, "four")
		conn.result(p, `{"stopReason":"refusal"}`)
		until(`"state":"idle","stopReason":"refusal"`)

		for from := range events {
			var after uint64
			_, _ = fmt.Sscan(events[from], &after)
			again, err := c.Stream(s, &after)
			if err != nil {
				t.Fatal(err)
			}
			if want := events[from+1:]; len(want) > 0 {
				if diff := cmp.Diff(want, collect(t, again, len(want))); diff != "" {
					t.Fatalf("behind event %d (-given +given again):\n%s", after, diff)
				}
			}
			again.Close()
		}
		control.Close()
	}
}

// A gateway that was killed has left a turn open. The next one ends it: for those who read
// the history, and for those who come.
func TestVersionTwo_LostTurn(t *testing.T) {
	a, dir := &fakeAgent{}, t.TempDir()
	r := newRuntime(t, dir, a)
	for name, begin := range map[string]func() (s string){
		"of version 1": func() string {
			one := connect(t, r, "")
			s := one.session()
			one.request("session/prompt", prompt(s, "hi"))
			return s
		},
		"of version 2": func() string {
			two := connectTwo(t, r, "")
			s := two.session()
			two.call("session/prompt", prompt(s, "hi"))
			return s
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := begin()
			conn := a.conn()
			conn.next(t, "session/prompt")
			watch := connectTwo(t, r, "")
			watch.call("session/resume", `{"sessionId":"`+s+`","cwd":"/tmp"}`)
			conn.chunk(fmt.Sprintf("native-%d", conn.n), "one")
			if got, want := brief(watch.next()), "agent_message_chunk "+messageOf(t, r, s)+" one"; got != want {
				t.Errorf("%s, want %s", got, want)
			}

			after := t.TempDir()
			copyDir(t, after, dir)
			b := &fakeAgent{}
			next := newRuntime(t, after, b)
			two := connectTwo(t, next, "")
			before, _ := two.until(two.request("session/resume", `{"sessionId":"`+s+`","cwd":"/tmp","replayFrom":{"type":"start"}}`))
			var got []string
			for _, m := range before {
				got = append(got, brief(m))
			}
			id := messageOf(t, r, s)
			want := []string{"user_message sa.1", "agent_message " + id, "agent_message_chunk " + id + " one", "state_update idle"}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// messageOf returns the id of the first message of the session's agent.
func messageOf(t *testing.T, r *Runtime, s string) string {
	t.Helper()
	events, _, err := r.Events(t.Context(), s, 0, 100)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		if m := acp.MustParse(slices.Clone([]byte(e.Message))); string(m.UpdateKind()) == "agent_message_chunk" {
			return fmt.Sprintf("sa.%d", e.Seq)
		}
	}
	t.Fatal("the agent has said nothing")
	return ""
}

func copyDir(t *testing.T, to, from string) {
	t.Helper()
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil || d.IsDir() {
			return os.MkdirAll(filepath.Join(to, rel), 0o700)
		}
		b, err := os.ReadFile(path)
		switch {
		case errors.Is(err, fs.ErrNotExist) && filepath.Ext(path) == ".tmp":
			return nil // it has got its name meanwhile
		case err != nil:
			return err
		}
		return os.WriteFile(filepath.Join(to, rel), b, 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A session that only the agent knows is shown as history when the agent has told it all.
func TestVersionTwo_Foreign(t *testing.T) {
	a := &fakeAgent{caps: `{"loadSession":true}`}
	r := newRuntime(t, t.TempDir(), a)
	two := connectTwo(t, r, "")
	id := two.request("session/resume", `{"sessionId":"theirs","cwd":"/tmp","replayFrom":{"type":"start"}}`)
	load := a.conn().next(t, "session/load")
	a.conn().send(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"theirs","update":{"sessionUpdate":"user_message_chunk","content":{"type":"text","text":"q"}}}}`)
	a.conn().chunk("theirs", "a")
	a.conn().result(load, `{"modes":{"currentModeId":"m","availableModes":[{"id":"m","name":"M"}]}}`)
	two.expect("user_message sa.1", "user_message_chunk sa.1 q", "agent_message sa.2", "agent_message_chunk sa.2 a", "state_update idle")
	if res := two.next(); res.ID() != id || !strings.Contains(string(res.Result()), `"configId":"mode"`) || strings.Contains(string(res.Result()), `"modes"`) {
		t.Errorf("answered with %s", res.Frame())
	}
}

// Nothing of a session comes behind the answer to its close.
func TestVersionTwo_CloseIsSilent(t *testing.T) {
	a := &fakeAgent{caps: `{"sessionCapabilities":{"close":{}}}`}
	r := newRuntime(t, t.TempDir(), a)
	one := connect(t, r, "")
	conn := a.conn()
	two := connectTwo(t, r, "")
	s := one.session()
	two.call("session/resume", `{"sessionId":"`+s+`","cwd":"/tmp"}`)
	id := one.request("session/prompt", prompt(s, "hi"))
	p := conn.next(t, "session/prompt")
	held := two.request("session/prompt", prompt(s, "never"))
	closing := two.request("session/close", `{"sessionId":"`+s+`"}`)
	conn.next(t, "session/cancel")
	conn.result(p, `{"stopReason":"cancelled"}`)
	conn.result(conn.next(t, "session/close"), `{}`)
	two.expect("user_message sa.1", "state_update running", string(held)+" error -32800", "state_update idle cancelled", string(closing)+" result")
	one.until(id)

	one.call("session/load", `{"sessionId":"`+s+`","cwd":"/tmp","mcpServers":[]}`)
	one.request("session/prompt", prompt(s, "more"))
	conn.result(conn.next(t, "session/prompt"), `{"stopReason":"end_turn"}`)
	one.until(acp.IntID(int64(one.lastID)))
	two.request("session/list", `{}`)
	if m := two.next(); !m.IsResponse() {
		t.Errorf("behind the close came %s", m.Frame())
	}
}

// A prompt whose client has left goes on, and those who are there see its end.
func TestVersionTwo_ClientLeaves(t *testing.T) {
	a := &fakeAgent{}
	r := newRuntime(t, t.TempDir(), a)
	gone, two := connectTwo(t, r, ""), connectTwo(t, r, "")
	conn := a.conn()
	one := connect(t, r, `{"_meta":{"sandboxagent.dev":{"turns":true}}}`)
	s := gone.session()
	for _, c := range []*testClient{two, one} {
		c.call("session/resume", `{"sessionId":"`+s+`","cwd":"/tmp"}`)
	}
	gone.call("session/prompt", prompt(s, "hi"))
	p := conn.next(t, "session/prompt")
	gone.close()
	conn.chunk("native-1", "one")
	conn.result(p, `{"stopReason":"end_turn"}`)
	two.expect("user_message sa.1", "state_update running", "agent_message_chunk sa.4 one", "state_update idle end_turn")
	for {
		if m := one.next(); m.Method() == "_sandboxagent/session/turn_ended" {
			if got, _ := rawjson.Member(m.Params(), "result"); string(got) != `{"stopReason":"end_turn"}` {
				t.Errorf("the turn ended with %s", m.Params())
			}
			break
		}
	}
}

func TestVersionTwo_Question(t *testing.T) {
	a := &fakeAgent{}
	r := newRuntime(t, t.TempDir(), a)
	form := connectTwo(t, r, `{"elicitation":{"form":{}}}`)
	conn := a.conn()
	piece := connectTwo(t, r, "")
	s := form.session()
	piece.call("session/resume", `{"sessionId":"`+s+`","cwd":"/tmp"}`)
	form.call("session/prompt", prompt(s, "hi"))
	p := conn.next(t, "session/prompt")
	conn.send(`{"jsonrpc":"2.0","id":9,"method":"_sandboxagent/session/request_question","params":{"sessionId":"native-1","questions":[{"id":"c","header":"Colour","question":"Which?","options":[{"label":"red","description":""},{"label":"blue","description":""}],"multiSelect":false}]}}`)
	var asked acp.Message
	for asked = form.next(); !asked.IsRequest(); asked = form.next() {
	}
	if asked.Method() != "elicitation/create" {
		t.Errorf("who can be shown forms was asked %s", asked.Frame())
	}
	for asked = piece.next(); !asked.IsRequest(); asked = piece.next() {
	}
	if got := brief(asked); got != "session/request_permission Which?" {
		t.Errorf("who cannot was asked %s", got)
	}
	piece.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"outcome":{"outcome":"selected","optionId":"answer-1"}}}`, asked.ID()))
	if got := conn.next(t, ""); string(got.Result()) != `{"outcome":"answered","answers":[["blue"]]}` {
		t.Errorf("the agent was answered %s", got.Frame())
	}
	conn.result(p, `{"stopReason":"end_turn"}`)
	form.expect("state_update requires_action", "$/cancel_request", "state_update running", "state_update idle end_turn")
}

// Two clients of either version may use the same ids, cancel each other's turns, and hold
// prompts.
func TestVersionTwo_BesideOne(t *testing.T) {
	a := &fakeAgent{}
	r := newRuntime(t, t.TempDir(), a)
	one := connect(t, r, "")
	conn := a.conn()
	two := connectTwo(t, r, "")
	s := one.session()
	two.call("session/resume", `{"sessionId":"`+s+`","cwd":"/tmp"}`)
	const id = "77"
	send := func(tc *testClient, text string) {
		tc.send(`{"jsonrpc":"2.0","id":` + id + `,"method":"session/prompt","params":` + prompt(s, text) + `}`)
	}
	send(one, "first")
	first := conn.next(t, "session/prompt")
	send(two, "second")
	conn.result(first, `{"stopReason":"end_turn"}`)
	second := conn.next(t, "session/prompt")
	conn.result(second, `{"stopReason":"refusal"}`)
	two.expect("user_message sa.1", "state_update running", "state_update idle end_turn", "user_message sa.4", "state_update running", id+" result sa.4", "state_update idle refusal")
	if _, res := one.until(id); string(res.Result()) != `{"stopReason":"end_turn"}` {
		t.Errorf("the first is answered %s", res.Frame())
	}
	select {
	case m := <-one.frames:
		if texts([]acp.Message{m}) != "user:second" {
			t.Errorf("version 1 is told %s", m.Frame())
		}
	case <-time.After(wait):
		t.Error("version 1 does not see what version 2 asks")
	}
}
