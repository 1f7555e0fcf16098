package agent

import (
	"context"
	"slices"

	"sandboxagent.dev/sandbox-agent/acp"
)

// option is a setting of a session with a choice of values.
type option struct {
	id, name string
	category acp.SessionConfigOptionCategory
	values   []value // the first is the default
}

type value struct{ id, name, description string }

const optionMode = "mode"

var options = []option{
	{optionMode, "Mode", acp.SessionConfigOptionCategoryMode, []value{
		{"ask", "Ask", "Asks before it changes anything"},
		{"code", "Code", "Changes files"},
		{"plan", "Plan", "Only plans"},
	}},
	{"model", "Model", acp.SessionConfigOptionCategoryModel, []value{
		{"mock-small", "Mock Small", "Does nothing quickly"},
		{"mock-large", "Mock Large", "Does nothing thoroughly"},
	}},
	{"thought_level", "Thought level", acp.SessionConfigOptionCategoryThoughtLevel, []value{
		{"low", "Low", ""},
		{"medium", "Medium", ""},
		{"high", "High", ""},
	}},
}

func defaultConfig() map[string]string {
	m := make(map[string]string)
	for _, o := range options {
		m[o.id] = o.values[0].id
	}
	return m
}

func (o option) has(id string) bool {
	return slices.ContainsFunc(o.values, func(v value) bool { return v.id == id })
}

func (s *session) modes() *acp.SessionModeState {
	m := &acp.SessionModeState{CurrentModeID: acp.SessionModeID(s.config()[optionMode])}
	for _, v := range options[0].values {
		m.AvailableModes = append(m.AvailableModes, acp.SessionMode{
			ID: acp.SessionModeID(v.id), Name: v.name, Description: new(v.description),
		})
	}
	return m
}

func (s *session) configOptions() []acp.SessionConfigOption {
	chosen := s.config()
	out := make([]acp.SessionConfigOption, 0, len(options))
	for _, o := range options {
		sel := &acp.SessionConfigSelect{CurrentValue: acp.SessionConfigValueID(chosen[o.id])}
		for _, v := range o.values {
			c := acp.SessionConfigSelectOption{Value: acp.SessionConfigValueID(v.id), Name: v.name}
			if v.description != "" {
				c.Description = &v.description
			}
			sel.Options.Ungrouped = append(sel.Options.Ungrouped, c)
		}
		out = append(out, acp.SessionConfigOption{
			ID: acp.SessionConfigID(o.id), Name: o.name, Category: o.category, Select: sel,
		})
	}
	return out
}

// SetSessionMode sets the option mode by its other name.
func (a *agent) SetSessionMode(_ context.Context, r *acp.SetSessionModeRequest) (*acp.SetSessionModeResponse, error) {
	s, err := a.session(r.SessionID)
	if err != nil {
		return nil, err
	}
	return nil, a.set(s, optionMode, string(r.ModeID))
}

// SetSessionConfigOption sets one option and answers with all of them.
func (a *agent) SetSessionConfigOption(_ context.Context, r *acp.SetSessionConfigOptionRequest) (*acp.SetSessionConfigOptionResponse, error) {
	s, err := a.session(r.SessionID)
	if err != nil {
		return nil, err
	}
	id, ok := r.ValueID()
	if !ok {
		return nil, acp.Errorf(acp.CodeInvalidParams, "option %s takes the id of a value", r.ConfigID)
	}
	if err := a.set(s, string(r.ConfigID), string(id)); err != nil {
		return nil, err
	}
	return &acp.SetSessionConfigOptionResponse{ConfigOptions: s.configOptions()}, nil
}

// set changes an option and tells the client when that changed anything.
func (a *agent) set(s *session, id, to string) error {
	i := slices.IndexFunc(options, func(o option) bool { return o.id == id })
	switch {
	case i < 0:
		return acp.Errorf(acp.CodeInvalidParams, "unknown option %q", id)
	case !options[i].has(to):
		return acp.Errorf(acp.CodeInvalidParams, "unknown value %q of option %s", to, id)
	}
	changed := false
	err := s.change(func(in *info) {
		changed = in.Config[id] != to
		in.Config[id] = to
	})
	if err != nil || !changed {
		return err
	}
	if id == optionMode {
		u := acp.SessionUpdate{CurrentModeUpdate: &acp.CurrentModeUpdate{CurrentModeID: acp.SessionModeID(to)}}
		if err := s.record(a.lines, u); err != nil {
			return err
		}
	}
	return s.record(a.lines, acp.SessionUpdate{ConfigOptionUpdate: &acp.ConfigOptionUpdate{ConfigOptions: s.configOptions()}})
}
