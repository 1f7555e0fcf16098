package claude

import (
	"context"
	"encoding/json"
	"fmt"
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

// model is a row of the program's list of models.
type model struct {
	Value        string   `json:"value"`
	Resolved     string   `json:"resolvedModel"`
	Name         string   `json:"displayName"`
	Description  string   `json:"description"`
	Efforts      []string `json:"supportedEffortLevels"`
	SupportsAuto bool     `json:"supportsAutoMode"`
}

// settings are what clients choose of a session. They are read from the program.
type settings struct {
	models []model
	model  string // the chosen row's value
	effort string
	mode   string
	bypass bool // the program was started so that it can
}

var modeNames = map[string][2]string{
	modeDefault:     {"Ask", "Asks before it edits files or runs commands"},
	modeAcceptEdits: {"Accept edits", "Edits files without asking"},
	modePlan:        {"Plan", "Makes a plan and changes nothing"},
	modeAuto:        {"Auto", "The model decides what needs a permission"},
	modeDontAsk:     {"Don't ask", "Denies whatever is not allowed already"},
	modeBypass:      {"Bypass permissions", "Allows everything"},
}

// modeIDs lists the modes that the session can have now.
func (s *settings) modeIDs() []string {
	ids := []string{modeDefault, modeAcceptEdits, modePlan}
	if m := s.current(); m != nil && m.SupportsAuto {
		ids = append(ids, modeAuto)
	}
	ids = append(ids, modeDontAsk)
	if s.bypass {
		ids = append(ids, modeBypass)
	}
	if s.mode != "" && !slices.Contains(ids, s.mode) {
		ids = append(ids, s.mode)
	}
	return ids
}

func (s *settings) current() *model {
	for i := range s.models {
		if s.models[i].Value == s.model {
			return &s.models[i]
		}
	}
	return nil
}

func (s *settings) modes() *schema.SessionModeState {
	out := &schema.SessionModeState{CurrentModeID: schema.SessionModeID(s.mode)}
	for _, id := range s.modeIDs() {
		m := schema.SessionMode{ID: schema.SessionModeID(id), Name: id}
		if n, ok := modeNames[id]; ok {
			m.Name, m.Description = n[0], &n[1]
		}
		out.AvailableModes = append(out.AvailableModes, m)
	}
	return out
}

func (s *settings) options() []schema.SessionConfigOption {
	out := []schema.SessionConfigOption{bridge.ModeOption(configMode, s.modes())}
	if len(s.models) > 0 {
		var list []bridge.Choice
		for _, m := range s.models {
			list = append(list, bridge.Choice{Value: m.Value, Name: m.Name, About: m.Description})
		}
		out = append(out, bridge.ModelOption(configModel, s.model, list))
	}
	if m := s.current(); m != nil && len(m.Efforts) > 0 && s.effort != "" {
		out = append(out, bridge.EffortOption(configEffort, "Effort", s.effort, s.efforts(m)))
	}
	return out
}

// efforts are the levels of a model, with the one in effect.
func (s *settings) efforts(m *model) []string {
	list := slices.DeleteFunc(slices.Clone(m.Efforts), func(e string) bool { return e == "" })
	if s.effort != "" && !slices.Contains(list, s.effort) {
		list = append(list, s.effort)
	}
	return list
}

// applied is what the program says is in effect.
type applied struct {
	Model  string `json:"model"`
	Effort string `json:"effort"`
}

// readSettings asks the program for what is in effect.
func (s *session) readSettings(ctx context.Context) (applied, error) {
	raw, err := s.control(ctx, map[string]any{"subtype": "get_settings"})
	if err != nil {
		return applied{}, err
	}
	var r struct {
		Applied applied `json:"applied"`
	}
	if err := json.Unmarshal(raw, &r); err != nil {
		return applied{}, fmt.Errorf("read the settings in effect: %w", err)
	}
	return r.Applied, nil
}

// take notes what is in effect. The row default stands for whatever model the
// program would choose itself, so it is kept while it resolves to that model.
func (s *settings) take(a applied) {
	s.effort = a.Effort
	if m := s.current(); m != nil && (m.Resolved == a.Model || m.Value == a.Model) || a.Model == "" {
		return
	}
	for _, m := range s.models {
		if m.Resolved == a.Model || m.Value == a.Model {
			s.model = m.Value
			return
		}
	}
	s.models = append(s.models, model{Value: a.Model, Resolved: a.Model, Name: a.Model})
	s.model = a.Model
}

// setMode changes the permission mode. The program takes any name, so it is
// checked here.
func (s *session) setMode(ctx context.Context, mode string) error {
	ids := s.modeIDs()
	if !slices.Contains(ids, mode) {
		why := ""
		if mode == modeBypass {
			why = ": as root, claude allows it only with IS_SANDBOX=1 in its environment"
		}
		return bridge.NoMode("there is no mode %q, it is one of %s%s", mode, strings.Join(ids, ", "), why)
	}
	// The program may leave the mode by itself as soon as it has it.
	tell := func() { s.emit(func(t *translator) []schema.SessionUpdate { return t.modeIs(mode) }) }
	if _, err := s.controlWithin(ctx, controlBound, map[string]any{"subtype": "set_permission_mode", "mode": mode}, tell); err != nil {
		return fmt.Errorf("set mode %s: %w", mode, err)
	}
	return nil
}

func (s *session) modeIDs() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.set.modeIDs()
}

