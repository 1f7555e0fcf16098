package main

import (
	"encoding/json"
	"strings"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
)

// summaryLen is how much of a message's content its summary shows, in runes.
const summaryLen = 160

// summary is one line about a message: its sequence number when it has one, its
// method, and what matters most of its content.
func summary(m acp.Message) string {
	var parts []string
	if seq, ok := rawjson.Member(m.Meta(), acp.MetaKey, "seq"); ok {
		parts = append(parts, string(seq))
	}
	if m.IsResponse() {
		parts = append(parts, "response "+string(m.ID()))
		if e := m.Err(); e != nil {
			parts = append(parts, "error: "+e.Message)
		} else {
			parts = append(parts, compact(m.Result()))
		}
		return line(parts)
	}
	parts = append(parts, m.Method())
	if m.IsRequest() {
		parts = append(parts, "(request "+string(m.ID())+")")
	}
	u := m.Update()
	kind := rawjson.MemberString(u, "sessionUpdate")
	if kind != "" {
		parts = append(parts, kind)
	}
	switch {
	case rawjson.MemberString(u, "content", "text") != "":
		parts = append(parts, rawjson.MemberString(u, "content", "text"))
	case kind == "tool_call" || kind == "tool_call_update":
		parts = append(parts, rawjson.MemberString(u, "toolCallId"), rawjson.MemberString(u, "status"), rawjson.MemberString(u, "title"))
	case u != nil:
		parts = append(parts, compact(rawjson.DeleteMember(u, "sessionUpdate")))
	case m.Method() == acp.MethodSessionRequestPermission:
		parts = append(parts, requestTitle(m.Params()))
	case m.Params() != nil:
		parts = append(parts, compact(m.Params()))
	}
	return line(parts)
}

func line(parts []string) string {
	return cmdline.Shorten(cmdline.OneLine(strings.Join(parts, " ")), summaryLen)
}

func compact(raw json.RawMessage) string { return cmdline.Shorten(string(raw), 2*summaryLen) }
