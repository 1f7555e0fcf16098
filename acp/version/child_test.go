package version_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/acptest"
	"sandboxagent.dev/sandbox-agent/acp/version"
)

// readOne is read for a client of version 1 that knows subagents.
func readOne(log []version.Entry) []string {
	of := about
	of.One = true
	v := version.NewView(of)
	return framesOf(v, log, 0, v.AskOne)
}

// readTwo is read with requests.
func readTwo(log []version.Entry, history int) []string {
	v := version.NewView(about)
	return framesOf(v, log, history, v.Ask)
}

// call is an update of a tool call, with the gateway's own part of its _meta.
func call(id, rest, own string) string {
	if own != "" {
		rest += `,"_meta":{"sandboxagent.dev":` + own + `}`
	}
	return `{"toolCallId":"` + id + `"` + rest + `}`
}

func begins(id, rest, own string) string {
	return "u " + update(`{"sessionUpdate":"tool_call",`+call(id, `,"title":"`+id+`"`+rest, own)[1:])
}

func goesOn(id, rest, own string) string {
	return "u " + update(`{"sessionUpdate":"tool_call_update",`+call(id, rest, own)[1:])
}

// told are updates with their sessions in front.
func told(frames []string) []string {
	var out []string
	for _, f := range frames {
		m := acp.MustParse([]byte(f))
		if m.IsRequest() {
			out = append(out, m.Session()+" asks "+string(m.ID()))
			continue
		}
		out = append(out, m.Session()+" "+string(m.Update()))
	}
	return out
}

var subagent = []string{
	"c7 " + prompt("1", "go"),
	"p-7 " + chunk("user_message", "go"),
	begins("t", `,"status":"pending"`, `{"subagent":{"cancel":true}}`),
	goesOn("t", `,"title":"Look","rawInput":{"prompt":"look around"}`, ``),
	goesOn("t", `,"status":"in_progress"`, ``),
	goesOn("t", `,"content":[{"type":"content","content":{"type":"text","text":"I look"}}]`, `{"said":{"text":"I look","messageId":"m"}}`),
	begins("r", `,"kind":"read"`, `{"parentToolCallId":"t"}`),
	`q {"jsonrpc":"2.0","id":9,"method":"session/request_permission","params":{"sessionId":"s","toolCall":{"toolCallId":"r"},"options":[]}}`,
	`x {"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":9}}`,
	goesOn("r", `,"status":"completed"`, ``),
	goesOn("t", `,"status":"completed"`, ``),
	`r7 {"jsonrpc":"2.0","id":1,"result":{"stopReason":"end_turn"}}`,
}

