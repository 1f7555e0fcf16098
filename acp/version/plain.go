package version

import (
	"bytes"
	"slices"
	"strings"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
)

// Knows says which updates a client of version 1 knows that not all do. It has announced
// them in its clientCapabilities.
type Knows struct{ Notices, Compaction bool }

// KnownBy returns what a client with the capabilities knows.
func KnownBy(clientCapabilities []byte) Knows {
	has := func(name string) bool {
		v, ok := rawjson.Member(clientCapabilities, "session", name)
		return ok && string(v) != "null" && string(v) != "false"
	}
	return Knows{Notices: has("notices"), Compaction: has("compaction")}
}

// Tell returns the frame of an update of a log as the client is given it, nil for nothing.
// What it does not know it is given as a thought, if that matters: a long silence would say
// less.
func (k Knows) Tell(frame []byte) []byte {
	if kind := plainKind(frame); kind != nil && string(kind) != "notice" && !bytes.HasPrefix(kind, []byte("compaction_")) {
		return frame
	}
	mayNotice := !k.Notices && bytes.Contains(frame, []byte(`"notice"`))
	mayCompact := !k.Compaction && bytes.Contains(frame, []byte(`"compaction_`))
	if !mayNotice && !mayCompact {
		return frame
	}
	m, err := acp.Parse(frame)
	if err != nil {
		return frame
	}
	text := ""
	switch kind := string(m.UpdateKind()); {
	case mayNotice && kind == "notice":
		text = noticeText(m.Update())
	case mayCompact && kind == "compaction_update":
		text = compactionText(m.Update())
	case mayCompact && kind == "compaction_summary_chunk":
	default:
		return frame
	}
	if text == "" {
		return nil
	}
	before, after := m.SplitUpdate()
	return slices.Concat(before, chunkOf("agent_thought", "", "", textBlock(text+"\n")), after)
}

// plainKind returns the kind of an update that says it where nearly all do, so that the rest
// need not be looked at; nil when it may be elsewhere.
func plainKind(frame []byte) []byte {
	const mark = `"update":{"sessionUpdate":"`
	head := frame[:min(len(frame), 512)]
	i := bytes.Index(head, []byte(mark))
	if i < 0 || bytes.Count(head[:i], []byte("{")) != 2 { // the message's own, and that of its params
		return nil
	}
	kind, _, whole := bytes.Cut(head[i+len(mark):], []byte(`"`))
	if !whole {
		return nil
	}
	return kind
}

// noticeText is what a notice says, "" when it is neither a warning nor an error.
func noticeText(update []byte) string {
	switch rawjson.MemberString(update, "severity") {
	case "warning", "error":
	default:
		return ""
	}
	text := rawjson.MemberString(update, "title")
	if more := rawjson.MemberString(update, "description"); more != "" && more != text {
		text += " (" + more + ")"
	}
	return text
}

// compactionText is what the end of a compaction says, "" when it has not ended or nothing
// came of it. How much there was is in its _meta, if its bridge knows it.
func compactionText(update []byte) string {
	var text strings.Builder
	switch rawjson.MemberString(update, "status") {
	case "completed":
		text.WriteString("The conversation was compacted")
		before, known := rawjson.Member(update, "_meta", acp.MetaKey, "tokens", "before")
		if !known {
			break
		}
		text.WriteString(" from " + string(before))
		if after, known := rawjson.Member(update, "_meta", acp.MetaKey, "tokens", "after"); known {
			text.WriteString(" to " + string(after))
		}
		text.WriteString(" tokens")
	case "failed":
		text.WriteString("The conversation could not be compacted")
		if why := rawjson.MemberString(update, "error"); why != "" {
			text.WriteString(" (" + why + ")")
		}
	default:
		return ""
	}
	text.WriteByte('.')
	return text.String()
}
