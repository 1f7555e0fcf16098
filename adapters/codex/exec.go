package codex

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
	"sandboxagent.dev/sandbox-agent/internal/process"
)

// oldestServer is the first version whose app-server is known to have all
// requests that this package needs. 0.130 lacks thread/settings/update.
var oldestServer = [3]int{0, 140, 0}

// askBound limits how long a program may take to tell its version.
const askBound = 10 * time.Second

var versionForm = regexp.MustCompile(`(\d+)\.(\d+)\.(\d+)`)

// needsExec reports whether the program has no app-server that this package can
// talk to. A version that is not known is asked for; what cannot be run is left
// to fail where it is started.
func needsExec(ctx context.Context, o adapters.Options) bool {
	version := o.Program.Version
	ask := func(args ...string) (string, error) {
		ctx, cancel := context.WithTimeout(ctx, askBound)
		defer cancel()
		return bridge.Output(ctx, process.Spec{Path: o.Program.Path, Args: append(slices.Clone(o.Program.Args), args...), Env: bridge.Environ(o, nil)})
	}
	if version == "" {
		said, err := ask("--version")
		if err != nil {
			return false
		}
		_, err = ask("app-server", "--help")
		if _, refused := errors.AsType[*adapters.ExitError](err); refused {
			return true
		}
		version = said
	}
	found := versionForm.FindStringSubmatch(version)
	if found == nil {
		return false
	}
	var have [3]int
	for i := range have {
		have[i], _ = strconv.Atoi(found[i+1])
	}
	return slices.Compare(have[:], oldestServer[:]) < 0
}

// lacks is what `codex exec` cannot do, in words for people.
var lacks = []string{
	"it asks nothing: what would need a permission fails, and there are no questions",
	"text and commands are shown when they have ended, and changes of files without their content",
	"no MCP servers, instructions, skills or further settings of the session",
	"no list of sessions, no replay, no fork, no login, no images, no plan mode, no commands",
}

// execAgent is a connection to a program without an app-server: each prompt runs
// `codex exec --json`. Its methods are safe for concurrent use.
type execAgent struct {
	o     adapters.Options
	peer  acp.Peer
	log   *slog.Logger
	store *store

	client   bridge.Client
	sessions *bridge.Sessions[*execSession]
}

var (
	_ acp.Agent        = (*execAgent)(nil)
	_ acp.Resumer      = (*execAgent)(nil)
	_ acp.Closer       = (*execAgent)(nil)
	_ acp.ModeSetter   = (*execAgent)(nil)
	_ acp.ConfigSetter = (*execAgent)(nil)
)

// execSession is a session, whose thread begins with its first prompt.
type execSession struct {
	a    *execAgent
	id   schema.SessionID
	cwd  string
	dirs []string // further folders that it may write to
	slot bridge.Slot
	ctx  context.Context // of everything that the session does
	stop context.CancelFunc
	work sync.WaitGroup

	out sync.Mutex  // guards tr, and orders updates; taken before mu
	tr  *translator // guarded by out

	mu      sync.Mutex
	thread  string // "" until the first prompt
	mode    string
	model   string
	total   tokens // of the thread
	counted bool   // total is known
	titled  bool
}

func newExecAgent(o adapters.Options, p acp.Peer) *execAgent {
	a := &execAgent{o: o, peer: p, log: bridge.Logger(o), store: newStore(o.StateDir), sessions: bridge.NewSessions((*execSession).end)}
	return a
}

// Initialize says in _meta what this connection lacks.
func (a *execAgent) Initialize(_ context.Context, r *schema.InitializeRequest) (*schema.InitializeResponse, error) {
	a.client.Hears(r)
	hello := bridge.Hello("codex", "Codex", a.o)
	hello.AgentCapabilities = &schema.AgentCapabilities{
		PromptCapabilities: &schema.PromptCapabilities{EmbeddedContext: true},
		SessionCapabilities: &schema.SessionCapabilities{
			AdditionalDirectories: &schema.SessionAdditionalDirectoriesCapabilities{},
			Resume:                &schema.SessionResumeCapabilities{}, Close: &schema.SessionCloseCapabilities{},
		},
	}
	hello.Meta = bridge.Meta(a.fallback())
	return hello, nil
}

