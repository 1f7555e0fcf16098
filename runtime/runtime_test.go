package runtime

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/internal/patient"
)

func TestPrompt_UpdatesPrecedeTheResponseAndIDsKeepTheirType(t *testing.T) {
	a := &fakeAgent{}
	r := newRuntime(t, t.TempDir(), a)
	tc := connect(t, r, "")
	s := tc.session()
	for _, id := range []string{"0", "-1", `"0"`, `"` + strings.Repeat("x", 1000) + `"`} {
		tc.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"session/prompt","params":%s}`, id, prompt(s, "hi")))
		p := a.conn().next(t, "session/prompt")
		if p.Session() != "native-1" {
			t.Fatalf("the agent was asked about session %q", p.Session())
		}
		a.conn().chunk("native-1", "one")
		a.conn().chunk("native-1", "two")
		a.conn().result(p, `{"stopReason":"end_turn","x":1.00}`)
		before, res := tc.until(acp.ID(id))
		if texts(before) != "one two" || string(res.Result()) != `{"stopReason":"end_turn","x":1.00}` {
			t.Errorf("id %.20s: %q, then %s", id, texts(before), res.Frame())
		}
	}
}

func TestInitialize_KeepsWhatTheAgentSaid(t *testing.T) {
	r := newRuntime(t, t.TempDir(), &fakeAgent{caps: `{"promptCapabilities":{"image":true},"vendor":{"a":1.50}}`})
	m := acp.NewRequest("1", "initialize", []byte(`{"protocolVersion":1}`))
	c, rep, err := r.Connect(t.Context(), m, acp.ConnectOptions{Shape: acp.OneStream})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, want := range []string{`"vendor":{"a":1.50}`, `"unknown":{"kept":[1.0]}`, `"protocolVersion":1`, `"loadSession":true`, `"_sandboxagent/session/events"`} {
		if !strings.Contains(string(rep.Frame), want) {
			t.Errorf("%s is not in %s", want, rep.Frame)
		}
	}
}

func TestConnect_NamesTheAgentsItKnows(t *testing.T) {
	r := openRuntime(t, Options{DataDir: t.TempDir()})
	m := acp.NewRequest("1", "initialize", []byte(`{"protocolVersion":1,"_meta":{"sandboxagent.dev":{"agent":"nobody"}}}`))
	if _, _, err := r.Connect(t.Context(), m, acp.ConnectOptions{}); err == nil || !strings.Contains(err.Error(), `"nobody"`) {
		t.Errorf("err %v", err)
	}
}

func TestTwoClients_SameIDsOnOneSession(t *testing.T) {
	a := &fakeAgent{}
	r := newRuntime(t, t.TempDir(), a)
	one, two := connect(t, r, ""), connect(t, r, "")
	s := one.session()
	two.call("session/resume", `{"sessionId":"`+s+`","cwd":"/tmp"}`)
	const id = "77"
	for i, tc := range []*testClient{one, two} {
		tc.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"session/prompt","params":%s}`, id, prompt(s, fmt.Sprintf("from %d", i))))
	}
	for i := range 2 {
		p := a.conn().next(t, "session/prompt") // the second one waits for the first
		a.conn().chunk("native-1", fmt.Sprintf("answer-%d", i))
		a.conn().result(p, fmt.Sprintf(`{"stopReason":"end_turn","n":%d}`, i))
	}
	before, res := one.until(id)
	if texts(before) != "answer-0" || !strings.Contains(string(res.Frame()), `"n":0`) {
		t.Errorf("client one: %q, %s", texts(before), res.Frame())
	}
	before, res = two.until(id)
	if texts(before) != "user:from 0 answer-0 answer-1" || !strings.Contains(string(res.Frame()), `"n":1`) {
		t.Errorf("client two: %q, %s", texts(before), res.Frame())
	}
	if m := one.next(); texts([]acp.Message{m}) != "user:from 1" {
		t.Errorf("client one then got %s", m.Frame())
	}
}

func TestCancel_EndsTheTurnItsAsksAndTheQueue(t *testing.T) {
	a := &fakeAgent{}
	r := newRuntime(t, t.TempDir(), a)
	tc := connect(t, r, "")
	s := tc.session()
	first := tc.request("session/prompt", prompt(s, "a"))
	p := a.conn().next(t, "session/prompt")
	second := tc.request("session/prompt", prompt(s, "b"))
	a.conn().send(`{"jsonrpc":"2.0","id":0,"method":"session/request_permission","params":{"sessionId":"native-1","toolCall":{"toolCallId":"t"},"options":[{"optionId":"o","name":"O","kind":"allow_once"}]}}`)
	ask := tc.next()
	if ask.Method() != acp.MethodSessionRequestPermission || ask.Session() != s {
		t.Fatalf("got %s", ask.Frame())
	}
	tc.send(`{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"` + s + `"}}`)
	if _, res := tc.until(second); !strings.Contains(string(res.Result()), "cancelled") {
		t.Errorf("queued prompt: %s", res.Frame())
	}
	a.conn().next(t, "session/cancel")
	answer := a.conn().next(t, "")
	if answer.ID() != "0" || string(answer.Result()) != `{"outcome":{"outcome":"cancelled"}}` {
		t.Errorf("permission was answered %s", answer.Frame())
	}
	a.conn().result(p, `{"stopReason":"cancelled"}`)
	before, _ := tc.until(first)
	if len(before) != 1 || before[0].Method() != acp.MethodCancelRequest {
		t.Errorf("before the response: %v", before)
	}
}

