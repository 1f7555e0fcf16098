package claude

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridgetest"
)

// game is one play of clients with pretenders. The play's Mu guards it.
type game struct {
	*bridgetest.Play
	dir      string // of conversations
	legacy   bool   // Claude Code does not name the prompts that a result answers
	all      []*pretender
	sessions map[string]*bridgetest.PlaySession // by native id
	last     int
}

// pretender plays a Claude Code: it says what the test wants, in an order that the real one keeps.
type pretender struct {
	*game
	puppet  *bridgetest.Puppet
	session *bridgetest.PlaySession // nil while it is not known
	native  string
	ended   bool
	exits   bool // it says nothing more

	model, effort, mode string
	leaves              bool // each mode that a client sets, at once

	queue   []fakePrompt
	uuid    string // of the prompt that runs, "" for a run of its own
	token   string // of what it works on, "" when it is idle
	runs    bool
	begun   bool // its first message has
	aborted bool
	seen    bool // a run of its own is known to the bridge, and no prompt was on its way
	message int
	calls   []*fakeCall
	tasks   []*fakeTask
	asks    map[string]*fakeAsk
}

type fakePrompt struct{ uuid, token string }

type fakeCall struct {
	id, name string
	ask      *fakeAsk // nil when nobody is asked
}

// fakeTask is a subagent in the background.
type fakeTask struct {
	id, call, token string
	asks            *fakeCall
}

type fakeAsk struct {
	id       string
	answered bool
	allowed  bool
}

// show begins a pretender.
func (g *game) show(puppet *bridgetest.Puppet) bridgetest.Show {
	g.Mu.Lock()
	defer g.Mu.Unlock()
	f := &pretender{game: g, puppet: puppet, model: "one", effort: "high", mode: "default", asks: map[string]*fakeAsk{}}
	g.all = append(g.all, f)
	g.Begun()
	f.native = flagOf(puppet.Args, "--session-id")
	if f.native == "" {
		f.native = flagOf(puppet.Args, "--resume")
	}
	f.session = g.sessions[f.native]
	f.mode = cmp.Or(flagOf(puppet.Args, "--permission-mode"), f.mode)
	f.model = cmp.Or(flagOf(puppet.Args, "--model"), f.model)
	f.effort = cmp.Or(flagOf(puppet.Args, "--effort"), f.effort)
	return f
}

func (f *pretender) say(format string, args ...any) {
	if f.exits || f.ended {
		return
	}
	line := fmt.Sprintf(format, args...)
	f.Note("%.8s > %.400s", f.native, line)
	f.puppet.Say(line)
}

func (f *pretender) exit(code int) {
	if !f.exits {
		f.Note("%.8s exits with %d", f.native, code)
		f.exits = true
		f.puppet.Exit(code)
	}
}

func (f *pretender) next(what string) string {
	f.last++
	return fmt.Sprintf("%s-%d", what, f.last)
}

// Line takes a line of the bridge.
func (f *pretender) Line(line []byte) {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	f.Note("%.8s < %.300s", f.native, line)
	switch rawjson.MemberString(line, "type") {
	case "user":
		f.given(rawjson.MemberString(line, "uuid"), bridgetest.TokenIn(line))
	case "control_response":
		f.answered(rawjson.MemberString(line, "response", "request_id"), line)
	case "control_request":
		r, _ := rawjson.Member(line, "request")
		f.asked(rawjson.MemberString(line, "request_id"), rawjson.MemberString(r, "subtype"), r)
	default:
		f.Wrong("claude is told %s", line)
	}
}

func (f *pretender) reply(id, result string) {
	f.say(`{"type":"control_response","response":{"subtype":"success","request_id":%q,"response":%s}}`, id, result)
}

// goesOver changes the mode.
func (f *pretender) goesOver(mode string) {
	f.mode = mode
	f.say(`{"type":"system","subtype":"status","status":null,"permissionMode":%q}`, f.mode)
}

