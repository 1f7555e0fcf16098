package runtime

import (
	"fmt"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/adapters"
)

const reopening = `{"sessionCapabilities":{"resume":{},"close":{}}}`

// loadOf is what a session/load asks for.
func loadOf(s, cwd, more string) string {
	return fmt.Sprintf(`{"sessionId":%q,"cwd":%q%s}`, s, cwd, more)
}

// given returns what the agent was told in a request that opens a session.
func given(s sent, path ...string) string {
	v, _ := rawjson.Member(s.m.Params(), path...)
	return string(v)
}

const (
	serverA = `{"name":"a","command":"/a","args":[],"env":[]}`
	serverB = `{"name":"b","command":"/b","args":[],"env":[]}`
)

// turned lets the agent answer a prompt, for which it opens the session first.
func (tc *testClient) turned(t *testing.T, a *fakeAgent, s string) (opened sent) {
	t.Helper()
	id := tc.request("session/prompt", prompt(s, "x"))
	opened = a.nextOf(t, "session/resume")
	a.answer(opened, `{}`)
	a.answer(a.nextOf(t, "session/prompt"), `{"stopReason":"end_turn"}`)
	tc.until(id)
	return opened
}

// Settings that a load brings along are the session's from then on, at once when no
// process works for it.
func TestLoad_SettingsOfADormantSession(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	a := &fakeAgent{id: "fake", caps: reopening, shared: make(chan sent, 64)}
	a.info.Takes, a.info.Credentials = []string{"instructions"}, anyCredentials
	r, err := New(Options{DataDir: dir, Adapters: adaptersOf(a), DefaultAgent: "fake"})
	if err != nil {
		t.Fatal(err)
	}
	tc := connect(t, r, "")
	s := rawjson.MemberString([]byte(tc.call("session/new", `{"cwd":"/tmp","mcpServers":[`+serverA+`]}`)), "sessionId")
	tc.close()
	if err := r.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	r = newRuntime(t, dir, a)
	tc = connect(t, r, "")
	res := tc.call("session/load", loadOf(s, other, `,"mcpServers":[`+serverB+`],"additionalDirectories":["/more"],"_meta":{"sandboxagent.dev":{"instructions":"be brief","skills":{"paths":["/s"]},"env":{"V":"1"},"credentials":{"apiKey":"k"}}}`))
	if got := member(res, "unsupported"); !strings.Contains(got, `"skills"`) || strings.Contains(got, "instructions") {
		t.Errorf("unsupported: %s", got)
	}
	m := tc.turned(t, a, s)
	for _, want := range []struct{ path, want string }{
		{"cwd", `"` + other + `"`}, {"mcpServers", "[" + serverB + "]"}, {"additionalDirectories", `["/more"]`},
	} {
		if got := given(m, want.path); got != want.want {
			t.Errorf("%s is %s, want %s", want.path, got, want.want)
		}
	}
	if got := given(m, "_meta", acp.MetaKey, "instructions"); got != `"be brief"` {
		t.Errorf("instructions are %s", got)
	}
	a.mu.Lock()
	o := a.options[len(a.options)-1]
	a.mu.Unlock()
	if o.Credentials.APIKey != "k" || fmt.Sprint(o.Env) != "[V=1]" {
		t.Errorf("the process has %+v, %v", o.Credentials, o.Env)
	}
	if info, err := r.Session(s); err != nil || info.Cwd != other {
		t.Errorf("%+v, %v", info, err)
	}
}