func TestView_Subagent(t *testing.T) {
	const (
		toldOf = `{"sessionUpdate":"subagent_update","sessionId":"s.t",`
		meta   = `"_meta":{"sandboxagent.dev":{"toolCallId":"t"}}}`
		task   = `s.t {"sessionUpdate":"session_message","messageId":"sa.5.task","senderSessionId":"s","recipientSessionId":"s.t","content":[{"type":"text","text":"look around"}]}`
		said   = `s.t {"sessionUpdate":"agent_message_chunk","messageId":"m","content":{"type":"text","text":"I look"}}`
	)
	state := func(s string) []string {
		return []string{`s.t {"sessionUpdate":"state_update",` + s, `s ` + toldOf + `"state":{` + s + `}`}
	}
	live := slices.Concat([]string{
		`s {"sessionUpdate":"user_message","messageId":"sa.1","content":[{"type":"text","text":"go"}]}`,
		`s {"sessionUpdate":"state_update","state":"running"}`,
		`s {"sessionUpdate":"tool_call_update","toolCallId":"t","title":"t","status":"pending","_meta":{"sandboxagent.dev":{"subagent":{"cancel":true}}}}`,
		`s {"sessionUpdate":"tool_call_update","toolCallId":"t","title":"Look","rawInput":{"prompt":"look around"}}`,
		`s {"sessionUpdate":"tool_call_update","toolCallId":"t","status":"in_progress"}`,
		`s ` + toldOf + `"title":"Look","capabilities":{"cancel":{}},"state":{"state":"running"},` + meta,
		`s.t {"sessionUpdate":"state_update","state":"running"}`,
		task, said,
		`s.t {"sessionUpdate":"tool_call_update","toolCallId":"r","title":"r","kind":"read","_meta":{"sandboxagent.dev":{"parentToolCallId":"t"}}}`,
		`s.t asks 9`,
	}, state(`"state":"requires_action"}`), []string{
		`s {"sessionUpdate":"state_update","state":"requires_action"}`,
	}, state(`"state":"running"}`), []string{
		`s {"sessionUpdate":"state_update","state":"running"}`,
		`s.t {"sessionUpdate":"tool_call_update","toolCallId":"r","status":"completed"}`,
		`s {"sessionUpdate":"tool_call_update","toolCallId":"t","status":"completed"}`,
	}, state(`"state":"idle","stopReason":"end_turn"}`), []string{
		`s {"sessionUpdate":"state_update","state":"idle","stopReason":"end_turn"}`,
	})
	if diff := cmp.Diff(live, told(readTwo(logOf(subagent...), 0))); diff != "" {
		t.Errorf("live (-want +got):\n%s", diff)
	}
	replayed := []string{}
	for _, line := range live {
		switch {
		case strings.Contains(line, "state_update"), strings.HasPrefix(line, `s `+toldOf+`"state"`):
			continue
		case line == said:
			replayed = append(replayed, `s.t {"sessionUpdate":"agent_message","messageId":"m","content":[]}`)
		}
		replayed = append(replayed, strings.Replace(line, `"state":{"state":"running"},`, "", 1))
	}
	if diff := cmp.Diff(replayed, told(readTwo(logOf(subagent...), len(subagent)))); diff != "" {
		t.Errorf("in a replay (-want +got):\n%s", diff)
	}
	one := []string{
		`s {"sessionUpdate":"user_message_chunk","content":{"type":"text","text":"go"}}`,
		`s {"sessionUpdate":"tool_call","toolCallId":"t","title":"t","status":"pending","_meta":{"sandboxagent.dev":{"subagent":{"cancel":true}}}}`,
	}
	for _, line := range live[3:] {
		if strings.Contains(line, `"state_update"`) {
			continue // version 1 has no such update
		}
		one = append(one, strings.Replace(line, `"tool_call_update","toolCallId":"r","title"`, `"tool_call","toolCallId":"r","title"`, 1))
	}
	if diff := cmp.Diff(one, told(readOne(logOf(subagent...)))); diff != "" {
		t.Errorf("in version 1 (-want +got):\n%s", diff)
	}
}

// A client that opens a session is told which subagents work; those that a turn leaves
// behind are in its background until they end.
func TestView_SubagentInBackground(t *testing.T) {
	log := logOf(
		"c7 "+prompt("1", "go"),
		begins("t", `,"status":"in_progress"`, `{"subagent":{}}`),
		begins("b", `,"status":"in_progress"`, `{"cancel":true}`),
		begins("w", `,"status":"pending"`, ``), // does not run
		`r7 {"jsonrpc":"2.0","id":1,"result":{"stopReason":"end_turn"}}`,
		goesOn("b", `,"status":"completed"`, ``),
		"c7 "+prompt("2", "and?"),
		goesOn("t", `,"status":"failed"`, ``),
	)
	states := func(frames []string) (out []string) {
		for _, line := range told(frames) {
			if strings.HasPrefix(line, `s {"sessionUpdate":"state_update",`) {
				out = append(out, strings.TrimPrefix(line, `s {"sessionUpdate":"state_update",`))
			}
		}
		return out
	}
	want := []string{
		`"state":"running"}`,
		`"state":"idle","stopReason":"end_turn","background":[{"type":"subagent","sessionId":"s.t"},{"type":"tool_call","toolCallId":"b"}]}`,
		`"state":"idle","background":[{"type":"subagent","sessionId":"s.t"}]}`,
		`"state":"running","background":[{"type":"subagent","sessionId":"s.t"}]}`,
		`"state":"running","background":[]}`,
	}
	if diff := cmp.Diff(want, states(read(log, 0))); diff != "" {
		t.Errorf("states (-want +got):\n%s", diff)
	}
	const cancellable = `"status":"in_progress","_meta":{"sandboxagent.dev":{"cancel":true}},"capabilities":{"cancel":{}}}`
	if all := strings.Join(read(log, 0), "\n"); strings.Count(all, `"capabilities"`) != 1 || !strings.Contains(all, cancellable) {
		t.Errorf("the call that can be cancelled is told of in\n%s", all)
	}
	v := version.NewView(about)
	framesOf(v, log[:6], 6, nil)
	var out version.Frames
	v.State(&out)
	var got []string
	for i := range out.Len() {
		got = append(got, string(out.At(i)))
	}
	opened := []string{
		`s.t {"sessionUpdate":"state_update","state":"running"}`,
		`s {"sessionUpdate":"subagent_update","sessionId":"s.t","state":{"state":"running"}}`,
		`s {"sessionUpdate":"state_update","state":"idle","background":[{"type":"subagent","sessionId":"s.t"}]}`,
	}
	if diff := cmp.Diff(opened, told(got)); diff != "" {
		t.Errorf("when it is opened (-want +got):\n%s", diff)
	}
}

