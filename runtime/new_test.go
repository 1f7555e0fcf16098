package runtime

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/runtime/session"
)

// What is wrong with a new session is said, and its id is free again.
func TestNew_Refused(t *testing.T) {
	// The agent answers as the session's title says.
	a := &fakeAgent{id: "fake", handle: func(c *fakeConn, m acp.Message) {
		if m.Method() == acp.MethodSessionNew {
			switch rawjson.MemberString(m.Meta(), acp.MetaKey, "title") {
			case "nameless":
				c.result(m, `{}`)
				return
			case "refused":
				c.out <- acp.NewError(m.ID(), acp.Errorf(acp.CodeAuthRequired, "log in"))
				return
			}
		}
		c.newSession(m)
	}}
	dead := &deadAgent{&fakeAgent{id: "dead"}}
	r := openRuntime(t, Options{DataDir: t.TempDir(), Version: "test", Adapters: []adapters.Adapter{a, dead}, DefaultAgent: "fake"})
	tc := connect(t, r, "")
	most := strings.Repeat("x", session.MaxHandover)
	begin := func(meta string) *acp.Error {
		_, res := tc.until(tc.request("session/new", `{"cwd":"/tmp","mcpServers":[],"_meta":{"sandboxagent.dev":{"requestedSessionId":"mine",`+meta+`}}}`))
		return res.Err()
	}
	for _, row := range []struct {
		meta, says string
		code       int64
	}{
		{`"durability":"sync"`, "has joined no hub", acp.CodeInvalidParams},
		{`"durability":7`, "must be async or sync, not 7", acp.CodeInvalidParams},
		{`"handover":""`, "must be a text that is not empty", acp.CodeInvalidParams},
		{`"handover":7`, "must be a text that is not empty, not 7", acp.CodeInvalidParams},
		{`"handover":"` + most + `y"`, fmt.Sprint(session.MaxHandover, " are the most"), acp.CodeInvalidParams},
		{`"env":{"A=B":"c"}`, "A=B", acp.CodeInvalidParams},
		{`"agent":"dead"`, "does not start", acp.CodeInternal},
		{`"title":"nameless"`, "without a sessionId", acp.CodeInternal},
		{`"title":"refused"`, "log in", acp.CodeAuthRequired},
	} {
		if err := begin(row.meta); err == nil || err.Code != row.code || !strings.Contains(err.Message, row.says) {
			t.Errorf("%.40s: %+v, want code %d and %q", row.meta, err, row.code, row.says)
		}
	}
	if err := begin(`"handover":"` + most + `"`); err != nil {
		t.Errorf("the longest text: %v", err)
	}
	if err := begin(`"title":"again"`); err == nil || !strings.Contains(string(rawjson.MemberString(err.Data, "type")), problem.SessionAlreadyExists.Type()) {
		t.Errorf("an id that is taken: %+v", err)
	}
}

// deadAgent is one that does not start.
type deadAgent struct{ *fakeAgent }

func (a *deadAgent) Open(ctx context.Context, o adapters.Options) (acp.Conn, error) {
	return nil, fmt.Errorf("the program does not start")
}

