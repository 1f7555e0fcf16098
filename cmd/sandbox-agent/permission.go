package main

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"

	"github.com/urfave/cli/v2"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
)

// What a rule says of a permission request.
const (
	allow  = "allow"
	reject = "reject"
	ask    = "ask" // a person, who may not be there
)

// toolKinds are the kinds of tools that the protocol names.
var toolKinds = []schema.ToolKind{
	schema.ToolKindRead, schema.ToolKindEdit, schema.ToolKindDelete, schema.ToolKindMove, schema.ToolKindSearch, schema.ToolKindExecute,
	schema.ToolKindThink, schema.ToolKindFetch, schema.ToolKindSwitchMode, schema.ToolKindOther,
}

// permissionRules say how permission requests are answered, by the kind of the
// tool that they are about.
type permissionRules struct {
	others string // for kinds without a rule
	kinds  map[schema.ToolKind]string
}

func (r permissionRules) of(kind schema.ToolKind) string {
	if rule, ok := r.kinds[kind]; ok {
		return rule
	}
	return r.others
}

func permissionFlag(usage string) cli.Flag {
	return &cli.StringSliceFlag{Name: "permission", Usage: usage}
}

// permissionRulesOf reads --permission: rules with commas between them, each an
// answer for all requests or KIND=ANSWER; later ones win. others is the answer
// for all as long as no rule says one, and answers are those there are.
func permissionRulesOf(c *cli.Context, others string, answers ...string) (permissionRules, error) {
	rules := permissionRules{others: others, kinds: map[schema.ToolKind]string{}}
	for _, value := range c.StringSlice("permission") {
		for rule := range strings.SplitSeq(value, ",") {
			rule = strings.TrimSpace(rule)
			kind, answer, forKind := strings.Cut(rule, "=")
			if !forKind {
				kind, answer = "*", rule
			}
			if !slices.Contains(answers, answer) {
				return rules, cmdline.Usagef(c, "--permission %s: use %s, or KIND=%s with a kind of tool", rule, anyOf(answers), answers[0])
			}
			switch {
			case kind == "*":
				rules.others = answer
			case slices.Contains(toolKinds, schema.ToolKind(kind)):
				rules.kinds[schema.ToolKind(kind)] = answer
			default:
				return rules, cmdline.Usagef(c, "--permission %s: there is no kind of tool %q; use *, %s", rule, kind, anyOf(toolKinds))
			}
		}
	}
	return rules, nil
}

// anyOf lists values for people.
func anyOf[S ~string](values []S) string {
	var b strings.Builder
	for i, v := range values {
		switch {
		case i > 0 && i == len(values)-1:
			b.WriteString(" or ")
		case i > 0:
			b.WriteString(", ")
		}
		b.WriteString(string(v))
	}
	return b.String()
}

// kindsSeen remembers the kinds of the tool calls that run, for requests that
// do not say it again. It is safe for concurrent use.
type kindsSeen struct {
	mu    sync.Mutex
	kinds map[[2]string]schema.ToolKind // by session and call: subagents give ids of their own
}

// update takes an update of a session.
func (s *kindsSeen) update(session string, u json.RawMessage) {
	switch rawjson.MemberString(u, "sessionUpdate") {
	case "tool_call", "tool_call_update":
	default:
		return
	}
	id, kind := [2]string{session, rawjson.MemberString(u, "toolCallId")}, rawjson.MemberString(u, "kind")
	s.mu.Lock()
	defer s.mu.Unlock()
	switch status := rawjson.MemberString(u, "status"); {
	case status == string(schema.ToolCallStatusCompleted) || status == string(schema.ToolCallStatusFailed) || status == "cancelled":
		delete(s.kinds, id)
	case kind != "":
		if s.kinds == nil {
			s.kinds = map[[2]string]schema.ToolKind{}
		}
		s.kinds[id] = schema.ToolKind(kind)
	}
}

// of returns the kind of tool that a permission request is about.
func (s *kindsSeen) of(params json.RawMessage) schema.ToolKind {
	call := callAsked(params)
	if kind := rawjson.MemberString(call, "kind"); kind != "" {
		return schema.ToolKind(kind)
	}
	if rawjson.MemberString(params, "subject", "type") == "command" {
		return schema.ToolKindExecute
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if kind := s.kinds[[2]string{rawjson.MemberString(params, "sessionId"), rawjson.MemberString(call, "toolCallId")}]; kind != "" {
		return kind
	}
	return schema.ToolKindOther
}

// callAsked returns the tool call that a permission request of either version of the
// protocol is about, nil for none.
func callAsked(params json.RawMessage) json.RawMessage {
	if call, ok := rawjson.Member(params, "toolCall"); ok {
		return call
	}
	call, _ := rawjson.Member(params, "subject", "toolCall")
	return call
}

// decide returns the result for a permission request that allows or rejects,
// for this time rather than for ever. Where the agent does not offer that it
// is the one that grants nothing.
func decide(params json.RawMessage, decision string) any {
	options, _ := rawjson.Member(params, "options")
	choices := rawjson.Elements(options)
	for _, kind := range []string{decision + "_once", decision + "_always"} {
		for _, o := range choices {
			if rawjson.MemberString(o, "kind") == kind {
				return selected(o)
			}
		}
	}
	return object{"outcome": object{"outcome": "cancelled"}}
}

func selected(option json.RawMessage) any {
	return object{"outcome": object{"outcome": "selected", "optionId": rawjson.MemberString(option, "optionId")}}
}

// requestTitle is what a permission request is about, for people.
func requestTitle(params json.RawMessage) string {
	if title := rawjson.MemberString(params, "title"); title != "" {
		return title
	}
	return rawjson.MemberString(callAsked(params), "title")
}

// ruledAnswers answers the permission requests for which there is a rule.
type ruledAnswers struct {
	rules permissionRules
	kinds kindsSeen
}

// receive takes every message of a link, in order. It reports whether it has
// answered the message.
func (a *ruledAnswers) receive(ctx context.Context, l *link, m acp.Message) (answered bool) {
	if u := m.Update(); u != nil {
		a.kinds.update(m.Session(), u)
	}
	if !m.IsRequest() || m.Method() != acp.MethodSessionRequestPermission {
		return false
	}
	rule := a.rules.of(a.kinds.of(m.Params()))
	if rule == "" {
		return false
	}
	_ = l.reply(ctx, m.ID(), decide(m.Params(), rule)) // a lost connection ends the command anyway
	return true
}
