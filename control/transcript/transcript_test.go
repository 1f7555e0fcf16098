package transcript

import (
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/yuin/goldmark"
	"golang.org/x/net/html"

	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/runtime"
)

var began = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// log is a session's log made of updates and of whole messages.
func log(lines ...string) iter.Seq2[runtime.Event, error] {
	return func(yield func(runtime.Event, error) bool) {
		seq := uint64(0)
		for i, line := range lines {
			direction, message := runtime.FromAgent, line
			seq++
			if rest, ok := strings.CutPrefix(line, "client "); ok {
				direction, message = runtime.FromClient, rest
			} else if rest, ok := strings.CutPrefix(line, "gateway "); ok {
				direction, message = runtime.FromGateway, rest
				last, _ := rawjson.Member([]byte(rest), "params", "lastSeq")
				seq, _ = strconv.ParseUint(string(last), 10, 64)
			} else if strings.HasPrefix(line, `{"sessionUpdate"`) {
				message = `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":` + line + `}}`
			}
			if !yield(runtime.Event{Seq: seq, Time: began.Add(time.Duration(i) * time.Minute), Direction: direction, Message: json.RawMessage(message)}, nil) {
				return
			}
		}
	}
}

func said(kind, text string) string {
	b, _ := json.Marshal(text)
	return `{"sessionUpdate":"` + kind + `","content":{"type":"text","text":` + string(b) + `}}`
}

const ended = `{"jsonrpc":"2.0","method":"_sandboxagent/session/turn_ended","params":{"sessionId":"s","result":{"stopReason":"end_turn"}}}`

