package runtime

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/internal/killed"
)

// The options of an agent, of which some are true or false.
const (
	optionModel  = `{"id":"model","name":"Model","category":"model","type":"select","currentValue":"big","options":[{"value":"big","name":"Big"},{"value":"small","name":"Small"}]}`
	optionEffort = `{"id":"effort","name":"Effort","category":"thought_level","type":"select","currentValue":"low","options":[{"value":"low","name":"Low"},{"value":"high","name":"High"}]}`
	optionWeb    = `{"id":"web","name":"Web","type":"boolean","currentValue":false}`
	optionFast   = `{"id":"fast","name":"Fast","type":"boolean","currentValue":false}`
	writeAndPlan = `"modes":{"currentModeId":"write","availableModes":[{"id":"write","name":"Write"},{"id":"plan","name":"Plan","description":"Read-only mode"}]}`
)

func offeringOptions(options ...string) string {
	return `{` + writeAndPlan + `,"configOptions":[` + strings.Join(options, ",") + `]}`
}

// optioned is a gateway in a folder with an agent of such options, and its session n.
func optioned(t *testing.T, dir string, info adapters.Info, more string, options ...string) (*fakeAgent, *testClient) {
	t.Helper()
	a := &fakeAgent{id: "fake", info: info, caps: `{"sessionCapabilities":{"resume":{},"close":{},"fork":{}}}`, shared: make(chan sent, 64)}
	a.byHand()
	tc := connect(t, newRuntime(t, dir, a), "")
	id := tc.request("session/new", `{"cwd":"/tmp","mcpServers":[]`+more+`}`)
	a.answer(a.nextOf(t, "session/new"), `{"sessionId":"n",`+offeringOptions(options...)[1:])
	tc.until(id)
	return a, tc
}

// sets has a client set an option, or the mode where that has no id, which the agent takes: it has these options by then.
func (tc *testClient) sets(a *fakeAgent, id, value string, options ...string) {
	tc.t.Helper()
	method, what := "session/set_config_option", `"configId":"`+id+`","value":`+value
	switch {
	case id == "":
		method, what = "session/set_mode", `"modeId":`+value
	case value == "true" || value == "false":
		what += `,"type":"boolean"`
	}
	for i, o := range options {
		if rawjson.MemberString([]byte(o), "id") == id {
			options[i] = string(rawjson.SetMember([]byte(o), []byte(value), "currentValue"))
		}
	}
	asked := tc.request(method, `{"sessionId":"n",`+what+`}`)
	a.answer(a.nextOf(tc.t, method), offeringOptions(options...))
	tc.until(asked)
}

// startsWith has the agent started for a prompt. It says of each that it is set to whether it takes it, and returns them.
func (tc *testClient) startsWith(a *fakeAgent, takes func(m sent), options ...string) (set []string) {
	tc.t.Helper()
	id, opened := tc.begins(tc.t, a, "n")
	a.answer(opened, offeringOptions(options...))
	for {
		select {
		case m := <-a.shared:
			if m.m.Method() == acp.MethodSessionPrompt {
				a.answer(m, `{"stopReason":"end_turn"}`)
				tc.until(id)
				return set
			}
			set = append(set, given(m, "configId")+"="+given(m, "modeId")+given(m, "value"))
			takes(m)
		case m := <-tc.frames:
			if m.IsResponse() {
				tc.t.Fatalf("the prompt is answered with %s", m.Frame())
			}
		}
	}
}

func takesAll(m sent) { m.to.result(m.m, `{}`) }

// An option that is true or false is no model, no effort and no mode, whatever else there is not.
func TestChoose_TrueOrFalse(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		options []string
		sets    [][2]string
		want    string
	}{
		"beside a mode":  {[]string{optionModel, optionEffort, optionWeb}, [][2]string{{"", `"plan"`}, {"web", "true"}}, `"web"=true ="plan"`},
		"before a mode":  {[]string{optionModel, optionWeb}, [][2]string{{"web", "true"}, {"", `"plan"`}}, `"web"=true ="plan"`},
		"beside another": {[]string{optionModel, optionWeb, optionFast}, [][2]string{{"fast", "true"}, {"web", "true"}}, `"fast"=true "web"=true`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, tc := optioned(t, t.TempDir(), adapters.Info{}, "", tt.options...)
			now := slices.Clone(tt.options)
			for _, s := range tt.sets {
				tc.sets(a, s[0], s[1], now...)
			}
			tc.ends(a)
			tc.call("session/load", loadOf("n", "/tmp", own(`"variant":null`)))
			if set := tc.startsWith(a, takesAll, tt.options...); strings.Join(set, " ") != tt.want {
				t.Errorf("the agent is set to %q, want %q", set, tt.want)
			}
		})
	}
}