// A session that is idle is opened anew with them, and the client is told what the
// agent does not take.
func TestLoad_SettingsOfAnIdleSession(t *testing.T) {
	a := &fakeAgent{id: "fake", caps: reopening, shared: make(chan sent, 64)}
	tc := connect(t, newRuntime(t, t.TempDir(), a), "")
	s := rawjson.MemberString([]byte(tc.call("session/new", `{"cwd":"/tmp","mcpServers":[`+serverA+`]}`)), "sessionId")
	// What is repeated, and the empty list of who only attaches, change nothing.
	for _, same := range []string{`,"mcpServers":[]`, `,"mcpServers":[ ` + serverA + `]`, ``} {
		if got := member(tc.call("session/resume", loadOf(s, "/tmp", same)), "unsupported"); got != "" {
			t.Errorf("%s: %s", same, got)
		}
	}
	id := tc.request("session/resume", loadOf(s, "/tmp", `,"mcpServers":[`+serverB+`]`))
	a.answer(a.nextOf(t, "session/close"), `{}`)
	m := a.nextOf(t, "session/resume")
	if got := given(m, "mcpServers"); got != "["+serverB+"]" {
		t.Errorf("opened with %s", got)
	}
	a.answer(m, `{"_meta":{"sandboxagent.dev":{"unsupported":[{"field":"mcpServers","reason":"b does not start"}]}}}`)
	if _, res := tc.until(id); !strings.Contains(member(string(res.Result()), "unsupported"), "b does not start") || member(string(res.Result()), "continuity") != `"native"` {
		t.Errorf("%s", res.Frame())
	}
}

// MCP servers of mcpServers are taken away by a null in _meta, at once or with the next prompt.
func TestLoad_WithoutMCPServers(t *testing.T) {
	const none = `,"mcpServers":[],"_meta":{"sandboxagent.dev":{"mcpServers":null}}`
	dir, a := t.TempDir(), &fakeAgent{id: "fake", caps: reopening, shared: make(chan sent, 64)}
	r, err := New(Options{DataDir: dir, Adapters: adaptersOf(a), DefaultAgent: "fake"})
	if err != nil {
		t.Fatal(err)
	}
	tc := connect(t, r, "")
	with := `{"cwd":"/tmp","mcpServers":[` + serverA + `]}`
	idle := rawjson.MemberString([]byte(tc.call("session/new", with)), "sessionId")
	dormant := rawjson.MemberString([]byte(tc.call("session/new", with)), "sessionId")
	id := tc.request("session/resume", loadOf(idle, "/tmp", none))
	a.answer(a.nextOf(t, "session/close"), `{}`)
	m := a.nextOf(t, "session/resume")
	if got := given(m, "mcpServers"); got != "[]" {
		t.Errorf("opened with %s", got)
	}
	a.answer(m, `{}`)
	if _, res := tc.until(id); member(string(res.Result()), "unsupported") != "" {
		t.Errorf("%s", res.Frame())
	}
	// There are none any more, and servers that come along are the session's.
	for _, same := range []string{none, ""} {
		if got := member(tc.call("session/resume", loadOf(idle, "/tmp", same)), "unsupported"); got != "" {
			t.Errorf("%s: %s", same, got)
		}
	}
	id = tc.request("session/resume", loadOf(idle, "/tmp", `,"mcpServers":[`+serverB+`],"_meta":{"sandboxagent.dev":{"mcpServers":null}}`))
	a.answer(a.nextOf(t, "session/close"), `{}`)
	m = a.nextOf(t, "session/resume")
	if got := given(m, "mcpServers"); got != "["+serverB+"]" {
		t.Errorf("opened with %s", got)
	}
	a.answer(m, `{}`)
	tc.until(id)
	tc.close()
	if err := r.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	tc = connect(t, newRuntime(t, dir, a), "")
	if got := member(tc.call("session/load", loadOf(dormant, "/tmp", none)), "unsupported"); got != "" {
		t.Error(got)
	}
	if got := given(tc.turned(t, a, dormant), "mcpServers"); got != "[]" {
		t.Errorf("opened with %s", got)
	}
	// A list there is no field of ours: it has its place in the protocol.
	if got := member(tc.call("session/resume", loadOf(dormant, "/tmp", `,"_meta":{"sandboxagent.dev":{"mcpServers":[]}}`)), "unsupported"); !strings.Contains(got, `"mcpServers"`) {
		t.Errorf("unsupported: %s", got)
	}
}

