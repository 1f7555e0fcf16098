package runtime

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/version"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/internal/killed"
	"sandboxagent.dev/sandbox-agent/runtime/journal"
)

const callUpdate = `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"native-1","update":{"sessionUpdate":%q,"toolCallId":%q,"title":"T","status":%q}}}`

const compactionUpdate = `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"native-1","update":{"sessionUpdate":"compaction_update","compactionId":%q,"status":%q}}}`

// statuses folds the updates of tool calls and compactions.
func statuses(ms []acp.Message) string {
	last := map[string]string{}
	var order []string
	for _, m := range ms {
		id := cmp.Or(rawjson.MemberString(m.Update(), "toolCallId"), rawjson.MemberString(m.Update(), "compactionId"))
		if id == "" {
			continue
		}
		if last[id] == "" {
			order = append(order, id)
		}
		last[id] = rawjson.MemberString(m.Update(), "status")
	}
	for i, id := range order {
		order[i] += " " + last[id]
	}
	return strings.Join(order, ", ")
}

// However the work on a session ends, no tool call and no compaction stays open in its log, and
// those of the agent that it ended itself stay as they are.
func TestCalls_NoneStaysOpen(t *testing.T) {
	t.Parallel()
	const caps = `{"session":{"compaction":{}},"_meta":{"sandboxagent.dev":{"notices":true}}}`
	const want = "a completed, b failed, c failed, d completed, e cancelled, f failed"
	for _, end := range []string{"crash", "close", "terminate", "stubborn", "kill", "kill behind the turn"} {
		t.Run(end, func(t *testing.T) {
			dir := t.TempDir()
			a := &fakeAgent{caps: `{"sessionCapabilities":{"resume":{}}}`}
			r := newRuntime(t, dir, a)
			tc := connect(t, r, caps)
			s := tc.session()
			turn := tc.request("session/prompt", prompt(s, "x"))
			p := a.conn().next(t, "session/prompt")
			for _, c := range [][3]string{
				{"tool_call", "a", "pending"},
				{"tool_call", "b", "pending"},
				{"tool_call_update", "a", "in_progress"},
				{"tool_call_update", "c", "in_progress"},
				{"tool_call_update", "a", "completed"},
			} {
				a.conn().send(fmt.Sprintf(callUpdate, c[0], c[1], c[2]))
			}
			for _, c := range [][2]string{{"d", "in_progress"}, {"d", "completed"}, {"e", "in_progress"}, {"e", "cancelled"}, {"f", "in_progress"}} {
				a.conn().send(fmt.Sprintf(compactionUpdate, c[0], c[1]))
			}
			var seen []acp.Message
			for statuses(seen) != "a completed, b pending, c in_progress, d completed, e cancelled, f in_progress" {
				seen = append(seen, tc.next())
			}
			var before []acp.Message
			switch end {
			case "crash":
				a.conn().crash(errCrash)
				before, _ = tc.until(turn)
			case "close", "terminate":
				method := map[string]string{"close": "session/close", "terminate": "_sandboxagent/session/terminate"}[end]
				closed := tc.request(method, `{"sessionId":"`+s+`"}`)
				a.conn().next(t, "session/cancel")
				a.conn().result(p, `{"stopReason":"cancelled"}`)
				before, _ = tc.until(closed)
			case "stubborn": // it neither ends its turn nor its calls
				tc.request("session/close", `{"sessionId":"`+s+`"}`)
				before, _ = tc.until(turn)
			case "kill", "kill behind the turn":
				if end != "kill" {
					a.conn().result(p, `{"stopReason":"end_turn"}`)
					tc.until(turn)
				}
				if err := r.sessions.Find(s).Log().Flush(); err != nil {
					t.Fatal(err)
				}
				tc = connect(t, newRuntime(t, killed.Folder(t, dir), &fakeAgent{caps: a.caps}), caps)
				before, _ = tc.until(tc.request("session/load", `{"sessionId":"`+s+`","cwd":"/","mcpServers":[]}`))
				seen = nil
			}
			// The answer to the close travels beside the session's own messages.
			for seen = append(seen, before...); statuses(seen) != want; {
				seen = append(seen, tc.next())
			}
			// Who comes later is told the same, once.
			later := connect(t, r, caps)
			if strings.HasPrefix(end, "kill") || end == "terminate" {
				later = tc
			}
			if end == "terminate" {
				return // it cannot be opened any more
			}
			replay, _ := later.until(later.request("session/load", `{"sessionId":"`+s+`","cwd":"/","mcpServers":[]}`))
			if got := statuses(replay); got != want {
				t.Errorf("calls on load: %s", got)
			}
			ended := 0
			for _, m := range replay {
				if rawjson.MemberString(m.Update(), "status") == "failed" {
					ended++
				}
			}
			if ended != 3 {
				t.Errorf("%d calls and compactions were ended, want 3", ended)
			}
		})
	}
}

