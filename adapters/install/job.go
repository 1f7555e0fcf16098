package install

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// errAlready ends a source's work when the version that it found is installed.
var errAlready = errors.New("already installed")

// job is one installation under way.
type job struct {
	*Installer
	recipe    recipe
	want      string // exact version, "" for the newest
	newest    bool   // nothing but the newest will do
	reinstall bool
	beside    bool // another version that is in use stays so
	began     time.Time
	source    Source // that is asked
	stage     string // directory that becomes the installation
	say       *reporter
	there     Installation // set with errAlready
	newer     *Newer       // set when a source has installed an older version than its newest
}

// product is what a source put into the stage, or found.
type product struct {
	version   string
	program   string // relative to the stage, or absolute if it lies elsewhere
	helpers   []string
	args, env []string
	acp       []string
	proofEnv  []string // what only the proof has in its environment
	downloads []Download
	packages  []string
	verified  Verification
	proof     proof
}

// present returns an installation that satisfies the request already.
func (j *job) present() (Installation, bool) {
	i, ok := j.installed(j.recipe.agent)
	switch {
	case j.reinstall, j.newest:
		return Installation{}, false // the source says which version that is
	case j.want == "" || ok && i.Version == j.want:
		return i, ok
	}
	i, err := j.use(j.want)
	return i, err == nil
}

// use puts an installed version into use, unless another one is to stay so.
func (j *job) use(version string) (Installation, error) {
	i, err := j.load(j.recipe.agent, version)
	if _, taken := j.installed(j.recipe.agent); err == nil && !(j.beside && taken) {
		err = j.activate(j.recipe.agent, version)
	}
	if i.Current = j.current(j.recipe.agent) == version; err == nil && j.beside {
		j.noteUse(j.recipe.agent, version)
	}
	return i, err
}

// resolved is called by sources when they know the version, before they fetch
// it: it may be there.
func (j *job) resolved(version string) error {
	if j.reinstall {
		// Another installer that held the lock before us may have done it.
		i, err := j.load(j.recipe.agent, version)
		if err != nil || i.Source != j.source || !i.InstalledAt.After(j.began) {
			return nil
		}
	}
	i, err := j.use(version)
	if err != nil {
		return nil //nolint:nilerr // it is not there, or not whole
	}
	j.there = i
	return errAlready
}

// ask asks the sources one after the other. The lock is held.
func (j *job) ask(ctx context.Context, sources []Source) (Result, error) {
	var answers attempts
	for _, s := range sources {
		if s == Path && j.reinstall && len(sources) > 1 {
			continue // it is not ours to install again
		}
		j.source, j.say.last.Source = s, s
		i, err := j.from(ctx, s)
		if err == nil || errors.Is(err, errAlready) {
			return Result{Installation: i, Already: err != nil || s == Path, Attempts: answers, Newer: j.newer}, nil
		}
		if ctx.Err() != nil {
			return Result{}, fmt.Errorf("stopped: %w", context.Cause(ctx))
		}
		err, j.newer = advise(err, j.root), nil
		j.log.Debug("source could not install", "agent", j.recipe.agent, "source", s, "err", err)
		answers = append(answers, Attempt{Source: s, Answer: err.Error(), err: err})
		if (local(err) || forged(err)) && s != Path {
			break
		}
	}
	return Result{}, answers.problem(j.recipe.agent)
}

// from installs from one source.
func (j *job) from(ctx context.Context, s Source) (i Installation, err error) {
	if s == Path {
		p, err := j.path(ctx)
		if err != nil {
			return i, err
		}
		return j.describeForeign(p), nil
	}
	agentDir := filepath.Join(j.root, j.recipe.agent)
	if err := os.MkdirAll(agentDir, 0o755); err != nil {
		return i, err
	}
	if j.stage, err = os.MkdirTemp(agentDir, ".stage-"); err != nil {
		return i, err
	}
	defer func() { _ = os.RemoveAll(j.stage) }() // gone already if it landed
	if err := os.Chmod(j.stage, 0o755); err != nil {
		return i, err
	}
	var p *product
	switch s {
	case Vendor:
		p, err = j.vendor(ctx)
	case NPM:
		p, err = j.npm(ctx)
	default:
		p, err = j.fromRegistry(ctx)
	}
	if errors.Is(err, errAlready) {
		return j.there, err
	}
	if err != nil {
		return i, err
	}
	return j.finish(ctx, s, p)
}

