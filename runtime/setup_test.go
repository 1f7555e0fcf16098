package runtime

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/adapters"
)

// Servers come in many forms; the agent is given the protocol's own, and those of _meta
// in that of a .mcp.json file if its adapter takes them.
func TestNewSession_FormsOfMCPServers(t *testing.T) {
	const local = `{"name":"l","command":"/l","args":["-a","b"],"env":[{"name":"K","value":"v"}]}`
	const remote = `{"name":"r","type":"http","url":"http://r","headers":[{"name":"H","value":"v"}]}`
	for _, c := range []struct{ servers, mcp, listed, named string }{
		{`[` + local + `,` + remote + `]`, ``, `[` + local + `,` + remote + `]`, ``},
		{`[{"name":"l","type":"stdio","command":"/l","args":["-a","b"],"env":{"K":"v"}}]`, ``, `[` + local + `]`, ``},
		{`[{"name":"l","type":"local","command":["/l","-a","b"],"environment":{"K":"v"}}]`, ``, `[` + local + `]`, ``},
		{`[{"name":"l","type":"local","command":"/l -a b","environment":{"K":"v"}}]`, ``, `[` + local + `]`, ``},
		{`[{"name":"r","type":"remote","url":"http://r","headers":{"H":"v"}}]`, ``, `[` + remote + `]`, ``},
		{`[{"name":"r","url":"http://r","headers":{"H":"v"}}]`, ``, `[` + remote + `]`, ``},
		{`{"l":{"command":"/l","args":["-a","b"],"env":{"K":"v"}}}`, ``, `[` + local + `]`, ``},
		{`[{"name":"x","type":"acp","serverId":"1"}]`, ``, `[{"name":"x","type":"acp","serverId":"1"}]`, ``},
		{
			`[]`, `{"mcpServers":{"l":{"type":"local","command":["/l","-a","b"],"environment":{"K":"v"},"own":1}}}`,
			`[{"name":"l","command":"/l","args":["-a","b"],"env":[{"name":"K","value":"v"}],"own":1}]`,
			`{"l":{"type":"stdio","command":"/l","args":["-a","b"],"env":{"K":"v"},"own":1}}`,
		},
		{`[` + remote + `]`, `{"r":{"type":"remote","url":"http://other"}}`, `[` + remote + `]`, `{"r":{"type":"http","url":"http://other"}}`},
	} {
		for _, takes := range []bool{false, true} {
			a := &fakeAgent{id: "fake"}
			if takes {
				a.info.Takes = []string{"mcp"}
			}
			asked := make(chan acp.Message, 1)
			a.handle = func(c *fakeConn, m acp.Message) { asked <- m; c.newSession(m) }
			tc := connect(t, newRuntime(t, t.TempDir(), a), "")
			meta := `{}`
			if c.mcp != "" {
				meta = `{"sandboxagent.dev":{"mcp":` + c.mcp + `}}`
			}
			res := tc.call("session/new", `{"cwd":"/tmp","mcpServers":`+c.servers+`,"_meta":`+meta+`}`)
			m := <-asked
			wantList, wantNamed := c.listed, ""
			if takes && c.mcp != "" {
				wantList, wantNamed = c.servers, c.named
			}
			for path, want := range map[string]string{"list": wantList, "named": wantNamed} {
				got, _ := rawjson.Member(m.Params(), "mcpServers")
				if path == "named" {
					got, _ = rawjson.Member(m.Params(), "_meta", acp.MetaKey, "mcp")
				}
				if diff := cmp.Diff(decoded(want), decoded(string(got))); diff != "" {
					t.Errorf("%s %s, taken: %v, %s (-want +got):\n%s", c.servers, c.mcp, takes, path, diff)
				}
			}
			if got := member(res, "unsupported"); got != "" {
				t.Errorf("unsupported: %s", got)
			}
		}
	}
}

