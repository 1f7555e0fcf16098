package runtime

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
)

// TestTold_OfAnEnd: who is told that somebody else has ended a session finds it so, also when
// the gateway is killed then.
func TestTold_OfAnEnd(t *testing.T) {
	a := &fakeAgent{}
	a.handle = func(c *fakeConn, m acp.Message) {
		switch {
		case m.Method() == "session/new":
			c.newSession(m)
		case m.IsRequest():
			c.result(m, `{}`)
		}
	}
	dir := t.TempDir()
	r := newRuntime(t, dir, a)
	tc, other := connect(t, r, ""), connect(t, r, "")
	told := func(method string) (s string) {
		s = tc.session()
		params := `{"sessionId":"` + s + `"}`
		other.request(method, params)
		tc.nextOf("_sandboxagent/session/ended")
		return s
	}
	for range 5 {
		s := told("_sandboxagent/session/terminate")
		record, err := os.ReadFile(filepath.Join(dir, "sessions", s, "session.json"))
		if err != nil {
			t.Error(err)
		}
		if _, ended := rawjson.Member(record, "ended"); !ended {
			t.Error("a session has ended, and its record does not say so")
		}
		s = told("session/delete")
		if i, err := r.Session(s); err == nil {
			t.Errorf("a session was deleted, and is there: %+v", i)
		}
		if _, err := os.Stat(filepath.Join(dir, "sessions", s)); !os.IsNotExist(err) {
			t.Errorf("a session was deleted, and has files: %v", err)
		}
	}
}

// TestTold_OfAChoice: what a session was made with is there after a kill that follows its answer.
func TestTold_OfAChoice(t *testing.T) {
	const options = `"configOptions":[{"id":"m","name":"M","category":"model","type":"select","currentValue":"small","options":[{"value":"small","name":"S"},{"value":"large","name":"L"}]}]`
	chosen := make(chan string, 4)
	a := &fakeAgent{caps: `{"sessionCapabilities":{"resume":{}}}`}
	a.handle = func(c *fakeConn, m acp.Message) {
		switch m.Method() {
		case "session/new", "session/resume":
			c.result(m, `{"sessionId":"n",`+options+`}`)
		case "session/set_config_option":
			chosen <- rawjson.MemberString(m.Params(), "value")
			c.result(m, `{`+strings.Replace(options, `"currentValue":"small"`, `"currentValue":"large"`, 1)+`}`)
		case "session/prompt":
			c.result(m, `{"stopReason":"end_turn"}`)
		}
	}
	dir, killed := t.TempDir(), t.TempDir()
	tc := connect(t, newRuntime(t, dir, a), "")
	tc.call("session/new", `{"cwd":"/tmp","mcpServers":[],"_meta":{"sandboxagent.dev":{"model":"large"}}}`)
	if err := os.CopyFS(filepath.Join(killed, "sessions"), os.DirFS(filepath.Join(dir, "sessions"))); err != nil {
		t.Fatal(err)
	}
	connect(t, newRuntime(t, killed, a), "").call("session/prompt", prompt("n", "x"))
	for range 2 { // at the beginning, and by the gateway that was started again
		select {
		case got := <-chosen:
			if got != "large" {
				t.Errorf("the agent was told %q", got)
			}
		default:
			t.Fatal("what was chosen is forgotten")
		}
	}
}

// choosing is an agent in whose sessions everything can be set. What it is told of that in a
// session that it opens anew is sent to again.
func choosing(again chan<- string) *fakeAgent {
	const modes = `"modes":{"currentModeId":"first","availableModes":[{"id":"first","name":"First"},{"id":"plan","name":"Plan"}]}`
	options := func(model string) string {
		return `"configOptions":[{"id":"m","name":"M","category":"model","type":"select","currentValue":"` + model + `","options":[{"value":"small","name":"S"},{"value":"large","name":"L"}]}]`
	}
	a := &fakeAgent{caps: reopening}
	resumed := false
	a.handle = func(c *fakeConn, m acp.Message) {
		if resumed && strings.HasPrefix(m.Method(), "session/set_") {
			again <- rawjson.MemberString(m.Params(), "modeId") + rawjson.MemberString(m.Params(), "modelId") + rawjson.MemberString(m.Params(), "value")
		}
		switch m.Method() {
		case "session/new", "session/resume":
			resumed = m.Method() == "session/resume"
			c.result(m, `{"sessionId":"n",`+modes+`,`+options("small")+`}`)
		case "session/set_config_option":
			c.result(m, `{`+options(rawjson.MemberString(m.Params(), "value"))+`}`)
		case "session/prompt":
			c.result(m, `{"stopReason":"end_turn"}`)
		case "session/set_title":
			c.result(m, `{"title":"mine"}`)
		default:
			if m.IsRequest() {
				c.result(m, `{}`)
			}
		}
	}
	return a
}