func TestPermission_WaitsForSomebodyAndFirstAnswerWins(t *testing.T) {
	a := &fakeAgent{}
	r := newRuntime(t, t.TempDir(), a)
	asker := connect(t, r, "")
	s := asker.session()
	asker.request("session/prompt", prompt(s, "a"))
	p := a.conn().next(t, "session/prompt")
	asker.close()
	a.conn().send(`{"jsonrpc":"2.0","id":"q","method":"session/request_permission","params":{"sessionId":"native-1","toolCall":{"toolCallId":"t"},"options":[{"optionId":"o","name":"O","kind":"allow_once"}]}}`)
	waitFor(t, r, s, func(i SessionInfo) bool { return i.Pending == 1 && i.State == StateWaiting })
	one, two := connect(t, r, ""), connect(t, r, "")
	ids := map[*testClient]acp.ID{}
	for _, tc := range []*testClient{one, two} {
		method := map[bool]string{true: "session/load", false: "session/resume"}[tc == one]
		tc.request(method, `{"sessionId":"`+s+`","cwd":"/tmp","mcpServers":[]}`)
		for ids[tc] == "" {
			if m := tc.next(); m.Method() == acp.MethodSessionRequestPermission {
				ids[tc] = m.ID()
			}
		}
	}
	two.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"outcome":{"outcome":"selected","optionId":"o"}}}`, ids[two]))
	answer := a.conn().next(t, "")
	if answer.ID() != `"q"` || !strings.Contains(string(answer.Frame()), `"optionId":"o"`) {
		t.Errorf("the agent got %s", answer.Frame())
	}
	for {
		m := one.next()
		if m.Method() == acp.MethodCancelRequest {
			if got, _ := rawjson.Member(m.Params(), "requestId"); acp.ID(got) != ids[one] {
				t.Errorf("cancelled request %s, was given %s", got, ids[one])
			}
			break
		}
	}
	one.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"outcome":{"outcome":"cancelled"}}}`, ids[one])) // too late
	a.conn().result(p, `{"stopReason":"end_turn"}`)
	waitFor(t, r, s, func(i SessionInfo) bool { return i.State == StateIdle })
	select {
	case m := <-a.conn().got:
		t.Errorf("the agent also got %s", m.Frame())
	default:
	}
}

// waitFor waits until the session looks as wanted.
func waitFor(t *testing.T, r *Runtime, id string, ok func(SessionInfo) bool) {
	t.Helper()
	var i SessionInfo
	var err error
	if !patient.Until(wait, func() bool {
		i, err = r.Session(id)
		return err == nil && ok(i)
	}) {
		t.Fatalf("session is %+v, %v", i, err)
	}
}