// An agent that does not open the session with the new settings opens it with the old
// ones, and remembers what was said.
func TestLoad_SettingsThatTheAgentRefuses(t *testing.T) {
	a := &fakeAgent{id: "fake", caps: reopening, shared: make(chan sent, 64)}
	r := newRuntime(t, t.TempDir(), a)
	tc := connect(t, r, "")
	s := tc.session()
	other := t.TempDir()
	id := tc.request("session/resume", loadOf(s, other, ""))
	a.answer(a.nextOf(t, "session/close"), `{}`)
	a.refuse(a.nextOf(t, "session/resume"), "there is no conversation in this folder")
	m := a.nextOf(t, "session/resume")
	if got := given(m, "cwd"); got != `"/tmp"` {
		t.Errorf("opened in %s", got)
	}
	a.answer(m, `{}`)
	_, res := tc.until(id)
	if got := member(string(res.Result()), "unsupported"); !strings.Contains(got, `"cwd"`) || !strings.Contains(got, "no conversation in this folder") {
		t.Errorf("%s", res.Frame())
	}
	if info, _ := r.Session(s); info.Cwd != "/tmp" || info.Continuity != ContinuityNative {
		t.Errorf("%+v", info)
	}
}

// Only what it is opened with has no effect then, and is said to have none: the rest of the load holds.
func TestLoad_SettingsBesideThoseThatTheAgentRefuses(t *testing.T) {
	for name, dormant := range map[string]bool{"idle": false, "without a process": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, tc, id := offering(t, adapters.Info{PermissionModes: map[string]string{"readonly": "plan", "write": "write"}}, own(`"permissionMode":"readonly"`))
			a.answer(a.nextOf(t, "session/set_mode"), `{}`)
			_, res := tc.until(acp.ID(id))
			s := rawjson.MemberString(res.Result(), "sessionId")
			if dormant {
				tc.ends(a)
			}
			load := tc.request("session/load", loadOf(s, "/tmp", `,"mcpServers":[`+serverB+`]`+own(`"permissionMode":"write","model":"small","title":"mine"`)))
			opens := func() {
				a.refuse(a.nextOf(t, "session/resume"), "b does not start")
				opened := a.nextOf(t, "session/resume")
				if got := given(opened, "mcpServers"); got != "["+serverA+"]" {
					t.Errorf("opened with %s", got)
				}
				a.answer(opened, in("plan", `{`+offersOf+`}`))
			}
			mode := func() {
				if set := a.nextOf(t, "session/set_mode"); given(set, "modeId") == `"write"` {
					a.answer(set, `{}`)
				} else {
					t.Errorf("%s", set.m.Frame())
				}
			}
			small := func() {
				a.answer(a.nextOf(t, "session/set_config_option"), strings.ReplaceAll(in("write", `{`+offersOf+`}`), `"big","o`, `"small","o`))
			}
			told := ""
			if dormant {
				tc.until(load)
				turn := tc.request("session/prompt", prompt(s, "x"))
				opens()
				small()
				mode()
				a.answer(a.nextOf(t, "session/prompt"), `{"stopReason":"end_turn"}`)
				before, _ := tc.until(turn)
				for _, m := range before {
					told += member(string(m.Update()), "unsupported")
				}
			} else {
				a.answer(a.nextOf(t, "session/set_mode"), `{}`)
				a.answer(a.nextOf(t, "session/close"), `{}`)
				opens()
				mode()
				small()
				_, res := tc.until(load)
				told = member(string(res.Result()), "unsupported")
			}
			if want := `[{"field":"mcpServers","reason":"agent fake does not open the session with it: b does not start"}]`; told != want {
				t.Errorf("told %s, want %s", told, want)
			}
			// The same once more asks for the servers only.
			again := tc.request("session/load", loadOf(s, "/tmp", own(`"permissionMode":"write","model":"small","title":"mine"`)))
			if _, res := tc.until(again); res.Err() != nil || member(string(res.Result()), "unsupported") != "" || rawjson.MemberString(res.Result(), "modes", "currentModeId") != "write" {
				t.Errorf("%s", res.Frame())
			}
		})
	}
}

