package version_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/version"
)

// item is a thing of a conversation: a message, or a tool call.
type item struct {
	Kind, ID string
	Content  []string          // blocks of a message
	Fields   map[string]string // of a tool call
}

// conversation is what a client shows.
type conversation struct {
	Items  []*item
	Plan   string
	Mode   string
	Stops  []string
	Others map[string]string // the last of each kind

	Terminals map[string]display // by the id of the call
}

// display is a terminal.
type display struct{ Command, Output, Exit string }

// show keeps a terminal of which anything is known.
func (c *conversation) show(call string, d display) {
	c.Terminals[call] = d
	if d == (display{}) {
		delete(c.Terminals, call)
	}
}

// terminalOne takes what an update of a call of version 1 says of its terminal. open are the
// calls that have one and have not ended.
func (c *conversation) terminalOne(u object, begins bool, open map[string]bool) {
	id, mark := str(u["toolCallId"]), markOf(u)
	if mark == nil && !open[id] {
		return
	}
	d := c.Terminals[id]
	open[id] = true
	if begins {
		d.Exit = ""
	}
	if command := str(mark["command"]); command != "" {
		d.Command = command
	}
	if text, ok := outputOne(u); ok {
		d.Output = text
	}
	if status := str(u["status"]); status == "completed" || status == "failed" {
		delete(open, id)
		d.Exit = "ended " + string(mark["exitCode"])
	}
	c.show(id, d)
}

func markOf(u object) object {
	return decode(decode(decode(u["_meta"])["sandboxagent.dev"])["terminal"])
}

// outputOne returns the output that the content of a call of version 1 ends with.
func outputOne(u object) (string, bool) {
	blocks := elements(u["content"])
	if string(markOf(u)["output"]) != "true" || len(blocks) == 0 {
		return "", false
	}
	lines := strings.Split(str(decode(decode(blocks[len(blocks)-1])["content"])["text"]), "\n")
	if len(lines) < 3 || !strings.HasPrefix(lines[0], "```") || lines[len(lines)-1] != "```" {
		return "", false
	}
	return strings.Join(lines[1:len(lines)-1], "\n"), true
}

// terminalTwo takes what version 2 says of a terminal.
func (c *conversation) terminalTwo(u object) {
	id := strings.TrimPrefix(str(u["terminalId"]), "sa.terminal.")
	d := c.Terminals[id]
	data := func(raw json.RawMessage) string {
		b, _ := base64.StdEncoding.DecodeString(str(raw))
		return string(b)
	}
	if command := str(u["command"]); command != "" {
		d.Command = command
	}
	if output, given := u["output"]; given {
		d.Output = data(decode(output)["data"])
	}
	d.Output += data(u["data"])
	if exit, given := u["exitStatus"]; given {
		d.Exit = ""
		if string(exit) != "null" {
			d.Exit = "ended " + string(decode(exit)["exitCode"])
		}
	}
	c.show(id, d)
}

func newConversation() *conversation {
	return &conversation{Mode: "ask", Others: map[string]string{}, Terminals: map[string]display{}}
}

// get returns the item, made if need be.
func (c *conversation) get(kind, id string) *item {
	for _, i := range c.Items {
		if i.Kind == kind && i.ID == id {
			return i
		}
	}
	i := &item{Kind: kind, ID: id}
	c.Items = append(c.Items, i)
	return i
}

type object = map[string]json.RawMessage

func decode(raw []byte) object {
	var o object
	_ = json.Unmarshal(raw, &o)
	return o
}

func str(raw json.RawMessage) string {
	var s string
	_ = json.Unmarshal(raw, &s)
	return s
}

func same(raw json.RawMessage) string {
	var v any
	_ = json.Unmarshal(raw, &v)
	b, _ := json.Marshal(v)
	return string(b)
}

// call merges fields into a tool call. A null clears in version 2.
func (c *conversation) call(u object, content func(json.RawMessage) string, clears bool) {
	i := c.get("call", str(u["toolCallId"]))
	if i.Fields == nil {
		i.Fields = map[string]string{}
	}
	for _, name := range []string{"title", "kind", "status", "content", "locations", "rawInput", "rawOutput"} {
		raw, given := u[name]
		switch {
		case !given || string(raw) == "null" && !clears:
		case string(raw) == "null":
			delete(i.Fields, name)
		case name == "content":
			i.Fields[name] = content(raw)
		default:
			i.Fields[name] = same(raw)
		}
	}
}

