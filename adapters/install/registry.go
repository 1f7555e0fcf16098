package install

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"sandboxagent.dev/sandbox-agent/internal/pattern"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/internal/secret"
)

// DefaultRegistryURL is the index of the ACP registry.
const DefaultRegistryURL = "https://cdn.agentclientprotocol.com/registry/v1/latest/registry.json"

// NoRegistry in the place of its address has the ACP registry be asked for nothing, and what was stored of it not be used.
const NoRegistry = "none"

// registryAge is how old the copy of the index may be before it is refreshed.
const registryAge = 24 * time.Hour

// Index is the ACP registry, as far as installation needs it.
type Index struct {
	Agents    []Entry
	FetchedAt time.Time
	// Stale says that the copy is old and could not be refreshed; Err is why.
	Stale bool
	Err   error
}

// Entry is one agent of the ACP registry.
type Entry struct {
	ID           string       `json:"id"`
	Name         string       `json:"name"`
	Version      string       `json:"version"`
	Description  string       `json:"description"`
	Website      string       `json:"website,omitempty"`
	Repository   string       `json:"repository,omitempty"`
	License      string       `json:"license,omitempty"`
	Icon         string       `json:"icon,omitempty"`
	Distribution Distribution `json:"distribution"`
}

// Distribution says how an agent is distributed; at least one field is set.
type Distribution struct {
	Binary map[string]Binary `json:"binary,omitempty"` // by platform, such as linux-x86_64
	NPX    *Package          `json:"npx,omitempty"`
	UVX    *Package          `json:"uvx,omitempty"`
}

// Binary is a downloadable program.
type Binary struct {
	Archive string            `json:"archive"`
	Cmd     string            `json:"cmd"` // relative to where the archive is unpacked
	Args    []string          `json:"args,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
	SHA256  string            `json:"sha256,omitempty"` // of the archive
}

// Package is a package of npm or PyPI with its version.
type Package struct {
	Package string            `json:"package"`
	Cmd     string            `json:"cmd,omitempty"` // when it is not named like the package
	Args    []string          `json:"args,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
}

var agentID = pattern.New(`^[a-z][a-z0-9-]*$`)

// entry returns the agent with an id.
func (x *Index) entry(id string) (Entry, bool) {
	i := slices.IndexFunc(x.Agents, func(e Entry) bool { return e.ID == id })
	if i < 0 {
		return Entry{}, false
	}
	return x.Agents[i], true
}

// parseIndex reads an index. Entries that are not as the registry's rules say
// are left out: one bad entry must not hide the others.
func parseIndex(b []byte) ([]Entry, error) {
	var doc struct {
		Agents []json.RawMessage `json:"agents"`
	}
	if err := json.Unmarshal(b, &doc); err != nil {
		return nil, fmt.Errorf("read the index of the ACP registry: %w", err)
	}
	if doc.Agents == nil {
		return nil, errors.New("read the index of the ACP registry: it lists no agents")
	}
	var entries []Entry
	for _, raw := range doc.Agents {
		var e Entry
		if json.Unmarshal(raw, &e) != nil || !agentID.MatchString(e.ID) || checkVersion(e.Version) != nil {
			continue
		}
		if d := e.Distribution; len(d.Binary) == 0 && d.NPX == nil && d.UVX == nil {
			continue
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// registryCache is the file with the last good copy.
type registryCache struct {
	URL       string          `json:"url"` // without a password
	ETag      string          `json:"etag,omitempty"`
	FetchedAt time.Time       `json:"fetchedAt"`
	Index     json.RawMessage `json:"index"`
}

func (in *Installer) registryFile() string { return filepath.Join(in.root, ".registry.json") }

// cachedIndex returns the stored copy without asking the network.
func (in *Installer) cachedIndex() (*Index, *registryCache, error) {
	b, err := os.ReadFile(in.registryFile())
	if err != nil {
		return nil, nil, err
	}
	var c registryCache
	if err := json.Unmarshal(b, &c); err != nil {
		return nil, nil, err
	}
	if c.URL != secret.Address(in.registryURL) {
		return nil, nil, fs.ErrNotExist // of another registry
	}
	entries, err := parseIndex(c.Index)
	if err != nil {
		return nil, nil, err
	}
	return &Index{Agents: entries, FetchedAt: c.FetchedAt}, &c, nil
}

// Registry returns the index of the ACP registry. The stored copy is used for a
// day, unless an installation needs a newer one; when it then cannot be refreshed, it is returned with Stale set. Without
// any copy the error is a *problem.Error.
func (in *Installer) Registry(ctx context.Context) (*Index, error) {
	defer in.idle()
	return in.registry(ctx, registryAge)
}

// listed returns the entry of an agent, as good wants it if there is such a one. A copy of the
// index that does not have it is refreshed first: it can be newer than the copy.
func (in *Installer) listed(ctx context.Context, agent string, good func(e *Entry) bool) (e Entry, ok bool, err error) {
	began := time.Now()
	index, err := in.registry(ctx, registryAge)
	if err == nil {
		if e, ok = index.entry(agent); ok && good(&e) {
			return e, true, nil
		}
		if !index.Stale { // else it was just asked, in vain
			index, err = in.registry(ctx, time.Since(began))
		}
	}
	if err == nil {
		e, ok = index.entry(agent)
	}
	return e, ok, err
}

// registry returns a copy of the index that is younger than fresh, or what there is.
func (in *Installer) registry(ctx context.Context, fresh time.Duration) (*Index, error) {
	if in.registryURL == NoRegistry {
		return nil, problem.New(problem.InstallFailed, "the ACP registry is not used: --registry-url is %s", NoRegistry)
	}
	index, cache, cerr := in.cachedIndex()
	// A copy from the future was stored before somebody corrected the clock.
	if age := time.Since(indexTime(index)); cerr == nil && age >= 0 && age < fresh {
		return index, nil
	}
	fetched, err := in.fetchIndex(ctx, cache)
	if err == nil {
		return fetched, nil
	}
	if ctx.Err() == nil && cerr == nil {
		index.Stale, index.Err = true, err
		return index, nil
	}
	return nil, problem.Wrap(problem.InstallFailed, advise(err, in.root), "the index of the ACP registry is not available and no copy of it is stored")
}

func indexTime(x *Index) time.Time {
	if x == nil {
		return time.Time{}
	}
	return x.FetchedAt
}

// fetchIndex fetches the index and stores it; cache may be nil.
func (in *Installer) fetchIndex(ctx context.Context, cache *registryCache) (*Index, error) {
	var header []string
	if cache != nil && cache.ETag != "" {
		header = []string{"If-None-Match", cache.ETag}
	}
	c := registryCache{URL: secret.Address(in.registryURL), FetchedAt: time.Now().UTC()}
	b, h, err := in.text(ctx, in.registryURL, header...)
	switch e, _ := errors.AsType[*statusError](err); {
	case e != nil && e.code == 304 && cache != nil:
		c.Index, c.ETag = cache.Index, cache.ETag
	case err != nil:
		return nil, err
	default:
		c.Index, c.ETag = b, h.Get("ETag")
	}
	entries, err := parseIndex(c.Index)
	if err != nil {
		return nil, err
	}
	if err := in.makeRoot(); err == nil {
		// A copy that cannot be stored is fetched again next time.
		if err := writeJSON(in.registryFile(), c); err != nil {
			in.log.Debug("index of the registry was not stored", "err", err)
		}
	}
	return &Index{Agents: entries, FetchedAt: c.FetchedAt}, nil
}