func (a *execAgent) fallback() map[string]any {
	return map[string]any{"fallback": map[string]any{
		"by": "codex exec --json", "reason": "this version of codex has no app-server that can be used; install " + oldest() + " or newer", "lacks": lacks,
	}}
}

func oldest() string {
	var parts []string
	for _, n := range oldestServer {
		parts = append(parts, strconv.Itoa(n))
	}
	return strings.Join(parts, ".")
}

// NewSession makes a session. Codex hears of it with the first prompt.
func (a *execAgent) NewSession(_ context.Context, r *schema.NewSessionRequest) (*schema.NewSessionResponse, error) {
	s, up, err := a.setUp(schema.SessionID(uuid.NewString()), bridge.Request{Cwd: r.Cwd, Directories: r.AdditionalDirectories, Servers: r.MCPServers, System: r.SystemPrompt, Meta: r.Meta})
	if err != nil {
		return nil, err
	}
	if err := a.store.change(string(s.id), s.cwd, func(r *record) { r.Made, r.Mode = true, s.mode }); err != nil {
		return nil, err
	}
	if err := a.open(s); err != nil {
		return nil, err
	}
	return &schema.NewSessionResponse{SessionID: s.id, Modes: s.modes(), ConfigOptions: s.options(), Meta: a.meta(up)}, nil
}

// ResumeSession goes on with a session that was made here, or with a thread that
// codex has kept.
func (a *execAgent) ResumeSession(_ context.Context, r *schema.ResumeSessionRequest) (*schema.ResumeSessionResponse, error) {
	id := string(r.SessionID)
	known, ok := a.store.Load(id)
	if !ok {
		kept, _ := filepath.Glob(filepath.Join(home(a.environ()), "sessions", "*", "*", "*", "rollout-*-"+id+".jsonl"))
		if !bridge.IsUUID(id) || len(kept) == 0 {
			return nil, bridge.NotFound(r.SessionID)
		}
		known.Thread = id
	}
	s, up, err := a.setUp(r.SessionID, bridge.Request{Cwd: r.Cwd, Directories: r.AdditionalDirectories, Servers: r.MCPServers, System: r.SystemPrompt, Meta: r.Meta})
	if err != nil {
		return nil, err
	}
	s.thread, s.titled = known.Thread, known.Thread != ""
	s.counted = s.thread == ""
	s.mode = bridge.FirstOf(known.Mode, s.mode)
	if err := a.open(s); err != nil {
		return nil, err
	}
	return &schema.ResumeSessionResponse{Modes: s.modes(), ConfigOptions: s.options(), Meta: a.meta(up)}, nil
}

// setUp reads what the client wishes. Nothing but its folders, its mode and the
// model can be had: the rest would have to go through the command line, which
// everybody can read.
func (a *execAgent) setUp(id schema.SessionID, r bridge.Request) (*execSession, *bridge.Setup, error) {
	up, err := bridge.NewSetup(r)
	if err != nil {
		return nil, nil, err
	}
	s := &execSession{a: a, id: id, cwd: up.Cwd, dirs: up.Roots, slot: bridge.NewSlot(), mode: modeReadOnly, tr: newTranslator(), counted: true}
	s.ctx, s.stop = context.WithCancel(context.Background())
	switch up.PermissionMode {
	case "", "default":
		up.Cannot("permissionMode", "codex exec asks nothing, so what would need a permission fails")
	case "readonly":
	case "write":
		s.mode = modeAgent
	case "bypass":
		s.mode = modeFullAccess
	default:
		up.Cannot("permissionMode", "there is no %q: it is default, readonly, write or bypass", up.PermissionMode)
	}
	const why = "this version of codex takes it on its command line only, which everybody can read"
	named, err := up.NamedServers()
	if err != nil {
		return nil, nil, err
	}
	if len(named)+len(up.Servers) > 0 {
		up.Cannot("mcpServers", why)
	}
	if instead, more := up.SystemPrompt(); instead != nil || len(more) > 0 {
		for field, wished := range map[string]bool{"instructions": up.Instructions != "", "appendSystemPrompt": up.Append != "", "systemPrompt": r.System != nil} {
			if wished {
				up.Cannot(field, why)
			}
		}
	}
	if len(up.SkillFiles()) > 0 {
		up.Cannot("skills", why)
	}
	members := up.OwnMembers(ID)
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if name == "model" {
			s.model = bridge.Text(members[name])
			continue
		}
		up.Cannot("agentSpecific.codex."+name, why)
	}
	s.tr.notices, _ = a.client.Shows()
	return s, up, nil
}