// While something goes on in it, they have no effect, and the client is told so.
func TestLoad_SettingsOfASessionAtWork(t *testing.T) {
	a := &fakeAgent{id: "fake", caps: reopening, info: adapters.Info{Credentials: anyCredentials}, shared: make(chan sent, 64)}
	tc := connect(t, newRuntime(t, t.TempDir(), a), "")
	s := tc.session()
	id := tc.request("session/prompt", prompt(s, "x"))
	m := a.nextOf(t, "session/prompt")
	got := member(tc.call("session/resume", loadOf(s, "/tmp", `,"mcpServers":[`+serverB+`],"_meta":{"sandboxagent.dev":{"credentials":{"apiKey":"k"}}}`)), "unsupported")
	for _, want := range []string{`"mcpServers"`, `"credentials"`, "working"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %s in %s", want, got)
		}
	}
	a.answer(m, `{"stopReason":"end_turn"}`)
	tc.until(id)
}

// So are settings of an agent that cannot open a session a second time.
func TestLoad_SettingsThatCannotBeApplied(t *testing.T) {
	for caps, want := range map[string]string{
		`{}`: "cannot open a session again", `{"sessionCapabilities":{"resume":{}}}`: "cannot close a session",
	} {
		a := &fakeAgent{id: "fake", caps: caps}
		tc := connect(t, newRuntime(t, t.TempDir(), a), "")
		s := tc.session()
		res := tc.call("session/resume", loadOf(s, "/nowhere", `,"mcpServers":[`+serverB+`],"_meta":{"sandboxagent.dev":{"agent":"other","model":"m"}}`))
		for _, want := range []string{want, "/nowhere", "it is a session of agent fake", `"model"`} {
			if got := member(res, "unsupported"); !strings.Contains(got, want) {
				t.Errorf("no %q in %s", want, got)
			}
		}
	}
}

// A session that had credentials of its own runs on no other key after a restart: it
// refuses to work until it is given them again.
func TestCredentials_OfASessionAfterARestart(t *testing.T) {
	dir := t.TempDir()
	a := &fakeAgent{id: "fake", caps: `{"sessionCapabilities":{"resume":{},"fork":{}}}`, info: adapters.Info{Credentials: anyCredentials}, shared: make(chan sent, 64)}
	r, err := New(Options{DataDir: dir, Adapters: adaptersOf(a), DefaultAgent: "fake"})
	if err != nil {
		t.Fatal(err)
	}
	tc := connect(t, r, "")
	given, dropped, none := tc.newWith(`{"credentials":{"apiKey":"k","baseUrl":"http://own"}}`), tc.newWith(`{"credentials":{"apiKey":"k"}}`), tc.session()
	tc.close()
	if err := r.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	r = newRuntime(t, dir, a)
	tc = connect(t, r, "")
	for method, params := range map[string]string{
		"session/prompt": prompt(given, "x"), "session/set_mode": `{"sessionId":"` + given + `","modeId":"m"}`, "session/fork": `{"sessionId":"` + given + `","cwd":"/tmp"}`,
	} {
		e := tc.callErr(method, params)
		if e.Code != acp.CodeAuthRequired || !strings.Contains(string(e.Data), "credentials_required") || !strings.Contains(string(e.Data), `["apiKey","baseUrl"]`) {
			t.Errorf("%s: %v %s", method, e, e.Data)
		}
	}
	if got := member(tc.call("session/resume", loadOf(given, "/tmp", "")), "credentialsRequired"); got != `["apiKey","baseUrl"]` {
		t.Errorf("the client is told %q", got)
	}
	if n := len(a.shared); n > 0 {
		t.Errorf("%d messages reached an agent", n)
	}
	for s, want := range map[string]struct{ meta, key string }{
		given: {`{"credentials":{"apiKey":"new"}}`, "new"}, dropped: {`{"credentials":{}}`, ""}, none: {`{}`, ""},
	} {
		if got := member(tc.call("session/resume", loadOf(s, "/tmp", `,"_meta":{"sandboxagent.dev":`+want.meta+`}`)), "credentialsRequired"); got != "" {
			t.Errorf("%s: still told %s", want.meta, got)
		}
		to := tc.turned(t, a, s).to
		if got := a.optionsOf(to).Credentials.APIKey; got != want.key {
			t.Errorf("%s: runs on %q", want.meta, got)
		}
	}
}

