package runtime

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// leftover is what a gateway has left that was killed when the log had what the record of its session had not.
type leftover struct {
	t      *testing.T
	dir, s string
	record []byte // as it was written last
	want   []string
}

const subagentBegins = `{"sessionUpdate":"tool_call","toolCallId":"t","title":"Look","status":"in_progress","_meta":{"sandboxagent.dev":{"subagent":{}}}}`

// kill leaves a session with a turn that the record knows, and one that it does not. before are messages of the
// first one, and more is how many messages of the second are before those that say something of the session.
func kill(t *testing.T, before []string, more int) *leftover {
	t.Helper()
	k := &leftover{t: t, dir: t.TempDir()}
	a := &fakeAgent{}
	r := newRuntime(t, k.dir, a)
	tc := connect(t, r, "")
	k.s = tc.session()
	turn := func(say ...string) {
		id := tc.request("session/prompt", prompt(k.s, "hi"))
		p := a.conn().next(t, "session/prompt")
		for _, one := range say {
			a.conn().send(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"native-1","update":` + one + `}}`)
		}
		a.conn().result(p, `{"stopReason":"end_turn"}`)
		tc.until(id)
	}
	turn(append(before, `{"sessionUpdate":"session_info_update","title":"Of before"}`, `{"sessionUpdate":"usage_update","used":1,"size":2,"cost":{"amount":2,"currency":"USD"}}`)...)
	k.record = savedRecord(t, k.path(), "Of before", `"amount":2`)
	var say []string
	for range more {
		say = append(say, fmt.Sprintf(`{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":%q}}`, strings.Repeat("x", 260<<10)))
	}
	say = append(say,
		`{"sessionUpdate":"session_info_update","title":"Of the turn"}`,
		`{"sessionUpdate":"usage_update","used":1,"size":2,"cost":{"amount":5,"currency":"USD"}}`,
		`{"sessionUpdate":"usage_update","used":1,"size":2,"cost":{"amount":1,"currency":"USD"}}`, // with a new process
		`{"sessionUpdate":"config_option_update","configOptions":[{"id":"model","name":"Model","category":"model","type":"select","currentValue":"large","options":[]}]}`,
	)
	if before == nil {
		say = append(say, subagentBegins)
	}
	say = append(say, `{"sessionUpdate":"tool_call_update","toolCallId":"t","_meta":{"sandboxagent.dev":{"said":{"text":"I see","messageId":"m"}}}}`)
	turn(append(say, `{"sessionUpdate":"tool_call_update","toolCallId":"t","status":"completed"}`)...)
	k.want = []string{"Of the turn", "large", "6 USD", k.s + ".t of " + k.s + " by t, Look: idle"}
	if diff := cmp.Diff(k.want, about(t, r, k.s)); diff != "" {
		t.Fatalf("before (-want +got):\n%s", diff)
	}
	tc.close()
	k.end(r)
	k.put(k.record)
	return k
}

func (k *leftover) path() string { return filepath.Join(k.dir, "sessions", k.s, "session.json") }

// put has the record be what it was, with nil that it is lost.
func (k *leftover) put(record []byte) {
	k.t.Helper()
	err := os.WriteFile(k.path(), record, 0o600)
	if record == nil {
		err = os.Remove(k.path())
	}
	if err != nil {
		k.t.Fatal(err)
	}
}

func (k *leftover) start(a *fakeAgent) *Runtime { return newRuntime(k.t, k.dir, a) }

func (k *leftover) end(r *Runtime) {
	k.t.Helper()
	if err := r.Shutdown(k.t.Context()); err != nil {
		k.t.Fatal(err)
	}
}

// open uses the session.
func (k *leftover) open(r *Runtime) {
	k.t.Helper()
	if _, _, err := r.Events(k.t.Context(), k.s, 0, 1); err != nil {
		k.t.Fatal(err)
	}
}

func (k *leftover) listed(r *Runtime, when string, want []string) {
	k.t.Helper()
	if diff := cmp.Diff(want, about(k.t, r, k.s)); diff != "" {
		k.t.Errorf("%s (-want +got):\n%s", when, diff)
	}
}

// What an agent says of its session is in the log at once, and in the session's record a moment later. A gateway
// that is killed between the two knows it all the same, whatever it was and however much followed, and counts
// nothing twice.
func TestRecord_IsBehindTheLog(t *testing.T) {
	for name, c := range map[string]struct {
		more int  // messages before those that say something
		lost bool // the record is lost
	}{
		"killed in the turn":    {},
		"killed in a long turn": {more: 40},
		"the record is lost":    {lost: true},
		"lost, and a long turn": {more: 40, lost: true},
	} {
		t.Run(name, func(t *testing.T) {
			k := kill(t, nil, c.more)
			if c.lost {
				k.put(nil)
			}
			for range 2 { // the second time with the record that the first has made
				r := k.start(&fakeAgent{})
				if c.more > 0 { // a list does not read so much
					k.open(r)
				}
				k.listed(r, "after", k.want)
				k.end(r)
			}
		})
	}
}

// Whatever comes between the start of the gateway and the reading of what the record does not know, nothing of it
// goes, and nothing is counted twice.
func TestRecord_IsBehindTheLog_AndWhatComesBetween(t *testing.T) {
	const long = 40 // messages of 260 KiB, which one list does not read
	call := func(t *testing.T, r *Runtime, method, params string) {
		t.Helper()
		tc := connect(t, r, "")
		defer tc.close()
		tc.call(method, params)
	}
	titled := func(k *leftover, title string) []string { return append([]string{title}, k.want[1:]...) }
	t.Run("a list and an orderly end", func(t *testing.T) {
		k := kill(t, nil, long)
		r := k.start(&fakeAgent{})
		k.listed(r, "before it is read", []string{"Of before", "", "2 USD"})
		k.end(r)
		r = k.start(&fakeAgent{})
		for range 100 { // lists alone: the file must not be taken for one that is known
			if slices.Equal(about(t, r, k.s), k.want) {
				break
			}
		}
		k.listed(r, "after", k.want)
	})
	t.Run("lists alone", func(t *testing.T) {
		k := kill(t, nil, long)
		r := k.start(&fakeAgent{})
		lists := 0
		for ; lists < 100 && !slices.Equal(about(t, r, k.s), k.want); lists++ {
		}
		if k.listed(r, "after many", k.want); lists < 2 {
			t.Errorf("%d lists have read it all", lists)
		}
	})
	t.Run("metadata and an orderly end", func(t *testing.T) {
		k := kill(t, nil, long)
		k.put(nil)
		r := k.start(&fakeAgent{})
		call(t, r, "_sandboxagent/session/set_metadata", `{"sessionId":"`+k.s+`","metadata":{"a":1}}`)
		k.end(r)
		r = k.start(&fakeAgent{})
		k.open(r)
		k.listed(r, "after", k.want)
	})
	t.Run("a title", func(t *testing.T) {
		k := kill(t, nil, long)
		r := k.start(&fakeAgent{})
		call(t, r, "_sandboxagent/session/set_metadata", `{"sessionId":"`+k.s+`","title":"Mine"}`)
		k.open(r)
		k.listed(r, "with a title of a person", titled(k, "Mine"))
		call(t, r, "_sandboxagent/session/set_metadata", `{"sessionId":"`+k.s+`","title":""}`)
		k.listed(r, "without it", k.want)
	})
	t.Run("an agent that is started for something else", func(t *testing.T) {
		k := kill(t, nil, long)
		a := &fakeAgent{caps: `{"loadSession":true}`}
		r := k.start(a)
		tc := connect(t, r, "")
		id := tc.request("session/set_config_option", `{"sessionId":"`+k.s+`","configId":"model","value":"small"}`)
		a.conn().result(a.conn().next(t, "session/load"), `{}`)
		a.conn().send(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"native-1","update":{"sessionUpdate":"usage_update","used":1,"size":2,"cost":{"amount":1.5,"currency":"USD"}}}}`)
		m := a.conn().next(t, "session/set_config_option")
		a.conn().result(m, `{"configOptions":[{"id":"model","name":"Model","category":"model","type":"select","currentValue":"small","options":[]}]}`)
		tc.until(id)
		waitFor(t, r, k.s, func(i SessionInfo) bool { return i.Cost != nil && i.Cost.Amount != 6 })
		want := slices.Clone(k.want)
		want[1], want[2] = "small", "6.5 USD"
		k.listed(r, "after", want)
	})
	t.Run("a record that is lost behind a title", func(t *testing.T) {
		k := kill(t, nil, 0)
		r := k.start(&fakeAgent{})
		call(t, r, "_sandboxagent/session/set_metadata", `{"sessionId":"`+k.s+`","title":"Mine"}`)
		k.end(r)
		k.put(nil)
		r = k.start(&fakeAgent{})
		k.listed(r, "lost", titled(k, "Mine"))
		call(t, r, "_sandboxagent/session/set_metadata", `{"sessionId":"`+k.s+`","title":""}`)
		k.listed(r, "without it", k.want)
		k.end(r)
		k.put(nil)
		r = k.start(&fakeAgent{})
		k.listed(r, "lost without it", k.want)
	})
	t.Run("a log that cannot be opened for a while", func(t *testing.T) {
		k := kill(t, nil, 0)
		log := filepath.Join(k.dir, "sessions", k.s, "log.journal")
		if err := errors.Join(os.Rename(log, log+".away"), os.Mkdir(log, 0o700)); err != nil {
			t.Fatal(err)
		}
		r := k.start(&fakeAgent{})
		k.listed(r, "without its log", []string{"Of before", "", "2 USD"})
		if err := errors.Join(os.Remove(log), os.Rename(log+".away", log)); err != nil {
			t.Fatal(err)
		}
		k.listed(r, "with it", k.want)
	})
	t.Run("a subagent whose call the record knows", func(t *testing.T) {
		k := kill(t, []string{strings.Replace(subagentBegins, "in_progress", "pending", 1)}, 0)
		r := k.start(&fakeAgent{})
		about(t, r, k.s) // a list reads the newest events, and not the call
		k.end(r)
		r = k.start(&fakeAgent{})
		k.open(r)
		k.listed(r, "after", k.want)
	})
	t.Run("a record of an earlier version", func(t *testing.T) {
		k := kill(t, nil, 0)
		k.put(regexp.MustCompile(`"notedSeq":\d+,`).ReplaceAll(k.record, nil))
		r := k.start(&fakeAgent{})
		want := slices.Clone(k.want)
		want[2] = "2 USD" // which of the costs it knows is not known
		k.listed(r, "after", want)
	})
}

// savedRecord returns the record of a session when it has the texts.
func savedRecord(t *testing.T, path string, texts ...string) []byte {
	t.Helper()
	deadline := time.Now().Add(wait)
	for range time.Tick(time.Millisecond) { // nobody tells of it
		b, err := os.ReadFile(path)
		if err == nil && !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(string(b), text) }) {
			return b
		}
		if time.Now().After(deadline) {
			t.Fatalf("the record is %s, %v", b, err)
		}
	}
	return nil
}

// about is what a list says of a session by what its agent has told.
func about(t *testing.T, r *Runtime, s string) []string {
	t.Helper()
	info, err := r.Session(s)
	if err != nil {
		t.Fatal(err)
	}
	cost := ""
	if info.Cost != nil {
		cost = fmt.Sprint(info.Cost.Amount, " ", info.Cost.Currency)
	}
	return append([]string{info.Title, info.Model, cost}, children(t, r, s)...)
}

// A hub has what the record was when a turn ended, and all events. A session that it brings back has both, and its agent
// goes on, and counts, from where that turn ended.
func TestImport_RecordOfBefore(t *testing.T) {
	a := &fakeAgent{id: "fake", caps: `{"sessionCapabilities":{"resume":{}}}`}
	r := newRuntime(t, t.TempDir(), a)
	tc := connect(t, r, "")
	s := tc.session()
	costs := func(tc *testClient, c *fakeConn, opened bool, amount float64, title string) {
		t.Helper()
		id := tc.request("session/prompt", prompt(s, "hi"))
		if !opened {
			c.result(c.next(t, "session/resume"), "{}")
		}
		p := c.next(t, "session/prompt")
		c.send(fmt.Sprintf(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":%q,"update":{"sessionUpdate":"usage_update","used":1,"size":2,"cost":{"amount":%v,"currency":"USD"}}}}`, p.Session(), amount))
		c.send(fmt.Sprintf(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":%q,"update":{"sessionUpdate":"session_info_update","title":%q}}}`, p.Session(), title))
		c.result(p, `{"stopReason":"end_turn"}`)
		tc.until(id)
	}
	export := func(open bool) (m Manifest, files map[string][]byte) {
		t.Helper()
		files = map[string][]byte{}
		err := r.ExportSession(t.Context(), s, &Departure{
			Open: open, WithoutLog: open,
			Begin: func(of Manifest) error { m = of; return nil },
			Put: func(name string, from io.Reader) (err error) {
				files[name], err = io.ReadAll(from)
				return err
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		return m, files
	}
	costs(tc, a.conn(), true, 10, "Of the bundle")
	_, bundle := export(true)
	costs(tc, a.conn(), true, 10.5, "Of the log")
	tc.close()
	m, files := export(false)
	files[TravelRecord] = bundle[TravelRecord]
	dir := t.TempDir()
	for name, b := range files {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, b, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	b := &fakeAgent{id: "fake", caps: `{"sessionCapabilities":{"resume":{}}}`}
	r = newRuntime(t, t.TempDir(), b)
	if _, err := r.ImportSession(t.Context(), m, dir, ImportOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := about(t, r, s); got[0] != "Of the log" || got[2] != "10.5 USD" {
		t.Errorf("it came with %q", got)
	}
	tc = connect(t, r, "")
	tc.call("session/load", `{"sessionId":"`+s+`","cwd":"/tmp","mcpServers":[]}`)
	costs(tc, b.conn(), false, 10.1, "Here")
	if got := about(t, r, s); got[0] != "Here" || got[2] != "10.6 USD" {
		t.Errorf("it went on with %q", got)
	}
}

// What a fork has of the session that it was made from is none of its own, also when its gateway is killed before the
// fork has said anything.
func TestFork_CostsOfItsOrigin(t *testing.T) {
	dir := t.TempDir()
	a := &fakeAgent{caps: `{"sessionCapabilities":{"fork":{}}}`}
	r := newRuntime(t, dir, a)
	tc := connect(t, r, "")
	s := tc.session()
	id := tc.request("session/prompt", prompt(s, "hi"))
	p := a.conn().next(t, "session/prompt")
	a.conn().send(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"native-1","update":{"sessionUpdate":"usage_update","used":1,"size":2,"cost":{"amount":5,"currency":"USD"}}}}`)
	a.conn().result(p, `{"stopReason":"end_turn"}`)
	tc.until(id)
	id = tc.request("session/fork", `{"sessionId":"`+s+`","cwd":"/tmp","mcpServers":[]}`)
	a.conn().result(a.conn().next(t, "session/fork"), `{"sessionId":"fork"}`)
	if _, res := tc.until(id); strings.Contains(string(res.Result()), "historyIncomplete") {
		t.Errorf("all was copied: %s", res.Frame())
	}
	record := filepath.Join(dir, "sessions", "fork", "session.json")
	left, err := os.ReadFile(record) // the answer is out: this is what a kill leaves
	if err != nil {
		t.Fatal(err)
	}
	tc.close()
	if err := errors.Join(r.Shutdown(t.Context()), os.WriteFile(record, left, 0o600)); err != nil {
		t.Fatal(err)
	}
	r = newRuntime(t, dir, &fakeAgent{})
	if got := about(t, r, "fork"); got[2] != "" {
		t.Errorf("it costs %s", got[2])
	}
	if got := about(t, r, s); got[2] != "5 USD" {
		t.Errorf("its origin costs %s", got[2])
	}
}
