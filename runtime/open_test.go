package runtime

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/adapters"
)

// member is a member of a result's _meta, as the gateway says it.
func member(result, name string) string {
	v, _ := rawjson.Member([]byte(result), "_meta", acp.MetaKey, name)
	return string(v)
}

func newParams(meta string) string {
	return `{"cwd":"/tmp","mcpServers":[],"_meta":{"sandboxagent.dev":` + meta + `}}`
}

// A session can be given an id, if that is free and can travel in a header.
func TestNewSession_RequestedID(t *testing.T) {
	a := &fakeAgent{}
	r := newRuntime(t, t.TempDir(), a)
	tc := connect(t, r, "")
	id := func(id string) string {
		return newParams(`{"requestedSessionId":` + string(rawjson.AppendQuoted(nil, id)) + `}`)
	}
	for _, bad := range []string{"with blank", "ümlaut", "tab\t", "\x7f", strings.Repeat("x", 257), ".", ".."} {
		if e := tc.callErr("session/new", id(bad)); e.Code != acp.CodeInvalidParams || !strings.Contains(e.Message, "1 to 256 visible ASCII") {
			t.Errorf("%q: %v", bad, e)
		}
	}
	for _, good := range []string{"!~", strings.Repeat("x", 256), "mine"} {
		if got := rawjson.MemberString([]byte(tc.call("session/new", id(good))), "sessionId"); got != good {
			t.Errorf("%q became %q", good, got)
		}
	}
	e := tc.callErr("session/new", id("mine"))
	if e.Code != acp.CodeInvalidParams || !strings.Contains(string(e.Data), string(problem.SessionAlreadyExists)) {
		t.Errorf("taken: %v %s", e, e.Data)
	}
	if got := rawjson.MemberString([]byte(tc.call("session/new", newParams(`{"requestedSessionId":""}`))), "sessionId"); got != "native-4" {
		t.Errorf("without an id it became %q", got)
	}
}

// An id is kept for the session that is being made, and free again if that comes
// to nothing.
func TestNewSession_IDOfOneThatIsBeingMade(t *testing.T) {
	answers := map[string]string{
		"the agent refuses": `"error":{"code":-32000,"message":"not now"}`, "without an id": `"result":{"sessionId":""}`,
	}
	for name, answer := range answers {
		t.Run(name, func(t *testing.T) {
			a := &fakeAgent{}
			got := make(chan acp.Message, 8)
			a.handle = func(_ *fakeConn, m acp.Message) { got <- m }
			r := newRuntime(t, t.TempDir(), a)
			tc, other := connect(t, r, ""), connect(t, r, "")
			const params = `{"requestedSessionId":"mine"}`
			id := tc.request("session/new", newParams(params))
			m := <-got
			if e := other.callErr("session/new", newParams(params)); !strings.Contains(string(e.Data), string(problem.SessionAlreadyExists)) {
				t.Errorf("while it is being made: %v %s", e, e.Data)
			}
			a.conn().send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,%s}`, m.ID(), answer))
			if _, res := tc.until(id); res.Err() == nil {
				t.Errorf("%s", res.Frame())
			}
			id = other.request("session/new", newParams(params))
			m = <-got
			a.conn().result(m, `{"sessionId":"n"}`)
			if _, res := other.until(id); rawjson.MemberString(res.Result(), "sessionId") != "mine" {
				t.Errorf("afterwards: %s", res.Frame())
			}
		})
	}
}

// What cannot be made is refused with the reason before the agent hears of it.
func TestNewSession_WhatIsRefused(t *testing.T) {
	a := &fakeAgent{}
	r := newRuntime(t, t.TempDir(), a)
	tc := connect(t, r, "")
	for params, want := range map[string]string{
		`{"mcpServers":[]}`:                  "absolute path",
		`{"cwd":"tmp","mcpServers":[]}`:      "absolute path",
		newParams(`{"agent":"nobody"}`):      "nobody",
		newParams(`{"env":{"A":"B","C":7}}`): "env",
	} {
		if e := tc.callErr("session/new", params); !strings.Contains(e.Message, want) {
			t.Errorf("%s: %v", params, e)
		}
	}
	a.conn().quiet(t, tc)
}

// What is known of a session is told with it, whoever opens it.
func TestNewSession_WhatIsTold(t *testing.T) {
	a, b := &fakeAgent{id: "fake"}, &fakeAgent{id: "other"}
	r := newRuntime(t, t.TempDir(), a, b)
	tc := connect(t, r, "")
	res := tc.call("session/new", newParams(`{"agent":"other","requestedSessionId":"mine","title":"T"}`))
	if rawjson.MemberString([]byte(res), "sessionId") != "mine" || !strings.Contains(res, `"extra":[true]`) {
		t.Errorf("%s", res)
	}
	for name, want := range map[string]string{"agent": `"other"`, "agentSessionId": `"native-1"`, "continuity": `"native"`, "turn": `"idle"`, "seq": "0", "pending": "0"} {
		if got := member(res, name); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
	info, err := r.Session("mine")
	if err != nil || info.Agent != "other" || info.AgentSessionID != "native-1" || info.Title != "T" || info.Cwd != "/tmp" || info.Continuity != ContinuityNative || time.Since(info.CreatedAt) > wait {
		t.Errorf("%+v, %v", info, err)
	}
	tc.request("session/prompt", prompt("mine", "x"))
	p := b.conn().next(t, "session/prompt")
	b.conn().send(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`, acp.MethodSessionRequestPermission, permissionParams))
	tc.nextRequest()
	late := connect(t, r, "")
	_, m := late.until(late.request("session/resume", `{"sessionId":"mine","cwd":"/tmp"}`))
	res = string(m.Result())
	if member(res, "turn") != `"running"` || member(res, "seq") != fmt.Sprint(info.EventCount+3) || member(res, "pending") != "1" {
		t.Errorf("%s", res)
	}
	b.conn().result(p, `{"stopReason":"end_turn"}`)
}