// A server that cannot be understood is refused with its name.
func TestNewSession_WrongMCPServers(t *testing.T) {
	tc := connect(t, newRuntime(t, t.TempDir(), &fakeAgent{}), "")
	for servers, want := range map[string]string{
		`[{"command":"x"}]`:                          "mcpServers[0] has no name",
		`[{"name":"a","type":"local"}]`:              "a: a server that is started here needs a command",
		`[{"name":"a","type":"remote"}]`:             "a: a server of type http needs a url",
		`[{"name":"a","command":7}]`:                 "a: command must be a text, or a list of texts",
		`"x"`:                                        "must be a list",
		`[{"name":"a","command":"x","env":["K=V"]}]`: "env must be an object, or a list of name and value",
	} {
		if e := tc.callErr("session/new", `{"cwd":"/tmp","mcpServers":`+servers+`}`); e.Code != acp.CodeInvalidParams || !strings.Contains(e.Message, want) {
			t.Errorf("%s: %v, want %q", servers, e, want)
		}
	}
}

// An adapter that does not take permissionMode leaves it to the modes of its agent. What
// cannot be held to reading is no session.
func TestNewSession_PermissionModeIsAMode(t *testing.T) {
	const plan = `{"id":"plan","name":"Plan","description":"Read-only mode"}`
	for name, c := range map[string]struct {
		wish, offered, refuses string
		set, unsupported       string // "" for neither
		refused                bool
	}{
		"readonly":               {wish: "readonly", offered: plan, set: "plan"},
		"bypass":                 {wish: "bypass", offered: plan + `,{"id":"yolo","name":"YOLO"}`, set: "yolo"},
		"default":                {wish: "default", offered: plan},
		"no such mode":           {wish: "write", offered: plan, unsupported: "it has first, plan"},
		"no such value":          {wish: "nope", offered: plan, unsupported: "it is default, readonly, write, bypass"},
		"cannot be held":         {wish: "readonly", offered: `{"id":"plan","name":"Plan","description":"Plans and carries out"}`, refused: true},
		"does not take the mode": {wish: "readonly", offered: plan, refuses: "the folder is not trusted", set: "plan", refused: true},
		"does not take another":  {wish: "bypass", offered: `{"id":"yolo","name":"YOLO"}`, refuses: "the folder is not trusted", set: "yolo", unsupported: "the folder is not trusted"},
	} {
		t.Run(name, func(t *testing.T) {
			set := make(chan string, 4)
			a := &fakeAgent{caps: reopening}
			a.handle = func(f *fakeConn, m acp.Message) {
				switch m.Method() {
				case "session/new":
					f.result(m, `{"sessionId":"n","modes":{"currentModeId":"first","availableModes":[{"id":"first","name":"First"},`+c.offered+`]}}`)
				case "session/set_mode":
					set <- rawjson.MemberString(m.Params(), "modeId")
					if c.refuses != "" {
						e := acp.NewError(m.ID(), acp.Errorf(acp.CodeInternal, "%s", c.refuses))
						f.send(string(e.Frame()))
						return
					}
					f.result(m, `{}`)
				case "session/close":
					f.result(m, `{}`)
				}
			}
			r := newRuntime(t, t.TempDir(), a)
			tc := connect(t, r, "")
			id := tc.request("session/new", newParams(`{"permissionMode":"`+c.wish+`"}`))
			_, res := tc.until(id)
			if c.refused {
				if e := res.Err(); e == nil || e.Code != acp.CodeInvalidParams || !strings.Contains(string(e.Data), "mode_not_supported") {
					t.Errorf("answered %s", res.Frame())
				}
				if list, err := r.Sessions(t.Context(), SessionFilter{}); err != nil || len(list.Sessions) > 0 {
					t.Errorf("there are the sessions %+v", list.Sessions)
				}
			} else if got := member(string(res.Result()), "unsupported"); (c.unsupported == "") != (got == "") || !strings.Contains(got, c.unsupported) {
				t.Errorf("unsupported: %s", res.Frame())
			}
			close(set)
			if got := <-set; got != c.set {
				t.Errorf("set %q, want %q", got, c.set)
			}
		})
	}
}

