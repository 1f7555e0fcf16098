package runtime

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
)

func (tc *testClient) cancels(method, params string) {
	tc.t.Helper()
	tc.send(`{"jsonrpc":"2.0","method":"` + method + `","params":` + params + `}`)
}

// Prompts wait in their order, up to a limit; one that is withdrawn leaves the
// others in theirs.
func TestTurn_QueueIsBoundedAndInOrder(t *testing.T) {
	a := &fakeAgent{}
	r := newRuntime(t, t.TempDir(), a)
	tc := connect(t, r, "")
	s := tc.session()
	ids := map[string]acp.ID{}
	ids["0"] = tc.request("session/prompt", prompt(s, "0"))
	running := a.conn().next(t, "session/prompt")
	for i := 1; i <= 64; i++ {
		ids[fmt.Sprint(i)] = tc.request("session/prompt", prompt(s, fmt.Sprint(i)))
	}
	if e := tc.callErr("session/prompt", prompt(s, "too many")); e.Code != acp.CodeInternal || !strings.Contains(e.Message, "64 prompts") {
		t.Errorf("one too many: %v", e)
	}
	for _, gone := range []string{"2", "64", "1"} {
		tc.cancels(acp.MethodCancelRequest, fmt.Sprintf(`{"requestId":%s}`, ids[gone]))
		if _, res := tc.until(ids[gone]); res.Err() == nil || res.Err().Code != acp.CodeCancelled {
			t.Errorf("withdrawn: %s", res.Frame())
		}
	}
	ids["65"] = tc.request("session/prompt", prompt(s, "65")) // there is room again
	for i := 3; i <= 65; i++ {
		if i == 64 {
			continue
		}
		a.conn().result(running, `{"stopReason":"end_turn"}`)
		running = a.conn().next(t, "session/prompt")
		if want := fmt.Sprintf(`"text":"%d"`, i); !strings.Contains(string(running.Params()), want) {
			t.Fatalf("%s came, want %d", running.Params(), i)
		}
	}
	a.conn().result(running, `{"stopReason":"end_turn"}`)
	tc.until(ids["65"])
}

// What a client says is shown to the others and to those who come later, block by
// block; the one who said it knows.
func TestTurn_PromptIsShownToOthers(t *testing.T) {
	a := &fakeAgent{}
	r := newRuntime(t, t.TempDir(), a)
	tc, other := connect(t, r, ""), connect(t, r, "")
	s := tc.session()
	other.call("session/load", fmt.Sprintf(`{"sessionId":%q,"cwd":"/tmp","mcpServers":[]}`, s))
	id := tc.request("session/prompt", fmt.Sprintf(`{"sessionId":%q,"prompt":[{"type":"text","text":"one"},{"type":"text","text":"two"}]}`, s))
	p := a.conn().next(t, "session/prompt")
	if texts([]acp.Message{other.next(), other.next()}) != "user:one user:two" { // before the agent says anything
		t.Error("the other was shown something else")
	}
	a.conn().chunk("native-1", "three")
	a.conn().result(p, `{"stopReason":"end_turn"}`)
	before, _ := tc.until(id)
	if got := texts(before); got != "three" {
		t.Errorf("who said it was shown %q", got)
	}
	late := connect(t, r, "")
	before, _ = late.until(late.request("session/load", fmt.Sprintf(`{"sessionId":%q,"cwd":"/tmp","mcpServers":[]}`, s)))
	if got := texts(before); got != "user:one user:two three" {
		t.Errorf("who came later was shown %q", got)
	}
}

