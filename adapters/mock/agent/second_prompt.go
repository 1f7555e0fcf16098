package agent

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/acp/version"
)

// This file has the prompts that show what only version 2 of the protocol has. In version
// 1 they are words like others.

var secondCommands = map[string]command{
	"background":       {nothingOrNumber, (*turn).background}, // background [TICKS]: a command goes on when the turn has ended
	"child":            {nothing, (*turn).child},              // a subagent works
	"child-permission": {nothing, (*turn).childPermission},    // and asks for a permission
	"notice":           {nothing, (*turn).notice},             // something beside the conversation
	"compaction":       {nothing, (*turn).compaction},         // the conversation is summed up
	"requires_action":  {nothing, (*turn).requiresAction},     // asks for a command of no call
	"upsert":           {nothing, (*turn).upsert},             // a message that is replaced
	"shell":            {nothing, (*turn).shell},              // a terminal of the agent's own
	"cancellable":      {nothing, (*turn).cancellable},        // a call that can be cancelled by itself
}

// works are the calls and terminals that can be cancelled by themselves.
type works struct {
	mu    sync.Mutex
	open  map[string]chan struct{} // by session, blank, id; closed when it is cancelled
	group sync.WaitGroup           // of what goes on in the background

	tell   sync.Mutex          // held while updates are sent that name what goes on in the background
	behind map[string][]string // the terminals that do, in their order; by session
}

func (w *works) begin(key string) <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.open == nil {
		w.open = map[string]chan struct{}{}
	}
	c := make(chan struct{})
	w.open[key] = c
	return c
}

// end forgets the work and reports whether it was still open.
func (w *works) end(key string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, open := w.open[key]
	delete(w.open, key)
	return open
}

func (w *works) cancel(key string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	c, open := w.open[key]
	if open {
		close(c)
		delete(w.open, key)
	}
	return open
}

// ExtMethod cancels a call or a terminal by itself.
func (a *agent) ExtMethod(_ context.Context, method string, params json.RawMessage) (any, error) {
	field := map[string]string{version.MethodToolCallCancel: "toolCallId", version.MethodTerminalCancel: "terminalId"}[method]
	if field == "" || !a.second.isTwo() {
		return nil, acp.Errorf(acp.CodeMethodNotFound, "method not found: %s", method)
	}
	id := rawjson.MemberString(params, field)
	if !a.works.cancel(rawjson.MemberString(params, "sessionId") + " " + id) {
		return nil, acp.Errorf(acp.CodeInvalidParams, "%s %q does not run", field, id)
	}
	return nil, nil
}

// goesOn begins a terminal in the background.
func (w *works) goesOn(session, terminal string) {
	w.tell.Lock()
	defer w.tell.Unlock()
	if w.behind == nil {
		w.behind = map[string][]string{}
	}
	w.behind[session] = append(w.behind[session], terminal)
}

// ended ends a terminal in the background.
func (w *works) ended(session, terminal string) {
	w.tell.Lock()
	defer w.tell.Unlock()
	w.behind[session] = slices.DeleteFunc(w.behind[session], func(t string) bool { return t == terminal })
}

// state is how the update of a session's state begins. sendTwo adds what goes on in the
// background, which each of them has to name.
const state = `{"sessionUpdate":"state_update",`

// sendTwo sends updates of version 2, and keeps them. Nothing comes between them.
func (t *turn) sendTwo(updates ...string) error {
	w := &t.a.works
	w.tell.Lock()
	defer w.tell.Unlock()
	var background []string
	for _, terminal := range w.behind[string(t.s.id)] {
		background = append(background, `{"type":"terminal","terminalId":"`+terminal+`"}`)
	}
	var lines, frames []byte
	for _, u := range updates {
		if said, ok := strings.CutPrefix(u, state); ok && len(background) > 0 {
			u = state + `"background":[` + strings.Join(background, ",") + `],` + said
		}
		lines = append(append(lines, u...), '\n')
		frames = append(append(append(frames, t.s.frameHead()...), u...), frameTail...)
	}
	return t.s.write(t.a.lines, lines, frames)
}

func endTurn(err error) (schema.StopReason, error) { return schema.StopReasonEndTurn, err }