func write(t *testing.T, o Options, lines ...string) string {
	t.Helper()
	var out strings.Builder
	if err := Write(&out, o, Session{ID: "s", Title: "A title", Agent: "mock", Cwd: "/w", Created: began}, log(lines...)); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// entries are those of a transcript as JSON lines, without the first and last line.
func entries(t *testing.T, o Options, lines ...string) (list []Entry, left LeftOut) {
	t.Helper()
	o.Format = JSONL
	text := strings.Split(strings.TrimSpace(write(t, o, lines...)), "\n")
	for _, line := range text[1 : len(text)-1] {
		var e Entry
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		list = append(list, e)
	}
	var foot struct{ LeftOut LeftOut }
	if err := json.Unmarshal([]byte(text[len(text)-1]), &foot); err != nil {
		t.Fatal(err)
	}
	return list, foot.LeftOut
}

// Pieces are one message, a call is what it was at its end, and its answer stands
// with it.
func TestWrite_FoldsATurn(t *testing.T) {
	list, left := entries(
		t, Options{},
		said("user_message_chunk", "do it"), said("agent_thought_chunk", "hm"), said("agent_message_chunk", "I "), said("agent_message_chunk", "will."),
		`{"sessionUpdate":"tool_call","toolCallId":"c","title":"Run ls","kind":"execute","status":"pending","rawInput":{"command":["ls","-a"]}}`,
		`{"jsonrpc":"2.0","id":7,"method":"session/request_permission","params":{"sessionId":"s","toolCall":{"toolCallId":"c"},"options":[{"optionId":"o","name":"Allow","kind":"allow_once"}]}}`,
		`client {"jsonrpc":"2.0","id":7,"result":{"outcome":{"outcome":"selected","optionId":"o"}}}`,
		`{"sessionUpdate":"plan","entries":[{"content":"one","status":"pending"}]}`,
		said("agent_message_chunk", "Meanwhile"),
		`{"sessionUpdate":"tool_call_update","toolCallId":"c","status":"in_progress","content":[{"type":"content","content":{"type":"text","text":"\u001b[31m.\u001b[0m\nfile"}}]}`,
		`{"sessionUpdate":"plan","entries":[{"content":"one","status":"completed"}]}`,
		ended,
		`{"sessionUpdate":"tool_call_update","toolCallId":"c","status":"failed"}`,
	)
	var got []string
	for _, e := range list {
		text := e.Text
		if e.Tool != nil {
			text = fmt.Sprintf("%s|%s|%s|%s|%q", e.Tool.Title, e.Tool.Status, e.Tool.Command, e.Tool.Answer, e.Tool.Output)
		}
		for _, s := range e.Plan {
			text += s.Content + " " + s.Status
		}
		got = append(got, string(e.Kind)+": "+text)
	}
	want := []string{
		"user: do it", "agent: I will.", `tool: Run ls|in_progress|ls -a|Allow|".\nfile"`, "plan: one completed", "agent: Meanwhile", "turn: ",
		`tool: Run ls|failed|||""`,
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("it has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if left.Thoughts != 1 {
		t.Errorf("%d thoughts are left out, want 1", left.Thoughts)
	}
}

// A request that outlives its turn has the answer that it gets then. One that is
// withdrawn has none.
func TestWrite_AnswerBehindTheTurn(t *testing.T) {
	const (
		call = `{"sessionUpdate":"tool_call","toolCallId":"c","title":"Run ls"}`
		asks = `{"jsonrpc":"2.0","id":7,"method":"session/request_permission","params":{"sessionId":"s","toolCall":{"toolCallId":"c"},"options":[{"optionId":"o","name":"Allow","kind":"allow_once"}]}}`
		form = `{"jsonrpc":"2.0","id":8,"method":"elicitation/create","params":{"sessionId":"s","message":"Which?"}}`
		says = `client {"jsonrpc":"2.0","id":7,"result":{"outcome":{"outcome":"selected","optionId":"o"}}}`
		gone = `{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":7}}`
	)
	for name, c := range map[string]struct {
		lines []string
		want  string
	}{
		"answered later": {
			[]string{call, asks, form, ended, said("user_message_chunk", "next"), ended, says, `client {"jsonrpc":"2.0","id":8,"result":{"action":"accept","content":{"which":"this"}}}`},
			"tool:Allow question:Which? Answer: this turn: user:next turn:",
		},
		"the call goes on": {[]string{call, asks, ended, `{"sessionUpdate":"tool_call_update","toolCallId":"c","status":"completed"}`, says}, "tool:Allow turn: tool:"},
		"withdrawn":        {[]string{call, asks, gone, ended, says}, "tool:not answered turn:"},
	} {
		list, _ := entries(t, Options{}, c.lines...)
		var got []string
		for _, e := range list {
			text := strings.Join(strings.Fields(e.Text), " ")
			if e.Tool != nil {
				text = e.Tool.Answer
			}
			got = append(got, string(e.Kind)+":"+text)
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: %q, want %q", name, strings.Join(got, " "), c.want)
		}
	}
}

func TestWrite_SubagentsAreInTheirCalls(t *testing.T) {
	const of = `,"_meta":{"sandboxagent.dev":{"parentToolCallId":"task"}}}`
	list, _ := entries(
		t, Options{},
		`{"sessionUpdate":"tool_call","toolCallId":"task","title":"Look"}`,
		strings.TrimSuffix(said("agent_message_chunk", "looking"), "}")+of,
		`{"sessionUpdate":"tool_call","toolCallId":"inner","title":"Read"`+of,
	)
	if len(list) != 1 || len(list[0].Tool.Parts) != 2 || list[0].Tool.Parts[0].Text != "looking" || list[0].Tool.Parts[1].Tool.Title != "Read" {
		t.Errorf("it has %+v", list)
	}
}

// A secret is found though it came in pieces, wherever it stands, in each format.
func TestWrite_SecretsAreRemoved(t *testing.T) {
	own, err := Patterns([]string{"heron"})
	if err != nil {
		t.Fatal(err)
	}
	key := "sk-" + "ant-api03-abcdefghijklmnopqrst"
	lines := []string{
		said("user_message_chunk", "use "+key[:9]), said("user_message_chunk", key[9:]),
		said("agent_message_chunk", "the word is her"), said("agent_message_chunk", "on"),
		`{"sessionUpdate":"tool_call","toolCallId":"c","title":"run ` + key + `","rawInput":{"command":"curl -H 'Authorization: Bearer abcdefghijkl'"},` +
			`"content":[{"type":"diff","path":"/heron","oldText":"","newText":"` + key + `"},{"type":"content","content":{"type":"text","text":"` + key + `"}}]}`,
		`{"sessionUpdate":"plan","entries":[{"content":"say heron","status":"pending"}]}`,
		`{"jsonrpc":"2.0","method":"_sandboxagent/session/turn_ended","params":{"sessionId":"s","error":{"code":1,"message":"bad key ` + key + `"}}}`,
	}
	for _, format := range Formats {
		got := write(t, Options{Format: format, Redact: own}, lines...)
		for _, secret := range []string{key, "heron", "abcdefghijkl"} {
			if strings.Contains(got, secret) {
				t.Errorf("%s has %q:\n%s", format, secret, got)
			}
		}
		if kept := write(t, Options{Format: format, KeepSecrets: true}, lines...); !strings.Contains(kept, key) || !strings.Contains(kept, "heron") {
			t.Errorf("%s does not have what is to be kept:\n%s", format, kept)
		}
	}
	if _, left := entries(t, Options{Redact: own}, lines...); left.Secrets != 9 {
		t.Errorf("%d are told, want 9", left.Secrets)
	}
}

func TestPatterns_Refusals(t *testing.T) {
	for _, list := range [][]string{{"("}, {"x*"}, {""}, make([]string, MaxPatterns+1)} {
		if _, err := Patterns(list); err == nil {
			t.Errorf("%q are taken", list)
		}
	}
}

// What is cut is told, and what is too long is never held whole.
func TestWrite_LongThingsAreCut(t *testing.T) {
	text := strings.Repeat("ä", maxOutput)
	list, left := entries(
		t, Options{},
		`{"sessionUpdate":"tool_call","toolCallId":"a","title":"long","content":[{"type":"content","content":{"type":"text","text":"`+text+`"}}]}`,
		`{"sessionUpdate":"tool_call","toolCallId":"b","title":"edit","content":[{"type":"diff","path":"p","oldText":"`+strings.Repeat("x", maxDiff)+`","newText":"y"}]}`,
		`{"sessionUpdate":"agent_message_chunk","content":{"type":"image","mimeType":"image/svg+xml","data":"PHN2Zz4="}}`,
		`{"sessionUpdate":"agent_message_chunk","content":{"type":"image","mimeType":"image/png","data":"\" onerror=\""}}`,
	)
	out := list[0].Tool.Output
	if len(out) > maxOutput+20 || left.Output != len(text)-(len(out)-len("\n[...]\n")) {
		t.Errorf("%d bytes are left of %d, and %d are told to be missing", len(out), len(text), left.Output)
	}
	if d := list[1].Tool.Diffs; len(d) != 1 || d[0].Text != "" || left.Diffs != 1 || left.Images != 2 {
		t.Errorf("diffs %+v, left out %+v", d, left)
	}
}

func TestWrite_TurnWithoutEndIsNotHeld(t *testing.T) {
	f := newFold(false)
	written := 0
	for ev := range log(said("agent_message_chunk", "begin")) {
		f.add(ev)
	}
	piece := said("agent_message_chunk", strings.Repeat("x", 1<<20))
	for range 20 {
		for ev := range log(piece) {
			written += len(f.add(ev))
		}
	}
	if written != 1 || f.bytes > maxHeld {
		t.Errorf("%d entries were written, %d bytes are held", written, f.bytes)
	}
}

// hostile is what no page may run or ask for.
var hostile = []string{
	`<script>alert(1)</script>`, `<img src=http://evil.test/x onerror=alert(1)>`, `![i](http://evil.test/x.png)`, `[l](javascript:alert(1))`,
	"</pre></details><script>alert(1)</script>", `"><svg onload=alert(1)>`, "\u202egnp.exe", "<div>\n<style>*{display:none}</style>\n</div>",
}

func TestWrite_HTMLIsSafe(t *testing.T) {
	var lines []string
	for i, text := range hostile {
		b, _ := json.Marshal(text)
		lines = append(lines, said("user_message_chunk", text), said("agent_message_chunk", text), said("agent_thought_chunk", text),
			fmt.Sprintf(`{"sessionUpdate":"tool_call","toolCallId":"c%d","title":%s,"status":%s,"rawInput":{"command":%s},"content":[{"type":"diff","path":%s,"oldText":"","newText":%s},{"type":"content","content":{"type":"text","text":%s}}]}`, i, b, b, b, b, b, b), ended)
	}
	page := write(t, Options{Format: HTML, Thoughts: true}, lines...)
	doc, err := html.Parse(strings.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	styles := 0
	for n := range doc.Descendants() {
		if n.Type != html.ElementNode {
			continue
		}
		switch n.Data {
		case "script", "svg", "iframe", "object", "link", "base", "form", "input":
			t.Errorf("it has <%s>", n.Data)
		case "style":
			styles++
		}
		for _, a := range n.Attr {
			v := strings.ToLower(a.Val)
			if strings.HasPrefix(a.Key, "on") || a.Key == "style" || a.Key == "src" && !strings.HasPrefix(v, "data:image/") || strings.HasPrefix(v, "javascript:") {
				t.Errorf("<%s %s=%q>", n.Data, a.Key, a.Val)
			}
		}
	}
	if styles != 1 || strings.Contains(page, "\u202e") {
		t.Errorf("%d styles, and what turns text around: %v", styles, strings.Contains(page, "\u202e"))
	}
	// What agents write as HTML is to be seen.
	if !strings.Contains(page, "&lt;script&gt;alert(1)&lt;/script&gt;") || !strings.Contains(page, "&lt;style&gt;*{display:none}") {
		t.Error("HTML that the agent wrote is not shown")
	}
}

// What somebody says stays inside of its part of a Markdown page.
func TestWrite_MarkdownHoldsTogether(t *testing.T) {
	page := write(
		t, Options{Format: Markdown},
		said("user_message_chunk", "# no heading\n* no list"), said("agent_message_chunk", "an open block:\n````go\n```\ncode"),
		`{"sessionUpdate":"tool_call","toolCallId":"c","title":"<b> *x*","status":"failed","content":[{"type":"content","content":{"type":"text","text":"`+"```"+`\n</details>"}}]}`,
		ended, said("user_message_chunk", "after"),
	)
	var out strings.Builder
	if err := goldmark.Convert([]byte(page), &out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"# no heading<br />\n* no list", "<h2>User</h2>\n<p>after</p>", "```\n&lt;/details&gt;\n</code></pre>"} {
		if !strings.Contains(strings.ReplaceAll(out.String(), "<br>", "<br />"), want) {
			t.Errorf("%q is not in\n%s\nof\n%s", want, out.String(), page)
		}
	}
}

func TestWrite_ErrorOfTheLog(t *testing.T) {
	want := errors.New("the disk is gone")
	err := Write(new(strings.Builder), Options{Format: HTML}, Session{}, func(yield func(runtime.Event, error) bool) { yield(runtime.Event{}, want) })
	if !errors.Is(err, want) {
		t.Errorf("error %v", err)
	}
}

func FuzzWrite(f *testing.F) {
	for _, text := range hostile {
		f.Add(said("agent_message_chunk", text))
	}
	f.Add(`{"sessionUpdate":"tool_call","toolCallId":null,"content":[{},{"type":"diff"}],"rawInput":{"command":[1,{}]}}`)
	f.Add(`{"jsonrpc":"2.0","id":null,"method":"session/request_permission","params":[]}`)
	f.Add(`client {"jsonrpc":"2.0","id":1,"result":{"answers":{"a":[["b"]]}}}`)
	f.Fuzz(func(t *testing.T, line string) {
		for _, format := range Formats {
			if err := Write(new(strings.Builder), Options{Format: format, Thoughts: true}, Session{}, log(line, ended, line)); err != nil {
				t.Error(err)
			}
		}
	})
}

// What another agent is given has what it needs, is bounded, and is always the same.
func TestWrite_Handover(t *testing.T) {
	var lines []string
	for i := range 300 {
		lines = append(
			lines, said("user_message_chunk", fmt.Sprintf("prompt %d %s", i, strings.Repeat("x", 500))), said("agent_thought_chunk", "hm"),
			fmt.Sprintf(`{"sessionUpdate":"tool_call","toolCallId":"c%d","title":"Edit f","kind":"edit","status":"completed","content":[{"type":"diff","path":"/w/f%d","oldText":"a","newText":"b"},{"type":"content","content":{"type":"text","text":%q}}]}`, i, i%120, strings.Repeat("out ", 500)),
			said("agent_message_chunk", fmt.Sprintf("answer %d", i)), ended,
		)
	}
	lines = append(
		lines, said("user_message_chunk", "the last one, with sk-ant-0123456789abcdef0123"),
		`{"sessionUpdate":"tool_call","toolCallId":"last","title":"Run rm","kind":"execute","status":"failed","rawInput":{"command":"rm -rf x"}}`,
		`{"jsonrpc":"2.0","id":7,"method":"session/request_permission","params":{"sessionId":"s","toolCall":{"toolCallId":"last"},"options":[{"optionId":"o","name":"Reject","kind":"reject_once"}]}}`,
		`client {"jsonrpc":"2.0","id":7,"result":{"outcome":{"outcome":"selected","optionId":"o"}}}`,
		`{"sessionUpdate":"plan","entries":[{"content":"first step","status":"completed"},{"content":"second step","status":"pending"}]}`,
		said("agent_message_chunk", strings.Repeat("long ", 20_000)), ended,
	)
	text := write(t, Options{Format: Handover}, lines...)
	for _, part := range []string{
		`<conversation-so-far agent="mock" directory="/w">`, "- /w/f59\n", "- Run rm: Reject\n", "- ✓ first step\n- ○ second step\n", "- User: prompt 0 xx", "/ Agent: answer 0\n",
		"more)\n", "### User\nthe last one, with [removed]\n", "- tool ✗ Run rm (Reject) `rm -rf x`", "bytes left out]", "</conversation-so-far>\n",
	} {
		if !strings.Contains(text, part) {
			t.Errorf("%q is not in\n%.3000s", part, text)
		}
	}
	if len(text) > 96<<10 || strings.Contains(text, "hm") || strings.Contains(text, "sk-ant") {
		t.Errorf("%d bytes", len(text))
	}
	if again := write(t, Options{Format: Handover}, lines...); again != text {
		t.Error("it is not the same")
	}
	if none := write(t, Options{Format: Handover}); !strings.Contains(none, "</conversation-so-far>") || strings.Contains(none, "##") {
		t.Errorf("nothing was said: %s", none)
	}
}

// gone stands in the place of events that the log has lost.
func gone(first, last int) string { return "gateway " + damaged(first, last) }

func damaged(first, last int) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","method":"_sandboxagent/session/events_damaged","params":{"sessionId":"s","firstSeq":%d,"lastSeq":%d}}`, first, last)
}

// Events that the log has lost are named in their place and at the end, and what stands before them is not continued behind them.
func TestWrite_SaysWhatIsLost(t *testing.T) {
	lines := []string{
		gone(1, 1), said("user_message_chunk", "question"), said("agent_message_chunk", "half "), gone(4, 4), said("agent_message_chunk", "other"), ended, gone(7, 7),
	}
	missing := func(n int) string { return fmt.Sprintf("Missing here: event %d, which the log has no more.", n) }
	for format, want := range map[Format][]string{
		Markdown: {missing(1), "## User\n\nquestion", "## Agent\n\nhalf\n", missing(4), "## Agent\n\nother\n", missing(7), "Left out:", "- event 1, which its log has no more", "- event 4, ", "- event 7, "},
		HTML:     {missing(1), "question", "half", missing(4), "<h2>Agent", "other", missing(7), "Left out:", "<li>event 1, which", "<li>event 4,", "<li>event 7,"},
		JSONL: {
			`"kind":"lost"`, `"lost":{"firstSeq":1,"lastSeq":1}`, `"question"`, `"half "`, `"lost":{"firstSeq":4,"lastSeq":4}`, `"other"`, `"lost":{"firstSeq":7,"lastSeq":7}`,
			`"leftOut":{"lost":[{"firstSeq":1,"lastSeq":1},{"firstSeq":4,"lastSeq":4},{"firstSeq":7,"lastSeq":7}]}`,
		},
		Handover: {missing(1), "### User\nquestion", "half", missing(4), "### Agent\nother", missing(7), "## What is missing here\n- event 1, ", "- event 4, ", "- event 7, "},
	} {
		rest := write(t, Options{Format: format}, lines...)
		all := rest
		for _, part := range want {
			_, behind, ok := strings.Cut(rest, part)
			if !ok {
				t.Fatalf("%s: %q is not in its place in\n%s", format, part, all)
			}
			rest = behind
		}
		if strings.Contains(all, "half other") || strings.Contains(all, "the beginning of the session") {
			t.Errorf("%s: it says what nobody knows:\n%s", format, all)
		}
	}
	// Of many places most are counted, and what the log let go of is told beside what it lost.
	lines = nil
	for i := range 30 {
		lines = append(lines, gone(100+10*i, 101+10*i))
	}
	text := write(t, Options{Format: Markdown}, lines...)
	if !strings.Contains(text, "events 290 to 291, which its log has no more\n- 10 further places") || strings.Contains(text, "- events 300 ") || !strings.Contains(text, "the beginning of the session") {
		t.Errorf("it ends with\n%s", text)
	}
}

// An agent that says itself that events are lost is not believed, whichever it names.
func TestWrite_AnAgentSaysThatEventsAreLost(t *testing.T) {
	for _, last := range []int{2, 3, 4_000_000_000} { // its own number is 3
		list, left := entries(t, Options{}, said("user_message_chunk", "question"), said("agent_message_chunk", "half "), damaged(1, last), said("agent_message_chunk", "other"), ended)
		if len(list) != 3 || list[1].Text != "half other" || len(left.Lost) > 0 || left.Events {
			t.Errorf("up to %d: %+v, %+v", last, list, left)
		}
	}
}
