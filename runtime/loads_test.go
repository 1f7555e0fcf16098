package runtime

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/adapters"
)

// elsewhere is a gateway with an agent that it has to look for, which answers when it is told to.
func elsewhere(t *testing.T) (*Runtime, *fakeAgent, slowCatalog) {
	t.Helper()
	more := &fakeAgent{id: "more", caps: `{"loadSession":true}`, shared: make(chan sent, 64)}
	slow := slowCatalog{fakeCatalog{more}, make(chan struct{}, 4), make(chan struct{})}
	return openRuntime(t, Options{DataDir: t.TempDir(), Adapters: []adapters.Adapter{&fakeAgent{id: "one"}}, DefaultAgent: "one", Catalog: slow}), more, slow
}

const (
	loadTheirs   = `{"sessionId":"theirs","cwd":"/tmp","mcpServers":[],"_meta":{"sandboxagent.dev":{"agent":"more"}}}`
	cancelTheirs = `{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"theirs"}}`
)

// What is sent for a session that only an agent has waits while that agent is looked for and opens it, whoever sends it. A cancel, or that
// a request is withdrawn, does not wait: what was sent before is answered at once, and what comes behind goes on.
func TestLoad_WhatWaitsBehindIt(t *testing.T) {
	t.Parallel()
	for version, open := range map[int]func(*testing.T, *Runtime, string) *testClient{1: connect, 2: connectTwo} {
		t.Run(fmt.Sprint("version ", version), func(t *testing.T) {
			r, more, slow := elsewhere(t)
			tc, other := open(t, r, ""), open(t, r, "")
			load := tc.request(acp.MethodSessionResume, loadTheirs)
			<-slow.asked
			one, two := tc.request(acp.MethodSessionPrompt, prompt("theirs", "one")), other.request(acp.MethodSessionPrompt, prompt("theirs", "two"))
			withdrawn := tc.request(acp.MethodSessionPrompt, prompt("theirs", "withdrawn"))
			tc.send(`{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":` + string(withdrawn) + `}}`)
			if _, res := tc.until(withdrawn); res.Err() == nil || res.Err().Code != acp.CodeCancelled {
				t.Errorf("what is withdrawn: %s", res.Frame())
			}
			other.send(cancelTheirs)
			for client, id := range map[*testClient]acp.ID{tc: one, other: two} {
				_, res := client.until(id)
				began, _ := rawjson.Member(res.Result(), "_meta", acp.MetaKey, "began")
				if version == 1 && (rawjson.MemberString(res.Result(), "stopReason") != "cancelled" || string(began) != "false") ||
					version == 2 && (res.Err() == nil || res.Err().Code != acp.CodeCancelled) {
					t.Errorf("what is cancelled: %s", res.Frame())
				}
			}
			three, alone := other.request(acp.MethodSessionPrompt, prompt("theirs", "three")), tc.request(acp.MethodSessionPrompt, named("theirs", "four"))
			tc.cancels("session/cancel", only("theirs", "four", ""))
			if _, res := tc.until(alone); (res.Err() != nil) != (version == 2) || version == 1 && rawjson.MemberString(res.Result(), "stopReason") != "cancelled" {
				t.Errorf("what is cancelled alone: %s", res.Frame())
			}
			close(slow.answer)
			more.answer(more.nextOf(t, acp.MethodSessionLoad), `{}`)
			p := more.nextOf(t, acp.MethodSessionPrompt)
			if !strings.Contains(string(p.m.Params()), "three") {
				t.Errorf("the agent was given %s", p.m.Frame())
			}
			more.answer(p, `{"stopReason":"end_turn"}`)
			for client, id := range map[*testClient]acp.ID{tc: load, other: three} {
				if _, res := client.until(id); res.Err() != nil {
					t.Errorf("%s", res.Frame())
				}
			}
		})
	}
}

// When as much waits as may, more is refused, and a cancel is for all that waits.
func TestLoad_AsMuchAsMayWaitBehindIt(t *testing.T) {
	t.Parallel()
	r, more, slow := elsewhere(t)
	tc := connect(t, r, "")
	load := tc.request(acp.MethodSessionLoad, loadTheirs)
	<-slow.asked
	for range maxBehind {
		tc.request(acp.MethodSessionPrompt, prompt("theirs", "waits"))
	}
	if e := tc.callErr(acp.MethodSessionPrompt, prompt("theirs", "one more")); !strings.Contains(e.Message, "wait for the session to be loaded already") {
		t.Error(e)
	}
	tc.send(cancelTheirs)
	for range maxBehind {
		if m := tc.next(); rawjson.MemberString(m.Result(), "stopReason") != "cancelled" {
			t.Fatalf("%s", m.Frame())
		}
	}
	last := tc.request(acp.MethodSessionPrompt, prompt("theirs", "last"))
	close(slow.answer)
	more.answer(more.nextOf(t, acp.MethodSessionLoad), `{}`)
	p := more.nextOf(t, acp.MethodSessionPrompt)
	if !strings.Contains(string(p.m.Params()), "last") {
		t.Errorf("the agent was given %s", p.m.Frame())
	}
	more.answer(p, `{"stopReason":"end_turn"}`)
	for open := 2; open > 0; {
		if m := tc.next(); m.IsResponse() && (m.ID() == load || m.ID() == last) {
			open--
		}
	}
}

