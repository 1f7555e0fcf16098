package runtime

import (
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/adapters"
)

// offersOf are the modes and the models of an agent, which is in mode MODE.
const offersOf = `"modes":{"currentModeId":"MODE","availableModes":[{"id":"write","name":"Write"},{"id":"plan","name":"Plan","description":"Read-only mode"}]},
	"configOptions":[{"id":"m","name":"Model","category":"model","type":"select","currentValue":"big","options":[{"value":"big","name":"Big"},{"value":"small","name":"Small"}]}]`

// offering is a gateway with an agent that offers settings, and a session there, asked for with more, in mode write.
func offering(t *testing.T, info adapters.Info, more string) (*fakeAgent, *testClient, string) {
	t.Helper()
	a := &fakeAgent{id: "fake", caps: reopening, info: info, shared: make(chan sent, 64)}
	a.byHand()
	tc := connect(t, newRuntime(t, t.TempDir(), a), "")
	id := tc.request("session/new", `{"cwd":"/tmp","mcpServers":[`+serverA+`]`+more+`}`)
	a.answer(a.nextOf(t, "session/new"), in("write", `{"sessionId":"n",`+offersOf+`}`))
	if more != "" {
		return a, tc, string(id)
	}
	_, res := tc.until(id)
	return a, tc, rawjson.MemberString(res.Result(), "sessionId")
}

func own(fields string) string { return `,"_meta":{"sandboxagent.dev":{` + fields + `}}` }

func notHeld(t *testing.T, res *acp.Message, why string) {
	t.Helper()
	if e := res.Err(); e == nil || !strings.Contains(e.Message, why) || !strings.Contains(string(e.Data), "mode_not_supported") {
		t.Errorf("want %q: %s", why, res.Frame())
	}
}

// begins has the agent of a session that has no process started for a prompt, and returns how it is asked to open the session.
func (tc *testClient) begins(t *testing.T, a *fakeAgent, s string) (prompted acp.ID, opened sent) {
	t.Helper()
	prompted = tc.request("session/prompt", prompt(s, "x"))
	return prompted, a.nextOf(t, "session/resume")
}

// ends has the process end that serves the session.
func (tc *testClient) ends(a *fakeAgent) {
	tc.t.Helper()
	a.conn().crash(errCrash)
	tc.nextOf("_sandboxagent/session/ended")
}

// A load that wants a session to read only is refused whenever the agent refuses that, and changes nothing.
func TestLoad_ReadonlyThatTheAgentRefuses(t *testing.T) {
	t.Parallel()
	a, tc, s := offering(t, adapters.Info{}, "")
	load := loadOf(s, "/tmp", `,"mcpServers":[`+serverB+`]`+own(`"permissionMode":"readonly"`))
	for range 2 {
		id := tc.request("session/load", load)
		a.refuse(a.nextOf(t, "session/set_mode"), "the folder is not trusted")
		_, res := tc.until(id)
		notHeld(t, &res, "the folder is not trusted")
	}
	unchanged := func() {
		t.Helper()
		id, opened := tc.begins(t, a, s)
		if got := given(opened, "mcpServers") + given(opened, "_meta"); got != "["+serverA+"]" {
			t.Errorf("opened with %s", got)
		}
		a.answer(opened, in("write", `{`+offersOf+`}`))
		a.answer(a.nextOf(t, "session/prompt"), `{"stopReason":"end_turn"}`)
		tc.until(id)
	}
	tc.ends(a)
	unchanged()

	// It is refused as the session is opened anew.
	id := tc.request("session/load", load)
	a.answer(a.nextOf(t, "session/set_mode"), `{}`)
	a.answer(a.nextOf(t, "session/close"), `{}`)
	a.answer(a.nextOf(t, "session/resume"), in("write", `{`+offersOf+`}`))
	a.refuse(a.nextOf(t, "session/set_mode"), "b may not be used so")
	a.answer(a.nextOf(t, "session/close"), `{}`)
	_, res := tc.until(id)
	notHeld(t, &res, "b may not be used so")
	unchanged()

	// Once it is taken it holds, with the rest.
	id = tc.request("session/load", load)
	a.answer(a.nextOf(t, "session/set_mode"), `{}`)
	a.answer(a.nextOf(t, "session/close"), `{}`)
	opened := a.nextOf(t, "session/resume")
	if got := given(opened, "mcpServers"); got != "["+serverB+"]" {
		t.Errorf("opened with %s", got)
	}
	a.answer(opened, in("write", `{`+offersOf+`}`))
	a.answer(a.nextOf(t, "session/set_mode"), `{}`)
	if _, res := tc.until(id); res.Err() != nil || member(string(res.Result()), "unsupported") != "" || rawjson.MemberString(res.Result(), "modes", "currentModeId") != "plan" {
		t.Errorf("%s", res.Frame())
	}
	if res := tc.call("session/load", load); member(res, "unsupported") != "" {
		t.Error(res)
	}
}

