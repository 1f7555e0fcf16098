package session

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"slices"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
)

// choices are what was chosen of an agent's modes, models and options, by a client or by the agent itself since: one that is started anew is
// told again. A mode is chosen by session/set_mode or by the option for it, a model likewise; the newest choice is the only one that is kept.
//
// A session's mode is what its permissionMode stands for, until somebody chooses another one. ModeOver says that a permissionMode was
// asked for since, which counts then: see forgetMode.
type choices struct {
	ChosenMode  string                     `json:"chosenMode,omitempty"`
	ModeOver    bool                       `json:"modeOver"`              // a permissionMode that the agent was not opened with yet was asked for since; see decode
	OwnMode     string                     `json:"ownMode,omitempty"`     // in which the agent was before it got into that of a permissionMode
	ChosenModel string                     `json:"chosenModel,omitempty"` // by session/set_model
	Chosen      map[string]json.RawMessage `json:"chosen,omitempty"`      // by the option's id; it is replaced, and never changed in place
	ChosenBy    map[string]string          `json:"chosenBy,omitempty"`    // by the field of ours that asks for the same, the option's id; likewise
}

// choice is what somebody has set, or sets.
type choice struct {
	method string
	id     string // of a mode or a model
	option string // of an option, with its value
	value  json.RawMessage
	waited bool // at an agent that is set to several: it was put behind the others
}

// field is the field of _meta of ours that asks for the same, or else the option's id.
func (c *choice) field(rec *record) string {
	for _, f := range configFields {
		had := c.option == rec.ChosenBy[f.field] && currentValue(rec.ConfigOptions, c.option) == nil // there is none any more
		if c.option != "" && (c.option == rec.option(f.category) || c.option == waits(f.category) || had) {
			return f.field
		}
	}
	return cmp.Or(c.option, map[string]string{acp.MethodSessionSetMode: "mode", acp.MethodSessionSetModel: "model"}[c.method])
}

// text is what was chosen, for people.
func (c *choice) text() string { return cmp.Or(c.id, textOf(c.value)) }

// params are what an agent is asked for it with.
func (c *choice) params(l *link) json.RawMessage {
	of := rawjson.Object{}.String("sessionId", l.native)
	switch c.method {
	case acp.MethodSessionSetMode:
		return of.String("modeId", c.id).End()
	case acp.MethodSessionSetModel:
		return of.String("modelId", c.id).End()
	}
	return of.String("configId", c.option).Raw("value", c.value).End()
}

// waits is in place of an option's id that is not known before the agent is started, since it belongs to a model that is chosen then. No
// option has such an id: it has a space.
func waits(category string) string { return "the " + category }

// optionOf is the id of the option of a category, "" if there is none. The first counts, if there are more: what is behind it is for
// something else, such as a model for plans.
func optionOf(options json.RawMessage, category string) string {
	for _, o := range rawjson.Elements(options) {
		if rawjson.MemberString(o, "category") == category {
			return rawjson.MemberString(o, "id")
		}
	}
	return ""
}

func (rec *record) option(category string) string { return optionOf(rec.ConfigOptions, category) }

// currentValue returns the value of an option, nil if there is none.
func currentValue(options json.RawMessage, id string) json.RawMessage {
	for _, o := range rawjson.Elements(options) {
		if rawjson.MemberString(o, "id") == id {
			value, _ := rawjson.Member(o, "currentValue")
			return value
		}
	}
	return nil
}

// asOffered is a choice as the agent takes it now: an option that belongs to a model is known when that is chosen, and an agent that has had
// an option for its modes may have them as such, or the other way round.
func (rec *record) asOffered(c choice) choice {
	switch model, mode := rec.option("thought_level"), rec.option("mode"); {
	case c.option == waits("thought_level") && model != "":
		c.option = model
	case c.option != "" && c.field(rec) == "mode" && currentValue(rec.ConfigOptions, c.option) == nil && rec.hasMode(textOf(c.value)):
		c.method, c.id, c.option = acp.MethodSessionSetMode, textOf(c.value), ""
	case c.method == acp.MethodSessionSetMode && len(rec.Modes) == 0 && mode != "":
		c.method, c.id, c.option = acp.MethodSessionSetConfigOption, "", mode
	}
	return c
}

// hasMode reports whether the agent's modes have one of the id.
func (rec *record) hasMode(id string) bool {
	available, _ := rawjson.Member(rec.Modes, "availableModes")
	return id != "" && slices.ContainsFunc(rawjson.Elements(available), func(m json.RawMessage) bool { return rawjson.MemberString(m, "id") == id })
}