// Ids of agents are theirs to choose: one that cannot be a session's, or is
// taken, is another one here.
func TestNewSession_IDsOfAgents(t *testing.T) {
	a, b := &fakeAgent{id: "fake"}, &fakeAgent{id: "other"}
	bad := `"with blank"`
	b.handle = func(c *fakeConn, m acp.Message) {
		if m.Method() == "session/new" {
			c.result(m, `{"sessionId":`+bad+`}`)
			return
		}
		c.got <- m
	}
	r := newRuntime(t, t.TempDir(), a, b)
	tc := connect(t, r, "")
	if got := tc.session(); got != "native-1" {
		t.Errorf("the agent's own id became %q", got)
	}
	uuid := regexp.MustCompile(`^[0-9a-f-]{36}$`)
	for _, bad = range []string{`"with blank"`, `"native-1"`} {
		res := tc.call("session/new", newParams(`{"agent":"other"}`))
		id := rawjson.MemberString([]byte(res), "sessionId")
		if !uuid.MatchString(id) || member(res, "agentSessionId") != bad {
			t.Errorf("%s became %s: %s", bad, id, res)
		}
		tc.request("session/prompt", prompt(id, "x"))
		if m := b.conn().next(t, "session/prompt"); `"`+string(m.Session())+`"` != bad {
			t.Errorf("the agent knows it as %s", m.Frame())
		} else {
			b.conn().result(m, `{"stopReason":"end_turn"}`)
		}
	}
}

// A session's modes and options are told by whoever opens it, as they are now.
func TestOpen_ModesAndOptions(t *testing.T) {
	const modes, options = `{"currentModeId":"m","availableModes":[{"id":"m","name":"M"}]}`, `[{"id":"o","name":"O","type":"select","currentValue":"v","options":[{"value":"v","name":"V"}]}]`
	a := &fakeAgent{}
	a.handle = func(c *fakeConn, m acp.Message) {
		if m.Method() == "session/new" {
			c.result(m, `{"sessionId":"n","modes":`+modes+`,"configOptions":`+options+`}`)
		}
	}
	r := newRuntime(t, t.TempDir(), a)
	tc := connect(t, r, "")
	created := tc.call("session/new", `{"cwd":"/tmp","mcpServers":[]}`)
	late := connect(t, r, "")
	resumed := late.call("session/resume", `{"sessionId":"n","cwd":"/tmp"}`)
	for _, res := range []string{created, resumed} {
		m, _ := rawjson.Member([]byte(res), "modes")
		o, _ := rawjson.Member([]byte(res), "configOptions")
		if string(m) != modes || string(o) != options {
			t.Errorf("%s", res)
		}
	}
}