// The same where it is the agent's adapter that takes it, with the session.
func TestLoad_ReadonlyThatTheAdapterTakes(t *testing.T) {
	t.Parallel()
	a, tc, s := offering(t, adapters.Info{Takes: []string{"permissionMode"}}, "")
	turn := tc.request("session/prompt", prompt(s, "x"))
	p := a.nextOf(t, "session/prompt")
	for range 2 {
		_, res := tc.until(tc.request("session/resume", loadOf(s, "/tmp", own(`"permissionMode":"readonly"`))))
		notHeld(t, &res, "is working")
	}
	a.conn().chunk("n", "an answer")
	a.answer(p, `{"stopReason":"end_turn"}`)
	tc.until(turn)
	tc.ends(a)

	// With a wrong setting it goes on with the one that it had, and reads only.
	if res := tc.call("session/resume", loadOf(s, "/tmp", `,"mcpServers":[`+serverB+`]`+own(`"permissionMode":"readonly"`))); member(res, "unsupported") != "" {
		t.Error(res)
	}
	opens := func(servers string) sent {
		t.Helper()
		m := a.nextOf(t, "session/resume")
		if got := given(m, "mcpServers"); got != "["+servers+"]" || given(m, "_meta", acp.MetaKey, "permissionMode") != `"readonly"` {
			t.Errorf("opened with %s", m.m.Frame())
		}
		return m
	}
	id := tc.request("session/prompt", prompt(s, "x"))
	a.refuse(opens(serverB), "b does not start")
	a.answer(opens(serverA), `{}`)
	a.answer(a.nextOf(t, "session/prompt"), `{"stopReason":"end_turn"}`)
	tc.until(id)
	tc.ends(a)

	// One that the agent does not open so is not opened to do more.
	id = tc.request("session/prompt", prompt(s, "x"))
	a.refuse(opens(serverA), "it cannot only read")
	if _, res := tc.until(id); res.Err() == nil || !strings.Contains(res.Err().Message, "it cannot only read") {
		t.Errorf("%s", res.Frame())
	}
}

// What an agent refuses is no setting of the session: who asks for it again is told again.
func TestLoad_WhatTheAgentRefuses(t *testing.T) {
	for name, tt := range map[string]struct{ asked, method, why string }{
		"a mode":                {`"mode":"plan"`, "session/set_mode", "not now"},
		"a permission mode":     {`"permissionMode":"bypass"`, "", "none of the modes"},
		"a mode, with one":      {`"permissionMode":"write","mode":"plan"`, "session/set_mode", "not now"},
		"a model":               {`"model":"small"`, "session/set_config_option", "not now"},
		"an option there isn't": {`"variant":"high"`, "", "offers no option"},
		"a field not taken":     {`"instructions":"be brief"`, "", "does not take it"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			told := func(what string, res string) {
				t.Helper()
				if got := member(res, "unsupported"); !strings.Contains(got, tt.why) {
					t.Errorf("%s: unsupported is %s, want %q", what, got, tt.why)
				}
			}
			refused := func(a *fakeAgent, tc *testClient, id acp.ID) string {
				t.Helper()
				if tt.method != "" {
					a.refuse(a.nextOf(t, tt.method), "not now")
				}
				_, res := tc.until(id)
				return string(res.Result())
			}
			a, tc, s := offering(t, adapters.Info{}, "")
			for range 2 {
				told("a load", refused(a, tc, tc.request("session/load", loadOf(s, "/tmp", own(tt.asked)))))
			}
			a, tc, id := offering(t, adapters.Info{}, own(tt.asked))
			res := refused(a, tc, acp.ID(id))
			told("as it is made", res)
			s = rawjson.MemberString([]byte(res), "sessionId")
			told("a load of what was made so", refused(a, tc, tc.request("session/load", loadOf(s, "/tmp", own(tt.asked)))))
			if tt.method == "" || strings.Contains(tt.asked, "permissionMode") {
				return
			}
			// It is chosen for an agent that does not run, and that refuses it then.
			tc.ends(a)
			if res := tc.call("session/load", loadOf(s, "/tmp", own(tt.asked))); member(res, "unsupported") != "" {
				t.Error(res)
			}
			turn, opened := tc.begins(t, a, s)
			a.answer(opened, in("write", `{`+offersOf+`}`))
			a.refuse(a.nextOf(t, tt.method), "not now")
			a.answer(a.nextOf(t, "session/prompt"), `{"stopReason":"end_turn"}`)
			tc.until(turn)
			told("a load of what was chosen so", refused(a, tc, tc.request("session/load", loadOf(s, "/tmp", own(tt.asked)))))
		})
	}
}