// What was chosen of an option that the agent does not offer by now is still what its field asks for.
func TestChoose_OptionThatThereIsNot(t *testing.T) {
	t.Parallel()
	a, tc := optioned(t, t.TempDir(), adapters.Info{}, "", optionModel, optionEffort)
	tc.sets(a, "effort", `"high"`, optionModel, optionEffort)
	tc.ends(a)
	busy := func(m sent) { a.refuse(m, "not now") }
	tc.startsWith(a, busy, optionModel, optionEffort)
	tc.ends(a)
	tc.startsWith(a, busy)
	tc.ends(a)
	tc.call("session/load", loadOf("n", "/tmp", own(`"variant":null`)))
	if set := tc.startsWith(a, takesAll, optionModel, optionEffort); len(set) > 0 {
		t.Errorf("the agent is set to %q", set)
	}
}

// travels has the session go to another gateway, with what edit makes of its record, and returns a client there.
func (tc *testClient) travels(t *testing.T, a *fakeAgent, trusted bool, edit func(record []byte) []byte) (*testClient, Imported) {
	t.Helper()
	return tc.travelsAs(t, a, trusted, func(name string, b []byte) []byte {
		if name == TravelRecord {
			return edit(b)
		}
		return b
	})
}

// travelsAs is travels with what edit makes of each of its files.
func (tc *testClient) travelsAs(t *testing.T, a *fakeAgent, trusted bool, edit func(name string, b []byte) []byte) (*testClient, Imported) {
	t.Helper()
	var m Manifest
	dir := t.TempDir()
	d := Departure{Open: true, Begin: func(begun Manifest) error { m = begun; return nil }, Put: func(name string, from io.Reader) error {
		b, err := io.ReadAll(from)
		if err != nil {
			return err
		}
		b = edit(name, b)
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		return os.WriteFile(path, b, 0o600)
	}}
	if err := tc.r.ExportSession(t.Context(), "n", &d); err != nil {
		t.Fatal(err)
	}
	r := newRuntime(t, t.TempDir(), a)
	in, err := r.ImportSession(t.Context(), m, dir, ImportOptions{Trusted: trusted})
	if err != nil {
		t.Fatal(err)
	}
	return connect(t, r, ""), in
}