func base64Of(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

func (t *turn) notice(string) (schema.StopReason, error) {
	return endTurn(t.sendTwo(`{"sessionUpdate":"notice","severity":"warning","title":"The disk is nearly full","description":"1 % is left"}`))
}

func (t *turn) compaction(string) (schema.StopReason, error) {
	id := string(t.newCall())
	return endTurn(t.sendTwo(
		`{"sessionUpdate":"compaction_update","compactionId":"`+id+`","status":"in_progress"}`,
		`{"sessionUpdate":"compaction_summary_chunk","compactionId":"`+id+`","content":{"type":"text","text":"They "}}`,
		`{"sessionUpdate":"compaction_summary_chunk","compactionId":"`+id+`","content":{"type":"text","text":"talked."}}`,
		`{"sessionUpdate":"compaction_update","compactionId":"`+id+`","status":"completed"}`,
	))
}

func (t *turn) upsert(string) (schema.StopReason, error) {
	id := string(t.newCall())
	text := func(s string) string { return `{"type":"text","text":"` + s + `"}` }
	return endTurn(t.sendTwo(
		`{"sessionUpdate":"agent_message_chunk","messageId":"`+id+`","content":`+text("A dra")+`}`,
		`{"sessionUpdate":"agent_message_chunk","messageId":"`+id+`","content":`+text("ft")+`}`,
		`{"sessionUpdate":"agent_message","messageId":"`+id+`","content":[`+text("A draft of it.")+`]}`,
		`{"sessionUpdate":"agent_message","messageId":"`+id+`","content":[`+text("The final ")+`]}`,
		`{"sessionUpdate":"agent_message_chunk","messageId":"`+id+`","content":`+text("text.")+`}`,
	))
}

func (t *turn) shell(string) (schema.StopReason, error) {
	call := string(t.newCall())
	terminal := "terminal-" + call
	return endTurn(t.sendTwo(
		`{"sessionUpdate":"terminal_update","terminalId":"`+terminal+`","command":"count"}`,
		`{"sessionUpdate":"tool_call_update","toolCallId":"`+call+`","title":"Run count","kind":"execute","status":"in_progress","content":[{"type":"terminal","terminalId":"`+terminal+`"}]}`,
		`{"sessionUpdate":"terminal_output_chunk","terminalId":"`+terminal+`","data":"`+base64Of("one\n")+`"}`,
		`{"sessionUpdate":"terminal_output_chunk","terminalId":"`+terminal+`","data":"`+base64Of("two\n")+`"}`,
		`{"sessionUpdate":"tool_call_content_chunk","toolCallId":"`+call+`","content":{"type":"content","content":{"type":"text","text":"counted"}}}`,
		`{"sessionUpdate":"terminal_update","terminalId":"`+terminal+`","exitStatus":{"exitCode":3}}`,
		`{"sessionUpdate":"tool_call_update","toolCallId":"`+call+`","status":"completed"}`,
	))
}

// background starts a command and ends the turn. The command ends later, or when it is
// cancelled, and the agent says so by itself.
func (t *turn) background(rest string) (schema.StopReason, error) {
	ticks, _ := strconv.Atoi(rest)
	if ticks == 0 {
		ticks = 3
	}
	call := string(t.newCall())
	terminal := "terminal-" + call
	cancelled := t.a.works.begin(string(t.s.id) + " " + terminal)
	t.a.works.goesOn(string(t.s.id), terminal)
	err := t.sendTwo(
		`{"sessionUpdate":"terminal_update","terminalId":"`+terminal+`","command":"tick","capabilities":{"cancel":{}}}`,
		`{"sessionUpdate":"tool_call_update","toolCallId":"`+call+`","title":"Run tick","kind":"execute","status":"in_progress","content":[{"type":"terminal","terminalId":"`+terminal+`"}]}`,
		state+`"state":"running"}`,
	)
	if err != nil {
		return "", err
	}
	t.a.works.group.Go(func() { t.tick(call, terminal, ticks, cancelled) })
	return endTurn(t.say("It goes on in the background."))
}

// tick is the command in the background. What it cannot write has no client any more.
func (t *turn) tick(call, terminal string, ticks int, cancelled <-chan struct{}) {
	every := time.NewTicker(slowInterval)
	defer every.Stop()
	exit, status := `{"exitCode":0}`, "completed"
	for i := 0; i < ticks && status == "completed"; i++ {
		select {
		case <-every.C:
			if t.sendTwo(`{"sessionUpdate":"terminal_output_chunk","terminalId":"`+terminal+`","data":"`+base64Of(fmt.Sprintf("tick %d\n", i))+`"}`) != nil {
				return
			}
		case <-cancelled:
			exit, status = `{"signal":"SIGTERM"}`, "cancelled"
		case <-t.s.stop:
			return
		case <-t.a.closed:
			return
		}
	}
	t.a.works.end(string(t.s.id) + " " + terminal)
	t.a.works.ended(string(t.s.id), terminal)
	_ = t.sendTwo(
		`{"sessionUpdate":"terminal_update","terminalId":"`+terminal+`","exitStatus":`+exit+`}`,
		`{"sessionUpdate":"tool_call_update","toolCallId":"`+call+`","status":"`+status+`"}`,
		state+`"state":"running"}`,
		`{"sessionUpdate":"agent_message_chunk","messageId":"after-`+call+`","content":{"type":"text","text":"The command in the background is `+status+`."}}`,
		state+`"state":"idle","stopReason":"end_turn"}`,
	)
}

// childFrame sends an update of a child, which is not kept.
func (t *turn) childFrame(child, update string) error {
	return t.a.lines.WriteLines(append(append(acp.AppendUpdateHead(nil, rawjson.AppendQuoted(nil, child)), update...), frameTail...))
}

// withChild introduces a child, has it work, and says how it ended.
func (t *turn) withChild(work func(child string) (state string, err error)) (schema.StopReason, error) {
	child := fmt.Sprintf("%s-child-%s", t.s.id, t.newCall())
	about := func(state string) string {
		return `{"sessionUpdate":"subagent_update","sessionId":"` + child + `","title":"Look around","state":` + state + `}`
	}
	if err := t.sendTwo(about(`{"state":"running"}`)); err != nil {
		return "", err
	}
	if err := t.childFrame(child, `{"sessionUpdate":"state_update","state":"running"}`); err != nil {
		return "", err
	}
	state, err := work(child)
	if err == nil {
		err = t.childFrame(child, `{"sessionUpdate":"state_update",`+state[1:])
	}
	if err == nil {
		err = t.sendTwo(about(state))
	}
	if err != nil {
		return "", err
	}
	return endTurn(t.say("The child is done."))
}

const childIdle = `{"state":"idle","stopReason":"end_turn"}`

func (t *turn) child(string) (schema.StopReason, error) {
	return t.withChild(func(child string) (string, error) {
		for _, u := range []string{
			`{"sessionUpdate":"agent_message_chunk","messageId":"m1","content":{"type":"text","text":"I look "}}`,
			`{"sessionUpdate":"tool_call_update","toolCallId":"call-1-1","title":"List files","kind":"search","status":"in_progress"}`,
			`{"sessionUpdate":"tool_call_update","toolCallId":"call-1-1","status":"completed"}`,
			`{"sessionUpdate":"agent_message_chunk","messageId":"m1","content":{"type":"text","text":"around."}}`,
		} {
			if err := t.childFrame(child, u); err != nil {
				return "", err
			}
		}
		return childIdle, nil
	})
}

func (t *turn) childPermission(string) (schema.StopReason, error) {
	return t.withChild(func(child string) (string, error) {
		said, err := t.askTwo(child, `{"type":"tool_call","toolCall":{"toolCallId":"call-1-1","title":"Delete all","kind":"delete","status":"pending"}}`)
		if err != nil {
			return "", err
		}
		err = t.childFrame(child, `{"sessionUpdate":"agent_message_chunk","messageId":"m1","content":{"type":"text","text":"`+said+`"}}`)
		return childIdle, err
	})
}

// askTwo asks for a permission, in the session that is named.
func (t *turn) askTwo(session, subject string) (string, error) {
	var answer schema.RequestPermissionResponse
	err := t.a.peer.Ask(t.ctx, acp.MethodSessionRequestPermission, json.RawMessage(`{"sessionId":"`+session+`","title":"May I?","description":"It is needed.","subject":`+subject+
		`,"options":[{"optionId":"allow_once","name":"Allow","kind":"allow_once"},{"optionId":"reject_once","name":"Reject","kind":"reject_once"}]}`), &answer)
	switch {
	case err != nil:
		return "", err
	case answer.Outcome.Selected == nil:
		return "permission: cancelled", nil
	}
	return "permission: " + string(answer.Outcome.Selected.OptionID), nil
}

func (t *turn) requiresAction(string) (schema.StopReason, error) {
	if err := t.sendTwo(state + `"state":"requires_action"}`); err != nil {
		return "", err
	}
	said, err := t.askTwo(string(t.s.id), `{"type":"command","command":"rm -r x","cwd":"/"}`)
	if err == nil {
		err = t.sendTwo(state + `"state":"running"}`)
	}
	if err != nil {
		return "", err
	}
	return endTurn(t.say(said))
}

func (t *turn) cancellable(string) (schema.StopReason, error) {
	call := string(t.newCall())
	key := string(t.s.id) + " " + call
	cancelled := t.a.works.begin(key)
	defer t.a.works.end(key)
	err := t.sendTwo(`{"sessionUpdate":"tool_call_update","toolCallId":"` + call + `","title":"Wait","kind":"execute","status":"in_progress","capabilities":{"cancel":{}}}`)
	if err != nil {
		return "", err
	}
	ctx, stop := t.untilCancelled()
	defer stop()
	select {
	case <-cancelled:
	case <-ctx.Done():
	}
	if err := t.sendTwo(`{"sessionUpdate":"tool_call_update","toolCallId":"` + call + `","status":"cancelled","capabilities":null}`); err != nil {
		return "", err
	}
	return endTurn(t.say("The call was cancelled."))
}
