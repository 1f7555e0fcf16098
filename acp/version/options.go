package version

import (
	"encoding/json"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
)

// ModeOption is the id of the option by which a client of version 2 sees the modes of a
// session that has no option for them.
const ModeOption = "mode"

// Options returns the options of a session as version 2 has them: its own, and its modes
// as one of them, unless the agent has an option for them. Both are in the form of
// version 1, and either may be absent.
func Options(options, modes json.RawMessage) json.RawMessage {
	var out []json.RawMessage
	covered := false
	for _, o := range rawjson.Elements(options) {
		if o[0] != '{' {
			continue
		}
		covered = covered || coversModes(o)
		out = append(out, raiseOption(o))
	}
	if mode := modeOption(modes); mode != nil && !covered {
		out = append([]json.RawMessage{mode}, out...)
	}
	return array(out)
}

func coversModes(option json.RawMessage) bool {
	return rawjson.MemberString(option, "category") == "mode" || rawjson.MemberString(option, "id") == ModeOption
}

func raiseOption(o json.RawMessage) json.RawMessage {
	o = rename(o, "id", "configId")
	o = withoutNulls(o, "_meta")
	if choices, ok := rawjson.Member(o, "options"); ok {
		o = rawjson.SetMember(o, list(choices, func(c json.RawMessage) json.RawMessage { return rename(c, "group", "groupId") }), "options")
	}
	return o
}

func modeOption(modes json.RawMessage) json.RawMessage {
	current, ok := rawjson.Member(modes, "currentModeId")
	available, _ := rawjson.Member(modes, "availableModes")
	if !ok {
		return nil
	}
	choices := list(available, func(m json.RawMessage) json.RawMessage { return rename(m, "id", "value") })
	return rawjson.Object{}.String("configId", ModeOption).String("name", "Mode").String("category", "mode").
		String("type", "select").Raw("currentValue", current).Raw("options", choices).End()
}

// SetMode returns the session/set_mode that a session/set_config_option of the option for
// modes stands for, and false when it is about an option of the agent's own.
func SetMode(m *acp.Message, options, modes json.RawMessage) (acp.Message, bool) {
	if rawjson.MemberString(m.Params(), "configId") != ModeOption || len(modes) == 0 {
		return acp.Message{}, false
	}
	for _, o := range rawjson.Elements(options) {
		if coversModes(o) {
			return acp.Message{}, false
		}
	}
	value, ok := rawjson.Member(m.Params(), "value")
	if !ok || value[0] != '"' {
		return acp.Message{}, false
	}
	params := rawjson.Object{}.String("sessionId", m.Session()).Raw("modeId", value)
	return acp.NewRequest(m.ID(), acp.MethodSessionSetMode, withMeta(params, m.Params()).End()), true
}

// raiseCommands returns a list of commands as version 2 has it.
func raiseCommands(commands json.RawMessage) json.RawMessage {
	return list(commands, func(c json.RawMessage) json.RawMessage {
		c = withoutNulls(c, "input")
		if input, ok := rawjson.Member(c, "input"); ok && input[0] == '{' {
			if _, typed := rawjson.Member(input, "type"); !typed {
				c = rawjson.SetMember(c, []byte(`"text"`), "input", "type")
			}
		}
		if _, typed := rawjson.Member(c, "type"); !typed {
			c = rawjson.SetMember(c, []byte(`"command"`), "type")
		}
		return c
	})
}