func (f *pretender) asked(id, what string, r json.RawMessage) {
	models := `[{"value":"one","resolvedModel":"one","displayName":"One","supportedEffortLevels":["low","high"]},{"value":"two","resolvedModel":"two","displayName":"Two","supportedEffortLevels":["low","high"]}]`
	switch what {
	case "initialize":
		f.reply(id, fmt.Sprintf(`{"commands":[],"models":%s,"account":{"apiKeySource":"test"},"claude_code_version":"2.1.197","current_permission_mode":%q}`, models, f.mode))
	case "get_settings":
		f.reply(id, fmt.Sprintf(`{"applied":{"model":%q,"effort":%q}}`, f.model, f.effort))
	case "set_permission_mode":
		f.reply(id, `{}`)
		f.goesOver(rawjson.MemberString(r, "mode"))
		if f.leaves {
			f.goesOver("default")
		}
	case "set_model":
		f.model = rawjson.MemberString(r, "model")
		f.reply(id, `{}`)
	case "apply_flag_settings":
		f.effort = rawjson.MemberString(r, "settings", "effortLevel")
		f.reply(id, `{}`)
	case "mcp_status":
		f.reply(id, `{"mcpServers":[]}`)
	case "rename_session":
		f.reply(id, `{}`)
	case "stop_task":
		if s := f.session; s != nil && s.Cancels == 0 {
			f.Wrong("claude is to stop a task, and nobody wanted that")
		}
		task := rawjson.MemberString(r, "task_id")
		if i := slices.IndexFunc(f.tasks, func(t *fakeTask) bool { return t.id == task }); i >= 0 {
			f.taskOver(i, "stopped")
		}
		f.reply(id, `{}`)
	case "cancel_async_message":
		uuid := rawjson.MemberString(r, "message_uuid")
		i := slices.IndexFunc(f.queue, func(q fakePrompt) bool { return q.uuid == uuid })
		if i >= 0 {
			f.told(f.queue[i].token)
			f.queue = slices.Delete(f.queue, i, i+1)
		}
		f.reply(id, fmt.Sprintf(`{"cancelled":%v}`, i >= 0))
	case "interrupt":
		f.interrupt()
		f.reply(id, `{}`)
	case "end_session":
		f.reply(id, `{}`)
		f.interrupt()
		f.exit(0)
	default:
		f.Wrong("claude is asked for %s", what)
	}
}

// interrupt ends what runs. What is asked about it is withdrawn first.
func (f *pretender) interrupt() {
	if !f.runs || f.aborted {
		return
	}
	f.told(f.token)
	f.aborted = true
	for _, c := range f.calls {
		if c.ask != nil && !c.ask.answered {
			c.ask.answered = true
			f.say(`{"type":"control_cancel_request","request_id":%q}`, c.ask.id)
		}
	}
}

// told notes that what has a token was to end.
func (f *pretender) told(token string) {
	one := f.Prompt(token)
	switch {
	case one != nil && !one.Cancelled && !one.Loose:
		f.Wrong("claude is to end prompt %s, and nobody wanted that", token)
	case one != nil:
		one.Told = true
	case token != "" && f.session != nil && f.session.Cancels == 0 && !f.session.Closing:
		f.Wrong("claude is to end what it does by itself, and nobody wanted that")
	}
}

// given takes a prompt.
func (f *pretender) given(uuid, token string) {
	one := f.Prompt(token)
	switch {
	case one == nil:
		f.Wrong("claude is given a prompt of nobody: %q", token)
		return
	case one.Given:
		f.Wrong("claude is given prompt %s twice", token)
	case one.Answered && !one.Loose:
		f.Wrong("claude is given prompt %s, which is over", token)
	case len(f.queue) > 0 || f.runs && f.uuid != "":
		f.Wrong("claude has two prompts at once: %s", token)
	case f.runs && f.seen: // it would fold it into what it does
		f.Wrong("claude is given prompt %s while it does something by itself", token)
	}
	one.Given = true
	f.session, f.sessions[f.native] = one.Session, one.Session
	f.queue = append(f.queue, fakePrompt{uuid, token})
}

// answered takes the answer to a question.
func (f *pretender) answered(id string, line []byte) {
	a := f.asks[id]
	if a == nil {
		f.Wrong("claude gets an answer that it does not wait for: %s", line)
		return
	}
	if a.answered { // a late answer is ignored
		return
	}
	a.answered = true
	a.allowed = rawjson.MemberString(line, "response", "response", "behavior") == "allow"
	if rawjson.MemberBool(line, "response", "response", "interrupt") {
		if i := slices.IndexFunc(f.calls, func(c *fakeCall) bool { return c.ask == a }); i >= 0 && f.runs && !f.aborted {
			f.told(f.token)
			f.aborted = true
		}
	}
}

// Interrupted and EOF: it ends at the end of its input.
func (f *pretender) Interrupted() {}

func (f *pretender) EOF() { f.puppet.Exit(0) }

func (f *pretender) Ended() {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	f.ended = true
	f.game.Ended()
}