// choices are what clients can change of a session, with what its record says then. again is
// what an agent is told that is started anew.
var choices = []struct{ version, method, params, record, again string }{
	{"1", "session/set_mode", `"modeId":"plan"`, `"chosenMode":"plan"`, "plan"},
	{"1", "session/set_model", `"modelId":"older"`, `"chosenModel":"older"`, "older"},
	{"1", "session/set_config_option", `"configId":"m","value":"large"`, `"chosen":{"m":"large"}`, "large"},
	{"1", "session/set_title", `"title":"mine"`, `"title":"mine"`, ""},
	{"1", "_sandboxagent/session/set_metadata", `"metadata":{"a":"mine"}`, `"metadata":{"a":"mine"}`, ""},
	{"1", "_sandboxagent/session/set_metadata", `"title":"mine"`, `"title":"mine"`, ""},
	{"1", "session/resume", `"cwd":"/tmp","mcpServers":[],"_meta":{"sandboxagent.dev":{"title":"mine"}}`, `"title":"mine"`, ""},
	{"1", "session/resume", `"cwd":"/tmp","mcpServers":[],"_meta":{"sandboxagent.dev":{"mode":"plan"}}`, `"chosenMode":"plan"`, "plan"},
	{"1", "session/resume", `"cwd":"/tmp","mcpServers":[],"additionalDirectories":["/usr"]`, `"additionalDirectories":["/usr"]`, ""},
	{"2", "session/set_config_option", `"configId":"m","type":"id","value":"large"`, `"chosen":{"m":"large"}`, "large"},
	{"2", "session/set_config_option", `"configId":"mode","type":"id","value":"plan"`, `"chosenMode":"plan"`, "plan"},
	{"2", "_sandboxagent/session/set_metadata", `"metadata":{"a":"mine"}`, `"metadata":{"a":"mine"}`, ""},
}

// change sends a request and returns the error that it is answered with, nil for none.
func (tc *testClient) change(method, params string) *acp.Error {
	tc.t.Helper()
	if method != acp.MethodSessionSetModel { // the schema has no such method
		_, res := tc.until(tc.request(method, params))
		return res.Err()
	}
	rep, err := tc.c.Call(tc.t.Context(), acp.NewRequest("1000", method, []byte(params)))
	if err != nil {
		tc.t.Fatal(err)
	}
	select {
	case r := <-rep:
		m := acp.MustParse(r.Frame)
		return m.Err()
	case <-time.After(wait):
		tc.t.Fatal("no answer came")
	}
	panic("unreachable")
}

func connectOf(t *testing.T, r *Runtime, version, method string) *testClient {
	t.Helper()
	switch {
	case version == "2":
		return connectTwo(t, r, "")
	case method == acp.MethodSessionSetModel:
		return connectAs(t, r, 1, `{"protocolVersion":1,"clientCapabilities":{}}`, acp.Inline)
	}
	return connect(t, r, "")
}

// TestTold_OfALaterChoice: what a client has changed is there after a kill that follows its answer.
func TestTold_OfALaterChoice(t *testing.T) {
	for _, c := range choices {
		t.Run(c.version+" "+c.method+" "+c.record, func(t *testing.T) {
			dir, killed, again := t.TempDir(), t.TempDir(), make(chan string, 4)
			tc := connectOf(t, newRuntime(t, dir, choosing(again)), c.version, c.method)
			s := tc.session()
			if err := tc.change(c.method, `{"sessionId":"`+s+`",`+c.params+`}`); err != nil {
				t.Fatal(err)
			}
			if err := os.CopyFS(filepath.Join(killed, "sessions"), os.DirFS(filepath.Join(dir, "sessions"))); err != nil {
				t.Fatal(err)
			}
			if record := recordOf(t, killed, s); !strings.Contains(record, c.record) {
				t.Errorf("it is answered before the record has %s: %s", c.record, record)
			}
			connect(t, newRuntime(t, killed, choosing(again)), "").call("session/prompt", prompt(s, "x"))
			if c.again == "" {
				return
			}
			select {
			case got := <-again:
				if got != c.again {
					t.Errorf("the agent was told %q", got)
				}
			default:
				t.Error("what was chosen is forgotten")
			}
		})
	}
}

