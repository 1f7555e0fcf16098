package version

import (
	"bytes"
	"encoding/json"
	"slices"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
)

// This file is how subagents, which version 1 shows as tool calls, become sessions of
// their own: for clients of version 2, and for those of version 1 that know them. A call
// says in its _meta, under the gateway's key, that it shows one:
//
//	"subagent": {}            the call shows a subagent. Of an agent of version 2 it has the
//	                          sessionId of the child, and the call is shown to nobody else.
//	                          "cancel": true says that it can be cancelled by itself.
//	"parentToolCallId": "ID"  the call is of the subagent that the call ID shows
//	"said": {...}             what is new of the subagent's words: text, and maybe messageId
//	                          and thought. The call's content has them for others.

// child is a subagent.
type child struct {
	id     string // of its session
	token  []byte // the same as JSON
	call   string // the call that shows it
	within *child // whose subagent it is, nil for the session itself
	made   bool   // no agent has named the call, so it is shown to others alone

	title     string
	cancel    bool   // it can be cancelled by itself
	asked     string // what it was asked to do, until that is told
	told      bool   // that was told
	announced bool
	work      string // the state that its call shows: "running", "idle"; "" for none
	failed    bool
	waits     int // requests of its that are open
}

// children are the subagents of a log.
type children struct {
	byCall map[string]*child // at most maxChildren
	order  []*child
	home   kept[*child]     // whose calls are, the newest maxCalls
	asks   map[int64]*child // who asks what is open
}

func newChildren() children {
	return children{byCall: map[string]*child{}, home: newKept[*child](maxCalls), asks: map[int64]*child{}}
}

var ownKey = []byte(`"` + acp.MetaKey + `"`)

// ChildID is the id of the session that a subagent has whose call has the id, unless the
// agent has named it.
func ChildID(session, call string) string { return session + "." + call }

// ChildOf returns the subagent that an update of a call of version 1 shows: the id of its
// session, "" when it shows none that its agent has not named before.
func ChildOf(session string, update json.RawMessage) (id string, mark json.RawMessage) {
	if !bytes.Contains(update, ownKey) {
		return "", nil
	}
	mark, ok := rawjson.Member(update, "_meta", acp.MetaKey, "subagent")
	call := rawjson.MemberString(update, "toolCallId")
	if !ok || mark[0] != '{' || call == "" {
		return "", nil
	}
	if id = rawjson.MemberString(mark, "sessionId"); id == "" {
		id = ChildID(session, call)
	}
	return id, mark
}

// whose returns the subagent whose call has the id, nil when it is the session's own. own is
// what the gateway's part of its _meta says.
func (c *children) whose(id string, own json.RawMessage) *child {
	if known := c.home.byID[id]; known != nil {
		return *known
	}
	parent := rawjson.MemberString(own, "parentToolCallId")
	if parent == "" {
		return nil
	}
	home := c.byCall[parent]
	if home == nil || home.call == id {
		return nil
	}
	*c.home.get(id) = home
	return home
}

// call reads an update of a call. It tells of the subagent that the call shows or is of,
// and has show add the call itself, which is of home, where it is shown.
func (v *View) call(e Entry, m *acp.Message, history bool, out *Frames, show func(m *acp.Message, home *child)) {
	update := m.Update()
	id := rawjson.MemberString(update, "toolCallId")
	var own json.RawMessage
	if bytes.Contains(update, ownKey) {
		own, _ = rawjson.Member(update, "_meta", acp.MetaKey)
	}
	home := v.kids.whose(id, own)
	c := v.kids.byCall[id]
	if c == nil {
		c = v.newChild(id, home, update)
	}
	v.begins(home, e, history, out)
	if c == nil {
		show(m, home)
		return
	}
	said, words := rawjson.Member(own, "said")
	if !words && !c.made {
		show(m, home)
	}
	if title := rawjson.MemberString(update, "title"); title != "" && title != c.title {
		if c.title = title; c.announced {
			v.aboutChild(c, rawjson.Object{}.String("title", title), out)
		}
	}
	if task := rawjson.MemberString(update, "rawInput", "prompt"); task != "" && !c.told {
		c.asked = task
	}
	status := rawjson.MemberString(update, "status")
	if c.made || words || status == "in_progress" || status == "completed" {
		v.begins(c, e, history, out)
	}
	if words {
		v.childSays(c, e, said, history, out)
	}
	v.childWorks(c, status, history, out)
}