// Whoever opens a session is given it from the beginning, from a place, or from
// now on.
func TestOpen_FromWhere(t *testing.T) {
	a := &fakeAgent{}
	r := newRuntime(t, t.TempDir(), a)
	tc := connect(t, r, `{"_meta":{"sandboxagent.dev":{"eventIds":true}}}`)
	s := tc.session()
	id := tc.request("session/prompt", prompt(s, "x"))
	p := a.conn().next(t, "session/prompt")
	for _, text := range []string{"one", "two", "three"} {
		a.conn().chunk("native-1", text)
	}
	a.conn().result(p, `{"stopReason":"end_turn"}`)
	before, _ := tc.until(id)
	second := seqOf(before[1])
	count := func() uint64 { // who opens a session is answered in its log
		info, err := r.Session(s)
		if err != nil {
			t.Fatal(err)
		}
		return info.EventCount
	}
	open := func(method, meta string) (string, *acp.Error) {
		c := connect(t, r, "")
		defer c.close()
		before, res := c.until(c.request(method, fmt.Sprintf(`{"sessionId":%q,"cwd":"/tmp","mcpServers":[],"_meta":{"sandboxagent.dev":%s}}`, s, meta)))
		return texts(before), res.Err()
	}
	for _, method := range []string{"session/load", "session/resume"} {
		for meta, want := range map[string]string{
			`{}`: map[string]string{"session/load": "user:x one two three"}[method], `{"after":0}`: "user:x one two three",
			`{"after":` + second + `}`: "three", `{"after":COUNT}`: "",
		} {
			meta = strings.Replace(meta, "COUNT", fmt.Sprint(count()), 1)
			if got, err := open(method, meta); got != want || err != nil {
				t.Errorf("%s with %s gives %q, %v, want %q", method, meta, got, err, want)
			}
		}
		for _, meta := range []string{fmt.Sprintf(`{"after":%d}`, count()+1), `{"after":-1}`, `{"after":"1"}`, `{"after":1.5}`, `{"after":18446744073709551616}`} {
			last := fmt.Sprintf("0 to %d", count())
			if _, err := open(method, meta); err == nil || err.Code != acp.CodeInvalidParams || !strings.Contains(err.Message, last) {
				t.Errorf("%s with %s: %v", method, meta, err)
			}
		}
		if e := tc.callErr(method, `{"cwd":"/tmp","mcpServers":[]}`); e.Code != acp.CodeInvalidParams || !strings.Contains(e.Message, "sessionId") {
			t.Errorf("%s without a session: %v", method, e)
		}
	}
	tc.call("_sandboxagent/session/terminate", fmt.Sprintf(`{"sessionId":%q}`, s))
	if e := tc.callErr("session/load", fmt.Sprintf(`{"sessionId":%q,"cwd":"/tmp","mcpServers":[]}`, s)); e.Code != acp.CodeResourceNotFound || !strings.Contains(e.Message, "has ended (terminated)") {
		t.Errorf("ended: %v", e)
	}
}

// A closed session is open again, also for the gateway that comes next.
func TestOpen_ClosedOnes(t *testing.T) {
	dir := t.TempDir()
	a := &fakeAgent{id: "fake", caps: `{"sessionCapabilities":{"resume":{}}}`}
	r, err := New(Options{DataDir: dir, Adapters: adaptersOf(a), DefaultAgent: "fake"})
	if err != nil {
		t.Fatal(err)
	}
	tc := connect(t, r, "")
	s := tc.session()
	tc.call("session/close", fmt.Sprintf(`{"sessionId":%q}`, s))
	tc.call("session/resume", fmt.Sprintf(`{"sessionId":%q,"cwd":"/tmp"}`, s))
	tc.close()
	if err := r.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	r = newRuntime(t, dir, a)
	tc = connect(t, r, "")
	tc.call("session/resume", fmt.Sprintf(`{"sessionId":%q,"cwd":"/tmp"}`, s))
	id := tc.request("session/prompt", prompt(s, "x"))
	m := a.conn().next(t, "session/resume")
	a.conn().result(m, `{}`)
	a.conn().result(a.conn().next(t, "session/prompt"), `{"stopReason":"end_turn"}`)
	tc.until(id)
}

