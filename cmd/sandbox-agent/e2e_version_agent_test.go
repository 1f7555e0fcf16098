package main_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/coder/websocket"
)

// withAgentOfTwo starts a gateway that has the agent mock2, the mock agent in version 2 of
// the protocol.
func withAgentOfTwo(t *testing.T, args ...string) *gateway {
	t.Helper()
	g := newGateway(t, args...)
	bin, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	config := fmt.Sprintf("[agents.mock2]\ncommand = %q\nargs = [\"mock-agent\", \"--acp\", \"2\", \"--state-dir\", %q]\nacp = 2\n", bin, t.TempDir())
	if err := os.WriteFile(filepath.Join(g.dir, "agents.toml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	g.start()
	return g
}

// pair is a session of an agent of version 2 with a client of each version in it.
type pair struct {
	t       *testing.T
	g       *gateway
	session string
	one     *client
	two     *second
}

func newPair(t *testing.T) *pair {
	t.Helper()
	g := withAgentOfTwo(t)
	p := &pair{t: t, g: g, two: dialSecondFor(t, g, "mock2")}
	p.session, _ = p.two.call("session/new", map[string]any{"cwd": t.TempDir()})["sessionId"].(string)
	p.join()
	return p
}

func (p *pair) join() {
	p.t.Helper()
	p.one = connect(p.t, p.g, wsocket, options{agent: "mock2"})
	p.one.attach("session/load", p.session, nil)
}

// updatesOne are the updates that the client of version 1 was given from one on.
func (p *pair) updatesOne(from int) []map[string]any {
	var out []map[string]any
	for _, m := range p.one.messages()[from:] {
		var f struct {
			Method string
			Params struct{ Update map[string]any }
		}
		if json.Unmarshal(m.raw, &f) == nil && f.Method == "session/update" {
			out = append(out, f.Params.Update)
		}
	}
	return out
}

// calls are the tool calls of version 1, as they were told last, by title: of those with
// the same the newest.
func calls(updates []map[string]any) map[string]map[string]any {
	var order []string
	byID := map[string]map[string]any{}
	for _, u := range updates {
		if id, _ := u["toolCallId"].(string); id != "" {
			if byID[id] == nil {
				byID[id] = map[string]any{}
				order = append(order, id)
			}
			for k, v := range u {
				byID[id][k] = v
			}
		}
	}
	out := map[string]map[string]any{}
	for _, id := range order {
		title, _ := byID[id]["title"].(string)
		out[title] = byID[id]
	}
	return out
}

// contentText is the text of a tool call of version 1.
func contentText(call map[string]any) string {
	var b strings.Builder
	content, _ := call["content"].([]any)
	for _, c := range content {
		block, _ := c.(map[string]any)["content"].(map[string]any)
		fmt.Fprint(&b, block["text"])
	}
	return b.String()
}

// ended waits until the client of version 2 was told that the turn of a prompt has ended.
func (p *pair) ended(words string, from int) {
	p.t.Helper()
	p.two.until(func(u map[string]any) bool {
		return u["sessionUpdate"] == "user_message" && fmt.Sprint(u["content"]) == "[map[text:"+words+" type:text]]"
	}, from)
	for i := from; i < len(p.two.updates); i++ {
		if u := p.two.updates[i]; u["sessionUpdate"] == "user_message" && strings.Contains(fmt.Sprint(u["content"]), "text:"+words+" ") {
			from = i
		}
	}
	p.two.until(func(u map[string]any) bool {
		return isState("idle")(u) && u["stopReason"] != nil && u["_session"] == p.session
	}, from)
}

func ofKind(kind string) func(u map[string]any) bool {
	return func(u map[string]any) bool { return u["sessionUpdate"] == kind }
}

// asked reads until the client of version 2 is asked for something.
func (s *second) asked() map[string]any {
	s.t.Helper()
	for {
		if m := s.next(); m["method"] != nil && m["id"] != nil {
			return m
		}
	}
}

func (s *second) answer(request, result map[string]any) {
	s.t.Helper()
	frame, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": request["id"], "result": result})
	if err != nil {
		s.t.Fatal(err)
	}
	s.check("out", frame)
	if err := s.ws.Write(s.t.Context(), websocket.MessageText, frame); err != nil {
		s.t.Fatal(err)
	}
}

func (s *second) notify(method string, params map[string]any) {
	s.t.Helper()
	frame, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "method": method, "params": params})
	if err != nil {
		s.t.Fatal(err)
	}
	s.check("out", frame)
	if err := s.ws.Write(s.t.Context(), websocket.MessageText, frame); err != nil {
		s.t.Fatal(err)
	}
}