// newChild returns the subagent that a call shows, nil when it shows none.
func (v *View) newChild(call string, home *child, update json.RawMessage) *child {
	id, mark := ChildOf(v.id, update)
	if id == "" || id == v.id || !v.kids.room() {
		return nil
	}
	c := &child{
		id: id, token: rawjson.AppendQuoted(nil, id), call: call, within: home,
		made: rawjson.MemberString(mark, "sessionId") != "", cancel: rawjson.MemberBool(mark, "cancel"),
	}
	v.kids.byCall[call] = c
	v.kids.order = append(v.kids.order, c)
	return c
}

// room reports whether there may be another subagent. At the bound the oldest that does
// nothing is forgotten, whose call is like others then; if all work, the new one's is.
func (c *children) room() bool {
	if len(c.order) < maxChildren {
		return true
	}
	i := slices.IndexFunc(c.order, func(one *child) bool { return one.work != "running" })
	if i < 0 {
		return false
	}
	delete(c.byCall, c.order[i].call)
	c.order = slices.Delete(c.order, i, i+1)
	return true
}

// begins announces a subagent, and before it those whose subagent it is.
func (v *View) begins(c *child, e Entry, history bool, out *Frames) {
	if c == nil {
		return
	}
	if !c.announced {
		v.begins(c.within, e, history, out)
		c.announced, c.work = true, "running"
		about := rawjson.Object{}
		if c.title != "" {
			about = about.String("title", c.title)
		}
		if c.cancel {
			about = about.Raw("capabilities", []byte(`{"cancel":{}}`))
		}
		if !history {
			about = about.Raw("state", c.state())
		}
		if !c.made {
			about = about.Raw("_meta", rawjson.Object{}.Raw(acp.MetaKey, rawjson.Object{}.String("toolCallId", c.call).End()).End())
		}
		v.aboutChild(c, about, out)
		if !history {
			v.childState(c, out)
		}
	}
	if c.asked != "" {
		text := array([]json.RawMessage{textBlock(c.asked)})
		c.asked, c.told = "", true
		message := rawjson.Object{}.String("sessionUpdate", "session_message").String("messageId", v.messageID(e.Seq)+".task").
			Raw("senderSessionId", v.tokenOf(c.within)).Raw("recipientSessionId", c.token).Raw("content", text)
		v.updateOf(c, message.End(), out)
	}
}

// tokenOf returns the session of a subagent, or the log's own.
func (v *View) tokenOf(c *child) []byte {
	if c == nil {
		return v.session
	}
	return c.token
}

func (v *View) updateOf(c *child, update []byte, out *Frames) {
	out.update(v.tokenOf(c), update)
}

// aboutChild tells whose subagent it is about it.
func (v *View) aboutChild(c *child, about rawjson.Object, out *Frames) {
	o := rawjson.Object{}.String("sessionUpdate", "subagent_update").Raw("sessionId", c.token)
	members(about.End(), func(name, value json.RawMessage) { o = o.Raw(rawjson.Unquote(name), value) })
	v.updateOf(c.within, o.End(), out)
}

// state is what the subagent is doing.
func (c *child) state() []byte {
	o := rawjson.Object{}
	switch {
	case c.work == "idle" && c.failed:
		o = o.String("state", "idle").String("stopReason", "error").Raw("error", []byte(childLost))
	case c.work == "idle":
		o = o.String("state", "idle").String("stopReason", "end_turn")
	case c.waits > 0:
		o = o.String("state", "requires_action")
	default:
		o = o.String("state", "running")
	}
	return o.End()
}