// foldOne reads a log as version 1 says.
func foldOne(log []version.Entry) *conversation {
	c := newConversation()
	open := "" // the role whose message is being written, without an id of the agent's
	openID := ""
	echo := 0
	terminals := map[string]bool{}
	for _, e := range log {
		m := acp.MustParse(append([]byte(nil), e.Frame...))
		switch e.Kind {
		case version.Client:
			if m.Method() != "session/prompt" {
				continue
			}
			open = ""
			blocks := []json.RawMessage{}
			_ = json.Unmarshal(decode(m.Params())["prompt"], &blocks)
			i := c.get("user_message", fmt.Sprintf("sa.%d", e.Seq))
			for _, b := range blocks {
				i.Content = append(i.Content, same(b))
			}
			echo = len(blocks)
			continue
		case version.Response:
			if strings.Contains(string(e.Frame), "stopReason") {
				open = ""
			}
			continue
		case version.Echo:
			if echo > 0 {
				echo--
				continue
			}
		case version.Update:
		default:
			continue
		}
		u := decode(m.Update())
		switch kind := str(u["sessionUpdate"]); kind {
		case "user_message_chunk", "agent_message_chunk", "agent_thought_chunk":
			role := strings.TrimSuffix(kind, "_chunk")
			id := str(u["messageId"])
			if id != "" {
				open = ""
			} else {
				if open != role {
					open, openID = role, fmt.Sprintf("sa.%d", e.Seq)
				}
				id = openID
			}
			i := c.get(role, id)
			i.Content = append(i.Content, same(u["content"]))
		case "tool_call", "tool_call_update":
			if kind == "tool_call" {
				open = ""
			}
			c.terminalOne(u, kind == "tool_call", terminals)
			_, shows := outputOne(u)
			c.call(u, func(raw json.RawMessage) string { return contentOne(raw, shows) }, false)
		case "plan":
			c.Plan = same(u["entries"])
		case "current_mode_update":
			c.Mode = str(u["currentModeId"])
		default:
			c.Others[kind] = same(m.Update())
		}
	}
	return c
}

// two takes a frame of version 2.
func (c *conversation) two(frame []byte) {
	m := acp.MustParse(frame)
	u := decode(m.Update())
	switch kind := str(u["sessionUpdate"]); kind {
	case "user_message_chunk", "agent_message_chunk", "agent_thought_chunk":
		i := c.get(strings.TrimSuffix(kind, "_chunk"), str(u["messageId"]))
		i.Content = append(i.Content, same(u["content"]))
	case "user_message", "agent_message", "agent_thought":
		i := c.get(kind, str(u["messageId"]))
		if raw, given := u["content"]; given {
			var blocks []json.RawMessage
			_ = json.Unmarshal(raw, &blocks)
			i.Content = nil
			for _, b := range blocks {
				i.Content = append(i.Content, same(b))
			}
		}
	case "tool_call_update":
		c.call(u, contentTwo, true)
	case "terminal_update", "terminal_output_chunk":
		c.terminalTwo(u)
	case "plan_update":
		c.Plan = same(decode(u["plan"])["entries"])
	case "config_option_update":
		var options []struct{ ConfigID, CurrentValue string }
		_ = json.Unmarshal(u["configOptions"], &options)
		for _, o := range options {
			if o.ConfigID == "mode" {
				c.Mode = o.CurrentValue
			}
		}
	case "state_update":
		if stop := str(u["stopReason"]); stop != "" {
			c.Stops = append(c.Stops, stop)
		}
	default:
		c.Others[kind] = same(m.Update())
	}
}

func stopsOf(log []version.Entry) []string {
	var out []string
	for _, e := range log {
		if e.Kind == version.Response {
			m := acp.MustParse(append([]byte(nil), e.Frame...))
			out = append(out, str(decode(m.Result())["stopReason"]))
		}
	}
	return out
}

// contentOne is the content of a tool call of version 1: diffs by what is before and after,
// and the last as a terminal if it shows one.
func contentOne(raw json.RawMessage, shows bool) string {
	var out []string
	all := elements(raw)
	for i, c := range all {
		if shows && i == len(all)-1 {
			out = append(out, "a terminal")
			continue
		}
		o := decode(c)
		if str(o["type"]) == "diff" {
			path := str(o["path"])
			if !strings.HasPrefix(path, "/") {
				path = "/w/" + path
			}
			out = append(out, fmt.Sprintf("%s: %q to %q, new %v", path, str(o["oldText"]), str(o["newText"]), len(o["oldText"]) == 0 || string(o["oldText"]) == "null"))
			continue
		}
		out = append(out, same(c))
	}
	return strings.Join(out, "\n")
}

// contentTwo is the content of a tool call of version 2: diffs by what their patches say.
func contentTwo(raw json.RawMessage) string {
	var out []string
	for _, c := range elements(raw) {
		o := decode(c)
		if str(o["type"]) == "diff" {
			var d struct {
				Changes []struct{ Operation, Path string }
				Patch   struct{ Text string }
			}
			_ = json.Unmarshal(c, &d)
			before, after := applied(d.Patch.Text)
			out = append(out, fmt.Sprintf("%s: %q to %q, new %v", d.Changes[0].Path, before, after, d.Changes[0].Operation == "add"))
			continue
		}
		if str(o["type"]) == "terminal" && strings.HasPrefix(str(o["terminalId"]), "sa.terminal.") {
			out = append(out, "a terminal")
			continue
		}
		out = append(out, same(c))
	}
	return strings.Join(out, "\n")
}

func elements(raw json.RawMessage) []json.RawMessage {
	var all []json.RawMessage
	_ = json.Unmarshal(raw, &all)
	return all
}

