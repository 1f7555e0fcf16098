package runtime

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/version"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/internal/memory"
	"sandboxagent.dev/sandbox-agent/runtime/agents"
	"sandboxagent.dev/sandbox-agent/runtime/journal"
	"sandboxagent.dev/sandbox-agent/runtime/observe"
	"sandboxagent.dev/sandbox-agent/runtime/session"
	"sandboxagent.dev/sandbox-agent/runtime/viewer"
)

// Options configure a Runtime.
type Options struct {
	Adapters     []adapters.Adapter
	Catalog      agents.Catalog // more agents; may be nil
	DefaultAgent string         // used when a client names none; may be empty

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
	LogFiles  int    // of sessions' logs that are open at one time, about; 0 is any number

	RequestTimeout  time.Duration // for requests other than prompts; 0: 120 s
	TurnIdleTimeout time.Duration // a turn without updates for this long is cancelled; 0: never
	IdleTimeout     time.Duration // an idle session gives its process back; 0: never
	// UnattachedTimeout is IdleTimeout for a session without a client that its agent
	// can open again, 0: the same.
	UnattachedTimeout time.Duration
	// MaxIdleProcesses bounds the agent processes in whose sessions nothing goes on, as
	// far as their agents can open them again: beyond it those go first that have been
	// idle longest; 0: any number.
	MaxIdleProcesses int
	// MaxIdleMemory bounds in the same way the resident memory of these processes and all
	// below them, in bytes; 0: any.
	MaxIdleMemory int64
	// BackgroundTimeout is IdleTimeout for a session with open tool calls; 0: never.
	BackgroundTimeout time.Duration
	// MaxUnread bounds in bytes what all connections together do not read of answers that
	// belong to no session; 0: each has its own bound only.
	MaxUnread int64
	// LogMemory bounds in bytes what the logs of all sessions together hold in memory, of
	// those whose files take nothing, or that have none; 0: each has its own bound only.
	LogMemory int64
	// Memory has room for prompts that wait, for messages that an agent does not take yet,
	// and for answers with events while they are made; nil has room for all.
	Memory *memory.Bound
	// Stored says that a hub stores what happens in sessions; Durability is that of sessions
	// that ask for none, "" for async. See session.Durability.
	Stored     bool
	Durability session.Durability
	// HubTrouble says why the hub stores nothing; see session.Options.
	HubTrouble      func(bound time.Duration) error
	Retention       session.Retention
	ConnectionGrace time.Duration // a connection without stream or request ends; 0: 60 s

	// Left ends what a gateway that was killed has left of sessions that arrived; see
	// session.Options. May be nil.
	Left func(folder string, kept func(id, name string) ([]byte, error)) error

	Observer observe.Observer // is told what happens; may be nil
	Logger   *slog.Logger
	Version  string
	Versions []int // of the protocol that clients may choose from, in order; none is all
}

// Runtime is the sessions of one gateway, their agents and the clients.
type Runtime struct {
	o        Options
	log      *slog.Logger
	agents   *agents.Set
	sessions *session.Set
	tasks    agents.Tasks    // goroutines that nobody else waits for
	ctx      context.Context // ends with Shutdown; for work that no client owns
	stop     context.CancelCauseFunc

	lastClient atomic.Int64 // numbers grow over restarts too
	unread     *viewer.Unread
	closing    atomic.Bool
	searching  chan struct{} // has room for the searches at one time
	readings   readings
	loads      loads

	mu      sync.Mutex
	clients map[string]*Client
}

var _ acp.Gateway = (*Runtime)(nil)

// New opens the sessions below the data directory and starts no process.
func New(o Options) (*Runtime, error) {
	if o.RequestTimeout <= 0 {
		o.RequestTimeout = 120 * time.Second
	}
	if o.ConnectionGrace <= 0 {
		o.ConnectionGrace = 60 * time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if len(o.Versions) == 0 {
		o.Versions = version.All()
	}
	if o.Observer == nil {
		o.Observer = observe.Nobody{}
	}
	switch o.Fsync {
	case "":
		o.Fsync = "turn"
	case "turn", "always", "interval", "never":
	default:
		return nil, fmt.Errorf("fsync %q: want turn, always, interval or never", o.Fsync)
	}
	dir, stateDir := o.DataDir, ""
	if dir != "" {
		stateDir = filepath.Join(dir, "state")
	} else if !o.Ephemeral {
		return nil, errors.New("no data directory given")
	}
	if o.Ephemeral {
		dir = ""
	}
	r := &Runtime{o: o, log: o.Logger, clients: map[string]*Client{}, searching: make(chan struct{}, maxSearching), unread: viewer.NewUnread(o.MaxUnread)}
	r.loads = loads{held: o.Memory.Open(nil), tasks: &r.tasks, of: map[string]*behind{}}
	r.ctx, r.stop = context.WithCancelCause(context.Background())
	r.lastClient.Store(time.Now().UnixMicro())
	var err error
	if r.agents, err = agents.NewSet(agents.Options{
		Adapters: o.Adapters, Catalog: o.Catalog, Default: o.DefaultAgent, Installer: o.Installer, RequirePreinstall: o.RequirePreinstall, RequestTimeout: o.RequestTimeout,
		StateDir: stateDir, Observer: o.Observer, Logger: o.Logger, Tasks: &r.tasks, Memory: o.Memory, Connection: r.fromAgent, Ended: r.processEnded,
	}); err == nil {
		r.sessions, err = session.NewSet(session.Options{
			Agents: r.agents, DataDir: dir, Fsync: o.Fsync, MinFree: o.MinFree, LogFiles: o.LogFiles, LogMemory: o.LogMemory, Stored: o.Stored, HubTrouble: o.HubTrouble, Durability: o.Durability, HostTools: o.HostTools, RequestTimeout: o.RequestTimeout, TurnIdleTimeout: o.TurnIdleTimeout,
			Life: r.ctx, Observer: o.Observer, Logger: o.Logger, Tasks: &r.tasks, Memory: o.Memory, Readers: r.readers, Left: o.Left,
		})
	}
	if err != nil {
		r.stop(err)
		return nil, err
	}
	r.tasks.Go(func() { r.sessions.Run(r.ctx) })
	r.tasks.Go(func() { r.sessions.Retain(r.ctx, o.Retention) })
	r.tasks.Go(func() { r.upkeep(r.ctx) })
	return r, nil
}

// Ready reports why the gateway takes no work, nil when it does.
func (r *Runtime) Ready() error {
	if r.closing.Load() {
		return agents.ErrShutdown
	}
	return r.sessions.Writable()
}

func (r *Runtime) allClients() []*Client {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Values(r.clients))
}

