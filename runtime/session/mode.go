package session

import (
	"bytes"
	"encoding/json"
	"slices"

	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/adapters"
)

// A session's mode is what its permissionMode stands for, until somebody chooses another one: by session/set_mode, which
// ChosenMode has, or by the agent's option for it, which is among Chosen. The newest choice is the only one that is kept. ModeOver says
// that a permissionMode was asked for since, which counts then: see forgetMode.

// modeOption is the id of the option by which the agent's mode is chosen, "" if there is none.
func (rec *record) modeOption() (id string) {
	for _, o := range rawjson.Elements(rec.ConfigOptions) {
		if rawjson.MemberString(o, "category") == "mode" {
			id = rawjson.MemberString(o, "id")
		}
	}
	return id
}

// chosenMode is the mode that was chosen and counts, "" for none.
func (rec *record) chosenMode() string {
	if rec.ModeOver {
		return ""
	}
	if v := rec.Chosen[rec.modeOption()]; v != nil {
		return textOf(v)
	}
	return rec.ChosenMode
}

// inModes are the modes in which the agent is, as far as is known: that of its modes, and that of its option for them. "" is for one that
// there is not.
func (rec *record) inModes() [2]string {
	return [2]string{rawjson.MemberString(rec.Modes, "currentModeId"), textOf(currentValue(rec.ConfigOptions, rec.modeOption()))}
}

// noteMode notes that the agent was set to a mode by its option for it, if that is one of its modes: not every agent tells of it.
func (rec *record) noteMode(mode string) {
	available, _ := rawjson.Member(rec.Modes, "availableModes")
	for _, m := range rawjson.Elements(available) {
		if rawjson.MemberString(m, "id") == mode {
			rec.Modes = rawjson.SetMember(rec.Modes, rawjson.AppendQuoted(nil, mode), "currentModeId")
		}
	}
}

// opens notes what the agent has said of the session's settings as it opened it, and which have no effect.
func (l *link) opens(result json.RawMessage) {
	var said record
	said.read(result)
	l.modes, l.options, l.at = said.Modes != nil, said.ConfigOptions != nil, said.inModes()
	l.refused = UnsupportedIn(result)
}

// strays returns the mode in which a session is that is to read only, when that is another one than readonly stands for: a client
// has chosen it since, or the agent has gone over to it. It is "" for one that is held.
func (s *Session) strays(info adapters.Info) (mode string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	reads, serves := info.ModeFor("readonly", s.rec.modes()), s.m.hosting == serving
	held := [2]string{reads, reads}
	if slices.Contains(info.Takes, permissionMode) {
		held = [2]string{} // which it is only an agent says that has opened the session with it
		if serves {
			held = s.m.link.at
		}
	}
	if chosen := s.rec.chosenMode(); chosen != "" && !slices.Contains(held[:], chosen) {
		return chosen
	}
	for i, is := range s.rec.inModes() {
		if serves && is != "" && held[i] != "" && is != held[i] {
			return is
		}
	}
	return ""
}

// chooseMode has a mode be the one that was chosen, with a value by its option, and forgets what was chosen in the other way. It
// returns what takes that back.
func (rec *record) chooseMode(mode string, value json.RawMessage) (undo func(rec *record)) {
	option, was, over := rec.modeOption(), rec.ChosenMode, rec.ModeOver
	wasValue := rec.Chosen[option]
	set := func(rec *record, mode string, value json.RawMessage, over bool) {
		if rec.ChosenMode, rec.ModeOver = mode, over; option != "" {
			rec.setChosen(option, value)
		}
	}
	set(rec, mode, value, false)
	return func(rec *record) { set(rec, was, wasValue, over) }
}

// takeMode takes back what was chosen since the record was as it was before.
func (rec *record) takeMode(was *record) {
	rec.ChosenMode, rec.Chosen, rec.OwnMode, rec.ModeOver = was.ChosenMode, was.Chosen, was.OwnMode, was.ModeOver
}

// forgetMode forgets the mode that was chosen before the permissionMode was asked for with which the agent, whose adapter takes it, has
// opened the session by now. Where the adapter has refused that one, it is the mode that counts.
func (rec *record) forgetMode(refused bool) {
	if rec.ModeOver && !refused {
		rec.chooseMode("", nil)
	}
	rec.ModeOver = false
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
