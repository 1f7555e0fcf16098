package pi

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridgetest"
)

// pretender plays a Pi: it says what the test wants, in an order that the real one keeps.
type pretender struct {
	*game
	puppet  *bridgetest.Puppet
	session *bridgetest.PlaySession // nil while it is not known
	ended   bool
	leaving bool // it exits, since its input has ended: nobody hears what it says
	mute    bool // it says nothing

	folder, mark    string
	id, file        string
	model, thinking string

	taken    *order // a prompt that was not answered
	ran      bool   // it is a command, which has begun a run
	accepted bool   // the prompt was, and its run has not begun
	token    string // of what it works on, "" when it is idle
	runs     bool   // a run has begun, and has not settled
	compacts bool   // an extension has it make a summary, beside no run
	known    bool   // the bridge knows that, and did before prompts that come from here on
	before   int    // how many prompts there were then
	aborted  bool
	calls    []*fakeCall
	dialogs  []*fakeDialog
	aside    []*order // a compaction, or a command of the user's
	aborts   []string // the aborts that were not answered
}

// order is what Pi was told to do.
type order struct {
	id, command, token string
	slash              bool // a prompt that may be a command
}

type fakeCall struct {
	id, tool string
	gate     *fakeDialog // nil when nobody is asked
}

type fakeDialog struct {
	id, token string
	question  bool // of an extension
	loose     bool // nobody waits for its answer
	answered  bool
	over      bool // nobody waits for its answer any more
	allowed   bool
}

func (f *pretender) say(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	f.Note("%s > %.300s", f.id, line)
	f.puppet.Say(line)
}

func (f *pretender) reply(id, command, more string) {
	if id != "" {
		f.say(`{"id":%q,"type":"response","command":%q,%s}`, id, command, more)
	}
}

func (f *pretender) done(o *order, data string) {
	f.reply(o.id, o.command, `"success":true,"data":`+data)
}

func (f *pretender) refuse(o *order, why string) {
	if one := f.Prompt(o.token); one != nil {
		one.Refused = true
	}
	f.reply(o.id, o.command, fmt.Sprintf(`"success":false,"error":%q`, why))
}

// refuseNow refuses a prompt while something else goes on. It may be given again.
func (f *pretender) refuseNow(o *order) {
	f.Prompt(o.token).Given = false
	why := busy
	if f.compacts {
		why = compacting
	}
	f.reply(o.id, o.command, fmt.Sprintf(`"success":false,"error":%q`, why))
}

// Line takes a line of the bridge.
func (f *pretender) Line(line []byte) {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	f.Note("%s < %.300s", f.id, line)
	if f.mute {
		return
	}
	o := &order{
		rawjson.MemberString(line, "id"), rawjson.MemberString(line, "type"), bridgetest.TokenIn(line),
		strings.HasPrefix(rawjson.MemberString(line, "message"), "/"),
	}
	switch o.command {
	case "get_state":
		f.done(o, fmt.Sprintf(`{"model":%s,"thinkingLevel":%q,"isStreaming":%v,"isCompacting":%v,"sessionFile":%q,"sessionId":%q}`,
			f.modelJSON(f.model), f.thinking, f.runs || f.accepted, f.compacts || len(f.aside) > 0, f.file, f.id))
	case "get_available_models":
		f.done(o, `{"models":[`+f.modelJSON("one")+`,`+f.modelJSON("two")+`]}`)
	case "get_available_thinking_levels":
		f.done(o, `{"levels":["off","low","high"]}`)
	case "get_commands":
		f.done(o, `{"commands":[]}`)
	case "get_session_stats":
		f.done(o, `{"cost":0}`)
	case "set_model":
		f.model = rawjson.MemberString(line, "modelId")
		f.done(o, f.modelJSON(f.model))
	case "set_thinking_level":
		f.thinking = rawjson.MemberString(line, "level")
		f.say(`{"type":"thinking_level_changed","level":%q}`, f.thinking)
		f.done(o, `null`)
	case "set_session_name":
		f.say(`{"type":"session_info_changed","name":"named"}`)
		f.done(o, `null`)
	case "clear_queue":
		f.done(o, `{"steering":[],"followUp":[]}`)
	case "compact", "bash":
		f.given(o.token)
		if o.command == "compact" {
			f.compacted(true)
			f.say(`{"type":"compaction_start","reason":"manual"}`)
		}
		f.aside = append(f.aside, o)
	case "abort_bash":
		for _, one := range f.aside {
			if one.command == "bash" {
				f.told(one.token)
			}
		}
		f.asideOver("bash", true)
		f.done(o, `null`)
	case "abort":
		f.abort(o)
	case "prompt":
		f.given(o.token)
		switch {
		case f.runs || f.accepted || f.compacts:
			if f.known && !slices.ContainsFunc(f.Prompts[:f.before], func(one *bridgetest.PlayPrompt) bool { return one.Token == o.token }) {
				f.Wrong("pi is given prompt %s while it works", o.token)
			}
			if f.compacts && o.slash { // a command is done nevertheless
				f.taken = o
				return
			}
			f.refuseNow(o)
		case f.taken != nil:
			f.Wrong("pi has two prompts at once: %s", line)
		default:
			f.taken = o
		}
	case "extension_ui_response":
		f.answered(o.id, line)
	default:
		f.Wrong("pi is told %s", line)
	}
}