// fromAgent takes a message of no session: it goes to the connections that were
// opened with the process, and what concerns the work in hand to the sessions whose
// turn is under way.
func (r *Runtime) fromAgent(p *agents.Process, m *acp.Message) {
	switch {
	case m.Method() == acp.MethodCancelRequest:
		r.sessions.Withdrawn(p, m)
		return
	case m.IsRequest():
		r.sessions.AskConnections(p, m)
		return
	case m.Method() == "_sandboxagent/agent/unparsed":
		n := 0
		for _, s := range r.sessions.All() {
			if s.On(p) && s.Notify(m) {
				n++
			}
		}
		r.log.Warn("agent wrote a line that is no message", "agent", p.Agent().ID(), "sessions", n)
		if n > 0 {
			return
		}
	}
	for _, c := range r.readers(p) {
		c.Post(journal.Notice, m.Frame())
	}
}

func (r *Runtime) processEnded(p *agents.Process) { r.sessions.ProcessEnded(p) }

// readers returns the clients that a process concerns: those whose connection was
// opened with it, and those that are attached to a session that it serves.
func (r *Runtime) readers(p *agents.Process) []*viewer.Client {
	var out []*viewer.Client
	for _, c := range r.allClients() {
		if c.process.Load() == p || slices.ContainsFunc(c.Attached(), func(s viewer.Session) bool { return s.(*session.Session).On(p) }) {
			out = append(out, c.Client)
		}
	}
	return out
}

const upkeepEvery = time.Second

// upkeep ends what nobody needs: connections whose client is gone, processes of idle
// sessions, memory of silent logs.
func (r *Runtime) upkeep(ctx context.Context) {
	tick := time.NewTicker(upkeepEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			r.lookAfter()
		}
	}
}

// lookAfter is done each second, also when nothing goes on: then it must leave no garbage for each session,
// or the program never seems to be still and keeps the memory that it does not need.
func (r *Runtime) lookAfter() {
	for _, c := range r.allClients() {
		if c.Abandoned(r.o.ConnectionGrace) {
			r.log.Info("connection ended after its client was gone", "client", c.ID())
			c.Close()
		}
	}
	for _, s := range r.sessions.All() {
		s.Tidy(session.Bounds{Idle: r.o.IdleTimeout, Unattached: r.o.UnattachedTimeout, Background: r.o.BackgroundTimeout})
	}
	r.sessions.Shrink()
	r.boundIdle()
	r.agents.EndUnused()
}

// Shutdown refuses new work, cancels turns, ends every agent process, makes the
// logs durable and ends every stream. What takes longer than ctx allows is cut
// short, and the error says what did not end.
func (r *Runtime) Shutdown(ctx context.Context) error {
	if !r.closing.CompareAndSwap(false, true) {
		return nil
	}
	sessions := r.sessions.All()
	for _, s := range sessions {
		s.Shutdown()
	}
	turns, cancel := context.WithTimeout(ctx, 2*time.Second)
	for _, s := range sessions {
		s.AwaitIdle(turns)
	}
	cancel()
	errs := []error{r.agents.Close(ctx)}
	r.stop(agents.ErrShutdown)
	if r.tasks.Wait(ctx) != nil {
		errs = append(errs, errors.New("not all work ended in time"))
	}
	errs = append(errs, r.sessions.Persist())
	farewell, cancel := context.WithTimeout(ctx, farewellBound)
	var wg sync.WaitGroup
	for _, c := range r.allClients() {
		wg.Go(func() { c.AwaitAll(farewell) })
	}
	wg.Wait()
	cancel()
	for _, c := range r.allClients() {
		c.Close()
	}
	errs = append(errs, r.sessions.CloseLogs()) // only now: who is behind reads from the file
	return errors.Join(errs...)
}

// farewellBound is how long clients are given what is in the logs at the end, how
// their turns ended above all, as long as they read.
const farewellBound = 5 * time.Second