// Of many subagents, more than are known at a time, each is a session of its own, live and
// in a replay. One that is still at work is not forgotten for them.
func TestView_ManySubagents(t *testing.T) {
	const subagents = 3000
	lines := []string{"c7 " + prompt("1", "go"), begins("first", `,"status":"in_progress"`, `{"subagent":{}}`)}
	for i := range subagents {
		id := fmt.Sprint("t", i)
		lines = append(lines, begins(id, `,"status":"in_progress"`, `{"subagent":{}}`), goesOn(id, "", `{"said":{"text":"`+id+`","messageId":"m"}}`), goesOn(id, `,"status":"completed"`, ""))
	}
	lines = append(lines, goesOn("first", "", `{"said":{"text":"still here","messageId":"m"}}`))
	log := logOf(lines...)
	live, replayed := map[string]*conversation{}, map[string]*conversation{}
	for history, have := range map[int]map[string]*conversation{0: live, len(log): replayed} {
		if err := bySession(readTwo(log, history), have); err != nil {
			t.Fatal(err)
		}
	}
	if len(live) != subagents+2 || len(live["s.first"].Items) != 1 {
		t.Errorf("there are %d sessions, and the first subagent's has %v", len(live), live["s.first"])
	}
	if diff := cmp.Diff(live, replayed); diff != "" {
		t.Errorf("(-live +replayed):\n%.2000s", diff)
	}
}

// randomSubagents returns a log in which subagents work, one within the other, too.
func randomSubagents(r *rand.Rand) []version.Entry {
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	lines := []string{"c3 " + prompt("1", "go"), "p-3 " + chunk("user_message", "go")}
	ask := 0
	for i := range 5 + r.IntN(40) {
		id := pick("a", "b", "c", "d")
		own := pick("", `{"subagent":{}}`, `{"subagent":{"cancel":true}}`, `{"parentToolCallId":"a"}`, `{"parentToolCallId":"b"}`, `{"parentToolCallId":"a","subagent":{}}`)
		status := pick("", `,"status":"pending"`, `,"status":"in_progress"`, `,"status":"completed"`, `,"status":"failed"`)
		switch r.IntN(6) {
		case 0:
			lines = append(lines, begins(id, status+pick("", `,"rawInput":{"prompt":"do"}`), own))
		case 1, 2:
			lines = append(lines, goesOn(id, status, own))
		case 3:
			lines = append(lines, goesOn(id, status, `{"said":{"text":"w`+fmt.Sprint(i)+`"`+pick("", `,"thought":true`)+pick("", `,"messageId":"m"`)+`}}`))
		case 4:
			lines = append(lines, "u "+chunk("agent_message", "x"))
		case 5:
			if ask++; ask%2 == 1 {
				lines = append(lines, fmt.Sprintf(`q {"jsonrpc":"2.0","id":%d,"method":"session/request_permission","params":{"sessionId":"s","toolCall":{"toolCallId":"%s"},"options":[{"optionId":"y","name":"Yes","kind":"allow_once"}]}}`, ask, id))
			} else {
				lines = append(lines, fmt.Sprintf(`x {"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":%d}}`, ask-1))
			}
		}
	}
	return logOf(lines...)
}

// bySession folds frames of version 2, each session by itself. A session that was not
// told of before it says something is an error.
func bySession(frames []string, have map[string]*conversation) error {
	if have["s"] == nil {
		have["s"] = newConversation()
	}
	for _, f := range frames {
		m := acp.MustParse([]byte(f))
		c := have[m.Session()]
		if c == nil {
			return fmt.Errorf("nobody told of the session of %s", f)
		}
		u := decode(m.Update())
		if str(u["sessionUpdate"]) == "subagent_update" && have[str(u["sessionId"])] == nil {
			have[str(u["sessionId"])] = newConversation()
		}
		if m.IsRequest() {
			continue
		}
		c.two([]byte(f))
		c.Stops = nil // states are not replayed
		delete(c.Others, "subagent_update")
	}
	return nil
}