func (f *pretender) modelJSON(id string) string {
	return fmt.Sprintf(`{"id":%q,"name":%q,"provider":"fake","reasoning":true,"contextWindow":1000}`, id, id)
}

// given notes that a prompt has come.
func (f *pretender) given(token string) {
	one := f.Prompt(token)
	switch {
	case one == nil:
		f.Wrong("pi is given a prompt of nobody: %q", token)
		return
	case one.Given:
		f.Wrong("pi is given prompt %s twice", token)
	case one.Answered && !one.Loose:
		f.Wrong("pi is given prompt %s, which is over", token)
	}
	one.Given = true
	f.session = one.Session
	f.sessions[f.folder] = f.session
}

// told notes that what has a token was to end.
func (f *pretender) told(token string) {
	one := f.Prompt(token)
	switch {
	case one != nil && !one.Cancelled && !one.Loose:
		f.Wrong("pi is to end prompt %s, and nobody wanted that", token)
	case one != nil:
		one.Told = true
	case token != "" && f.session != nil && f.session.Cancels == 0 && !f.session.Closing:
		f.Wrong("pi is to end what it does by itself, and nobody wanted that")
	}
}

func (f *pretender) abort(o *order) {
	for _, one := range f.aside {
		// It is ended with what Pi does by itself.
		if one.command == "compact" && (!f.runs || f.Prompt(one.token).Cancelled) {
			f.told(one.token)
		}
	}
	f.asideOver("compact", true)
	if f.compacts {
		f.told(f.token)
	}
	f.compacted(true)
	switch {
	case f.runs:
		f.told(f.token)
		f.aborted = true
		f.aborts = append(f.aborts, o.id)
		return
	case f.accepted:
		f.told(f.token)
	case f.taken != nil:
		f.told(f.taken.token)
	}
	f.done(o, `null`) // there is nothing to abort yet
}

// asideOver ends compactions, or commands of the user's.
func (f *pretender) asideOver(command string, cancelled bool) {
	f.aside = slices.DeleteFunc(f.aside, func(o *order) bool {
		if o.command != command {
			return false
		}
		if one := f.Prompt(o.token); one != nil {
			one.Said = true
		}
		switch {
		case command == "bash":
			f.done(o, fmt.Sprintf(`{"output":"out","exitCode":0,"cancelled":%v}`, cancelled))
		case cancelled:
			f.summary(true)
			f.reply(o.id, o.command, `"success":false,"error":"Compaction cancelled"`)
		default:
			f.summary(false)
			f.done(o, `{"summary":"short"}`)
		}
		return true
	})
}

// summary ends a compaction.
func (f *pretender) summary(cancelled bool) {
	if cancelled {
		f.say(`{"type":"compaction_end","reason":"manual","aborted":true,"willRetry":false}`)
	} else {
		f.say(`{"type":"compaction_end","reason":"manual","aborted":false,"willRetry":false,"result":{"summary":"short","tokensBefore":10}}`)
	}
}

// compact begins a compaction that an extension wants. A run ends first. It cannot while
// something is asked in it.
func (f *pretender) compact() {
	if f.legacy || f.compacts || f.accepted || len(f.aside) > 0 || f.taken != nil && (!f.taken.slash || f.ran) {
		return
	}
	if f.runs {
		if len(f.calls) > 0 || slices.ContainsFunc(f.dialogs, func(d *fakeDialog) bool { return !d.answered && !d.over }) {
			return
		}
		if one := f.Prompt(f.token); one != nil {
			one.Cancelled = true
		}
		f.aborted = true
		f.settle("stop", true)
	}
	f.last++
	f.token, f.compacts, f.known = fmt.Sprintf("o%dx", f.last), true, false
	f.say(`{"type":"compaction_start","reason":"manual"}`)
}