func chosen(option string) map[string]any {
	return map[string]any{"outcome": map[string]any{"outcome": "selected", "optionId": option}}
}

// What only version 2 has reaches clients of it as it is, and those of version 1 as they
// can show it.
func TestVersions_AgentOfTwo(t *testing.T) {
	p := newPair(t)
	// prompt has the client of version 1 prompt, and returns what both were told.
	prompt := func(t *testing.T, words string) (one, two []map[string]any) {
		t.Helper()
		mark, from := p.one.mark(), len(p.two.updates)
		if stop := p.one.prompt(p.session, words); stop != "end_turn" {
			t.Errorf("the turn ended with %s", stop)
		}
		p.ended(words, from)
		return p.updatesOne(mark), p.two.updates[from:]
	}
	has := func(t *testing.T, updates []map[string]any, match func(u map[string]any) bool, what string) map[string]any {
		t.Helper()
		i := slices.IndexFunc(updates, match)
		if i < 0 {
			t.Fatalf("%s is not among %v", what, updates)
		}
		return updates[i]
	}
	t.Run("message upsert", func(t *testing.T) {
		one, two := prompt(t, "upsert")
		whole := has(t, two, ofKind("agent_message"), "the whole message")
		if fmt.Sprint(whole["content"]) != "[map[text:A draft of it. type:text]]" {
			t.Errorf("the whole message is %v", whole)
		}
		texts := map[string]string{}
		for _, u := range one {
			if id, _ := u["messageId"].(string); u["sessionUpdate"] == "agent_message_chunk" {
				texts[id] += u["content"].(map[string]any)["text"].(string)
			}
		}
		id, _ := whole["messageId"].(string)
		if texts[id] != "A draft of it." || texts[id+"#1"] != "The final text." {
			t.Errorf("version 1 was shown %v", texts)
		}
	})
	t.Run("terminal", func(t *testing.T) {
		one, two := prompt(t, "shell")
		out := ""
		for _, u := range two {
			if u["sessionUpdate"] == "terminal_output_chunk" {
				b, err := base64.StdEncoding.DecodeString(u["data"].(string))
				if err != nil {
					t.Error(err)
				}
				out += string(b)
			}
		}
		if out != "one\ntwo\n" {
			t.Errorf("the terminal shows %q", out)
		}
		has(t, two, ofKind("tool_call_content_chunk"), "content of the call")
		call := calls(one)["Run count"]
		if got := contentText(call); call["status"] != "completed" || got != "one\ntwo\nexit code 3counted" {
			t.Errorf("in version 1 the call shows %q, in %v", got, call)
		}
	})
	t.Run("notice", func(t *testing.T) {
		one, two := prompt(t, "notice")
		has(t, two, ofKind("notice"), "the notice")
		has(t, one, func(u map[string]any) bool { return strings.Contains(fmt.Sprint(u), "The disk is nearly full") }, "the notice")
	})
	t.Run("compaction", func(t *testing.T) {
		_, two := prompt(t, "compaction")
		has(t, two, ofKind("compaction_summary_chunk"), "the summary")
		has(t, two, func(u map[string]any) bool {
			return u["sessionUpdate"] == "compaction_update" && u["status"] == "completed"
		}, "its end")
	})
	t.Run("child", func(t *testing.T) {
		one, two := prompt(t, "child")
		about := has(t, two, ofKind("subagent_update"), "the child")
		child := about["sessionId"]
		if about["_session"] != p.session || child == nil {
			t.Fatalf("the child is told of as %v", about)
		}
		said := ""
		for i, u := range two {
			if u["_session"] != child {
				continue
			}
			if i < slices.IndexFunc(two, ofKind("subagent_update")) {
				t.Errorf("%v comes before the child is introduced", u)
			}
			if u["sessionUpdate"] == "agent_message_chunk" {
				said += u["content"].(map[string]any)["text"].(string)
			}
		}
		if said != "I look around." {
			t.Errorf("the child said %q", said)
		}
		shown := calls(one)
		outer, inner := shown["Look around"], shown["List files"]
		if contentText(outer) != "I look around." || outer["status"] != "completed" || inner["status"] != "completed" {
			t.Errorf("in version 1 the child is %v, its call %v", outer, inner)
		}
		own, _ := inner["_meta"].(map[string]any)["sandboxagent.dev"].(map[string]any)
		if own["parentToolCallId"] != outer["toolCallId"] {
			t.Errorf("in version 1 the child's call is %v, the child %v", inner, outer["toolCallId"])
		}
	})
	ask := func(t *testing.T, words string, check func(one, two map[string]any), answer func(one message, two map[string]any)) {
		t.Helper()
		mark, from := p.one.mark(), len(p.two.updates)
		wait := p.one.start("session/prompt", promptParams(p.session, words))
		one := p.one.find(mark, "the request", func(m *message) bool { return m.Method == "session/request_permission" })
		two := p.two.asked()
		var raw struct{ Params map[string]any }
		if err := json.Unmarshal(one.raw, &raw); err != nil {
			t.Fatal(err)
		}
		check(raw.Params, two["params"].(map[string]any))
		answer(one, two)
		if result, err := p.one.wait(wait); err != nil || stopReason(t, result) != "end_turn" {
			t.Errorf("the turn ended with %s, %v", result, err)
		}
		p.ended(words, from)
	}
	t.Run("permission of a child", func(t *testing.T) {
		from := len(p.two.updates)
		ask(t, "child-permission", func(one, two map[string]any) {
			if one["sessionId"] != p.session || one["toolCall"].(map[string]any)["title"] != "Delete all" {
				t.Errorf("version 1 is asked %v", one)
			}
			about := p.two.until(ofKind("subagent_update"), from)
			subject, _ := two["subject"].(map[string]any)
			if two["sessionId"] != about["sessionId"] || two["title"] != "May I?" || two["description"] != "It is needed." || subject["type"] != "tool_call" || two["_meta"] != nil {
				t.Errorf("version 2 is asked %v, of the child %v", two, about["sessionId"])
			}
		}, func(_ message, two map[string]any) { p.two.answer(two, chosen("allow_once")) })
		p.two.until(func(u map[string]any) bool { return strings.Contains(fmt.Sprint(u), "permission: allow_once") }, from)
	})
	t.Run("requires action", func(t *testing.T) {
		from := len(p.two.updates)
		ask(t, "requires_action", func(one, two map[string]any) {
			if call := one["toolCall"].(map[string]any); call["kind"] != "execute" || fmt.Sprint(call["rawInput"]) != "map[command:rm -r x cwd:/]" {
				t.Errorf("version 1 is asked %v", one)
			}
			if subject, _ := two["subject"].(map[string]any); subject["type"] != "command" {
				t.Errorf("version 2 is asked %v", two)
			}
		}, func(one message, _ map[string]any) { p.one.answer(one, chosen("reject_once")) })
		p.two.until(func(u map[string]any) bool { return strings.Contains(fmt.Sprint(u), "permission: reject_once") }, from)
		var states []any
		for _, u := range p.two.updates[from:] {
			if u["sessionUpdate"] == "state_update" && u["_session"] == p.session {
				states = append(states, u["state"])
			}
		}
		if fmt.Sprint(states) != "[running requires_action running idle]" {
			t.Errorf("the states are %v", states)
		}
	})
	t.Run("a call is cancelled by itself", func(t *testing.T) {
		from, mark := len(p.two.updates), p.one.mark()
		p.two.prompt(p.session, "cancellable")
		open := p.two.until(ofKind("tool_call_update"), from)
		p.two.call("tool_call/cancel", map[string]any{"sessionId": p.session, "toolCallId": open["toolCallId"]})
		p.two.until(func(u map[string]any) bool {
			return u["toolCallId"] == open["toolCallId"] && u["status"] == "cancelled"
		}, from)
		p.ended("cancellable", from)
		p.one.find(mark, "the end of the call", func(m *message) bool { return strings.Contains(string(m.raw), `"status":"failed"`) })
	})
	t.Run("in the background", func(t *testing.T) {
		one, two := prompt(t, "background 60000")
		end := two[len(two)-1]
		if background, _ := end["background"].([]any); len(background) != 1 || end["stopReason"] != "end_turn" {
			t.Fatalf("the turn ended with %v", end)
		}
		if call := calls(one)["Run tick"]; call["status"] != "in_progress" {
			t.Errorf("in version 1 the call is %v", call)
		}
		from, mark := len(p.two.updates), p.one.mark()
		fresh := dialSecondFor(t, p.g, "mock2")
		fresh.call("session/resume", map[string]any{"sessionId": p.session, "cwd": t.TempDir()})
		if state := fresh.updates[0]; state["background"] == nil || !isState("idle")(state) {
			t.Errorf("who comes later is told %v", state)
		}
		terminal := end["background"].([]any)[0].(map[string]any)["terminalId"]
		p.two.until(ofKind("terminal_output_chunk"), from)
		p.two.call("terminal/cancel", map[string]any{"sessionId": p.session, "terminalId": terminal})
		p.two.until(func(u map[string]any) bool { return strings.Contains(fmt.Sprint(u), "in the background is cancelled") }, from)
		if last := p.two.until(isState("idle"), from); last["background"] != nil {
			t.Errorf("behind it the state is %v", last)
		}
		p.one.find(mark, "what the agent said by itself", func(m *message) bool { return strings.Contains(string(m.raw), "in the background is cancelled") })
		if call := calls(p.updatesOne(mark))[""]; call["status"] != "failed" || !strings.Contains(contentText(call), "tick 0\n") {
			t.Errorf("in version 1 the call is %v", call)
		}
	})
	t.Run("the background ends within a turn", func(t *testing.T) {
		_, two := prompt(t, "background 60000")
		terminal := two[len(two)-1]["background"].([]any)[0].(map[string]any)["terminalId"]
		from, mark := len(p.two.updates), p.one.mark()
		p.two.prompt(p.session, "slow")
		p.two.until(ofKind("agent_message_chunk"), from)
		p.two.call("terminal/cancel", map[string]any{"sessionId": p.session, "terminalId": terminal})
		p.two.until(func(u map[string]any) bool { return strings.Contains(fmt.Sprint(u), "in the background is cancelled") }, from)
		p.two.notify("session/cancel", map[string]any{"sessionId": p.session})
		if end := p.two.until(isState("idle"), from); end["stopReason"] != "cancelled" || end["background"] != nil {
			t.Errorf("the turn ended with %v", end)
		}
		p.one.find(mark, "what the agent said by itself", func(m *message) bool { return strings.Contains(string(m.raw), "in the background is cancelled") })
	})
	t.Run("a replay", func(t *testing.T) {
		again := dialSecondFor(t, p.g, "mock2")
		again.call("session/resume", map[string]any{"sessionId": p.session, "cwd": t.TempDir(), "replayFrom": map[string]any{"type": "start"}})
		if diff := conversationDiff(p.two, again); diff != "" {
			t.Error(diff)
		}
		late := connect(t, p.g, wsocket, options{agent: "mock2"})
		late.attach("session/load", p.session, nil)
		was, is := p.updatesOne(0), (&pair{t: t, one: late}).updatesOne(0)
		if a, b := fmt.Sprint(calls(was)), fmt.Sprint(calls(is)); a != b {
			t.Errorf("in version 1 the calls were\n%s\nand are\n%s", a, b)
		}
	})
}