// A load that comes while the agent is started for the session has its effect there: the agent may have been told before what it
// was to be told. What it asks for is added to the settings as they are then.
func TestLoad_WhileTheAgentIsStarted(t *testing.T) {
	t.Parallel()
	a, tc, s := offering(t, adapters.Info{}, "")
	tc.ends(a)
	if res := tc.call("session/load", loadOf(s, "/tmp", `,"mcpServers":[`+serverB+`]`)); member(res, "unsupported") != "" {
		t.Error(res)
	}
	turn, opened := tc.begins(t, a, s)
	load := tc.request("session/load", loadOf(s, "/tmp", own(`"permissionMode":"readonly","model":"small","title":"mine"`)))
	a.refuse(opened, "b does not start")
	opened = a.nextOf(t, "session/resume")
	a.answer(opened, in("write", `{`+offersOf+`}`))
	p := a.nextOf(t, "session/prompt") // it was asked before
	a.answer(a.nextOf(t, "session/set_mode"), `{}`)
	a.answer(a.nextOf(t, "session/set_config_option"), `{}`)
	if _, res := tc.until(load); res.Err() != nil || member(string(res.Result()), "unsupported") != "" {
		t.Errorf("%s", res.Frame())
	}
	a.answer(p, `{"stopReason":"end_turn"}`)
	tc.until(turn)
	tc.ends(a)
	_, opened = tc.begins(t, a, s)
	if got := given(opened, "mcpServers"); got != "["+serverA+"]" {
		t.Errorf("opened with %s", got)
	}
	a.answer(opened, in("write", `{`+offersOf+`}`))
	a.answer(a.nextOf(t, "session/set_config_option"), `{}`)
	a.answer(a.nextOf(t, "session/set_mode"), `{}`)
	a.nextOf(t, "session/prompt")
}

// A load that wants a session to read only counts for more than a mode that somebody chose before, or that it names, too.
func TestLoad_ReadonlyAfterAnotherMode(t *testing.T) {
	for name, dormant := range map[string]bool{"idle": false, "without a process": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, tc, s := offering(t, adapters.Info{Takes: []string{"permissionMode"}}, "")
			id := tc.request("session/set_mode", `{"sessionId":"`+s+`","modeId":"write"}`)
			a.answer(a.nextOf(t, "session/set_mode"), `{}`)
			tc.until(id)
			if dormant {
				tc.ends(a)
			}
			id = tc.request("session/load", loadOf(s, "/tmp", own(`"permissionMode":"readonly","mode":"write"`)))
			if dormant {
				tc.until(id)
				id = tc.request("session/prompt", prompt(s, "x"))
			} else {
				a.answer(a.nextOf(t, "session/close"), `{}`)
			}
			a.answer(a.nextOf(t, "session/resume"), in("plan", `{`+offersOf+`}`))
			if !dormant {
				tc.until(id)
				id = tc.request("session/prompt", prompt(s, "x"))
			}
			a.answer(a.nextOf(t, "session/prompt"), `{"stopReason":"end_turn"}`)
			tc.until(id)
			tc.ends(a)
			_, opened := tc.begins(t, a, s)
			a.answer(opened, in("plan", `{`+offersOf+`}`))
			a.nextOf(t, "session/prompt")
		})
	}
}

// A session that is made to read only is in no other mode that is asked for with it, whoever sees to that.
func TestNew_ReadonlyWithAMode(t *testing.T) {
	t.Parallel()
	wish := own(`"permissionMode":"readonly","mode":"write"`)
	_, tc, id := offering(t, adapters.Info{Takes: []string{"permissionMode"}}, wish) // the agent is not asked for more
	_, res := tc.until(acp.ID(id))
	s := rawjson.MemberString(res.Result(), "sessionId")
	for what, got := range map[string]string{"made": string(res.Result()), "loaded": tc.call("session/load", loadOf(s, "/tmp", wish))} {
		if told := member(got, "unsupported"); !strings.Contains(told, `"field":"mode"`) {
			t.Errorf("%s: %s", what, got)
		}
	}
}

// What a session was made with, sent again, does not have it do more than read.
func TestLoad_ReadonlyIsAskedForAgain(t *testing.T) {
	t.Parallel()
	wish := own(`"permissionMode":"readonly","mode":"write"`)
	a, tc, id := offering(t, adapters.Info{}, own(`"permissionMode":"readonly"`))
	a.answer(a.nextOf(t, "session/set_mode"), `{}`)
	_, res := tc.until(acp.ID(id))
	s := rawjson.MemberString(res.Result(), "sessionId")
	reads := func() {
		t.Helper()
		if res := tc.call("session/load", loadOf(s, "/tmp", wish)); rawjson.MemberString([]byte(res), "modes", "currentModeId") != "plan" {
			t.Error(res)
		}
	}
	reads()
	tc.ends(a)

	// The agent refuses to be held to it, which changes nothing of what is asked for.
	for range 2 {
		turn, opened := tc.begins(t, a, s)
		a.answer(opened, in("write", `{`+offersOf+`}`))
		set := a.nextOf(t, "session/set_mode")
		if got := given(set, "modeId"); got != `"plan"` {
			t.Errorf("set to %s", got)
		}
		a.refuse(set, "not now")
		a.answer(a.nextOf(t, "session/close"), `{}`)
		_, res := tc.until(turn)
		notHeld(t, &res, "not now")
		tc.call("session/load", loadOf(s, "/tmp", wish))
	}
}

