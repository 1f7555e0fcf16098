package runtime

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/adapters"
)

// granter is an agent of whose sessions it is known what was allowed.
type granter struct {
	*fakeAgent
	forgets func() error // is called as something is taken back; may be nil

	mu   sync.Mutex
	list []adapters.Grant
}

func (g *granter) Grants(_ adapters.Options, session string) []adapters.Grant {
	g.mu.Lock()
	defer g.mu.Unlock()
	if session != "native-1" {
		return nil
	}
	return slices.Clone(g.list)
}

func (g *granter) Forget(_ adapters.Options, _ string, ids []string) error {
	if g.forgets != nil {
		if err := g.forgets(); err != nil {
			return err
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.list = slices.DeleteFunc(g.list, func(one adapters.Grant) bool { return slices.Contains(ids, one.ID) })
	return nil
}

const (
	permissionsMethod = "_sandboxagent/session/permissions"
	forgetMethod      = "_sandboxagent/session/forget_permissions"
)

// allowed lists what is allowed in a session, each as id:where, with ! if it cannot be taken back.
func (tc *testClient) allowed(s string) string {
	tc.t.Helper()
	return grantsIn(tc.t, tc.call(permissionsMethod, `{"sessionId":"`+s+`"}`), "permissions")
}

func grantsIn(t *testing.T, result, member string) string {
	t.Helper()
	var body map[string][]Grant
	if err := json.Unmarshal([]byte(result), &body); err != nil || body[member] == nil {
		t.Fatalf("%s: %v", result, err)
	}
	var out []string
	for _, g := range body[member] {
		one := g.ID + ":" + string(g.Where)
		if !g.Revocable {
			one += "!"
		}
		if g.Revocable != (g.Reason == "") || g.Title == "" {
			t.Errorf("%+v", g)
		}
		out = append(out, one)
	}
	return strings.Join(out, " ")
}

// What was allowed is listed for all clients, and taken back between turns: the process that may have it in its memory has let
// go of the session by then, and what is asked next waits for another one.
func TestPermissions_TakenBackBetweenTurns(t *testing.T) {
	a := &granter{fakeAgent: &fakeAgent{id: "fake", caps: reopening, shared: make(chan sent, 64)}, list: []adapters.Grant{
		{ID: "a", Title: "A", Where: adapters.GrantInSession},
		{ID: "b", Title: "B", Where: adapters.GrantInSession},
		{ID: "p", Title: "P", Where: adapters.GrantInProcess},
		{ID: "f", Title: "F", Where: adapters.GrantInFile, File: "/f", Reason: "it is in /f"},
	}}
	r := openRuntime(t, Options{DataDir: t.TempDir(), Version: "test", Adapters: []adapters.Adapter{a}, DefaultAgent: "fake"})
	tc, other := connect(t, r, ""), connect(t, r, "")
	s := tc.session()
	other.call("session/resume", loadOf(s, "/tmp", ""))
	forget := func(tc *testClient, what string) string { return `{"sessionId":"` + s + `",` + what + `}` }
	const all = "a:session b:session p:process f:file!"
	if got := other.allowed(s); got != all {
		t.Errorf("allowed is %s", got)
	}
	for what, want := range map[string]string{`"ids":["x"]`: "not_found", `"ids":["f"]`: "conflict", `"ids":[]`: "", `"all":true,"ids":["a"]`: "", `"ids":"a"`: ""} {
		if err := tc.callErr(forgetMethod, forget(tc, what)); !strings.HasSuffix(rawjson.MemberString(err.Data, "type"), want) {
			t.Errorf("%s: %v %s", what, err, err.Data)
		}
	}

	turn := tc.request("session/prompt", prompt(s, "x"))
	given := a.nextOf(t, "session/prompt")
	if err := other.callErr(forgetMethod, forget(tc, `"ids":["a"]`)); !strings.Contains(string(err.Data), "conflict") || other.allowed(s) != all {
		t.Errorf("while a turn runs: %v", err)
	}
	a.answer(given, `{"stopReason":"end_turn"}`)
	tc.until(turn)

	began := make(chan struct{})
	a.forgets = func() error { <-began; return nil }
	taking := other.request(forgetMethod, forget(tc, `"ids":["a"]`))
	closing := a.nextOf(t, "session/close")
	next := tc.request("session/prompt", prompt(s, "y")) // it waits
	if got := tc.allowed(s); got != "a:session b:session f:file!" {
		t.Errorf("while the process lets go of the session: %s", got)
	}
	a.answer(closing, `{}`)
	close(began)
	a.answer(a.nextOf(t, "session/resume"), `{}`)
	a.answer(a.nextOf(t, "session/prompt"), `{"stopReason":"end_turn"}`)
	told := func(tc *testClient) string {
		for {
			m := tc.next()
			if v, ok := rawjson.Member(m.Params(), "update", "_meta", "sandboxagent.dev", "permissionsForgotten"); ok {
				return string(v)
			}
		}
	}
	const want = `[{"id":"a","title":"A"},{"id":"p","title":"P"}]`
	if got := told(tc); got != want {
		t.Errorf("who prompts is told %s", got)
	}
	_, res := other.until(taking)
	if got := grantsIn(t, string(res.Result()), "forgotten"); got != "a:session p:process" {
		t.Errorf("forgotten is %s", got)
	}
	tc.until(next)

	a.forgets = nil
	taking = tc.request(forgetMethod, forget(tc, `"all":true`))
	a.answer(a.nextOf(t, "session/close"), `{}`)
	_, res = tc.until(taking)
	if got := grantsIn(t, string(res.Result()), "forgotten"); got != "b:session" && got != "b:session p:process" {
		t.Errorf("of all: %s", got)
	}
	if got := other.allowed(s); got != "f:file!" {
		t.Errorf("left is %s", got)
	}
}

// Of requests that meet, each takes back what no other has: it is told once, and who names what is gone hears so.
func TestPermissions_TakenBackByRequestsThatMeet(t *testing.T) {
	a := &granter{fakeAgent: &fakeAgent{id: "fake", caps: reopening, shared: make(chan sent, 64)}, list: []adapters.Grant{
		{ID: "a", Title: "A", Where: adapters.GrantInSession}, {ID: "b", Title: "B", Where: adapters.GrantInSession}, {ID: "p", Title: "P", Where: adapters.GrantInProcess},
	}}
	r := openRuntime(t, Options{DataDir: t.TempDir(), Version: "test", Adapters: []adapters.Adapter{a}, DefaultAgent: "fake"})
	tc, other := connect(t, r, ""), connect(t, r, "")
	s := tc.session()
	first := tc.request(forgetMethod, `{"sessionId":"`+s+`","ids":["a"]}`)
	closing := a.nextOf(t, "session/close")
	all := other.request(forgetMethod, `{"sessionId":"`+s+`","all":true}`)
	other.allowed(s) // what was asked for before has begun
	again := tc.request(forgetMethod, `{"sessionId":"`+s+`","ids":["a"]}`)
	tc.allowed(s)
	a.answer(closing, `{}`)
	before, res := tc.until(first)
	if got := grantsIn(t, string(res.Result()), "forgotten"); got != "a:session p:process" {
		t.Errorf("the first takes back %s", got)
	}
	if i := slices.IndexFunc(before, func(m acp.Message) bool { return m.IsResponse() && m.ID() == again }); i >= 0 { // each has a goroutine that answers it
		res = before[i]
	} else {
		_, res = tc.until(again)
	}
	if res.Err() == nil || !strings.Contains(string(res.Err().Data), "not_found") {
		t.Errorf("the same once more: %s", res.Result())
	}
	if _, res = other.until(all); grantsIn(t, string(res.Result()), "forgotten") != "b:session" {
		t.Errorf("of all: %s", res.Result())
	}
}

// Of a session that no process serves something is taken back without one, also when it is closed. What the agent's files do not
// let go of stays.
func TestPermissions_TakenBackWithoutAProcess(t *testing.T) {
	a := &granter{fakeAgent: &fakeAgent{id: "fake", caps: reopening, shared: make(chan sent, 64)}, list: []adapters.Grant{
		{ID: "a", Title: "A", Where: adapters.GrantInSession}, {ID: "b", Title: "B", Where: adapters.GrantInSession}, {ID: "p", Title: "P", Where: adapters.GrantInProcess},
	}}
	r := openRuntime(t, Options{DataDir: t.TempDir(), Version: "test", Adapters: []adapters.Adapter{a}, DefaultAgent: "fake"})
	tc := connect(t, r, "")
	s := tc.session()
	closing := tc.request("session/close", `{"sessionId":"`+s+`"}`)
	a.answer(a.nextOf(t, "session/close"), `{}`)
	tc.until(closing)
	if got := tc.allowed(s); got != "a:session b:session" {
		t.Errorf("allowed is %s", got)
	}
	a.forgets = func() error { return errors.New("the disk is full") }
	if err := tc.callErr(forgetMethod, `{"sessionId":"`+s+`","all":true}`); !strings.Contains(string(err.Data), string(problem.Unavailable)) || tc.allowed(s) != "a:session b:session" {
		t.Errorf("with a full disk: %v", err)
	}
	a.forgets = nil
	if _, err := r.ForgetPermissions(t.Context(), s, "a"); err != nil || tc.allowed(s) != "b:session" {
		t.Errorf("it says %v, and allowed is %s", err, tc.allowed(s))
	}
	tc.call("session/resume", loadOf(s, "/tmp", ""))
	if got := grantsIn(t, tc.call(forgetMethod, `{"sessionId":"`+s+`","all":true}`), "forgotten"); got != "b:session" {
		t.Errorf("of the session that is open again: %s", got)
	}
	tc.turned(t, a.fakeAgent, s)
	if a.opened() != 1 {
		t.Errorf("%d processes were started", a.opened())
	}
	ended := tc.request("_sandboxagent/session/terminate", `{"sessionId":"`+s+`"}`)
	a.answer(a.nextOf(t, "session/close"), `{}`)
	tc.until(ended)
	if got := tc.allowed(s); got != "" {
		t.Errorf("of a session that has ended: %s", got)
	}
}

// Of an agent that keeps what it is allowed itself it is shown what was chosen, and why nobody can take it back.
func TestPermissions_OfAnAgentThatKeepsThemItself(t *testing.T) {
	dir, a := t.TempDir(), &fakeAgent{id: "fake"}
	r, err := New(Options{DataDir: dir, Version: "test", Adapters: adaptersOf(a), DefaultAgent: "fake"})
	if err != nil {
		t.Fatal(err)
	}
	tc := connect(t, r, "")
	s := tc.session()
	const ask = `{"sessionId":"native-1","toolCall":{"toolCallId":"t","title":"Edit\n  a.txt","kind":"edit"},"options":[{"optionId":"yes","name":"Y","kind":"allow_once"},{"optionId":"ever","name":"Always","kind":"allow_always"}]}`
	for i, option := range []string{"yes", "ever", "ever"} {
		tc.answers(tc.asks(a, fmt.Sprint(i), "session/request_permission", ask), `{"outcome":{"outcome":"selected","optionId":"`+option+`"}}`)
	}
	list := tc.call(permissionsMethod, `{"sessionId":"`+s+`"}`)
	if !strings.Contains(list, `"title":"Always: Edit a.txt","kind":"edit","givenAt":"`) || !strings.Contains(list, `"key":"ever","where":"agent","revocable":false,"reason":"agent fake keeps it itself`) || strings.Count(list, `"id"`) != 1 {
		t.Errorf("allowed is %s", list)
	}
	var body struct{ Permissions []Grant }
	if err := json.Unmarshal([]byte(list), &body); err != nil {
		t.Fatal(err)
	}
	if err := tc.callErr(forgetMethod, `{"sessionId":"`+s+`","ids":["`+body.Permissions[0].ID+`"]}`); !strings.Contains(err.Message, "keeps it itself") {
		t.Errorf("it is refused with %v", err)
	}
	if got := grantsIn(t, tc.call(forgetMethod, `{"sessionId":"`+s+`","all":true}`), "forgotten"); got != "" {
		t.Errorf("forgotten is %s", got)
	}
	tc.close()
	if err := r.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := connect(t, newRuntime(t, dir, a), "").call(permissionsMethod, `{"sessionId":"`+s+`"}`); got != list {
		t.Errorf("after a restart it is %s", got)
	}
}

// What was allowed stays at the gateway where it was: it is not taken along, and not believed.
func TestPermissions_AreNotTakenAlong(t *testing.T) {
	a := &fakeAgent{id: "fake"}
	tc := connect(t, newRuntime(t, t.TempDir(), a), "")
	tc.call("session/new", `{"cwd":"/tmp","mcpServers":[],"_meta":{"sandboxagent.dev":{"requestedSessionId":"n"}}}`)
	const ask = `{"sessionId":"native-1","toolCall":{"toolCallId":"t"},"options":[{"optionId":"ever","name":"Always","kind":"allow_always"}]}`
	tc.answers(tc.asks(a, "1", "session/request_permission", ask), `{"outcome":{"outcome":"selected","optionId":"ever"}}`)
	if got := tc.allowed("n"); !strings.HasSuffix(got, ":agent!") {
		t.Fatalf("allowed is %q", got)
	}
	there, _ := tc.travels(t, &fakeAgent{id: "fake"}, true, func(record []byte) []byte {
		if _, has := rawjson.Member(record, "granted"); has {
			t.Errorf("the record that leaves has %s", record)
		}
		return rawjson.SetMember(record, []byte(`[{"id":"x","title":"X","at":"2026-03-04T05:06:07Z","key":"x"}]`), "granted")
	})
	if got := there.allowed("n"); got != "" {
		t.Errorf("there %q is allowed", got)
	}
}