func TestQuestion_TakesTheFormTheClientCanAnswer(t *testing.T) {
	const ask = `{"jsonrpc":"2.0","id":5,"method":"_sandboxagent/session/request_question","params":{"sessionId":"native-1","questions":[` +
		`{"id":"color","header":"Color","question":"Which?","options":[{"label":"red","description":"warm"},{"label":"blue","description":"cold"}],"multiSelect":false},` +
		`{"id":"sizes","header":"Size","question":"How big?","options":[{"label":"S","description":""},{"label":"L","description":""}],"multiSelect":true}]}}`
	for name, c := range map[string]struct {
		caps    string
		answer  func(tc *testClient, m acp.Message)
		outcome string
	}{
		"as it is": {`{"_meta":{"sandboxagent.dev":{"requestQuestion":true}}}`, func(tc *testClient, m acp.Message) {
			tc.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"outcome":"answered","answers":[["red"],["S","L"]]}}`, m.ID()))
		}, `{"outcome":"answered","answers":[["red"],["S","L"]]}`},
		"elicitation": {`{"elicitation":{"form":{}}}`, func(tc *testClient, m acp.Message) {
			if m.Method() != acp.MethodElicitationCreate {
				tc.t.Errorf("asked by %s", m.Frame())
			}
			tc.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"action":"accept","content":{"color":"red","sizes":["S","L"]}}}`, m.ID()))
		}, `{"outcome":"answered","answers":[["red"],["S","L"]]}`},
		"declined": {`{"elicitation":{"form":{}}}`, func(tc *testClient, m acp.Message) {
			tc.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"action":"decline"}}`, m.ID()))
		}, `{"outcome":"rejected","answers":[]}`},
		"permission": {"", func(tc *testClient, m acp.Message) {
			tc.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"outcome":{"outcome":"selected","optionId":"answer-1"}}}`, m.ID()))
			m = tc.next()
			if m.Method() != acp.MethodSessionRequestPermission || !strings.Contains(string(m.Frame()), "How big?") {
				tc.t.Errorf("second question: %s", m.Frame())
			}
			tc.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"outcome":{"outcome":"selected","optionId":"answer-0"}}}`, m.ID()))
		}, `{"outcome":"answered","answers":[["blue"],["S"]]}`},
		"permission rejected": {"", func(tc *testClient, m acp.Message) {
			tc.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"outcome":{"outcome":"selected","optionId":"reject"}}}`, m.ID()))
		}, `{"outcome":"rejected","answers":[]}`},
	} {
		t.Run(name, func(t *testing.T) {
			a := &fakeAgent{}
			r := newRuntime(t, t.TempDir(), a)
			tc := connect(t, r, c.caps)
			s := tc.session()
			id := tc.request("session/prompt", prompt(s, "a"))
			p := a.conn().next(t, "session/prompt")
			a.conn().send(ask)
			c.answer(tc, tc.next())
			got := a.conn().next(t, "")
			if got.ID() != "5" || string(got.Result()) != c.outcome {
				t.Errorf("the agent got %s, want %s", got.Frame(), c.outcome)
			}
			a.conn().result(p, `{"stopReason":"end_turn"}`)
			tc.until(id)
		})
	}
}

func TestClientMethod_NobodyOffersItIsRefusedAtOnce(t *testing.T) {
	a := &fakeAgent{}
	r := newRuntime(t, t.TempDir(), a)
	tc := connect(t, r, "")
	s := tc.session()
	tc.request("session/prompt", prompt(s, "a"))
	p := a.conn().next(t, "session/prompt")
	a.conn().send(`{"jsonrpc":"2.0","id":9,"method":"fs/read_text_file","params":{"sessionId":"native-1","path":"/x"}}`)
	if got := a.conn().next(t, ""); got.Err() == nil || got.Err().Code != acp.CodeMethodNotFound {
		t.Errorf("got %s", got.Frame())
	}
	a.conn().result(p, `{"stopReason":"end_turn"}`)
}

func TestCrash_AnswersEverythingAndRestartsOnDemand(t *testing.T) {
	a := &fakeAgent{caps: `{"loadSession":true}`}
	r := newRuntime(t, t.TempDir(), a)
	tc := connect(t, r, "")
	s := tc.session()
	first := tc.request("session/prompt", prompt(s, "a"))
	a.conn().next(t, "session/prompt")
	a.conn().chunk("native-1", "partial")
	a.conn().crash(errCrash)
	before, res := tc.until(first)
	if e := res.Err(); e == nil || !strings.Contains(string(e.Data), `"exitCode":3`) || !strings.Contains(string(e.Data), "boom") {
		t.Errorf("the prompt was answered %s", res.Frame())
	}
	ended := before[len(before)-1]
	if texts(before) != "partial" || ended.Method() != "_sandboxagent/session/ended" || !strings.Contains(string(ended.Frame()), `"exitCode":3`) {
		t.Errorf("before: %s", ended.Frame())
	}
	waitFor(t, r, s, func(i SessionInfo) bool { return i.State == StateDormant })
	second := tc.request("session/prompt", prompt(s, "b"))
	waitFor(t, r, s, func(SessionInfo) bool { return a.opened() == 2 })
	load := a.conn().next(t, "session/load")
	if load.Session() != "native-1" {
		t.Errorf("loaded %s", load.Frame())
	}
	a.conn().chunk("native-1", "replayed, the log has it")
	a.conn().result(load, `{}`)
	p := a.conn().next(t, "session/prompt")
	a.conn().chunk("native-1", "again")
	a.conn().result(p, `{"stopReason":"end_turn"}`)
	if before, _ := tc.until(second); texts(before) != "again" {
		t.Errorf("after the restart: %q", texts(before))
	}
	waitFor(t, r, s, func(i SessionInfo) bool { return i.Continuity == ContinuityNative })
}

