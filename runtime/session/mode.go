package session

import (
	"bytes"
	"encoding/json"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
)

// A session's mode is what its permissionMode stands for, until somebody chooses another one: by session/set_mode, which
// ChosenMode has, or by the agent's option for it, which is among Chosen. The newest choice is the only one that is kept. A newer
// permissionMode counts for more, see forgetMode.

// modeOption is the id of the option by which the agent's mode is chosen, "" if there is none.
func (rec *record) modeOption() (id string) {
	for _, o := range rawjson.Elements(rec.ConfigOptions) {
		if rawjson.MemberString(o, "category") == "mode" {
			id = rawjson.MemberString(o, "id")
		}
	}
	return id
}

// chooseMode has a mode be the one that was chosen, with a value by its option, and forgets what was chosen in the other way. It
// returns what takes that back.
func (rec *record) chooseMode(mode string, value json.RawMessage) (undo func(rec *record)) {
	option, was := rec.modeOption(), rec.ChosenMode
	wasValue := rec.Chosen[option]
	set := func(rec *record, mode string, value json.RawMessage) {
		if rec.ChosenMode = mode; option != "" {
			rec.setChosen(option, value)
		}
	}
	set(rec, mode, value)
	return func(rec *record) { set(rec, was, wasValue) }
}

// forgetMode forgets the mode that was chosen when a load has changed the permissionMode since, with which the agent has opened the
// session by now. A mode that was asked for since then as well goes on top of it, unless the session must only read.
func (rec *record) forgetMode() {
	if rec.Before == nil {
		return
	}
	before, wish := record{Setup: rec.Before}, rec.permissionMode()
	mode := rawjson.MemberString(rec.Setup, "_meta", acp.MetaKey, "mode")
	newer := mode != "" && mode != rawjson.MemberString(rec.Before, "_meta", acp.MetaKey, "mode")
	if before.permissionMode() == wish || newer && wish != "readonly" {
		return
	}
	rec.chooseMode("", nil)
}

// followMode has the mode that was chosen be the one that the agent has gone over to, as when it leaves the one for plans: an
// agent that is started anew is not told of one that is over. A session that must only read is not followed: what it is started with is
// what a client chose.
func (rec *record) followMode(mode json.RawMessage) {
	if rec.permissionMode() == "readonly" {
		return
	}
	if rec.ChosenMode != "" {
		rec.ChosenMode = textOf(mode)
	}
	if option := rec.modeOption(); rec.Chosen[option] != nil {
		rec.setChosen(option, bytes.Clone(mode))
	}
}
