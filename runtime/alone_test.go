package runtime

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
)

// What agents begin, and ask, without a prompt: where they are in the wrong mode, and behind a cancel.

const asksByItself = `{"jsonrpc":"2.0","id":77,"method":"session/request_permission","params":{"sessionId":"n","toolCall":{"toolCallId":"c"},"options":[{"optionId":"ok","name":"Allow","kind":"allow_once"}]}}`

// endsItself is that the agent has ended what worksByItself has begun.
var endsItself = strings.NewReplacer(`"tool_call"`, `"tool_call_update"`, "in_progress", "completed").Replace(worksByItself)

// told returns what an agent is sent, when nothing happens any more by itself: of requests and notices the method, of an answer its result or error.
func (f *fakeAgent) told() (told []string) {
	synctest.Wait()
	for len(f.shared) > 0 {
		switch m := (<-f.shared).m; {
		case !m.IsResponse():
			told = append(told, m.Method())
		case m.Err() != nil:
			told = append(told, m.Err().Message)
		default:
			told = append(told, string(m.Result()))
		}
	}
	return told
}

// isTold is told, compared.
func (f *fakeAgent) isTold(t *testing.T, when string, want ...string) {
	t.Helper()
	if told := strings.Join(f.told(), ", "); told != strings.Join(want, ", ") {
		t.Errorf("%s the agent is sent %s; want %s", when, told, strings.Join(want, ", "))
	}
}

// asked returns what clients are asked, when nothing happens any more by itself.
func (tc *testClient) asked() (asked []acp.Message) {
	synctest.Wait()
	for len(tc.frames) > 0 {
		if m := tc.next(); m.IsRequest() {
			asked = append(asked, m)
		}
	}
	return asked
}

const deniedAll = `{"outcome":{"outcome":"cancelled"}}`

// Nobody is asked what an agent may do by itself in the wrong mode, and nothing is changed for it: it is told to end that.
func TestStray_AsksByItself(t *testing.T) {
	const writes = `{"jsonrpc":"2.0","id":78,"method":"fs/write_text_file","params":{"sessionId":"n","path":"/tmp/x","content":""}}`
	for _, waits := range []bool{false, true} { // a prompt, until it is set back
		for what, row := range map[string]struct {
			asks, answer string
			host         HostTools
		}{
			"a person": {asks: asksByItself, answer: deniedAll},
			"a client": {asks: writes, answer: "the request was cancelled"},
			"the host": {asks: writes, answer: "cancelled", host: &hostTools{}},
		} {
			t.Run(fmt.Sprintf("%s, a prompt waits: %v", what, waits), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					a, tc, _, back := straysOf(t, `{}`, false, row.host)
					refuseAs(back.to, back.m, acp.CodeInternal, "not now")
					tc.shows()
					var id acp.ID
					if waits {
						id = tc.request("session/prompt", prompt("n", "z"))
						back = a.nextOf(t, "session/set_mode")
					}
					for range 2 {
						back.to.send(row.asks)
						a.isTold(t, "as it asks", row.answer, "session/cancel")
						if asked := tc.asked(); len(asked) > 0 {
							t.Errorf("clients are asked %s", asked[0].Frame())
						}
					}
					if !waits {
						time.Sleep(time.Minute)
						a.isTold(t, "then")
						id = tc.request("session/prompt", prompt("n", "z"))
						back = a.nextOf(t, "session/set_mode")
					}
					takesAll(back)
					a.answer(a.nextOf(t, "session/prompt"), `{"stopReason":"end_turn"}`)
					tc.until(id)
				})
			})
		}
	}
}

// isSetBack fails unless the next prompt is given to the process that has the session, behind its mode.
func (a *fakeAgent) isSetBack(t *testing.T, tc *testClient, back sent) {
	t.Helper()
	id := tc.request("session/prompt", prompt("n", "z"))
	again := a.nextOf(t, "session/set_mode")
	if again.to != back.to {
		t.Error("the session is opened elsewhere")
	}
	takesAll(again)
	a.answer(a.nextOf(t, "session/prompt"), `{"stopReason":"end_turn"}`)
	tc.until(id)
}