func TestRestart_WithoutNativeMemorySaysFresh(t *testing.T) {
	a := &fakeAgent{}
	r := newRuntime(t, t.TempDir(), a)
	tc := connect(t, r, "")
	s := tc.session()
	a.conn().crash(errCrash)
	tc.next() // ended
	id := tc.request("session/prompt", prompt(s, "b"))
	waitFor(t, r, s, func(SessionInfo) bool { return a.opened() == 2 })
	p := a.conn().next(t, "session/prompt")
	a.conn().result(p, `{"stopReason":"end_turn"}`)
	before, _ := tc.until(id)
	if len(before) != 1 || !strings.Contains(string(before[0].Frame()), `"continuity":"fresh"`) {
		t.Errorf("before: %v", before)
	}
}

func TestResume_AfterASequenceNumberHasNoGapAndNoDouble(t *testing.T) {
	dir := t.TempDir()
	a := &fakeAgent{caps: `{"sessionCapabilities":{"resume":{}}}`}
	r := newRuntime(t, dir, a)
	numbered := `{"_meta":{"sandboxagent.dev":{"eventIds":true}}}`
	tc := connect(t, r, numbered)
	s := tc.session()
	id := tc.request("session/prompt", prompt(s, "go"))
	p := a.conn().next(t, "session/prompt")
	for i := range 10 {
		a.conn().chunk("native-1", fmt.Sprint(i))
	}
	a.conn().result(p, `{"stopReason":"end_turn"}`)
	before, _ := tc.until(id)
	if texts(before) != "0 1 2 3 4 5 6 7 8 9" || seqOf(before[4]) == "" {
		t.Fatalf("got %q, seq %q", texts(before), seqOf(before[4]))
	}
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	tc.close()
	if err := r.Shutdown(ctx); err != nil {
		t.Fatal(err)
	}
	r = newRuntime(t, dir, &fakeAgent{caps: a.caps})
	tc = connect(t, r, numbered)
	after := seqOf(before[4])
	id = tc.request("session/resume", `{"sessionId":"`+s+`","cwd":"/tmp","_meta":{"sandboxagent.dev":{"after":`+after+`}}}`)
	before, _ = tc.until(id)
	if texts(before) != "5 6 7 8 9" {
		t.Errorf("after %s: %q", after, texts(before))
	}
	id = tc.request("session/load", `{"sessionId":"`+s+`","cwd":"/tmp","mcpServers":[]}`)
	before, _ = tc.until(id)
	if texts(before) != "user:go 0 1 2 3 4 5 6 7 8 9" {
		t.Errorf("load: %q", texts(before))
	}
	if e := tc.callErr("session/resume", `{"sessionId":"`+s+`","cwd":"/tmp","_meta":{"sandboxagent.dev":{"after":99999}}}`); e.Code != acp.CodeInvalidParams {
		t.Errorf("after beyond the end: %v", e)
	}
}

func TestNewSession_EarlyUpdatesAndChosenID(t *testing.T) {
	a := &fakeAgent{}
	a.handle = func(c *fakeConn, m acp.Message) {
		c.chunk("native-1", "early")
		c.newSession(m)
		c.chunk("native-1", "late")
	}
	r := newRuntime(t, t.TempDir(), a)
	tc := connect(t, r, "")
	params := `{"cwd":"/tmp","mcpServers":[],"_meta":{"sandboxagent.dev":{"requestedSessionId":"mine/../x","title":"T"}}}`
	before, res := tc.until(tc.request("session/new", params))
	if len(before) != 0 || rawjson.MemberString(res.Result(), "sessionId") != "mine/../x" || !strings.Contains(string(res.Result()), `"extra":[true]`) {
		t.Fatalf("%d frames, then %s", len(before), res.Frame())
	}
	if got := texts([]acp.Message{tc.next(), tc.next()}); got != "early late" {
		t.Errorf("got %q", got)
	}
	if e := tc.callErr("session/new", params); !strings.Contains(string(e.Data), "session_already_exists") {
		t.Errorf("second time: %v %s", e, e.Data)
	}
	for _, id := range []string{"a b", "ü", strings.Repeat("x", 300)} {
		if e := tc.callErr("session/new", strings.Replace(params, "mine/../x", id, 1)); e.Code != acp.CodeInvalidParams {
			t.Errorf("id %.10q: %v", id, e)
		}
	}
	if e := tc.callErr("session/new", `{"cwd":"relative","mcpServers":[]}`); e.Code != acp.CodeInvalidParams {
		t.Errorf("relative cwd: %v", e)
	}
}

