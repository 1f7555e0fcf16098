package bridgetest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/adapters/install"
	"sandboxagent.dev/sandbox-agent/internal/agentcache"
	"sandboxagent.dev/sandbox-agent/internal/scriptedmodel"
)

// Main runs a package's tests without the environment variables whose names
// begin with one of the prefixes: those that would configure the agent. A
// goroutine that is left fails the package.
func Main(m *testing.M, prefixes ...string) {
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		for _, p := range prefixes {
			if strings.HasPrefix(name, p) {
				_ = os.Unsetenv(name)
			}
		}
	}
	// With the race detector a process of this program would sleep for a second before it ends.
	_ = os.Setenv("GORACE", "atexit_sleep_ms=0")
	// The thread that starts processes lives as long as the program.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("sandboxagent.dev/sandbox-agent/internal/process.startAll"))
}

// installation is a version of an agent's program, installed once in a test run.
type installation struct {
	once sync.Once
	prog adapters.Program
	err  error
}

var (
	installedMu sync.Mutex
	installed   = map[[2]string]*installation{} // by agent and version
)

// Program returns an agent's program from npm. It skips the test where npm
// cannot be reached.
func Program(t *testing.T, agent, version string) adapters.Program {
	t.Helper()
	installedMu.Lock()
	one := installed[[2]string{agent, version}]
	if one == nil {
		one = new(installation)
		installed[[2]string{agent, version}] = one
	}
	installedMu.Unlock()
	one.once.Do(func() { one.prog, one.err = fetch(agent, version) })
	if p, ok := errors.AsType[*problem.Error](one.err); ok && (strings.Contains(p.Detail, "cannot be reached") || strings.Contains(p.Detail, "not found in PATH")) {
		t.Skipf("%s %s cannot be installed here: %v", agent, version, one.err)
	}
	if one.err != nil {
		t.Fatal(one.err)
	}
	return one.prog
}

func fetch(agent, version string) (adapters.Program, error) {
	cache, err := agentcache.Dir()
	if err != nil {
		return adapters.Program{}, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	in := install.New(install.Options{DataDir: cache})
	r, err := in.Install(ctx, install.Request{Agent: agent, Version: version, Sources: []install.Source{install.NPM}})
	return adapters.Program{Path: r.Program, Args: r.Args, Env: r.Env, Version: r.Version, Source: string(r.Source)}, err
}

// World is a home directory, a working directory and a model, for one test. Its
// fields may be changed until the agent is opened.
type World struct {
	T           *testing.T
	Home        string
	Cwd         string
	State       string // where the adapter keeps its own files
	Model       *scriptedmodel.Model
	Program     adapters.Program
	Env         []string
	Credentials adapters.Credentials
	Tap         adapters.Tap // may be nil
	// OneSession makes the parts of a test share one session, in which no turn
	// runs when a part begins. It is for agents that start a process for each
	// session. Parts then share the working directory, too.
	OneSession bool

	adapter adapters.Adapter
	whole   *World           // of which this is a part; nil for a whole
	links   map[string]*link // of a whole, which its parts use, by the client's capabilities
	asked   int              // how many turns the model had before
}

// New makes a World for an adapter, whose program is taken from npm. The test
// then has its turn with the agent.
func New(t *testing.T, a adapters.Adapter, version string) *World {
	t.Helper()
	agentcache.NotShort(t)
	prog := Program(t, a.Info().ID, version)
	agentcache.Turn(t, a.Info().ID)
	return With(t, a, prog)
}

// With makes a World with a program of the test's own.
func With(t *testing.T, a adapters.Adapter, prog adapters.Program) *World {
	t.Helper()
	w := &World{
		T: t, Home: t.TempDir(), Cwd: t.TempDir(), State: filepath.Join(t.TempDir(), "state"),
		Model: scriptedmodel.Start(t), Program: prog, adapter: a,
	}
	w.Env = []string{"HOME=" + w.Home}
	return w
}

// Part returns the World for a part of its test that shares the program's home,
// the model, and connections with other parts, which run before and after it. It
// costs no start of a program, and must leave the user's configuration as it was.
func (w *World) Part(t *testing.T) *World {
	t.Helper()
	p := *w
	p.T, p.whole, p.asked = t, w, len(w.Model.Turns())
	if w.links == nil {
		w.links = map[string]*link{}
	}
	if !w.OneSession {
		p.Cwd = t.TempDir()
	}
	return &p
}

// Turns are those of the model, in a part of a test those since it began.
func (w *World) Turns() []scriptedmodel.Request { return w.Model.Turns()[w.asked:] }

// Write makes a file below the home directory, or at an absolute path, and
// returns its path.
func (w *World) Write(name, content string, mode os.FileMode) string {
	w.T.Helper()
	path := name
	if !filepath.IsAbs(name) {
		path = filepath.Join(w.Home, name)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		w.T.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		w.T.Fatal(err)
	}
	return path
}

// Read returns a file's content.
func (w *World) Read(path string) string {
	w.T.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		w.T.Fatal(err)
	}
	return string(b)
}

// Options are what the adapter is opened with.
func (w *World) Options() adapters.Options {
	return adapters.Options{StateDir: w.State, Program: w.Program, Env: w.Env, Credentials: w.Credentials}
}

// Use puts another adapter in the place of the World's.
func (w *World) Use(a adapters.Adapter) { w.adapter = a }

// Adapter returns the adapter as it is in the World: whoever opens it gets the
// World's program, environment and credentials.
func (w *World) Adapter() adapters.Adapter { return within{w.adapter, w} }

type within struct {
	adapters.Adapter
	w *World
}

func (a within) Open(ctx context.Context, o adapters.Options) (acp.Conn, error) {
	o.Program, o.Env, o.Credentials = a.w.Program, append(o.Env, a.w.Env...), a.w.Credentials
	if a.w.Tap != nil {
		o.Tap = a.w.Tap
	}
	return a.Adapter.Open(ctx, o)
}

// Grants implements [adapters.Granter]: all bridges do.
func (a within) Grants(o adapters.Options, session string) []adapters.Grant {
	return a.Adapter.(adapters.Granter).Grants(o, session)
}

// Forget implements [adapters.Granter].
func (a within) Forget(o adapters.Options, session string, ids []string) error {
	return a.Adapter.(adapters.Granter).Forget(o, session, ids)
}
