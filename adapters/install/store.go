package install

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sandboxagent.dev/sandbox-agent/internal/pattern"
)

// Installation is one version of an agent's program on this machine, and where
// it came from.
type Installation struct {
	Agent   string   `json:"agent"`
	Version string   `json:"version"` // "" for a program found in PATH that was not asked
	Source  Source   `json:"source"`
	Program string   `json:"program"`        // absolute path of what is started
	Args    []string `json:"args,omitempty"` // come before all other arguments
	Env     []string `json:"env,omitempty"`  // NAME=value, added to the agent's environment
	// ACPArgs start the program as an ACP agent; nil when it is not known to be one.
	ACPArgs     []string  `json:"acpArgs"`
	Platform    string    `json:"platform"`
	InstalledAt time.Time `json:"installedAt,omitzero"`
	Reported    string    `json:"reported,omitempty"`  // what the program said when it was proved
	Handshake   string    `json:"handshake,omitempty"` // how it was proved, see [HandshakeVersion]; "" when it was not
	Verified    bool      `json:"verified"`            // every download was checked, by us or by the package client
	// Verification says how, and what is not known.
	Verification Verification `json:"verification"`
	Artifacts    []Artifact   `json:"artifacts"`
	Downloads    []Download   `json:"downloads,omitempty"`
	Packages     []string     `json:"packages,omitempty"` // of npm or uv, with versions
	Dir          string       `json:"dir,omitempty"`      // "" when the program is somebody else's
	Current      bool         `json:"current"`            // the version in use
}

// The kinds of artifacts.
const (
	KindProgram = "program" // what is started
	KindHelper  = "helper"  // a program that it starts
)

// Artifact is a program that an installation put, or found, on this machine.
type Artifact struct {
	Kind     string `json:"kind"`
	Path     string `json:"path"`
	Version  string `json:"version"`
	Source   Source `json:"source"`
	Verified bool   `json:"verified"`
	SHA256   string `json:"sha256,omitempty"` // of the file at Path when it was installed; "" when it was not
}

const (
	recordName  = "install.json"
	usedName    = "used" // see noteUse
	currentName = "current"
	partPrefix  = ".part-" // of downloads that ended early

	// partAge is how long such a part waits to be continued.
	partAge = 24 * time.Hour
)

// versionName is what versions look like. They become names of directories and
// parts of URLs, also when a server sent them.
var versionName = pattern.New(`^[0-9A-Za-z][0-9A-Za-z.+_-]{0,127}$`)

func checkVersion(v string) error {
	if !versionName.MatchString(v) || strings.Contains(v, "..") || v == currentName {
		return fmt.Errorf("%q is no version", v[:min(len(v), 80)])
	}
	return nil
}

func (in *Installer) dir(agent, version string) string { return filepath.Join(in.root, agent, version) }

// load reads one installation. An installation without its program is none.
func (in *Installer) load(agent, version string) (Installation, error) {
	dir := in.dir(agent, version)
	var i Installation
	b, err := os.ReadFile(filepath.Join(dir, recordName))
	if err != nil {
		return i, err
	}
	if err := json.Unmarshal(b, &i); err != nil {
		return i, fmt.Errorf("read %s: %w", filepath.Join(dir, recordName), err)
	}
	i.Dir = dir
	i.Program = below(dir, i.Program)
	if i.Verification.How == "" {
		i.Verification = verifiedBefore(i.Verified)
	}
	for k := range i.Artifacts {
		i.Artifacts[k].Path = below(dir, i.Artifacts[k].Path)
	}
	i.Env = replaced(i.Env, rootMark, in.root)
	if _, err := os.Stat(i.Program); err != nil {
		return i, err
	}
	return i, nil
}

func below(dir, p string) string {
	if filepath.IsAbs(p) {
		return p
	}
	return filepath.Join(dir, p)
}

// rootMark stands for the directory of agents in the environment of what install.json describes.
const rootMark = "{agents}"

func replaced(env []string, from, to string) []string {
	env = slices.Clone(env)
	for k := range env {
		env[k] = strings.ReplaceAll(env[k], from, to)
	}
	return env
}

// record writes an installation's provenance into the directory that will
// become it; its paths are relative to that.
func (in *Installer) record(dir string, i Installation) error {
	i.Dir, i.Current, i.Env = "", false, replaced(i.Env, in.root, rootMark)
	return writeJSON(filepath.Join(dir, recordName), i)
}