func TestRequests_BadOnesAreAnsweredClearly(t *testing.T) {
	a := &fakeAgent{}
	r := newRuntime(t, t.TempDir(), a)
	tc := connect(t, r, "")
	s := tc.session()
	for method, c := range map[string]struct {
		params string
		code   int64
	}{
		"session/prompt":                     {`{"sessionId":"nope","prompt":[]}`, acp.CodeResourceNotFound},
		"session/set_mode":                   {`{"modeId":"x"}`, acp.CodeInvalidParams},
		"session/load":                       {`{"sessionId":"unknown","cwd":"/","mcpServers":[]}`, acp.CodeResourceNotFound},
		"session/fork":                       {`{"sessionId":"` + s + `","cwd":"/"}`, acp.CodeMethodNotFound},
		"_sandboxagent/nothing":              {`{}`, acp.CodeMethodNotFound},
		"_sandboxagent/session/set_metadata": {`{"sessionId":"` + s + `","metadata":7}`, acp.CodeInvalidParams},
		"_sandboxagent/session/events":       {`{"sessionId":"` + s + `","limit":-4}`, acp.CodeInvalidParams},
		"initialize":                         {`{"protocolVersion":1}`, acp.CodeInvalidRequest},
		"session/list":                       {`{"cursor":"garbage"}`, acp.CodeInvalidParams},
	} {
		if e := tc.callErr(method, c.params); e.Code != c.code || e.Message == "" {
			t.Errorf("%s: %v", method, e)
		}
	}
	tc.send(`{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"nope"}}`)
	tc.send(`{"jsonrpc":"2.0","id":424242,"result":{}}`)
	tc.send(`{"jsonrpc":"2.0","method":"whatever"}`)
	tc.call("session/list", `{}`)
}

func TestRequestTimeout_AnswersAndDropsTheLateResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &fakeAgent{id: "fake"}
		r := openRuntime(t, Options{DataDir: t.TempDir(), Adapters: adaptersOf(a), DefaultAgent: "fake", RequestTimeout: time.Second})
		tc := connect(t, r, "")
		s := tc.session()
		e := tc.callErr("session/set_mode", `{"sessionId":"`+s+`","modeId":"x"}`)
		if e.Code != acp.CodeInternal || !strings.Contains(string(e.Data), `"status":504`) {
			t.Errorf("err %v %s", e, e.Data)
		}
		m := a.conn().next(t, "session/set_mode")
		a.conn().result(m, `{}`)
		tc.call("session/list", `{}`)
	})
}

func TestTurnIdleTimeout_CancelsASilentTurn(t *testing.T) {
	a := &fakeAgent{id: "fake"}
	r := openRuntime(t, Options{DataDir: t.TempDir(), Adapters: adaptersOf(a), DefaultAgent: "fake", TurnIdleTimeout: 30 * time.Millisecond})
	tc := connect(t, r, "")
	s := tc.session()
	id := tc.request("session/prompt", prompt(s, "x"))
	p := a.conn().next(t, "session/prompt")
	a.conn().next(t, "session/cancel")
	a.conn().result(p, `{"stopReason":"cancelled"}`)
	tc.until(id)
}

func TestCancelRequest_QueuedAndRunning(t *testing.T) {
	a := &fakeAgent{}
	r := newRuntime(t, t.TempDir(), a)
	tc := connect(t, r, "")
	s := tc.session()
	first := tc.request("session/prompt", prompt(s, "a"))
	p := a.conn().next(t, "session/prompt")
	second := tc.request("session/prompt", prompt(s, "b"))
	tc.send(fmt.Sprintf(`{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":%s}}`, second))
	if _, res := tc.until(second); res.Err() == nil || res.Err().Code != acp.CodeCancelled {
		t.Errorf("queued: %s", res.Frame())
	}
	tc.send(fmt.Sprintf(`{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":%s}}`, first))
	m := a.conn().next(t, "$/cancel_request")
	if got, _ := rawjson.Member(m.Params(), "requestId"); acp.ID(got) != p.ID() {
		t.Errorf("the agent was told to cancel %s, its request is %s", got, p.ID())
	}
	a.conn().out <- acp.NewError(p.ID(), acp.Errorf(acp.CodeCancelled, "x"))
	tc.until(first)
}

func TestDuplicateID_IsRefusedWithoutHarm(t *testing.T) {
	a := &fakeAgent{}
	r := newRuntime(t, t.TempDir(), a)
	tc := connect(t, r, "")
	s := tc.session()
	id := tc.request("session/prompt", prompt(s, "a"))
	p := a.conn().next(t, "session/prompt")
	tc.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"session/list","params":{}}`, id))
	if _, res := tc.until(id); res.Err() == nil || res.Err().Code != acp.CodeInvalidRequest {
		t.Errorf("got %s", res.Frame())
	}
	// To the recorder the refusal was the prompt's answer.
	tc.rec.Client([]byte(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"session/prompt","params":%s}`, id, prompt(s, "a"))))
	a.conn().result(p, `{"stopReason":"end_turn"}`)
	tc.until(id)
}

