package runtime

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/adapters"
)

// recorder is an agent with a record of its own, which a terminal may add to.
type recorder struct {
	*fakeAgent
	said []string // prompts and answers in turn

	mu                sync.Mutex
	asked             map[string]int // by method
	written, prompted time.Time
	shared            bool // the record has other sessions
	refuses           bool // to load, without a login
	hides             bool // its record
	ignores           bool // prompts
}

var _ adapters.Recorder = (*recorder)(nil)

// Recorded implements [adapters.Recorder].
func (a *recorder) Recorded(adapters.Options, string) adapters.Recorded {
	a.mu.Lock()
	defer a.mu.Unlock()
	return adapters.Recorded{Written: a.written, Prompted: a.prompted, Shared: a.shared}
}

// got returns how often the agent was asked for something.
func (a *recorder) got(method string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.asked[method]
}

// terminal adds a turn to the record.
func (a *recorder) terminal(prompt, answer string) {
	a.said = append(a.said, prompt, answer)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.written = time.Now().Add(time.Hour)
}

func newRecorder() *recorder {
	a := &recorder{asked: map[string]int{}, fakeAgent: &fakeAgent{
		id:   "fake",
		info: adapters.Info{Record: true}, caps: `{"loadSession":true,"sessionCapabilities":{"resume":{},"close":{},"fork":{}}}`,
	}}
	a.handle = func(c *fakeConn, m acp.Message) {
		a.mu.Lock()
		a.asked[m.Method()]++
		a.mu.Unlock()
		switch m.Method() {
		case "session/new":
			c.newSession(m)
		case "session/fork":
			c.result(m, `{"sessionId":"forked"}`)
		case "session/load":
			if a.refuses {
				c.out <- acp.NewError(m.ID(), acp.Errorf(acp.CodeAuthRequired, "log in first"))
				return
			}
			if a.hides {
				c.out <- acp.NewError(m.ID(), acp.Errorf(acp.CodeInternal, "the record cannot be read"))
				return
			}
			c.update(m.Session(), `{"sessionUpdate":"available_commands_update","availableCommands":[]}`)
			for i, text := range a.said {
				kind := []string{"user_message_chunk", "agent_message_chunk"}[i%2]
				c.update(m.Session(), fmt.Sprintf(`{"sessionUpdate":%q,"messageId":"m%d","content":{"type":"text","text":%q}}`, kind, i, text))
			}
			c.result(m, `{}`)
		case "session/prompt":
			if a.ignores {
				return
			}
			blocks, _ := rawjson.Member(m.Params(), "prompt")
			text := rawjson.MemberString(rawjson.Elements(blocks)[0], "text")
			a.said = append(a.said, text, "re-"+text)
			c.chunk(m.Session(), "re-"+text)
			c.result(m, `{"stopReason":"end_turn"}`)
		default:
			if m.IsRequest() {
				c.result(m, `{}`)
			}
		}
	}
	return a
}

