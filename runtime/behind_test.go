package runtime

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// What an agent says of its session is in the log at once, and in the session's record a moment later. A gateway
// that is killed between the two knows it all the same, whatever it was and however much followed, and counts
// nothing twice.
func TestRecord_IsBehindTheLog(t *testing.T) {
	for name, c := range map[string]struct {
		more   int  // messages behind it
		record bool // the record of before is there; else it is lost
		opened bool // a list does not read so much: the session must be opened
	}{
		"killed in the turn":       {record: true},
		"killed in a long turn":    {more: 3000, record: true, opened: true},
		"the record is lost":       {},
		"lost, and a long turn":    {more: 3000, opened: true},
		"killed at the turn's end": {more: 1, record: true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			a := &fakeAgent{}
			r := newRuntime(t, dir, a)
			tc := connect(t, r, "")
			s := tc.session()
			turn := func(say ...string) {
				id := tc.request("session/prompt", prompt(s, "hi"))
				p := a.conn().next(t, "session/prompt")
				for _, one := range say {
					a.conn().send(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"native-1","update":` + one + `}}`)
				}
				a.conn().result(p, `{"stopReason":"end_turn"}`)
				tc.until(id)
			}
			turn(`{"sessionUpdate":"session_info_update","title":"Of before"}`, `{"sessionUpdate":"usage_update","used":1,"size":2,"cost":{"amount":2,"currency":"USD"}}`)
			record := filepath.Join(dir, "sessions", s, "session.json")
			before := savedRecord(t, record, "Of before", `"amount":2`)
			say := []string{
				`{"sessionUpdate":"session_info_update","title":"Of the turn"}`,
				`{"sessionUpdate":"usage_update","used":1,"size":2,"cost":{"amount":5,"currency":"USD"}}`,
				`{"sessionUpdate":"usage_update","used":1,"size":2,"cost":{"amount":1,"currency":"USD"}}`, // with a new process
				`{"sessionUpdate":"config_option_update","configOptions":[{"id":"model","name":"Model","category":"model","type":"select","currentValue":"large","options":[]}]}`,
				`{"sessionUpdate":"tool_call","toolCallId":"t","title":"Look","status":"in_progress","_meta":{"sandboxagent.dev":{"subagent":{}}}}`,
				`{"sessionUpdate":"tool_call_update","toolCallId":"t","_meta":{"sandboxagent.dev":{"said":{"text":"I see","messageId":"m"}}}}`,
			}
			for i := range c.more {
				say = append(say, fmt.Sprintf(`{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"%d"}}`, i))
			}
			turn(append(say, `{"sessionUpdate":"tool_call_update","toolCallId":"t","status":"completed"}`)...)
			want := about(t, r, s)
			if diff := cmp.Diff([]string{"Of the turn", "large", "6 USD", s + ".t of " + s + " by t, Look: idle"}, want); diff != "" {
				t.Fatalf("before (-want +got):\n%s", diff)
			}
			tc.close()
			if err := r.Shutdown(t.Context()); err != nil {
				t.Fatal(err)
			}
			put := func() {
				err := os.WriteFile(record, before, 0o600)
				if !c.record {
					err = os.Remove(record)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			put()
			for range 2 { // the second time with the record that the first has made
				r = newRuntime(t, dir, &fakeAgent{})
				if c.opened {
					if _, _, err := r.Events(t.Context(), s, 0, 1); err != nil {
						t.Fatal(err)
					}
				}
				if diff := cmp.Diff(want, about(t, r, s)); diff != "" {
					t.Errorf("after (-want +got):\n%s", diff)
				}
				if err := r.Shutdown(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			// What a client sets is written at once, and what the log has besides is not forgotten for it.
			put()
			r = newRuntime(t, dir, &fakeAgent{})
			tc = connect(t, r, "")
			tc.call("_sandboxagent/session/set_metadata", `{"sessionId":"`+s+`","metadata":{"a":1}}`)
			tc.close()
			if err := r.Shutdown(t.Context()); err != nil {
				t.Fatal(err)
			}
			r = newRuntime(t, dir, &fakeAgent{})
			if _, _, err := r.Events(t.Context(), s, 0, 1); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, about(t, r, s)); diff != "" {
				t.Errorf("behind what a client has set (-want +got):\n%s", diff)
			}
		})
	}
}

// savedRecord returns the record of a session when it has the texts.
func savedRecord(t *testing.T, path string, texts ...string) []byte {
	t.Helper()
	for deadline := time.Now().Add(wait); ; time.Sleep(time.Millisecond) {
		b, err := os.ReadFile(path)
		if err == nil && !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(string(b), text) }) {
			return b
		}
		if time.Now().After(deadline) {
			t.Fatalf("the record is %s, %v", b, err)
		}
	}
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
