package codex

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
	configEffort = "reasoning_effort"
)

// The modes.
const (
	modeReadOnly   = "read-only"
	modeAgent      = "agent"
	modeFullAccess = "full-access"
	modePlan       = "plan"
)

const (
	approvalAsk   = "on-request"
	approvalNever = "never"
)

// model is a row of codex's list of models.
type model struct {
	Model       string   `json:"model"`
	Name        string   `json:"displayName"`
	Description string   `json:"description"`
	Hidden      bool     `json:"hidden"`
	Effort      string   `json:"defaultReasoningEffort"`
	Efforts     []effort `json:"supportedReasoningEfforts"`
}

type effort struct {
	Effort string `json:"reasoningEffort"`
}

// settings are what clients choose of a session. They are read from codex.
type settings struct {
	models   []model
	model    string
	effort   string // "" for the model's own
	mode     string
	base     string // the mode without the plan
	confined error  // why commands cannot be confined
}

var modeInfo = []struct{ id, name, about string }{
	{modeReadOnly, "Read only", "Reads and runs commands that change nothing; asks before it changes files or uses the network"},
	{modeAgent, "Agent", "Edits files in the workspace and runs commands there; asks before it does more"},
	{modeFullAccess, "Full access", "Does everything without asking, with network access"},
	{modePlan, "Plan", "Asks questions, makes a plan and changes nothing"},
}

func (s *settings) modes() *schema.SessionModeState {
	out := &schema.SessionModeState{CurrentModeID: schema.SessionModeID(s.mode)}
	known := false
	for _, m := range modeInfo {
		about := m.about
		if s.confined != nil && m.id != modeFullAccess {
			about += ". On this machine commands fail in this mode: " + s.confined.Error()
		}
		known = known || m.id == s.mode
		out.AvailableModes = append(out.AvailableModes, schema.SessionMode{ID: schema.SessionModeID(m.id), Name: m.name, Description: &about})
	}
	if !known {
		out.AvailableModes = append(out.AvailableModes, schema.SessionMode{ID: schema.SessionModeID(s.mode), Name: s.mode, Description: new("As codex is configured")})
	}
	return out
}

// current is the row of the model in effect.
func (s *settings) current() *model {
	for i := range s.models {
		if s.models[i].Model == s.model {
			return &s.models[i]
		}
	}
	return nil
}

// efforts are the levels of the model in effect, with the chosen one.
func (s *settings) efforts() []string {
	var list []string
	if m := s.current(); m != nil {
		for _, e := range m.Efforts {
			list = append(list, e.Effort)
		}
	}
	if e := s.level(); e != "" && !slices.Contains(list, e) {
		list = append(list, e)
	}
	return list
}

// level is the effort in effect, "" when nobody knows.
func (s *settings) level() string {
	if m := s.current(); s.effort == "" && m != nil {
		return m.Effort
	}
	return s.effort
}

func (s *settings) options() []schema.SessionConfigOption {
	out := []schema.SessionConfigOption{bridge.ModeOption(configMode, s.modes())}
	if len(s.models) > 0 {
		var list []bridge.Choice
		for _, m := range s.models {
			list = append(list, bridge.Choice{Value: m.Model, Name: m.Name, About: m.Description})
		}
		out = append(out, bridge.ModelOption(configModel, s.model, list))
	}
	if level := s.level(); level != "" {
		out = append(out, bridge.EffortOption(configEffort, "Reasoning effort", level, s.efforts()))
	}
	return out
}