// One that was made with a mode beside it, which its agent is not asked for, does not get it by asking again.
func TestLoad_ReadonlyWithAModeBesideIt(t *testing.T) {
	t.Parallel()
	wish := own(`"permissionMode":"readonly","mode":"other"`)
	a, tc, id := offering(t, adapters.Info{}, wish)
	set := a.nextOf(t, "session/set_mode")
	a.answer(set, `{}`)
	_, res := tc.until(acp.ID(id))
	if told := member(string(res.Result()), "unsupported"); given(set, "modeId") != `"plan"` || !strings.Contains(told, `"field":"mode"`) {
		t.Errorf("set to %s, and told %s", given(set, "modeId"), told)
	}
	s := rawjson.MemberString(res.Result(), "sessionId")
	if res := tc.call("session/load", loadOf(s, "/tmp", wish)); rawjson.MemberString([]byte(res), "modes", "currentModeId") != "plan" {
		t.Error(res)
	}
}

// It is as well where an adapter that takes it says of the agent that it does not keep it. No prompt gets there.
func TestLoad_ReadonlyThatTheAdapterCannotKeep(t *testing.T) {
	t.Parallel()
	a, tc, s := offering(t, adapters.Info{Takes: []string{"permissionMode"}}, "")
	load := loadOf(s, "/tmp", own(`"permissionMode":"readonly"`))
	refused := func(id acp.ID) {
		t.Helper()
		a.answer(a.nextOf(t, "session/resume"), `{"_meta":{"sandboxagent.dev":{"unsupported":[{"field":"permissionMode","reason":"too old for it"}]}}}`)
		a.answer(a.nextOf(t, "session/close"), `{}`)
		_, res := tc.until(id)
		notHeld(t, &res, "too old for it")
	}
	id := tc.request("session/load", load)
	a.answer(a.nextOf(t, "session/close"), `{}`)
	refused(id)
	tc.call("session/load", load) // has its effect when the agent is started
	refused(tc.request("session/prompt", prompt(s, "x")))
	tc.call("session/load", load)
	refused(tc.request("session/prompt", prompt(s, "x")))
}

// A permissionMode whose mode the agent refuses as it is started is no setting of the session.
func TestLoad_PermissionModeThatIsRefusedLater(t *testing.T) {
	t.Parallel()
	a, tc, s := offering(t, adapters.Info{PermissionModes: map[string]string{"write": "write"}}, "")
	load := loadOf(s, "/tmp", own(`"permissionMode":"write"`))
	tc.ends(a)
	tc.call("session/load", load)
	turn, opened := tc.begins(t, a, s)
	a.answer(opened, in("plan", `{`+offersOf+`}`))
	a.refuse(a.nextOf(t, "session/set_mode"), "not now")
	a.answer(a.nextOf(t, "session/prompt"), `{"stopReason":"end_turn"}`)
	tc.until(turn)
	id := tc.request("session/load", load)
	a.refuse(a.nextOf(t, "session/set_mode"), "not now")
	if _, res := tc.until(id); !strings.Contains(member(string(res.Result()), "unsupported"), "not now") {
		t.Errorf("%s", res.Frame())
	}
}

// A load that wants a session to read only says so again when somebody has chosen another mode since, or the agent has gone over to one:
// it is held then, or refused. Who goes on behind an event, as clients do that connect again by themselves, only repeats what it has
// said before, and is told how it is.
func TestLoad_ReadonlyOnceMore(t *testing.T) {
	reads := own(`"permissionMode":"readonly"`)
	for name, tt := range map[string]struct {
		takes         bool // the adapter takes permissionMode
		byAgent, ends bool // who changes the mode; the process ends then
	}{
		"by a mode":               {},
		"by a mode, it goes over": {byAgent: true},
		"by a mode, dormant":      {ends: true},
		"taken":                   {takes: true},
		"taken, it goes over":     {takes: true, byAgent: true},
		"taken, dormant":          {takes: true, ends: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var info adapters.Info
			first := "write"
			if tt.takes {
				info, first = adapters.Info{Takes: []string{"permissionMode"}}, "plan"
			}
			a := &fakeAgent{id: "fake", caps: reopening, info: info, shared: make(chan sent, 64)}
			a.byHand()
			r := newRuntime(t, t.TempDir(), a)
			tc, other := connect(t, r, ""), connect(t, r, "")
			id := tc.request("session/new", `{"cwd":"/tmp","mcpServers":[]`+reads+`}`)
			a.answer(a.nextOf(t, "session/new"), in(first, `{"sessionId":"n",`+offersOf+`}`))
			if !tt.takes {
				a.answer(a.nextOf(t, "session/set_mode"), `{}`)
			}
			_, res := tc.until(id)
			s := rawjson.MemberString(res.Result(), "sessionId")
			tc.call("session/load", loadOf(s, "/tmp", reads)) // nothing has changed
			if tt.byAgent {
				goesOver(a.conn(), "n", "write", false)
				tc.nextOf("session/update")
			} else {
				set := other.request("session/set_mode", `{"sessionId":"`+s+`","modeId":"write"}`)
				a.answer(a.nextOf(t, "session/set_mode"), `{}`)
				other.until(set)
			}
			if tt.ends {
				tc.ends(a)
			}
			repeats := connect(t, r, "").call("session/resume", loadOf(s, "/tmp", own(`"permissionMode":"readonly","after":0`)))
			if told := member(repeats, "unsupported"); !strings.Contains(told, "in mode write") {
				t.Errorf("who goes on is told %s", repeats)
			}
			if tt.takes && !tt.ends {
				turn := other.request("session/prompt", prompt(s, "x"))
				p := a.nextOf(t, "session/prompt")
				_, res := tc.until(tc.request("session/load", loadOf(s, "/tmp", reads)))
				notHeld(t, &res, "is working")
				a.answer(p, `{"stopReason":"end_turn"}`)
				other.until(turn)
			}
			// Who has it open does not connect again, and asks on purpose.
			id = tc.request("session/resume", loadOf(s, "/tmp", own(`"permissionMode":"readonly","after":0`)))
			switch {
			case tt.ends:
				tc.until(id)
				_, opened := tc.begins(t, a, s)
				a.answer(opened, in(first, `{`+offersOf+`}`))
				if !tt.takes {
					a.answer(a.nextOf(t, "session/set_mode"), `{}`)
				}
				a.nextOf(t, "session/prompt")
				return
			case tt.takes:
				a.answer(a.nextOf(t, "session/close"), `{}`)
				a.answer(a.nextOf(t, "session/resume"), in("plan", `{`+offersOf+`}`))
			default:
				set := a.nextOf(t, "session/set_mode")
				if got := given(set, "modeId"); got != `"plan"` {
					t.Errorf("set to %s", got)
				}
				a.answer(set, `{}`)
			}
			if _, res := tc.until(id); res.Err() != nil || rawjson.MemberString(res.Result(), "modes", "currentModeId") != "plan" {
				t.Errorf("%s", res.Frame())
			}
			tc.ends(a)
			_, opened := tc.begins(t, a, s)
			a.answer(opened, in("plan", `{`+offersOf+`}`))
			a.nextOf(t, "session/prompt")
		})
	}
}