// choose remembers what somebody set.
func (rec *record) choose(c choice) {
	field := c.field(rec)
	if c.text() == "" && len(c.value) == 0 || field == "" {
		return
	}
	rec.forget(field)
	switch c.method {
	case acp.MethodSessionSetMode:
		rec.ChosenMode = c.id
	case acp.MethodSessionSetModel:
		rec.ChosenModel = c.id
	default:
		if rec.setChosen(c.option, c.value); field != c.option {
			by := maps.Clone(rec.ChosenBy)
			if by == nil {
				by = map[string]string{}
			}
			by[field], rec.ChosenBy = c.option, by
		}
	}
	rec.ModeOver = rec.ModeOver && field != "mode"
}

// forget has nothing be chosen of what a field asks for.
func (rec *record) forget(field string) {
	for _, c := range rec.list() {
		switch {
		case c.field(rec) != field:
		case c.method == acp.MethodSessionSetMode:
			rec.ChosenMode = ""
		case c.method == acp.MethodSessionSetModel:
			rec.ChosenModel = ""
		default:
			rec.setChosen(c.option, nil)
		}
	}
}

// list has what was chosen in the order in which an agent is told: the model first, which decides what else there is, and the mode last.
func (rec *record) list() (list []choice) {
	if rec.ChosenModel != "" {
		list = append(list, choice{method: acp.MethodSessionSetModel, id: rec.ChosenModel})
	}
	for _, id := range slices.Sorted(maps.Keys(rec.Chosen)) {
		list = append(list, choice{method: acp.MethodSessionSetConfigOption, option: id, value: rec.Chosen[id]})
	}
	if rec.ChosenMode != "" {
		list = append(list, choice{method: acp.MethodSessionSetMode, id: rec.ChosenMode, value: rawjson.AppendQuoted(nil, rec.ChosenMode)})
	}
	rank := func(c choice) int { return map[string]int{"model": -1, "mode": 1}[c.field(rec)] }
	slices.SortStableFunc(list, func(a, b choice) int { return rank(a) - rank(b) })
	return list
}

// chooses reports whether a choice is what is chosen, in whatever way the agent takes it.
func (rec *record) chooses(c choice) bool {
	field := c.field(rec)
	return !(field == "mode" && rec.ModeOver) && slices.ContainsFunc(rec.list(), func(now choice) bool {
		return now.field(rec) == field && bytes.Equal(now.value, c.value) && (now.value != nil || now.id == c.id)
	})
}

// chosenLocked is followed by save: who has chosen something since is told whether it is kept, and it is taken back if not.
func (s *Session) chosenLocked(was choices, told func(err error)) {
	s.editedLocked(edit{undo: func(rec *record) { rec.choices = was }, told: told})
}

// setChosen sets what was chosen of an option, with nil that nothing was.
func (rec *record) setChosen(option string, value json.RawMessage) {
	if bytes.Equal(rec.Chosen[option], value) {
		return
	}
	chosen := maps.Clone(rec.Chosen)
	if chosen == nil {
		chosen = map[string]json.RawMessage{}
	}
	if chosen[option] = value; value == nil {
		delete(chosen, option)
	}
	rec.Chosen = chosen
}

// chosenMode is the mode that was chosen and counts, "" for none.
func (rec *record) chosenMode() string {
	if rec.ModeOver {
		return ""
	}
	return cmp.Or(textOf(rec.Chosen[rec.option("mode")]), rec.ChosenMode)
}

// forgetMode forgets the mode that was chosen before the permissionMode was asked for with which the agent, whose adapter takes it, has
// opened the session by now. Where the adapter has refused that one, it is the mode that counts.
func (rec *record) forgetMode(refused bool) {
	if rec.ModeOver && !refused {
		rec.forget("mode")
	}
	rec.ModeOver = false
}

// takeMode takes back what was chosen of the mode since the record was as it was before.
func (rec *record) takeMode(was *record) {
	rec.ChosenMode, rec.OwnMode, rec.ModeOver = was.ChosenMode, was.OwnMode, was.ModeOver
	rec.setChosen(rec.option("mode"), was.Chosen[rec.option("mode")])
}

// follow has what was chosen be what the agent says of it: one that is started anew is not told of what is over, as when it has left the
// mode for plans, or has gone over to another model, which has other options.
func (rec *record) follow(options json.RawMessage) {
	if model := optionOf(options, "model"); rec.ChosenModel != "" && model != "" {
		if now := currentValue(options, model); !bytes.Equal(now, currentValue(rec.ConfigOptions, model)) {
			rec.choose(choice{method: acp.MethodSessionSetConfigOption, option: model, value: bytes.Clone(now)})
		}
	}
	mode := optionOf(options, "mode")
	for id := range rec.Chosen {
		was, now := currentValue(rec.ConfigOptions, id), currentValue(options, id)
		if id != mode && id != rec.option("mode") && !bytes.Equal(was, now) && was != nil { // else it goes over to nothing
			rec.setChosen(id, bytes.Clone(now))
		}
	}
	if mode != "" && rec.inModes() != [2]string{} { // else it has told of none before
		rec.followMode(currentValue(options, mode))
	}
}

