package opencode

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

// maxKept bounds a file of the user's that is kept to be put back: a larger one
// is left as OpenCode makes it.
const maxKept = 4 << 20

// plugin is the package that OpenCode installs wherever it finds a folder for
// plugins, whether there are any or not.
const plugin = "@opencode-ai/plugin"

// ignored is the .gitignore that OpenCode writes beside it.
const ignored = "node_modules\npackage.json\npackage-lock.json\nbun.lock\n.gitignore"

// guard puts the .opencode folders of workspaces back to what they were: OpenCode
// installs a package there. Only what is recognised as OpenCode's is removed. What
// was there is noted in files, so that a gateway that was killed is made up for by
// the next one. Its methods are safe for concurrent use.
type guard struct {
	dir string // of the notes
	log *slog.Logger

	mu      sync.Mutex
	folders map[string][]string // .opencode folders by working directory
}

// before is what was in a folder.
type before struct {
	Folder string `json:"folder"`
	// Files has what was in package.json and in lock files; a name without a file
	// is missing, and null stands for what is too large.
	Files   map[string][]byte `json:"files"`
	Modules bool              `json:"modules"` // there was a node_modules
	Ignore  bool              `json:"ignore"`  // there was a .gitignore
}

var kept = []string{"package.json", "package-lock.json", "bun.lock"}

func newGuard(dir string, log *slog.Logger) *guard {
	return &guard{dir: dir, log: log, folders: map[string][]string{}}
}

func (g *guard) note(folder string) string {
	sum := sha256.Sum256([]byte(folder))
	return filepath.Join(g.dir, hex.EncodeToString(sum[:12])+".json")
}

// watch notes what is in the .opencode folders of a working directory and of
// those above it, unless that is noted already.
func (g *guard) watch(cwd string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.folders[cwd] != nil {
		return
	}
	found := []string{}
	for dir := cwd; ; dir = filepath.Dir(dir) {
		folder := filepath.Join(dir, ".opencode")
		if info, err := os.Stat(folder); err == nil && info.IsDir() {
			found = append(found, folder)
			if _, err := os.Stat(g.note(folder)); errors.Is(err, fs.ErrNotExist) {
				g.remember(folder)
			}
		}
		if dir == filepath.Dir(dir) {
			break
		}
	}
	g.folders[cwd] = found
}

func (g *guard) remember(folder string) {
	b := before{Folder: folder, Files: map[string][]byte{}}
	for _, name := range kept {
		info, err := os.Stat(filepath.Join(folder, name))
		if err != nil {
			continue
		}
		b.Files[name] = nil
		if info.Size() > maxKept {
			continue
		}
		if content, err := os.ReadFile(filepath.Join(folder, name)); err == nil {
			b.Files[name] = content
		}
	}
	b.Modules = exists(filepath.Join(folder, "node_modules"))
	b.Ignore = exists(filepath.Join(folder, ".gitignore"))
	raw, err := schema.Encode(b)
	if err == nil {
		err = bridge.WritePrivate(g.note(folder), raw)
	}
	if err != nil {
		g.log.Warn("note what is in a folder", "folder", folder, "err", err)
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// restore puts the folders of a working directory back, as far as nobody else
// has changed them. The notes stay: OpenCode may still be at work there.
func (g *guard) restore(cwd string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, folder := range g.folders[cwd] {
		g.putBack(folder)
	}
}

// restoreAll puts all folders back and forgets the notes. No process may run any
// more.
func (g *guard) restoreAll() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, all := range g.folders {
		for _, folder := range all {
			g.putBack(folder)
			if err := os.Remove(g.note(folder)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				g.log.Warn("forget what was in a folder", "folder", folder, "err", err)
			}
		}
	}
	clear(g.folders)
}

func (g *guard) putBack(folder string) {
	raw, err := os.ReadFile(g.note(folder))
	var b before
	if err != nil || json.Unmarshal(raw, &b) != nil || b.Folder != folder {
		return
	}
	drop := func(name string) {
		if err := os.RemoveAll(filepath.Join(folder, name)); err != nil {
			g.log.Warn("remove what opencode has installed", "file", filepath.Join(folder, name), "err", err)
		}
	}
	if now, err := os.ReadFile(filepath.Join(folder, ".gitignore")); err == nil && !b.Ignore && string(bytes.TrimSpace(now)) == ignored {
		drop(".gitignore")
	}
	now, err := os.ReadFile(filepath.Join(folder, "package.json"))
	if err != nil || !installed(b.Files["package.json"], now) {
		return // nothing was installed, or the user has changed it
	}
	for _, name := range kept {
		content, was := b.Files[name]
		switch {
		case !was:
			drop(name)
		case content != nil:
			if err := os.WriteFile(filepath.Join(folder, name), content, 0o644); err != nil {
				g.log.Warn("put back what opencode has changed", "file", filepath.Join(folder, name), "err", err)
			}
		}
	}
	if !b.Modules {
		drop("node_modules")
	}
}

// installed reports whether a package.json differs from what it was by nothing
// but OpenCode's package.
func installed(was, now []byte) bool {
	var before, after map[string]any
	if len(was) == 0 {
		was = []byte("{}")
	}
	if json.Unmarshal(was, &before) != nil || json.Unmarshal(now, &after) != nil {
		return false
	}
	list, ok := after["dependencies"].(map[string]any)
	if old, _ := before["dependencies"].(map[string]any); !ok || list[plugin] == nil || old[plugin] != nil {
		return false
	}
	delete(list, plugin)
	if _, was := before["dependencies"]; !was && len(list) == 0 {
		delete(after, "dependencies")
	}
	a, errA := schema.Encode(before)
	b, errB := schema.Encode(after)
	return errA == nil && errB == nil && slices.Equal(a, b)
}
