package runtime

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/runtime/journal"
)

// Options configure a Runtime.
type Options struct {
	Adapters     []adapters.Adapter
	Catalog      Catalog // more agents; may be nil
	DefaultAgent string  // used when a client names none; may be empty

	// Installer finds and installs agents' programs; without one only agents
	// that need none, or know their own, can be used.
	Installer         adapters.Installer
	RequirePreinstall bool // never install an agent because a session wants it

	Files     Files     // answers methods about files; may be nil
	HostTools HostTools // answers agents in place of clients that offer no tools; may be nil

	DataDir   string // sessions and agents' state live below it
	Ephemeral bool   // keep sessions in memory only
	Fsync     string // turn (default), always, interval or never
	MinFree   int64  // bytes that the disk must have left for new sessions; 0 asks for none

	RequestTimeout  time.Duration // for requests other than prompts; 0: 120 s
	TurnIdleTimeout time.Duration // a turn without updates for this long is cancelled; 0: never
	IdleTimeout     time.Duration // an idle session gives its process back; 0: never
	ConnectionGrace time.Duration // a connection without stream or request ends; 0: 60 s

	Observer Observer // is told what happens; may be nil
	Logger   *slog.Logger
	Version  string
}

// Catalog knows agents beyond the configured ones. Its methods are safe for
// concurrent use.
type Catalog interface {
	// Lookup returns an agent's adapter; it may ask the network.
	Lookup(ctx context.Context, id string) (adapters.Adapter, bool)
	// Known lists what is known without asking anybody.
	Known() []adapters.Adapter
}

// catalogTimeout bounds the search for an agent that nobody here knows.
const catalogTimeout = 10 * time.Second

// Runtime is the set of sessions of one gateway.
type Runtime struct {
	o          Options
	log        *slog.Logger
	names      []string // of Options.Adapters, in the order given
	store      store
	syncer     syncer
	watch      Observer      // never nil
	counts     journal.Stats // of all logs of sessions
	logTrouble logTrouble

	lastClient atomic.Int64 // numbers grow over restarts too
	askIDs     askIDs
	closing    atomic.Bool
	stop       context.CancelFunc
	ctx        context.Context // ends with Shutdown; for work that no client owns
	work       tasks           // goroutines of the runtime

	mu       sync.Mutex
	agents   map[string]*agent // those of the catalog are added when they are used
	sessions map[string]*Session
	reserved map[string]bool // ids of sessions that are being created
	clients  map[string]*Client
	asks     map[int64]*ask // open, by the id clients see
}

var _ acp.Gateway = (*Runtime)(nil)

// New opens the sessions below the data directory and starts no process.
func New(o Options) (*Runtime, error) {
	r, err := open(o)
	if err != nil {
		return nil, err
	}
	r.work.Go(func() { r.syncer.run(r.ctx) })
	r.work.Go(func() { r.keepHouse(r.ctx) })
	return r, nil
}

func open(o Options) (_ *Runtime, err error) {
	if o.RequestTimeout <= 0 {
		o.RequestTimeout = 120 * time.Second
	}
	if o.ConnectionGrace <= 0 {
		o.ConnectionGrace = 60 * time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Observer == nil {
		o.Observer = unobserved{}
	}
	switch o.Fsync {
	case "":
		o.Fsync = "turn"
	case "turn", "always", "interval", "never":
	default:
		return nil, fmt.Errorf("fsync %q: want turn, always, interval or never", o.Fsync)
	}
	ctx, stop := context.WithCancel(context.Background())
	r := &Runtime{
		o: o, log: o.Logger, watch: o.Observer, ctx: ctx, stop: stop, agents: map[string]*agent{},
		sessions: map[string]*Session{}, reserved: map[string]bool{}, clients: map[string]*Client{}, asks: map[int64]*ask{},
	}
	defer func() {
		if err != nil {
			stop()
		}
	}()
	for _, a := range o.Adapters {
		id := a.Info().ID
		if r.agents[id] != nil {
			return nil, fmt.Errorf("agent %s is defined twice", id)
		}
		r.agents[id] = newAgent(r, a)
		r.names = append(r.names, id)
	}
	if o.DefaultAgent != "" && r.agent(o.DefaultAgent) == nil {
		return nil, fmt.Errorf("default agent %q is unknown: the agents are %s", o.DefaultAgent, strings.Join(r.names, ", "))
	}
	if !o.Ephemeral {
		if o.DataDir == "" {
			return nil, errors.New("no data directory given")
		}
		r.store = store{dir: filepath.Join(o.DataDir, "sessions")}
		r.askIDs.path = filepath.Join(o.DataDir, "request-ids")
		if err := os.MkdirAll(r.store.dir, 0o700); err != nil {
			return nil, fmt.Errorf("create data directory: %w", err)
		}
	}
	r.lastClient.Store(time.Now().UnixMicro())
	if err := r.loadSessions(); err != nil {
		return nil, err
	}
	r.syncer.init(o.Fsync)
	return r, nil
}

// loadSessions lists what the store holds; logs are opened when needed.
func (r *Runtime) loadSessions() error {
	recs, err := r.store.list(r.log)
	if err != nil {
		return fmt.Errorf("read sessions: %w", err)
	}
	for _, rec := range recs {
		r.sessions[rec.ID] = newSession(r, rec)
	}
	return nil
}

// Ready reports why the gateway takes no work, nil when it does.
func (r *Runtime) Ready() error {
	if r.closing.Load() {
		return problem.New(problem.Unavailable, "the gateway is shutting down")
	}
	if err := r.roomForSession(); err != nil {
		return err
	}
	return r.store.writable()
}

// roomForSession reports why no session can be made: there are some that cannot
// be written, or the disk is nearly full.
func (r *Runtime) roomForSession() error {
	if err := r.logTrouble.ready(); err != nil {
		return err
	}
	if r.store.dir == "" || r.o.MinFree <= 0 {
		return nil
	}
	free, err := r.store.free()
	if err == nil && free < r.o.MinFree {
		return problem.New(problem.Unavailable, "the disk of the data directory has %d MiB left, and sessions are made with %d MiB or more (--min-free)", free>>20, r.o.MinFree>>20)
	}
	return nil
}

// agent returns an agent, nil when there is none with the name.
func (r *Runtime) agent(name string) *agent {
	r.mu.Lock()
	a := r.agents[name]
	r.mu.Unlock()
	if a != nil || r.o.Catalog == nil || name == "" {
		return a
	}
	ctx, cancel := context.WithTimeout(r.ctx, catalogTimeout)
	defer cancel()
	adapter, ok := r.o.Catalog.Lookup(ctx, name)
	if !ok {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if a := r.agents[name]; a != nil {
		return a
	}
	a = newAgent(r, adapter)
	r.agents[name] = a
	return a
}

// usedAgents returns the agents that may have processes.
func (r *Runtime) usedAgents() []*agent {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Values(r.agents))
}

// agentList returns the agents: those that were configured, and what the
// catalog knows without asking anybody.
func (r *Runtime) agentList() []*agent {
	var more []adapters.Adapter
	if r.o.Catalog != nil {
		more = r.o.Catalog.Known()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]*agent, 0, len(r.names)+len(more))
	listed := make(map[string]bool, cap(out))
	for _, name := range r.names {
		out, listed[name] = append(out, r.agents[name]), true
	}
	for _, adapter := range more {
		id := adapter.Info().ID
		if listed[id] {
			continue
		}
		a := r.agents[id]
		if a == nil {
			a = newAgent(r, adapter)
			r.agents[id] = a
		}
		out, listed[id] = append(out, a), true
	}
	// One that the catalog has forgotten and that is still in use.
	for _, id := range slices.Sorted(maps.Keys(r.agents)) {
		if !listed[id] {
			out = append(out, r.agents[id])
		}
	}
	return out
}