// A session that the agent has from elsewhere is opened there: its replay is the
// log, what it says of itself is told, and it is like any other from then on.
func TestOpen_FromElsewhere(t *testing.T) {
	const modes, options = `{"currentModeId":"m","availableModes":[{"id":"m","name":"M"}]}`, `[{"id":"o","name":"O","type":"select","currentValue":"v","options":[{"value":"v","name":"V"}]}]`
	dir := t.TempDir()
	a := &fakeAgent{caps: `{"loadSession":true}`, info: adapters.Info{Credentials: anyCredentials}}
	r, err := New(Options{DataDir: dir, Adapters: adaptersOf(withID(a)), DefaultAgent: a.id})
	if err != nil {
		t.Fatal(err)
	}
	tc := connect(t, r, "")
	id := tc.request("session/load", `{"sessionId":"theirs","cwd":"/w","mcpServers":[],"_meta":{"k":1,"sandboxagent.dev":{"after":0,"credentials":{"apiKey":"secret"},"agent":"fake","title":"mine"}}}`)
	a.awaitOpened(t, 2) // with a login of its own
	m := a.conn().next(t, "session/load")
	if diff := cmp.Diff(`{"sessionId":"theirs","cwd":"/w","mcpServers":[],"_meta":{"k":1,"sandboxagent.dev":{"agent":"fake","title":"mine"}}}`, string(m.Params())); diff != "" {
		t.Errorf("the agent was asked (-want +got):\n%s", diff)
	}
	other := connect(t, r, "")
	if e := other.callErr("session/load", `{"sessionId":"theirs","cwd":"/w","mcpServers":[]}`); e.Code != acp.CodeInternal || !strings.Contains(e.Message, "another request") {
		t.Errorf("twice at a time: %v", e)
	}
	a.conn().chunk("theirs", "old")
	a.conn().result(m, `{"modes":`+modes+`,"configOptions":`+options+`}`)
	before, res := tc.until(id)
	if texts(before) != "old" || member(string(res.Result()), "continuity") != `"native"` || member(string(res.Result()), "agentSessionId") != `"theirs"` {
		t.Errorf("%q, %s", texts(before), res.Frame())
	}
	info, err := r.Session("theirs")
	if err != nil || info.Cwd != "/w" || info.Title != "mine" || info.Agent != "fake" || info.AgentSessionID != "theirs" || info.Continuity != ContinuityNative || time.Since(info.CreatedAt) > wait {
		t.Errorf("%+v, %v", info, err)
	}
	before, res = other.until(other.request("session/load", `{"sessionId":"theirs","cwd":"/w","mcpServers":[]}`))
	got, _ := rawjson.Member(res.Result(), "modes")
	opts, _ := rawjson.Member(res.Result(), "configOptions")
	if texts(before) != "old" || string(got) != modes || string(opts) != options {
		t.Errorf("%q, %s", texts(before), res.Frame())
	}
	pid := tc.request("session/prompt", prompt("theirs", "x"))
	a.conn().result(a.conn().next(t, "session/prompt"), `{"stopReason":"end_turn"}`)
	tc.until(pid)
	tc.close()
	other.close()
	if err := r.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	late := connect(t, newRuntime(t, dir, a), "")
	before, _ = late.until(late.request("session/load", `{"sessionId":"theirs","cwd":"/w","mcpServers":[]}`))
	if texts(before) != "old user:x" {
		t.Errorf("the next gateway shows %q", texts(before))
	}
}

// What cannot be opened there leaves nothing behind, and can be tried again.
func TestOpen_FromElsewhereFails(t *testing.T) {
	a, cannot := &fakeAgent{id: "fake", caps: `{"sessionCapabilities":{"resume":{},"delete":{}}}`, shared: make(chan sent, 64)}, &fakeAgent{id: "other"}
	r := newRuntime(t, t.TempDir(), a, cannot)
	tc := connect(t, r, "")
	for _, method := range []string{"session/load", "session/resume"} { // no agent is asked without a directory
		_, res := tc.until(tc.request(method, `{"sessionId":"theirs","mcpServers":[]}`))
		if res.Err() == nil || !strings.Contains(res.Err().Message, "params.cwd") || !strings.Contains(string(res.Err().Data), "session_not_found") {
			t.Errorf("%s without cwd: %s", method, res.Frame())
		}
	}
	const params = `{"sessionId":"theirs","cwd":"/w"}`
	for range 2 {
		id := tc.request("session/resume", params)
		m := a.nextOf(t, "session/resume")
		m.to.chunk("theirs", "lost")
		m.to.out <- acp.NewError(m.m.ID(), acp.Errorf(acp.CodeResourceNotFound, "no such session"))
		if _, res := tc.until(id); res.Err() == nil || !strings.Contains(res.Err().Message, "no such session") || !strings.Contains(string(res.Err().Data), "session_not_found") {
			t.Errorf("%s", res.Frame())
		}
		if _, err := r.Session("theirs"); err == nil {
			t.Error("it is a session")
		}
	}
	id := tc.request("session/delete", params)
	m := a.nextOf(t, "session/delete")
	m.to.out <- acp.NewError(m.m.ID(), acp.Errorf(acp.CodeResourceNotFound, "no such session"))
	if _, res := tc.until(id); res.Err() == nil || !strings.Contains(string(res.Err().Data), "session_not_found") {
		t.Errorf("the delete: %s", res.Frame())
	}
	id = tc.request("session/resume", params)
	m = a.nextOf(t, "session/resume")
	a.answer(m, `{}`)
	if before, res := tc.until(id); texts(before) != "" || member(string(res.Result()), "historyIncomplete") != "true" {
		t.Errorf("what it was given first: %q, %s", texts(before), res.Frame())
	}
	for meta, want := range map[string]int64{`{"agent":"other"}`: acp.CodeResourceNotFound, `{"agent":"nobody"}`: acp.CodeInvalidParams} {
		if e := tc.callErr("session/resume", `{"sessionId":"unknown","cwd":"/w","_meta":{"sandboxagent.dev":`+meta+`}}`); e.Code != want {
			t.Errorf("%s: %v", meta, e)
		}
	}
}