// A load whose agent is not found is over, and so is what waits for it.
func TestLoad_WhoseAgentIsNotFound(t *testing.T) {
	t.Parallel()
	r, _, slow := elsewhere(t)
	tc := connect(t, r, "")
	load := tc.request(acp.MethodSessionLoad, strings.Replace(loadTheirs, "more", "nobody", 1))
	<-slow.asked
	turn := tc.request(acp.MethodSessionPrompt, prompt("theirs", "x"))
	close(slow.answer)
	for _, id := range []acp.ID{load, turn} {
		if _, res := tc.until(id); res.Err() == nil {
			t.Errorf("%s", res.Frame())
		}
	}
}

// A client of version 2 sets the mode of a session behind its load by what its agent says of it then.
func TestLoad_ModeThatIsSetBehindIt(t *testing.T) {
	t.Parallel()
	r, more, slow := elsewhere(t)
	two := connectTwo(t, r, "")
	two.request(acp.MethodSessionResume, loadTheirs)
	<-slow.asked
	set := two.request(acp.MethodSessionSetConfigOption, `{"sessionId":"theirs","configId":"mode","type":"id","value":"plan"}`)
	close(slow.answer)
	more.answer(more.nextOf(t, acp.MethodSessionLoad), `{"modes":{"currentModeId":"ask","availableModes":[{"id":"ask","name":"Ask"},{"id":"plan","name":"Plan"}]}}`)
	m := more.nextOf(t, acp.MethodSessionSetMode)
	if mode := rawjson.MemberString(m.m.Params(), "modeId"); mode != "plan" {
		t.Errorf("the agent was told %s", m.m.Frame())
	}
	more.answer(m, `{}`)
	if _, res := two.until(set); !strings.Contains(string(res.Result()), `"currentValue":"plan"`) {
		t.Errorf("%s", res.Frame())
	}
	if res := connect(t, r, "").call(acp.MethodSessionResume, loadTheirs); rawjson.MemberString([]byte(res), "modes", "currentModeId") != "plan" {
		t.Errorf("the session is told with %s", res)
	}
}

// Who opens a session of an agent and does not read what it is shown keeps nobody from using the session.
func TestLoad_OfAClientThatDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &fakeAgent{id: "fake", caps: `{"loadSession":true}`, shared: make(chan sent, 64)}
		r := openRuntime(t, Options{DataDir: t.TempDir(), Adapters: adaptersOf(a), DefaultAgent: "fake"})
		c, err := initialize(r, "")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Stream("", nil); err != nil {
			t.Fatal(err)
		}
		if err := c.Send(t.Context(), acp.NewRequest("1", acp.MethodSessionLoad, []byte(loadOf("theirs", "/tmp", `,"mcpServers":[]`)))); err != nil {
			t.Fatal(err)
		}
		m := a.nextOf(t, acp.MethodSessionLoad)
		m.to.chunk("theirs", "old")
		a.answer(m, `{}`)
		synctest.Wait()
		tc := connect(t, r, "")
		tc.request(acp.MethodSessionPrompt, prompt("theirs", "x"))
		synctest.Wait() // no time passes
		if len(a.shared) != 1 {
			t.Errorf("the agent was sent %d messages", len(a.shared))
		}
	})
}

// What waits behind a load, and is for an agent that does not read, keeps nothing waiting that comes behind it.
func TestLoad_ThenAnAgentThatDoesNotRead(t *testing.T) {
	t.Parallel()
	reads, loading := make(chan struct{}), make(chan acp.Message, 1)
	a := &fakeAgent{caps: `{"loadSession":true}`}
	a.handle = func(_ *fakeConn, m acp.Message) {
		switch m.Method() {
		case acp.MethodSessionLoad:
			loading <- m
		case "_vendor/note", acp.MethodSessionSetMode:
			<-reads
		}
	}
	r := newRuntime(t, t.TempDir(), a)
	defer close(reads)
	tc, other := connect(t, r, ""), connect(t, r, "")
	tc.request(acp.MethodSessionLoad, loadOf("theirs", "/tmp", `,"mcpServers":[]`))
	m := <-loading
	tc.send(`{"jsonrpc":"2.0","method":"_vendor/note","params":{"sessionId":"theirs"}}`)
	tc.request(acp.MethodSessionSetMode, `{"sessionId":"theirs","modeId":"m"}`)
	id := other.request("_sandboxagent/session/set_metadata", `{"sessionId":"theirs","metadata":{"a":1}}`)
	a.conn().result(m, `{}`)
	if _, res := other.until(id); res.Err() != nil {
		t.Errorf("%s", res.Frame())
	}
}