// What such an agent asks while it ends what it was told to end is of that: it heeds the cancel, and keeps the session.
func TestStray_AsksAsItIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, tc, _, back := strays(t, `{}`, false)
		back.to.send(worksByItself)
		refuseAs(back.to, back.m, acp.CodeInternal, "not now")
		a.isTold(t, "as it strays", "session/cancel")
		back.to.send(asksByItself)
		a.isTold(t, "as it asks", deniedAll)
		back.to.send(endsItself)
		if asked := tc.asked(); len(asked) > 0 {
			t.Errorf("clients are asked %s", asked[0].Frame())
		}
		time.Sleep(time.Minute)
		a.isSetBack(t, tc, back)
	})
}

// What such an agent begins when it has ended what it was told to end is something else: it is told to end that as well, and has as long for it.
func TestStray_BeginsSomethingElse(t *testing.T) {
	for _, turn := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			a, tc, prompted, back := strays(t, `{}`, turn)
			if !turn {
				back.to.send(worksByItself)
			}
			refuseAs(back.to, back.m, acp.CodeInternal, "not now")
			a.isTold(t, "as it strays", "session/cancel")
			if turn {
				a.answer(prompted, `{"stopReason":"cancelled"}`)
			} else {
				back.to.send(endsItself)
			}
			tc.shows()
			time.Sleep(4 * time.Second)
			back.to.send(worksByItself)
			a.isTold(t, "as it begins something", "session/cancel")
			time.Sleep(2 * time.Second)
			back.to.send(endsItself)
			tc.shows()
			time.Sleep(time.Minute)
			a.isSetBack(t, tc, back)
		})
	}
}

// A cancel without a turn is for what the agent does by itself: what it asks people before it says that this has ended is of it. Later, and for
// what goes on in the background, it is something else.
func TestCancel_AsksOfWhatWasCancelledWithoutATurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &fakeAgent{id: "fake", caps: `{}`, shared: make(chan sent, 64)}
		a.byHand()
		r := openRuntime(t, Options{DataDir: t.TempDir(), Adapters: adaptersOf(a), DefaultAgent: "fake"})
		tc := connect(t, r, "")
		id := tc.request("session/new", `{"cwd":"/tmp","mcpServers":[]}`)
		made := a.nextOf(t, "session/new")
		a.answer(made, `{"sessionId":"n"}`)
		tc.until(id)
		asks := func(when, want string) {
			t.Helper()
			made.to.send(asksByItself)
			asked := tc.asked()
			if want != "" {
				if a.isTold(t, when, want); len(asked) > 0 {
					t.Errorf("%s clients are asked %s", when, asked[0].Frame())
				}
				return
			}
			if a.isTold(t, when); len(asked) != 1 {
				t.Fatalf("%s clients are asked %d times", when, len(asked))
			}
			tc.send(`{"jsonrpc":"2.0","id":` + string(asked[0].ID()) + `,"result":{"outcome":{"outcome":"selected","optionId":"ok"}}}`)
			a.isTold(t, when+" that is allowed", `{"outcome":{"outcome":"selected","optionId":"ok"}}`)
		}
		cancels := func() {
			t.Helper()
			synctest.Wait()
			tc.send(`{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"n"}}`)
			a.isTold(t, "with the cancel", "session/cancel")
		}
		working := func(works string) {
			made.to.send(`{"jsonrpc":"2.0","method":"` + acp.MethodWorking + `","params":{"sessionId":"n","working":` + works + `}}`)
		}
		working("true")
		asks("before the cancel", "")
		cancels()
		asks("behind the cancel", deniedAll)
		working("false")
		asks("behind its end", "")
		made.to.send(worksByItself) // in the background: it says of nothing that it ends it
		cancels()
		asks("of a call that goes on", "")
		working("true")
		cancels()
		id = tc.request("session/prompt", prompt("n", "x"))
		prompted := a.nextOf(t, "session/prompt")
		asks("in the next turn", "")
		a.answer(prompted, `{"stopReason":"end_turn"}`)
		tc.until(id)
		asks("behind that", "")
	})
}

