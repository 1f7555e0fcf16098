package amp

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
	"sandboxagent.dev/sandbox-agent/internal/process"
)

const configMode = "mode"

// The modes that the program chooses when it is told none.
const (
	modeSmart  = "smart"  // until the loop moved to the server
	modeMedium = "medium" // since then
)

// helpBound limits how long the program may take to print its help.
const helpBound = 15 * time.Second

// told are the modes by program; nothing but a program that is replaced under its
// path makes them wrong, and then a mode that is refused says so.
var told sync.Map // path and version to []string

// modesOf asks the program for its modes, once. nil when it does not tell.
func modesOf(ctx context.Context, p adapters.Program, env []string) []string {
	key := p.Path + "\x00" + p.Version
	if known, ok := told.Load(key); ok {
		return known.([]string)
	}
	ctx, cancel := context.WithTimeout(ctx, helpBound)
	defer cancel()
	out, err := bridge.Output(ctx, process.Spec{Path: p.Path, Args: append(slices.Clone(p.Args), "--help"), Env: env})
	if err != nil {
		return nil
	}
	list := modesIn(out)
	if len(list) > 0 {
		told.Store(key, list)
	}
	return list
}

var (
	modeHelp = regexp.MustCompile(`Set the agent mode \(([^)]*)\)`)
	modeWord = regexp.MustCompile(`^[a-z][a-z0-9-]*$`)
)

// modesIn finds the modes in the program's help.
func modesIn(help string) []string {
	m := modeHelp.FindStringSubmatch(strings.Join(strings.Fields(help), " "))
	if m == nil {
		return nil
	}
	var out []string
	for word := range strings.SplitSeq(m[1], ", ") {
		if modeWord.MatchString(word) && !slices.Contains(out, word) && word != "case-insensitive" {
			out = append(out, word)
		}
	}
	return out
}

// usual is the mode that the program has when it is told none.
func usual(version string) string {
	if onServer(version) {
		return modeMedium
	}
	return modeSmart
}

// modeState lists the modes.
func (s *session) modeState() *acp.SessionModeState {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := bridge.FirstOf(s.mode, usual(s.a.o.Program.Version))
	out := &acp.SessionModeState{CurrentModeID: acp.SessionModeID(now)}
	list := s.modes
	if !slices.Contains(list, now) {
		list = append(slices.Clone(list), now)
	}
	for _, m := range list {
		out.AvailableModes = append(out.AvailableModes, acp.SessionMode{ID: acp.SessionModeID(m), Name: strings.ToUpper(m[:1]) + m[1:]})
	}
	return out
}

func (s *session) options() []acp.SessionConfigOption {
	return []acp.SessionConfigOption{bridge.ModeOption(configMode, s.modeState())}
}

// setMode changes the mode: by another process, which must begin.
func (s *session) setMode(ctx context.Context, want string) error {
	state := s.modeState()
	i := slices.IndexFunc(state.AvailableModes, func(m acp.SessionMode) bool { return string(m.ID) == want })
	if i < 0 {
		var ids []string
		for _, m := range state.AvailableModes {
			ids = append(ids, string(m.ID))
		}
		return acp.Errorf(acp.CodeInvalidParams, "there is no mode %q, it is one of %s", want, strings.Join(ids, ", "))
	}
	if want == string(state.CurrentModeID) {
		return nil
	}
	select {
	case s.slot <- struct{}{}:
		defer func() { <-s.slot }()
	default:
		return acp.Errorf(acp.CodeInvalidRequest, "amp's mode cannot change while a turn runs")
	}
	s.mu.Lock()
	said := s.said
	s.mu.Unlock()
	if said && !onServer(s.a.o.Program.Version) {
		return acp.Errorf(acp.CodeInvalidRequest, "amp keeps the mode %s that a thread began with: make another session for mode %s", state.CurrentModeID, want)
	}
	before := s.become(want)
	p, err := s.spawn(ctx)
	if err == nil {
		err = s.begun(ctx, p, nil)
	}
	if err != nil {
		s.become(before)
		words := err.Error()
		if e, ok := errors.AsType[*acp.Error](err); ok {
			words = e.Message
		}
		return acp.Errorf(acp.CodeInvalidRequest, "amp refuses mode %s: %s", want, words)
	}
	s.keep()
	s.emit(func(*translator) []acp.SessionUpdate {
		return []acp.SessionUpdate{
			{CurrentModeUpdate: &acp.CurrentModeUpdate{CurrentModeID: acp.SessionModeID(want)}},
			{ConfigOptionUpdate: &acp.ConfigOptionUpdate{ConfigOptions: s.options()}},
		}
	})
	return nil
}

// become notes a mode and has the process ended that has another one.
func (s *session) become(mode string) (before string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, s.mode = s.mode, mode
	if s.p != nil {
		s.p.over = true
	}
	return before
}

// SetSessionMode sets the mode.
func (a *agent) SetSessionMode(ctx context.Context, r *acp.SetSessionModeRequest) (*acp.SetSessionModeResponse, error) {
	s, err := a.session(r.SessionID)
	if err != nil {
		return nil, err
	}
	return nil, s.setMode(ctx, string(r.ModeID))
}

// SetSessionConfigOption sets the mode.
func (a *agent) SetSessionConfigOption(ctx context.Context, r *acp.SetSessionConfigOptionRequest) (*acp.SetSessionConfigOptionResponse, error) {
	s, err := a.session(r.SessionID)
	if err != nil {
		return nil, err
	}
	value, ok := r.ValueID()
	if !ok || r.ConfigID != configMode {
		return nil, acp.Errorf(acp.CodeInvalidParams, "there is one option, %s, and its value is the id of a mode", configMode)
	}
	if err := s.setMode(ctx, string(value)); err != nil {
		return nil, err
	}
	return &acp.SetSessionConfigOptionResponse{ConfigOptions: s.options()}, nil
}
