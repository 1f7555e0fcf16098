package runtime

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/adapters"
)

// Starts that are given up, and what an agent answers to them all the same.

// What an agent shows and answers late of a session that a prompt was to open again is not for the next prompt, which waits for that answer: what
// was said is there once. One that goes on without an answer gets no more sessions.
func TestPrompt_BehindALoadAnsweredLate(t *testing.T) {
	for name, row := range map[string]struct{ answers, closed, creating bool }{
		"it answers":                                     {answers: true},
		"it answers as another session is made":          {answers: true, creating: true},
		"it answers, and the start was given up":         {answers: true, closed: true},
		"it does not answer":                             {},
		"it does not answer, and the start was given up": {closed: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := &fakeAgent{id: "fake", info: adapters.Info{Record: true}, caps: `{"loadSession":true,"sessionCapabilities":{"close":{}}}`, shared: make(chan sent, 64)}
				a.byHand()
				r := openRuntime(t, Options{DataDir: t.TempDir(), Adapters: adaptersOf(a), DefaultAgent: "fake", RequestTimeout: setLimit})
				tc := connect(t, r, "")
				id := tc.request("session/new", `{"cwd":"/tmp","mcpServers":[]}`)
				a.answer(a.nextOf(t, "session/new"), `{"sessionId":"n"}`)
				tc.until(id)
				id = tc.request("session/prompt", prompt("n", "x"))
				prompted := a.nextOf(t, "session/prompt")
				prompted.to.chunk("n", "hello")
				a.answer(prompted, `{"stopReason":"end_turn"}`)
				tc.until(id)
				tc.ends(a)
				replays := func(load sent) {
					load.to.send(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"n","update":{"sessionUpdate":"user_message_chunk","content":{"type":"text","text":"x"}}}}`)
					load.to.chunk("n", "hello")
					takesAll(load)
				}
				id = tc.request("session/prompt", prompt("n", "y"))
				late := a.nextOf(t, "session/load")
				if row.closed {
					tc.call("session/close", `{"sessionId":"n"}`)
					tc.call("session/load", loadOf("n", "/tmp", `,"_meta":{"sandboxagent.dev":{"after":0}}`))
				} else if _, res := tc.until(id); res.Err() == nil {
					t.Errorf("%s", res.Frame())
				}
				a.nextOf(t, acp.MethodCancelRequest)
				var making sent
				if row.creating {
					tc.request("session/new", `{"cwd":"/tmp","mcpServers":[]}`)
					making = a.nextOf(t, "session/new")
				}
				if !row.answers {
					if e := tc.callErr("session/prompt", prompt("n", "z")); !strings.Contains(string(e.Data), `"status":504`) {
						t.Errorf("%v", e)
					}
				}
				id = tc.request("session/prompt", prompt("n", "z"))
				synctest.Wait()
				if row.answers {
					if len(a.shared) > 0 {
						t.Error("the agent is asked for more before it has answered")
					}
					replays(late)
					closing := a.nextOf(t, "session/close")
					synctest.Wait()
					if len(a.shared) > 0 {
						t.Error("the agent is asked for it again before it has closed it")
					}
					takesAll(closing)
				}
				again := a.nextOf(t, "session/load")
				if same := again.to == late.to; same != row.answers {
					t.Errorf("the next load is asked of the same process: %v", same)
				}
				replays(again)
				prompted = a.nextOf(t, "session/prompt")
				prompted.to.chunk("n", "bye")
				a.answer(prompted, `{"stopReason":"end_turn"}`)
				before, res := tc.until(id)
				if res.Err() != nil || texts(before) != "bye" {
					t.Errorf("the client is shown %q, %s", texts(before), res.Frame())
				}
				if row.creating {
					a.answer(making, `{"sessionId":"m"}`)
				}
			})
		})
	}
}

// An agent that begins a conversation anew in the moment in which its start is given up has begun it, or has not: the session goes on with the new
// one, and all are told that nothing is remembered, or it is deleted there and the session stays as it was.
func TestPrompt_BegunAnewAsTheStartIsGivenUp(t *testing.T) {
	for _, by := range []string{"its time is over", "it is closed"} {
		t.Run(by, func(t *testing.T) {
			for range 40 { // who comes first is not for a test to say
				synctest.Test(t, func(t *testing.T) {
					a := &fakeAgent{id: "fake", caps: `{"sessionCapabilities":{"resume":{},"close":{},"delete":{}}}`, shared: make(chan sent, 64)}
					a.byHand()
					r := openRuntime(t, Options{Ephemeral: true, Adapters: adaptersOf(a), DefaultAgent: "fake", RequestTimeout: setLimit})
					tc := connect(t, r, "")
					id := tc.request("session/new", `{"cwd":"/tmp","mcpServers":[]}`)
					a.answer(a.nextOf(t, "session/new"), `{"sessionId":"n"}`)
					tc.until(id)
					id = tc.request("session/prompt", prompt("n", "x"))
					prompted := a.nextOf(t, "session/prompt")
					prompted.to.chunk("n", "hello")
					a.answer(prompted, `{"stopReason":"end_turn"}`)
					tc.until(id)
					tc.ends(a)
					tc.call("session/load", loadOf("n", "/tmp", own(`"beginAnew":true`)))
					began := time.Now()
					tc.request("session/prompt", prompt("n", "y"))
					a.refuse(a.nextOf(t, "session/resume"), "broken")
					anew := a.nextOf(t, "session/new")
					if by == "it is closed" {
						tc.request("session/close", `{"sessionId":"n"}`)
					} else {
						time.Sleep(setLimit - time.Since(began))
					}
					a.answer(anew, `{"sessionId":"fresh"}`)
					var told, deleted bool
					goesOn := func(id acp.ID, ends func(m acp.Message) bool) (with string) {
						for {
							select {
							case m := <-a.shared:
								deleted = deleted || m.m.Method() == "session/delete" && m.m.Session() == "fresh"
								if m.m.Method() == acp.MethodSessionPrompt {
									with = m.m.Session()
									a.answer(m, `{"stopReason":"end_turn"}`)
								} else if m.m.IsRequest() {
									takesAll(m)
								}
							case m := <-tc.frames:
								told = told || strings.Contains(string(m.Frame()), `"continuity":"fresh"`)
								if m.IsResponse() && m.ID() == id {
									if !ends(m) {
										t.Errorf("%s", m.Frame())
									}
									return with
								}
							}
						}
					}
					fine := func(m acp.Message) bool { return m.Err() == nil }
					time.Sleep(time.Second)
					goesOn(tc.request("session/load", loadOf("n", "/tmp", "")), fine)
					with := goesOn(tc.request("session/prompt", prompt("n", "z")), fine)
					synctest.Wait()
					if with == "fresh" && (!told || deleted) || with == "n" && !deleted {
						t.Errorf("the session goes on with %s, clients are told: %v, the agent was to delete the new one: %v", with, told, deleted)
					}
				})
			}
		})
	}
}

// An agent that says behind the time limit that it has opened a session with nothing of the conversation does not say so again: all are told then.
func TestPrompt_ForgottenLate(t *testing.T) {
	for name, row := range map[string]struct{ waits, elsewhere bool }{
		"nobody waits":           {},
		"the next prompt waits":  {waits: true},
		"another process has it": {elsewhere: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, tc := slowSetting(t, t.TempDir(), adapters.Info{})
				turn := func(id acp.ID) (told bool) {
					t.Helper()
					a.answer(a.nextOf(t, "session/prompt"), `{"stopReason":"end_turn"}`)
					before, res := tc.until(id)
					if res.Err() != nil {
						t.Errorf("%s", res.Frame())
					}
					return slices.ContainsFunc(before, func(m acp.Message) bool { return strings.Contains(string(m.Frame()), `"continuity":"fresh"`) })
				}
				id := tc.request("session/prompt", prompt("n", "x"))
				prompted := a.nextOf(t, "session/prompt")
				prompted.to.chunk("n", "hello")
				a.answer(prompted, `{"stopReason":"end_turn"}`)
				tc.until(id)
				tc.ends(a)
				tc.callErr("session/prompt", prompt("n", "y"))
				late := a.nextOf(t, "session/resume")
				a.nextOf(t, acp.MethodCancelRequest)
				forgets := func() { a.answer(late, `{"_meta":{"sandboxagent.dev":{"continuity":"fresh"}}}`) }
				told := false
				switch {
				case row.waits:
					id = tc.request("session/prompt", prompt("n", "z"))
					synctest.Wait()
					forgets()
					takesAll(a.nextOf(t, "session/close"))
					resume := a.nextOf(t, "session/resume")
					synctest.Wait()
					a.answer(resume, `{`+writeAndPlan+`}`) // it does not say so once more
					told = turn(id)
				case row.elsewhere:
					tc.callErr("session/prompt", prompt("n", "z"))
					id = tc.request("session/prompt", prompt("n", "z2"))
					a.answer(a.nextOf(t, "session/resume"), `{`+writeAndPlan+`}`)
					synctest.Wait()
					forgets()
					synctest.Wait()
					told = turn(id)
				default:
					forgets()
					takesAll(a.nextOf(t, "session/close"))
					synctest.Wait()
					for len(tc.frames) > 0 {
						m := tc.next()
						told = told || strings.Contains(string(m.Frame()), `"continuity":"fresh"`)
					}
				}
				want := `"fresh"`
				if row.elsewhere {
					want = `"native"`
				}
				if res := tc.call("session/load", loadOf("n", "/tmp", "")); told == row.elsewhere || member(res, "continuity") != want {
					t.Errorf("clients are told: %v, and who loads it %s", told, res)
				}
			})
		})
	}
}

// What an agent asks for a session that it was asked to open, and that nobody waits for any more, is answered: it may wait for that.
func TestPrompt_AskedBehindTheTimeLimit(t *testing.T) {
	for _, creating := range []bool{false, true} { // a session in the same process, whose id is not known yet
		for _, waits := range []bool{false, true} { // the next prompt
			t.Run(fmt.Sprintf("another is made: %v, a prompt waits: %v", creating, waits), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					a, tc := slowSetting(t, t.TempDir(), adapters.Info{})
					tc.ends(a)
					tc.callErr("session/prompt", prompt("n", "y"))
					late := a.nextOf(t, "session/resume")
					a.nextOf(t, acp.MethodCancelRequest)
					var making sent
					if creating {
						tc.request("session/new", `{"cwd":"/tmp","mcpServers":[]}`)
						making = a.nextOf(t, "session/new")
					}
					if waits {
						tc.request("session/prompt", prompt("n", "z"))
						synctest.Wait()
					}
					late.to.send(asksByItself)
					synctest.Wait()
					takesAll(late)
					var answers []acp.Message
					goesOn := func() {
						for synctest.Wait(); len(a.shared) > 0; synctest.Wait() {
							if m := <-a.shared; m.m.IsResponse() {
								answers = append(answers, m.m)
							} else {
								a.answer(m, `{"stopReason":"end_turn"}`)
							}
						}
					}
					goesOn()
					if creating {
						a.answer(making, `{"sessionId":"m"}`)
						goesOn()
					}
					if len(answers) != 1 || answers[0].ID() != "77" || answers[0].Err() == nil || answers[0].Err().Code != acp.CodeResourceNotFound {
						t.Errorf("it is answered with %v", answers)
					}
				})
			})
		}
	}
}

// A process that opens the session while it is looked whether there is anything to forget knows better: the log may be long.
func TestPrompt_ForgottenAsAnotherOpensIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, tc := slowSetting(t, t.TempDir(), adapters.Info{})
		id := tc.request("session/prompt", prompt("n", "x"))
		prompted := a.nextOf(t, "session/prompt")
		plan := `{"sessionUpdate":"plan","entries":[{"content":"` + strings.Repeat("x", 60_000) + `","priority":"low","status":"pending"}]}`
		for range 200 { // an agent that plans has not answered yet
			prompted.to.update("n", plan)
			tc.next()
		}
		prompted.to.chunk("n", "hello")
		a.answer(prompted, `{"stopReason":"end_turn"}`)
		tc.until(id)
		tc.ends(a)
		tc.callErr("session/prompt", prompt("n", "y"))
		late := a.nextOf(t, "session/resume")
		a.nextOf(t, acp.MethodCancelRequest)
		tc.callErr("session/prompt", prompt("n", "z"))
		a.answer(late, `{"_meta":{"sandboxagent.dev":{"continuity":"fresh"}}}`)
		takesAll(a.nextOf(t, "session/close"))
		id = tc.request("session/prompt", prompt("n", "z2"))
		resume := a.nextOf(t, "session/resume")
		if resume.to == late.to {
			t.Error("the session is opened in the same process")
		}
		was, err := tc.r.Session("n") // it is opened: nothing else counts from now on
		if err != nil {
			t.Fatal(err)
		}
		a.answer(resume, `{`+writeAndPlan+`}`)
		a.answer(a.nextOf(t, "session/prompt"), `{"stopReason":"end_turn"}`)
		if _, res := tc.until(id); res.Err() != nil {
			t.Errorf("%s", res.Frame())
		}
		synctest.Wait()
		if is, err := tc.r.Session("n"); err != nil || is.Continuity != was.Continuity {
			t.Errorf("it has become %s, %v", is.Continuity, err)
		}
	})
}

// An agent that opens a session from elsewhere in the moment in which its client is told that it takes too long has opened it, or has not: it is
// shown once and goes on, or is closed there, and can be opened again.
func TestLoad_AnsweredAsASessionFromElsewhereIsGivenUp(t *testing.T) {
	for round := range 40 { // who comes first is not for a test to say
		synctest.Test(t, func(t *testing.T) {
			a := &fakeAgent{id: "fake", caps: `{"loadSession":true,"sessionCapabilities":{"close":{},"resume":{}}}`, shared: make(chan sent, 64)}
			a.byHand()
			r := openRuntime(t, Options{Ephemeral: true, Adapters: adaptersOf(a), DefaultAgent: "fake", RequestTimeout: setLimit})
			tc := connect(t, r, "")
			began := time.Now()
			opens := func() (id acp.ID, load sent) {
				id = tc.request("session/load", loadOf("f", "/tmp", ""))
				load = a.nextOf(t, "session/load")
				load.to.chunk("f", "hello")
				return id, load
			}
			id, load := opens()
			if round%2 == 0 {
				time.Sleep(setLimit - time.Since(began))
				takesAll(load)
			} else {
				time.AfterFunc(setLimit-time.Since(began), func() { takesAll(load) })
			}
			closed := false
			takes := func(m sent) {
				closed = closed || m.m.Method() == "session/close"
				if m.m.IsRequest() {
					takesAll(m)
				}
			}
			var before []acp.Message
			var res acp.Message
			for res.Frame() == nil {
				select {
				case m := <-tc.frames:
					if m.IsResponse() && m.ID() == id {
						res = m
					} else {
						before = append(before, m)
					}
				case m := <-a.shared:
					takes(m)
				}
			}
			for synctest.Wait(); len(a.shared) > 0; synctest.Wait() {
				takes(<-a.shared)
			}
			if opened := res.Err() == nil; opened == closed || opened && texts(before) != "hello" {
				t.Errorf("it is closed: %v, and the client is shown %q, %s", closed, texts(before), res.Frame())
			}
			if res.Err() != nil {
				id, load = opens()
				takesAll(load)
				if before, res := tc.until(id); res.Err() != nil || texts(before) != "hello" {
					t.Errorf("once more the client is shown %q, %s", texts(before), res.Frame())
				}
			}
			id = tc.request("session/prompt", prompt("f", "z"))
			a.answer(a.nextOf(t, "session/prompt"), `{"stopReason":"end_turn"}`)
			if _, res := tc.until(id); res.Err() != nil {
				t.Errorf("%s", res.Frame())
			}
		})
	}
}

// An agent that asks something of a session whose start was given up is refused at once, also while it makes another one: it may do nothing
// else before.
func TestNew_AsItsAgentAsksOfASessionThatWasGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, tc := slowSetting(t, t.TempDir(), adapters.Info{})
		tc.ends(a)
		tc.callErr("session/prompt", prompt("n", "y"))
		late := a.nextOf(t, "session/resume")
		a.nextOf(t, acp.MethodCancelRequest)
		id := tc.request("session/new", `{"cwd":"/tmp","mcpServers":[]}`)
		making := a.nextOf(t, "session/new")
		if making.to != late.to {
			t.Fatal("it is made by another process")
		}
		late.to.send(asksByItself)
		a.isTold(t, "at once", "session not found")
		a.answer(making, `{"sessionId":"m"}`)
		if _, res := tc.until(id); res.Err() != nil {
			t.Errorf("%s", res.Frame())
		}
	})
}