func (a *execAgent) meta(up *bridge.Setup) map[string]json.RawMessage {
	m := a.fallback()
	if len(up.Unsupported) > 0 {
		m["unsupported"] = up.Unsupported
	}
	return bridge.Meta(m)
}

// open makes a session known and says what it lacks.
func (a *execAgent) open(s *execSession) error {
	if err := a.sessions.Add(s.id, s); err != nil {
		return err
	}
	s.emit(func(t *translator) []schema.SessionUpdate {
		return t.say(schema.NoticeSeverityWarning, "This version of Codex runs with less: install "+oldest()+" or newer", strings.Join(lacks, "; "))
	})
	return nil
}

// CloseSession ends what a session runs. It can be resumed.
func (a *execAgent) CloseSession(_ context.Context, r *schema.CloseSessionRequest) (*schema.CloseSessionResponse, error) {
	if !a.sessions.Remove(r.SessionID) {
		return nil, bridge.NotFound(r.SessionID)
	}
	return nil, nil
}

// Close ends what all sessions run.
func (a *execAgent) Close() error {
	a.sessions.Close()
	return nil
}

func (s *execSession) end() {
	s.mu.Lock()
	s.stop()
	s.mu.Unlock()
	s.work.Wait()
}

// execModes are the modes that ask nothing.
var execModes = []string{modeReadOnly, modeAgent, modeFullAccess}

func (s *execSession) modes() *schema.SessionModeState {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &schema.SessionModeState{CurrentModeID: schema.SessionModeID(s.mode), AvailableModes: []schema.SessionMode{
		{ID: modeReadOnly, Name: "Read only", Description: new("Reads and runs commands that change nothing; what would need more fails")},
		{ID: modeAgent, Name: "Agent", Description: new("Edits files in the workspace and runs commands there; what would need more fails")},
		{ID: modeFullAccess, Name: "Full access", Description: new("Does everything without asking, with network access")},
	}}
}

func (s *execSession) options() []schema.SessionConfigOption {
	return []schema.SessionConfigOption{bridge.ModeOption(configMode, s.modes())}
}

// SetSessionMode sets the mode of the next prompts.
func (a *execAgent) SetSessionMode(_ context.Context, r *schema.SetSessionModeRequest) (*schema.SetSessionModeResponse, error) {
	s, err := a.sessions.Get(r.SessionID)
	if err != nil {
		return nil, err
	}
	return nil, s.setMode(string(r.ModeID))
}

// SetSessionConfigOption sets the mode, the only option.
func (a *execAgent) SetSessionConfigOption(_ context.Context, r *schema.SetSessionConfigOptionRequest) (*schema.SetSessionConfigOptionResponse, error) {
	s, err := a.sessions.Get(r.SessionID)
	if err != nil {
		return nil, err
	}
	value, ok := r.ValueID()
	if !ok || r.ConfigID != configMode {
		return nil, acp.Errorf(acp.CodeInvalidParams, "there is no option %q with such a value: this version of codex has the option %s only", r.ConfigID, configMode)
	}
	if err := s.setMode(string(value)); err != nil {
		return nil, err
	}
	return &schema.SetSessionConfigOptionResponse{ConfigOptions: s.options()}, nil
}

func (s *execSession) setMode(mode string) error {
	if !slices.Contains(execModes, mode) {
		return acp.Errorf(acp.CodeInvalidParams, "there is no mode %q, it is one of %s", mode, strings.Join(execModes, ", "))
	}
	s.mu.Lock()
	changed := s.mode != mode
	s.mode = mode
	s.mu.Unlock()
	s.keep(func(r *record) { r.Mode = mode })
	if changed {
		s.emit(func(*translator) []schema.SessionUpdate {
			return []schema.SessionUpdate{{CurrentModeUpdate: &schema.CurrentModeUpdate{CurrentModeID: schema.SessionModeID(mode)}}}
		})
	}
	return nil
}

// keep edits the session's record. It is not worth failing for.
func (s *execSession) keep(edit func(r *record)) {
	if err := s.a.store.change(string(s.id), s.cwd, edit); err != nil {
		s.a.log.Warn("remember a session", "session", s.id, "err", err)
	}
}