func (c *fakeConn) update(session, update string) {
	c.send(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"` + session + `","update":` + update + `}}`)
}

// imported returns the texts that are marked as made elsewhere.
func imported(ms []acp.Message) string {
	var out []acp.Message
	for _, m := range ms {
		if rawjson.MemberBool(m.Update(), "_meta", acp.MetaKey, "imported") {
			out = append(out, m)
		}
	}
	return texts(out)
}

func (tc *testClient) loaded(s string) (shown []acp.Message, result string) {
	tc.t.Helper()
	shown, res := tc.until(tc.request("session/load", `{"sessionId":"`+s+`","cwd":"/tmp","mcpServers":[]}`))
	return shown, string(res.Result())
}

// What was said in a terminal while a session had no process stands in its log before
// the next prompt, once.
func TestMerge_TurnsOfATerminal(t *testing.T) {
	a := newRecorder()
	r := newRuntime(t, t.TempDir(), a.fakeAgent)
	tc := connect(t, r, "")
	watcher := connect(t, r, "")
	s := tc.session()
	watcher.call("session/resume", `{"sessionId":"`+s+`","cwd":"/tmp"}`)
	tc.until(tc.request("session/prompt", prompt(s, "one")))
	for n, words := range []string{"two", "three"} {
		tc.call("session/close", `{"sessionId":"`+s+`"}`)
		tc.call("session/resume", `{"sessionId":"`+s+`","cwd":"/tmp"}`)
		if n == 0 {
			a.said = append(a.said, "elsewhere", "there")
		}
		before, _ := tc.until(tc.request("session/prompt", prompt(s, words)))
		if got, want := texts(before), []string{"user:elsewhere there re-two", "re-three"}[n]; got != want {
			t.Errorf("who prompts is shown %q, want %q", got, want)
		}
	}
	const all = "user:one re-one user:elsewhere there user:two re-two user:three re-three"
	var seen []acp.Message
	for texts(seen) != all {
		seen = append(seen, watcher.next())
		if !strings.HasPrefix(all, texts(seen)) {
			t.Fatalf("who watches is shown %q, want %q", texts(seen), all)
		}
	}
	shown, result := connect(t, r, "").loaded(s)
	if texts(shown) != all || imported(shown) != "user:elsewhere there" || strings.Contains(result, "historyIncomplete") {
		t.Errorf("a load shows %q, marked %q, and says %s", texts(shown), imported(shown), result)
	}
}

// What the record has between turns of the log has no place there any more, and that is said.
func TestMerge_WhatIsMissing(t *testing.T) {
	a := newRecorder()
	r := newRuntime(t, t.TempDir(), a.fakeAgent)
	tc := connect(t, r, "")
	s := tc.session()
	for _, words := range []string{"one", "two"} {
		tc.until(tc.request("session/prompt", prompt(s, words)))
	}
	tc.call("session/close", `{"sessionId":"`+s+`"}`)
	a.said = []string{"one", "re-one", "between", "re-between", "two", "re-two", "last", "re-last"}
	tc.call("session/resume", `{"sessionId":"`+s+`","cwd":"/tmp"}`)
	tc.until(tc.request("session/prompt", prompt(s, "three")))
	shown, result := connect(t, r, "").loaded(s)
	if got := texts(shown); got != "user:one re-one user:two re-two user:last re-last user:three re-three" || !strings.Contains(result, `"historyIncomplete":true`) {
		t.Errorf("a load shows %q and says %s", got, result)
	}
}

// What a fork has from its beginning is not taken for new.
func TestMerge_Fork(t *testing.T) {
	a := newRecorder()
	r := newRuntime(t, t.TempDir(), a.fakeAgent)
	tc := connect(t, r, "")
	s := tc.session()
	tc.until(tc.request("session/prompt", prompt(s, "one")))
	fork := rawjson.MemberString([]byte(tc.call("session/fork", `{"sessionId":"`+s+`","cwd":"/tmp"}`)), "sessionId")
	tc.call("session/close", `{"sessionId":"`+fork+`"}`)
	tc.call("session/resume", `{"sessionId":"`+fork+`","cwd":"/tmp"}`)
	if before, _ := tc.until(tc.request("session/prompt", prompt(fork, "two"))); texts(before) != "re-two" {
		t.Errorf("a turn of the fork shows %q", texts(before))
	}
	if shown, result := connect(t, r, "").loaded(fork); texts(shown) != "user:one re-one user:two re-two" || strings.Contains(result, "historyIncomplete") {
		t.Errorf("a load of the fork shows %q and says %s", texts(shown), result)
	}
}

// A load asks the agent when its record was written since a process worked for the session,
// and only then. If it cannot be asked, what there is is shown, and that it is not all.
func TestMerge_LoadAsksTheAgent(t *testing.T) {
	a := newRecorder()
	r := openRuntime(t, Options{DataDir: t.TempDir(), Version: "test", Adapters: []adapters.Adapter{a}, DefaultAgent: "fake"})
	tc := connect(t, r, "")
	s := tc.session()
	tc.until(tc.request("session/prompt", prompt(s, "one")))
	close := func() { tc.call("session/close", `{"sessionId":"`+s+`"}`) }
	close()
	opened := a.opened()
	if shown, _ := connect(t, r, "").loaded(s); texts(shown) != "user:one re-one" || a.opened() != opened {
		t.Errorf("nothing was added: a load shows %q, and %d processes were started", texts(shown), a.opened()-opened)
	}
	close()
	a.terminal("two", "re-two")
	if before, _ := tc.until(tc.request("session/resume", `{"sessionId":"`+s+`","cwd":"/tmp"}`)); len(before) > 0 {
		t.Errorf("a resume shows %q", texts(before))
	}
	if shown, result := connect(t, r, "").loaded(s); texts(shown) != "user:one re-one user:two re-two" || strings.Contains(result, "historyIncomplete") {
		t.Errorf("a load shows %q and says %s", texts(shown), result)
	}
	close()
	a.refuses = true
	a.terminal("three", "re-three")
	shown, result := connect(t, r, "").loaded(s)
	if texts(shown) != "user:one re-one user:two re-two" || !strings.Contains(result, `"historyIncomplete":true`) {
		t.Errorf("an agent that refuses: a load shows %q and says %s", texts(shown), result)
	}
}

// What a terminal adds while a process serves the session is not known to the process: it
// is started anew for the next prompt, or load, when nothing goes on in the session.
func TestMerge_TerminalBesideTheProcess(t *testing.T) {
	for _, way := range []string{"prompt", "load", "prompt at once"} {
		t.Run(way, func(t *testing.T) {
			a := newRecorder()
			r := openRuntime(t, Options{DataDir: t.TempDir(), Version: "test", Adapters: []adapters.Adapter{a}, DefaultAgent: "fake"})
			tc := connect(t, r, "")
			s := tc.session()
			tc.until(tc.request("session/prompt", prompt(s, "one")))
			tc.until(tc.request("session/prompt", prompt(s, "two")))
			if n := a.got("session/close") + a.got("session/load"); n > 0 {
				t.Errorf("nobody has added anything: the agent got %d requests to close or load", n)
			}
			a.terminal("three", "re-three")
			if way == "prompt at once" { // within the time in which the process may write a title
				a.mu.Lock()
				a.written = time.Now().Add(100 * time.Millisecond)
				a.prompted = a.written
				a.mu.Unlock()
			}
			want := "user:three re-three"
			if way != "load" {
				shown, _ := tc.until(tc.request("session/prompt", prompt(s, "four")))
				if texts(shown) != want+" re-four" || imported(shown) != want {
					t.Errorf("the prompt shows %q, marked %q", texts(shown), imported(shown))
				}
			} else if shown, _ := connect(t, r, "").loaded(s); texts(shown) != "user:one re-one user:two re-two "+want || imported(shown) != want {
				t.Errorf("the load shows %q, marked %q", texts(shown), imported(shown))
			}
			if n := a.got("session/load"); n != 1 {
				t.Errorf("the agent has opened the session %d times", n)
			}
		})
	}
}

// A record that all sessions share may have been written for another one.
func TestMerge_SharedRecord(t *testing.T) {
	a := newRecorder()
	a.shared = true
	r := openRuntime(t, Options{DataDir: t.TempDir(), Version: "test", Adapters: []adapters.Adapter{a}, DefaultAgent: "fake"})
	tc := connect(t, r, "")
	s := tc.session()
	tc.until(tc.request("session/prompt", prompt(s, "one")))
	a.terminal("two", "re-two")
	tc.until(tc.request("session/prompt", prompt(s, "three")))
	if a.got("session/load") > 0 {
		t.Error("the process was given up")
	}
	tc.call("session/close", `{"sessionId":"`+s+`"}`)
	if shown, result := connect(t, r, "").loaded(s); texts(shown) != "user:one re-one user:three re-three" || !strings.Contains(result, `"historyIncomplete":true`) {
		t.Errorf("a load shows %q and says %s", texts(shown), result)
	}
}

// While something goes on nothing is given up for what a terminal adds.
func TestMerge_TerminalBesideATurn(t *testing.T) {
	a := newRecorder()
	r := openRuntime(t, Options{DataDir: t.TempDir(), Version: "test", Adapters: []adapters.Adapter{a}, DefaultAgent: "fake"})
	tc := connect(t, r, "")
	s := tc.session()
	tc.until(tc.request("session/prompt", prompt(s, "one")))
	a.ignores = true
	before, err := r.Session(s)
	if err != nil {
		t.Fatal(err)
	}
	tc.request("session/prompt", prompt(s, "two"))
	waitFor(t, r, s, func(i SessionInfo) bool { return i.EventCount > before.EventCount })
	a.terminal("three", "re-three")
	if shown, _ := connect(t, r, "").loaded(s); texts(shown) != "user:one re-one user:two" || a.got("session/close") > 0 {
		t.Errorf("the load shows %q, and %d closes were asked for", texts(shown), a.got("session/close"))
	}
}

// What an agent has answered when the gateway was gone is in its record.
func TestMerge_KilledGateway(t *testing.T) {
	a, dir := newRecorder(), t.TempDir()
	r := newRuntime(t, dir, a.fakeAgent)
	tc := connect(t, r, "")
	s := tc.session()
	tc.until(tc.request("session/prompt", prompt(s, "one")))
	a.ignores = true
	before, err := r.Session(s)
	if err != nil {
		t.Fatal(err)
	}
	tc.request("session/prompt", prompt(s, "two"))
	waitFor(t, r, s, func(i SessionInfo) bool { return i.EventCount > before.EventCount }) // the file has it
	after := t.TempDir()
	copyDir(t, after, dir)

	b := newRecorder()
	b.said = append(a.said, "two", "re-two", "three", "re-three")
	next := newRuntime(t, after, b.fakeAgent)
	tc = connect(t, next, "")
	tc.call("session/resume", `{"sessionId":"`+s+`","cwd":"/tmp"}`)
	if shown, _ := tc.until(tc.request("session/prompt", prompt(s, "four"))); texts(shown) != "re-two user:three re-three re-four" {
		t.Errorf("the next prompt shows %q", texts(shown))
	}
}

// An agent that does not show its record may go on with it nevertheless.
func TestMerge_RecordThatIsNotShown(t *testing.T) {
	a := newRecorder()
	r := newRuntime(t, t.TempDir(), a.fakeAgent)
	tc := connect(t, r, "")
	s := tc.session()
	tc.until(tc.request("session/prompt", prompt(s, "one")))
	tc.call("session/close", `{"sessionId":"`+s+`"}`)
	tc.call("session/resume", `{"sessionId":"`+s+`","cwd":"/tmp"}`)
	a.hides = true
	if shown, _ := tc.until(tc.request("session/prompt", prompt(s, "two"))); texts(shown) != "re-two" {
		t.Errorf("the next prompt shows %q", texts(shown))
	}
	if info, err := r.Session(s); err != nil || info.Continuity != ContinuityNative {
		t.Errorf("continuity is %s, %v", info.Continuity, err)
	}
}

// Of an agent that replays a conversation, and does not say that this is its record as it
// is, nothing is brought in. Who loads the session is told that there is more.
func TestMerge_AgentThatOnlyReplays(t *testing.T) {
	a := newRecorder()
	a.info.Record, a.caps = false, `{"loadSession":true,"sessionCapabilities":{"close":{}}}`
	r := newRuntime(t, t.TempDir(), a.fakeAgent)
	tc := connect(t, r, "")
	s := tc.session()
	for n, incomplete := range []bool{false, true, true} {
		tc.until(tc.request("session/prompt", prompt(s, fmt.Sprint("prompt ", n))))
		tc.call("session/close", `{"sessionId":"`+s+`"}`)
		shown, result := connect(t, r, "").loaded(s)
		if strings.Contains(texts(shown), "elsewhere") || strings.Contains(result, `"historyIncomplete":true`) != incomplete {
			t.Errorf("%d: the load shows %q, and says %s", n, texts(shown), result)
		}
		if n == 0 {
			a.terminal("elsewhere", "there")
		}
		tc.call("session/resume", `{"sessionId":"`+s+`","cwd":"/tmp"}`)
	}
}

// An agent that cannot tell the history of a session that it is resumed in leaves a log
// without it: everybody is told so, each time, also by the next gateway.
func TestMerge_AgentThatCannotTell(t *testing.T) {
	for _, how := range []struct {
		method  string
		version int
		params  string
	}{
		{"session/resume", 1, ""},
		{"session/load", 1, ""},
		{"session/resume", 2, ""},
		{"session/resume", 2, `,"replayFrom":{"type":"start"}`},
	} {
		t.Run(fmt.Sprint(how), func(t *testing.T) {
			a, dir := &fakeAgent{id: "fake", caps: `{"sessionCapabilities":{"resume":{}}}`, shared: make(chan sent, 64)}, t.TempDir()
			r, err := New(Options{DataDir: dir, Adapters: adaptersOf(a), DefaultAgent: a.id})
			if err != nil {
				t.Fatal(err)
			}
			own := connect(t, r, "")
			if how.version == 2 {
				own = connectTwo(t, r, "")
			}
			const theirs = `{"sessionId":"theirs","cwd":"/tmp","mcpServers":[]`
			id := own.request(how.method, theirs+how.params+"}")
			m := a.nextOf(t, "session/resume")
			a.conn().chunk("theirs", "on its way")
			a.answer(m, `{}`)
			if _, res := own.until(id); member(string(res.Result()), "historyIncomplete") != "true" {
				t.Errorf("who opens it is told %s", res.Frame())
			}
			turn := own.request("session/prompt", prompt("theirs", "x"))
			a.answer(a.nextOf(t, "session/prompt"), `{"stopReason":"end_turn"}`)
			own.until(turn)
			told := func(r *Runtime) {
				t.Helper()
				one, two := connect(t, r, ""), connectTwo(t, r, "")
				for what, result := range map[string]string{
					"a load": one.call("session/load", theirs+"}"), "a resume": one.call("session/resume", theirs+"}"),
					"a load of version 2": two.call("session/resume", theirs+`,"replayFrom":{"type":"start"}}`), "a resume of version 2": two.call("session/resume", theirs+"}"),
				} {
					if member(result, "historyIncomplete") != "true" {
						t.Errorf("%s says %s", what, result)
					}
				}
				if got := one.call("_sandboxagent/session/get", `{"sessionId":"theirs"}`); rawjson.MemberString([]byte(got), "sessionId") != "theirs" || !strings.Contains(got, `"historyIncomplete":true`) {
					t.Errorf("the session itself says %s", got)
				}
			}
			told(r)
			if err := r.Shutdown(t.Context()); err != nil {
				t.Fatal(err)
			}
			told(newRuntime(t, dir, a))
		})
	}
}