// A fork shows nothing that was said before to who makes it: only a load does.
func TestFork_ReplaysNothing(t *testing.T) {
	a := &fakeAgent{id: "fake", caps: `{"sessionCapabilities":{"resume":{},"fork":{}}}`, shared: make(chan sent, 64)}
	tc := connect(t, newRuntime(t, t.TempDir(), a), "")
	turn := func(s, said, answer string) []acp.Message {
		id := tc.request("session/prompt", prompt(s, said))
		m := a.nextOf(t, "session/prompt")
		a.conn().chunk(m.m.Session(), answer)
		a.answer(m, `{"stopReason":"end_turn"}`)
		before, _ := tc.until(id)
		return before
	}
	s := tc.session()
	turn(s, "one", "first")
	dir := t.TempDir()
	id := tc.request("session/fork", `{"sessionId":"`+s+`","cwd":"`+dir+`"}`)
	a.answer(a.nextOf(t, "session/fork"), `{"sessionId":"forked"}`)
	before, res := tc.until(id)
	fork := rawjson.MemberString(res.Result(), "sessionId")
	r := tc.c.(*Client).r
	if from, err := r.Session(s); err != nil || from.Cwd != "/tmp" {
		t.Errorf("what was forked works in %s, %v", from.Cwd, err)
	}
	if at, err := r.Session(fork); err != nil || at.Cwd != dir {
		t.Errorf("the fork works in %s, %v, want %s", at.Cwd, err, dir)
	}
	if events, _, err := r.Events(t.Context(), s, 0, 0); err != nil || !slices.ContainsFunc(events, func(e Event) bool {
		return e.Direction == FromClient && strings.Contains(string(e.Message), `"session/fork"`)
	}) {
		t.Errorf("the log of what was forked does not say so, %v", err)
	}
	if got := texts(append(before, turn(fork, "two", "second")...)); got != "second" {
		t.Errorf("the fork showed %q", got)
	}
	before, _ = tc.until(tc.request("session/load", `{"sessionId":"`+fork+`","cwd":"/tmp","mcpServers":[]}`))
	if got := texts(before); got != "user:one first user:two second" {
		t.Errorf("its load shows %q", got)
	}
	other := connect(t, r, "")
	before, _ = other.until(other.request("session/resume", `{"sessionId":"`+fork+`","cwd":"/tmp","_meta":{"sandboxagent.dev":{"after":0}}}`))
	if got := texts(before); got != "user:one first user:two second" {
		t.Errorf("from its first entry on there is %q", got)
	}
}

// An agent that has nothing of a session which it opens again remembers nothing, unless
// there is nothing to remember. Clients are told.
func TestOpen_AgentBeginsAnew(t *testing.T) {
	dir := t.TempDir()
	a := &fakeAgent{id: "fake", caps: `{"sessionCapabilities":{"resume":{}}}`, shared: make(chan sent, 64)}
	r, err := New(Options{DataDir: dir, Adapters: adaptersOf(a), DefaultAgent: "fake"})
	if err != nil {
		t.Fatal(err)
	}
	tc := connect(t, r, "")
	said, silent := tc.session(), tc.session()
	id := tc.request("session/prompt", prompt(said, "remember"))
	a.answer(a.nextOf(t, "session/prompt"), `{"stopReason":"end_turn"}`)
	tc.until(id)
	tc.close()
	if err := r.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	r = newRuntime(t, dir, a)
	tc = connect(t, r, "")
	for s, want := range map[string]Continuity{said: ContinuityFresh, silent: ContinuityNative} {
		id := tc.request("session/prompt", prompt(s, "what?"))
		a.answer(a.nextOf(t, "session/resume"), `{"_meta":{"sandboxagent.dev":{"continuity":"fresh"}}}`)
		a.answer(a.nextOf(t, "session/prompt"), `{"stopReason":"end_turn"}`)
		before, _ := tc.until(id)
		told := false
		for _, m := range before {
			told = told || strings.Contains(string(m.Update()), `"continuity":"fresh"`)
		}
		if info, _ := r.Session(s); info.Continuity != want || told != (want == ContinuityFresh) {
			t.Errorf("continuity is %s, want %s; told: %v", info.Continuity, want, told)
		}
	}
}