// A session of an agent of version 2 travels, and is forked, with what its children said.
func TestVersions_AgentOfTwoTravels(t *testing.T) {
	p := newPair(t)
	p.two.prompt(p.session, "child")
	p.ended("child", 0)
	resume := func(g *gateway, id string) *second {
		t.Helper()
		s := dialSecondFor(t, g, "mock2")
		s.call("session/resume", map[string]any{"sessionId": id, "cwd": t.TempDir(), "replayFrom": map[string]any{"type": "start"}})
		return s
	}
	file := filepath.Join(t.TempDir(), "session")
	p.g.mustCommand("sessions", "export", p.session, "-o", file)
	other := withAgentOfTwo(t)
	other.mustCommand("sessions", "import", file, "--cwd", t.TempDir())
	if diff := conversationDiff(p.two, resume(other, p.session)); diff != "" {
		t.Error(diff)
	}
	fork, _ := p.two.call("session/fork", map[string]any{"sessionId": p.session, "cwd": t.TempDir()})["sessionId"].(string)
	said, sessions := "", map[any]bool{}
	for _, u := range resume(p.g, fork).updates {
		sessions[u["_session"]] = true
		if u["_session"] != fork && u["sessionUpdate"] == "agent_message_chunk" {
			said += u["content"].(map[string]any)["text"].(string)
		}
	}
	if said != "I look around." || sessions[p.session] || !sessions[fork] {
		t.Errorf("in the fork the child said %q, of sessions %v", said, sessions)
	}
	events := p.g.mustCommand("sessions", "events", p.session)
	if n := strings.Count(events, "List files"); n != 1 {
		t.Errorf("the events tell of the child's call %d times:\n%s", n, events)
	}
}