// A field that there is not is listed with the nearest that there is, also one of a load.
func TestNewSession_UnknownFields(t *testing.T) {
	a := &fakeAgent{id: "fake", caps: reopening, info: adapters.Info{Takes: []string{"permissionMode"}}}
	tc := connect(t, newRuntime(t, t.TempDir(), a), "")
	const meta = `,"_meta":{"sandboxagent.dev":{"permisionMode":"bypass","permissionmode":"x","nothingLikeIt":1,"Title":"t"}}}`
	res := tc.call("session/new", `{"cwd":"/tmp","mcpServers":[{"name":"l","command":"/l","args":[],"env":[],"timeoutMs":5}]`+meta)
	for _, res := range []string{res, tc.call("session/load", `{"sessionId":"`+rawjson.MemberString([]byte(res), "sessionId")+`","cwd":"/tmp","mcpServers":[]`+meta)} {
		got := member(res, "unsupported")
		for _, want := range []string{
			`{"field":"permisionMode","reason":"there is no such field; is permissionMode meant?"}`, `{"field":"permissionmode","reason":"there is no such field; is permissionMode meant?"}`,
			`{"field":"nothingLikeIt","reason":"there is no such field"}`, `is title meant?`,
		} {
			if !strings.Contains(got, want) {
				t.Errorf("no %s in %s", want, got)
			}
		}
	}
	if got := member(res, "unsupported"); !strings.Contains(got, "mcpServers.l.timeoutMs") {
		t.Errorf("the limit of a server: %s", got)
	}
	if e := tc.callErr("session/new", newParams(`{"credentials":{"apikey2":"k"}}`)); e.Code != acp.CodeInvalidParams || !strings.Contains(e.Message, "nothing else") {
		t.Errorf("a key under another name: %v", e)
	}
}

// A title that a client gave stays, whatever the agent calls the session.
func TestNewSession_TitleHolds(t *testing.T) {
	a := &fakeAgent{id: "fake", shared: make(chan sent, 8)}
	r := newRuntime(t, t.TempDir(), a)
	tc := connect(t, r, "")
	named, unnamed := tc.newWith(`{"title":"mine"}`), tc.session()
	for i, s := range []string{named, unnamed} {
		id := tc.request("session/prompt", prompt(s, "x"))
		m := a.nextOf(t, "session/prompt")
		native := m.m.Session()
		a.conn().send(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"` + native + `","update":{"sessionUpdate":"session_info_update","title":"theirs"}}}`)
		a.conn().send(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"` + native + `","update":{"sessionUpdate":"session_info_update","title":"theirs","updatedAt":"2026-01-01T00:00:00Z"}}}`)
		a.answer(m, `{"stopReason":"end_turn"}`)
		before, _ := tc.until(id)
		var titles []string
		for _, m := range before {
			titles = append(titles, rawjson.MemberString(m.Update(), "title"))
		}
		info, _ := r.Session(s)
		wantTitles, want := [][]string{{""}, {"theirs", "theirs"}}[i], []string{"mine", "theirs"}[i]
		if diff := cmp.Diff(wantTitles, titles); diff != "" || info.Title != want {
			t.Errorf("session %d is called %q; titles shown (-want +got):\n%s", i, info.Title, diff)
		}
	}
	id := tc.request("session/set_title", `{"sessionId":"`+named+`","title":"better"}`)
	a.answer(a.nextOf(t, "session/set_title"), `{"title":"better"}`)
	before, _ := tc.until(id)
	if info, _ := r.Session(named); info.Title != "better" || len(before) != 1 {
		t.Errorf("renamed to %q, told %d times", info.Title, len(before))
	}
}

// What a client sets without waiting for the answers is set in that order.
func TestSetMetadata_TheLastOneCounts(t *testing.T) {
	a := &fakeAgent{id: "fake", caps: reopening, shared: make(chan sent, 64)}
	r := newRuntime(t, t.TempDir(), a)
	tc := connect(t, r, "")
	s := tc.session()
	var ids []acp.ID
	for n := range 60 {
		member := []string{fmt.Sprintf(`"title":"title %d"`, n), fmt.Sprintf(`"metadata":{"n":%d}`, n)}[n%2]
		ids = append(ids, tc.request("_sandboxagent/session/set_metadata", `{"sessionId":"`+s+`",`+member+`}`))
	}
	for _, id := range ids { // answered in that order, too
		if _, res := tc.until(id); res.Err() != nil {
			t.Fatal(res.Err())
		}
	}
	if info, err := r.Session(s); err != nil || info.Title != "title 58" || string(info.Metadata) != `{"n":59}` {
		t.Errorf("%q, %s, %v", info.Title, info.Metadata, err)
	}
}

