package agent

import (
	"context"
	"slices"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/schema"
)

// option is a setting of a session with a choice of values.
type option struct {
	id, name string
	category schema.SessionConfigOptionCategory
	values   []value // the first is the default
}

type value struct{ id, name, description string }

const (
	optionMode = "mode"
	modePlan   = "plan" // changes nothing
)

var options = []option{
	{optionMode, "Mode", schema.SessionConfigOptionCategoryMode, []value{
		{"ask", "Ask", "Asks before it changes anything"},
		{"code", "Code", "Changes files"},
		{modePlan, "Plan", "Only plans"},
	}},
	{"model", "Model", schema.SessionConfigOptionCategoryModel, []value{
		{"mock-small", "Mock Small", "Does nothing quickly"},
		{"mock-large", "Mock Large", "Does nothing thoroughly"},
	}},
	{"thought_level", "Thought level", schema.SessionConfigOptionCategoryThoughtLevel, []value{
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

func (s *session) modes() *schema.SessionModeState {
	m := &schema.SessionModeState{CurrentModeID: schema.SessionModeID(s.config()[optionMode])}
	for _, v := range options[0].values {
		m.AvailableModes = append(m.AvailableModes, schema.SessionMode{
			ID: schema.SessionModeID(v.id), Name: v.name, Description: new(v.description),
		})
	}
	return m
}

func (s *session) configOptions() []schema.SessionConfigOption {
	chosen := s.config()
	out := make([]schema.SessionConfigOption, 0, len(options))
	for _, o := range options {
		sel := &schema.SessionConfigSelect{CurrentValue: schema.SessionConfigValueID(chosen[o.id])}
		for _, v := range o.values {
			c := schema.SessionConfigSelectOption{Value: schema.SessionConfigValueID(v.id), Name: v.name}
			if v.description != "" {
				c.Description = &v.description
			}
			sel.Options.Ungrouped = append(sel.Options.Ungrouped, c)
		}
		out = append(out, schema.SessionConfigOption{
			ID: schema.SessionConfigID(o.id), Name: o.name, Category: o.category, Select: sel,
		})
	}
	return out
}

// SetSessionMode sets the option mode by its other name.
func (a *agent) SetSessionMode(_ context.Context, r *schema.SetSessionModeRequest) (*schema.SetSessionModeResponse, error) {
	s, err := a.session(r.SessionID)
	if err != nil {
		return nil, err
	}
	return nil, a.set(s, optionMode, string(r.ModeID))
}

// SetSessionConfigOption sets one option and answers with all of them.
func (a *agent) SetSessionConfigOption(_ context.Context, r *schema.SetSessionConfigOptionRequest) (*schema.SetSessionConfigOptionResponse, error) {
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
	return &schema.SetSessionConfigOptionResponse{ConfigOptions: s.configOptions()}, nil
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
		u := schema.SessionUpdate{CurrentModeUpdate: &schema.CurrentModeUpdate{CurrentModeID: schema.SessionModeID(to)}}
		if err := s.record(a.lines, u); err != nil {
			return err
		}
	}
	return s.record(a.lines, schema.SessionUpdate{ConfigOptionUpdate: &schema.ConfigOptionUpdate{ConfigOptions: s.configOptions()}})
}