func conversationDiff(a, b *second) string {
	was, is := a.conversation(), b.conversation()
	if slices.Equal(was, is) {
		return ""
	}
	return fmt.Sprintf("the conversation was\n%s\nand is\n%s", strings.Join(was, "\n"), strings.Join(is, "\n"))
}

// A gateway that is killed in a turn of an agent of version 2 has all of it when it is
// back, and the agent goes on with its session.
func TestVersions_AgentOfTwoKilled(t *testing.T) {
	p := newPair(t)
	p.two.prompt(p.session, "hello")
	p.ended("hello", 0)
	from := len(p.two.updates)
	p.two.prompt(p.session, "upsert")
	p.two.until(isState("idle"), from)
	from = len(p.two.updates)
	p.two.prompt(p.session, "background 60000")
	p.ended("background 60000", from)
	from = len(p.two.updates)
	p.two.prompt(p.session, "slow")
	p.two.until(ofKind("agent_message_chunk"), from)
	p.g.kill(syscall.SIGKILL)
	p.g.start()

	again := dialSecondFor(t, p.g, "mock2")
	again.call("session/resume", map[string]any{"sessionId": p.session, "cwd": t.TempDir(), "replayFrom": map[string]any{"type": "start"}})
	if last := again.updates[len(again.updates)-1]; !isState("idle")(last) || last["background"] != nil {
		t.Errorf("behind the replay the state is %v", last)
	}
	exits := 0
	for _, u := range again.updates {
		if exit, _ := u["exitStatus"].(map[string]any); u["sessionUpdate"] == "terminal_update" && exit != nil {
			exits++
		}
	}
	if exits == 0 {
		t.Error("the command in the background has not ended")
	}
	was, is := p.two.conversation(), again.conversation()
	last := len(was) - 1
	if len(is) < len(was) || !slices.Equal(was[:last], is[:last]) || !strings.HasPrefix(is[last], was[last]) ||
		slices.ContainsFunc(is[last+1:], func(later string) bool { return !strings.Contains(later, " tick ") }) { // a tick of the background begins a new message
		t.Errorf("the conversation was\n%s\nand is\n%s", strings.Join(was, "\n"), strings.Join(is, "\n"))
	}
	p.join()
	if open := calls(p.updatesOne(0))["Run tick"]; open["status"] != "failed" {
		t.Errorf("in version 1 the call that the gateway left behind is %v", open)
	}
	used := map[any]bool{nil: true}
	for _, u := range p.two.updates {
		used[u["messageId"]] = true
	}
	from = len(again.updates)
	again.prompt(p.session, "hello")
	again.until(isState("idle"), from)
	for _, u := range again.updates[from:] {
		if id := u["messageId"]; id != nil && used[id] {
			t.Errorf("the message %v is of the process before: %v", id, u)
		}
	}
	from = len(again.updates)
	if got := p.one.prompt(p.session, "upsert"); got != "end_turn" {
		t.Errorf("a turn of version 1 after the restart ended with %s", got)
	}
	again.until(isState("idle"), from)
	p.one.must("session/set_mode", map[string]any{"sessionId": p.session, "modeId": "plan"})
	changed := again.until(ofKind("config_option_update"), from)
	if !strings.Contains(fmt.Sprint(changed["configOptions"]), "currentValue:plan") {
		t.Errorf("a mode that version 1 has set is told as %v", changed)
	}
	again.notify("session/cancel", map[string]any{"sessionId": p.session})
}

