package main

import (
	"context"
	"encoding/json"
	"fmt"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
)

// answer answers one request of the agent. When ctx ends somebody else did.
func (t *turn) answer(ctx context.Context, link *link, m acp.Message) {
	defer func() {
		t.mu.Lock()
		delete(t.open, m.ID())
		t.mu.Unlock()
	}()
	var result any
	switch m.Method() {
	case acp.MethodSessionRequestPermission:
		result = t.permission(ctx, m.Params())
	case "_sandboxagent/session/request_question":
		result = t.question(ctx, m.Params())
	default:
		_ = link.refuse(ctx, m.ID(), m.Method()) // a lost connection ends the turn anyway
		return
	}
	if ctx.Err() == nil {
		_ = link.reply(ctx, m.ID(), result) // as above
	}
}

// permission returns the result for a permission request.
func (t *turn) permission(ctx context.Context, params json.RawMessage) any {
	rule, title := t.o.permission.of(t.kinds.of(params)), requestTitle(params)
	if rule != ask {
		t.mu.Lock()
		t.rejected = t.rejected || rule == reject
		t.mu.Unlock()
		t.view.note(fmt.Sprintf("permission %sed: %s", rule, title))
		return decide(params, rule)
	}
	if !t.o.interactive {
		t.nobodyAsked("permission", "permission rejected, there is nobody to ask: "+title)
		return decide(params, reject)
	}
	options, _ := rawjson.Member(params, "options")
	choices := rawjson.Elements(options)
	names := make([]string, len(choices))
	for i, o := range choices {
		names[i] = rawjson.MemberString(o, "name")
	}
	if i, ok := t.asker.choose(ctx, "Permission: "+title+detail(params), names, "reject"); ok && i >= 0 {
		return selected(choices[i])
	}
	return decide(params, reject)
}

// nobodyAsked notes that a request was declined because nobody is there.
func (t *turn) nobodyAsked(what, note string) {
	t.mu.Lock()
	t.declined = what
	t.mu.Unlock()
	t.view.note(note)
}

// detail shows what a tool call would do.
func detail(params json.RawMessage) string {
	if command := rawjson.MemberString(params, "subject", "command"); command != "" {
		return "\n  command: " + command
	}
	input, ok := rawjson.Member(callAsked(params), "rawInput")
	if !ok {
		return ""
	}
	for _, name := range []string{"command", "path", "file_path", "url"} {
		if v := rawjson.MemberString(input, name); v != "" {
			return "\n  " + name + ": " + v
		}
	}
	return "\n  " + compact(input)
}

// question returns the result for questions with given answers.
func (t *turn) question(ctx context.Context, params json.RawMessage) any {
	list, _ := rawjson.Member(params, "questions")
	if !t.o.interactive {
		for _, q := range rawjson.Elements(list) {
			t.nobodyAsked("question", "question not answered: "+rawjson.MemberString(q, "question"))
		}
		return object{"outcome": "rejected"}
	}
	answers := [][]string{}
	for _, q := range rawjson.Elements(list) {
		options, _ := rawjson.Member(q, "options")
		var labels []string
		for _, o := range rawjson.Elements(options) {
			labels = append(labels, rawjson.MemberString(o, "label"))
		}
		text := rawjson.MemberString(q, "question")
		if len(labels) == 0 {
			answer, ok := t.asker.line(ctx, "Question: "+text+"\nan answer, or nothing to reject")
			if !ok || answer == "" {
				return object{"outcome": "rejected"}
			}
			answers = append(answers, []string{answer})
			continue
		}
		picked, ok := t.asker.pick(ctx, "Question: "+text, labels, rawjson.MemberBool(q, "multiSelect"), "reject")
		if !ok || len(picked) == 0 {
			return object{"outcome": "rejected"}
		}
		var chosen []string
		for _, i := range picked {
			chosen = append(chosen, labels[i])
		}
		answers = append(answers, chosen)
	}
	return object{"outcome": "answered", "answers": answers}
}