// However much of a log with subagents a client is shown again, it has the same sessions
// with the same in them. Every frame is a legal one, in either version.
func TestView_SubagentsAreTheSameInEveryReplay(t *testing.T) {
	check := []*acptest.Validator{nil, acptest.NewFor(t, 1), acptest.NewFor(t, 2)}
	valid := func(seed uint64, in int, frames []string) {
		t.Helper()
		for _, f := range frames {
			if err := check[in].ValidateFrame([]byte(f), func(string) string { return "" }); err != nil {
				t.Fatalf("seed %d, version %d: %v in %s", seed, in, err, f)
			}
		}
	}
	subagents := 0
	for seed := range uint64(80) {
		r := rand.New(rand.NewPCG(seed, 7))
		log := randomSubagents(r)
		valid(seed, 1, readOne(log))
		live := map[string]*conversation{}
		if err := bySession(readTwo(log, 0), live); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		subagents += len(live) - 1
		split := r.IntN(len(log) + 1)
		for _, history := range []int{split, len(log)} {
			got := map[string]*conversation{}
			frames := readTwo(log, history)
			valid(seed, 2, frames)
			for _, part := range [][]string{readTwo(log[:split], 0), frames} { // who has the beginning is told it again
				if err := bySession(part, got); err != nil {
					t.Fatalf("seed %d, history %d: %v", seed, history, err)
				}
			}
			if diff := cmp.Diff(live, got); diff != "" {
				t.Fatalf("seed %d, history %d (-live +replayed):\n%s", seed, history, diff)
			}
		}
	}
	if subagents < 80 {
		t.Errorf("the logs had %d subagents in all: too few to say anything", subagents)
	}
}

// The children of an agent of version 2 are sessions for clients of version 1 that know
// subagents, too: its words as it said them, and its calls in version 1.
func TestView_ChildrenInVersionOne(t *testing.T) {
	in := func(session, body string) string { return strings.Replace(update(body), `"s"`, `"`+session+`"`, 1) }
	log := asLog(heard(t, []string{
		update(`{"sessionUpdate":"subagent_update","sessionId":"c","title":"C","state":{"state":"running"}}`),
		in("c", `{"sessionUpdate":"agent_message_chunk","messageId":"m","content":{"type":"text","text":"I "}}`),
		in("c", `{"sessionUpdate":"agent_message_chunk","messageId":"m","content":{"type":"text","text":"look"}}`),
		in("c", `{"sessionUpdate":"agent_message","messageId":"m","content":[{"type":"text","text":"I look"}]}`), // it was told in pieces
		in("c", `{"sessionUpdate":"agent_message","messageId":"n","content":[{"type":"text","text":"whole"}]}`),
		in("c", `{"sessionUpdate":"tool_call_update","toolCallId":"t","title":"T","status":"in_progress"}`),
		in("c", `{"sessionUpdate":"state_update","state":"idle","stopReason":"end_turn"}`),
	}))
	want := []string{
		`s {"sessionUpdate":"subagent_update","sessionId":"c","title":"C","state":{"state":"running"}}`,
		`c {"sessionUpdate":"agent_message_chunk","messageId":"m","content":{"type":"text","text":"I "}}`,
		`c {"sessionUpdate":"agent_message_chunk","messageId":"m","content":{"type":"text","text":"look"}}`,
		`c {"sessionUpdate":"agent_message_chunk","messageId":"n","content":{"type":"text","text":"whole"}}`,
		`c {"sessionUpdate":"tool_call","toolCallId":"sa.subagent.c.t","title":"T","status":"in_progress","_meta":{"sandboxagent.dev":{"parentToolCallId":"sa.subagent.c"}}}`,
		`c {"sessionUpdate":"tool_call_update","toolCallId":"sa.subagent.c.t","status":"failed"}`,
		`s {"sessionUpdate":"subagent_update","sessionId":"c","state":{"state":"idle","stopReason":"end_turn"}}`,
	}
	if diff := cmp.Diff(want, told(readOne(log))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
