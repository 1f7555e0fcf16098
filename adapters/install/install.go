package install

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sandboxagent.dev/sandbox-agent/acp/problem"
)

// Source says where a program comes from.
type Source string

// The sources.
const (
	Path     Source = "path"     // on this machine already: in PATH, or named by the environment
	Vendor   Source = "vendor"   // the maker's own downloads
	NPM      Source = "npm"      // the npm client and the registry that it is configured with
	Registry Source = "registry" // the agent's entry in the ACP registry
)

// AllSources returns every source in the order in which they are asked.
func AllSources() []Source { return []Source{Path, Vendor, NPM, Registry} }

func sourceNames(s []Source) string {
	names := make([]string, len(s))
	for i := range s {
		names[i] = string(s[i])
	}
	return strings.Join(names, ", ")
}

// Options configure an [Installer]. The zero value of each field but DataDir is
// the default.
type Options struct {
	DataDir string   // agents are installed into DataDir/agents
	Temp    string   // where programs have their home while they are tried; "" is the system's folder for such
	Sources []Source // asked in this order; default [AllSources]
	// Mirrors replaces prefixes of URLs: from what the maker uses to what is
	// asked instead. The longest prefix that matches counts.
	Mirrors         map[string]string
	RegistryURL     string // index of the ACP registry; default [DefaultRegistryURL]; or [NoRegistry]
	RequireChecksum bool   // refuse downloads for which no checksum is published
	// RequireSignature refuses to install what is not signed by somebody whom this
	// release knows, or pinned by its digest.
	RequireSignature bool
	MaxDownload      int64         // bytes of one download; default 2 GiB
	MaxUnpacked      int64         // bytes that one archive may unpack to; default 6 GiB
	Stall            time.Duration // a connection may be silent for so long; default 30 s
	ProofTimeout     time.Duration // a program has so long to say its version; default 3 min
	Platform         Platform      // default [Detect]
	HTTP             *http.Client  // default: one of its own, with the proxy of the environment and no redirects away from TLS
	Logger           *slog.Logger
}

// Installer installs, finds and removes agents. It is safe for concurrent use,
// also by several processes on one data directory.
type Installer struct {
	root             string // the directory of agents
	temp             string
	sources          []Source
	mirrors          map[string]string
	registryURL      string
	requireChecksum  bool
	requireSignature bool
	trust            trust
	maxDownload      int64
	maxUnpacked      int64
	stall            time.Duration
	proof            time.Duration
	retry            time.Duration // before the first further attempt of a download
	platform         Platform
	http             *http.Client
	idle             func() // closes connections that nobody uses
	log              *slog.Logger
	hooks            struct { // for tests
		writer      func(io.Writer) io.Writer // before a download's file
		noExchange  bool                      // as on systems that cannot swap directories
		remove      func(dir string) error    // removes a folder with all that is in it
		makeDurable func(dir string) error    // what is in it
	}
}

// New returns an installer. It touches neither disk nor network.
func New(o Options) *Installer {
	in := &Installer{
		root:             filepath.Join(o.DataDir, "agents"),
		temp:             o.Temp,
		sources:          o.Sources,
		mirrors:          o.Mirrors,
		registryURL:      o.RegistryURL,
		requireChecksum:  o.RequireChecksum,
		requireSignature: o.RequireSignature,
		trust:            known(),
		maxDownload:      or(o.MaxDownload, 2<<30),
		maxUnpacked:      or(o.MaxUnpacked, 6<<30),
		stall:            or(o.Stall, 30*time.Second),
		proof:            or(o.ProofTimeout, 3*time.Minute),
		retry:            250 * time.Millisecond,
		platform:         o.Platform,
		http:             o.HTTP,
		idle:             func() {},
		log:              o.Logger,
	}
	in.hooks.remove, in.hooks.makeDurable = os.RemoveAll, makeDurable
	if abs, err := filepath.Abs(in.root); err == nil {
		in.root = abs
	}
	if len(in.sources) == 0 {
		in.sources = AllSources()
	}
	if in.registryURL = or(in.registryURL, DefaultRegistryURL); in.registryURL == NoRegistry {
		in.sources = slices.DeleteFunc(slices.Clone(in.sources), func(s Source) bool { return s == Registry })
	}
	if in.platform == (Platform{}) {
		in.platform = Detect()
	}
	if in.http == nil {
		in.http, in.idle = newClient()
	}
	if in.log == nil {
		in.log = slog.New(slog.DiscardHandler)
	}
	return in
}