// followMode is follow for the mode. A session that must only read is not followed: what it is started with is what a client chose.
func (rec *record) followMode(mode json.RawMessage) {
	if rec.heldTo() == "readonly" {
		return
	}
	if rec.ChosenMode != "" {
		rec.ChosenMode = textOf(mode)
	}
	if option := rec.option("mode"); rec.Chosen[option] != nil {
		rec.setChosen(option, bytes.Clone(mode))
	}
}

// noteOptions notes what the agent says of its options. follows says that it is by itself what it says: not while it opens the session, and
// is set to what was chosen again.
func (rec *record) noteOptions(options json.RawMessage, follows bool) {
	if follows {
		rec.follow(options)
	}
	rec.ConfigOptions = bytes.Clone(options)
}

// inModes are the modes in which the agent is, as far as is known: that of its modes, and that of its option for them. "" is for one that
// there is not.
func (rec *record) inModes() [2]string {
	return [2]string{rawjson.MemberString(rec.Modes, "currentModeId"), textOf(currentValue(rec.ConfigOptions, rec.option("mode")))}
}

// noteMode notes that the agent was set to a mode by its option for it, if that is one of its modes: not every agent tells of it.
func (rec *record) noteMode(mode string) {
	if rec.hasMode(mode) {
		rec.Modes = rawjson.SetMember(rec.Modes, rawjson.AppendQuoted(nil, mode), "currentModeId")
	}
}

// inAnother is the mode in which the agent is, where that is known to be another one than a choice of a mode: "" for all others.
func (rec *record) inAnother(c *choice) (mode string) {
	wish, is := c.text(), rec.inModes()
	switch {
	case c.field(rec) != "mode":
	case is[0] != "" && is[0] != wish && rec.hasMode(wish):
		return is[0]
	case is[1] != "" && is[1] != wish && rec.offers(rec.option("mode"), rawjson.AppendQuoted(nil, wish)):
		return is[1]
	}
	return ""
}

// saidOf are those of the options of an update that it is about: an agent that tells of one repeats all the others.
func saidOf(was, options json.RawMessage) []json.RawMessage {
	all := rawjson.Elements(options)
	changed := slices.DeleteFunc(slices.Clone(all), func(o json.RawMessage) bool {
		value, _ := rawjson.Member(o, "currentValue")
		return bytes.Equal(value, currentValue(was, rawjson.MemberString(o, "id")))
	})
	if len(changed) > 0 {
		return changed
	}
	return all
}

// optionNamed is the option with an id, of those that the agent tells; none where there is none.
func optionNamed(options json.RawMessage, id string) []json.RawMessage {
	return slices.DeleteFunc(rawjson.Elements(options), func(o json.RawMessage) bool { return id == "" || rawjson.MemberString(o, "id") != id })
}

// noteOption notes that the agent was set to a value of an option: not every agent says so in its answer.
func (rec *record) noteOption(id string, value json.RawMessage) {
	if len(value) == 0 || currentValue(rec.ConfigOptions, id) == nil {
		return
	}
	options := []byte{'['}
	for i, o := range rawjson.Elements(rec.ConfigOptions) {
		if i > 0 {
			options = append(options, ',')
		}
		if rawjson.MemberString(o, "id") == id {
			o = rawjson.SetMember(o, value, "currentValue")
		}
		options = append(options, o...)
	}
	rec.ConfigOptions = append(options, ']')
}

// noteOffered is noteOption if the option offers the value.
func (rec *record) noteOffered(id string, value json.RawMessage) {
	if rec.offers(id, value) {
		rec.noteOption(id, value)
	}
}

// offers reports whether an option offers a value.
func (rec *record) offers(id string, value json.RawMessage) bool {
	is := func(c json.RawMessage) bool { return rawjson.MemberString(c, "value") == textOf(value) }
	return slices.ContainsFunc(rawjson.Elements(rec.ConfigOptions), func(o json.RawMessage) bool {
		return rawjson.MemberString(o, "id") == id && slices.ContainsFunc(Choices(o), is)
	})
}

// opens notes what the agent has said of the session's settings as it opened it, and which have no effect.
func (l *link) opens(result json.RawMessage) {
	var said record
	said.read(result)
	l.modes, l.options, l.at = said.Modes != nil, said.ConfigOptions != nil, said.inModes()
	l.refused = UnsupportedIn(result)
}