// A cancel that comes while the session is loaded, and works still, is told once.
func TestLoad_CancelOfATurnBeforeIt(t *testing.T) {
	t.Parallel()
	a := &fakeAgent{id: "fake", caps: reopening, shared: make(chan sent, 64)}
	r := newRuntime(t, t.TempDir(), a)
	tc := connect(t, r, "")
	s := tc.session()
	open := map[acp.ID]string{tc.request(acp.MethodSessionPrompt, prompt(s, "one")): "cancelled"}
	p := a.nextOf(t, acp.MethodSessionPrompt)
	tc.request(acp.MethodSessionClose, `{"sessionId":"`+s+`"}`)
	a.nextOf(t, acp.MethodSessionCancel)
	tc.request(acp.MethodSessionLoad, loadOf(s, "/tmp", `,"mcpServers":[`+serverA+`]`))
	open[tc.request(acp.MethodSessionPrompt, prompt(s, "two"))] = "cancelled"
	tc.send(`{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"` + s + `"}}`)
	a.nextOf(t, acp.MethodSessionCancel)
	open[tc.request(acp.MethodSessionPrompt, prompt(s, "three"))] = "end_turn"
	a.answer(p, `{"stopReason":"cancelled"}`)
	a.answer(a.nextOf(t, acp.MethodSessionClose), `{}`)
	a.answer(a.nextOf(t, acp.MethodSessionResume), `{}`)
	a.answer(a.nextOf(t, acp.MethodSessionPrompt), `{"stopReason":"end_turn"}`)
	for len(open) > 0 {
		m := tc.next()
		if want := open[m.ID()]; m.IsResponse() && want != "" {
			if got := rawjson.MemberString(m.Result(), "stopReason"); got != want {
				t.Errorf("want %s: %s", want, m.Frame())
			}
			delete(open, m.ID())
		}
	}
	events, _, err := r.Events(t.Context(), s, 0, 0)
	if got := strings.Count(strings.Join(messages(events), "\n"), acp.MethodSessionCancel); err != nil || got != 1 {
		t.Errorf("the log has %d cancels, %v", got, err)
	}
}

// Who finds a session while it is being made has its agent do nothing before it is held to what it was asked for with. Where the agent
// cannot be held to that there is no session, and nothing was done in one.
func TestNew_PromptBeforeItIsHeldToReading(t *testing.T) {
	for name, tt := range map[string]struct{ forks, refuses bool }{"new": {}, "new, refused": {refuses: true}, "fork": {forks: true}, "fork, refused": {true, true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := &fakeAgent{id: "fake", caps: `{"sessionCapabilities":{"fork":{},"close":{}}}`, shared: make(chan sent, 64)}
			a.byHand()
			r := newRuntime(t, t.TempDir(), a)
			tc, other := connect(t, r, ""), connect(t, r, "")
			makes := func(method, params, native string) acp.ID {
				id := tc.request(method, params)
				a.answer(a.nextOf(t, method), in("write", `{"sessionId":"`+native+`",`+offersOf+`}`))
				return id
			}
			var id acp.ID
			if reads := own(`"permissionMode":"readonly"`); tt.forks {
				tc.until(makes("session/new", `{"cwd":"/tmp","mcpServers":[]}`, "n"))
				id = makes("session/fork", loadOf("n", "/tmp", reads), "made")
			} else {
				id = makes("session/new", `{"cwd":"/tmp","mcpServers":[]`+reads+`}`, "made")
			}
			set := a.nextOf(t, "session/set_mode")
			turn := other.request("session/prompt", prompt("made", "x"))
			mode := other.request("session/set_mode", `{"sessionId":"made","modeId":"write"}`)
			other.call("_sandboxagent/session/set_metadata", `{"sessionId":"made","metadata":{"a":1}}`) // what was sent before was looked at by now
			select {
			case m := <-a.shared:
				t.Errorf("the agent was sent %s", m.m.Frame())
			default:
			}
			if tt.refuses {
				a.refuse(set, "not now")
				for who, id := range map[*testClient]acp.ID{tc: id, other: turn} {
					if _, res := who.until(id); res.Err() == nil {
						t.Errorf("%s", res.Frame())
					}
				}
				return
			}
			a.answer(set, `{}`)
			a.answer(a.nextOf(t, "session/prompt"), `{"stopReason":"end_turn"}`)
			a.answer(a.nextOf(t, "session/set_mode"), `{}`)
			for _, of := range []acp.ID{turn, mode} {
				if _, res := other.until(of); res.Err() != nil {
					t.Errorf("%s", res.Frame())
				}
			}
			tc.until(id)
		})
	}
}