func or[T comparable](v, fallback T) T {
	var zero T
	if v == zero {
		return fallback
	}
	return v
}

// Latest is the wanted version that stands for the newest one, also when
// another one is installed.
const Latest = "latest"

// Request says what to install.
type Request struct {
	Agent string
	// Version is exact, [Latest], or "" for whatever is installed and the newest
	// if nothing is.
	Version   string
	Reinstall bool // even if it is there
	// Beside leaves the version in use that is, for who names the one that it wants each time.
	Beside   bool
	Sources  []Source       // instead of the installer's
	Progress func(Progress) // called by the installing goroutine; it must not block
}

// Result is what an installation came to.
type Result struct {
	Installation
	Already bool `json:"already"` // it was there, nothing was installed
	// Attempts are the sources that were asked before and could not.
	Attempts []Attempt `json:"attempts,omitempty"`
	// Newer is the newest version that the source has, where that one cannot be installed.
	Newer *Newer `json:"newer,omitempty"`
}

// Newer is a version that was not installed.
type Newer struct {
	Version string `json:"version"`
	Reason  string `json:"reason"`
}

// Install makes sure that an agent is installed and returns what is. All errors
// are a *problem.Error; when sources were asked, its extension member sources
// lists what each of them answered.
func (in *Installer) Install(ctx context.Context, req Request) (Result, error) {
	defer in.idle()
	r, err := in.install(ctx, req)
	if err != nil {
		if _, ok := errors.AsType[*problem.Error](err); !ok {
			err = problem.Wrap(problem.InstallFailed, advise(err, in.root), "agent %s was not installed", req.Agent)
		}
		return Result{}, err
	}
	return r, nil
}

func (in *Installer) install(ctx context.Context, req Request) (Result, error) {
	j := &job{Installer: in, reinstall: req.Reinstall, beside: req.Beside, began: time.Now(), say: &reporter{to: req.Progress, last: Progress{Agent: req.Agent}}}
	sources := req.Sources
	if len(sources) == 0 {
		sources = in.sources
	}
	if err := j.check(req, sources); err != nil {
		return Result{}, err
	}
	var err error
	if j.recipe, err = in.recipeOf(ctx, req.Agent); err != nil {
		return Result{}, err
	}
	if j.recipe.builtIn {
		if j.want != "" {
			return Result{}, problem.New(problem.InvalidRequest, "agent %s is part of this program and has no versions of its own", req.Agent)
		}
		i, _ := in.ours(req.Agent)
		return Result{Installation: i, Already: true}, nil
	}
	// What the environment names comes before everything, and needs no lock.
	if i := slices.Index(sources, Path); i >= 0 && !req.Reinstall && os.Getenv(BinVariable(req.Agent)) != "" {
		if _, err := named(req.Agent); err != nil {
			return Result{}, problem.New(problem.InstallFailed, "agent %s was not installed: %v", req.Agent, err)
		}
		if p, err := j.path(ctx); err == nil {
			return Result{Installation: j.describeForeign(p), Already: true}, nil
		}
	}
	// An installation in use stays so while somebody installs another version.
	if i, ok := in.installed(req.Agent); ok && !j.reinstall && !j.newest && (j.want == "" || j.want == i.Version) {
		return Result{Installation: i, Already: true}, nil
	}
	unlock, err := in.lock(ctx, req.Agent, func() { j.say.step(StepWait, "") })
	if err != nil {
		return Result{}, err
	}
	defer unlock()
	if err := in.tidy(ctx, req.Agent); err != nil {
		return Result{}, fmt.Errorf("remove what an earlier installation left: %w", err)
	}
	if i, ok := j.present(); ok {
		return Result{Installation: i, Already: true}, nil
	}
	return j.ask(ctx, sources)
}

