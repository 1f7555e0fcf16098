package install

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"sandboxagent.dev/sandbox-agent/internal/process"
)

// packageLimit bounds one run of a package client. It fetches hundreds of
// megabytes and tells nobody how far it is.
const packageLimit = 20 * time.Minute

// npm installs the agent's package with the npm client, its configuration and
// its registry.
func (j *job) npm(ctx context.Context) (*product, error) {
	n := j.recipe.npm
	if n == nil {
		return nil, fmt.Errorf("%w: no npm package of %s is known", errNotOffered, j.recipe.agent)
	}
	target := ""
	if n.targets != nil {
		var ok bool
		if target, ok = n.targets[j.platform.String()]; !ok {
			return nil, fmt.Errorf("%w: there is no npm package for %s", errNotOffered, j.platform)
		}
	}
	client, err := npmClient()
	if err != nil {
		return nil, err
	}
	values := map[string]string{"target": target}
	newest := fill(n.newest, values)
	j.say.step(StepResolve, newest)
	version, err := j.npmVersion(ctx, client, newest)
	if err != nil {
		return nil, err
	}
	version, err = j.npmNewest(ctx, client, newest, version, target)
	if err != nil {
		return nil, err
	}
	values["version"] = version
	spec := fill(n.install, values)
	p := &product{version: version, packages: []string{spec}}
	if p.verified, err = j.verifyPackages(ctx, client, packageName(spec)); err != nil {
		return nil, err
	}
	for _, pattern := range n.program {
		if found := j.inPackage(fill(pattern, values)); found != "" && p.program == "" {
			p.program = found
		}
	}
	if p.program == "" {
		return nil, fmt.Errorf("the npm package %s does not hold the program %s", spec, n.program[0])
	}
	for _, pattern := range n.helpers {
		if found := j.inPackage(fill(pattern, values)); found != "" {
			p.helpers = append(p.helpers, found)
		}
	}
	return p, nil
}

// olderTried bounds how many older versions are tried where the newest ones cannot be
// installed.
const olderTried = 20

// npmNewest installs a version into the stage, and where its maker published it without
// everything that it needs, and nobody has asked for it by its number, the newest older one
// that is whole. It returns which one that is.
func (j *job) npmNewest(ctx context.Context, client, newest, version, target string) (string, error) {
	err := j.npmTry(ctx, client, version, target)
	broken, ok := errors.AsType[*incompleteError](err)
	if !ok || j.want != "" {
		return version, err
	}
	older, lerr := j.npmOlder(ctx, client, newest, version)
	if lerr != nil {
		j.log.Debug("older versions are not known", "agent", j.recipe.agent, "err", lerr)
		return "", err
	}
	j.newer = &Newer{Version: version, Reason: broken.reason}
	for _, v := range older {
		if cerr := j.clear(); cerr != nil {
			return "", cerr
		}
		oerr := j.npmTry(ctx, client, v, target)
		if oerr == nil || errors.Is(oerr, errAlready) {
			j.log.Warn("an older version is used: the newest cannot be installed", "agent", j.recipe.agent, "version", v, "newest", version, "reason", broken.reason)
			return v, oerr
		}
		if _, ok := errors.AsType[*incompleteError](oerr); !ok {
			j.newer = nil
			return "", fmt.Errorf("its maker published version %s without everything that it needs, and of %s: %w", version, v, oerr)
		}
	}
	j.newer = nil
	return "", err
}

// npmTry installs one version into the stage, unless it is there.
func (j *job) npmTry(ctx context.Context, client, version, target string) error {
	if err := j.resolved(version); err != nil {
		return err
	}
	spec := fill(j.recipe.npm.install, map[string]string{"target": target, "version": version})
	return j.npmInstall(ctx, client, spec, j.recipe.npm.node)
}

// npmOlder returns the versions of a package before one of them, the newest first. What
// comes before a release is not among them.
func (j *job) npmOlder(ctx context.Context, client, pkg, version string) ([]string, error) {
	stdout, stderr, err := run(ctx, 4*j.stall, j.npmSpec(client, "view", pkg, "versions", "--json"), "", nil)
	if err != nil {
		return nil, j.npmError("ask for the versions of "+pkg, stdout+"\n"+stderr, fmt.Errorf("%w: %w", errAsking, err))
	}
	var all []string // in order
	if err := json.Unmarshal([]byte(stdout), &all); err != nil {
		return nil, fmt.Errorf("npm answered no list of versions of %s: %w", pkg, err)
	}
	all = all[:max(0, slices.Index(all, version))]
	slices.Reverse(all)
	all = slices.DeleteFunc(all, func(v string) bool { return strings.Contains(v, "-") || checkVersion(v) != nil })
	works := j.recipe.npm.works
	if at := slices.Index(all, works); at >= olderTried {
		all[olderTried-1] = works
	}
	return all[:min(len(all), olderTried)], nil
}