// What an adapter takes and refuses as it opens the session is no setting of it either.
func TestLoad_WhatTheAdapterRefuses(t *testing.T) {
	const says = `"_meta":{"sandboxagent.dev":{"unsupported":[{"field":"permissionMode","reason":"there is no such mode"},{"field":"skills","reason":"one is not there"}]}}`
	wish := own(`"permissionMode":"bypass","skills":{"paths":["/s"]}`)
	for name, loads := range map[string]bool{"made": false, "loaded": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := &fakeAgent{id: "fake", caps: reopening, info: adapters.Info{Takes: []string{"permissionMode", "skills"}}, shared: make(chan sent, 64)}
			a.byHand()
			tc := connect(t, newRuntime(t, t.TempDir(), a), "")
			told := func(id acp.ID) (session string) {
				t.Helper()
				_, res := tc.until(id)
				if got := member(string(res.Result()), "unsupported"); !strings.Contains(got, "there is no such mode") {
					t.Errorf("%s", res.Frame())
				}
				return rawjson.MemberString(res.Result(), "sessionId")
			}
			more, result := wish, `,`+says
			if loads {
				more, result = "", ""
			}
			id := tc.request("session/new", `{"cwd":"/tmp","mcpServers":[]`+more+`}`)
			a.answer(a.nextOf(t, "session/new"), `{"sessionId":"n"`+result+`}`)
			if loads {
				tc.until(id)
			} else {
				told(id)
			}
			for range 2 {
				id = tc.request("session/load", loadOf("n", "/tmp", wish))
				a.answer(a.nextOf(t, "session/close"), `{}`)
				opened := a.nextOf(t, "session/resume")
				if got := given(opened, "_meta", acp.MetaKey, "permissionMode"); got != `"bypass"` {
					t.Errorf("opened with %s", opened.m.Frame())
				}
				a.answer(opened, `{`+says+`}`)
				told(id)
			}
			// The other skills go on.
			tc.ends(a)
			_, opened := tc.begins(t, a, "n")
			if given(opened, "_meta", acp.MetaKey, "skills") == "" || given(opened, "_meta", acp.MetaKey, "permissionMode") != "" {
				t.Errorf("opened with %s", opened.m.Frame())
			}
		})
	}
}

// One that is to read only is none where the adapter says that it cannot be held to that.
func TestNew_ReadonlyThatTheAdapterCannotKeep(t *testing.T) {
	t.Parallel()
	a := &fakeAgent{id: "fake", caps: reopening, info: adapters.Info{Takes: []string{"permissionMode"}}, shared: make(chan sent, 64)}
	a.handle = func(f *fakeConn, m acp.Message) { a.shared <- sent{f, m} }
	tc := connect(t, newRuntime(t, t.TempDir(), a), "")
	id := tc.request("session/new", `{"cwd":"/tmp","mcpServers":[]`+own(`"permissionMode":"readonly"`)+`}`)
	a.answer(a.nextOf(t, "session/new"), `{"sessionId":"n","_meta":{"sandboxagent.dev":{"unsupported":[{"field":"permissionMode","reason":"too old for it"}]}}}`)
	_, res := tc.until(id)
	notHeld(t, &res, "too old for it")
}