// A session that cannot be kept is none, and keeps no other from being made.
func TestNew_CannotBeKept(t *testing.T) {
	dir := t.TempDir()
	r := newRuntime(t, dir, &fakeAgent{caps: `{"loadSession":true}`})
	tc := connect(t, r, "")
	place := filepath.Join(dir, "sessions")
	if err := os.Rename(place, place+".away"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(place, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for method, params := range map[string]string{
		"session/new":  `{"cwd":"/tmp","mcpServers":[]}`,
		"session/load": `{"sessionId":"theirs","cwd":"/tmp","mcpServers":[]}`,
	} {
		if e := tc.callErr(method, params); rawjson.MemberString(e.Data, "type") != problem.Unavailable.Type() {
			t.Errorf("%s: %v", method, e)
		}
	}
	if n := r.sessions.Troubled(); n != 0 {
		t.Errorf("%d sessions cannot be written, and there is none", n)
	}
	if err := os.Remove(place); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(place+".away", place); err != nil {
		t.Fatal(err)
	}
	if got := tc.call("session/list", `{}`); !strings.Contains(got, `"sessions":[]`) {
		t.Errorf("%s", got)
	}
	tc.session()
}

// A fork that cannot be is refused before anything happens.
func TestFork_Refused(t *testing.T) {
	a := &fakeAgent{caps: `{"sessionCapabilities":{"fork":{}}}`}
	tc := connect(t, newRuntime(t, t.TempDir(), a), "")
	s := tc.session()
	if e := tc.callErr("session/fork", `{"sessionId":"`+s+`","cwd":"/no/such/folder","mcpServers":[]}`); e.Code != acp.CodeInvalidParams {
		t.Errorf("a folder that is not there: %v", e)
	}
	fork := tc.request("session/fork", `{"sessionId":"`+s+`","cwd":"/tmp","mcpServers":[]}`)
	m := a.conn().next(t, "session/fork")
	a.conn().out <- acp.NewError(m.ID(), acp.Errorf(acp.CodeInternal, "not now"))
	if _, res := tc.until(fork); res.Err() == nil || res.Err().Message != "not now" {
		t.Errorf("%s", res.Frame())
	}
	tc.call("session/close", `{"sessionId":"`+s+`"}`)
	if e := tc.callErr("session/fork", `{"sessionId":"`+s+`","cwd":"/tmp","mcpServers":[]}`); !strings.Contains(e.Message, "is closed") {
		t.Errorf("of a closed session: %v", e)
	}
}

// What must be a text and is none is refused, and not taken for left out: neither is a session made
// without it, nor is what a session has taken away.
func TestNew_FieldsThatMustBeTexts(t *testing.T) {
	r := newRuntime(t, t.TempDir(), &fakeAgent{})
	tc := connect(t, r, "")
	s := tc.newWith(`{"title":"mine"}`)
	for _, field := range []string{"agent", "requestedSessionId", "title", "model", "variant", "mode", "permissionMode", "agentVersion"} {
		for _, value := range []string{`7`, `true`, `["x"]`, `{"a":"b"}`} {
			own := `"_meta":{"sandboxagent.dev":{"` + field + `":` + value + `}}`
			for method, params := range map[string]string{
				"session/new":    `{"cwd":"/tmp","mcpServers":[],` + own + `}`,
				"session/load":   `{"sessionId":"` + s + `","cwd":"/tmp","mcpServers":[],` + own + `}`,
				"session/resume": `{"sessionId":"` + s + `","cwd":"/tmp","mcpServers":[],` + own + `}`,
			} {
				if e := tc.callErr(method, params); e.Code != acp.CodeInvalidParams || !strings.Contains(e.Message, field+" must be a text") {
					t.Errorf("%s with %s %s: %v", method, field, value, e)
				}
			}
		}
	}
	if i, err := r.Session(s); err != nil || i.Title != "mine" {
		t.Errorf("its title is %q, %v", i.Title, err)
	}
	tc.call("session/load", `{"sessionId":"`+s+`","cwd":"/tmp","mcpServers":[],"_meta":{"sandboxagent.dev":{"title":null}}}`)
}

// What a list or an initialize is asked for by a number is not taken for left out.
func TestList_FieldsThatMustBeTexts(t *testing.T) {
	r := newRuntime(t, t.TempDir(), &fakeAgent{})
	tc := connect(t, r, "")
	for params, want := range map[string]string{
		`{"cwd":7}`:        "params.cwd must be a text, not 7",
		`{"cursor":["x"]}`: `params.cursor must be a text, not ["x"]`,
		`{"_meta":{"sandboxagent.dev":{"agent":true}}}`: `_meta["sandboxagent.dev"].agent must be a text, not true`,
	} {
		if e := tc.callErr("session/list", params); e.Code != acp.CodeInvalidParams || e.Message != want {
			t.Errorf("%s: %v", params, e)
		}
	}
	tc.call("session/list", `{"cwd":null,"cursor":null}`)
	if e := tc.callErr("_sandboxagent/session/list_models", `{"agent":7}`); e.Code != acp.CodeInvalidParams {
		t.Errorf("%v", e)
	}
	initialize := acp.NewRequest("1", acp.MethodInitialize, []byte(`{"protocolVersion":1,"_meta":{"sandboxagent.dev":{"agent":7}}}`))
	if _, _, err := r.Connect(t.Context(), initialize, acp.ConnectOptions{}); err == nil || !strings.Contains(err.Error(), "agent must be a text") {
		t.Errorf("initialize: %v", err)
	}
}

// Who finds a session in a list while it is being made, and prompts it, keeps it: a start that removes what no client was
// told of leaves that one alone, with all it has said, and so does each later start.
func TestNew_PromptedWhileItIsMade(t *testing.T) {
	dir := t.TempDir()
	a := &fakeAgent{}
	r := newRuntime(t, dir, a)
	tc := connect(t, r, "")
	prompted, empty := tc.session(), tc.session()
	id := tc.request("session/prompt", prompt(prompted, "precious"))
	a.conn().result(a.conn().next(t, "session/prompt"), `{"stopReason":"end_turn"}`)
	tc.until(id)
	tc.close()
	if err := r.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{prompted, empty} { // as a gateway that is killed in their making leaves them
		if err := os.WriteFile(filepath.Join(dir, "sessions", s, "making"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		r = newRuntime(t, dir, &fakeAgent{})
		list, err := r.Sessions(t.Context(), SessionFilter{})
		if err != nil || len(list.Sessions) != 1 || list.Sessions[0].ID != prompted || list.Sessions[0].EventCount == 0 {
			t.Errorf("%+v, %v", list.Sessions, err)
		}
		if err := r.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// Whoever finds a session in a list while it is being made, and keeps something of his own with it, can rely on that: a start does
// not remove it as one that nobody was told of.
func TestNew_EditedWhileItIsMade(t *testing.T) {
	for name, edit := range map[string]string{"nobody": "", "metadata": `"metadata":{"a":1}`, "a title": `"title":"Mine"`} {
		t.Run(name, func(t *testing.T) {
			a, dir := &fakeAgent{id: "fake", shared: make(chan sent, 64)}, t.TempDir()
			a.handle = func(f *fakeConn, m acp.Message) { a.shared <- sent{f, m} }
			r := newRuntime(t, dir, a)
			tc := connect(t, r, "")
			id := tc.request("session/new", newParams(`{"mode":"b"}`))
			a.answer(a.nextOf(t, "session/new"), `{"sessionId":"n","modes":{"currentModeId":"a","availableModes":[{"id":"a","name":"A"},{"id":"b","name":"B"}]}}`)
			mode := a.nextOf(t, "session/set_mode")
			if edit != "" {
				connect(t, r, "").call("_sandboxagent/session/set_metadata", `{"sessionId":"n",`+edit+`}`)
			}
			_, err := os.Lstat(filepath.Join(dir, "sessions", "n", "making"))
			if gone := errors.Is(err, fs.ErrNotExist); gone != (edit != "") {
				t.Errorf("the note is gone: %v, %v", gone, err)
			}
			a.answer(mode, `{}`)
			if _, res := tc.until(id); rawjson.MemberString(res.Result(), "sessionId") != "n" {
				t.Errorf("answered %s", res.Frame())
			}
			if _, err := os.Lstat(filepath.Join(dir, "sessions", "n", "making")); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the client was told of it, and the note is there: %v", err)
			}
		})
	}
}

// What a log was before a part of it was let go of, or is damaged, nobody knows: a session whose note that it was being made has
// stayed is kept then.
func TestNew_NoteOfASessionWhoseLogIsNotWhole(t *testing.T) {
	for name, change := range map[string]func(log []byte){
		"damaged":          func(log []byte) { clear(log[len(log)/4:][:len(log)/2]) },
		"damaged all over": func(log []byte) { clear(log) },
		"let go of":        nil,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir := t.TempDir()
				open := func(bound Retention) (*Runtime, *fakeAgent) {
					a := &fakeAgent{id: "fake"}
					r, err := New(Options{DataDir: dir, Adapters: adaptersOf(a), DefaultAgent: "fake", Retention: bound})
					if err != nil {
						t.Fatal(err)
					}
					return r, a
				}
				shut := func(r *Runtime) {
					if err := r.Shutdown(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				r, a := open(Retention{})
				tc := connect(t, r, "")
				s := tc.session()
				id := tc.request("session/prompt", prompt(s, "precious"))
				m := a.conn().next(t, "session/prompt")
				for i := range 100 {
					a.conn().chunk(rawjson.MemberString(m.Params(), "sessionId"), incompressible(i))
				}
				a.conn().result(m, `{"stopReason":"end_turn"}`)
				tc.until(id)
				tc.close()
				shut(r)
				if change == nil {
					r, _ = open(Retention{SessionBytes: 64 << 10})
					time.Sleep(2 * time.Minute)
					synctest.Wait()
					if i, err := r.Session(s); err != nil || i.OldestSeq < 10 {
						t.Fatalf("events are there from %d on, %v", i.OldestSeq, err)
					}
					shut(r)
				} else {
					file := filepath.Join(dir, "sessions", s, "log.journal")
					log, err := os.ReadFile(file)
					if err != nil {
						t.Fatal(err)
					}
					change(log)
					if err := os.WriteFile(file, log, 0o600); err != nil {
						t.Fatal(err)
					}
				}
				if err := os.WriteFile(filepath.Join(dir, "sessions", s, "making"), nil, 0o600); err != nil {
					t.Fatal(err)
				}
				r, _ = open(Retention{})
				if i, err := r.Session(s); err != nil || i.EventCount == 0 {
					t.Errorf("%+v, %v", i, err)
				}
				shut(r)
			})
		})
	}
}