// incompleteError says that a version was published without what it needs.
type incompleteError struct{ text, reason string }

func (e *incompleteError) Error() string { return e.text }

// inPackage returns the file below node_modules that a pattern matches,
// relative to the stage, "" if none does.
func (j *job) inPackage(pattern string) string {
	found, _ := filepath.Glob(filepath.Join(j.stage, "node_modules", filepath.FromSlash(pattern)))
	if len(found) == 0 {
		return ""
	}
	rel, _ := filepath.Rel(j.stage, found[0])
	return rel
}

func npmClient() (string, error) {
	client, err := exec.LookPath("npm")
	if err != nil {
		return "", fmt.Errorf("npm %w in PATH: install Node.js with npm, or use another source", errMissing)
	}
	return client, nil
}

// errAsking marks errors of npm's answer about versions: only there does a
// missing package mean a missing version, later it may be a dependency's.
var errAsking = errors.New("asking for versions")

// npmVersion asks the registry for the wanted version of a package, or the
// newest.
func (j *job) npmVersion(ctx context.Context, client, pkg string) (string, error) {
	want := j.want
	if want == "" {
		want = "latest"
	}
	stdout, stderr, err := run(ctx, 4*j.stall, j.npmSpec(client, "view", pkg+"@"+want, "version", "--json", "--prefer-online"), "", nil)
	if err != nil {
		return "", j.npmError("ask for the versions of "+pkg, stdout+"\n"+stderr, fmt.Errorf("%w: %w", errAsking, err))
	}
	var one string
	var many []string
	switch {
	case json.Unmarshal([]byte(stdout), &one) == nil:
	case json.Unmarshal([]byte(stdout), &many) == nil && len(many) > 0:
		one = many[len(many)-1]
	case strings.TrimSpace(stdout) == "":
		return "", fmt.Errorf("%w: npm knows no %s@%s", errUnknownVersion, pkg, want)
	}
	if err := checkVersion(one); err != nil {
		return "", fmt.Errorf("npm answered no version of %s: %w", pkg, err)
	}
	return one, nil
}

// npmInstall installs one exact package into the stage. No script of a package
// runs. node says that Node.js will run it, so its version must suit.
func (j *job) npmInstall(ctx context.Context, client, spec string, node bool) error {
	j.say.step(StepPackage, spec)
	args := []string{
		"install", "--prefix", j.stage, "--ignore-scripts", "--no-save", "--no-package-lock",
		"--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error",
	}
	if node {
		args = append(args, "--engine-strict")
	}
	stdout, stderr, err := run(ctx, packageLimit, j.npmSpec(client, append(args, "--", spec)...), "", nil)
	if err != nil {
		return j.npmError("install "+spec, stdout+"\n"+stderr, err)
	}
	return nil
}

func (j *job) npmSpec(client string, args ...string) process.Spec {
	return process.Spec{Path: client, Args: args, Dir: j.stage, Env: append(fetchEnviron("NPM_", "NODE_"), "NO_COLOR=1", "CI=1")}
}

// fileErrors are npm's codes of a file or folder that it cannot use.
var fileErrors = []string{"EACCES", "EPERM", "EROFS", "ENOTDIR", "ENOENT", "EEXIST"}

// staged reports whether a path that npm names is of the stage. Where links lead to that, npm names what they lead to.
func (j *job) staged(path string) bool {
	resolved, _ := filepath.EvalSymlinks(j.stage)
	return slices.ContainsFunc([]string{j.stage, resolved}, func(stage string) bool {
		rel, err := filepath.Rel(stage, path)
		return err == nil && filepath.IsLocal(rel)
	})
}