// setModel changes the model and checks that it is in effect.
func (s *session) setModel(ctx context.Context, want string) error {
	s.mu.Lock()
	var row *model
	var known []string
	for i, m := range s.set.models {
		known = append(known, m.Value)
		if m.Value == want || row == nil && m.Resolved == want {
			row = &s.set.models[i]
		}
	}
	s.mu.Unlock()
	if row == nil {
		return acp.Errorf(acp.CodeInvalidParams, "there is no model %q, it is one of %s", want, strings.Join(known, ", "))
	}
	request := map[string]any{"subtype": "set_model", "model": row.Value}
	if row.Value == "default" {
		delete(request, "model")
	}
	if _, err := s.control(ctx, request); err != nil {
		return fmt.Errorf("set model %s: %w", want, err)
	}
	now, err := s.readSettings(ctx)
	if err != nil {
		return err
	}
	if row.Resolved != "" && now.Model != row.Resolved && now.Model != row.Value {
		return acp.Errorf(acp.CodeInternal, "claude stays with model %s instead of %s", now.Model, want)
	}
	s.mu.Lock()
	s.set.model = row.Value
	s.set.take(now)
	s.mu.Unlock()
	s.keep(func(r *record) { r.Model = row.Value })
	s.showOptions()
	return nil
}

// setEffort changes the effort and checks that it is in effect.
func (s *session) setEffort(ctx context.Context, want string) error {
	s.mu.Lock()
	var levels []string
	if m := s.set.current(); m != nil {
		levels = s.set.efforts(m)
	}
	s.mu.Unlock()
	if !slices.Contains(levels, want) {
		return acp.Errorf(acp.CodeInvalidParams, "the model has no effort %q, it is one of %s", want, strings.Join(levels, ", "))
	}
	if _, err := s.control(ctx, map[string]any{"subtype": "apply_flag_settings", "settings": map[string]string{"effortLevel": want}}); err != nil {
		return fmt.Errorf("set effort %s: %w", want, err)
	}
	now, err := s.readSettings(ctx)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.set.effort = now.Effort
	s.mu.Unlock()
	if now.Effort != want {
		return acp.Errorf(acp.CodeInternal, "claude stays with effort %s instead of %s", now.Effort, want)
	}
	s.keep(func(r *record) { r.Effort = want })
	s.showOptions()
	return nil
}

// showOptions tells the clients what is in effect.
func (s *session) showOptions() {
	s.emit(func(*translator) []schema.SessionUpdate {
		return []schema.SessionUpdate{{ConfigOptionUpdate: &schema.ConfigOptionUpdate{ConfigOptions: s.options()}}}
	})
}

func (s *session) options() []schema.SessionConfigOption {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.set.options()
}

// SetSessionMode sets the permission mode.
func (a *agent) SetSessionMode(ctx context.Context, r *schema.SetSessionModeRequest) (*schema.SetSessionModeResponse, error) {
	s, err := a.sessions.Get(r.SessionID)
	if err != nil {
		return nil, err
	}
	return nil, s.setMode(ctx, string(r.ModeID))
}

// SetSessionConfigOption sets the mode, the model or the effort.
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
		err = s.setMode(ctx, string(value))
	case configModel:
		err = s.setModel(ctx, string(value))
	case configEffort:
		err = s.setEffort(ctx, string(value))
	default:
		err = acp.Errorf(acp.CodeInvalidParams, "there is no option %q, it is one of %s, %s, %s", r.ConfigID, configMode, configModel, configEffort)
	}
	if err != nil {
		return nil, err
	}
	return &schema.SetSessionConfigOptionResponse{ConfigOptions: s.options()}, nil
}