// A session that takes no prompt says why.
func TestTurn_SessionsThatTakeNone(t *testing.T) {
	a := &fakeAgent{}
	r, err := New(Options{DataDir: t.TempDir(), Adapters: adaptersOf(withID(a)), DefaultAgent: a.id})
	if err != nil {
		t.Fatal(err)
	}
	tc := connect(t, r, "")
	ended, closed, open := tc.session(), tc.session(), tc.session()
	tc.call("_sandboxagent/session/terminate", fmt.Sprintf(`{"sessionId":%q}`, ended))
	if e := tc.callErr("session/prompt", prompt(ended, "x")); e.Code != acp.CodeResourceNotFound || !strings.Contains(e.Message, "has ended (terminated)") {
		t.Errorf("ended: %v", e)
	}
	tc.call("session/close", fmt.Sprintf(`{"sessionId":%q}`, closed))
	if e := tc.callErr("session/prompt", prompt(closed, "x")); e.Code != acp.CodeResourceNotFound || !strings.Contains(e.Message, "is closed") {
		t.Errorf("closed: %v", e)
	}
	// While the gateway ends, a turn may; another one does not begin.
	id := tc.request("session/prompt", prompt(open, "x"))
	p := a.conn().next(t, "session/prompt")
	down := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), wait)
		defer cancel()
		down <- r.Shutdown(ctx)
	}()
	if m := a.conn().next(t, "session/cancel"); m.Session() != "native-3" {
		t.Errorf("cancelled %s", m.Frame())
	}
	late := tc.request("session/prompt", prompt(open, "y"))
	if _, res := tc.until(late); res.Err() == nil || res.Err().Code != acp.CodeInternal || !strings.Contains(res.Err().Message, "shutting down") {
		t.Errorf("late: %s", res.Frame())
	}
	a.conn().result(p, `{"stopReason":"cancelled"}`)
	tc.until(id)
	if err := <-down; err != nil {
		t.Error(err)
	}
}

