package version

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"hash/maphash"
	"strings"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
)

// This file is how a command that version 1 shows as a tool call becomes a terminal. The
// call says in its _meta, under the gateway's key, that it has one:
//
//	"terminal": {...}   "command" and "cwd" say what runs and where, "exitCode" how it has
//	                    ended. With "output": true, the last block of the call's content is
//	                    all of the output so far, as a fenced text.
//
// The terminal's id is made from the call's. The first output that a view tells is all there
// is, so nobody has a part of it, or has it twice. What follows are pieces, as long as the
// output goes on with what was told, and else all of it again.

// shell is the terminal of a call that has not ended.
type shell struct {
	length  int    // of the output that was told
	output  uint64 // hash of it, 0 for none
	cancel  bool   // it can be cancelled, and says so
	content uint64 // hash of the call's content that was told
	last    uint64 // hash of what was told of the call last
}

// maxShells bounds the terminals that are known. Of more the oldest is forgotten. When its
// call says more of it, its output is told as a whole, as if it were new; when the call just
// ends, the terminal's end is not told.
const maxShells = 1024

const terminalPrefix = "sa.terminal."

var terminalMark = []byte(`"terminal":{`)

// terminal tells of the terminal that a call has, in the session of the subagent whose the
// call is. It returns what is left to tell of the call, and whether that is anything.
func (v *View) terminal(update json.RawMessage, home *child, begins bool, out *Frames) (left json.RawMessage, tell bool) {
	id := rawjson.MemberString(update, "toolCallId")
	var mark json.RawMessage
	if bytes.Contains(update, terminalMark) {
		mark, _ = rawjson.Member(update, "_meta", acp.MetaKey, "terminal")
	}
	marked := len(mark) > 0 && mark[0] == '{'
	if v.shells.byID[id] == nil && (!marked || id == "") {
		return update, true
	}
	sh, news := v.shells.get(id), terminalNews{id: terminalPrefix + id}
	if begins {
		news.exit = []byte("null") // it may have ended when the call was there before
	}
	content, given := rawjson.Member(update, "content")
	if given = given && string(content) != "null"; given {
		update = rawjson.DeleteMember(update, "content") // it is long, and seldom told
	}
	if marked {
		news.command, news.cwd = rawjson.MemberString(mark, "command"), rawjson.MemberString(mark, "cwd")
		update = withoutOwn(update, "terminal")
	}
	if given {
		shown := v.showTerminal(sh, content, rawjson.MemberBool(mark, "output"), &news)
		if now := maphash.Bytes(v.hash, shown); now != sh.content {
			sh.content = now
			update = rawjson.SetMember(update, shown, "content")
		}
	}
	if rawjson.MemberBool(update, "_meta", acp.MetaKey, "cancel") && !sh.cancel {
		sh.cancel, news.capabilities = true, []byte(`{"cancel":{}}`)
	}
	if status := rawjson.MemberString(update, "status"); status == "completed" || status == "failed" {
		exit := rawjson.Object{}
		if code, ok := rawjson.Member(mark, "exitCode"); ok {
			exit = exit.Raw("exitCode", code)
		}
		if news.exit = exit.End(); sh.cancel {
			news.capabilities = []byte("null")
		}
		v.shells.remove(id)
	}
	news.tell(v, home, out)
	now := maphash.Bytes(v.hash, update)
	tell = now != sh.last
	sh.last = now
	return update, tell
}

// showTerminal returns the content of a call with the terminal in the place of its output,
// which is the last of it if shows says so.
func (v *View) showTerminal(sh *shell, content json.RawMessage, shows bool, news *terminalNews) json.RawMessage {
	blocks := rawjson.Elements(content)
	if !shows || len(blocks) == 0 {
		return content
	}
	text, ok := unfenced(rawjson.MemberString(blocks[len(blocks)-1], "content", "text"))
	if !ok {
		return content
	}
	output := []byte(text)
	if len(output) >= sh.length && maphash.Bytes(v.hash, output[:sh.length]) == sh.output {
		news.more = output[sh.length:]
	} else {
		news.output, news.all = output, true
	}
	sh.length, sh.output = len(output), maphash.Bytes(v.hash, output)
	blocks[len(blocks)-1] = rawjson.Object{}.String("type", "terminal").String("terminalId", news.id).End()
	return array(blocks)
}

// terminalNews is what is new of a terminal.
type terminalNews struct {
	id, command, cwd   string
	more               []byte // of the output
	output             []byte // all of it, if all says so
	all                bool
	exit, capabilities json.RawMessage // nil for nothing new
}

// tell adds it, in the session of a subagent or the log's own.
func (n *terminalNews) tell(v *View, home *child, out *Frames) {
	begin := func(kind string) rawjson.Object {
		return rawjson.Object{}.String("sessionUpdate", kind).String("terminalId", n.id)
	}
	if len(n.more) > 0 {
		v.updateOf(home, begin("terminal_output_chunk").String("data", base64.StdEncoding.EncodeToString(n.more)).End(), out)
	}
	o := begin("terminal_update")
	none := len(o)
	if n.command != "" {
		o = o.String("command", n.command)
	}
	if n.cwd != "" {
		o = o.String("cwd", n.cwd)
	}
	if n.all {
		o = o.Raw("output", rawjson.Object{}.String("data", base64.StdEncoding.EncodeToString(n.output)).End())
	}
	if n.exit != nil {
		o = o.Raw("exitStatus", n.exit)
	}
	if n.capabilities != nil {
		o = o.Raw("capabilities", n.capabilities)
	}
	if len(o) > none {
		v.updateOf(home, o.End(), out)
	}
}

// unfenced returns the text within a fence of Markdown, and false when there is none.
func unfenced(s string) (text string, ok bool) {
	inner := strings.TrimLeft(s, "`")
	fence := s[:len(s)-len(inner)]
	_, inner, begins := strings.Cut(inner, "\n")
	text, ends := strings.CutSuffix(inner, "\n"+fence)
	return text, len(fence) >= 3 && begins && ends
}

// withoutOwn returns an object without a member of the gateway's part of its _meta.
func withoutOwn(object json.RawMessage, name string) json.RawMessage {
	object = rawjson.DeleteMember(object, "_meta", acp.MetaKey, name)
	if own, _ := rawjson.Member(object, "_meta", acp.MetaKey); string(own) == "{}" {
		object = rawjson.DeleteMember(object, "_meta", acp.MetaKey)
	}
	if meta, _ := rawjson.Member(object, "_meta"); string(meta) == "{}" {
		object = rawjson.DeleteMember(object, "_meta")
	}
	return object
}