// agentNamed returns the agent a client asked for, or the default.
func (r *Runtime) agentNamed(name string) (*agent, error) {
	if name == "" {
		name = r.o.DefaultAgent
	}
	if a := r.agent(name); a != nil {
		return a, nil
	}
	if name == "" {
		return nil, problem.New(problem.InvalidRequest, `no agent was named: set params._meta["%s"].agent, or ?agent= in the URL, or start the gateway with --default-agent; the agents are %s`,
			acp.MetaKey, strings.Join(r.names, ", ")).With("agents", r.names)
	}
	return nil, problem.New(problem.UnsupportedAgent, "agent %q is unknown: the agents are %s", name, strings.Join(r.names, ", ")).With("agents", r.names)
}

// session returns the session with the id, nil when there is none.
func (r *Runtime) session(id string) *Session {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sessions[id]
}

func (r *Runtime) allSessions() []*Session {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]*Session, 0, len(r.sessions))
	for _, s := range r.sessions {
		out = append(out, s)
	}
	return out
}

func (r *Runtime) allClients() []*Client {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]*Client, 0, len(r.clients))
	for _, c := range r.clients {
		out = append(out, c)
	}
	return out
}

// addSession registers a new session; the id must be free.
func (r *Runtime) addSession(s *Session) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sessions[s.id] != nil {
		return false
	}
	r.sessions[s.id] = s
	return true
}

func (r *Runtime) nextClient() journal.Recipient {
	return journal.Recipient(r.lastClient.Add(1))
}

// Shutdown refuses new work, cancels turns, ends every agent process, makes the
// logs durable and ends every stream. What takes longer than ctx allows is cut
// short, and the error says what did not end.
func (r *Runtime) Shutdown(ctx context.Context) error {
	if !r.closing.CompareAndSwap(false, true) {
		return nil
	}
	sessions := r.allSessions()
	for _, s := range sessions {
		s.cancelAll()
	}
	turns, cancel := context.WithTimeout(ctx, 2*time.Second)
	for _, s := range sessions {
		s.awaitIdle(turns)
	}
	cancel()
	// Agents take no start from now on, so that none is left out.
	var agents tasks
	for _, a := range r.usedAgents() {
		for _, s := range a.slots() {
			agents.Go(func() { s.end(errShutdown) })
		}
	}
	var errs []error
	if agents.Wait(ctx) != nil {
		errs = append(errs, errors.New("not every agent process ended in time"))
	}
	r.stop()
	if r.work.Wait(ctx) != nil {
		errs = append(errs, errors.New("not all work ended in time"))
	}
	for _, s := range sessions {
		errs = append(errs, s.saveLog(r.o.Fsync != "never"))
	}
	farewell, cancel := context.WithTimeout(ctx, farewellBound)
	var wg sync.WaitGroup
	for _, c := range r.allClients() {
		wg.Go(func() { c.awaitAll(farewell) })
	}
	wg.Wait()
	cancel()
	for _, c := range r.allClients() {
		c.Close()
	}
	for _, s := range sessions { // only now: who is behind reads from the file
		errs = append(errs, s.closeLog())
	}
	return errors.Join(slices.DeleteFunc(errs, func(err error) bool { return err == nil })...)
}

// At the end clients are given what is in the logs, how their turns ended above
// all, as long as they read.
const (
	farewellBound = 5 * time.Second
	stallBound    = 500 * time.Millisecond // a client that reads nothing for so long is left
)

// errShutdown is the cause of what ends because the gateway ends.
var errShutdown = errors.New("the gateway is shutting down")