// A silent turn is cancelled, one that says something now and then is not, and
// neither is anything when it is over.
func TestTurn_IdleTimeoutCountsSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &fakeAgent{id: "fake"}
		r, err := New(Options{DataDir: t.TempDir(), Adapters: adaptersOf(a), DefaultAgent: "fake", TurnIdleTimeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		tc := connect(t, r, "")
		s := tc.session()
		id := tc.request("session/prompt", prompt(s, "x"))
		p := a.conn().next(t, "session/prompt")
		for range 5 {
			time.Sleep(50 * time.Second)
			a.conn().chunk("native-1", "still at it")
			tc.next()
		}
		time.Sleep(59 * time.Second)
		synctest.Wait()
		if len(a.conn().got) != 0 {
			m := <-a.conn().got
			t.Errorf("a turn that is not silent was sent %s", m.Frame())
		}
		time.Sleep(2 * time.Second)
		a.conn().next(t, "session/cancel")
		a.conn().result(p, `{"stopReason":"cancelled"}`)
		tc.until(id)
		id = tc.request("session/prompt", prompt(s, "x"))
		a.conn().result(a.conn().next(t, "session/prompt"), `{"stopReason":"end_turn"}`)
		tc.until(id)
		time.Sleep(time.Hour)
		if len(a.conn().got) != 0 {
			m := <-a.conn().got
			t.Errorf("after the turn the agent was sent %s", m.Frame())
		}
		tc.close()
		if err := r.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// Who closes a session with a running turn waits for the turn's end, and no longer.
func TestTurn_CloseWaitsForItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &fakeAgent{id: "fake"}
		r, err := New(Options{DataDir: t.TempDir(), Adapters: adaptersOf(a), DefaultAgent: "fake"})
		if err != nil {
			t.Fatal(err)
		}
		tc := connect(t, r, "")
		s := tc.session()
		id := tc.request("session/prompt", prompt(s, "x"))
		p := a.conn().next(t, "session/prompt")
		closing := tc.request("session/close", fmt.Sprintf(`{"sessionId":%q}`, s))
		a.conn().next(t, "session/cancel")
		time.Sleep(time.Second)
		synctest.Wait()
		if len(tc.frames) > 0 {
			m := tc.next()
			t.Errorf("before the turn has ended the client is told %s", m.Frame())
		}
		began := time.Now()
		a.conn().result(p, `{"stopReason":"cancelled"}`)
		tc.until(id)
		tc.until(closing)
		if took := time.Since(began); took > 0 {
			t.Errorf("it took %v more", took)
		}
		tc.close()
		if err := r.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// The answer to what ends a session comes behind all that went on in it: the turn's answer, too.
func TestTurn_EndIsAnsweredLast(t *testing.T) {
	const chunks = 3000 // several pages of the client's stream
	for _, method := range []string{"session/close", "session/delete", "_sandboxagent/session/terminate"} {
		t.Run(method, func(t *testing.T) {
			a := &fakeAgent{id: "fake"}
			tc := connect(t, newRuntime(t, t.TempDir(), a), "")
			s := tc.session()
			turn := tc.request("session/prompt", prompt(s, "hi"))
			c := a.conn()
			p := c.next(t, "session/prompt")
			ending := tc.request(method, `{"sessionId":"`+s+`"}`)
			c.next(t, "session/cancel")
			for range chunks {
				c.chunk(s, "word")
			}
			c.result(p, `{"stopReason":"cancelled"}`)
			before, res := tc.until(ending)
			if res.Err() != nil {
				t.Fatalf("%s", res.Frame())
			}
			if !slices.ContainsFunc(before, func(m acp.Message) bool { return m.IsResponse() && m.ID() == turn }) {
				t.Errorf("behind %d messages the end is answered, and the prompt is not", len(before))
			}
			if n := strings.Count(texts(before), "word"); n != chunks && method != "session/delete" {
				t.Errorf("before the answer came %d of %d words", n, chunks)
			}
		})
	}
}

// A prompt that is withdrawn while the agent is started for it is over at once, however long that takes, and no agent is given it.
func TestTurn_WithdrawnWhileTheSessionIsOpenedAnew(t *testing.T) {
	a := &fakeAgent{caps: `{"loadSession":true}`}
	r := newRuntime(t, t.TempDir(), a)
	tc := connect(t, r, "")
	s := tc.session()
	a.conn().crash(errCrash)
	tc.next() // ended
	id := tc.request("session/prompt", prompt(s, "x"))
	a.awaitOpened(t, 2)
	load := a.conn().next(t, "session/load")
	tc.cancels(acp.MethodCancelRequest, fmt.Sprintf(`{"requestId":%s}`, id))
	if _, res := tc.until(id); res.Err() != nil || rawjson.MemberString(res.Result(), "stopReason") != "cancelled" {
		t.Errorf("%s", res.Frame())
	}
	next := tc.request("session/prompt", prompt(s, "y"))
	a.conn().result(load, `{}`)
	p := a.conn().next(t, "session/prompt")
	if !strings.Contains(string(p.Params()), `"y"`) {
		t.Errorf("the agent is given %s", p.Frame())
	}
	a.conn().result(p, `{"stopReason":"end_turn"}`)
	if _, res := tc.until(next); res.Err() != nil {
		t.Errorf("%s", res.Frame())
	}
}

// An agent that dies ends the turn with the reason, and the prompt that waits is
// given to the next one, whether that remembers the session or not.
func TestTurn_TheNextOneSurvivesACrash(t *testing.T) {
	l := &ledger{t: t, open: map[*entry]bool{}}
	a := &fakeAgent{id: "fake", caps: `{"loadSession":true}`}
	r := openRuntime(t, Options{DataDir: t.TempDir(), Adapters: adaptersOf(a), DefaultAgent: "fake", Observer: l})
	tc := connect(t, r, `{"_meta":{"sandboxagent.dev":{"turns":true}}}`)
	s := tc.session()
	other := connect(t, r, `{"_meta":{"sandboxagent.dev":{"turns":true}}}`)
	other.call("session/resume", fmt.Sprintf(`{"sessionId":%q,"cwd":"/tmp"}`, s))
	first := a.conn()
	id := tc.request("session/prompt", prompt(s, "x"))
	first.next(t, "session/prompt")
	queued := tc.request("session/prompt", prompt(s, "y"))
	first.crash(errCrash)
	if _, res := tc.until(id); res.Err() == nil || !strings.Contains(string(res.Err().Data), string(problem.AgentProcessExited)) {
		t.Errorf("%s", res.Frame())
	}
	if m := other.nextOf("_sandboxagent/session/turn_ended"); !strings.Contains(string(m.Params()), `"error":{`) || m.Session() != s {
		t.Errorf("the other was told %s", m.Frame())
	}
	a.awaitOpened(t, 2)
	load := a.conn().next(t, "session/load")
	a.conn().out <- acp.NewError(load.ID(), acp.Errorf(acp.CodeInternal, "it is gone"))
	fresh := a.conn()
	if m := fresh.next(t, "session/prompt"); !strings.Contains(string(m.Params()), `"text":"y"`) {
		t.Errorf("%s", m.Frame())
	} else {
		fresh.result(m, `{"stopReason":"end_turn"}`)
	}
	tc.until(queued)
}

// A cancel with nothing to cancel tells the agent nothing, and a second one for
// the same turn does no harm.
func TestTurn_CancelWithoutATurn(t *testing.T) {
	a := &fakeAgent{}
	r := newRuntime(t, t.TempDir(), a)
	tc := connect(t, r, "")
	s := tc.session()
	about := fmt.Sprintf(`{"sessionId":%q}`, s)
	tc.cancels("session/cancel", about)
	a.conn().quiet(t, tc)
	id := tc.request("session/prompt", prompt(s, "x"))
	p := a.conn().next(t, "session/prompt")
	tc.cancels("session/cancel", about)
	if m := a.conn().next(t, "session/cancel"); m.Session() != "native-1" {
		t.Errorf("%s", m.Frame())
	}
	a.conn().result(p, `{"stopReason":"end_turn"}`) // it was quicker
	if _, res := tc.until(id); !strings.Contains(string(res.Result()), "end_turn") {
		t.Errorf("%s", res.Frame())
	}
	tc.cancels("session/cancel", about)
	tc.cancels(acp.MethodCancelRequest, fmt.Sprintf(`{"requestId":%s}`, id))
	a.conn().quiet(t, tc)
	events, _, err := r.Events(t.Context(), s, 0, 0)
	if err != nil || strings.Count(fmt.Sprint(messages(events)), `"method":"session/cancel"`) != 3 {
		t.Errorf("the record has %v, %v", messages(events), err)
	}
}

// Turns that were cancelled while they waited are told of like others.
func TestTurn_OthersLearnOfWhatWasCancelledInTheQueue(t *testing.T) {
	a := &fakeAgent{}
	r := newRuntime(t, t.TempDir(), a)
	wants := `{"_meta":{"sandboxagent.dev":{"turns":true}}}`
	tc, other := connect(t, r, wants), connect(t, r, wants)
	s := tc.session()
	other.call("session/resume", fmt.Sprintf(`{"sessionId":%q,"cwd":"/tmp"}`, s))
	first := tc.request("session/prompt", prompt(s, "a"))
	p := a.conn().next(t, "session/prompt")
	named := tc.request("session/prompt", fmt.Sprintf(`{"sessionId":%q,"prompt":[],"_meta":{"sandboxagent.dev":{"promptId":"mine"}}}`, s))
	unnamed := tc.request("session/prompt", prompt(s, "b"))
	tc.cancels("session/cancel", fmt.Sprintf(`{"sessionId":%q}`, s))
	for _, id := range []acp.ID{named, unnamed} {
		if _, res := tc.until(id); string(res.Result()) != `{"stopReason":"cancelled","_meta":{"sandboxagent.dev":{"began":false}}}` {
			t.Errorf("%s", res.Frame())
		}
	}
	one, two := other.nextOf("_sandboxagent/session/turn_ended"), other.nextOf("_sandboxagent/session/turn_ended")
	if !strings.Contains(string(one.Params()), `"promptId":"mine","result":{"stopReason":"cancelled",`) || strings.Contains(string(two.Params()), "promptId") {
		t.Errorf("told %s and %s", one.Frame(), two.Frame())
	}
	if acp.TurnBegan(one.Params()) || acp.TurnBegan(two.Params()) {
		t.Errorf("of what never began others are told %s and %s", one.Frame(), two.Frame())
	}
	a.conn().next(t, "session/cancel")
	a.conn().result(p, `{"stopReason":"cancelled"}`)
	if _, res := tc.until(first); string(res.Result()) != `{"stopReason":"cancelled"}` {
		t.Errorf("%s", res.Frame())
	}
	if m := other.nextOf("_sandboxagent/session/turn_ended"); !strings.Contains(string(m.Params()), `"began":true`) {
		t.Errorf("of the one that ran the other is told %s", m.Frame())
	}
}

// Whether a turn began is said of each that ends, however it ends: while one runs, others that
// wait for it end.
func TestTurn_OthersLearnWhetherItBegan(t *testing.T) {
	for name, tt := range map[string]struct {
		end  func(tc *testClient, a *fakeAgent, s string, queued acp.ID)
		want []string // of the ends that are told until the agent answers
		lost bool     // there is nobody to answer
	}{
		"cancelled": {func(tc *testClient, _ *fakeAgent, s string, _ acp.ID) {
			tc.cancels("session/cancel", fmt.Sprintf(`{"sessionId":%q}`, s))
		}, []string{"false"}, false},
		"the one that waits is taken back": {func(tc *testClient, _ *fakeAgent, _ string, queued acp.ID) {
			tc.cancels("$/cancel_request", `{"requestId":`+string(queued)+`}`)
		}, []string{"false"}, false},
		"the session is ended": {func(tc *testClient, _ *fakeAgent, s string, _ acp.ID) {
			tc.request("_sandboxagent/session/terminate", fmt.Sprintf(`{"sessionId":%q}`, s))
		}, []string{"false"}, false},
		"the session is closed": {func(tc *testClient, _ *fakeAgent, s string, _ acp.ID) {
			tc.request("session/close", fmt.Sprintf(`{"sessionId":%q}`, s))
		}, []string{"false"}, false},
		"the agent ends": {func(_ *testClient, a *fakeAgent, _ string, _ acp.ID) { a.conn().crash(errCrash) }, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			a := &fakeAgent{}
			r := newRuntime(t, t.TempDir(), a)
			wants := `{"_meta":{"sandboxagent.dev":{"turns":true}}}`
			tc, other := connect(t, r, wants), connect(t, r, wants)
			s := tc.session()
			other.call("session/resume", fmt.Sprintf(`{"sessionId":%q,"cwd":"/tmp"}`, s))
			tc.request("session/prompt", prompt(s, "x"))
			p := a.conn().next(t, "session/prompt")
			tt.end(tc, a, s, tc.request("session/prompt", prompt(s, "y")))
			for _, want := range append(tt.want, "true") {
				if m := other.nextOf("_sandboxagent/session/turn_ended"); !strings.Contains(string(m.Params()), `"began":`+want) {
					t.Fatalf("told %s, want began %s", m.Frame(), want)
				}
				if !tt.lost {
					a.conn().result(p, `{"stopReason":"cancelled"}`)
				}
			}
		})
	}
}

// A prompt that is refused when it comes is its sender's alone: others, who have seen nothing of it, see no end.
func TestTurn_OthersHearNothingOfARefusedOne(t *testing.T) {
	wants := `{"_meta":{"sandboxagent.dev":{"turns":true}}}`
	for name, refuse := range map[string]func(tc *testClient, s string){
		"the session is closed": func(tc *testClient, s string) {
			tc.call("session/close", fmt.Sprintf(`{"sessionId":%q}`, s))
		},
		"64 others wait": func(tc *testClient, s string) {
			for range 65 { // one of them runs
				tc.request("session/prompt", prompt(s, "z"))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := &fakeAgent{}
			r := newRuntime(t, t.TempDir(), a)
			tc, other := connect(t, r, wants), connect(t, r, wants)
			s := tc.session()
			other.call("session/resume", fmt.Sprintf(`{"sessionId":%q,"cwd":"/tmp"}`, s))
			refuse(tc, s)
			mine := fmt.Sprintf(`{"sessionId":%q,"prompt":[],"_meta":{"sandboxagent.dev":{"promptId":"mine"}}}`, s)
			if _, res := tc.until(tc.request("session/prompt", mine)); res.ErrorRaw() == nil {
				t.Fatalf("answered %s", res.Frame())
			}
			events, _, err := r.Events(t.Context(), s, 0, 0)
			if all := fmt.Sprint(messages(events)); err != nil || strings.Contains(all, "mine") {
				t.Errorf("%v, %s", err, all)
			}
		})
	}
}

// A turn without a name is not recorded when nobody wants to know of its end.
func TestTurn_EndThatNobodyWantsToKnow(t *testing.T) {
	a := &fakeAgent{}
	r := newRuntime(t, t.TempDir(), a)
	tc, other := connect(t, r, `{"_meta":{"sandboxagent.dev":{"turns":true}}}`), connect(t, r, "")
	s := tc.session()
	other.call("session/resume", fmt.Sprintf(`{"sessionId":%q,"cwd":"/tmp"}`, s))
	id := tc.request("session/prompt", prompt(s, "a"))
	a.conn().result(a.conn().next(t, "session/prompt"), `{"stopReason":"end_turn"}`)
	tc.until(id)
	events, _, err := r.Events(t.Context(), s, 0, 0)
	if err != nil || strings.Contains(fmt.Sprint(messages(events)), "turn_ended") {
		t.Errorf("%v, %v", messages(events), err)
	}
}

// An agent that does not end a silent turn when it is told to loses its process: the turn
// ends, and the prompts behind it go to the next one. One that is still busy with its end
// is waited for.
func TestTurn_IdleTimeoutOfADeafAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &fakeAgent{id: "fake", caps: `{"sessionCapabilities":{"resume":{}}}`}
		r, err := New(Options{DataDir: t.TempDir(), Adapters: adaptersOf(a), DefaultAgent: "fake", TurnIdleTimeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		tc := connect(t, r, "")
		s := tc.session()
		id := tc.request("session/prompt", prompt(s, "x"))
		first := a.conn()
		first.next(t, "session/prompt")
		behind := tc.request("session/prompt", prompt(s, "y"))
		time.Sleep(time.Minute)
		first.next(t, "session/cancel")
		time.Sleep(20 * time.Second)
		first.chunk("native-1", "in a moment")
		tc.next()
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if len(tc.frames) > 0 || len(first.got) > 0 {
			t.Errorf("an agent that is ending its turn is not waited for: %d, %d", len(tc.frames), len(first.got))
		}
		time.Sleep(20 * time.Second)
		_, res := tc.until(id)
		if e := res.Err(); e == nil || rawjson.MemberString(e.Data, "type") != problem.Timeout.Type() {
			t.Errorf("the turn ends with %s", res.Frame())
		}
		a.awaitOpened(t, 2)
		next := a.conn()
		next.result(next.next(t, "session/resume"), `{}`)
		next.result(next.next(t, "session/prompt"), `{"stopReason":"end_turn"}`)
		if _, res := tc.until(behind); res.Err() != nil {
			t.Errorf("the prompt behind it ends with %s", res.Frame())
		}
		tc.close()
		if err := r.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// The process of an agent that does not end its turn does not outlive the last session
// that needs it, whatever has ended that.
func TestTurn_DeafAgentsProcessEnds(t *testing.T) {
	for _, method := range []string{"session/close", "session/delete", "_sandboxagent/session/terminate"} {
		synctest.Test(t, func(t *testing.T) {
			a := &fakeAgent{id: "fake", caps: `{"sessionCapabilities":{"resume":{}}}`}
			r, err := New(Options{DataDir: t.TempDir(), Adapters: adaptersOf(a), DefaultAgent: "fake"})
			if err != nil {
				t.Fatal(err)
			}
			tc := connect(t, r, "")
			s := tc.session()
			id := tc.request("session/prompt", prompt(s, "x"))
			c := a.conn()
			c.next(t, "session/prompt")
			ending := tc.request(method, `{"sessionId":"`+s+`"}`)
			tc.until(id)
			tc.until(ending)
			tc.close()
			time.Sleep(time.Minute)
			synctest.Wait()
			select {
			case <-c.end:
			default:
				t.Errorf("a minute after %s its process is alive", method)
			}
			if err := r.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// named is a prompt with an id of its client's.
func named(session, id string) string {
	return fmt.Sprintf(`{"sessionId":%q,"prompt":[{"type":"text","text":%q}],"_meta":{"sandboxagent.dev":{"promptId":%q}}}`, session, id, id)
}

// only are the params of a cancel of prompts by their ids.
func only(session string, ids ...string) string {
	m := acp.CancelOf(session, ids)
	return string(m.Params())
}

// A cancel that names prompts ends these, wherever they are, and nothing else: not the turn that they wait for, of whoever it is, nor
// what waits with them, nor what runs when they are over.
func TestTurn_CancelOfNamedPrompts(t *testing.T) {
	t.Parallel()
	for version, connect := range map[int]func(*testing.T, *Runtime, string) *testClient{1: connect, 2: connectTwo} {
		a := &fakeAgent{}
		r := newRuntime(t, t.TempDir(), a)
		tc, other := connect(t, r, "{}"), connect(t, r, "{}")
		s := tc.session()
		never := func(id acp.ID) {
			t.Helper()
			_, res := tc.until(id)
			if version == 1 && string(res.Result()) != `{"stopReason":"cancelled","_meta":{"sandboxagent.dev":{"began":false}}}` || version == 2 && (res.Err() == nil || res.Err().Code != acp.CodeCancelled) {
				t.Errorf("version %d: %s", version, res.Frame())
			}
		}
		running := func(id string) acp.Message {
			t.Helper()
			p := a.conn().next(t, "session/prompt")
			if !strings.Contains(string(p.Params()), `"text":"`+id+`"`) {
				t.Errorf("version %d: the agent has %s, want %s", version, p.Params(), id)
			}
			return p
		}
		other.request("session/prompt", named(s, "theirs"))
		p := running("theirs")
		one, two := tc.request("session/prompt", named(s, "one")), tc.request("session/prompt", named(s, "two"))
		tc.request("session/prompt", prompt(s, "unnamed"))
		tc.request("session/prompt", named(s, "três"))
		tc.cancels("session/cancel", only(s))
		tc.cancels("session/cancel", only(s, "", "unknown"))
		tc.cancels("session/cancel", fmt.Sprintf(`{"sessionId":%q,"_meta":{"sandboxagent.dev":{"promptIds":"theirs"}}}`, s))
		tc.cancels("session/cancel", only(s, "one", "two"))
		never(one)
		never(two)
		a.conn().quiet(t, tc)
		a.conn().result(p, `{"stopReason":"end_turn"}`)
		a.conn().result(running("unnamed"), `{"stopReason":"end_turn"}`)
		p = running("três")
		tc.cancels("session/cancel", only(s, "theirs", "one")) // they are over
		a.conn().quiet(t, tc)
		tc.request("session/prompt", named(s, "behind"))
		tc.cancels("session/cancel", fmt.Sprintf(`{"sessionId":%q,"_meta":{"sandboxagent.dev":{"promptIds":["tr\u00eas"]}}}`, s)) // as others write it
		a.conn().next(t, "session/cancel")
		a.conn().result(p, `{"stopReason":"cancelled"}`)
		a.conn().result(running("behind"), `{"stopReason":"end_turn"}`)
	}
}

// A prompt with an id that no cancel could name is refused, and one with the longest that a cancel can name is cancelled by it.
func TestTurn_IDsThatCanBeNamed(t *testing.T) {
	t.Parallel()
	a := &fakeAgent{}
	tc := connect(t, newRuntime(t, t.TempDir(), a), "{}")
	s := tc.session()
	for _, id := range []string{`""`, `7`, `{"a":1}`, strconv.Quote(strings.Repeat("x", 1<<10-1))} {
		e := tc.callErr("session/prompt", fmt.Sprintf(`{"sessionId":%q,"prompt":[],"_meta":{"sandboxagent.dev":{"promptId":%s}}}`, s, id))
		if e.Code != acp.CodeInvalidParams || !strings.Contains(e.Message, "promptId") {
			t.Errorf("%.20s: %v", id, e)
		}
	}
	longest := strings.Repeat("x", 1<<10-2)
	id := tc.request("session/prompt", named(s, longest))
	p := a.conn().next(t, "session/prompt")
	tc.cancels("session/cancel", only(s, longest))
	a.conn().next(t, "session/cancel")
	a.conn().result(p, `{"stopReason":"cancelled"}`)
	if _, res := tc.until(id); string(res.Result()) != `{"stopReason":"cancelled"}` {
		t.Errorf("%s", res.Frame())
	}
}

// A cancel of named prompts answers what the turn asks people when that is theirs, and ends it while its process starts.
func TestTurn_CancelOfNamedPrompts_AskedAndStarting(t *testing.T) {
	a := &fakeAgent{caps: `{"loadSession":true}`}
	r := newRuntime(t, t.TempDir(), a)
	tc := connect(t, r, "")
	s := tc.session()
	id := tc.request("session/prompt", named(s, "mine"))
	p := a.conn().next(t, "session/prompt")
	a.conn().send(`{"jsonrpc":"2.0","id":7,"method":"session/request_permission","params":{"sessionId":"native-1","toolCall":{"toolCallId":"t"},"options":[{"optionId":"y","name":"Y","kind":"allow_once"}]}}`)
	tc.nextOf("session/request_permission")
	waits := tc.request("session/prompt", named(s, "waits"))
	tc.cancels("session/cancel", only(s, "waits"))
	tc.until(waits)
	a.conn().quiet(t, tc)
	tc.cancels("session/cancel", only(s, "mine"))
	a.conn().next(t, "session/cancel")
	if answer := a.conn().next(t, ""); !strings.Contains(string(answer.Result()), "cancelled") {
		t.Errorf("the agent is answered %s", answer.Frame())
	}
	a.conn().result(p, `{"stopReason":"cancelled"}`)
	tc.until(id)
	a.conn().crash(errCrash)
	tc.nextOf("_sandboxagent/session/ended")
	id = tc.request("session/prompt", named(s, "starts"))
	a.awaitOpened(t, 2)
	load := a.conn().next(t, "session/load")
	next := tc.request("session/prompt", named(s, "next"))
	tc.cancels("session/cancel", only(s, "starts"))
	if _, res := tc.until(id); rawjson.MemberString(res.Result(), "stopReason") != "cancelled" {
		t.Errorf("%s", res.Frame())
	}
	a.conn().result(load, `{}`)
	p = a.conn().next(t, "session/prompt")
	if !strings.Contains(string(p.Params()), `"next"`) {
		t.Errorf("the agent is given %s", p.Frame())
	}
	a.conn().result(p, `{"stopReason":"end_turn"}`)
	tc.until(next)
}
