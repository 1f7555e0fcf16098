package all

import (
	"context"
	"slices"
	"sync"
	"time"

	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/adapters/install"
	"sandboxagent.dev/sandbox-agent/adapters/native"
)

// refreshEvery bounds how often the registry is asked because somebody lists
// agents; the installer itself keeps its copy for a day.
const refreshEvery = time.Hour

// Catalog is the agents of the ACP registry. Those that are built in are left
// out, and so are the registry's wrappers of them under other names.
type Catalog struct {
	in     *install.Installer
	hidden []string

	ctx  context.Context // ends with Close
	stop context.CancelFunc
	work sync.WaitGroup

	mu    sync.Mutex
	asked time.Time // when the registry was last asked in the background
}

// NewCatalog returns the agents of the installer's registry. Close it.
func NewCatalog(in *install.Installer) *Catalog {
	c := &Catalog{in: in, hidden: native.Elsewhere()}
	for _, a := range builtin() {
		c.hidden = append(c.hidden, a.Info().ID)
	}
	c.ctx, c.stop = context.WithCancel(context.Background())
	return c
}

// Tidy has what killed installers left removed in the background, until Close. The versions that they were about to replace
// are there again when it returns.
func (c *Catalog) Tidy() {
	c.in.PutBack()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx.Err() == nil {
		c.work.Go(func() { c.in.Tidy(c.ctx) })
	}
}

// Close ends what the catalog does in the background.
func (c *Catalog) Close() {
	c.mu.Lock()
	c.stop()
	c.mu.Unlock()
	c.work.Wait()
}

// Lookup returns an agent of the registry; it asks the network when the copy is
// a day old, or missing.
func (c *Catalog) Lookup(ctx context.Context, id string) (adapters.Adapter, bool) {
	if slices.Contains(c.hidden, id) {
		return nil, false
	}
	find := func(entries []install.Entry) (adapters.Adapter, bool) {
		i := slices.IndexFunc(entries, func(e install.Entry) bool { return e.ID == id })
		if i < 0 {
			return nil, false
		}
		return adapter(entries[i]), true
	}
	if a, ok := find(c.in.Cached()); ok {
		return a, true
	}
	index, err := c.in.Registry(ctx)
	if err != nil {
		return nil, false
	}
	return find(index.Agents)
}

// Known lists what the stored copy has, and has it refreshed for the next time.
func (c *Catalog) Known() []adapters.Adapter {
	c.mu.Lock()
	if time.Since(c.asked) > refreshEvery && c.ctx.Err() == nil {
		c.asked = time.Now()
		c.work.Go(func() { _, _ = c.in.Registry(c.ctx) }) // the old copy stays when it fails
	}
	c.mu.Unlock()
	var out []adapters.Adapter
	for _, e := range c.in.Cached() {
		if !slices.Contains(c.hidden, e.ID) {
			out = append(out, adapter(e))
		}
	}
	return out
}

func adapter(e install.Entry) adapters.Adapter {
	return native.Entry(adapters.Info{ID: e.ID, Name: e.Name, Description: e.Description, Website: e.Website, License: e.License, Icon: e.Icon})
}