// take notes what codex says is in effect, and reports whether the mode, and
// whether anything, is another than before.
func (s *settings) take(t *threadSettings) (mode, any bool) {
	before := *s
	if t.Sandbox != nil {
		switch t.Sandbox.Type {
		case "readOnly":
			s.base = modeReadOnly
		case "workspaceWrite":
			s.base = modeAgent
		case "dangerFullAccess":
			s.base = modeFullAccess
		default:
			s.base = t.Sandbox.Type
		}
	}
	if t.Collaboration != nil || s.mode == "" {
		s.mode = s.base
		if t.Collaboration != nil && t.Collaboration.Mode == "plan" {
			s.mode = modePlan
		}
	} else if s.mode != modePlan {
		s.mode = s.base
	}
	if t.Model != "" {
		s.model = t.Model
		if s.current() == nil {
			s.models = append(slices.Clip(s.models), model{Model: t.Model, Name: t.Model})
		}
	}
	s.effort = bridge.FirstOf(t.Effort, s.effort)
	return s.mode != before.mode, s.mode != before.mode || s.model != before.model || s.level() != before.level()
}

// changed takes codex's report of new settings, which also answers ours.
func (s *session) changed(t *threadSettings) {
	if t == nil {
		return
	}
	s.mu.Lock()
	mode, any := s.set.take(t)
	now := s.set.mode
	s.mu.Unlock()
	if any {
		s.show(mode, now)
	}
}

// show tells the clients what is in effect.
func (s *session) show(mode bool, now string) {
	s.emit(func(*translator) []schema.SessionUpdate {
		var out []schema.SessionUpdate
		if mode {
			out = append(out, schema.SessionUpdate{CurrentModeUpdate: &schema.CurrentModeUpdate{CurrentModeID: schema.SessionModeID(now)}})
		}
		return append(out, schema.SessionUpdate{ConfigOptionUpdate: &schema.ConfigOptionUpdate{ConfigOptions: s.options()}})
	})
}

func (s *session) options() []schema.SessionConfigOption {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.set.options()
}

func (s *session) modes() *schema.SessionModeState {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.set.modes()
}

// choose brings about what is wished of a session, or was chosen of it before.
// What native resume drops is given again.
func (s *session) choose(ctx context.Context, up *setup, known record) error {
	s.mu.Lock()
	now := s.set
	s.mu.Unlock()
	if known.Model != "" && known.Model != now.model {
		if err := s.setModel(ctx, known.Model); err != nil {
			s.log.Warn("choose the session's model again", "err", err)
		}
		s.mu.Lock()
		now = s.set // the level is another one with it
		s.mu.Unlock()
	}
	if known.Effort != "" && known.Effort != now.level() {
		if err := s.setEffort(ctx, known.Effort); err != nil {
			s.log.Warn("choose the session's effort again", "err", err)
		}
	}
	if mode := bridge.FirstOf(known.Again(up.PermissionMode), up.mode); mode != "" {
		return s.setMode(ctx, mode, up.approval)
	}
	if now.mode == modeAgent && len(s.roots) > 0 {
		return s.setMode(ctx, modeAgent, up.approval)
	}
	return nil
}

// update changes the settings of the thread, for its next turn.
func (s *session) update(ctx context.Context, what map[string]any) error {
	what["threadId"] = s.thread
	if err := s.srv.call(ctx, "thread/settings/update", what, nil); err != nil {
		if said := refused(err); said != "" {
			return acp.Errorf(acp.CodeInvalidParams, "codex refused: %s", said)
		}
		return err
	}
	return nil
}

// policy is the sandbox of a mode. It is set for a thread that exists: given to
// thread/start, codex would declare the folder trusted in the user's
// configuration.
func (s *session) policy(mode string) *sandboxPolicy {
	no := false
	switch mode {
	case modeAgent:
		roots := s.roots
		if roots == nil {
			roots = []string{}
		}
		return &sandboxPolicy{Type: "workspaceWrite", Writable: roots, Network: &no, NoTmpVar: &no, NoTmp: &no}
	case modeFullAccess:
		return &sandboxPolicy{Type: "dangerFullAccess"}
	}
	return &sandboxPolicy{Type: "readOnly", Network: &no}
}