// A model that is refused beside what has a session opened anew is no setting of it.
func TestLoad_ModelRefusedBesideServers(t *testing.T) {
	t.Parallel()
	a, tc, s := offering(t, adapters.Info{}, "")
	for n, servers := range []string{serverB, serverA} {
		id := tc.request("session/load", loadOf(s, "/tmp", `,"mcpServers":[`+servers+`]`+own(`"model":"small"`)))
		a.answer(a.nextOf(t, "session/close"), `{}`)
		a.answer(a.nextOf(t, "session/resume"), in("write", `{`+offersOf+`}`))
		a.refuse(a.nextOf(t, "session/set_config_option"), "not now")
		if _, res := tc.until(id); !strings.Contains(member(string(res.Result()), "unsupported"), "not now") {
			t.Errorf("load %d: %s", n, res.Frame())
		}
	}
}

// A permissionMode that is taken away takes the agent back to the mode in which it was, unless a client has chosen one since. Where that
// is not known the session keeps it, and who asks is told.
func TestLoad_TakesAPermissionModeAway(t *testing.T) {
	for _, gone := range []string{"null", `"default"`} {
		for name, tt := range map[string]struct {
			ends, chosen, unknown bool
		}{"idle": {}, "dormant": {ends: true}, "another chosen": {chosen: true}, "not known": {unknown: true}} {
			t.Run(gone+" "+name, func(t *testing.T) {
				t.Parallel()
				a := &fakeAgent{id: "fake", caps: reopening, info: adapters.Info{PermissionModes: map[string]string{"bypass": "write"}}, shared: make(chan sent, 64)}
				a.byHand()
				tc := connect(t, newRuntime(t, t.TempDir(), a), "")
				first := "ask"
				if tt.unknown {
					first = "write" // in which it begins
				}
				id := tc.request("session/new", `{"cwd":"/tmp","mcpServers":[]`+own(`"permissionMode":"bypass"`)+`}`)
				a.answer(a.nextOf(t, "session/new"), in(first, `{"sessionId":"n",`+modesOf+`}`))
				a.answer(a.nextOf(t, "session/set_mode"), `{}`)
				tc.until(id)
				want := "ask"
				if tt.chosen {
					id := tc.request("session/set_mode", `{"sessionId":"n","modeId":"plan"}`)
					a.answer(a.nextOf(t, "session/set_mode"), `{}`)
					tc.until(id)
					want = "plan"
				}
				if tt.ends {
					tc.ends(a)
				}
				load := loadOf("n", "/tmp", own(`"permissionMode":`+gone))
				if tt.unknown {
					for range 2 {
						if told := member(tc.call("session/load", load), "unsupported"); !strings.Contains(told, "stays in mode write") {
							t.Errorf("told %s", told)
						}
					}
					return
				}
				id = tc.request("session/load", load)
				if !tt.ends && !tt.chosen {
					set := a.nextOf(t, "session/set_mode")
					if got := given(set, "modeId"); got != `"ask"` {
						t.Errorf("set to %s", got)
					}
					a.answer(set, `{}`)
				}
				if _, res := tc.until(id); res.Err() != nil || member(string(res.Result()), "unsupported") != "" {
					t.Errorf("%s", res.Frame())
				}
				if !tt.ends {
					tc.ends(a)
				}
				// The agent keeps its mode by itself.
				_, opened := tc.begins(t, a, "n")
				a.answer(opened, in("write", `{`+modesOf+`}`))
				set := a.nextOf(t, "session/set_mode")
				if got := given(set, "modeId"); got != `"`+want+`"` {
					t.Errorf("set to %s", got)
				}
				a.answer(set, `{}`)
				a.nextOf(t, "session/prompt")
			})
		}
	}
}