// begin begins the run of the prompt that waits, or one of its own with a token.
func (f *pretender) begin(own string) {
	if f.runs {
		return
	}
	f.uuid, f.token = "", own
	if own == "" {
		if len(f.queue) == 0 {
			return
		}
		f.uuid, f.token = f.queue[0].uuid, f.queue[0].token
		f.queue = f.queue[1:]
	}
	f.runs, f.begun, f.seen, f.aborted = true, false, false, false
	f.say(`{"type":"system","subtype":"init","session_id":%q,"model":%q,"permissionMode":%q,"mcp_servers":[]}`, f.native, f.model, f.mode)
	f.write()
}

// speaks begins the first message of a run: the model may let it wait for long.
func (f *pretender) speaks() {
	if f.runs && !f.begun && !f.aborted {
		f.messageBegins()
	}
}

func (f *pretender) messageBegins() {
	f.begun = true
	f.message++
	f.say(`{"type":"stream_event","event":{"type":"message_start","message":{"id":"m-%s-%d","usage":{"input_tokens":1}}},"parent_tool_use_id":null}`, f.token, f.message)
}

// write makes a transcript, from which the session can be opened again.
func (f *pretender) write() {
	path := filepath.Join(f.dir, folderOf(f.Cwd), f.native+".jsonl")
	if _, err := os.Stat(path); err == nil {
		return
	}
	_ = os.MkdirAll(filepath.Dir(path), 0o700)
	if err := os.WriteFile(path, fmt.Appendf(nil, `{"type":"user","uuid":"u1","sessionId":%q,"cwd":%q,"message":{"role":"user","content":"hello"}}`+"\n", f.native, f.Cwd), 0o600); err != nil {
		f.Wrong("%v", err)
	}
}

func (f *pretender) text() {
	f.speaks()
	f.say(`{"type":"stream_event","event":{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"%s says. "}},"parent_tool_use_id":null}`, f.token)
}

// call begins a call, with a question when it does not only read.
func (f *pretender) call(name string) {
	f.speaks()
	c := &fakeCall{id: f.next(f.token + "-call"), name: name}
	f.calls = append(f.calls, c)
	f.say(`{"type":"stream_event","event":{"type":"content_block_start","content_block":{"type":"tool_use","id":%q,"name":%q}},"parent_tool_use_id":null}`, c.id, name)
	f.say(`{"type":"assistant","message":{"id":"m-%s-%d","content":[{"type":"tool_use","id":%q,"name":%q,"input":{"command":"echo %s"}}]},"parent_tool_use_id":null}`, f.token, f.message, c.id, name, f.token)
	if name != "Read" {
		c.ask = f.ask(c.id, name, f.token, "")
	}
}

func (f *pretender) ask(call, name, token, task string) *fakeAsk {
	a := &fakeAsk{id: f.next("ask")}
	f.asks[a.id] = a
	input := fmt.Sprintf(`{"command":"echo %s"}`, token)
	if name == "AskUserQuestion" {
		input = fmt.Sprintf(`{"questions":[{"question":"what of %s?","header":"h","options":[{"label":"a","description":"b"}]}]}`, token)
	}
	f.say(`{"type":"control_request","request_id":%q,"request":{"subtype":"can_use_tool","tool_name":%q,"input":%s,"tool_use_id":%q,"agent_id":%q}}`, a.id, name, input, call, task)
	return a
}

// callEnds ends a call that may, and reports whether there was one.
func (f *pretender) callEnds() bool {
	for i, c := range f.calls {
		if c.ask != nil && !c.ask.answered {
			continue
		}
		f.calls = slices.Delete(f.calls, i, i+1)
		f.say(`{"type":"user","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":%q,"content":"result","is_error":%v}]},"parent_tool_use_id":null}`, c.id, c.ask != nil && !c.ask.allowed)
		return true
	}
	return false
}

// delegate begins a subagent in the background.
func (f *pretender) delegate() {
	f.speaks()
	f.last++
	t := &fakeTask{id: fmt.Sprintf("task-%d", f.last), call: f.next("agent"), token: fmt.Sprintf("b%dx", f.last)}
	f.tasks = append(f.tasks, t)
	f.say(`{"type":"assistant","message":{"id":"m-%s-%d","content":[{"type":"tool_use","id":%q,"name":"Agent","input":{"description":"%s","prompt":"look"}}]},"parent_tool_use_id":null}`, t.token, f.message, t.call, t.token)
	f.say(`{"type":"system","subtype":"task_started","task_id":%q,"tool_use_id":%q,"description":"%s"}`, t.id, t.call, t.token)
	f.say(`{"type":"user","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":%q,"content":"launched"}]},"tool_use_result":{"isAsync":true,"agentId":%q},"parent_tool_use_id":null}`, t.call, t.id)
}

