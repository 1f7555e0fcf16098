package runtime

import (
	"os"
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

// A working directory that cannot be one is refused before an agent is asked.
func TestNewSession_Folder(t *testing.T) {
	a := &fakeAgent{id: "fake", caps: `{"sessionCapabilities":{"fork":{}}}`, shared: make(chan sent, 8)}
	tc := connect(t, newRuntime(t, t.TempDir(), a), "")
	s := tc.session()
	file := t.TempDir() + "/file"
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for cwd, want := range map[string]string{
		"": "needs params.cwd", "here": "absolute", file: "not a directory", file + "er": "no such file or directory: make the directory",
	} {
		for method, params := range map[string]string{
			"session/new": `{"cwd":"` + cwd + `","mcpServers":[]}`, "session/fork": `{"sessionId":"` + s + `","cwd":"` + cwd + `"}`,
		} {
			if cwd == "" && method == "session/fork" {
				continue
			}
			if e := tc.callErr(method, params); e.Code != acp.CodeInvalidParams || !strings.Contains(e.Message, want) {
				t.Errorf("%s in %q: %v, want %q", method, cwd, e, want)
			}
		}
	}
	if len(a.shared) > 0 {
		t.Error("the agent was asked")
	}
}