// A session that is to read only goes on doing so when a client connects again that had asked for something else before, and when
// another permissionMode is asked for that there is not, or that the agent does not take.
func TestLoad_DoesNotEndReadonlyByTheWay(t *testing.T) {
	for name, tt := range map[string]struct {
		takes      bool // the adapter takes permissionMode
		asks, told string
		opens      bool // the agent is asked for it
		lost       bool // and has nothing of the session
	}{
		"connects again":         {false, `"permissionMode":"write","mode":"write","after":0`, "reads only since", false, false},
		"connects again, taken":  {true, `"permissionMode":"write","mode":"write","after":0`, "reads only since", false, false},
		"a mode, connects again": {false, `"mode":"write","after":0`, "reads only since", false, false},
		"the same, taken":        {true, `"mode":"write","after":0`, "reads only since", false, false},
		"null, connects again":   {true, `"permissionMode":null,"after":0`, "reads only since", false, false},
		"no such one":            {false, `"permissionMode":"read-only"`, "there is no", false, false},
		"no such one, taken":     {true, `"permissionMode":"read-only"`, "there is no", false, false},
		"not taken":              {true, `"permissionMode":"bypass","instructions":"be brief"`, "not as root", true, false},
		"not taken, begins anew": {true, `"permissionMode":"bypass","instructions":"be brief"`, "not as root", true, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var info adapters.Info
			if tt.takes {
				info = adapters.Info{Takes: []string{"permissionMode", "instructions"}}
			}
			a := &fakeAgent{id: "fake", caps: reopening, info: info, shared: make(chan sent, 64)}
			a.byHand()
			r := newRuntime(t, t.TempDir(), a)
			tc, comes := connect(t, r, ""), connect(t, r, "")
			id := tc.request("session/new", `{"cwd":"/tmp","mcpServers":[]`+own(`"permissionMode":"readonly"`)+`}`)
			a.answer(a.nextOf(t, "session/new"), in("plan", `{"sessionId":"n",`+offersOf+`}`))
			if !tt.takes {
				a.answer(a.nextOf(t, "session/set_mode"), `{}`)
			}
			tc.until(id)
			id = comes.request("session/resume", loadOf("n", "/tmp", own(tt.asks)))
			if tt.opens {
				a.answer(a.nextOf(t, "session/close"), `{}`)
				opens := "session/resume"
				if tt.lost {
					for range 2 { // also with the settings of before
						m := a.nextOf(t, "session/resume")
						m.to.out <- acp.NewError(m.m.ID(), acp.Errorf(acp.CodeResourceNotFound, "there is no session n"))
					}
					opens = "session/new"
				}
				a.answer(a.nextOf(t, opens), in("write", `{"sessionId":"other",`+offersOf+`,"_meta":{"sandboxagent.dev":{"unsupported":[{"field":"permissionMode","reason":"not as root"}]}}}`))
				a.nextOf(t, "session/close")
				opened := a.nextOf(t, "session/resume")
				if got := given(opened, "_meta", acp.MetaKey, "permissionMode") + given(opened, "_meta", acp.MetaKey, "instructions"); got != `"readonly""be brief"` {
					t.Errorf("opened with %s", opened.m.Frame())
				}
				a.answer(opened, in("plan", `{`+offersOf+`}`))
			}
			if _, res := comes.until(id); res.Err() != nil || !strings.Contains(member(string(res.Result()), "unsupported"), tt.told) {
				t.Errorf("%s", res.Frame())
			}
			tc.ends(a)
			_, opened := tc.begins(t, a, "n")
			if got := given(opened, "_meta", acp.MetaKey, "permissionMode"); got != `"readonly"` {
				t.Errorf("begun again with %s", opened.m.Frame())
			}
			a.answer(opened, in("write", `{`+offersOf+`}`))
			if !tt.takes {
				if set := a.nextOf(t, "session/set_mode"); given(set, "modeId") != `"plan"` {
					t.Errorf("%s", set.m.Frame())
				}
			}
		})
	}
}

// What the adapter refuses when the agent is only started anew, as where the machine is another one for a while, is asked for again
// with the next start.
func TestStart_RefusedOnce(t *testing.T) {
	t.Parallel()
	a := &fakeAgent{id: "fake", caps: reopening, info: adapters.Info{Takes: []string{"permissionMode"}}, shared: make(chan sent, 64)}
	a.byHand()
	tc := connect(t, newRuntime(t, t.TempDir(), a), "")
	id := tc.request("session/new", `{"cwd":"/tmp","mcpServers":[]`+own(`"permissionMode":"bypass"`)+`}`)
	a.answer(a.nextOf(t, "session/new"), `{"sessionId":"n"}`)
	tc.until(id)
	for _, refused := range []string{"not as root", ""} {
		tc.ends(a)
		id, opened := tc.begins(t, a, "n")
		if got := given(opened, "_meta", acp.MetaKey, "permissionMode"); got != `"bypass"` {
			t.Errorf("opened with %s", opened.m.Frame())
		}
		said := `{}`
		if refused != "" {
			said = `{"_meta":{"sandboxagent.dev":{"unsupported":[{"field":"permissionMode","reason":"` + refused + `"}]}}}`
		}
		a.answer(opened, said)
		a.answer(a.nextOf(t, "session/prompt"), `{"stopReason":"end_turn"}`)
		tc.until(id)
		// Who asks for it again is told whether it has an effect now.
		if again := tc.call("session/load", loadOf("n", "/tmp", own(`"permissionMode":"bypass"`))); strings.Contains(again, "not as root") != (refused != "") {
			t.Errorf("a load is told %s", again)
		}
	}
}

// A permissionMode that there is not does not keep the mode back that is asked for beside it.
func TestLoad_ModeBesideNoPermissionMode(t *testing.T) {
	t.Parallel()
	a, tc, made := offering(t, adapters.Info{}, own(`"permissionMode":"default"`))
	tc.until(acp.ID(made))
	id := tc.request("session/load", loadOf("n", "/tmp", own(`"permissionMode":"bogus","mode":"plan"`)))
	if set := a.nextOf(t, "session/set_mode"); given(set, "modeId") != `"plan"` {
		t.Errorf("%s", set.m.Frame())
	} else {
		a.answer(set, `{}`)
	}
	if _, res := tc.until(id); !strings.Contains(member(string(res.Result()), "unsupported"), "there is no") {
		t.Errorf("%s", res.Frame())
	}
}