// setMode changes the mode. approval replaces the mode's own, unless it is "".
func (s *session) setMode(ctx context.Context, mode, approval string) error {
	s.mu.Lock()
	now := s.set
	s.mu.Unlock()
	if !slices.ContainsFunc(modeInfo, func(m struct{ id, name, about string }) bool { return m.id == mode }) {
		if mode == now.mode {
			return nil
		}
		return bridge.NoMode("there is no mode %q, it is one of %s, %s, %s, %s", mode, modeReadOnly, modeAgent, modeFullAccess, modePlan)
	}
	ask := bridge.FirstOf(approval, approvalAsk)
	if mode == modeFullAccess {
		ask = bridge.FirstOf(approval, approvalNever)
	}
	collaboration := "default"
	if mode == modePlan {
		collaboration = "plan"
	}
	what := map[string]any{"sandboxPolicy": s.policy(mode), "approvalPolicy": ask}
	if mode == modePlan || now.mode == modePlan {
		what["collaborationMode"] = map[string]any{"mode": collaboration, "settings": map[string]any{
			"model": now.model, "reasoning_effort": orNull(now.level()), "developer_instructions": nil,
		}}
	}
	if err := s.update(ctx, what); err != nil {
		return err
	}
	s.mu.Lock()
	changed := s.set.mode != mode
	s.set.mode, s.set.base = mode, mode
	if mode == modePlan {
		s.set.base = modeReadOnly
	}
	s.mu.Unlock()
	s.keep(func(r *record) { r.Mode = bridge.In(mode, s.wish) })
	if changed {
		s.show(true, mode)
	}
	return nil
}

func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// setModel changes the model. Codex takes any name, so it is checked here.
func (s *session) setModel(ctx context.Context, want string) error {
	s.mu.Lock()
	var known []string
	for _, m := range s.set.models {
		known = append(known, m.Model)
	}
	i := slices.Index(known, want)
	what := map[string]any{"model": want}
	level := s.set.effort
	if i >= 0 {
		// A level that the model does not have would go to the provider as it is.
		row := &s.set.models[i]
		if level != "" && !slices.Contains(row.Efforts, effort{level}) && row.Effort != "" {
			level = row.Effort
			what["effort"] = level
		}
	}
	s.mu.Unlock()
	if i < 0 {
		return acp.Errorf(acp.CodeInvalidParams, "there is no model %q, it is one of %s", want, strings.Join(known, ", "))
	}
	if err := s.update(ctx, what); err != nil {
		return err
	}
	s.mu.Lock()
	s.set.model, s.set.effort = want, level
	s.mu.Unlock()
	s.keep(func(r *record) { r.Model, r.Effort = want, "" })
	s.show(false, "")
	return nil
}

// setEffort changes the effort.
func (s *session) setEffort(ctx context.Context, want string) error {
	s.mu.Lock()
	levels := s.set.efforts()
	s.mu.Unlock()
	if !slices.Contains(levels, want) {
		return acp.Errorf(acp.CodeInvalidParams, "the model has no effort %q, it is one of %s", want, strings.Join(levels, ", "))
	}
	if err := s.update(ctx, map[string]any{"effort": want}); err != nil {
		return err
	}
	s.mu.Lock()
	s.set.effort = want
	s.mu.Unlock()
	s.keep(func(r *record) { r.Effort = want })
	s.show(false, "")
	return nil
}

// SetSessionMode sets the mode.
func (a *agent) SetSessionMode(ctx context.Context, r *schema.SetSessionModeRequest) (*schema.SetSessionModeResponse, error) {
	s, err := a.session(r.SessionID)
	if err != nil {
		return nil, err
	}
	return nil, s.setMode(ctx, string(r.ModeID), "")
}

// SetSessionConfigOption sets the mode, the model or the effort.
func (a *agent) SetSessionConfigOption(ctx context.Context, r *schema.SetSessionConfigOptionRequest) (*schema.SetSessionConfigOptionResponse, error) {
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
		err = s.setMode(ctx, string(value), "")
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
