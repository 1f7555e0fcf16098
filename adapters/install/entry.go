package install

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"sandboxagent.dev/sandbox-agent/internal/pattern"
	"sandboxagent.dev/sandbox-agent/internal/process"
	"sandboxagent.dev/sandbox-agent/internal/secret"
)

// fromRegistry installs what the agent's entry in the ACP registry offers, the
// safest kind first: a checked download, npm, uv, an unchecked download.
func (j *job) fromRegistry(ctx context.Context) (*product, error) {
	if j.recipe.entry == "" {
		return nil, fmt.Errorf("%w: the ACP registry has no entry for this program", errNotOffered)
	}
	j.say.step(StepResolve, secret.Address(j.registryURL))
	e, ok, err := j.listed(ctx, j.recipe.entry, func(e *Entry) bool {
		return j.want == e.Version || j.want == "" && !j.newest && !j.reinstall
	})
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, fmt.Errorf("%w: the ACP registry has no entry %s", errNotOffered, j.recipe.entry)
	}
	if j.want != "" && j.want != e.Version {
		return nil, fmt.Errorf("%w as %s: the ACP registry offers %s", errUnknownVersion, j.want, e.Version)
	}
	if err := j.resolved(e.Version); err != nil {
		return nil, err
	}
	bin, hasBin := e.Distribution.Binary[j.platform.registryTarget()]
	type way func(context.Context, Entry) (*product, error)
	var ways []way
	binary := func(ctx context.Context, e Entry) (*product, error) { return j.entryBinary(ctx, e, bin) }
	if hasBin && bin.SHA256 != "" {
		ways = append(ways, binary)
	}
	if e.Distribution.NPX != nil {
		ways = append(ways, j.entryNPX)
	}
	if e.Distribution.UVX != nil {
		ways = append(ways, j.entryUVX)
	}
	if hasBin && bin.SHA256 == "" {
		ways = append(ways, binary)
	}
	if len(ways) == 0 {
		return nil, fmt.Errorf("%w: the entry %s of the ACP registry has nothing for %s", errNotOffered, e.ID, j.platform)
	}
	var failed error
	for _, w := range ways {
		p, err := w(ctx, e)
		if err == nil || ctx.Err() != nil || local(err) {
			return p, err
		}
		if _, ok := errors.AsType[*checksumError](err); ok || forged(err) {
			return nil, err // not a reason to take the same program from elsewhere
		}
		if failed != nil {
			err = fmt.Errorf("%w; %w", failed, err)
		}
		failed = err
		if err := j.clear(); err != nil {
			return nil, err
		}
	}
	return nil, failed
}