// taskAsks has a subagent ask, and taskEnds has it end what it may.
func (f *pretender) taskAsks() {
	for _, t := range f.tasks {
		if t.asks == nil {
			t.asks = &fakeCall{id: f.next(t.token + "-call"), name: "Bash"}
			t.asks.ask = f.ask(t.asks.id, "Bash", t.token, t.id)
			f.say(`{"type":"assistant","message":{"id":"s-%s","content":[{"type":"tool_use","id":%q,"name":"Bash","input":{"command":"echo %s"}}]},"parent_tool_use_id":%q}`, t.token, t.asks.id, t.token, t.call)
			return
		}
	}
}

func (f *pretender) taskEnds(cut bool) bool {
	for i, t := range f.tasks {
		if c := t.asks; c != nil && !c.ask.answered && !cut {
			continue
		}
		f.taskOver(i, "completed")
		return true
	}
	return false
}

// taskOver ends a task. What it asks is withdrawn.
func (f *pretender) taskOver(i int, status string) {
	t := f.tasks[i]
	if c := t.asks; c != nil {
		if !c.ask.answered {
			c.ask.answered = true
			f.say(`{"type":"control_cancel_request","request_id":%q}`, c.ask.id)
		}
		f.say(`{"type":"user","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":%q,"content":"result","is_error":%v}]},"parent_tool_use_id":%q}`, c.id, !c.ask.allowed, t.call)
	}
	f.tasks = slices.Delete(f.tasks, i, i+1)
	f.say(`{"type":"system","subtype":"task_notification","task_id":%q,"tool_use_id":%q,"status":%q,"summary":"done"}`, t.id, t.call, status)
}

// settle ends the run if it can end, and reports whether it did. how is the kind of its end.
func (f *pretender) settle(how string) bool {
	switch {
	case !f.runs:
		return false
	case !f.aborted:
		for f.callEnds() {
		}
		if len(f.calls) > 0 && how != "error" {
			return false
		}
	}
	f.calls = nil
	if one := f.Prompt(f.token); one != nil {
		one.Said = true
	}
	more := ""
	switch {
	case f.uuid == "":
		more = `,"origin":{"kind":"task-notification"}`
	case !f.legacy:
		more = fmt.Sprintf(`,"user_message_uuids":[%q]`, f.uuid)
	}
	switch {
	case f.aborted:
		f.say(`{"type":"result","subtype":"error_during_execution","is_error":true,"terminal_reason":"aborted_streaming","errors":["[ede_diagnostic]"],"session_id":%q%s}`, f.native, more)
	case how == "error":
		f.say(`{"type":"result","subtype":"success","is_error":true,"result":"API Error","session_id":%q%s}`, f.native, more)
	default:
		f.say(`{"type":"result","subtype":"success","is_error":false,"stop_reason":%q,"session_id":%q%s}`, how, f.native, more)
	}
	f.runs, f.aborted, f.token, f.uuid = false, false, "", ""
	return true
}

// own begins a run that nobody prompted.
func (f *pretender) own() {
	f.last++
	f.begin(fmt.Sprintf("o%dx", f.last))
}

// finish brings everything to its end that needs nobody else, and reports whether nothing is left.
func (g *game) finish() bool {
	idle := true
	for _, f := range g.all {
		if f.ended || f.exits || f.session == nil || !f.session.Open {
			continue
		}
		f.taskEnds(true)
		f.settle("end_turn")
		f.begin("")
		f.settle("end_turn")
		told := f.session.Mode == "" || f.session.Mode == f.mode
		idle = idle && !f.runs && len(f.queue) == 0 && len(f.tasks) == 0 && told
	}
	return idle
}