// npmError says in a line what npm reported in many.
func (j *job) npmError(doing, output string, err error) error {
	ended, ok := errors.AsType[*runError](err)
	switch {
	case !ok:
		return fmt.Errorf("npm could not %s: %w", doing, err)
	case ended.exit.Signal != "": // what it wrote is not why
		return fmt.Errorf("npm could not %s: it was ended by %s: install again; if nobody has ended it, look for a lack of memory", doing, ended.exit.Signal)
	}
	var said []string
	for line := range strings.Lines(output) {
		line = strings.TrimSpace(line)
		line, ok := strings.CutPrefix(line, "npm error ")
		if ok && strings.Contains(line, " ") && !strings.HasPrefix(line, "A complete log") && !slices.Contains(said, line) {
			said = append(said, line)
		}
	}
	if len(said) == 0 {
		said = []string{ending(output)}
	}
	text := strings.Join(said[:min(len(said), 6)], " / ")
	has := func(codes ...string) bool {
		return slices.ContainsFunc(codes, func(c string) bool { return strings.Contains(output, c) })
	}
	where := j.stage
	for _, line := range said {
		if name, ok := strings.CutPrefix(line, "path "); ok && filepath.IsAbs(name) {
			where = name
		}
	}
	switch unusable := slices.IndexFunc(fileErrors, func(code string) bool { return has("code " + code) }); {
	case unusable >= 0 && !j.staged(where):
		return fmt.Errorf("npm could not %s: it cannot use %s (%s), where it keeps what it loads: let this user write there, or set HOME or npm_config_cache to a directory that it may write to", doing, where, fileErrors[unusable])
	case errors.Is(err, errAsking) && j.want != "" && has("code E404", "code ETARGET"):
		return fmt.Errorf("%w: npm could not %s: %s", errUnknownVersion, doing, text)
	case !errors.Is(err, errAsking) && has("code ETARGET", "code E404"):
		reason := "its maker published this version without everything that it needs"
		for _, line := range said {
			if _, which, ok := strings.Cut(line, "No matching version found for "); ok {
				reason += ": there is no " + strings.TrimSuffix(which, ".")
				break
			}
		}
		text += "; " + reason + ": name an older version, or use another source"
		if j.recipe.npm != nil && j.recipe.npm.works != "" {
			text += "; version " + j.recipe.npm.works + " is known to install: sandbox-agent agents install " + j.recipe.agent + " --agent-version " + j.recipe.npm.works
		}
		return &incompleteError{text: fmt.Sprintf("npm could not %s: %s", doing, text), reason: reason}
	case has("ENOSPC"):
		return advise(&os.PathError{Op: "npm could not " + doing + " at", Path: where, Err: syscall.ENOSPC}, where)
	case has("code EBADENGINE"):
		text += "; install a newer Node.js, or use another source"
	case has("ENOTFOUND", "EAI_AGAIN", "ECONNREFUSED", "ETIMEDOUT", "ECONNRESET"):
		text += "; the registry that npm is configured with cannot be reached: check the connection, a proxy, or npm's registry setting"
	case has("code E401", "code E403"):
		text += "; the registry that npm is configured with refuses: check its credentials"
	}
	return fmt.Errorf("npm could not %s: %s", doing, text)
}

// binOf returns the command that a package installed below the stage offers:
// cmd, or what npx would choose.
func (j *job) binOf(pkg, cmd string) (string, error) {
	if cmd == "" {
		b, err := os.ReadFile(filepath.Join(j.stage, "node_modules", filepath.FromSlash(pkg), "package.json"))
		if err != nil {
			return "", fmt.Errorf("read what %s offers: %w", pkg, err)
		}
		var doc struct {
			Bin json.RawMessage `json:"bin"`
		}
		if err := json.Unmarshal(b, &doc); err != nil {
			return "", fmt.Errorf("read what %s offers: %w", pkg, err)
		}
		cmd = path.Base(pkg)
		var bins map[string]string
		if json.Unmarshal(doc.Bin, &bins) == nil && len(bins) > 0 {
			if _, ok := bins[cmd]; !ok || len(bins) == 1 {
				for name := range bins {
					cmd = name
				}
				if len(bins) > 1 {
					return "", fmt.Errorf("the package %s offers several commands and the entry does not say which", pkg)
				}
			}
		}
	}
	bin := filepath.Join("node_modules", ".bin", cmd)
	if !filepath.IsLocal(cmd) {
		return "", fmt.Errorf("the command %q is no file name", cmd)
	}
	if _, err := os.Stat(filepath.Join(j.stage, bin)); err != nil {
		return "", fmt.Errorf("the package %s offers no command %s: %w", pkg, cmd, err)
	}
	return bin, nil
}