// writeJSON replaces a file by a document, atomically.
func writeJSON(name string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(name), ".new-*")
	if err != nil {
		return err
	}
	_, err = f.Write(append(b, '\n'))
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = f.Chmod(0o644)
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// current returns the version in use, "" if there is none.
func (in *Installer) current(agent string) string {
	v, err := os.Readlink(in.dir(agent, currentName))
	if err != nil || checkVersion(v) != nil {
		return ""
	}
	return v
}

// activate makes a version the one in use.
func (in *Installer) activate(agent, version string) error {
	next := in.dir(agent, ".next")
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Symlink(version, next); err != nil {
		return err
	}
	return os.Rename(next, in.dir(agent, currentName))
}

// land puts a finished stage in the place of a version. Whoever looks at the same time sees the old installation or the
// new one, and so does who looks when the machine has lost its power: a name can be durable before the file.
func (in *Installer) land(agent, version, stage string) error {
	if err := in.hooks.makeDurable(stage); err != nil {
		return err
	}
	place := in.dir(agent, version)
	err := os.Rename(stage, place)
	if _, serr := os.Lstat(place); err != nil && serr == nil {
		err = in.replace(agent, version, stage)
	}
	return err
}

// replace swaps stage with the version that is there, and removes that.
func (in *Installer) replace(agent, version, stage string) error {
	place, old := in.dir(agent, version), in.dir(agent, ".old-"+version)
	_ = os.Link(filepath.Join(place, runningName), filepath.Join(stage, runningName)) // who runs it does so still; of others there is none
	if !in.hooks.noExchange && exchange(stage, place) {
		return os.RemoveAll(stage)
	}
	if err := os.Rename(place, old); err != nil {
		return err
	}
	if err := os.Rename(stage, place); err != nil {
		return errors.Join(err, os.Rename(old, place))
	}
	return os.RemoveAll(old)
}

// putBack finishes a replacement that an installer that died had begun: a version whose new one had not landed gets its
// name again. The lock is held.
func (in *Installer) putBack(agent string) error {
	entries, err := os.ReadDir(filepath.Join(in.root, agent))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		if version, ok := strings.CutPrefix(e.Name(), ".old-"); ok {
			_ = os.Rename(in.dir(agent, e.Name()), in.dir(agent, version)) // it fails where the new one is
		}
	}
	return nil
}