// writeThenPlan is a session that was asked for with permissionMode write, and is in the mode plan since.
func writeThenPlan(t *testing.T) (a *fakeAgent, tc *testClient, s string) {
	t.Helper()
	a, tc, made := offering(t, takesPermission, own(`"permissionMode":"write"`))
	_, res := tc.until(acp.ID(made))
	s = rawjson.MemberString(res.Result(), "sessionId")
	id := tc.request("session/set_mode", `{"sessionId":"`+s+`","modeId":"plan"}`)
	a.answer(a.nextOf(t, "session/set_mode"), `{}`)
	tc.until(id)
	return a, tc, s
}

// A load that the session's close refuses has asked for nothing, also where the agent was opened with it and was being set to what it had.
func TestLoad_RefusedByACloseMeanwhile(t *testing.T) {
	t.Parallel()
	a, tc, s := writeThenPlan(t)
	other := connect(t, tc.r, "")
	load := tc.request("session/load", loadOf(s, "/tmp", own(`"instructions":"be brief"`)))
	a.answer(a.nextOf(t, "session/close"), `{}`)
	a.answer(a.nextOf(t, "session/resume"), in("write", `{`+offersOf+`}`))
	a.nextOf(t, "session/set_mode")
	closed := other.request("session/close", `{"sessionId":"`+s+`"}`)
	if _, res := tc.until(load); res.Err() == nil || !strings.Contains(res.Err().Message, "is closed") {
		t.Errorf("%s", res.Frame())
	}
	a.nextOf(t, "$/cancel_request")
	a.answer(a.nextOf(t, "session/close"), `{}`)
	other.until(closed)
	tc.call("session/resume", loadOf(s, "/tmp", ""))
	if _, opened := tc.begins(t, a, s); given(opened, "_meta", acp.MetaKey, "instructions") != "" {
		t.Errorf("opened with %s", opened.m.Params())
	}
}

// A mode that has no effect takes none from the permissionMode beside it: the session leaves the mode that was chosen since for it.
func TestLoad_ModeRefusedBesideThePermissionMode(t *testing.T) {
	t.Parallel()
	a, tc, s := writeThenPlan(t)
	load := tc.request("session/load", loadOf(s, "/tmp", own(`"permissionMode":"write","mode":"gone"`)))
	a.refuse(a.nextOf(t, "session/set_mode"), "there is no mode gone")
	a.answer(a.nextOf(t, "session/close"), `{}`)
	a.answer(a.nextOf(t, "session/resume"), in("write", `{`+offersOf+`}`))
	_, res := tc.until(load)
	if got := member(string(res.Result()), "unsupported"); strings.Count(got, `"field"`) != 1 || !strings.Contains(got, `"field":"mode"`) {
		t.Errorf("%s", res.Frame())
	}
	if is := rawjson.MemberString(res.Result(), "modes", "currentModeId"); is != "write" {
		t.Errorf("it is in mode %s", is)
	}
}

// The same where it is opened a second time for the permissionMode, as the mode beside it is refused: what it was opened with
// before that is taken back, too.
func TestLoad_RefusedWhenOpenedOnceMore(t *testing.T) {
	for name, refuse := range map[string]func(a *fakeAgent, tc *testClient, s string, second sent){
		"by a close": func(a *fakeAgent, tc *testClient, s string, second sent) {
			other := connect(t, tc.r, "")
			closed := other.request("session/close", `{"sessionId":"`+s+`"}`)
			a.nextOf(t, "$/cancel_request")
			a.answer(second, in("write", `{`+offersOf+`}`))
			a.answer(a.nextOf(t, "session/close"), `{}`)
			other.until(closed)
		},
		"by the agent": func(a *fakeAgent, _ *testClient, _ string, second sent) { a.refuse(second, "busy just now") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, tc, s := writeThenPlan(t)
			id := tc.request("session/prompt", prompt(s, "x"))
			p := a.nextOf(t, "session/prompt")
			p.to.chunk("n", "an answer")
			a.answer(p, `{"stopReason":"end_turn"}`)
			tc.until(id)
			load := tc.request("session/load", loadOf(s, "/tmp", own(`"permissionMode":"write","mode":"gone","instructions":"be brief"`)))
			a.answer(a.nextOf(t, "session/close"), `{}`)
			a.answer(a.nextOf(t, "session/resume"), in("write", `{`+offersOf+`}`))
			a.answer(a.nextOf(t, "session/set_mode"), `{}`) // plan
			a.refuse(a.nextOf(t, "session/set_mode"), "there is no mode gone")
			a.answer(a.nextOf(t, "session/close"), `{}`)
			refuse(a, tc, s, a.nextOf(t, "session/resume"))
			if _, res := tc.until(load); res.Err() == nil {
				t.Errorf("%s", res.Frame())
			}
			tc.call("session/resume", loadOf(s, "/tmp", ""))
			if _, opened := tc.begins(t, a, s); given(opened, "_meta", acp.MetaKey, "instructions") != "" {
				t.Errorf("opened with %s", opened.m.Params())
			}
		})
	}
}