// Credentials that an agent has no use for are refused, never ignored.
func TestCredentials_ThatTheAgentDoesNotTake(t *testing.T) {
	for _, c := range []struct {
		use         adapters.CredentialUse
		given, want string
	}{
		{adapters.CredentialUse{}, `{"apiKey":"k"}`, "takes no credentials.apiKey from the gateway"},
		{adapters.CredentialUse{APIKey: true, BaseURL: true}, `{"oauthToken":"k"}`, "takes apiKey, baseUrl"},
		{adapters.CredentialUse{APIKey: true}, `{"apiKey":"k","baseUrl":"http://x"}`, "credentials.baseUrl"},
		{adapters.CredentialUse{APIKey: true, BaseURL: true, KeyNamesProvider: true}, `{"baseUrl":"http://x"}`, "give the provider's apiKey"},
	} {
		a := &fakeAgent{id: "fake", info: adapters.Info{Credentials: c.use}}
		tc := connect(t, newRuntime(t, t.TempDir(), a), "")
		meta := `"_meta":{"sandboxagent.dev":{"credentials":` + c.given + `}}`
		s := tc.session()
		for method, params := range map[string]string{
			"session/new": `{"cwd":"/tmp","mcpServers":[],` + meta + `}`, "session/load": `{"sessionId":"` + s + `","cwd":"/tmp","mcpServers":[],` + meta + `}`,
		} {
			if e := tc.callErr(method, params); e.Code != acp.CodeInvalidParams || !strings.Contains(e.Message, c.want) {
				t.Errorf("%s %s: %v, want %q", method, c.given, e, c.want)
			}
		}
	}
}

// What is sent behind a load that brings other settings comes behind it, also when nobody has waited for its answer: the agent is
// opened with the settings, and then it is given the prompts.
func TestLoad_WithSettingsThenAPrompt(t *testing.T) {
	t.Parallel()
	a := &fakeAgent{id: "fake", caps: reopening, shared: make(chan sent, 64)}
	tc := connect(t, newRuntime(t, t.TempDir(), a), "")
	s := rawjson.MemberString([]byte(tc.call("session/new", `{"cwd":"/tmp","mcpServers":[]}`)), "sessionId")
	ids := []acp.ID{
		tc.request("session/load", loadOf(s, "/tmp", `,"mcpServers":[`+serverA+`]`)),
		tc.request("session/prompt", prompt(s, "one")),
		tc.request("session/load", loadOf(s, "/tmp", `,"mcpServers":[`+serverB+`]`)),
		tc.request("session/set_mode", `{"sessionId":"`+s+`","modeId":"m"}`),
	}
	a.answer(a.nextOf(t, "session/close"), `{}`)
	m := a.nextOf(t, "session/resume")
	if got := given(m, "mcpServers"); got != "["+serverA+"]" {
		t.Errorf("opened with %s", got)
	}
	a.answer(m, `{}`)
	p := a.nextOf(t, "session/prompt")
	a.answer(a.nextOf(t, "session/set_mode"), `{}`) // the second load was told that the session is working
	a.answer(p, `{"stopReason":"end_turn"}`)
	answers := map[acp.ID]string{}
	for len(answers) < len(ids) {
		if m := tc.next(); m.IsResponse() {
			answers[m.ID()] = string(m.Frame())
		}
	}
	for i, refused := range []bool{false, false, true, false} {
		if got := answers[ids[i]]; strings.Contains(got, `"error"`) || strings.Contains(got, "is working") != refused {
			t.Errorf("%s", got)
		}
	}
}