// What comes from elsewhere without trust chooses a model, and nothing else, whatever its record says of itself.
func TestImport_WhatWasChosen(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		trusted                       bool
		setup, chosen, options, modes string
		leftOut, set                  string
	}{
		"asked for as a model":  {false, `"model":"bypass"`, `{"mode":"bypass"}`, `[]`, ``, "the option mode", ""},
		"said to be the model":  {false, ``, `{"mode":"bypass"}`, `[{"id":"mode","category":"model"}]`, ``, "the option mode", ""},
		"true or false":         {false, ``, `{"web":true}`, `[]`, ``, "the option web", ""},
		"of a field, it says":   {false, ``, `{"web":true}`, `[]`, `,"chosenBy":{"model":"web"}`, "the option web", ""},
		"a mode":                {false, ``, `{}`, `[]`, `,"chosenMode":"bypass"`, "mode", ""},
		"a model":               {false, ``, `{"model":"small"}`, `[]`, ``, "", `"model"="small"`},
		"trusted":               {true, ``, `{"web":true,"model":"small"}`, `[` + optionModel + `]`, ``, "", `"model"="small" "web"=true`},
		"readonly, with a mode": {false, `"permissionMode":"readonly"`, `{"mode":"bypass"}`, `[{"id":"mode","category":"model"}]`, ``, "the option mode", `="plan"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, tc := optioned(t, t.TempDir(), adapters.Info{}, "", optionModel, optionWeb)
			there, in := tc.travels(t, a, tt.trusted, func(record []byte) []byte {
				for member, v := range map[string]string{"setup": `{"cwd":"/tmp","mcpServers":[]` + own(tt.setup) + `}`, "chosen": tt.chosen, "configOptions": tt.options} {
					record = rawjson.SetMember(record, []byte(v), member)
				}
				return []byte(strings.TrimSuffix(strings.TrimSpace(string(record)), "}") + tt.modes + "}")
			})
			if got := strings.Join(in.LeftOut, ", "); got != tt.leftOut {
				t.Errorf("left out is %q, want %q", got, tt.leftOut)
			}
			if set := there.startsWith(a, takesAll, optionModel, optionWeb); strings.Join(set, " ") != tt.set {
				t.Errorf("the agent is set to %q, want %q", set, tt.set)
			}
		})
	}
}

// Who does not trust what comes from elsewhere has it read only, in what is a mode for that here.
func TestImport_ReadOnly(t *testing.T) {
	t.Parallel()
	a, tc := optioned(t, t.TempDir(), adapters.Info{}, "", optionModel)
	id := tc.request("session/prompt", prompt("n", "x"))
	m := a.nextOf(t, "session/prompt")
	a.conn().chunk("n", "an answer")
	a.answer(m, `{"stopReason":"end_turn"}`)
	tc.until(id)
	there, _ := tc.travels(t, a, false, func(record []byte) []byte {
		return rawjson.SetMember(record, []byte(`{"currentModeId":"write","availableModes":[{"id":"bypass","name":"Read only"}]}`), "modes")
	})
	if res := there.call("session/load", loadOf("n", "/tmp", own(`"permissionMode":"readonly"`))); member(res, "unsupported") != "" {
		t.Error(res)
	}
	if set := there.startsWith(a, takesAll, optionModel); strings.Join(set, " ") != `="plan"` {
		t.Errorf("the agent is set to %q", set)
	}
}

// What the agent does not take for a moment it is told again when it is started next. What it says that there is not is chosen no more.
func TestChoose_RefusedForAMoment(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		code    int64
		options []string
		want    string
	}{
		"it cannot now":          {acp.CodeInternal, []string{optionModel, optionWeb}, `"model"="small" "web"=true`},
		"there is no such value": {acp.CodeInvalidParams, []string{optionModel, optionWeb}, ``},
		"it has no options yet":  {0, nil, `"model"="small" "web"=true`},
		"it has only another":    {0, []string{optionEffort}, ``},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := []string{optionModel, optionWeb}
			a, tc := optioned(t, t.TempDir(), adapters.Info{}, "", all...)
			now := slices.Clone(all)
			tc.sets(a, "model", `"small"`, now...)
			tc.sets(a, "web", `true`, now...)
			tc.ends(a)
			tc.startsWith(a, func(m sent) { refuseAs(m.to, m.m, tt.code, "no") }, tt.options...)
			tc.tells(a, all...)
			if tt.code == 0 && tt.want != "" { // see TestChoose_OptionsThatComeLate
				for range 2 {
					m := a.nextOf(t, "session/set_config_option")
					refuseAs(m.to, m.m, acp.CodeInternal, "no")
				}
				tc.call("session/load", loadOf("n", "/tmp", own(`"title":"T"`))) // when that is over
			}
			tc.ends(a)
			if set := tc.startsWith(a, takesAll, all...); strings.Join(set, " ") != tt.want {
				t.Errorf("the agent is set to %q, want %q", set, tt.want)
			}
		})
	}
}

// tells has the agent say which options it has.
func (tc *testClient) tells(a *fakeAgent, options ...string) {
	tc.t.Helper()
	a.conn().send(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"n","update":{"sessionUpdate":"config_option_update","configOptions":[` + strings.Join(options, ",") + `]}}}`)
	for m := tc.next(); string(m.UpdateKind()) != "config_option_update"; m = tc.next() {
	}
}

// What an agent has begun anew is gone on with, also where the gateway is killed before the agent is set to what was chosen.
func TestChoose_KilledAsTheAgentHasBegunAnew(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a, tc := optioned(t, dir, adapters.Info{}, "", optionModel)
	tc.sets(a, "model", `"small"`, optionModel)
	tc.ends(a)
	_, opened := tc.begins(t, a, "n")
	a.refuse(opened, "it is gone")
	a.answer(a.nextOf(t, "session/new"), `{"sessionId":"anew",`+offeringOptions(optionModel)[1:])
	a.nextOf(t, "session/set_config_option")
	next := connect(t, newRuntime(t, killed.Folder(t, dir), a), "")
	_, opened = next.begins(t, a, "n")
	if got := given(opened, "sessionId"); got != `"anew"` {
		t.Errorf("the agent is asked to open %s", got)
	}
}

// What the agent says as it is opened is no choice, also where the gateway is killed before the agent is set to what was chosen.
func TestChoose_KilledAsTheAgentIsOpened(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a, tc := optioned(t, dir, adapters.Info{}, "", optionModel)
	tc.sets(a, "model", `"small"`, optionModel)
	tc.ends(a)
	tc.begins(t, a, "n")
	tc.tells(a, optionModel)
	next := connect(t, newRuntime(t, killed.Folder(t, dir), a), "")
	if set := next.startsWith(a, takesAll, optionModel); strings.Join(set, " ") != `"model"="small"` {
		t.Errorf("the agent is set to %q", set)
	}
}

// A fork has an id of its own, and is not told of that of the session.
func TestFork_OfASessionWithAnId(t *testing.T) {
	t.Parallel()
	a, tc := optioned(t, t.TempDir(), adapters.Info{}, own(`"requestedSessionId":"n"`), optionModel)
	for native, more := range map[string]string{"f": "", "g": own(`"requestedSessionId":"mine"`)} {
		id := tc.request("session/fork", `{"sessionId":"n"`+more+`}`)
		a.answer(a.nextOf(t, "session/fork"), `{"sessionId":"`+native+`",`+offeringOptions(optionModel)[1:])
		if _, res := tc.until(id); res.Err() != nil || member(string(res.Result()), "unsupported") != "" {
			t.Errorf("%s", res.Frame())
		}
	}
}