// check refuses requests that make no sense.
func (j *job) check(req Request, sources []Source) error {
	if !agentID.MatchString(req.Agent) {
		return badID(req.Agent)
	}
	for _, s := range sources {
		if !slices.Contains(AllSources(), s) {
			return problem.New(problem.InvalidRequest, "%q is no source; sources are %s", s, sourceNames(AllSources()))
		}
	}
	j.newest = req.Version == Latest
	if req.Version != "" && !j.newest {
		j.want = strings.TrimPrefix(req.Version, "v")
		if err := checkVersion(j.want); err != nil {
			return problem.New(problem.InvalidRequest, "%v; name one such as 1.2.3, or %s", err, Latest)
		}
	}
	return nil
}

// recipeOf finds an agent in the table or in the ACP registry.
func (in *Installer) recipeOf(ctx context.Context, agent string) (recipe, error) {
	if r, ok := recipes[agent]; ok {
		return r, nil
	}
	e, ok, err := in.listed(ctx, agent, func(*Entry) bool { return true })
	if err != nil {
		if ctx.Err() != nil {
			return recipe{}, err
		}
		return recipe{}, problem.Wrap(problem.UnsupportedAgent, err, "no agent %s is known: it is none of %s, and the ACP registry, which may have it, cannot be asked", agent, strings.Join(Known(), ", ")).With("agent", agent).With("agents", Known())
	}
	if !ok {
		return recipe{}, unknownAgent(agent)
	}
	return in.entryRecipe(e), nil
}

// entryRecipe is the recipe of an agent that only the ACP registry knows. PATH
// is searched for its program only if that is named like the agent: entries may
// name programs start or cli, and an editor may have the name of its agent.
func (in *Installer) entryRecipe(e Entry) recipe {
	r := recipe{agent: e.ID, entry: e.ID}
	name := ""
	if b, ok := e.Distribution.Binary[in.platform.registryTarget()]; ok {
		name, r.acp = filepath.Base(strings.ReplaceAll(b.Cmd, `\`, "/")), nonNil(b.Args)
	} else if n := e.Distribution.NPX; n != nil {
		name, r.acp = or(n.Cmd, filepath.Base(packageName(n.Package))), nonNil(n.Args)
	}
	if name == e.ID {
		r.command = name
	}
	return r
}

// Remove removes every installed version of an agent, also one that runs. What is in PATH stays.
// The error is a *problem.Error, of kind agent_not_installed when there was
// nothing to remove, and of kind unsupported_agent when no such agent is known.
func (in *Installer) Remove(ctx context.Context, agent string) error {
	if !agentID.MatchString(agent) {
		return badID(agent)
	}
	dir := filepath.Join(in.root, agent)
	if _, err := os.Stat(dir); err != nil {
		return in.nothing(agent)
	}
	var versions []string
	unlock, err := in.lock(ctx, agent, nil)
	if err == nil {
		defer unlock()
		versions, err = in.versions(agent)
	}
	if err == nil {
		// First out of use, so that nobody finds half of it.
		if err = os.Remove(filepath.Join(dir, currentName)); err == nil || errors.Is(err, fs.ErrNotExist) {
			err = in.prune(agent, func(string) bool { return false })
		}
		if err == nil {
			err = in.hooks.remove(in.uvOf(agent, ""))
		}
		if err == nil {
			err = in.hooks.remove(dir)
		}
	}
	switch {
	case err != nil:
		return problem.Wrap(problem.InstallFailed, advise(err, in.root), "agent %s was not removed", agent)
	case len(versions) == 0: // but for what an installation that failed has left
		return in.nothing(agent)
	}
	return nil
}

// nothing is why there is nothing of an agent to remove.
func (in *Installer) nothing(agent string) *problem.Error {
	if !in.known(agent) {
		return in.unheardOf(agent)
	}
	if recipes[agent].builtIn {
		return problem.New(problem.InvalidRequest, "agent %s is part of this program, so there is nothing to remove", agent)
	}
	return problem.New(problem.AgentNotInstalled, "agent %s is not installed in %s, so there is nothing to remove", agent, in.root)
}