// A prompt behind the load of a session that is being closed waits for both.
func TestLoad_BehindACloseThenAPrompt(t *testing.T) {
	t.Parallel()
	a := &fakeAgent{id: "fake", caps: reopening, shared: make(chan sent, 64)}
	tc := connect(t, newRuntime(t, t.TempDir(), a), "")
	s := rawjson.MemberString([]byte(tc.call("session/new", `{"cwd":"/tmp","mcpServers":[]}`)), "sessionId")
	tc.request("session/close", `{"sessionId":"`+s+`"}`)
	tc.request("session/load", loadOf(s, "/tmp", `,"mcpServers":[`+serverA+`]`))
	id := tc.request("session/prompt", prompt(s, "one"))
	cancelled := tc.request("session/prompt", prompt(s, "two"))
	tc.send(`{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"` + s + `"}}`)
	behind := tc.request("session/prompt", prompt(s, "three"))
	a.answer(a.nextOf(t, "session/close"), `{}`)
	for answers := 0; answers < 3; {
		m := tc.next()
		if !m.IsResponse() {
			continue
		}
		switch m.ID() {
		case id, cancelled:
			if !strings.Contains(string(m.Result()), "cancelled") {
				t.Errorf("%s", m.Frame())
			}
			if answers++; answers == 2 {
				opened := a.nextOf(t, "session/resume")
				if got := given(opened, "mcpServers"); got != "["+serverA+"]" {
					t.Errorf("opened with %s", got)
				}
				a.answer(opened, `{}`)
				a.answer(a.nextOf(t, "session/prompt"), `{"stopReason":"end_turn"}`)
			}
		case behind:
			if answers++; !strings.Contains(string(m.Result()), "end_turn") {
				t.Errorf("%s", m.Frame())
			}
		}
	}
}

// A load that fails because of where it wants to go on has changed nothing.
func TestLoad_WithAWrongAfter(t *testing.T) {
	t.Parallel()
	a, tc, s := offering(t, adapters.Info{}, "")
	for _, after := range []string{"99", `"1"`} {
		if e := tc.callErr("session/load", loadOf(s, "/tmp", own(`"permissionMode":"readonly","title":"mine","after":`+after))); !strings.Contains(e.Message, "after must be") {
			t.Errorf("%v", e)
		}
	}
	if res := tc.call("session/list", `{}`); strings.Contains(res, "mine") {
		t.Errorf("%s", res)
	}
	turn := tc.request("session/prompt", prompt(s, "x"))
	a.answer(a.nextOf(t, "session/prompt"), `{"stopReason":"end_turn"}`) // no mode was set before
	tc.until(turn)
}

// What a load asks for while the agent is started is kept where the start takes other settings back, which the agent refuses.
func TestLoad_BesideAStartThatTakesSettingsBack(t *testing.T) {
	t.Parallel()
	a, tc, s := offering(t, adapters.Info{}, "")
	turn := tc.request("session/prompt", prompt(s, "x"))
	p := a.nextOf(t, "session/prompt")
	p.to.chunk("n", "an answer")
	a.answer(p, `{"stopReason":"end_turn"}`)
	tc.until(turn)
	tc.ends(a)
	tc.call("session/load", loadOf(s, "/tmp", `,"mcpServers":[`+serverB+`]`))
	turn, opened := tc.begins(t, a, s)
	load := tc.request("session/load", loadOf(s, "/tmp", own(`"beginAnew":true`)))
	tc.call("_sandboxagent/session/get", `{"sessionId":"`+s+`"}`)
	a.refuse(opened, "b does not start")
	a.answer(a.nextOf(t, "session/resume"), in("write", `{`+offersOf+`}`))
	a.answer(a.nextOf(t, "session/prompt"), `{"stopReason":"end_turn"}`)
	answers := 0
	for answers < 2 { // of both, in any order
		if m := tc.next(); m.IsResponse() && (m.ID() == load || m.ID() == turn) {
			if answers++; m.Err() != nil {
				t.Errorf("%s", m.Frame())
			}
		}
	}
	tc.ends(a)
	_, opened = tc.begins(t, a, s)
	a.refuse(opened, "not now")
	a.nextOf(t, "session/new")
}