// clear empties the stage for another try.
func (j *job) clear() error {
	if err := os.RemoveAll(j.stage); err != nil {
		return err
	}
	return os.Mkdir(j.stage, 0o755)
}

// finish proves a product and puts it into its place.
func (j *job) finish(ctx context.Context, s Source, p *product) (Installation, error) {
	program := below(j.stage, p.program)
	if !filepath.IsAbs(p.program) {
		// Archives made on other systems may not say that it is a program.
		info, err := os.Stat(program)
		if err == nil && info.Mode().Perm()&0o111 != 0o111 {
			err = os.Chmod(program, info.Mode().Perm()|0o111)
		}
		if err != nil {
			return Installation{}, err
		}
	}
	// Before it runs for the first time.
	if err := j.checkVerification(p.verified); err != nil {
		return Installation{}, err
	}
	j.say.step(StepProve, filepath.Base(program))
	if p.acp == nil {
		p.acp = j.recipe.acp
	}
	var err error
	p.proof, err = j.prove(ctx, program, p.args, slices.Concat(p.proofEnv, j.recipe.env, p.env), p.acp)
	if err != nil {
		return Installation{}, err
	}
	j.say.step(StepLand, p.version)
	i, err := j.describe(s, p)
	if err != nil {
		return i, err
	}
	if err := j.record(j.stage, i); err != nil {
		return i, fmt.Errorf("store where the program came from: %w", err)
	}
	agent, before := j.recipe.agent, j.current(j.recipe.agent)
	if err := j.land(agent, p.version, j.stage); err != nil {
		return i, fmt.Errorf("put the program into its place: %w", err)
	}
	i, err = j.use(p.version)
	if err != nil {
		return i, fmt.Errorf("put the program into use: %w", err)
	}
	if before != p.version {
		beside := j.usedLast(agent)
		// A program that runs may need more of its files.
		keep := func(v string) bool {
			return v == before || v == p.version || slices.Contains(beside, v) || running(j.dir(agent, v)) || !i.Current && !j.named(agent, v)
		}
		if err := j.prune(agent, keep); err != nil {
			j.log.Warn("old versions were not removed", "agent", agent, "err", err)
		}
	}
	return i, nil
}

// describe is the provenance of a product, with paths relative to the stage.
func (j *job) describe(s Source, p *product) (Installation, error) {
	i := Installation{
		Agent: j.recipe.agent, Version: p.version, Source: s, Program: p.program, Args: p.args, Env: p.env, ACPArgs: p.acp,
		Platform: j.platform.String(), InstalledAt: time.Now().UTC(), Reported: p.proof.reported, Handshake: p.proof.handshake,
		Downloads: p.downloads, Packages: p.packages,
		Verified: p.verified.How.rank() >= ByChecksum.rank(), Verification: p.verified,
	}
	for k, name := range append([]string{p.program}, p.helpers...) {
		a := Artifact{Kind: KindHelper, Path: name, Version: p.version, Source: s, Verified: i.Verified}
		if k == 0 {
			a.Kind = KindProgram
		}
		if !filepath.IsAbs(name) { // of somebody else's it is their business what it becomes
			var err error
			if a.SHA256, err = fileSum(below(j.stage, name)); err != nil {
				return i, fmt.Errorf("read what was installed: %w", err)
			}
		}
		i.Artifacts = append(i.Artifacts, a)
	}
	return i, nil
}

func (j *job) describeForeign(p *product) Installation {
	i := j.foreign(j.recipe.agent, p.program)
	i.Version, i.Reported, i.Handshake, i.ACPArgs = p.version, p.proof.reported, p.proof.handshake, p.acp
	i.Artifacts[0].Version = p.version
	return i
}
