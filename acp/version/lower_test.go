package version_test

import (
	"encoding/base64"
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

// said is what an agent of version 2 says, or with a mark before it what the gateway asks.
const toAgent = "> "

// heard runs a conversation with an agent of version 2 through the translation, and
// returns what the gateway is told.
func heard(t testing.TB, lines []string) []acp.Message {
	t.Helper()
	a := version.NewAgent()
	var out []acp.Message
	for _, l := range lines {
		if frame, ok := strings.CutPrefix(l, toAgent); ok {
			m := acp.MustParse([]byte(frame))
			a.Tell(&m)
			continue
		}
		m := acp.MustParse([]byte(l))
		for _, m := range a.Hear(&m, nil) {
			out = append(out, m.Clone())
		}
	}
	return out
}

// asLog is what the gateway writes down of it.
func asLog(heard []acp.Message) []version.Entry {
	var log []version.Entry
	for i := range heard {
		m := &heard[i]
		kind := version.Notice
		switch {
		case m.IsResponse():
			kind = version.Response
		case m.Method() == acp.MethodSessionUpdate:
			kind = map[int]version.Kind{0: version.Update, 1: version.First, 2: version.Second}[m.Version()]
		}
		log = append(log, version.Entry{Seq: uint64(i + 1), Kind: kind, Frame: m.Frame()})
	}
	return log
}

// shown is a conversation as a client of either version shows it.
type shown struct {
	Messages []string // in order: id and text
	Calls    map[string]map[string]string
	Plan     string
	Mode     string
	Stops    []string
}

type folded struct {
	shown
	ids       []string
	texts     map[string]string
	contents  map[string][]json.RawMessage // of calls, in version 2
	terminals map[string]string
}

func newFolded() *folded {
	return &folded{shown: shown{Calls: map[string]map[string]string{}}, texts: map[string]string{}, contents: map[string][]json.RawMessage{}, terminals: map[string]string{}}
}

func (f *folded) message(id, text string, whole bool) {
	was, known := f.texts[id]
	if !known {
		f.ids = append(f.ids, id)
	}
	if whole {
		was = ""
	}
	f.texts[id] = was + text
}

func (f *folded) call(id string) map[string]string {
	if f.Calls[id] == nil {
		f.Calls[id] = map[string]string{}
	}
	return f.Calls[id]
}

func (f *folded) done() shown {
	for _, id := range f.ids {
		if f.texts[id] != "" {
			f.Messages = append(f.Messages, id+": "+f.texts[id])
		}
	}
	for id, pieces := range f.contents {
		var b strings.Builder
		for _, p := range pieces {
			switch o := decode(p); str(o["type"]) {
			case "content":
				b.WriteString(str(decode(o["content"])["text"]))
			case "terminal":
				b.WriteString(f.terminals[str(o["terminalId"])])
			case "diff":
				b.WriteString(diffsOf(p))
			default:
				b.WriteString("[" + str(o["type"]) + "]")
			}
		}
		f.call(id)["content"] = b.String()
	}
	for _, c := range f.Calls {
		if c["content"] == "" {
			delete(c, "content")
		}
	}
	slices.Sort(f.Messages) // version 1 shows what is replaced behind the rest
	return f.shown
}

func diffsOf(diff json.RawMessage) string {
	var d struct {
		Changes []struct{ Operation, Path string }
		Patch   struct{ Text string }
	}
	_ = json.Unmarshal(diff, &d)
	before, after := applied(d.Patch.Text)
	return fmt.Sprintf("<%s %q to %q, new %v>", d.Changes[0].Path, before, after, d.Changes[0].Operation == "add")
}

// second takes an update of version 2.
func (f *folded) second(u object) {
	id := str(u["messageId"])
	switch kind := str(u["sessionUpdate"]); kind {
	case "user_message_chunk", "agent_message_chunk", "agent_thought_chunk":
		f.message(strings.TrimSuffix(kind, "_chunk")+" "+id, str(decode(u["content"])["text"]), false)
	case "user_message", "agent_message", "agent_thought":
		if content, given := u["content"]; given {
			text := ""
			for _, b := range elements(content) {
				text += str(decode(b)["text"])
			}
			f.message(kind+" "+id, text, true)
		}
	case "tool_call_update":
		id := str(u["toolCallId"])
		c := f.call(id)
		for _, name := range []string{"title", "kind", "rawInput", "locations"} {
			if raw, given := u[name]; given {
				c[name] = same(raw)
			}
		}
		if c["locations"] == "null" || c["locations"] == "[]" {
			delete(c, "locations")
		}
		if c["title"] == "" {
			c["title"] = same(u["toolCallId"])
		}
		if !slices.Contains([]string{"", `"read"`, `"other"`}, c["kind"]) {
			c["kind"] = `"other"`
		}
		switch s := str(u["status"]); s {
		case "":
		case "pending", "in_progress", "completed", "failed":
			c["status"] = s
		case "cancelled":
			c["status"] = "failed"
		default:
			c["status"] = "in_progress"
		}
		if content, given := u["content"]; given {
			f.contents[id] = elements(content)
		}
	case "tool_call_content_chunk":
		id := str(u["toolCallId"])
		if c := f.call(id); c["title"] == "" {
			c["title"] = same(u["toolCallId"])
		}
		f.contents[id] = append(f.contents[id], u["content"])
	case "terminal_update":
		if output, given := u["output"]; given {
			f.terminals[str(u["terminalId"])] = unbase64(str(decode(output)["data"]))
		}
	case "terminal_output_chunk":
		f.terminals[str(u["terminalId"])] += unbase64(str(u["data"]))
	case "plan_update":
		f.Plan = same(decode(u["plan"])["entries"])
	case "config_option_update":
		for _, o := range elements(u["configOptions"]) {
			if str(decode(o)["configId"]) == "mode" {
				f.Mode = str(decode(o)["currentValue"])
			}
		}
	case "state_update":
		if str(u["state"]) != "idle" {
			return
		}
		if stop := str(u["stopReason"]); stop != "" {
			f.Stops = append(f.Stops, stop)
		}
		for _, c := range f.Calls { // what a turn leaves open, version 1 shows as ended
			if s := c["status"]; s != "completed" {
				c["status"] = "failed"
			}
		}
	}
}

func unbase64(s string) string {
	b, _ := base64.StdEncoding.DecodeString(s)
	return string(b)
}

// first takes an update of version 1.
func (f *folded) first(u object) {
	switch kind := str(u["sessionUpdate"]); kind {
	case "user_message_chunk", "agent_message_chunk", "agent_thought_chunk":
		role := strings.TrimSuffix(kind, "_chunk") + " "
		id := str(u["messageId"])
		text := str(decode(u["content"])["text"])
		if replaces := str(decode(decode(u["_meta"])["sandboxagent.dev"])["replaces"]); replaces != "" {
			_, known := f.texts["revision "+role+id]
			f.texts["revision "+role+id] = ""
			f.message(role+replaces, text, !known)
			return
		}
		f.message(role+id, text, false)
	case "tool_call", "tool_call_update":
		id := str(u["toolCallId"])
		c := f.call(id)
		if kind == "tool_call" && c["title"] != "" {
			c["twice"] = "introduced"
		}
		if kind == "tool_call_update" && c["title"] == "" {
			c["unknown"] = "not introduced"
		}
		for _, name := range []string{"title", "kind", "rawInput", "locations"} {
			if raw, given := u[name]; given && string(raw) != "null" {
				c[name] = same(raw)
			}
		}
		if c["locations"] == "[]" {
			delete(c, "locations")
		}
		if s := str(u["status"]); s != "" {
			c["status"] = s
		}
		if content, given := u["content"]; given {
			var b strings.Builder
			for _, p := range elements(content) {
				switch o := decode(p); str(o["type"]) {
				case "content":
					b.WriteString(str(decode(o["content"])["text"]))
				case "diff":
					fmt.Fprintf(&b, "<%s %q to %q, new %v>", str(o["path"]), str(o["oldText"]), str(o["newText"]), len(o["oldText"]) == 0)
				default:
					b.WriteString("unknown " + string(p))
				}
			}
			c["content"] = b.String()
		}
	case "plan":
		f.Plan = same(u["entries"])
	case "current_mode_update":
		f.Mode = str(u["currentModeId"])
	}
}

// randomSecond is a conversation of an agent of version 2, whose last turn has ended.
func randomSecond(r *rand.Rand) []string {
	var lines []string
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	say := func(body string) { lines = append(lines, update(body)) }
	text := func() string { return pick("a", "b\\n", "\\u00e9", "long and longer ", "") }
	block := func() string { return `{"type":"text","text":"` + text() + `"}` }
	piece := func() string {
		change := pick("modify", "modify", "add")
		patch := "diff --git /x /x\\n--- /x\\n+++ /x\\n@@ -1,2 +1,2 @@\\n one\\n-two\\n+2\\n"
		if change == "add" {
			patch = "diff --git /x /x\\nnew file mode 100644\\n--- /dev/null\\n+++ /x\\n@@ -0,0 +1 @@\\n+one\\n\\\\ No newline at end of file\\n"
		}
		return pick(`{"type":"content","content":`+block()+`}`, `{"type":"content","content":`+block()+`}`, `{"type":"terminal","terminalId":"`+pick("x", "y")+`"}`, `{"type":"_new","a":1}`,
			`{"type":"diff","changes":[{"operation":"`+change+`","path":"/x"}],"patch":{"format":"git_patch","text":"`+patch+`"}}`)
	}
	turn, open := 0, false
	end := func() {
		say(`{"sessionUpdate":"state_update","state":"idle","stopReason":"` + pick("end_turn", "cancelled", "refusal") + `"}`)
		open = false
	}
	for range 2 + r.IntN(40) {
		role := pick("agent_message", "agent_message", "agent_thought", "user_message")
		id := pick("m1", "m2", "m3")
		call := pick("t1", "t2", "t3")
		switch r.IntN(12) {
		case 0:
			if open {
				end()
				break
			}
			turn++
			open = true
			lines = append(lines, toAgent+prompt(fmt.Sprint(turn), "never repeated"),
				fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{"messageId":"p%d"}}`, turn, turn))
			say(`{"sessionUpdate":"state_update","state":"running"}`)
		case 1, 2, 3:
			say(`{"sessionUpdate":"` + role + `_chunk","messageId":"` + id + `","content":` + block() + `}`)
		case 4:
			say(`{"sessionUpdate":"` + role + `","messageId":"` + id + `"` + pick("", `,"content":null`, `,"content":[]`, `,"content":[`+block()+`]`, `,"content":[`+block()+`,`+block()+`]`) + `}`)
		case 5, 6:
			say(`{"sessionUpdate":"tool_call_update","toolCallId":"` + call + `"` + pick("", `,"title":"`+text()+`x"`) + pick("", `,"kind":"read"`, `,"kind":"_new"`) +
				pick("", `,"status":"pending"`, `,"status":"paused"`, `,"status":"completed"`, `,"status":"cancelled"`) +
				pick("", "", `,"content":null`, `,"content":[`+piece()+`]`, `,"content":[`+piece()+`,`+piece()+`]`) + pick("", `,"locations":null`, `,"locations":[{"path":"/a"}]`) + pick("", `,"rawInput":{"a":1}`) + `}`)
		case 7:
			say(`{"sessionUpdate":"tool_call_content_chunk","toolCallId":"` + call + `","content":` + piece() + `}`)
		case 8:
			say(`{"sessionUpdate":"terminal_output_chunk","terminalId":"` + pick("x", "y") + `","data":"` + base64.StdEncoding.EncodeToString([]byte(pick("out\n", "x"))) + `"}`)
		case 9:
			say(`{"sessionUpdate":"terminal_update","terminalId":"` + pick("x", "y") + `"` + pick(`,"command":"ls"`, `,"output":{"data":"`+base64.StdEncoding.EncodeToString([]byte("all"))+`"}`, `,"exitStatus":{"exitCode":0}`) + `}`)
		case 10:
			say(`{"sessionUpdate":"plan_update","plan":{"type":"items","planId":"p","entries":[{"content":"` + text() + `","priority":"high","status":"pending"}]}}`)
		case 11:
			say(`{"sessionUpdate":"config_option_update","configOptions":[{"type":"select","configId":"mode","category":"mode","name":"Mode","currentValue":"` + pick("ask", "code") + `","options":[{"value":"ask","name":"Ask"},{"value":"code","name":"Code"}]}]}`)
		}
	}
	if !open {
		lines = append(lines, toAgent+prompt("99", "last"), `{"jsonrpc":"2.0","id":99,"result":{"messageId":"p99"}}`)
	}
	end()
	return lines
}

// What any agent of version 2 says, read as version 2 says, is the same conversation as
// read in version 1. Clients of version 2 are given the agent's own bytes.
func TestAgent_SameConversation(t *testing.T) {
	one, two := acptest.NewFor(t, 1), acptest.NewFor(t, 2)
	for seed := range uint64(200) {
		lines := randomSecond(rand.New(rand.NewPCG(seed, 2)))
		want, got := newFolded(), newFolded()
		var direct []string
		for _, l := range lines {
			if m := acp.MustParse([]byte(strings.TrimPrefix(l, toAgent))); m.Update() != nil {
				if err := two.ValidateFrame(m.Frame(), nil); err != nil {
					t.Fatalf("seed %d: the test says %v in %s", seed, err, l)
				}
				want.second(decode(m.Update()))
				direct = append(direct, l)
			}
		}
		var passed []string
		for _, m := range heard(t, lines) {
			if m.Version() != version.One && m.Update() != nil {
				passed = append(passed, string(m.Frame()))
			}
			if m.Version() == version.Two {
				continue
			}
			if err := one.ValidateFrame(m.Frame(), func(string) string { return "session/prompt" }); err != nil {
				t.Fatalf("seed %d: %v in %s", seed, err, m.Frame())
			}
			switch {
			case m.Update() != nil:
				got.first(decode(m.Update()))
			case m.IsResponse():
				got.Stops = append(got.Stops, str(decode(m.Result())["stopReason"]))
			}
		}
		if diff := cmp.Diff(direct, passed); diff != "" {
			t.Fatalf("seed %d: clients of version 2 are given (-said +given):\n%s", seed, diff)
		}
		stops := want.Stops
		want.Stops = nil
		for i, s := range stops { // an end without a prompt is no answer
			if i < len(stops) {
				want.Stops = append(want.Stops, s)
			}
		}
		if diff := cmp.Diff(want.done(), got.done()); diff != "" {
			t.Fatalf("seed %d (-v2 +v1):\n%s\n%s", seed, diff, strings.Join(lines, "\n"))
		}
	}
}

// A client of version 2 that reads the log of an agent of version 2 sees what the agent
// has said, also when it is told the beginning twice.
func TestView_AgentOfVersionTwo(t *testing.T) {
	check := acptest.NewFor(t, 2)
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 3))
		lines := randomSecond(r)
		want := newFolded()
		for _, l := range lines {
			if m := acp.MustParse([]byte(strings.TrimPrefix(l, toAgent))); m.Update() != nil {
				want.second(decode(m.Update()))
			}
		}
		log := asLog(heard(t, lines))
		split := r.IntN(len(log) + 1)
		shows := want.done()
		for _, history := range []int{0, split, len(log)} {
			got := newFolded()
			if history > 0 {
				for _, f := range read(log[:split], 0) {
					m := acp.MustParse([]byte(f))
					got.second(decode(m.Update()))
				}
			}
			for _, f := range read(log, history) {
				if err := check.ValidateFrame([]byte(f), nil); err != nil {
					t.Fatalf("seed %d: %v in %s", seed, err, f)
				}
				m := acp.MustParse([]byte(f))
				got.second(decode(m.Update()))
			}
			gave := got.done()
			if history > 0 { // past states are not told, so nothing is closed by them
				gave.Stops, shows.Stops = nil, nil
				for _, of := range []map[string]map[string]string{gave.Calls, shows.Calls} {
					for _, c := range of {
						delete(c, "status")
					}
				}
			}
			if diff := cmp.Diff(shows, gave); diff != "" {
				t.Fatalf("seed %d, history %d (-said +shown):\n%s", seed, history, diff)
			}
		}
	}
}

func FuzzAgent(f *testing.F) {
	for seed := range uint64(5) {
		lines := randomSecond(rand.New(rand.NewPCG(seed, 4)))
		f.Add(strings.Join(lines[:min(len(lines), 6)], "\n"))
	}
	f.Add(`{"jsonrpc":"2.0","id":"1","method":"session/request_permission","params":{"sessionId":"s","title":"?","subject":{"type":"command"},"options":[{"kind":"new"}]}}`)
	f.Add(update(`{"sessionUpdate":"subagent_update","sessionId":"c"}`) + "\n" + `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"c","update":{"sessionUpdate":"agent_message_chunk","content":1}}}`)
	f.Add(update(`{"sessionUpdate":"tool_call_update","content":[{"type":"diff","changes":[{}],"patch":{"format":"git_patch","text":"@@ -9999999999999999999 +1\\n--- \"\\\\"}}]}`))
	f.Fuzz(func(t *testing.T, text string) {
		a := version.NewAgent()
		for line := range strings.SplitSeq(text, "\n") {
			m, err := acp.Parse([]byte(strings.TrimPrefix(line, toAgent)))
			if err != nil {
				continue
			}
			if strings.HasPrefix(line, toAgent) {
				told, _ := a.Tell(&m)
				if _, err := acp.Parse(told.Frame()); err != nil {
					t.Fatalf("%v: %s", err, told.Frame())
				}
				continue
			}
			for _, m := range a.Hear(&m, nil) {
				if _, err := acp.Parse(m.Frame()); err != nil {
					t.Fatalf("%v: %s", err, m.Frame())
				}
			}
			version.Offered(&m)
			if !m.IsRequest() {
				continue
			}
			offer := version.Offer(&m)
			if _, err := acp.Parse(offer.Frame()); err != nil {
				t.Fatal(err)
			}
		}
	})
}