func (j *job) entryBinary(ctx context.Context, e Entry, b Binary) (*product, error) {
	cmd := strings.ReplaceAll(b.Cmd, `\`, "/")
	cmd = filepath.Clean(filepath.FromSlash(cmd))
	if b.Cmd == "" || !filepath.IsLocal(cmd) || cmd == "." {
		return nil, fmt.Errorf("the entry %s of the ACP registry names the program %q, which is not in its archive", e.ID, b.Cmd)
	}
	u, err := url.Parse(b.Archive)
	if err != nil || u.Host == "" || u.Scheme != "https" {
		return nil, fmt.Errorf("the entry %s of the ACP registry names the download %q, which is no https URL", e.ID, b.Archive)
	}
	if format(u.Path) == "unknown" {
		return nil, fmt.Errorf("%w: the entry %s of the ACP registry is packed in a form that this program does not read: %s", errNotOffered, e.ID, b.Archive)
	}
	want := ""
	if b.SHA256 != "" {
		if want = asSum(b.SHA256); want == "" {
			return nil, fmt.Errorf("the entry %s of the ACP registry has the checksum %q, which is no SHA-256", e.ID, b.SHA256)
		}
	}
	d, err := j.place(ctx, b.Archive, want, map[string]string{"": filepath.ToSlash(cmd)}, nil)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(filepath.Join(j.stage, cmd))
	if err != nil || !info.Mode().IsRegular() {
		return nil, fmt.Errorf("the download %s does not hold the program %s", d.URL, b.Cmd)
	}
	return &product{version: e.Version, program: cmd, downloads: []Download{d}, verified: checksumOf(d, "the ACP registry"), acp: nonNil(b.Args), env: assignments(b.Env)}, nil
}

// packageSpec is a package with a version; it begins with no dash, so that no
// client takes it for a flag.
var packageSpec = pattern.New(`^@?[A-Za-z0-9][A-Za-z0-9._/\[\]-]*((@|==)[A-Za-z0-9][A-Za-z0-9.+_-]*)?$`)

// packageName returns the name in a specification such as @scope/name@1.2.3.
func packageName(spec string) string {
	if i := strings.LastIndexByte(spec, '@'); i > 0 {
		return spec[:i]
	}
	return spec
}

func (j *job) entryNPX(ctx context.Context, e Entry) (*product, error) {
	n := e.Distribution.NPX
	if !packageSpec.MatchString(n.Package) {
		return nil, fmt.Errorf("the entry %s of the ACP registry names %q, which is no package", e.ID, n.Package)
	}
	client, err := npmClient()
	if err != nil {
		return nil, err
	}
	if err := j.npmInstall(ctx, client, n.Package, true); err != nil {
		return nil, err
	}
	verified, err := j.verifyPackages(ctx, client, packageName(n.Package))
	if err != nil {
		return nil, err
	}
	bin, err := j.binOf(packageName(n.Package), n.Cmd)
	if err != nil {
		return nil, err
	}
	return &product{version: e.Version, program: bin, packages: []string{n.Package}, verified: verified, acp: nonNil(n.Args), env: assignments(n.Env)}, nil
}

// entryUVX lets uv run the package from a folder of uv's that belongs to this version. An environment that uv made
// cannot be moved into place afterwards.
func (j *job) entryUVX(ctx context.Context, e Entry) (*product, error) {
	u := e.Distribution.UVX
	if !packageSpec.MatchString(u.Package) || strings.HasPrefix(u.Cmd, "-") {
		return nil, fmt.Errorf("the entry %s of the ACP registry names %q, which is no package", e.ID, u.Package)
	}
	client, err := exec.LookPath("uvx")
	if err != nil {
		return nil, fmt.Errorf("uvx %w in PATH: install uv", errMissing)
	}
	if client, err = filepath.Abs(client); err != nil {
		return nil, err
	}
	j.say.step(StepPackage, u.Package)
	args := []string{u.Package}
	if u.Cmd != "" {
		args = []string{"--from", u.Package, u.Cmd}
	}
	uv := j.uvOf(j.recipe.agent, e.Version)
	cache := filepath.Join(uv, "cache")
	// A person's UV_NO_CACHE would take away what was fetched: what is proved, and run later, would not be there.
	env := append(assignments(u.Env), "UV_NO_CACHE=false", "UV_CACHE_DIR="+cache, "UV_TOOL_DIR="+filepath.Join(uv, "tools"), "UV_PYTHON_INSTALL_DIR="+filepath.Join(j.root, uvName, "python"))
	// With all that uv may need for it. Not a line of the package runs: what uv is asked to run beside it is uv itself,
	// by its path, which no program of the package can have.
	fetch := process.Spec{
		Path: client, Args: []string{"--from", u.Package, client, "--version"}, Dir: j.stage,
		Env: slices.Concat(fetchEnviron("UV_"), uvConfig(), []string{"UV_NO_PROGRESS=1", "NO_COLOR=1"}, env),
	}
	if _, _, err := run(ctx, packageLimit, fetch, "", nil); err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, fmt.Errorf("uv could not fetch %s: %w", u.Package, err)
	}
	if !exists(cache) {
		return nil, fmt.Errorf("uv has kept nothing of %s: take no-cache out of uv's own settings (uv.toml)", u.Package)
	}
	return &product{
		version: e.Version, program: client, args: args, packages: []string{u.Package}, acp: nonNil(u.Args), env: env, proofEnv: uvProof(),
		verified: Verification{How: ByChecksum, By: "the index that uv uses", Note: "uv fetches it again when its cache is lost"},
	}, nil
}

// uvSettings are uv's variables by which it finds what it has fetched again. None is a secret but for what may stand in
// an address.
var uvSettings = map[string]bool{
	"UV_CONFIG_FILE": true, "UV_NO_CONFIG": true, "UV_DEFAULT_INDEX": true, "UV_INDEX": true, "UV_INDEX_URL": true, "UV_EXTRA_INDEX_URL": true,
	"UV_FIND_LINKS": true, "UV_NO_INDEX": true, "UV_INDEX_STRATEGY": true, "UV_PYTHON": true, "UV_PYTHON_PREFERENCE": true,
	"UV_MANAGED_PYTHON": true, "UV_NO_MANAGED_PYTHON": true, "UV_PRERELEASE": true, "UV_RESOLUTION": true, "UV_EXCLUDE_NEWER": true,
	"UV_CONSTRAINT": true, "UV_OVERRIDE": true, "UV_LINK_MODE": true, "UV_NO_BINARY": true, "UV_NO_BUILD": true,
}

// uvProof lets uv run a package that it has fetched, and gives that nothing of which it could make use.
func uvProof() []string {
	env := []string{"UV_OFFLINE=1", "UV_NO_PROGRESS=1"}
	for _, kv := range os.Environ() {
		if name, value, _ := strings.Cut(kv, "="); uvSettings[name] {
			env = append(env, name+"="+userOfAddress.ReplaceAllString(value, "//"))
		}
	}
	return append(env, uvConfig()...)
}

// uvConfig names uv's file of settings, which it would not find without the user's home directory. Whoever fetches and
// whoever proves must have the same one: uv finds again what it has fetched from the same index.
func uvConfig() []string {
	if dir, err := os.UserConfigDir(); err == nil && os.Getenv("UV_CONFIG_FILE") == "" {
		if file := filepath.Join(dir, "uv", "uv.toml"); exists(file) {
			return []string{"UV_CONFIG_FILE=" + file}
		}
	}
	return nil
}

// userOfAddress is what stands before the host in an address.
var userOfAddress = pattern.New(`//[^\s/]*@`)

func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

func assignments(m map[string]string) []string {
	var env []string
	for _, name := range slices.Sorted(maps.Keys(m)) {
		env = append(env, name+"="+m[name])
	}
	return env
}

// nonNil marks a program as an ACP agent even if it needs no arguments.
func nonNil(args []string) []string {
	if args == nil {
		return []string{}
	}
	return args
}
