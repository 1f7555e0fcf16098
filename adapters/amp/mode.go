package amp

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"sandboxagent.dev/sandbox-agent/internal/pattern"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
	"sandboxagent.dev/sandbox-agent/internal/process"
)

const configMode = "mode"

// The modes that the program chooses when it is told none.
const (
	modeSmart  = "smart"  // until the loop moved to the server
	modeMedium = "medium" // since then
)

// helpBound limits how long the program may take to tell of itself.
const helpBound = 30 * time.Second

// facts are what a program tells of itself.
type facts struct {
	version string // "" when it does not tell
	modes   []string
}

// told are the facts by program, as it was when it was asked.
var told sync.Map // path, version and time of change to facts

// ask asks the program for its version, unless that is known, and its modes, once. The modes may come later than the
// version: rest waits for them, and must be called. They come no more when ctx has ended.
func (a *agent) ask(ctx context.Context) (version string, rest func() []string) {
	p := a.o.Program
	script := p.Path
	if len(p.Args) > 0 {
		script = p.Args[len(p.Args)-1]
	}
	key := strings.Join([]string{p.Path, script, p.Version}, "\x00")
	if info, err := os.Stat(script); err == nil {
		key += info.ModTime().String()
	}
	if known, ok := told.Load(key); ok {
		f := known.(facts)
		return f.version, func() []string { return f.modes }
	}
	run := func(flag string) string {
		ctx, cancel := bridge.Within(ctx, helpBound)
		defer cancel()
		out, err := bridge.Output(ctx, process.Spec{Path: p.Path, Args: append(slices.Clone(p.Args), flag), Env: a.environ()})
		if err != nil {
			a.log.Debug("ask amp about itself", "flag", flag, "err", err)
			return ""
		}
		return out
	}
	var modes []string
	var asking sync.WaitGroup
	asking.Go(func() { modes = modesIn(run("--help")) })
	if version = bridge.FirstOf(p.Version, packageVersion(script)); version == "" {
		version = versionForm.FindString(run("--version"))
	}
	return version, func() []string {
		asking.Wait()
		if len(modes) > 0 {
			told.Store(key, facts{version, modes})
		}
		return modes
	}
}

// packageVersion is the version of the npm package that a script lies in, "" when
// it lies in none of Amp's. To ask the program takes a second.
func packageVersion(script string) string {
	real, err := filepath.EvalSymlinks(script)
	if err != nil {
		return ""
	}
	for dir := filepath.Dir(real); ; dir = filepath.Dir(dir) {
		if b, err := os.ReadFile(filepath.Join(dir, "package.json")); err == nil {
			if name := rawjson.MemberString(b, "name"); name != "@sourcegraph/amp" && !strings.HasPrefix(name, "@ampcode/cli") {
				return ""
			}
			return versionForm.FindString(rawjson.MemberString(b, "version"))
		}
		if dir == filepath.Dir(dir) {
			return ""
		}
	}
}

var versionForm = pattern.New(`\b0\.0\.\d+(-g\w+)?`)

var (
	modeHelp = pattern.New(`Set the agent mode \(([^)]*)\)`)
	modeWord = pattern.New(`^[a-z][a-z0-9-]*$`)
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

// usualMode is the mode that a program has when it is told none.
func usualMode(version string) string {
	if onServer(version) {
		return modeMedium
	}
	return modeSmart
}

// modeState lists the modes.
func (s *session) modeState() *schema.SessionModeState {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := bridge.FirstOf(s.mode, usualMode(s.version))
	out := &schema.SessionModeState{CurrentModeID: schema.SessionModeID(now)}
	list := s.modes
	if !slices.Contains(list, now) {
		list = append(slices.Clone(list), now)
	}
	for _, m := range list {
		out.AvailableModes = append(out.AvailableModes, schema.SessionMode{ID: schema.SessionModeID(m), Name: strings.ToUpper(m[:1]) + m[1:]})
	}
	return out
}

func (s *session) options() []schema.SessionConfigOption {
	return []schema.SessionConfigOption{bridge.ModeOption(configMode, s.modeState())}
}

// setMode changes the mode: by another process, which must begin.
func (s *session) setMode(ctx context.Context, want string) error {
	state := s.modeState()
	i := slices.IndexFunc(state.AvailableModes, func(m schema.SessionMode) bool { return string(m.ID) == want })
	if i < 0 {
		var ids []string
		for _, m := range state.AvailableModes {
			ids = append(ids, string(m.ID))
		}
		return bridge.NoMode("there is no mode %q, it is one of %s", want, strings.Join(ids, ", "))
	}
	if want == string(state.CurrentModeID) {
		return nil
	}
	release, ok := s.turns.Hold()
	if !ok {
		return acp.Errorf(acp.CodeInvalidRequest, "amp's mode cannot change while a turn runs")
	}
	defer release()
	s.mu.Lock()
	said := s.said
	s.mu.Unlock()
	if said && !onServer(s.version) {
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
	s.emit(func(*translator) []schema.SessionUpdate {
		return []schema.SessionUpdate{
			{CurrentModeUpdate: &schema.CurrentModeUpdate{CurrentModeID: schema.SessionModeID(want)}},
			{ConfigOptionUpdate: &schema.ConfigOptionUpdate{ConfigOptions: s.options()}},
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
func (a *agent) SetSessionMode(ctx context.Context, r *schema.SetSessionModeRequest) (*schema.SetSessionModeResponse, error) {
	s, err := a.sessions.Get(r.SessionID)
	if err != nil {
		return nil, err
	}
	return nil, s.setMode(ctx, string(r.ModeID))
}

// SetSessionConfigOption sets the mode.
func (a *agent) SetSessionConfigOption(ctx context.Context, r *schema.SetSessionConfigOptionRequest) (*schema.SetSessionConfigOptionResponse, error) {
	s, err := a.sessions.Get(r.SessionID)
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
	return &schema.SetSessionConfigOptionResponse{ConfigOptions: s.options()}, nil
}
