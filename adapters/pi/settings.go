package pi

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

// The ids of the config options.
const (
	configMode     = "mode"
	configModel    = "model"
	configThinking = "thought_level"
)

// settings are what clients choose of a session. Models and levels are read from
// Pi.
type settings struct {
	mode     string
	models   []model
	model    string // the value of the one in effect
	thinking string
	levels   []string
}

// atLeast reports whether a version is that one or newer.
func atLeast(version string, want ...int) bool {
	parts := strings.SplitN(version, ".", len(want))
	for i, least := range want {
		if i >= len(parts) {
			return false
		}
		digits, _, _ := strings.Cut(parts[i], "-")
		n, err := strconv.Atoi(digits)
		if err != nil || n < least {
			return false
		}
		if n > least {
			return true
		}
	}
	return true
}

// keepsToItself reports whether Pi, told of a model or a level, leaves the user's
// settings alone.
func (s *session) keepsToItself() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return atLeast(s.version, 0, 84, 3)
}

// readState asks Pi for what is in effect and what can be chosen. One asks at a time: what Pi says last counts.
func (s *session) readState(ctx context.Context, p *program) error {
	select {
	case s.reading <- struct{}{}:
		defer func() { <-s.reading }()
	case <-ctx.Done():
		return ctx.Err()
	}
	s.mu.Lock()
	told := s.levelled
	s.mu.Unlock()
	var now state
	if err := p.ask(ctx, "get_state", nil, &now); err != nil {
		return err
	}
	return s.readModels(ctx, p, &now, told)
}

// readModels asks Pi for what can be chosen, and takes what is in effect. Pi said that when it had told of its level told times.
func (s *session) readModels(ctx context.Context, p *program, now *state, told int) error {
	var list struct {
		Models []model `json:"models"`
	}
	if err := p.ask(ctx, "get_available_models", nil, &list); err != nil {
		return fmt.Errorf("ask pi for its models: %w", err)
	}
	var levels struct {
		Levels []string `json:"levels"`
	}
	if err := p.ask(ctx, "get_available_thinking_levels", nil, &levels); err != nil {
		// An early version has no such command. Models that reason take these.
		if now.Model != nil && now.Model.Reasoning {
			levels.Levels = []string{"off", "minimal", "low", "medium", "high"}
		}
	}
	s.mu.Lock()
	if s.prog != p {
		s.mu.Unlock()
		return nil // another one has taken its place
	}
	s.set.models, s.set.levels, s.set.model = list.Models, levels.Levels, ""
	if s.levelled == told {
		s.set.thinking = now.Thinking
	}
	if !now.Model.none() {
		s.set.model = now.Model.value()
		if !slices.ContainsFunc(list.Models, func(m model) bool { return m.value() == s.set.model }) {
			s.set.models = append(s.set.models, *now.Model)
		}
	}
	s.mu.Unlock()
	if now.Model != nil {
		s.out.Lock()
		s.tr.usage.size = now.Model.Window
		s.out.Unlock()
	}
	return nil
}

// noModel reports that there is nothing to talk to.
func (s *session) noModel() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.set.model == "" && len(s.set.models) == 0
}

func (s *session) mode() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.set.mode
}

// modeState lists the modes. Without the gate there is only one.
func (s *session) modes() *schema.SessionModeState {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.modesLocked()
}

func (s *session) modesLocked() *schema.SessionModeState {
	out := &schema.SessionModeState{CurrentModeID: schema.SessionModeID(s.set.mode)}
	for _, m := range modes {
		if s.gated || m.id == s.set.mode {
			out.AvailableModes = append(out.AvailableModes, schema.SessionMode{ID: schema.SessionModeID(m.id), Name: m.name, Description: &m.about})
		}
	}
	return out
}

func (s *session) options() []schema.SessionConfigOption {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := []schema.SessionConfigOption{bridge.ModeOption(configMode, s.modesLocked())}
	if len(s.set.models) > 0 {
		var list []bridge.Choice
		for _, m := range s.set.models {
			list = append(list, bridge.Choice{Value: m.value(), Name: bridge.FirstOf(m.Name, m.ID), About: m.Provider})
		}
		out = append(out, bridge.ModelOption(configModel, s.set.model, list))
	}
	if len(s.set.levels) > 1 && slices.Contains(s.set.levels, s.set.thinking) {
		out = append(out, bridge.EffortOption(configThinking, "Thinking", s.set.thinking, s.set.levels))
	}
	return out
}