// some returns a pretender of an open session, nil when there is none.
func (g *game) some(rng *rand.Rand) *pretender {
	var all []*pretender
	for _, f := range g.all {
		if !f.ended && !f.exits && f.session != nil && f.session.Open {
			all = append(all, f)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all[rng.IntN(len(all))]
}

// native is an event of a pretender.
func (g *game) event(name string, weight int, do func(rng *rand.Rand, f *pretender)) bridgetest.PlayEvent {
	return bridgetest.PlayEvent{Name: name, Weight: weight, Do: func(rng *rand.Rand) {
		g.Mu.Lock()
		f := g.some(rng)
		alone := false
		if f != nil {
			do(rng, f)
			alone = f.runs && f.uuid == "" && len(g.Open(f.session)) == 0
		}
		g.Mu.Unlock()
		if f != nil && g.Waits(rng) {
			g.Barrier(func(text string) {
				f.say(`{"type":"system","subtype":"informational","content":%q}`, text)
			}, func() bool { return f.ended || f.exits })
			g.Mu.Lock()
			f.seen = f.seen || alone
			if alone && g.of(f.session) == f && f.session.Open && !f.session.Closing && !f.session.Working {
				f.Wrong("claude does something by itself, and the client is not told")
			}
			g.Mu.Unlock()
		}
	}}
}

// of returns the pretender of a session.
func (g *game) of(s *bridgetest.PlaySession) *pretender {
	for _, f := range slices.Backward(g.all) {
		if f.session == s && !f.ended && !f.exits {
			return f
		}
	}
	return nil
}

func (g *game) prompt(rng *rand.Rand, s *bridgetest.PlaySession) {
	one := g.SendPrompt(s, "")
	if g.Waits(rng) {
		g.Expect("claude is given "+one.Token, func() bool {
			f := g.of(one.Session)
			return one.Given || one.Answered || g.Open(s)[0] != one || f == nil || f.runs
		})
	}
}

// opened notes whose session a pretender's is.
func (g *game) opened(s *bridgetest.PlaySession) {
	g.sessions[string(s.ID)] = s
	for _, f := range g.all {
		if !f.ended && f.native == string(s.ID) {
			f.session = s
		}
	}
}

func (g *game) events() []bridgetest.PlayEvent {
	request := func(method string, params map[string]any, s *bridgetest.PlaySession) {
		params["sessionId"] = s.ID
		g.Request(method, params, nil)
	}
	pick := func(rng *rand.Rand, list ...string) string { return list[rng.IntN(len(list))] }
	return append(g.ClientEvents(g.prompt),
		g.Client("mode", 2, func(rng *rand.Rand, s *bridgetest.PlaySession) {
			request("session/set_mode", map[string]any{"modeId": pick(rng, "default", "plan", "acceptEdits")}, s)
		}),
		g.Client("model", 2, func(rng *rand.Rand, s *bridgetest.PlaySession) {
			request("session/set_config_option", map[string]any{"configId": "model", "value": pick(rng, "one", "two")}, s)
		}),
		g.Client("effort", 1, func(rng *rand.Rand, s *bridgetest.PlaySession) {
			request("session/set_config_option", map[string]any{"configId": "effort", "value": pick(rng, "low", "high")}, s)
		}),
		g.Client("title", 1, func(_ *rand.Rand, s *bridgetest.PlaySession) {
			request(acp.MethodSessionSetTitle, map[string]any{"title": "named"}, s)
		}),
		g.Client("mode and delete", 1, func(_ *rand.Rand, s *bridgetest.PlaySession) {
			request("session/set_mode", map[string]any{"modeId": "plan"}, s)
			g.EndSession("session/delete", s)
		}),
		g.Client("fork", 1, func(_ *rand.Rand, s *bridgetest.PlaySession) { g.OpenSession("session/fork", s) }),
		g.Client("cancel and settle", 1, func(_ *rand.Rand, s *bridgetest.PlaySession) {
			g.Cancel(s)
			g.Mu.Lock()
			if f := g.of(s); f != nil {
				f.settle("end_turn")
			}
			g.Mu.Unlock()
			g.SendPrompt(s, "")
		}),

		g.Client("cancel what runs by itself", 2, func(_ *rand.Rand, s *bridgetest.PlaySession) {
			g.Cancel(s)
			g.Mu.Lock()
			f := g.of(s)
			known := f != nil && f.seen
			g.Mu.Unlock()
			if known {
				g.Expect("claude is to end what it does by itself", func() bool { return !f.runs || f.aborted || f.ended || f.exits || !s.Open })
			}
		}),

		g.event("begin", 12, func(_ *rand.Rand, f *pretender) { f.begin("") }),
		g.event("speak", 8, func(_ *rand.Rand, f *pretender) { f.speaks() }),
		g.event("say", 8, func(_ *rand.Rand, f *pretender) {
			if f.runs {
				f.text()
			}
		}),
		g.event("another message", 2, func(_ *rand.Rand, f *pretender) {
			if f.runs && f.begun {
				f.messageBegins()
			}
		}),
		g.event("call", 16, func(rng *rand.Rand, f *pretender) {
			if f.runs && !f.aborted {
				f.call(pick(rng, "Bash", "Bash", "Read", "AskUserQuestion"))
			}
		}),
		g.event("call ends", 4, func(_ *rand.Rand, f *pretender) { f.callEnds() }),
		g.event("settle", 14, func(rng *rand.Rand, f *pretender) {
			f.settle(pick(rng, "end_turn", "end_turn", "end_turn", "refusal", "error"))
		}),
		g.event("delegate", 3, func(_ *rand.Rand, f *pretender) {
			if f.runs && !f.aborted {
				f.delegate()
			}
		}),
		g.event("subagent asks", 3, func(_ *rand.Rand, f *pretender) { f.taskAsks() }),
		g.event("subagent ends", 3, func(rng *rand.Rand, f *pretender) {
			if f.taskEnds(rng.IntN(2) == 0) && !f.runs {
				f.own() // that it has ended is told to the model
			}
		}),
		g.event("own run", 3, func(_ *rand.Rand, f *pretender) {
			if !f.runs {
				f.own()
			}
		}),
		g.event("own run before", 2, func(_ *rand.Rand, f *pretender) {
			if !f.runs && len(f.queue) > 0 {
				f.own()
				f.text()
				f.settle("end_turn")
			}
		}),
		g.event("settle, and an own run", 2, func(_ *rand.Rand, f *pretender) {
			if f.settle("end_turn") {
				f.own()
			}
		}),
		g.event("another mode", 2, func(rng *rand.Rand, f *pretender) { f.goesOver(pick(rng, "default", "plan", "acceptEdits")) }),
		g.event("leaves modes", 1, func(_ *rand.Rand, f *pretender) { f.leaves = !f.leaves }),
		g.event("unknown", 1, func(_ *rand.Rand, f *pretender) {
			f.say(`{"type":"of_tomorrow"}`)
			f.say(`this is no JSON`)
		}),
		g.event("crash", 1, func(_ *rand.Rand, f *pretender) {
			g.Lose()
			f.exit(1)
		}),
	)
}

// Of the sequences whose seeds leave this behind a division by 4, Claude Code is of an early version.
const legacySeed = 3

func randomStage(t *testing.T) *bridgetest.Stage {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	w := bridgetest.With(t, New(), adapters.Program{Path: exe})
	return w.Stage(func(p *bridgetest.Play, seed uint64) bridgetest.Game {
		g := &game{
			Play: p, dir: filepath.Join(w.Home, ".claude/projects"), legacy: seed%4 == legacySeed, sessions: map[string]*bridgetest.PlaySession{},
		}
		return bridgetest.Game{Events: g.events(), Show: g.show, Opened: g.opened, Finish: g.finish}
	})
}

// Whatever a client and Claude Code do, in whatever order: every prompt is answered once, when its
// turn is over and not before; who cancels a turn ends no other; no question and no call is open
// behind its turn; nothing is left of a connection that is closed. A sequence that fails is played
// again by go test ./adapters/claude -run TestRandom -play.from=N -play.count=1.
func TestRandom(t *testing.T) { randomStage(t).Play(t, 40) }

// Sequences that failed. On one processor all that the program says at once is read before who waits for the first of it goes on.
func TestRandom_ThatFailed(t *testing.T) {
	defer goruntime.GOMAXPROCS(goruntime.GOMAXPROCS(1))
	stage := randomStage(t)
	for _, tt := range []struct {
		name   string
		events []string
	}{
		{"a mode is left as soon as it is set", []string{"leaves modes", "mode", "mode", "mode", "mode", "mode", "mode", "mode", "mode"}},
		{"a turn fails while it asks", []string{"prompt", "begin", "call", "call", "settle", "prompt"}},
		{"a prompt before the first message of an own run", []string{"own run", "prompt", "call", "call ends", "settle", "begin", "settle"}},
		{"a cancel before the first message of an own run", []string{"own run", "cancel what runs by itself", "settle", "prompt"}},
		{"a cancel of a prompt that waits behind an own run", []string{"prompt", "own run", "cancel", "unknown", "unknown", "settle", "prompt"}},
	} {
		t.Run(tt.name, func(t *testing.T) { stage.PlayAgain(t, 0, 16, tt.events...) })
	}
}