// applied returns both texts of a patch that has all their lines.
func applied(patch string) (before, after string) {
	inside := false
	last := byte(0)
	for l := range strings.Lines(patch) {
		switch {
		case strings.HasPrefix(l, "@@"):
			inside = true
			continue
		case !inside:
			continue
		}
		switch l[0] {
		case ' ':
			before, after = before+l[1:], after+l[1:]
		case '-':
			before += l[1:]
		case '+':
			after += l[1:]
		case '\\':
			if last != '+' {
				before = strings.TrimSuffix(before, "\n")
			}
			if last != '-' {
				after = strings.TrimSuffix(after, "\n")
			}
		}
		last = l[0]
	}
	return before, after
}

// randomLog returns a log of version 1.
func randomLog(r *rand.Rand) []version.Entry {
	var lines []string
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	text := func() string { return pick("a", "b\\n", "\\u00e9", "{\\\"x\\\":1}", "") }
	doc := func() string {
		var b strings.Builder
		for range r.IntN(4) {
			b.WriteString(pick("one", "two", "", "@@ x", "-y", `\\ z`) + `\n`)
		}
		b.WriteString(pick("", "end"))
		return b.String()
	}
	turn := 0
	said := map[string]string{} // output of commands
	for range 2 + r.IntN(30) {
		switch r.IntN(15) {
		case 0:
			if turn == 0 {
				turn = len(lines) + 1
				lines = append(lines, fmt.Sprintf("c3 %s", prompt(fmt.Sprint(turn), text())))
				if r.IntN(2) == 0 {
					lines = append(lines, "p-3 "+chunk("user_message", text()))
				} else {
					lines = append(lines, "p-3 "+chunk("user_message", text())) // always one per block
				}
			} else {
				lines = append(lines, fmt.Sprintf(`r3 {"jsonrpc":"2.0","id":%d,"result":{"stopReason":"%s"}}`, turn, pick("end_turn", "cancelled", "refusal")))
				turn = 0
			}
		case 1, 2, 3, 4:
			kind := pick("agent_message", "agent_thought", "user_message")
			id := pick("", "", "", `,"messageId":null`, `,"messageId":"m1"`, `,"messageId":"m2"`)
			lines = append(lines, "u "+update(`{"sessionUpdate":"`+kind+`_chunk","content":{"type":"text","text":"`+text()+`"}`+id+`}`))
		case 5, 6:
			content := `,"content":[{"type":"diff","path":"` + pick("a", "/b c", `/q\"`) + `"` + pick("", `,"oldText":null`, `,"oldText":"`+doc()+`"`) + `,"newText":"` + doc() + `"}]`
			content = pick(content, "", `,"content":[{"type":"content","content":{"type":"text","text":"x"}},{"type":"terminal","terminalId":"t"}]`)
			lines = append(lines, "u "+update(`{"sessionUpdate":"tool_call","toolCallId":"`+pick("t1", "t2", "t3")+`","title":"`+text()+`"`+pick("", `,"kind":"read"`)+content+`}`))
		case 7, 8:
			lines = append(lines, "u "+update(`{"sessionUpdate":"tool_call_update","toolCallId":"`+pick("t1", "t2", "t3")+`"`+
				pick("", `,"status":"completed"`, `,"status":null`, `,"title":null,"content":null,"rawInput":null`, `,"rawOutput":{"diff":null}`, `,"locations":[{"path":"/x","line":1}]`)+`}`))
		case 9:
			lines = append(lines, "u "+update(`{"sessionUpdate":"plan","entries":[{"content":"`+text()+`","priority":"high","status":"pending"}]}`))
		case 10:
			lines = append(lines, "u "+update(`{"sessionUpdate":"current_mode_update","currentModeId":"`+pick("ask", "code")+`"}`))
		case 11:
			lines = append(lines, "u "+update(`{"sessionUpdate":"usage_update","used":1,"size":2}`))
		case 12, 13, 14: // commands, one of which may have the id of another call
			id := pick("t1", "c1", "c2")
			said[id] += pick("x", `\n`, "", `\u00e9`)
			if r.IntN(8) == 0 {
				said[id] = pick("", "y")
			}
			text := pick("```console\\n", "```console\\n", "") + said[id] + "\\n```"
			content := pick("", `,"content":[`+pick("", `{"type":"content","content":{"type":"text","text":"about"}},`)+`{"type":"content","content":{"type":"text","text":"`+text+`"}}]`)
			mark := pick(`{}`, `{"command":"ls"}`, `{"output":true}`, `{"output":true}`, `{"output":true,"exitCode":3}`, `{"exitCode":0}`)
			lines = append(lines, "u "+update(`{"sessionUpdate":"`+pick("tool_call_update", "tool_call_update", "tool_call")+`","toolCallId":"`+id+`","title":"ls"`+content+
				pick("", `,"status":"in_progress"`, `,"status":"in_progress"`, `,"status":"completed"`, `,"status":"failed"`)+
				pick("", `,"_meta":{"sandboxagent.dev":{"terminal":`+mark+`}}`, `,"_meta":{"sandboxagent.dev":{"cancel":true,"terminal":`+mark+`}}`)+`}`))
		}
	}
	return logOf(lines...)
}
