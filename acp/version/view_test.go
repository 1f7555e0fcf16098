package version_test

import (
	"encoding/json"
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

const modes = `{"currentModeId":"ask","availableModes":[{"id":"ask","name":"Ask"},{"id":"code","name":"Code","description":"writes"}]}`

var about = version.About{Session: "s", Cwd: "/w", Modes: json.RawMessage(modes)}

// read returns what a client of version 2 is told of a log, whose first entries are
// history.
func read(log []version.Entry, history int) []string {
	return framesOf(version.NewView(about), log, history, nil)
}

// framesOf returns what the view makes of a log, and what ask makes of requests, if it is
// not nil.
func framesOf(v *version.View, log []version.Entry, history int, ask func(m *acp.Message) []byte) []string {
	var frames []string
	var out version.Frames
	for i, e := range log {
		if e.Kind == version.Ask && ask != nil {
			m := acp.MustParse(e.Frame)
			frames = append(frames, string(ask(&m)))
		}
		out.Reset()
		v.Step(e, i < history, &out)
		for j := range out.Len() {
			frames = append(frames, string(out.At(j)))
		}
	}
	return frames
}

func update(body string) string {
	return `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":` + body + `}}`
}

// logOf numbers entries: a letter of the kind, the client's number if there is one, a
// blank, and the frame.
func logOf(lines ...string) []version.Entry {
	var log []version.Entry
	for i, l := range lines {
		head, frame, _ := strings.Cut(l, " ")
		var to int64
		_, _ = fmt.Sscanf(head[1:], "%d", &to)
		log = append(log, version.Entry{Seq: uint64(i + 1), Kind: version.Kind(head[0]), To: to, Frame: []byte(frame)})
	}
	return log
}

func prompt(id, text string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"session/prompt","params":{"sessionId":"s","prompt":[{"type":"text","text":"` + text + `"}]}}`
}

func chunk(kind, text string) string {
	return update(`{"sessionUpdate":"` + kind + `_chunk","content":{"type":"text","text":"` + text + `"}}`)
}

// updatesOf returns the updates of frames, without what is around them.
func updatesOf(frames []string) []string {
	var out []string
	for _, f := range frames {
		m := acp.MustParse([]byte(f))
		out = append(out, string(m.Update()))
	}
	return out
}

func TestView_Turn(t *testing.T) {
	log := logOf(
		"c7 "+prompt("1", "hi"),
		"p-7 "+chunk("user_message", "hi"),
		"u "+chunk("agent_thought", "hm"),
		"u "+chunk("agent_message", "he"),
		"u "+chunk("agent_message", "llo"),
		`u `+update(`{"sessionUpdate":"tool_call","toolCallId":"t","title":"Write","kind":"edit","status":"pending","content":[{"type":"diff","path":"a.txt","oldText":"x\ny\n","newText":"x\nz"}]}`),
		`q {"jsonrpc":"2.0","id":9,"method":"session/request_permission","params":{"sessionId":"s","toolCall":{"toolCallId":"t"},"options":[]}}`,
		`x {"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":9}}`,
		`u `+update(`{"sessionUpdate":"tool_call_update","toolCallId":"t","status":"completed","content":null}`),
		"u "+chunk("agent_message", "done"),
		`u `+update(`{"sessionUpdate":"current_mode_update","currentModeId":"code"}`),
		`r7 {"jsonrpc":"2.0","id":1,"result":{"stopReason":"end_turn","usage":{"totalTokens":1,"inputTokens":1,"outputTokens":0}}}`,
	)
	want := []string{
		`{"sessionUpdate":"user_message","messageId":"sa.1","content":[{"type":"text","text":"hi"}]}`,
		`{"sessionUpdate":"state_update","state":"running"}`,
		`{"sessionUpdate":"agent_thought_chunk","content":{"type":"text","text":"hm"},"messageId":"sa.3"}`,
		`{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"he"},"messageId":"sa.4"}`,
		`{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"llo"},"messageId":"sa.4"}`,
		`{"sessionUpdate":"tool_call_update","toolCallId":"t","title":"Write","kind":"edit","status":"pending","content":[{"type":"diff","changes":[{"operation":"modify","path":"/w/a.txt"}],` +
			`"patch":{"format":"git_patch","text":"diff --git /w/a.txt /w/a.txt\n--- /w/a.txt\n+++ /w/a.txt\n@@ -1,2 +1,2 @@\n x\n-y\n+z\n\\ No newline at end of file\n"}}]}`,
		`{"sessionUpdate":"state_update","state":"requires_action"}`,
		`{"sessionUpdate":"state_update","state":"running"}`,
		`{"sessionUpdate":"tool_call_update","toolCallId":"t","status":"completed"}`,
		`{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"done"},"messageId":"sa.10"}`,
		`{"sessionUpdate":"config_option_update","configOptions":[{"configId":"mode","name":"Mode","category":"mode","type":"select","currentValue":"code","options":[{"name":"Ask","value":"ask"},{"name":"Code","description":"writes","value":"code"}]}]}`,
		`{"sessionUpdate":"state_update","state":"idle","stopReason":"end_turn","usage":{"totalTokens":1,"inputTokens":1,"outputTokens":0}}`,
	}
	if diff := cmp.Diff(want, updatesOf(read(log, 0))); diff != "" {
		t.Errorf("live (-want +got):\n%s", diff)
	}
	replayed := updatesOf(read(log, len(log)))
	begins := []string{
		`{"sessionUpdate":"agent_thought","messageId":"sa.3","content":[]}`,
		`{"sessionUpdate":"agent_message","messageId":"sa.4","content":[]}`,
		`{"sessionUpdate":"agent_message","messageId":"sa.10","content":[]}`,
	}
	for _, b := range begins {
		i := slices.Index(replayed, b)
		if i < 0 || i+1 == len(replayed) || !strings.Contains(replayed[i+1], "_chunk") {
			t.Errorf("a replay lacks %s before the message:\n%s", b, strings.Join(replayed, "\n"))
		}
	}
	if strings.Contains(strings.Join(replayed, "\n"), "state_update") {
		t.Errorf("a replay tells past states:\n%s", strings.Join(replayed, "\n"))
	}
}

// A patch has both texts of its diff, whatever they are: agents show files that they leave
// as they are, too.
func TestView_DiffsLoseNothing(t *testing.T) {
	texts := []string{"", "a", "a\n", "a\nb", "\n", "-a\n+b\n", "a\r\n", "@@ -1 +1 @@\n"}
	for _, was := range texts {
		for _, is := range texts {
			diff, err := json.Marshal(map[string]any{"type": "diff", "path": "/f", "oldText": was, "newText": is})
			if err != nil {
				t.Fatal(err)
			}
			frames := updatesOf(read(logOf("u "+update(`{"sessionUpdate":"tool_call","toolCallId":"t","title":"x","content":[`+string(diff)+`]}`)), 0))
			got := contentTwo(decode([]byte(frames[0]))["content"])
			if want := fmt.Sprintf("/f: %q to %q, new false", was, is); got != want {
				t.Errorf("%s, want %s, in %s", got, want, frames[0])
			}
		}
	}
}

// A turn waits for what is asked in it, and not for what was asked before.
func TestView_RequiresAction(t *testing.T) {
	ask := func(id int) string {
		return fmt.Sprintf(`q {"jsonrpc":"2.0","id":%d,"method":"session/request_permission","params":{"sessionId":"s","toolCall":{"toolCallId":"t"},"options":[]}}`, id)
	}
	done := func(id int) string {
		return fmt.Sprintf(`x {"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":%d}}`, id)
	}
	var got []string
	for _, u := range updatesOf(read(logOf(
		ask(1), "c1 "+prompt("5", "x"), ask(2), ask(3), done(2), done(1), done(3), ask(4),
		`r1 {"jsonrpc":"2.0","id":5,"result":{"stopReason":"cancelled"}}`, done(4), "c1 "+prompt("6", "y"),
	), 0)) {
		var s struct{ SessionUpdate, State string }
		if json.Unmarshal([]byte(u), &s) == nil && s.SessionUpdate == "state_update" {
			got = append(got, s.State)
		}
	}
	if diff := cmp.Diff([]string{"running", "requires_action", "running", "requires_action", "idle", "running"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// What an agent does though nobody has prompted it is a state of the session, too. It ends
// no turn, and a turn does not end it.
func TestView_WorksAlone(t *testing.T) {
	works := func(now bool) string {
		return fmt.Sprintf(`n {"jsonrpc":"2.0","method":"_sandboxagent/session/working","params":{"sessionId":"s","working":%v}}`, now)
	}
	const ask = `q {"jsonrpc":"2.0","id":1,"method":"session/request_permission","params":{"sessionId":"s","toolCall":{"toolCallId":"t"},"options":[]}}`
	const end = `r1 {"jsonrpc":"2.0","id":5,"result":{"stopReason":"end_turn"}}`
	for name, test := range map[string]struct {
		log  []string
		past int
		want string
	}{
		"alone":                {log: []string{works(true), works(true), "u " + chunk("agent_message", "x"), works(false), works(false)}, want: "running idle"},
		"a permission":         {log: []string{works(true), ask, works(false)}, want: "running requires_action idle"},
		"a turn in the middle": {log: []string{works(true), "c1 " + prompt("5", "x"), end, works(false)}, want: "running running idle running idle"},
		"an end within a turn": {log: []string{works(true), "c1 " + prompt("5", "x"), works(false), end}, want: "running running idle"},
		"in the past":          {log: []string{works(true), ask, works(false), works(true)}, past: 3, want: "running"},
	} {
		var got []string
		for _, u := range updatesOf(read(logOf(test.log...), test.past)) {
			var s struct{ SessionUpdate, State string }
			if json.Unmarshal([]byte(u), &s) == nil && s.SessionUpdate == "state_update" {
				got = append(got, s.State)
			}
		}
		if s := strings.Join(got, " "); s != test.want {
			t.Errorf("%s: the states are %s, want %s", name, s, test.want)
		}
	}
}

// What ends a turn is the answer to its prompt, whoever asks for something else under the
// same id meanwhile.
func TestView_TurnEnds(t *testing.T) {
	const stop = `,"result":{"stopReason":"max_tokens"}}`
	for _, c := range []struct {
		name string
		log  []string
		want string
	}{
		{"by its answer", []string{"c1 " + prompt("5", "x"), `r1 {"jsonrpc":"2.0","id":5` + stop}, "running max_tokens"},
		{"by its answer to a client that has left", []string{"c1 " + prompt("5", "x"), `r4611686018427387904 {"jsonrpc":"2.0","id":5` + stop}, "running max_tokens"},
		{"not by another's answer", []string{"c1 " + prompt("5", "x"), `r2 {"jsonrpc":"2.0","id":5` + stop}, "running"},
		{"not by another answer", []string{"c1 " + prompt("5", "x"), `r1 {"jsonrpc":"2.0","id":6,"result":{}}`}, "running"},
		{"not by the acknowledgement", []string{"c1 " + prompt("5", "x"), `r1 {"jsonrpc":"2.0","id":5,"result":{"messageId":"sa.1"}}`}, "running"},
		{"not by an answer under its id after the acknowledgement", []string{"c1 " + prompt("5", "x"), `r1 {"jsonrpc":"2.0","id":5,"result":{"messageId":"sa.1"}}`, `r1 {"jsonrpc":"2.0","id":5,"error":{"code":-32602,"message":"no"}}`}, "running"},
		{"by its end after the acknowledgement", []string{"c1 " + prompt("5", "x"), `r1 {"jsonrpc":"2.0","id":5,"result":{"messageId":"sa.1"}}`, `t {"jsonrpc":"2.0","method":"_sandboxagent/session/turn_ended","params":{"sessionId":"s","result":{"stopReason":"cancelled"}}}`}, "running cancelled"},
		{"not by the end of one that waited", []string{"c1 " + prompt("5", "x"), `t-2 {"jsonrpc":"2.0","method":"_sandboxagent/session/turn_ended","params":{"sessionId":"s","result":{"stopReason":"cancelled"}}}`}, "running"},
		{"by an error", []string{"c1 " + prompt("5", "x"), `r1 {"jsonrpc":"2.0","id":5,"error":{"code":-32603,"message":"broke"}}`}, "running error broke"},
		{"by a cancellation", []string{"c1 " + prompt("5", "x"), `r1 {"jsonrpc":"2.0","id":5,"error":{"code":-32800,"message":"no"}}`}, "running cancelled"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			for _, u := range updatesOf(read(logOf(c.log...), 0)) {
				var s struct {
					SessionUpdate, State, StopReason string
					Error                            struct{ Message string }
				}
				if json.Unmarshal([]byte(u), &s) != nil || s.SessionUpdate != "state_update" {
					continue
				}
				for _, word := range []string{strings.TrimPrefix(s.State, "idle"), s.StopReason, s.Error.Message} {
					if word != "" {
						got = append(got, word)
					}
				}
			}
			if strings.Join(got, " ") != c.want {
				t.Errorf("the states are %v, want %s", got, c.want)
			}
		})
	}
}

// A log of which only the end is kept may not have the prompt of a turn that goes on. Its end is told, once.
func TestView_TheTurnsPromptIsNoLongerKept(t *testing.T) {
	const end = ` {"jsonrpc":"2.0","method":"_sandboxagent/session/turn_ended","params":{"sessionId":"s","result":{"stopReason":"%s"},"began":%t}}`
	log := logOf("c1 "+prompt("5", "x"), "t-2"+fmt.Sprintf(end, "cancelled", false), "t"+fmt.Sprintf(end, "max_tokens", true), "t-2"+fmt.Sprintf(end, "end_turn", true))
	want := []string{`{"sessionUpdate":"state_update","state":"idle","stopReason":"max_tokens"}`}
	if diff := cmp.Diff(want, updatesOf(read(log[1:], 0))); diff != "" {
		t.Error(diff)
	}
}

// Any log, read as version 1 says, is the same conversation as read after translation,
// live or replayed, whole or in two parts. Every frame is a legal one.
func TestView_SameConversation(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		log := randomLog(r)
		want := foldOne(log)
		check := acptest.NewFor(t, 2)
		split := r.IntN(len(log) + 1)
		for _, history := range []int{0, split, len(log)} {
			frames := read(log, history)
			for _, f := range frames {
				if err := check.ValidateFrame([]byte(f), func(string) string { return "" }); err != nil {
					t.Fatalf("seed %d: %v in %s", seed, err, f)
				}
			}
			got := newConversation()
			if history > 0 { // who has the beginning already is told it again
				for _, f := range read(log[:split], 0) {
					got.two([]byte(f))
				}
			}
			for _, f := range frames {
				got.two([]byte(f))
			}
			if history == 0 {
				want.Stops = stopsOf(log)
			} else {
				got.Stops, want.Stops = nil, nil
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("seed %d, history %d (-v1 +v2):\n%s", seed, history, diff)
			}
		}
	}
}

// Ids depend on the log alone.
func TestView_IDsAreTheSameInEveryReplay(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	log := randomLog(r)
	if diff := cmp.Diff(read(log, len(log)), read(log, len(log))); diff != "" {
		t.Errorf("two replays differ:\n%s", diff)
	}
}

// A summary that comes in pieces begins empty in a replay.
func TestView_Compaction(t *testing.T) {
	const begins, ends = `{"sessionUpdate":"compaction_update","compactionId":"c","status":"in_progress"}`, `{"sessionUpdate":"compaction_update","compactionId":"c","status":"completed"}`
	const piece = `{"sessionUpdate":"compaction_summary_chunk","compactionId":"c","content":{"type":"text","text":"x"}}`
	log := logOf("u "+update(begins), "u "+update(piece), "u "+update(piece), "u "+update(ends))
	if diff := cmp.Diff([]string{begins, piece, piece, ends}, updatesOf(read(log, 0))); diff != "" {
		t.Errorf("live (-want +got):\n%s", diff)
	}
	const empty = `{"sessionUpdate":"compaction_update","compactionId":"c","summary":[],"status":"in_progress"}`
	if diff := cmp.Diff([]string{begins, empty, piece, piece, ends}, updatesOf(read(log, len(log)))); diff != "" {
		t.Errorf("in a replay (-want +got):\n%s", diff)
	}
}

func FuzzView(f *testing.F) {
	f.Add(byte('u'), chunk("agent_message", "x"), prompt("1", "y"))
	f.Add(byte('u'), update(`{"sessionUpdate":"tool_call","toolCallId":"t","title":"x","content":[{"type":"diff","path":"a","newText":"\n"}]}`), `{"jsonrpc":"2.0","id":1,"result":{}}`)
	f.Add(byte('q'), `{"jsonrpc":"2.0","id":1,"method":"session/request_permission","params":{"toolCall":{}}}`, update(`{"sessionUpdate":"plan"}`))
	f.Add(byte('u'), update(`{"sessionUpdate":"config_option_update","configOptions":[{"id":"mode","options":[{"group":1}]}]}`), update(`{"sessionUpdate":"agent_thought_chunk","messageId":null}`))
	f.Add(byte('u'), update(`{"sessionUpdate":"tool_call","toolCallId":"t","title":"x","content":[{"type":"content","content":{"type":"text","text":"`+"```\\nx\\n```"+`"}}],"_meta":{"sandboxagent.dev":{"terminal":{"command":"x","output":true,"exitCode":1}}}}`), update(`{"sessionUpdate":"notice","severity":"error","title":"x"}`))
	f.Fuzz(func(t *testing.T, kind byte, one, two string) {
		if _, err := acp.Parse([]byte(one)); err == nil {
			if told := (version.Knows{}).Tell([]byte(one)); told != nil {
				if _, err := acp.Parse(told); err != nil {
					t.Fatalf("%v: %s", err, told)
				}
			}
		}
		log := []version.Entry{{Seq: 1, Kind: version.Kind(kind), Frame: []byte(one)}, {Seq: 2, Kind: version.Client, Frame: []byte(two)}, {Seq: 3, Kind: version.Update, Frame: []byte(two)}, {Seq: 4, Kind: version.Update, Frame: []byte(one)}, {Seq: 5, Kind: version.Response, Frame: []byte(one)}}
		for _, frame := range read(log, 2) {
			if _, err := acp.Parse([]byte(frame)); err != nil {
				t.Fatalf("%v: %s", err, frame)
			}
		}
		if m, err := acp.Parse([]byte(one)); err == nil {
			if _, err := acp.Parse(version.NewView(about).Ask(&m)); err != nil {
				t.Fatal(err)
			}
			if lowered, bad := version.Request(&m); bad == nil && !m.IsResponse() && lowered.Method() == "" {
				t.Fatalf("%s became no request", one)
			}
			_, _ = version.Choose(&m, version.All())
			version.Reply(acp.MethodSessionNew, &m, nil, nil)
		}
		version.Initialized(json.RawMessage(`{"agentCapabilities":` + quoteUnlessJSON(one) + `}`))
	})
}

func quoteUnlessJSON(s string) string {
	if json.Valid([]byte(s)) {
		return s
	}
	return "{}"
}