// compacted ends it.
func (f *pretender) compacted(cancelled bool) {
	if f.compacts {
		f.token, f.compacts, f.known = "", false, false
		f.summary(cancelled)
	}
}

// answered takes the answer to a dialog.
func (f *pretender) answered(id string, line []byte) {
	i := slices.IndexFunc(f.dialogs, func(d *fakeDialog) bool { return d.id == id })
	if i < 0 || f.dialogs[i].answered {
		f.Wrong("pi gets an answer that it does not wait for: %s", line)
		return
	}
	d := f.dialogs[i]
	d.answered = true
	d.allowed = rawjson.MemberString(line, "value") == gateAllow
	if d.question && !d.over {
		d.over = true
		f.questionIs(d, true)
	}
}

// Interrupted and EOF: Pi ends at the end of its input, and says nothing more.
func (f *pretender) Interrupted() {}

func (f *pretender) EOF() {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	f.leaving = true
	f.puppet.Exit(0)
}

func (f *pretender) Ended() {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	f.ended = true
	f.game.Ended()
}

// accept takes the prompt, and begins its run then or later.
func (f *pretender) accept(begin bool) {
	o := f.offered()
	if o == nil || f.runs || f.compacts {
		return
	}
	f.taken, f.accepted, f.token = nil, true, o.token
	if f.legacy {
		f.reply(o.id, o.command, `"success":true`)
	} else {
		f.done(o, `{"disposition":"started"}`)
	}
	if begin {
		f.begin(f.token)
	}
}

// offered returns the prompt that Pi has done nothing for, nil when there is none.
func (f *pretender) offered() *order {
	if f.ran {
		return nil
	}
	return f.taken
}

// run begins a run of a command, which may wait for it.
func (f *pretender) run() {
	f.ran = true
	f.begin(f.taken.token)
}

// commandOver answers a command that has begun a run.
func (f *pretender) commandOver() {
	if !f.ran {
		return
	}
	o := f.taken
	f.taken, f.ran = nil, false
	f.Prompt(o.token).Said = !f.runs
	if f.legacy {
		f.reply(o.id, o.command, `"success":true`)
	} else {
		f.done(o, `{"disposition":"handled"}`)
	}
}

// begin begins a run.
func (f *pretender) begin(token string) {
	f.token, f.accepted, f.runs, f.known, f.aborted = token, false, true, false, false
	f.say(`{"type":"agent_start"}`)
	f.say(`{"type":"turn_start"}`)
	if !exists(f.file) {
		_ = os.MkdirAll(f.dir, 0o700)
		if err := os.WriteFile(f.file, fmt.Appendf(nil, `{"type":"session","version":3,"id":%q,"cwd":%q}`+"\n", f.id, f.Cwd), 0o600); err != nil {
			f.Wrong("%v", err)
		}
	}
}

// announce has the gate say that it is in place, and with which conversation.
func (f *pretender) announce(why string) {
	f.say(`{"type":"extension_ui_request","id":"a","method":"setStatus","statusKey":%q,"statusText":%q}`,
		gateStatus, fmt.Sprintf(`{"mark":%q,"version":%q,"mcp":true,"keyed":true,"file":%q,"reason":%q}`, f.mark, f.version(), f.file, why))
}

// goOn goes on with another conversation, as an extension wants.
func (f *pretender) goOn(why string) {
	if f.leaving || f.runs || f.accepted || f.compacts || len(f.aside) > 0 || f.taken != nil && !f.taken.slash {
		return
	}
	f.last++
	f.file = filepath.Join(f.dir, fmt.Sprintf("at%d_%s.jsonl", f.last, f.id))
	f.files[f.id] = f.file
	f.announce(why)
}

// own begins a run that nobody prompted.
func (f *pretender) own() {
	f.last++
	f.begin(fmt.Sprintf("o%dx", f.last))
}

func (f *pretender) text() {
	f.last++
	f.say(`{"type":"message_start","message":{"role":"assistant","content":[],"stopReason":"pending","timestamp":%d}}`, f.last)
	f.say(`{"type":"message_update","assistantMessageEvent":{"type":"text_delta","contentIndex":0,"delta":"%s says. "}}`, f.token)
}

func (f *pretender) messageEnd(stop string) {
	f.last++
	f.say(`{"type":"message_end","message":{"role":"assistant","content":[],"stopReason":%q,"errorMessage":"why","timestamp":%d,"usage":{"input":1,"output":1}}}`, stop, f.last)
}