// A client may give a session a title without its agent, which may not know of titles. Without it the session is called
// again as its agent calls it.
func TestSetMetadata_Title(t *testing.T) {
	dir, a := t.TempDir(), &fakeAgent{id: "fake", caps: reopening, shared: make(chan sent, 64)}
	r := newRuntime(t, dir, a)
	tc := connect(t, r, "")
	s := tc.session()
	called := func(title string) {
		t.Helper()
		if info, err := r.Session(s); err != nil || info.Title != title {
			t.Errorf("called %q, %v, want %q", info.Title, err, title)
		}
	}
	name := func(params string) {
		t.Helper()
		tc.call("_sandboxagent/session/set_metadata", `{"sessionId":"`+s+`",`+params+`}`)
	}
	say := func(title string) {
		t.Helper()
		id := tc.request("session/prompt", prompt(s, "hello"))
		m := a.nextOf(t, "session/prompt")
		m.to.send(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"` + m.m.Session() + `","update":{"sessionUpdate":"session_info_update","title":"` + title + `"}}}`)
		a.answer(m, `{"stopReason":"end_turn"}`)
		tc.until(id)
	}
	for _, params := range []string{`"title":7`, `"title":null`, `"title":"x","metadata":7`, `"other":1`} {
		if e := tc.callErr("_sandboxagent/session/set_metadata", `{"sessionId":"`+s+`",`+params+`}`); e.Code != acp.CodeInvalidParams {
			t.Errorf("%s: %v", params, e)
		}
	}
	name(`"title":"mine","metadata":{"k":1}`)
	called("mine")
	if info, _ := r.Session(s); string(info.Metadata) != `{"k":1}` {
		t.Errorf("metadata %s", info.Metadata)
	}
	name(`"title":""`)
	called("")
	say("theirs")
	called("theirs")
	name(`"title":"mine"`)
	say("theirs, later")
	called("mine")
	name(`"title":"better"`)
	tc.close()
	if err := r.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	r = newRuntime(t, dir, a) // which knows both
	tc = connect(t, r, "")
	called("better")
	name(`"title":""`)
	called("theirs, later")
	var told []string
	events, _, err := r.Events(t.Context(), s, 0, 0)
	for _, e := range events {
		if m := acp.MustParse(e.Message); string(m.UpdateKind()) == "session_info_update" {
			title, _ := rawjson.Member(m.Update(), "title")
			told = append(told, string(title))
		}
	}
	want := []string{`"mine"`, `null`, `"theirs"`, `"mine"`, `"better"`, `"theirs, later"`}
	if diff := cmp.Diff(want, told); diff != "" || err != nil {
		t.Errorf("clients were told (-want +got), %v:\n%s", err, diff)
	}
}

// A working directory that cannot be one is refused before an agent is asked.
func TestNewSession_Folder(t *testing.T) {
	a := &fakeAgent{id: "fake", caps: `{"sessionCapabilities":{"fork":{}}}`, shared: make(chan sent, 8)}
	tc := connect(t, newRuntime(t, t.TempDir(), a), "")
	s := tc.session()
	file := t.TempDir() + "/file"
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	locked := t.TempDir()
	if err := os.Chmod(locked, 0o600); err != nil {
		t.Fatal(err)
	}
	refusals := map[string]struct{ text, kind string }{
		"": {"needs params.cwd", ""}, "here": {"absolute", "invalid_request"}, file: {"not a directory", "not_a_directory"},
		file + "er": {"no such file or directory: make the directory", "not_found"},
	}
	if os.Getuid() > 0 { // root may enter any folder
		refusals[locked] = struct{ text, kind string }{"permission denied", "permission_denied"}
	}
	for cwd, want := range refusals {
		for method, params := range map[string]string{
			"session/new": `{"cwd":"` + cwd + `","mcpServers":[]}`, "session/fork": `{"sessionId":"` + s + `","cwd":"` + cwd + `"}`,
		} {
			if cwd == "" && method == "session/fork" {
				continue
			}
			if e := tc.callErr(method, params); e.Code != acp.CodeInvalidParams || !strings.Contains(e.Message, want.text) || !strings.HasSuffix(rawjson.MemberString(e.Data, "type"), want.kind) {
				t.Errorf("%s in %q: %v, %s, want %q", method, cwd, e, e.Data, want)
			}
		}
	}
	if len(a.shared) > 0 {
		t.Error("the agent was asked")
	}
}

// A session that must only read does so behind a restart, too. An agent that cannot be
// held to it any more is given no prompt, and another mode than was chosen is told.
func TestReopen_ModeIsKept(t *testing.T) {
	const first = `{"id":"first","name":"First"}`
	const plan = `{"id":"plan","name":"Plan","description":"Read-only mode"}`
	for name, c := range map[string]struct {
		wish, chosen, offers, refuses string
		set                           string // at the new process
		refused, told                 string
	}{
		"readonly":                      {wish: "readonly", offers: first + "," + plan, set: "plan"},
		"readonly, refused":             {wish: "readonly", offers: first + "," + plan, refuses: "the folder is not trusted", set: "plan", refused: "the folder is not trusted"},
		"readonly, there no more":       {wish: "readonly", offers: first, refuses: "no such mode", set: "plan", refused: "no such mode"},
		"readonly, then another chosen": {wish: "readonly", chosen: "write", offers: first + "," + plan + `,{"id":"write","name":"Write"}`, set: "write"},
		"another one, refused":          {wish: "default", chosen: "plan", offers: first + "," + plan, refuses: "not now", set: "plan", told: "not now"},
	} {
		t.Run(name, func(t *testing.T) {
			a := &fakeAgent{id: "fake", caps: reopening, shared: make(chan sent, 64)}
			a.byHand()
			r, dir := newRuntime(t, t.TempDir(), a), t.TempDir()
			tc := connect(t, r, "")
			id := tc.request("session/new", `{"cwd":"`+dir+`","mcpServers":[],"_meta":{"sandboxagent.dev":{"permissionMode":"`+c.wish+`"}}}`)
			a.answer(a.nextOf(t, "session/new"), `{"sessionId":"n","modes":{"currentModeId":"first","availableModes":[`+first+","+plan+`,{"id":"write","name":"Write"}]}}`)
			if c.wish == "readonly" {
				a.answer(a.nextOf(t, "session/set_mode"), `{}`)
			}
			_, res := tc.until(id)
			s := rawjson.MemberString(res.Result(), "sessionId")
			if c.chosen != "" {
				id := tc.request("session/set_mode", `{"sessionId":"`+s+`","modeId":"`+c.chosen+`"}`)
				a.answer(a.nextOf(t, "session/set_mode"), `{}`)
				tc.until(id)
			}
			a.conn().crash(errCrash)
			tc.nextOf("_sandboxagent/session/ended")

			id = tc.request("session/prompt", prompt(s, "hi"))
			a.answer(a.nextOf(t, "session/resume"), `{"modes":{"currentModeId":"first","availableModes":[`+c.offers+`]}}`)
			m := a.nextOf(t, "session/set_mode")
			if got := rawjson.MemberString(m.m.Params(), "modeId"); got != c.set {
				t.Errorf("the mode was set to %q, want %q", got, c.set)
			}
			if c.refuses == "" {
				a.answer(m, `{}`)
			} else {
				a.refuse(m, c.refuses)
			}
			if c.refused != "" {
				a.answer(a.nextOf(t, "session/close"), `{}`)
				_, res := tc.until(id)
				if e := res.Err(); e == nil || !strings.Contains(e.Message, c.refused) || !strings.Contains(string(e.Data), "mode_not_supported") {
					t.Errorf("the prompt was answered %s", res.Frame())
				}
				return
			}
			a.answer(a.nextOf(t, "session/prompt"), `{"stopReason":"end_turn"}`)
			before, _ := tc.until(id)
			told := ""
			for _, m := range before {
				told += member(string(m.Update()), "unsupported")
			}
			if (told != "") != (c.told != "") || !strings.Contains(told, c.told) {
				t.Errorf("told %q, want %q", told, c.told)
			}
		})
	}
}

// The agent of a fork finds the conversation as that of the session does, also when it is started anew: with its
// variables and its credentials, unless the fork is asked for with others.
func TestFork_ItsProcess(t *testing.T) {
	const theirs, others = `"env":{"AGENT_HOME":"/theirs"},"credentials":{"apiKey":"theirs"}`, `"env":{"AGENT_HOME":"/others"},"credentials":{"apiKey":"others"}`
	for _, c := range []struct {
		name, asked, env, key string
		perSession            bool
	}{
		{"shared", ``, "/theirs", "theirs", false},
		{"alone", ``, "/theirs", "theirs", true},
		{"shared, others", others, "/others", "others", false},
		{"alone, others", others, "/others", "others", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := &fakeAgent{id: "fake", caps: `{"sessionCapabilities":{"resume":{},"fork":{}}}`, info: adapters.Info{PerSession: c.perSession, Credentials: anyCredentials}, shared: make(chan sent, 64)}
			r := newRuntime(t, t.TempDir(), a)
			tc := connect(t, r, "")
			s := tc.newWith(`{` + theirs + `}`)
			id := tc.request("session/fork", `{"sessionId":"`+s+`","cwd":"/tmp","mcpServers":[],"_meta":{"sandboxagent.dev":{`+c.asked+`}}}`)
			m := a.nextOf(t, "session/fork")
			check := func(when string) {
				t.Helper()
				if o := a.optionsOf(m.to); !slices.Equal(o.Env, []string{"AGENT_HOME=" + c.env}) || o.Credentials.APIKey != c.key {
					t.Errorf("%s: variables %q, key %q; want %s and %s", when, o.Env, o.Credentials.APIKey, c.env, c.key)
				}
			}
			check("as it is made")
			events, _, err := r.Events(t.Context(), s, 0, 0)
			for _, e := range append(events, Event{Message: m.m.Frame()}) {
				if err != nil || strings.Contains(string(e.Message), "apiKey") {
					t.Errorf("its credentials go on: %s, %v", e.Message, err)
				}
			}
			a.answer(m, `{"sessionId":"forked"}`)
			tc.until(id)
			m.to.crash(errCrash)
			waitFor(t, r, "forked", func(i SessionInfo) bool { return i.State == StateDormant })
			id = tc.request("session/prompt", prompt("forked", "go on"))
			m = a.nextOf(t, "session/resume")
			check("as it goes on")
			a.answer(m, `{}`)
			a.answer(a.nextOf(t, "session/prompt"), `{"stopReason":"end_turn"}`)
			tc.until(id)
		})
	}
	tc := connect(t, newRuntime(t, t.TempDir(), &fakeAgent{caps: `{"sessionCapabilities":{"fork":{}}}`}), "")
	s := tc.session()
	for _, wrong := range []string{`"env":7`, `"durability":"sync"`, `"isolation":"none"`} { // no hub stores it
		if e := tc.callErr("session/fork", `{"sessionId":"`+s+`","cwd":"/tmp","mcpServers":[],"_meta":{"sandboxagent.dev":{`+wrong+`}}}`); e.Code != acp.CodeInvalidParams {
			t.Errorf("with %s: %v", wrong, e)
		}
	}
}

// What starts a process with credentials is a request. As a notification it goes to the log and to the agent.
func TestNotification_HasNoCredentials(t *testing.T) {
	a := &fakeAgent{id: "fake", caps: `{"loadSession":true,"sessionCapabilities":{"resume":{},"fork":{}}}`, shared: make(chan sent, 64)}
	r := newRuntime(t, t.TempDir(), a)
	tc := connect(t, r, "")
	s := tc.session()
	for _, method := range []string{"session/load", "session/resume", "session/fork"} {
		n := acp.NewNotification(method, []byte(`{"sessionId":"`+s+`","cwd":"/tmp","mcpServers":[],"_meta":{"sandboxagent.dev":{"credentials":{"apiKey":"secret"}}}}`))
		if err := tc.c.Send(t.Context(), n); err != nil {
			t.Fatal(err)
		}
		if m := a.nextOf(t, method); strings.Contains(string(m.m.Frame()), "secret") {
			t.Errorf("the agent is given %s", m.m.Frame())
		}
	}
	events, _, err := r.Events(t.Context(), s, 0, 0)
	for _, e := range events {
		if strings.Contains(string(e.Message), "secret") {
			t.Errorf("the log has %s", e.Message)
		}
	}
	if err != nil || len(events) == 0 {
		t.Errorf("%d events, %v", len(events), err)
	}
}

// A fork has the settings that it is asked for with, as a new session has.
func TestFork_Settings(t *testing.T) {
	a := &fakeAgent{id: "fake", caps: `{"sessionCapabilities":{"resume":{},"close":{},"fork":{}}}`, shared: make(chan sent, 64)}
	tc := connect(t, newRuntime(t, t.TempDir(), a), "")
	s := tc.session()
	id := tc.request("session/fork", `{"sessionId":"`+s+`","cwd":"/tmp","mcpServers":[],"_meta":{"sandboxagent.dev":{"permissionMode":"readonly","modell":"x"}}}`)
	a.answer(a.nextOf(t, "session/fork"), `{"sessionId":"forked","modes":{"currentModeId":"first","availableModes":[{"id":"plan","name":"Plan","description":"Read-only mode"}]}}`)
	m := a.nextOf(t, "session/set_mode")
	if got := string(m.m.Params()); got != `{"sessionId":"forked","modeId":"plan"}` {
		t.Errorf("the fork's mode was set with %s", got)
	}
	a.answer(m, `{}`)
	_, res := tc.until(id)
	if got := member(string(res.Result()), "unsupported"); !strings.Contains(got, "is model meant?") {
		t.Errorf("unsupported: %s", res.Frame())
	}
}

// A fork is given its id, its title and a handover as a new session is, and the log of its origin has no secrets of
// it. An id is free again when the fork came to nothing.
func TestFork_Own(t *testing.T) {
	a := &fakeAgent{id: "fake", caps: `{"sessionCapabilities":{"resume":{},"close":{},"fork":{}}}`, shared: make(chan sent, 64)}
	r := newRuntime(t, t.TempDir(), a)
	tc := connect(t, r, "")
	s := tc.session()
	fork := func(own string) string {
		return `{"sessionId":"` + s + `","cwd":"/tmp","mcpServers":[{"name":"m","command":"x","args":[],"env":[{"name":"A","value":"secret-1"}]}],` +
			`"_meta":{"sandboxagent.dev":{"env":{"B":"secret-2"},"isolation":"agent",` + own + `}}}`
	}
	for own, want := range map[string]string{
		`"requestedSessionId":"` + s + `"`: "is taken",
		`"requestedSessionId":"a/b c"`:     "visible ASCII",
		`"handover":7`:                     "handover must be a text",
		`"title":7`:                        "title must be a text",
	} {
		if e := tc.callErr("session/fork", fork(own)); e.Code != acp.CodeInvalidParams || !strings.Contains(e.Message, want) {
			t.Errorf("%s: %v", own, e)
		}
	}
	const own = `"requestedSessionId":"mine","title":"My copy","handover":"what was before"`
	id := tc.request("session/fork", fork(own))
	m := a.nextOf(t, "session/fork")
	m.to.out <- acp.NewError(m.m.ID(), acp.Errorf(acp.CodeInternal, "not now"))
	if _, res := tc.until(id); res.Err() == nil {
		t.Errorf("%s", res.Frame())
	}
	id = tc.request("session/fork", fork(own))
	m = a.nextOf(t, "session/fork")
	if got := string(m.m.Params()); strings.Contains(got, "what was before") || !strings.Contains(got, "secret-1") {
		t.Errorf("the agent is asked with %s", got)
	}
	a.answer(m, `{"sessionId":"forked"}`)
	if _, res := tc.until(id); rawjson.MemberString(res.Result(), "sessionId") != "mine" || member(string(res.Result()), "unsupported") != "" {
		t.Fatalf("%s", res.Frame())
	}
	m.to.send(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"forked","update":{"sessionUpdate":"session_info_update","title":"Another"}}}`)
	prompted := tc.request("session/prompt", prompt("mine", "go on"))
	m = a.nextOf(t, "session/prompt")
	if got := string(m.m.Params()); !strings.Contains(got, "what was before") || !strings.Contains(got, "go on") {
		t.Errorf("the first prompt is %s", got)
	}
	a.answer(m, `{"stopReason":"end_turn"}`)
	tc.until(prompted)
	if i, err := r.Session("mine"); err != nil || i.Title != "My copy" || i.Continuity != "native" {
		t.Errorf("%+v, %v", i, err)
	}
	for _, one := range []string{s, "mine"} {
		events, _, err := r.Events(t.Context(), one, 0, 0)
		if err != nil || len(events) == 0 {
			t.Errorf("%d events, %v", len(events), err)
		}
		for _, e := range events {
			if text := string(e.Message); strings.Contains(text, "secret-") || strings.Contains(text, "what was before") {
				t.Errorf("the log of %s has %s", one, text)
			}
		}
	}
	got := tc.call("session/load", `{"sessionId":"mine","cwd":"/tmp","mcpServers":[],"_meta":{"sandboxagent.dev":{"requestedSessionId":"yours","handover":"x"}}}`)
	if !strings.Contains(got, "fork it to have another") || !strings.Contains(got, "prompt with the text instead") {
		t.Errorf("what has no effect is not named: %s", got)
	}
}

