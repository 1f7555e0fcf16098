package agents

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/internal/memory"
	"sandboxagent.dev/sandbox-agent/runtime/observe"
)

// Options configure a Set. Only the fields whose comment says so may be empty.
type Options struct {
	Adapters []adapters.Adapter
	Catalog  Catalog // more agents; may be nil
	Default  string  // used when a client names none; may be empty

	// Installer finds and installs agents' programs; without one only agents
	// that need none, or know their own, can be used.
	Installer         adapters.Installer
	RequirePreinstall bool // never install an agent because a session wants it

	RequestTimeout time.Duration // for the answer to initialize

	StateDir string // agents' own state lives below it; "" for a temporary one, which ends with the Set
	Observer observe.Observer
	Logger   *slog.Logger
	Tasks    *Tasks        // run the work that nobody waits for
	Memory   *memory.Bound // of what waits for agents to read

	// Connection takes what an agent says of no session. It is called by the
	// process's reader and must not wait; the message is not kept.
	Connection func(p *Process, m *acp.Message)
	// Ended says that a process is ending. Its sessions know already.
	Ended func(p *Process)
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

// Set is the agents of a gateway. Its methods are safe for concurrent use.
type Set struct {
	o       Options
	names   []string        // of Options.Adapters, in the order given
	ctx     context.Context // ends with Close; that of starts
	stop    context.CancelCauseFunc
	closing atomic.Bool
	folder  folder

	mu     sync.Mutex
	agents map[string]*Agent // those of the catalog are added when they are used
}

// NewSet returns the agents of the adapters. It starts none.
func NewSet(o Options) (*Set, error) {
	set := &Set{o: o, agents: map[string]*Agent{}, folder: folder{dir: o.StateDir}}
	for _, a := range o.Adapters {
		id := a.Info().ID
		if set.agents[id] != nil {
			return nil, fmt.Errorf("agent %s is defined twice", id)
		}
		set.agents[id] = newAgent(set, a)
		set.names = append(set.names, id)
	}
	set.ctx, set.stop = context.WithCancelCause(context.Background())
	if o.Default != "" && set.Find(o.Default) == nil {
		set.stop(nil)
		return nil, set.unknown(o.Default)
	}
	return set, nil
}

// Names returns the ids of the configured agents.
func (set *Set) Names() []string { return set.names }

// Local returns an agent that is configured, or was used before; nil for another.
func (set *Set) Local(name string) *Agent {
	set.mu.Lock()
	defer set.mu.Unlock()
	return set.agents[name]
}

// Find returns an agent, nil when there is none with the name. It may ask the
// network for one that nobody has used yet.
func (set *Set) Find(name string) *Agent {
	a := set.Local(name)
	if a != nil || set.o.Catalog == nil || name == "" {
		return a
	}
	ctx, cancel := context.WithTimeout(set.ctx, catalogTimeout)
	defer cancel()
	adapter, ok := set.o.Catalog.Lookup(ctx, name)
	if !ok {
		return nil
	}
	set.mu.Lock()
	defer set.mu.Unlock()
	return set.addLocked(name, adapter)
}

func (set *Set) addLocked(id string, adapter adapters.Adapter) *Agent {
	a := set.agents[id]
	if a == nil {
		a = newAgent(set, adapter)
		set.agents[id] = a
	}
	return a
}

// Named returns the agent a client asked for, or the default.
func (set *Set) Named(name string) (*Agent, error) {
	if name == "" {
		name = set.o.Default
	}
	if a := set.Find(name); a != nil {
		return a, nil
	}
	if name == "" {
		return nil, problem.New(problem.InvalidRequest, `no agent was named: set params._meta["%s"].agent, or ?agent= in the URL, or start the gateway with --default-agent; the agents are %s`,
			acp.MetaKey, strings.Join(set.names, ", ")).With("agents", set.names)
	}
	return nil, set.unknown(name)
}

func (set *Set) unknown(name string) error {
	return problem.New(problem.UnsupportedAgent, "agent %q is unknown: the agents are %s", name, strings.Join(set.names, ", ")).With("agent", name).With("agents", set.names)
}

// Used returns the agents that may have processes.
func (set *Set) Used() []*Agent {
	set.mu.Lock()
	defer set.mu.Unlock()
	return slices.Collect(maps.Values(set.agents))
}

// List returns the agents: those that were configured, and what the catalog knows
// without asking anybody.
func (set *Set) List() []*Agent {
	var more []adapters.Adapter
	if set.o.Catalog != nil {
		more = set.o.Catalog.Known()
	}
	set.mu.Lock()
	defer set.mu.Unlock()
	out := make([]*Agent, 0, len(set.names)+len(more))
	listed := make(map[string]bool, cap(out))
	for _, name := range set.names {
		out, listed[name] = append(out, set.agents[name]), true
	}
	for _, adapter := range more {
		if id := adapter.Info().ID; !listed[id] {
			out, listed[id] = append(out, set.addLocked(id, adapter)), true
		}
	}
	// One that the catalog has forgotten and that is still in use.
	for _, id := range slices.Sorted(maps.Keys(set.agents)) {
		if !listed[id] {
			out = append(out, set.agents[id])
		}
	}
	return out
}

// EndUnused ends the processes that nobody has needed for a while.
func (set *Set) EndUnused() {
	for _, a := range set.Used() {
		for _, p := range a.Processes() {
			if p.endUnused() {
				set.o.Tasks.Go(func() { p.Close(ErrUnused) })
			}
		}
	}
}

// Close ends every process and every start, and takes no more. It waits until
// nothing of them is left; the error says what did not end before ctx. Then a temporary
// folder of theirs stays, too.
func (set *Set) Close(ctx context.Context) error {
	set.closing.Store(true)
	set.stop(ErrShutdown)
	var all []*Process
	for _, a := range set.Used() {
		all = append(all, a.all()...)
	}
	for _, p := range all {
		set.o.Tasks.Go(func() { p.Close(ErrShutdown) })
	}
	left := map[string]int{}
	for _, p := range all {
		select {
		case <-p.ended:
			continue
		default:
		}
		select {
		case <-p.ended:
		case <-ctx.Done():
			left[p.agent.id]++
		}
	}
	if len(left) == 0 {
		return set.folder.close()
	}
	var names []string
	for _, id := range slices.Sorted(maps.Keys(left)) {
		names = append(names, fmt.Sprintf("%s (%d)", id, left[id]))
	}
	return errors.New("not every agent process ended in time: " + strings.Join(names, ", "))
}