// What goes on behind its turn is ended when its gateway was killed, however much was said since, whether the record was
// written in between or not. What had ended stays as it was.
func TestCalls_NoneStaysOpenFarBehindItsTurn(t *testing.T) {
	t.Parallel()
	const caps = `{"session":{"compaction":{}},"_meta":{"sandboxagent.dev":{"notices":true}}}`
	for _, saved := range []string{"before", "between", "behind"} {
		t.Run(saved, func(t *testing.T) {
			dir := t.TempDir()
			a := &fakeAgent{caps: `{"sessionCapabilities":{"resume":{}}}`}
			r := newRuntime(t, dir, a)
			tc := connect(t, r, caps)
			s := tc.session()
			save := func(when string) {
				if when == saved {
					tc.call("_sandboxagent/session/set_metadata", `{"sessionId":"`+s+`","metadata":{}}`)
				}
			}
			turn := func(says ...string) {
				t.Helper()
				turn := tc.request("session/prompt", prompt(s, "x"))
				p := a.conn().next(t, "session/prompt")
				for _, update := range says {
					a.conn().update("native-1", update)
				}
				a.conn().result(p, `{"stopReason":"end_turn"}`)
				tc.until(turn)
			}
			call := func(kind, id, status string) string {
				return fmt.Sprintf(`{"sessionUpdate":%q,"toolCallId":%q,"title":"T","status":%q}`, kind, id, status)
			}
			save("before")
			turn(call("tool_call", "a", "pending"), call("tool_call", "b", "in_progress"),
				`{"sessionUpdate":"compaction_update","compactionId":"c","status":"in_progress"}`, call("tool_call_update", "a", "completed"))
			save("between")
			turn(slices.Repeat([]string{`{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"word "}}`}, 100)...)
			save("behind")
			if err := r.sessions.Find(s).Log().Flush(); err != nil {
				t.Fatal(err)
			}
			tc = connect(t, newRuntime(t, killed.Folder(t, dir), &fakeAgent{caps: a.caps}), caps)
			load := `{"sessionId":"` + s + `","cwd":"/","mcpServers":[]}`
			seen, _ := tc.until(tc.request("session/load", load))
			later := connect(t, tc.r, caps)
			again, _ := later.until(later.request("session/load", load))
			const want = "a completed, b failed, c failed"
			if first, second := statuses(seen), statuses(again); first != want || second != want {
				t.Errorf("it is loaded with %s, and once more with %s", first, second)
			}
		})
	}
}