// TestTold_OfWhatCannotBeKept: where the record cannot be written, who changes something is told so,
// and the change is none: neither now nor after a kill, and the next one is kept.
func TestTold_OfWhatCannotBeKept(t *testing.T) {
	for _, c := range choices {
		t.Run(c.version+" "+c.method+" "+c.record, func(t *testing.T) {
			dir, again := t.TempDir(), make(chan string, 4)
			r := newRuntime(t, dir, choosing(again))
			tc := connectOf(t, r, c.version, c.method)
			s := tc.session()
			const before = `{"a":"before"}`
			tc.call("_sandboxagent/session/set_metadata", `{"sessionId":"`+s+`","metadata":`+before+`}`)
			inTheWay := filepath.Join(dir, "sessions", s, "session.json.tmp")
			if err := os.Mkdir(inTheWay, 0o700); err != nil {
				t.Fatal(err)
			}
			if e := tc.change(c.method, `{"sessionId":"`+s+`",`+c.params+`}`); e == nil || !strings.Contains(e.Message, "session.json.tmp") {
				t.Errorf("it is answered %v", e)
			}
			if i, err := r.Session(s); err != nil || i.Title != "" || string(i.Metadata) != before {
				t.Errorf("it was refused, and is there: %+v, %v", i, err)
			}
			if err := os.Remove(inTheWay); err != nil {
				t.Fatal(err)
			}
			tc.call("_sandboxagent/session/set_metadata", `{"sessionId":"`+s+`","metadata":{"a":"after"}}`)
			if record := recordOf(t, dir, s); strings.Contains(record, c.record) || !strings.Contains(record, `{"a":"after"}`) {
				t.Errorf("the record has what was refused: %s", record)
			}
		})
	}
}

// TestTold_OfASessionThatIsOpenAgain: who has loaded a closed session finds it open after a kill.
func TestTold_OfASessionThatIsOpenAgain(t *testing.T) {
	for _, version := range []string{"1", "2"} {
		dir := t.TempDir()
		tc := connectOf(t, newRuntime(t, dir, choosing(nil)), version, "")
		s := tc.session()
		for range 5 {
			tc.call("session/close", `{"sessionId":"`+s+`"}`)
			tc.call("session/resume", `{"sessionId":"`+s+`","cwd":"/tmp","mcpServers":[]}`)
			if record := recordOf(t, dir, s); strings.Contains(record, `"closed":true`) {
				t.Fatalf("version %s: a session was opened, and its record has it closed: %s", version, record)
			}
		}
	}
}

func recordOf(t *testing.T, dir, session string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "sessions", session, "session.json"))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestTold_OfChoicesInTheirOrder: who sets an option twice in a row is told last how it is.
func TestTold_OfChoicesInTheirOrder(t *testing.T) {
	tc := connect(t, newRuntime(t, t.TempDir(), choosing(nil)), "")
	s := tc.session()
	for range 20 {
		small := tc.request("session/set_config_option", `{"sessionId":"`+s+`","configId":"m","value":"small"}`)
		large := tc.request("session/set_config_option", `{"sessionId":"`+s+`","configId":"m","value":"large"}`)
		if _, first := tc.until(small); first.Err() != nil {
			t.Fatal(first.Err())
		}
		_, last := tc.until(large)
		options, _ := rawjson.Member(last.Result(), "configOptions")
		if got := rawjson.MemberString(rawjson.Elements(options)[0], "currentValue"); got != "large" {
			t.Fatalf("the answer that came last says %q", got)
		}
	}
}

// TestTold_OfAnEndThatCannotBeKept: who ends or closes a session whose record cannot be written is told so.
func TestTold_OfAnEndThatCannotBeKept(t *testing.T) {
	for _, method := range []string{"session/close", "_sandboxagent/session/terminate"} {
		dir := t.TempDir()
		tc := connect(t, newRuntime(t, dir, choosing(nil)), "")
		s := tc.session()
		tc.call("_sandboxagent/session/set_metadata", `{"sessionId":"`+s+`","metadata":{}}`) // whatever was to be written is
		inTheWay := filepath.Join(dir, "sessions", s, "session.json.tmp")
		if err := os.Mkdir(inTheWay, 0o700); err != nil {
			t.Fatal(err)
		}
		if e := tc.callErr(method, `{"sessionId":"`+s+`"}`); !strings.Contains(e.Message, "cannot be written now") {
			t.Errorf("%s is answered %v", method, e)
		}
		if err := os.Remove(inTheWay); err != nil {
			t.Fatal(err)
		}
	}
}