// tidy removes what an installer that died left, and finishes a replacement
// that it had begun. The lock is held.
func (in *Installer) tidy(ctx context.Context, agent string) error {
	if err := in.putBack(agent); err != nil {
		return err
	}
	entries, err := os.ReadDir(filepath.Join(in.root, agent))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), partPrefix) {
			if info, err := e.Info(); err == nil && time.Since(info.ModTime()) < partAge {
				continue
			}
		}
		if strings.HasPrefix(e.Name(), ".") {
			if err := removeAll(ctx, in.dir(agent, e.Name())); err != nil {
				return err
			}
		}
	}
	fetched, err := os.ReadDir(in.uvOf(agent, ""))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range fetched {
		if _, err := os.Lstat(in.dir(agent, e.Name())); errors.Is(err, fs.ErrNotExist) {
			if err := removeAll(ctx, in.uvOf(agent, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// removeAll is [os.RemoveAll] that ends with ctx.
func removeAll(ctx context.Context, name string) error {
	_ = filepath.WalkDir(name, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() && ctx.Err() == nil {
			err = os.Remove(path)
		}
		return cmp.Or(ctx.Err(), err)
	})
	if err := ctx.Err(); err != nil {
		return err
	}
	return os.RemoveAll(name) // the folders, and what says why something stays
}

// PutBack gives the versions their names again that killed installers were about to replace, of agents that nobody
// installs at this moment. It is quick: do it before anybody looks for a program.
func (in *Installer) PutBack() {
	in.eachLeft(func(agent string) error { return in.putBack(agent) })
}

// Tidy removes what installers have left that were killed, of agents that nobody installs at this moment: a program can
// have half a gigabyte, and nobody may install it again. It ends with ctx. What is not removed then is by the next one, or
// by the next installation.
func (in *Installer) Tidy(ctx context.Context) {
	in.eachLeft(func(agent string) error {
		if err := in.tidy(ctx, agent); ctx.Err() == nil {
			return err
		}
		return nil
	})
}

// eachLeft calls f for each agent that nobody installs, with its lock.
func (in *Installer) eachLeft(f func(agent string) error) {
	agents, _ := os.ReadDir(in.root) // nothing was installed where it is not there
	now, cancel := context.WithCancel(context.Background())
	cancel() // it waits for nobody
	for _, a := range agents {
		if !a.IsDir() || !agentID.MatchString(a.Name()) {
			continue
		}
		unlock, err := in.lock(now, a.Name(), nil)
		if err != nil {
			continue
		}
		if err := f(a.Name()); err != nil {
			in.log.Warn("what an earlier installation left cannot be removed", "agent", a.Name(), "err", err)
		}
		unlock()
	}
}

const (
	// keptBeside is how many versions stay that clients name each time: those that were used last. Others are fetched
	// again.
	keptBeside = 4
	// justUsed is how long one stays in any case: it may be about to be started.
	justUsed = 10 * time.Minute
)

// noteUse notes that a version is used by who names it, in the time of a file beside its record.
func (in *Installer) noteUse(agent, version string) {
	file, now := in.usedFile(agent, version), time.Now()
	if os.Chtimes(file, now, now) != nil {
		_ = os.WriteFile(file, nil, 0o600) // one that is not noted is fetched again
	}
}

func (in *Installer) usedFile(agent, version string) string {
	return filepath.Join(in.dir(agent, version), usedName)
}

// named reports whether a version was used by who names it.
func (in *Installer) named(agent, version string) bool {
	_, err := os.Stat(in.usedFile(agent, version))
	return err == nil
}

// usedLast returns the versions that were named last, but for the current one.
func (in *Installer) usedLast(agent string) []string {
	current, at := in.current(agent), map[string]time.Time{}
	names, _ := in.versions(agent)
	names = slices.DeleteFunc(names, func(v string) bool {
		info, err := os.Stat(in.usedFile(agent, v))
		if err == nil {
			at[v] = info.ModTime()
		}
		return v == current || err != nil
	})
	slices.SortFunc(names, func(a, b string) int { return at[b].Compare(at[a]) })
	for i, v := range names {
		if i >= keptBeside && time.Since(at[v]) > justUsed {
			return names[:i]
		}
	}
	return names
}

// prune removes the versions that are not to be kept.
func (in *Installer) prune(agent string, keep func(version string) bool) error {
	versions, err := in.versions(agent)
	if err != nil {
		return err
	}
	for _, v := range versions {
		if keep(v) {
			continue
		}
		if err := in.discard(agent, v); err != nil {
			return err
		}
	}
	return nil
}

// discard removes a version. One of which a part is gone, because this program was killed, would be taken for one that
// is there: it loses its name first.
func (in *Installer) discard(agent, version string) error {
	gone := in.dir(agent, ".gone-"+version)
	if err := in.hooks.remove(gone); err != nil { // of one that was killed
		return err
	}
	if err := os.Rename(in.dir(agent, version), gone); err != nil {
		return err
	}
	if err := in.hooks.remove(gone); err != nil {
		return err
	}
	return in.hooks.remove(in.uvOf(agent, version))
}

// uvName is the folder of what uv has fetched, by agent and version, and of the Pythons that it has made for them.
const uvName = ".uv"

// uvOf is uv's folder of a version, or of all of an agent's if version is "".
func (in *Installer) uvOf(agent, version string) string {
	return filepath.Join(in.root, uvName, agent, version)
}

// versions returns the names of an agent's installed versions.
func (in *Installer) versions(agent string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(in.root, agent))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() && checkVersion(e.Name()) == nil {
			names = append(names, e.Name())
		}
	}
	return names, err
}

// List returns what is installed in the data directory, by agent and then by
// age, the newest first. Programs in PATH are not listed.
func (in *Installer) List() ([]Installation, error) {
	agents, err := os.ReadDir(in.root)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list the installed agents: %w", err)
	}
	var list []Installation
	for _, a := range agents {
		if !a.IsDir() || !agentID.MatchString(a.Name()) {
			continue
		}
		versions, err := in.versions(a.Name())
		if err != nil {
			return nil, fmt.Errorf("list the installed agents: %w", err)
		}
		current := in.current(a.Name())
		for _, v := range versions {
			i, err := in.load(a.Name(), v)
			if err != nil {
				continue // not ours, or removed meanwhile
			}
			i.Current = v == current
			list = append(list, i)
		}
	}
	slices.SortStableFunc(list, func(a, b Installation) int {
		return cmp.Or(cmp.Compare(a.Agent, b.Agent), b.InstalledAt.Compare(a.InstalledAt))
	})
	return list, nil
}

// fileSum returns the SHA-256 of a file.
func fileSum(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