// What had ended in a part of the log that was lost, as when the power goes, which takes the end of the log and not the record,
// is ended once more.
func TestCalls_NoneStaysOpenWhereTheEndOfTheLogIsLost(t *testing.T) {
	t.Parallel()
	const caps = `{"session":{"compaction":{}},"_meta":{"sandboxagent.dev":{"notices":true}}}`
	for _, listed := range []bool{false, true} {
		t.Run(fmt.Sprint("listed first ", listed), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			a := &fakeAgent{caps: `{"sessionCapabilities":{"resume":{}}}`}
			r := newRuntime(t, dir, a)
			tc := connect(t, r, caps)
			s := tc.session()
			turn := tc.request("session/prompt", prompt(s, "x"))
			p := a.conn().next(t, "session/prompt")
			a.conn().send(fmt.Sprintf(callUpdate, "tool_call", "a", "in_progress"))
			for m := tc.next(); rawjson.MemberString(m.Update(), "toolCallId") != "a"; m = tc.next() {
			}
			if err := r.sessions.Find(s).Log().Flush(); err != nil {
				t.Fatal(err)
			}
			early := killed.Folder(t, dir)
			a.conn().send(fmt.Sprintf(callUpdate, "tool_call_update", "a", "completed"))
			a.conn().result(p, `{"stopReason":"end_turn"}`)
			tc.until(turn)
			tc.call("_sandboxagent/session/set_metadata", `{"sessionId":"`+s+`","metadata":{}}`)
			left := killed.Folder(t, dir)
			log := func(dir string) string { return filepath.Join(dir, "sessions", s, "log.journal") }
			b, err := os.ReadFile(log(early))
			if err == nil {
				err = os.WriteFile(log(left), b, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			next := newRuntime(t, left, &fakeAgent{caps: a.caps})
			tc = connect(t, next, caps)
			if listed {
				tc.call("session/list", `{}`)
				tc.call("_sandboxagent/session/set_metadata", `{"sessionId":"`+s+`","metadata":{"x":1}}`)
			}
			seen, _ := tc.until(tc.request("session/load", `{"sessionId":"`+s+`","cwd":"/","mcpServers":[]}`))
			if got := statuses(seen); got != "a failed" {
				t.Errorf("it is loaded with %q", got)
			}
			ended := 0
			for cur := next.sessions.Find(s).Log().Whole(0); ; {
				batch, err := cur.Next(nil, 1<<20)
				if err != nil {
					t.Fatal(err)
				}
				if len(batch) == 0 {
					break
				}
				for _, e := range batch {
					if e.Kind == journal.TurnEnd {
						ended++
					}
				}
			}
			if ended != 1 {
				t.Errorf("its turn has %d ends", ended)
			}
		})
	}
}

// What a session that comes from another gateway has open there is ended, whatever its record says of a log that went further.
func TestCalls_NoneStaysOpenInWhatArrives(t *testing.T) {
	t.Parallel()
	a, tc := optioned(t, t.TempDir(), adapters.Info{}, "")
	turn := tc.request("session/prompt", prompt("n", "x"))
	p := a.nextOf(t, "session/prompt")
	for _, status := range []string{"in_progress", "completed"} {
		a.conn().update("n", `{"sessionUpdate":"tool_call_update","toolCallId":"a","title":"T","status":"`+status+`"}`)
	}
	a.answer(p, `{"stopReason":"end_turn"}`)
	tc.until(turn)
	there, _ := tc.travelsAs(t, a, true, func(name string, b []byte) []byte {
		if !strings.HasPrefix(name, TravelLog) {
			return b
		}
		var left []byte
		for line := range bytes.Lines(b) {
			if !bytes.Contains(line, []byte(`"completed"`)) {
				left = append(left, line...)
			}
		}
		return left
	})
	seen, _ := there.until(there.request("session/load", loadOf("n", "/tmp", "")))
	if got := statuses(seen); got != "a failed" {
		t.Errorf("it is loaded with %q", got)
	}
}

// What goes on in a session as a fork is made of it does not in the fork: it ends there with what was copied.
func TestCalls_NoneStaysOpenInAFork(t *testing.T) {
	t.Parallel()
	const caps = `{"session":{"compaction":{}},"_meta":{"sandboxagent.dev":{"notices":true}}}`
	a := &fakeAgent{caps: `{"sessionCapabilities":{"resume":{},"fork":{}}}`}
	tc := connect(t, newRuntime(t, t.TempDir(), a), caps)
	s := tc.session()
	tc.request("session/prompt", prompt(s, "x"))
	a.conn().next(t, "session/prompt")
	a.conn().send(fmt.Sprintf(callUpdate, "tool_call", "a", "in_progress"))
	a.conn().send(fmt.Sprintf(compactionUpdate, "b", "in_progress"))
	var seen []acp.Message
	for statuses(seen) != "a in_progress, b in_progress" {
		seen = append(seen, tc.next())
	}
	made := tc.request("session/fork", `{"sessionId":"`+s+`","cwd":"/","mcpServers":[]}`)
	a.conn().result(a.conn().next(t, "session/fork"), `{"sessionId":"f"}`)
	_, res := tc.until(made)
	fork := rawjson.MemberString(res.Result(), "sessionId")
	later := connect(t, tc.r, caps)
	loaded, _ := later.until(later.request("session/load", `{"sessionId":"`+fork+`","cwd":"/","mcpServers":[]}`))
	if got := statuses(loaded); got != "a failed, b failed" {
		t.Errorf("the fork is loaded with %s", got)
	}
}

// What an agent of version 2 has in the background ends with its process, and clients are told so.
func TestCalls_BackgroundEndsWithTheProcess(t *testing.T) {
	t.Parallel()
	a := &fakeAgent{caps: `{"sessionCapabilities":{"resume":{}}}`}
	two := connectTwo(t, newRuntime(t, t.TempDir(), a), "")
	s := two.session()
	said := acp.NewNotification(acp.MethodSessionUpdate, []byte(`{"sessionId":"native-1","update":{"sessionUpdate":"state_update","state":"idle","background":[{"type":"tool_call","toolCallId":"t"}]}}`))
	a.conn().out <- said.For(version.Two, nil)
	background := func() string {
		m := two.next()
		for string(m.UpdateKind()) != "state_update" {
			m = two.next()
		}
		list, _ := rawjson.Member(m.Update(), "background")
		return string(list)
	}
	if got := background(); !strings.Contains(got, `"t"`) {
		t.Errorf("in the background is %q", got)
	}
	a.conn().crash(errCrash)
	if got := background(); strings.Contains(got, `"t"`) {
		t.Errorf("when the process of session %s has ended, in the background is %q", s, got)
	}
}

// What an agent of version 2 says of a terminal that had ended before the gateway was started again does not begin it anew: it does not end
// once more with the agent's process.
func TestLostCalls_TerminalThatHadEndedBefore(t *testing.T) {
	dir := t.TempDir()
	a := &fakeAgent{id: "fake", caps: `{"sessionCapabilities":{"resume":{}}}`, shared: make(chan sent, 64)}
	a.byHand()
	r := newRuntime(t, dir, a)
	tc := connect(t, r, "")
	id := tc.request("session/new", `{"cwd":"/tmp","mcpServers":[]}`)
	a.answer(a.nextOf(t, "session/new"), `{"sessionId":"n"}`)
	tc.until(id)
	says := func(what string) {
		m := acp.NewNotification(acp.MethodSessionUpdate, []byte(`{"sessionId":"n","update":{"sessionUpdate":"terminal_update","terminalId":"t",`+what+`}}`))
		a.conn().out <- m.For(version.Two, nil)
	}
	id = tc.request("session/prompt", prompt("n", "x"))
	asked := a.nextOf(t, "session/prompt")
	says(`"command":"ls"`)
	says(`"exitStatus":{"exitCode":0}`)
	a.answer(asked, `{"stopReason":"end_turn"}`)
	tc.until(id)
	tc.close()
	if err := r.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	r = newRuntime(t, dir, a)
	tc = connect(t, r, "")
	id, opened := tc.begins(t, a, "n")
	a.answer(opened, `{}`)
	asked = a.nextOf(t, "session/prompt")
	says(`"output":{"data":"bGF0ZQ=="}`)
	a.answer(asked, `{"stopReason":"end_turn"}`)
	tc.until(id)
	a.conn().crash(errCrash)
	tc.nextOf("_sandboxagent/session/ended")
	two := connectTwo(t, r, "")
	before, _ := two.until(two.request("session/resume", `{"sessionId":"n","cwd":"/tmp","_meta":{"sandboxagent.dev":{"after":0}}}`))
	ends := 0
	for _, m := range before {
		if exit, ended := rawjson.Member(m.Update(), "exitStatus"); ended {
			ends++
			if string(exit) != `{"exitCode":0}` {
				t.Errorf("clients are told %s", m.Frame())
			}
		}
	}
	if ends != 1 {
		t.Errorf("the terminal ends %d times", ends)
	}
}