// A turn that ends as the agent strays has cost what it has cost.
func TestStray_ATurnThatEndsThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, tc, prompted, back := strays(t, `{}`, true)
		refuseAs(back.to, back.m, acp.CodeInternal, "not now")
		a.isTold(t, "as it strays", "session/cancel")
		a.answer(prompted, `{"stopReason":"end_turn","usage":{"totalTokens":5,"inputTokens":2,"outputTokens":3}}`)
		if _, res := tc.until(acp.IntID(int64(tc.lastID))); res.Err() == nil {
			t.Errorf("%s", res.Frame())
		}
		info, err := tc.r.Session("n")
		if err != nil || len(info.Usage) != 1 || info.Usage[0] != (Use{Day: info.Usage[0].Day, Turns: 2, InputTokens: 2, OutputTokens: 3}) {
			t.Errorf("it has used %+v, %v", info.Usage, err)
		}
	})
}

// beginsACall is an agent that begins a call in a turn of a session that must only read. late is an older request that can take it out of that mode,
// and id that of the prompt.
func beginsACall(t *testing.T) (a *fakeAgent, tc *testClient, late sent, id acp.ID, prompted sent) {
	t.Helper()
	a = &fakeAgent{id: "fake", caps: `{}`, shared: make(chan sent, 64)}
	a.byHand()
	r := openRuntime(t, Options{DataDir: t.TempDir(), Adapters: adaptersOf(a), DefaultAgent: "fake", RequestTimeout: setLimit})
	tc = connect(t, r, "")
	id = tc.request("session/new", `{"cwd":"/tmp","mcpServers":[]}`)
	a.answer(a.nextOf(t, "session/new"), `{"sessionId":"n",`+writeAndPlan+`}`)
	tc.until(id)
	late = tc.givesUp(a, acp.MethodSessionLoad, "write")
	id = tc.request("session/load", loadOf("n", "/tmp", own(`"permissionMode":"readonly"`)))
	takesAll(a.nextOf(t, "session/set_mode"))
	tc.until(id)
	id = tc.request("session/prompt", prompt("n", "x"))
	prompted = a.nextOf(t, "session/prompt")
	prompted.to.chunk("n", "hello")
	prompted.to.send(worksByItself)
	synctest.Wait()
	return a, tc, late, id, prompted
}

// A call that an agent leaves open as a cancelled turn ends, in whatever way, is not what it does in the wrong mode later: it keeps the session. One of
// which it says more then is.
func TestStray_CallThatACancelLeavesOpen(t *testing.T) {
	goesOn := strings.Replace(worksByItself, `"tool_call"`, `"tool_call_update"`, 1)
	for _, strayed := range []bool{false, true} { // the turn is cancelled since the agent is in the wrong mode
		for _, says := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				a, tc, late, id, prompted := beginsACall(t)
				ends := func() {
					a.isTold(t, "as the turn ends", "session/cancel")
					if says {
						a.answer(prompted, `{"stopReason":"cancelled"}`)
					} else {
						a.refuse(prompted, "aborted")
					}
					tc.until(id)
				}
				if !strayed {
					tc.send(`{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"n"}}`)
					ends()
				}
				takesAll(late)
				back := a.nextOf(t, "session/set_mode")
				refuseAs(back.to, back.m, acp.CodeInternal, "not now")
				if strayed {
					ends()
				} else {
					a.isTold(t, "as it strays", "session/cancel")
				}
				if says {
					back.to.send(goesOn)
					a.isTold(t, "as it goes on", "session/cancel")
					time.Sleep(time.Minute)
					tc.request("session/prompt", prompt("n", "z"))
					if m := a.nextOf(t, "session/new"); m.to == back.to {
						t.Error("the session is opened beside what the agent goes on with")
					}
					return
				}
				time.Sleep(time.Minute)
				tc.shows()
				a.isSetBack(t, tc, back)
			})
		}
	}
}

// The same of a prompt that its client has taken back, where the agent says that it has cancelled it.
func TestStray_CallThatAWithdrawalLeavesOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, tc, late, id, prompted := beginsACall(t)
		tc.send(`{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":` + string(id) + `}}`)
		a.isTold(t, "as the prompt is taken back", "$/cancel_request")
		a.answer(prompted, `{"stopReason":"cancelled"}`)
		tc.until(id)
		takesAll(late)
		back := a.nextOf(t, "session/set_mode")
		refuseAs(back.to, back.m, acp.CodeInternal, "not now")
		a.isTold(t, "as it strays", "session/cancel")
		time.Sleep(time.Minute)
		tc.shows()
		a.isSetBack(t, tc, back)
	})
}