// childState tells, in version 2, the subagent's session what its state is. Version 1 has
// only what its parent is told.
func (v *View) childState(c *child, out *Frames) {
	if v.one {
		return
	}
	o := rawjson.Object{}.String("sessionUpdate", "state_update")
	members(c.state(), func(name, value json.RawMessage) { o = o.Raw(rawjson.Unquote(name), value) })
	v.updateOf(c, o.End(), out)
}

// childWorks takes the status of the call that shows the subagent.
func (v *View) childWorks(c *child, status string, history bool, out *Frames) {
	work, failed := c.work, c.failed
	switch status {
	case "completed", "failed":
		work, failed = "idle", status == "failed"
	case "in_progress":
		work, failed = "running", false
	}
	if !c.announced || work == c.work && failed == c.failed {
		return
	}
	if c.work, c.failed = work, failed; work == "idle" {
		c.waits = 0
		for id, who := range v.kids.asks {
			if who == c {
				delete(v.kids.asks, id)
			}
		}
	}
	v.childDoes(c, history, out)
}

// childDoes tells of the subagent's state, which has changed.
func (v *View) childDoes(c *child, history bool, out *Frames) {
	if history {
		return
	}
	v.childState(c, out)
	v.aboutChild(c, rawjson.Object{}.Raw("state", c.state()), out)
}

// childSays tells what a subagent has said.
func (v *View) childSays(c *child, e Entry, said json.RawMessage, history bool, out *Frames) {
	kind := "agent_message_chunk"
	if rawjson.MemberBool(said, "thought") {
		kind = "agent_thought_chunk"
	}
	id := rawjson.MemberString(said, "messageId")
	if id == "" {
		id = v.messageID(e.Seq)
	}
	m := acp.NewNotification(acp.MethodSessionUpdate, rawjson.Object{}.Raw("sessionId", c.token).Raw("update",
		rawjson.Object{}.String("sessionUpdate", kind).String("messageId", id).Raw("content", textBlock(rawjson.MemberString(said, "text"))).End()).End())
	if !v.one {
		v.begin(&m, kind, history, out)
	}
	out.add(m.Frame())
}

// childAsks notes a request of a subagent.
func (v *View) childAsks(m *acp.Message, history bool, out *Frames) {
	c := v.asker(m.Params())
	id, ok := m.ID().Int()
	if c == nil || !c.announced || !ok || !forPerson(m.Method()) {
		return
	}
	v.kids.asks[id] = c
	if c.waits++; c.waits == 1 && c.work == "running" {
		v.childDoes(c, history, out)
	}
}

func (v *View) childAnswered(id int64, history bool, out *Frames) {
	c := v.kids.asks[id]
	if c == nil {
		return
	}
	delete(v.kids.asks, id)
	if c.waits--; c.waits == 0 && c.work == "running" {
		v.childDoes(c, history, out)
	}
}

// asker returns the subagent that asks with the params, nil when the session itself does.
func (v *View) asker(params json.RawMessage) *child {
	call, _ := rawjson.Member(params, "toolCall")
	id := rawjson.MemberString(call, "toolCallId")
	if id == "" {
		id = rawjson.MemberString(params, "toolCallId")
	}
	if id == "" {
		return nil
	}
	own, _ := rawjson.Member(call, "_meta", acp.MetaKey)
	return v.kids.whose(id, own)
}

// ofAsker returns params of a request as of the session whose call it is about.
func (v *View) ofAsker(params json.RawMessage) json.RawMessage {
	if c := v.asker(params); c != nil && c.announced {
		return rawjson.SetMember(params, c.token, "sessionId")
	}
	return params
}

// working are the subagents that are announced and do something.
func (c *children) working() []*child {
	return slices.DeleteFunc(slices.Clone(c.order), func(one *child) bool { return !one.announced || one.work != "running" })
}