// An agent that loads a conversation shows it. One that answers and shows nothing has
// lost it.
func TestOpen_LoadWithoutAReplay(t *testing.T) {
	for replay, want := range map[string]Continuity{"": ContinuityFresh, "agent_message_chunk": ContinuityNative, "available_commands_update": ContinuityFresh} {
		a := &fakeAgent{caps: `{"loadSession":true}`}
		r := newRuntime(t, t.TempDir(), a)
		tc := connect(t, r, "")
		s := tc.session()
		id := tc.request("session/prompt", prompt(s, "remember"))
		a.conn().result(a.conn().next(t, "session/prompt"), `{"stopReason":"end_turn"}`)
		tc.until(id)
		a.conn().crash(errCrash)
		waitFor(t, r, s, func(i SessionInfo) bool { return i.State == "dormant" })
		id = tc.request("session/prompt", prompt(s, "what?"))
		waitFor(t, r, s, func(SessionInfo) bool { return a.opened() == 2 })
		load := a.conn().next(t, "session/load")
		if replay != "" {
			a.conn().send(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"` + load.Session() + `","update":{"sessionUpdate":"` + replay + `","availableCommands":[],"content":{"type":"text","text":"old"}}}}`)
		}
		a.conn().result(load, `{}`)
		a.conn().result(a.conn().next(t, "session/prompt"), `{"stopReason":"end_turn"}`)
		tc.until(id)
		if info, err := r.Session(s); err != nil || info.Continuity != want {
			t.Errorf("with %q continuity is %s, %v, want %s", replay, info.Continuity, err, want)
		}
	}
}

// An agent that does not delete a session closes it, so that it can be opened again. Of
// a session that only the agent has, its word reaches the client.
func TestDelete_AgentRefuses(t *testing.T) {
	a := &fakeAgent{id: "fake", caps: `{"sessionCapabilities":{"resume":{},"close":{},"delete":{}}}`, shared: make(chan sent, 64)}
	r := newRuntime(t, t.TempDir(), a)
	tc := connect(t, r, "")
	s := tc.session()
	id := tc.request("session/delete", `{"sessionId":"`+s+`"}`)
	a.refuse(a.nextOf(t, "session/delete"), "it was made in a terminal")
	a.answer(a.nextOf(t, "session/close"), `{}`)
	if _, res := tc.until(id); res.Err() == nil || !strings.Contains(res.Err().Message, "in a terminal") {
		t.Errorf("%s", res.Frame())
	}
	tc.call("session/resume", `{"sessionId":"`+s+`","cwd":"/tmp"}`)
	tc.turned(t, a, s)

	id = tc.request("session/delete", `{"sessionId":"theirs"}`)
	a.refuse(a.nextOf(t, "session/delete"), "it was made in a terminal, too")
	if _, res := tc.until(id); res.Err() == nil || !strings.Contains(res.Err().Message, "in a terminal, too") {
		t.Errorf("%s", res.Frame())
	}
	cannot := connect(t, newRuntime(t, t.TempDir(), &fakeAgent{}), "")
	if e := cannot.callErr("session/delete", `{"sessionId":"nobody's"}`); e.Code != acp.CodeResourceNotFound {
		t.Errorf("unknown: %v", e)
	}
}

// A gateway that is killed while it opens a session from elsewhere has not opened it: the next one
// asks the agent again, and shows all of it once.
func TestOpen_FromElsewhereIsInterrupted(t *testing.T) {
	const load = `{"sessionId":"theirs","cwd":"/w","mcpServers":[]}`
	a := &fakeAgent{id: "fake", caps: `{"loadSession":true}`, shared: make(chan sent, 64)}
	dir, killed := t.TempDir(), t.TempDir()
	tc := connect(t, newRuntime(t, dir, a), "")
	tc.request("session/load", load)
	a.nextOf(t, "session/load").to.chunk("theirs", "one")
	if got := texts([]acp.Message{tc.next()}); got != "one" {
		t.Fatalf("it is shown %q", got)
	}
	if err := os.CopyFS(filepath.Join(killed, "sessions"), os.DirFS(filepath.Join(dir, "sessions"))); err != nil {
		t.Fatal(err)
	}
	r := newRuntime(t, killed, a)
	if _, err := r.Session("theirs"); err == nil {
		t.Error("it is a session")
	}
	tc = connect(t, r, "")
	id := tc.request("session/load", load)
	m := a.nextOf(t, "session/load")
	m.to.chunk("theirs", "one")
	m.to.chunk("theirs", "two")
	a.answer(m, `{}`)
	if before, res := tc.until(id); texts(before) != "one two" || res.Err() != nil {
		t.Errorf("%q, %s", texts(before), res.Frame())
	}
}

// A session from elsewhere that is resumed first has its history for later loads.
func TestOpen_FromElsewhereByResume(t *testing.T) {
	a := &fakeAgent{id: "fake", caps: `{"loadSession":true,"sessionCapabilities":{"resume":{}}}`, shared: make(chan sent, 64)}
	r := newRuntime(t, t.TempDir(), a)
	tc := connect(t, r, "")
	id := tc.request("session/resume", `{"sessionId":"theirs","cwd":"/tmp"}`)
	m := a.nextOf(t, "session/load")
	if got := given(m, "mcpServers"); got != "[]" {
		t.Errorf("asked with mcpServers %q", got)
	}
	a.conn().chunk("theirs", "old")
	a.answer(m, `{}`)
	a.conn().chunk("theirs", "new")
	before, res := tc.until(id)
	if res.Err() != nil {
		t.Fatal(res.Err())
	}
	for texts(before) != "new" {
		if m := tc.next(); texts([]acp.Message{m}) == "old" {
			t.Fatal("who resumes is shown the history")
		} else {
			before = append(before, m)
		}
	}
	other := connect(t, r, "")
	before, _ = other.until(other.request("session/load", `{"sessionId":"theirs","cwd":"/tmp","mcpServers":[]}`))
	if got := texts(before); got != "old new" {
		t.Errorf("a load shows %q", got)
	}
}

// A client that reads each session on a stream of its own gets the answer to a load on
// another one: it is told up to where it was shown what there is.
func TestLoad_SaysUpToWhereItWasShown(t *testing.T) {
	a := &fakeAgent{id: "fake", caps: `{"sessionCapabilities":{"resume":{}}}`, shared: make(chan sent, 64)}
	r := newRuntime(t, t.TempDir(), a)
	tc := connect(t, r, "")
	s := tc.session()
	for _, word := range []string{"one", "two", "three"} {
		id := tc.request("session/prompt", prompt(s, word))
		a.answer(a.nextOf(t, "session/prompt"), `{"stopReason":"end_turn"}`)
		tc.until(id)
	}
	load := `{"sessionId":"` + s + `","cwd":"/tmp","mcpServers":[]}`
	if result := connect(t, r, "").call("session/load", load); strings.Contains(result, "replayedSeq") {
		t.Errorf("a client with one stream is told %s", result)
	}
	apart := connectAs(t, r, 1, numbered, acp.PerSession)
	st, err := apart.c.Stream(s, nil)
	if err != nil {
		t.Fatal(err)
	}
	shown := make(chan struct{})
	go func() {
		defer close(shown)
		for {
			select {
			case <-st.Wake():
				if _, err := st.Poll(64 << 10); err != nil {
					return
				}
				st.Written()
			case <-st.Done():
				return
			}
		}
	}()
	_, res := apart.until(apart.request("session/load", load))
	events, _, err := r.Events(t.Context(), s, 0, 0)
	last := uint64(0) // that is shown to all
	for _, e := range events {
		if strings.Contains(string(e.Message), `"session/update"`) || e.Direction == FromGateway && strings.Contains(string(e.Message), "three") {
			last = e.Seq
		}
	}
	if got := member(string(res.Result()), "replayedSeq"); err != nil || last == 0 || got != fmt.Sprint(last) {
		t.Errorf("it was shown up to %s, and the last is %d, %v", got, last, err)
	}
	apart.close()
	<-shown
}

// numbered is the initialize of a client that wants the events' numbers.
const numbered = `{"protocolVersion":1,"clientCapabilities":{"_meta":{"sandboxagent.dev":{"eventIds":true}}}}`

// The client waits for the message that it is told of. It cannot see the number of a response,
// which is in the session's log, too.
func TestLoad_SaysWhatHasANumber(t *testing.T) {
	a := &fakeAgent{id: "fake", caps: `{"sessionCapabilities":{"resume":{}}}`, shared: make(chan sent, 64)}
	apart := connectAs(t, newRuntime(t, t.TempDir(), a), 1, numbered, acp.PerSession)
	s := apart.session()
	st, err := apart.c.Stream(s, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	seen := "" // newest number
	// until polls, without saying that it was written, and returns when a message has the words.
	until := func(words string) {
		t.Helper()
		for {
			<-st.Wake()
			events, err := st.Poll(64 << 10)
			if err != nil {
				t.Fatal(err)
			}
			found := false
			for _, e := range events {
				found = found || strings.Contains(string(e.Frame), words)
				if n, ok := rawjson.Member(e.Frame, "params", "_meta", acp.MetaKey, "seq"); ok {
					seen = string(n)
				}
			}
			if found {
				return
			}
		}
	}
	apart.request("session/prompt", prompt(s, "x"))
	asked := a.nextOf(t, "session/prompt")
	asked.to.chunk(asked.m.Session(), "one")
	until("one")
	st.Written()

	load := apart.request("session/load", `{"sessionId":"`+s+`","cwd":"/tmp","mcpServers":[]}`)
	until("one")
	a.answer(asked, `{"stopReason":"end_turn"}`)
	until("end_turn") // the response is the newest that the client was given
	st.Written()
	_, res := apart.until(load)
	if got := member(string(res.Result()), "replayedSeq"); seen == "" || got != seen {
		t.Errorf("it was shown up to %q, and the newest number is %q", got, seen)
	}

	resume := apart.request("session/resume", `{"sessionId":"`+s+`","cwd":"/tmp","mcpServers":[]}`)
	if _, res = apart.until(resume); res.Err() != nil || strings.Contains(string(res.Result()), "replayedSeq") {
		t.Errorf("where nothing is replayed the answer is %s", res.Frame())
	}
}

// A fork that is made in the middle of a turn has no part in what goes on there: the calls
// that are open are the other session's, and end in the fork.
func TestFork_AmidACall(t *testing.T) {
	a := &fakeAgent{id: "fake", caps: `{"loadSession":true,"sessionCapabilities":{"resume":{},"fork":{}}}`, shared: make(chan sent, 64)}
	tc := connect(t, newRuntime(t, t.TempDir(), a), "")
	s := tc.session()
	turn := tc.request("session/prompt", prompt(s, "x"))
	p := a.nextOf(t, "session/prompt")
	call := func(id, kind, status string) {
		p.to.send(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"` + p.m.Session() + `","update":{"sessionUpdate":"` + kind + `","toolCallId":"` + id + `","title":"` + id + `","status":"` + status + `"}}}`)
	}
	call("done", "tool_call", "in_progress")
	call("done", "tool_call_update", "completed")
	call("runs", "tool_call", "in_progress")
	call("waits", "tool_call", "pending")
	for range 4 {
		tc.next()
	}
	id := tc.request("session/fork", `{"sessionId":"`+s+`","cwd":"/tmp"}`)
	a.answer(a.nextOf(t, "session/fork"), `{"sessionId":"forked"}`)
	before, res := tc.until(id)
	if len(before) > 0 {
		t.Errorf("the fork replays %d messages", len(before))
	}
	states := func(session string) string {
		t.Helper()
		ended := map[string]string{}
		before, _ := tc.until(tc.request("session/load", `{"sessionId":"`+session+`","cwd":"/tmp","mcpServers":[]}`))
		for _, m := range before {
			if id := rawjson.MemberString(m.Update(), "toolCallId"); id != "" {
				ended[id] = rawjson.MemberString(m.Update(), "status")
			}
		}
		return fmt.Sprint(ended)
	}
	if got := states(rawjson.MemberString(res.Result(), "sessionId")); got != "map[done:completed runs:failed waits:failed]" {
		t.Errorf("the fork has %s", got)
	}
	if got := states(s); got != "map[done:completed runs:in_progress waits:pending]" {
		t.Errorf("what was forked has %s", got)
	}
	call("runs", "tool_call_update", "completed")
	call("waits", "tool_call_update", "completed")
	a.answer(p, `{"stopReason":"end_turn"}`)
	tc.until(turn)
}