// A fork whose process ends before it is set to what was chosen is there, and is set to it when it is started next.
func TestFork_ProcessEndsAsItIsSet(t *testing.T) {
	t.Parallel()
	a, tc := optioned(t, t.TempDir(), adapters.Info{}, "", optionModel)
	tc.sets(a, "model", `"small"`, optionModel)
	id := tc.request("session/fork", `{"sessionId":"n"}`)
	a.answer(a.nextOf(t, "session/fork"), `{"sessionId":"f",`+offeringOptions(optionModel)[1:])
	a.nextOf(t, "session/set_config_option").to.crash(errCrash)
	if _, res := tc.until(id); res.Err() != nil {
		t.Fatalf("%s", res.Frame())
	}
	_, opened := tc.begins(t, a, "f")
	a.answer(opened, offeringOptions(optionModel))
	if set := a.nextOf(t, "session/set_config_option"); given(set, "value") != `"small"` {
		t.Errorf("it is asked for %s", set.m.Frame())
	}
}

// A load that says once more with which permissionMode the session was opened, and in which mode it is, opens nothing.
func TestLoad_ModeBesideThePermissionModeThatItHas(t *testing.T) {
	t.Parallel()
	a, tc, id := offering(t, takesPermission, own(`"permissionMode":"write","mode":"plan"`))
	a.answer(a.nextOf(t, "session/set_mode"), `{}`)
	tc.until(acp.ID(id))
	load := tc.request("session/load", loadOf("n", "/tmp", own(`"permissionMode":"write","mode":"plan"`)))
	if m := a.nextOf(t, "session/set_mode"); given(m, "modeId") != `"plan"` {
		t.Errorf("it is asked for %s", m.m.Frame())
	} else {
		a.answer(m, `{}`)
	}
	if _, res := tc.until(load); res.Err() != nil || member(string(res.Result()), "unsupported") != "" {
		t.Errorf("%s", res.Frame())
	}
}

// Only null has nothing be chosen.
func TestLoad_OfAnEmptyText(t *testing.T) {
	t.Parallel()
	a, tc := optioned(t, t.TempDir(), adapters.Info{}, "", optionModel)
	tc.sets(a, "model", `"small"`, optionModel)
	for _, f := range []string{"model", "variant", "mode"} {
		if res := tc.call("session/load", loadOf("n", "/tmp", own(`"`+f+`":""`))); !strings.Contains(member(res, "unsupported"), f) {
			t.Errorf("%s: %s", f, res)
		}
	}
	tc.ends(a)
	if set := tc.startsWith(a, takesAll, optionModel); strings.Join(set, " ") != `"model"="small"` {
		t.Errorf("the agent is set to %q", set)
	}
}

// A field that the adapter here does not take is told of as often as it is asked for, also where the record has it.
func TestLoad_RepeatsWhatTheAdapterDoesNotTake(t *testing.T) {
	t.Parallel()
	_, tc := optioned(t, t.TempDir(), takesPermission, own(`"instructions":"be brief"`), optionModel)
	there, _ := tc.travels(t, &fakeAgent{id: "fake"}, true, func(record []byte) []byte { return record })
	for range 2 {
		if res := there.call("session/load", loadOf("n", "/tmp", own(`"instructions":"be brief"`))); !strings.Contains(member(res, "unsupported"), "does not take it") {
			t.Error(res)
		}
	}
}

// What an agent says itself that it does not take is told once, also where the gateway knows it, too.
func TestNew_RefusedByBoth(t *testing.T) {
	t.Parallel()
	a := &fakeAgent{id: "fake", caps: reopening, shared: make(chan sent, 64)}
	a.byHand()
	a.info.Takes = []string{"permissionMode"}
	tc := connect(t, newRuntime(t, t.TempDir(), a), "")
	id := tc.request("session/new", `{"cwd":"/tmp","mcpServers":[]`+own(`"permissionMode":"read-only"`)+`}`)
	a.answer(a.nextOf(t, "session/new"), `{"sessionId":"n","_meta":{"sandboxagent.dev":{"unsupported":[{"field":"permissionMode","reason":"the agent knows no such mode"}]}}}`)
	_, res := tc.until(id)
	if got, want := member(string(res.Result()), "unsupported"), `[{"field":"permissionMode","reason":"the agent knows no such mode"}]`; got != want {
		t.Errorf("unsupported is %s, want %s", got, want)
	}
}