func TestList_FiltersAndPages(t *testing.T) {
	a := &fakeAgent{}
	r := newRuntime(t, t.TempDir(), a)
	tc := connect(t, r, "")
	var ids []string
	dirs := []string{t.TempDir(), t.TempDir()}
	for i := range 7 {
		res := tc.call("session/new", fmt.Sprintf(`{"cwd":%q,"mcpServers":[]}`, dirs[i%2]))
		ids = append([]string{rawjson.MemberString([]byte(res), "sessionId")}, ids...)
	}
	var got []string
	f := SessionFilter{Limit: 3, Order: ByCreation}
	for {
		page, err := r.Sessions(t.Context(), f)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range page.Sessions {
			got = append(got, s.ID)
		}
		if f.Cursor = page.NextCursor; f.Cursor == "" {
			break
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(ids) {
		t.Errorf("got %v, want %v", got, ids)
	}
	var res struct{ Sessions []json.RawMessage }
	if err := json.Unmarshal([]byte(tc.call("session/list", `{"cwd":"`+dirs[1]+`"}`)), &res); err != nil || len(res.Sessions) != 3 {
		t.Errorf("%d sessions in the second folder, %v", len(res.Sessions), err)
	}
}

func TestProcess_IsSharedByCapabilitiesAndEndsUnused(t *testing.T) {
	a := &fakeAgent{}
	r := newRuntime(t, t.TempDir(), a)
	one := connect(t, r, `{"_meta":{"sandboxagent.dev":{"eventIds":true}}}`)
	connect(t, r, "")
	if a.opened() != 1 {
		t.Errorf("%d processes for clients that differ only in what is the gateway's", a.opened())
	}
	connect(t, r, `{"terminal":true}`)
	if a.opened() != 2 {
		t.Errorf("%d processes for clients with other capabilities", a.opened())
	}
	_ = one
}

func TestNewSession_ConfiguresAndReportsWhatHadNoEffect(t *testing.T) {
	a := &fakeAgent{}
	a.handle = func(c *fakeConn, m acp.Message) {
		switch m.Method() {
		case "session/new":
			c.result(m, `{"sessionId":"n","configOptions":[{"id":"m","name":"M","category":"model","type":"select","currentValue":"small","options":[{"value":"small","name":"S"},{"value":"large","name":"L"}]}],"_meta":{"sandboxagent.dev":{"unsupported":[{"field":"env","reason":"said by the adapter"}]}}}`)
		case "session/set_config_option":
			c.result(m, `{"configOptions":[{"id":"m","name":"M","category":"model","type":"select","currentValue":"large","options":[{"value":"small","name":"S"},{"value":"large","name":"L"}]}]}`)
		}
	}
	r := newRuntime(t, t.TempDir(), a)
	tc := connect(t, r, "")
	res := tc.call("session/new", `{"cwd":"/tmp","mcpServers":[],"_meta":{"sandboxagent.dev":{"model":"large","mode":"plan","instructions":"x","permissionMode":"default"}}}`)
	missing, _ := rawjson.Member([]byte(res), "_meta", acp.MetaKey, "unsupported")
	const want = `[{"field":"env","reason":"said by the adapter"},{"field":"instructions","reason":"agent fake does not take it from the gateway"},{"field":"mode","reason":"agent fake offers no option for it"}]`
	if string(missing) != want || !strings.Contains(res, `"currentValue":"large"`) {
		t.Errorf("got %s\nunsupported %s", res, missing)
	}
	if got := tc.call("_sandboxagent/session/list_models", `{"sessionId":"n"}`); !strings.Contains(got, `"currentModelId":"large"`) || !strings.Contains(got, `"modelId":"small"`) {
		t.Errorf("models: %s", got)
	}
}

// An agent's question has a session in a directory of this gateway: settings are read there, also those that others
// have put into a directory that all may write.
func TestListModels_PrivateDirectory(t *testing.T) {
	for _, ephemeral := range []bool{false, true} {
		asked := make(chan acp.Message, 1)
		a := &fakeAgent{id: "fake", handle: func(c *fakeConn, m acp.Message) { asked <- m; c.newSession(m) }}
		o := Options{Adapters: adaptersOf(a), DefaultAgent: "fake", Ephemeral: ephemeral}
		if !ephemeral {
			o.DataDir = t.TempDir()
		}
		t.Setenv("TMPDIR", t.TempDir())
		r := openRuntime(t, o)
		tc := connect(t, r, "")
		tc.call("_sandboxagent/session/list_models", `{}`)
		m := <-asked
		cwd := rawjson.MemberString(m.Params(), "cwd")
		if info, err := os.Stat(cwd); err != nil || info.Mode().Perm() != 0o700 || cwd == os.TempDir() {
			t.Errorf("ephemeral %v: asked in %s: %v, %v", ephemeral, cwd, info, err)
		}
	}
}

// TestResponse_ComesOnceWhateverTheClientDoesMeanwhile lets responses race with
// attaching anew and detaching.
func TestResponse_ComesOnceWhateverTheClientDoesMeanwhile(t *testing.T) {
	a := &fakeAgent{}
	r := newRuntime(t, t.TempDir(), a)
	tc := connect(t, r, "")
	var s string
	for i := range 200 {
		if i%50 == 0 { // a load shows all that was before
			s = tc.session()
		}
		id := tc.request("session/prompt", prompt(s, "x"))
		p := a.conn().next(t, "session/prompt")
		go a.conn().result(p, `{"stopReason":"end_turn"}`)
		var other acp.ID
		switch i % 3 {
		case 0:
			other = tc.request("session/load", `{"sessionId":"`+s+`","cwd":"/tmp","mcpServers":[]}`)
		case 1:
			other = tc.request("session/resume", `{"sessionId":"`+s+`","cwd":"/tmp"}`)
		default:
			other = tc.request("_sandboxagent/session/detach", `{"sessionId":"`+s+`"}`)
		}
		for open := map[acp.ID]bool{id: true, other: true}; len(open) > 0; { // a second response fails validation
			if m := tc.next(); m.IsResponse() {
				if !open[m.ID()] {
					t.Fatalf("round %d: response %s", i, m.Frame())
				}
				delete(open, m.ID())
			}
		}
	}
}

func TestIdleTimeout_GivesTheProcessBackAndResumes(t *testing.T) {
	t.Parallel()
	a := &fakeAgent{id: "fake", caps: `{"sessionCapabilities":{"resume":{},"close":{}}}`}
	r := openRuntime(t, Options{DataDir: t.TempDir(), Adapters: adaptersOf(a), DefaultAgent: "fake", IdleTimeout: time.Millisecond})
	tc := connect(t, r, "")
	s := tc.session()
	closing := a.conn().next(t, "session/close")
	id := tc.request("session/prompt", prompt(s, "x")) // waits for the agent to have closed it
	a.conn().result(closing, `{}`)
	resume := a.conn().next(t, "session/resume")
	a.conn().result(resume, `{}`)
	p := a.conn().next(t, "session/prompt")
	a.conn().result(p, `{"stopReason":"end_turn"}`)
	tc.until(id)
}

func TestCancel_WhileTheSessionIsOpenedAnewEndsTheTurn(t *testing.T) {
	a := &fakeAgent{caps: `{"loadSession":true}`}
	r := newRuntime(t, t.TempDir(), a)
	tc := connect(t, r, "")
	s := tc.session()
	a.conn().crash(errCrash)
	tc.next() // ended
	id := tc.request("session/prompt", prompt(s, "x"))
	waitFor(t, r, s, func(SessionInfo) bool { return a.opened() == 2 })
	load := a.conn().next(t, "session/load")
	tc.send(`{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"` + s + `"}}`)
	a.conn().result(load, `{}`)
	if _, res := tc.until(id); !strings.Contains(string(res.Result()), "cancelled") {
		t.Errorf("got %s", res.Frame())
	}
}

// A client that prompts the moment it learns of its session gets everything of
// the turn, in order.
func TestNewSession_PromptInTheSameMoment(t *testing.T) {
	t.Parallel()
	a := &fakeAgent{}
	a.handle = func(c *fakeConn, m acp.Message) {
		switch m.Method() {
		case "session/new":
			c.newSession(m)
		case "session/prompt":
			c.chunk(m.Session(), "one")
			c.chunk(m.Session(), "two")
			c.result(m, `{"stopReason":"end_turn"}`)
		}
	}
	r := newRuntime(t, t.TempDir(), a)
	var clients sync.WaitGroup
	for range 8 {
		tc := connect(t, r, "")
		clients.Go(func() {
			for range 20 {
				before, _ := tc.until(tc.request("session/prompt", prompt(tc.session(), "hi")))
				if got := texts(before); got != "one two" {
					t.Errorf("before the response came %q", got)
				}
			}
		})
	}
	clients.Wait()
}

// Other clients of a session, and the same one on a later connection, learn how
// a turn ended if they want to; who asked is given the response and nothing else.
func TestTurnEnded_IsToldToOthersThatWantIt(t *testing.T) {
	a := &fakeAgent{caps: `{"sessionCapabilities":{"resume":{}}}`}
	r := newRuntime(t, t.TempDir(), a)
	wants := `{"_meta":{"sandboxagent.dev":{"turns":true,"eventIds":true}}}`
	asker, other, plain := connect(t, r, wants), connect(t, r, wants), connect(t, r, "")
	s := asker.session()
	for _, tc := range []*testClient{other, plain} {
		tc.call("session/resume", `{"sessionId":"`+s+`","cwd":"/tmp"}`)
	}
	id := asker.request("session/prompt", `{"sessionId":"`+s+`","prompt":[{"type":"text","text":"x"}],"_meta":{"sandboxagent.dev":{"promptId":"p\"1"}}}`)
	p := a.conn().next(t, "session/prompt")
	a.conn().chunk("native-1", "one")
	a.conn().result(p, `{"stopReason":"end_turn","usage":{"totalTokens":5,"inputTokens":2,"outputTokens":3}}`)
	if before, _ := asker.until(id); texts(before) != "one" {
		t.Errorf("the asker: %q", texts(before))
	}
	ended := func(tc *testClient) (text string, m acp.Message) {
		for {
			if m = tc.next(); m.Method() == "_sandboxagent/session/turn_ended" {
				return text, m
			}
			text += " " + texts([]acp.Message{m})
		}
	}
	text, m := ended(other)
	got := string(m.Frame())
	if !strings.Contains(text, "one") || !strings.Contains(got, `"promptId":"p\"1"`) || !strings.Contains(got, `"result":{"stopReason":"end_turn","usage":{"totalTokens":5,"inputTokens":2,"outputTokens":3}}`) || seqOf(m) == "" {
		t.Errorf("the other: %q, %s", text, got)
	}
	// A failed one, and one that never began.
	id = asker.request("session/prompt", prompt(s, "y"))
	queued := asker.request("session/prompt", prompt(s, "z"))
	p = a.conn().next(t, "session/prompt")
	asker.send(`{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":` + string(queued) + `}}`)
	asker.until(queued)
	if _, m := ended(other); !strings.Contains(string(m.Frame()), `"error":{"code":-32800`) {
		t.Errorf("the withdrawn one: %s", m.Frame())
	}
	a.conn().send(`{"jsonrpc":"2.0","id":` + string(p.ID()) + `,"error":{"code":-32000,"message":"no"}}`)
	asker.until(id)
	if _, m := ended(other); !strings.Contains(string(m.Frame()), `"error":{"code":-32000,"message":"no"}`) {
		t.Errorf("the failed one: %s", m.Frame())
	}
	late := connect(t, r, wants)
	late.call("session/resume", `{"sessionId":"`+s+`","cwd":"/tmp"}`)
	again := connect(t, r, wants)
	before, _ := again.until(again.request("session/resume", `{"sessionId":"`+s+`","cwd":"/tmp","_meta":{"sandboxagent.dev":{"after":0}}}`))
	if n := len(slices.DeleteFunc(before, func(m acp.Message) bool { return m.Method() != "_sandboxagent/session/turn_ended" })); n != 3 {
		t.Errorf("who resumes from the beginning is told of %d turns, want 3", n)
	}
	// The plain client has seen nothing of it.
	before, _ = plain.until(plain.request("_sandboxagent/session/get", `{"sessionId":"`+s+`"}`))
	for _, m := range before {
		if m.Method() == "_sandboxagent/session/turn_ended" {
			t.Errorf("a client that did not ask was told: %s", m.Frame())
		}
	}
}

// No request reaches beyond the folder of one session, whatever it says that the session is.
func TestRequests_StrangeIDsLeaveOthersAlone(t *testing.T) {
	dir := t.TempDir()
	a := &fakeAgent{caps: `{"loadSession":true,"sessionCapabilities":{"resume":{},"close":{},"delete":{},"fork":{}}}`}
	r := newRuntime(t, dir, a)
	tc := connect(t, r, "")
	s := tc.session()
	a.handle = func(c *fakeConn, m acp.Message) {
		if m.IsRequest() {
			c.out <- acp.NewError(m.ID(), acp.Errorf(acp.CodeResourceNotFound, "it is not there"))
		}
	}
	for _, id := range []string{"", ".", "..", "../x", "/", "%", "%2E", "a/../../b", strings.Repeat(".", 500), s + "/", s + "/.."} {
		for _, method := range []string{"session/load", "session/resume", "session/fork", "session/close", "session/delete", "session/prompt", "_sandboxagent/session/terminate"} {
			params := string(rawjson.Object{}.String("sessionId", id).String("cwd", dir).Raw("mcpServers", []byte("[]")).Raw("prompt", []byte("[]")).End())
			if e := tc.callErr(method, params); id == "" && e.Code != acp.CodeInvalidParams {
				t.Errorf("%s %q: %v", method, id, e)
			}
		}
	}
	if files, err := filepath.Glob(filepath.Join(dir, "sessions", "*", "log.journal")); err != nil || len(files) != 1 {
		t.Errorf("logs are left: %q, %v", files, err)
	}
	if files, err := filepath.Glob(filepath.Join(dir, "sessions", "*")); err != nil || len(files) != 1 {
		t.Errorf("of sessions is left: %q, %v", files, err)
	}
	tc.call("_sandboxagent/session/get", `{"sessionId":"`+s+`"}`)
}