// call begins a call, with a question when it does not only read.
func (f *pretender) call(tool string) {
	c := &fakeCall{id: f.next(f.token + "-call"), tool: tool}
	f.calls = append(f.calls, c)
	f.say(`{"type":"message_update","assistantMessageEvent":{"type":"toolcall_start","contentIndex":1,"id":%q,"toolName":%q}}`, c.id, tool)
	f.messageEnd("toolUse")
	f.say(`{"type":"tool_execution_start","toolCallId":%q,"toolName":%q,"args":{"command":"echo %s","path":"a"}}`, c.id, tool, f.token)
	if tool != "read" {
		c.gate = f.dialog(false)
		title := fmt.Sprintf(`{"mark":%q,"toolCallId":%q,"toolName":%q,"input":{"command":"echo %s"}}`, f.mark, c.id, tool, f.token)
		f.say(`{"type":"extension_ui_request","id":%q,"method":"select","title":%q,"options":[%q]}`, c.gate.id, title, gateAllow)
	}
}

func (f *pretender) dialog(loose bool) *fakeDialog {
	d := &fakeDialog{id: f.next("dialog"), token: f.token, loose: loose}
	f.dialogs = append(f.dialogs, d)
	return d
}

// ask asks what an extension wants to know.
func (f *pretender) ask(method string, loose bool) {
	d := f.dialog(loose)
	f.say(`{"type":"extension_ui_request","id":%q,"method":%q,"title":"question of %s","options":["a","b"]}`, d.id, method, cmpToken(f.token))
	d.question = true
	f.questionIs(d, false)
}

// questionIs has the gate say how a question is.
func (f *pretender) questionIs(d *fakeDialog, over bool) {
	f.say(`{"type":"extension_ui_request","id":"q","method":"setStatus","statusKey":%q,"statusText":%q}`,
		gateAsked, fmt.Sprintf(`{"mark":%q,"name":%q,"over":%v}`, f.mark, d.id, over))
}

// questions are those that somebody waits for.
func (f *pretender) questions() (open []*fakeDialog) {
	for _, d := range f.dialogs {
		if d.question && !d.over {
			open = append(open, d)
		}
	}
	return open
}

func cmpToken(token string) string {
	if token == "" {
		return "nobody"
	}
	return token
}

// callEnds ends a call that may, and reports whether there was one.
func (f *pretender) callEnds(dismiss bool) bool {
	for i, c := range f.calls {
		if c.gate != nil && !c.gate.answered && !dismiss {
			continue
		}
		f.calls = slices.Delete(f.calls, i, i+1)
		failed := c.gate != nil && !c.gate.allowed
		if !failed {
			f.say(`{"type":"tool_execution_update","toolCallId":%q,"toolName":%q,"partialResult":{"content":[{"type":"text","text":"part"}]}}`, c.id, c.tool)
		}
		f.say(`{"type":"tool_execution_end","toolCallId":%q,"toolName":%q,"isError":%v,"result":{"content":[{"type":"text","text":"result"}]}}`, c.id, c.tool, failed)
		return true
	}
	return false
}

// settle ends the run if it can end, and reports whether it did. While it waits for the
// answer to a dialog it cannot. hasty says that the signal of an abort ends the gate's.
func (f *pretender) settle(stop string, hasty bool) bool {
	if !f.runs {
		return false
	}
	for f.callEnds(f.aborted && hasty) {
	}
	if len(f.calls) > 0 || slices.ContainsFunc(f.dialogs, func(d *fakeDialog) bool {
		return !d.loose && !d.answered && !d.over && d.token == f.token && !f.gates(d)
	}) {
		return false
	}
	if f.aborted {
		stop = "aborted"
	}
	if one := f.Prompt(f.token); one != nil && !f.ran {
		one.Said = true
	}
	f.messageEnd(stop)
	f.say(`{"type":"turn_end"}`)
	f.say(`{"type":"agent_end","willRetry":false}`)
	f.token, f.runs = "", false
	if !f.legacy {
		f.say(`{"type":"agent_settled","aborted":%v}`, f.aborted)
	}
	for _, id := range f.aborts {
		f.reply(id, "abort", `"success":true`)
	}
	f.aborts, f.aborted = nil, false
	return true
}

// gates reports whether a dialog is the gate's, of a call that is over.
func (f *pretender) gates(d *fakeDialog) bool { return strings.HasPrefix(d.id, "gate") }

// finish brings everything to its end that needs nobody else, and reports whether nothing is left.
func (f *pretender) finish() bool {
	f.asideOver("compact", false)
	f.asideOver("bash", false)
	f.compacted(false)
	f.commandOver()
	f.accept(true)
	if f.accepted {
		f.begin(f.token)
	}
	f.settle("stop", false)
	return f.taken == nil && !f.runs && len(f.aside) == 0
}
