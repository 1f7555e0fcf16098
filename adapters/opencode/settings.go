package opencode

import (
	"context"
	"slices"
	"strings"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

// The ids of the config options.
const (
	configMode   = "mode"
	configModel  = "model"
	configEffort = "effort"
)

// noVariant is the effort that a model has when none is asked for.
const noVariant = "default"

// settings are what clients choose of a session. They go with every prompt:
// OpenCode would go on with those of the prompt before, wrong ones too.
type settings struct {
	*catalog
	mode    string
	model   string // its key; "" when there is none to choose
	variant string // "" for none
	works   string // the mode of the newest message of the call that OpenCode works on; "" before there is one
}

// current is the model in effect, nil for one that is not listed.
func (s *settings) current() *model { return s.find(s.model) }

// pick brings the settings to what is known of a session, as far as it is there.
func (s *settings) pick(mode, model, variant string) {
	s.mode, s.model, s.variant = s.first, s.fallback, ""
	if s.hasMode(mode) {
		s.mode = mode
	}
	if s.find(model) != nil {
		s.model = model
	}
	if m := s.current(); m != nil && slices.Contains(m.variants, variant) {
		s.variant = variant
	}
}

func (s *settings) hasMode(name string) bool {
	return slices.ContainsFunc(s.modes, func(m mode) bool { return m.Name == name })
}

func (s *settings) modeNames() []string {
	var out []string
	for _, m := range s.modes {
		out = append(out, m.Name)
	}
	return out
}

func (s *settings) state() *schema.SessionModeState {
	out := &schema.SessionModeState{CurrentModeID: schema.SessionModeID(s.mode), AvailableModes: []schema.SessionMode{}}
	for _, m := range s.modes {
		one := schema.SessionMode{ID: schema.SessionModeID(m.Name), Name: title(m.Name)}
		if m.Description != "" {
			one.Description = &m.Description
		}
		out.AvailableModes = append(out.AvailableModes, one)
	}
	return out
}

func title(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

func (s *settings) options() []schema.SessionConfigOption {
	out := []schema.SessionConfigOption{bridge.ModeOption(configMode, s.state())}
	if s.model == "" {
		return out
	}
	models := make([]bridge.Choice, 0, len(s.models))
	for i := range s.models {
		m := &s.models[i]
		models = append(models, bridge.Choice{Value: m.key(), Name: bridge.FirstOf(m.name, m.id)})
	}
	out = append(out, bridge.ModelOption(configModel, s.model, models))
	if m := s.current(); m != nil && len(m.variants) > 0 {
		levels := append([]string{noVariant}, m.variants...)
		out = append(out, bridge.EffortOption(configEffort, "Effort", bridge.FirstOf(s.variant, noVariant), levels))
	}
	return out
}

func (s *session) options() []schema.SessionConfigOption {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.set.options()
}

func (s *session) modes() *schema.SessionModeState {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.set.state()
}

// switched takes another mode that OpenCode itself has gone over to. sent says that the message was sent
// from here. Others, such as those of a compaction, have the mode of the message before: it counts only
// where it differs from that, and where the client has not chosen another one since.
func (s *session) switched(mode string, sent bool) {
	s.mu.Lock()
	before := s.set.works
	s.set.works = mode
	changed := !sent && before != "" && before != mode && before == s.set.mode && s.set.hasMode(mode)
	if changed {
		s.set.mode = mode
	}
	s.mu.Unlock()
	if changed {
		s.keep(func(r *record) { r.Mode = mode })
		s.show(true)
	}
}

// show tells the clients what is in effect.
func (s *session) show(mode bool) {
	s.emit(func(*translator) []schema.SessionUpdate {
		s.mu.Lock()
		defer s.mu.Unlock()
		var out []schema.SessionUpdate
		if mode {
			out = append(out, schema.SessionUpdate{CurrentModeUpdate: &schema.CurrentModeUpdate{CurrentModeID: schema.SessionModeID(s.set.mode)}})
		}
		return append(out, schema.SessionUpdate{ConfigOptionUpdate: &schema.ConfigOptionUpdate{ConfigOptions: s.set.options()}})
	})
}

func (s *session) setMode(want string) error {
	s.mu.Lock()
	known, changed := s.set.hasMode(want), s.set.mode != want
	var names []string
	for _, m := range s.set.modes {
		names = append(names, m.Name)
	}
	if known {
		s.set.mode = want
	}
	s.mu.Unlock()
	if !known {
		return bridge.NoMode("there is no mode %q, it is one of %s", want, strings.Join(names, ", "))
	}
	s.keep(func(r *record) { r.Mode = want })
	if changed {
		s.show(true)
	}
	return nil
}

// namedModels bounds the models that an error names.
const namedModels = 20

func (s *session) setModel(want string) error {
	s.mu.Lock()
	m := s.set.find(want)
	var names []string
	for i := range s.set.models {
		if i == namedModels {
			names = append(names, "...")
			break
		}
		names = append(names, s.set.models[i].key())
	}
	if m != nil {
		s.set.model = m.key()
		if !slices.Contains(m.variants, s.set.variant) {
			s.set.variant = ""
		}
	}
	model, variant := s.set.model, s.set.variant
	s.mu.Unlock()
	if m == nil {
		return acp.Errorf(acp.CodeInvalidParams, "there is no model %q, it is one of %s", want, strings.Join(names, ", "))
	}
	s.keep(func(r *record) { r.Model, r.Variant = model, variant })
	s.show(false)
	return nil
}

func (s *session) setEffort(want string) error {
	s.mu.Lock()
	levels := []string{noVariant}
	if m := s.set.current(); m != nil {
		levels = append(levels, m.variants...)
	}
	known := slices.Contains(levels, want)
	if want == noVariant {
		want = ""
	}
	if known {
		s.set.variant = want
	}
	s.mu.Unlock()
	if !known {
		return acp.Errorf(acp.CodeInvalidParams, "the model has no effort %q, it is one of %s", want, strings.Join(levels, ", "))
	}
	s.keep(func(r *record) { r.Variant = want })
	s.show(false)
	return nil
}

// SetSessionMode sets the mode.
func (a *agent) SetSessionMode(_ context.Context, r *schema.SetSessionModeRequest) (*schema.SetSessionModeResponse, error) {
	s, err := a.session(r.SessionID)
	if err != nil {
		return nil, err
	}
	return nil, s.setMode(string(r.ModeID))
}

// SetSessionConfigOption sets the mode, the model or the effort.
func (a *agent) SetSessionConfigOption(_ context.Context, r *schema.SetSessionConfigOptionRequest) (*schema.SetSessionConfigOptionResponse, error) {
	s, err := a.session(r.SessionID)
	if err != nil {
		return nil, err
	}
	value, ok := r.ValueID()
	if !ok {
		return nil, acp.Errorf(acp.CodeInvalidParams, "the value of %s must be the id of one of its options", r.ConfigID)
	}
	switch r.ConfigID {
	case configMode:
		err = s.setMode(string(value))
	case configModel:
		err = s.setModel(string(value))
	case configEffort:
		err = s.setEffort(string(value))
	default:
		err = acp.Errorf(acp.CodeInvalidParams, "there is no option %q, it is one of %s, %s, %s", r.ConfigID, configMode, configModel, configEffort)
	}
	if err != nil {
		return nil, err
	}
	return &schema.SetSessionConfigOptionResponse{ConfigOptions: s.options()}, nil
}