// What the answer that opens a session names as the newest event was shown before it: clients
// take what comes later with such a number, or a lower one, for what they have.
func TestOpen_TheAnswerNamesWhatWasShown(t *testing.T) {
	a := &fakeAgent{}
	r := newRuntime(t, t.TempDir(), a)
	wants := `{"_meta":{"sandboxagent.dev":{"eventIds":true}}}`
	tc, other := connect(t, r, wants), connect(t, r, wants)
	s := tc.session()
	id := tc.request("session/prompt", prompt(s, "x"))
	p := a.conn().next(t, "session/prompt")
	var talk sync.WaitGroup
	talk.Go(func() {
		for range 20000 {
			a.conn().chunk("native-1", "more")
		}
	})
	for range 1000 {
		const method = "session/resume"
		_, res := other.until(other.request(method, `{"sessionId":"`+s+`","cwd":"/tmp","mcpServers":[]}`))
		raw, _ := rawjson.Member(res.Result(), "_meta", "sandboxagent.dev", "seq")
		named, err := strconv.ParseUint(string(raw), 10, 64)
		if err != nil {
			t.Fatalf("%s", res.Frame())
		}
		a.conn().chunk("native-1", "one at least")
		if next, _ := strconv.ParseUint(seqOf(other.next()), 10, 64); next <= named {
			t.Errorf("%s: the answer names %d, and %d comes behind it", method, named, next)
			break
		}
	}
	talk.Wait()
	a.conn().result(p, `{"stopReason":"end_turn"}`)
	tc.until(id)
}