// What the session of which a fork is made has is no sign that the fork has it: its agent is told, unless it says that of the fork.
func TestFork_SettingsThatItsAgentDoesNotSay(t *testing.T) {
	t.Parallel()
	const says = `"configOptions":[{"id":"mode","name":"Mode","category":"mode","type":"select","currentValue":"plan","options":[{"value":"plan","name":"Plan","description":"read-only"}]},
		{"id":"m","name":"Model","category":"model","type":"select","currentValue":"big","options":[{"value":"big","name":"Big"}]}]`
	for _, silent := range []bool{true, false} {
		a := &fakeAgent{id: "fake", caps: `{"sessionCapabilities":{"fork":{}}}`, shared: make(chan sent, 64)}
		a.handle = func(f *fakeConn, m acp.Message) { a.shared <- sent{f, m} }
		tc := connect(t, newRuntime(t, t.TempDir(), a), "")
		id := tc.request("session/new", `{"cwd":"/tmp","mcpServers":[]}`)
		a.answer(a.nextOf(t, "session/new"), `{"sessionId":"n",`+says+`}`)
		_, res := tc.until(id)
		id = tc.request("session/fork", loadOf(rawjson.MemberString(res.Result(), "sessionId"), "/tmp", own(`"permissionMode":"readonly","model":"big"`)))
		result := `{"sessionId":"fork"}`
		if !silent {
			result = `{"sessionId":"fork",` + says + `}`
		}
		a.answer(a.nextOf(t, "session/fork"), result)
		set := a.nextOf(t, "session/set_config_option")
		if got := rawjson.MemberString(set.m.Params(), "value"); got != "plan" {
			t.Errorf("set to %q", got)
		}
		a.answer(set, `{}`)
		if silent {
			a.answer(a.nextOf(t, "session/set_config_option"), `{}`)
		}
		if _, res := tc.until(id); res.Err() != nil || member(string(res.Result()), "unsupported") != "" {
			t.Errorf("%s", res.Frame())
		}
	}
}