// setMode changes what is asked for, at once.
func (s *session) setMode(mode string) error {
	s.mu.Lock()
	var ids []string
	for _, m := range s.modesLocked().AvailableModes {
		ids = append(ids, string(m.ID))
	}
	ok := slices.Contains(ids, mode)
	changed := ok && s.set.mode != mode
	if ok {
		s.set.mode = mode
	}
	s.mu.Unlock()
	if !ok {
		why := ""
		if modeKnown(mode) {
			why = ": this session runs without the permission gate"
		}
		return bridge.NoMode("there is no mode %q, it is one of %s%s", mode, strings.Join(ids, ", "), why)
	}
	if !changed {
		return nil
	}
	s.keep(func(r *record) { r.Mode = bridge.In(mode, s.launch.PermissionMode) })
	s.emit(func(*translator) []schema.SessionUpdate {
		return []schema.SessionUpdate{{CurrentModeUpdate: &schema.CurrentModeUpdate{CurrentModeID: schema.SessionModeID(mode)}}}
	})
	s.showOptions()
	return nil
}

// setModel changes the model and checks that it is in effect.
func (s *session) setModel(ctx context.Context, want string) error {
	s.mu.Lock()
	var row *model
	var known []string
	for i, m := range s.set.models {
		known = append(known, m.value())
		if m.value() == want || row == nil && m.ID == want {
			row = &s.set.models[i]
		}
	}
	s.mu.Unlock()
	if row == nil {
		return acp.Errorf(acp.CodeInvalidParams, "there is no model %q, it is one of %s", want, strings.Join(known, ", "))
	}
	chosen := row.value()
	apply := func(p *program) error {
		return p.ask(ctx, "set_model", map[string]any{"provider": row.Provider, "modelId": row.ID}, nil)
	}
	err := s.choose(ctx, "the model", apply, func(r *record) { r.Model = chosen })
	if err != nil {
		return err
	}
	s.mu.Lock()
	now := s.set.model
	s.mu.Unlock()
	if now != chosen {
		return acp.Errorf(acp.CodeInternal, "pi stays with model %s instead of %s", now, chosen)
	}
	return nil
}

// setThinking changes the level of thinking and checks that it is in effect: Pi
// takes any name.
func (s *session) setThinking(ctx context.Context, want string) error {
	s.mu.Lock()
	levels := s.set.levels
	s.mu.Unlock()
	if !slices.Contains(levels, want) {
		return acp.Errorf(acp.CodeInvalidParams, "the model has no thinking level %q, it is one of %s", want, strings.Join(levels, ", "))
	}
	apply := func(p *program) error {
		return p.ask(ctx, "set_thinking_level", map[string]any{"level": want}, nil)
	}
	if err := s.choose(ctx, "the thinking level", apply, func(r *record) { r.Thinking = want }); err != nil {
		return err
	}
	s.mu.Lock()
	now := s.set.thinking
	s.mu.Unlock()
	if now != want {
		return acp.Errorf(acp.CodeInternal, "pi stays with thinking level %s instead of %s", now, want)
	}
	return nil
}

// choose makes a choice take effect: by telling Pi, or, where Pi would write it
// into the user's settings, by a new process that is started with it.
func (s *session) choose(ctx context.Context, what string, apply func(p *program) error, remember func(r *record)) error {
	if !s.keepsToItself() {
		was := s.record()
		s.keep(remember)
		if err := s.replace(ctx, what, chosen(s.record())...); err != nil {
			s.keep(func(r *record) { r.Model, r.Thinking = was.Model, was.Thinking })
			return err
		}
		s.showOptions()
		return nil
	}
	p := s.program()
	if p == nil {
		return errStarting
	}
	if err := apply(p); err != nil {
		return fmt.Errorf("set %s: %w", what, err)
	}
	if err := s.readState(ctx, p); err != nil {
		return err
	}
	s.keep(remember)
	s.showOptions()
	return nil
}

// SetSessionMode sets the mode.
func (a *agent) SetSessionMode(_ context.Context, r *schema.SetSessionModeRequest) (*schema.SetSessionModeResponse, error) {
	s, err := a.sessions.Get(r.SessionID)
	if err != nil {
		return nil, err
	}
	return nil, s.setMode(string(r.ModeID))
}

// SetSessionConfigOption sets the mode, the model or the level of thinking.
func (a *agent) SetSessionConfigOption(ctx context.Context, r *schema.SetSessionConfigOptionRequest) (*schema.SetSessionConfigOptionResponse, error) {
	s, err := a.sessions.Get(r.SessionID)
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
		err = s.setModel(ctx, string(value))
	case configThinking:
		err = s.setThinking(ctx, string(value))
	default:
		err = acp.Errorf(acp.CodeInvalidParams, "there is no option %q, it is one of %s, %s, %s", r.ConfigID, configMode, configModel, configThinking)
	}
	if err != nil {
		return nil, err
	}
	return &schema.SetSessionConfigOptionResponse{ConfigOptions: s.options()}, nil
}