// A child that was at work when the gateway was killed has ended for clients of both versions,
// each by its own ids.
func TestVersions_AgentOfTwoKilledWithAChild(t *testing.T) {
	p := newPair(t)
	p.two.prompt(p.session, "child-permission")
	p.two.asked()
	child := p.two.until(ofKind("subagent_update"), 0)["sessionId"]
	known := map[any]bool{}
	for _, u := range p.two.updates {
		known[u["toolCallId"]] = true
	}
	p.g.kill(syscall.SIGKILL)
	p.g.start()

	again := dialSecondFor(t, p.g, "mock2")
	again.call("session/resume", map[string]any{"sessionId": p.session, "cwd": t.TempDir(), "replayFrom": map[string]any{"type": "start"}})
	status := map[any]any{}
	for _, u := range again.updates {
		if id := u["toolCallId"]; id != nil && !known[id] {
			t.Errorf("there was no such call: %v", u)
		}
		if u["sessionUpdate"] == "tool_call_update" && u["_session"] != p.session && u["status"] != nil {
			status[u["toolCallId"]] = u["status"]
		}
	}
	for id, is := range status {
		if is != "failed" {
			t.Errorf("the child's call %v is %v", id, is)
		}
	}
	// Who has seen the child work is told that it does not any more.
	late := dialSecondFor(t, p.g, "mock2")
	late.call("session/resume", map[string]any{"sessionId": p.session, "cwd": t.TempDir(), "_meta": map[string]any{"sandboxagent.dev": map[string]any{"after": 1}}})
	var told []string
	for _, u := range late.updates {
		if u["sessionUpdate"] == "subagent_update" && u["sessionId"] == child && u["state"] != nil {
			told = append(told, fmt.Sprint(u["state"]))
		}
	}
	if len(told) == 0 || !strings.Contains(told[len(told)-1], "state:idle") {
		t.Errorf("of the child who was away is told %q", told)
	}
	p.join()
	for id, call := range calls(p.updatesOne(0)) {
		if call["status"] != "failed" {
			t.Errorf("in version 1 the call %q is %v", id, call)
		}
	}
}

// What was asked about a command when the gateway was killed leaves clients of version 2 no call.
func TestVersions_AgentOfTwoKilledWhileItAsks(t *testing.T) {
	p := newPair(t)
	p.two.prompt(p.session, "requires_action")
	p.two.asked()
	p.g.kill(syscall.SIGKILL)
	p.g.start()
	again := dialSecondFor(t, p.g, "mock2")
	again.call("session/resume", map[string]any{"sessionId": p.session, "cwd": t.TempDir(), "replayFrom": map[string]any{"type": "start"}})
	for _, u := range again.updates {
		if u["toolCallId"] != nil {
			t.Errorf("there was no call: %v", u)
		}
	}
	p.join()
	shown := calls(p.updatesOne(0))
	for id, call := range shown {
		if call["status"] != "failed" {
			t.Errorf("in version 1 the call %q is %v", id, call)
		}
	}
	if len(shown) == 0 {
		t.Error("version 1 was shown nothing of what was asked")
	}
}
