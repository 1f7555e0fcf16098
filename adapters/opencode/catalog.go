package opencode

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
)

// providerList is what the server says of model providers. It comes with their
// keys, which are not decoded.
type providerList struct {
	Providers []struct {
		ID     string `json:"id"`
		Name   string `json:"name"`
		Models map[string]struct {
			ID     string `json:"id"`
			Name   string `json:"name"`
			Status string `json:"status"`
			Limit  struct {
				Context uint64 `json:"context"`
			} `json:"limit"`
			Variants map[string]struct {
				Disabled bool `json:"disabled"`
			} `json:"variants"`
		} `json:"models"`
	} `json:"providers"`
	Default map[string]string `json:"default"` // the model of each provider
}

// model is a model that a session can use.
type model struct {
	provider, id string
	name         string
	variants     []string
	window       uint64 // tokens, 0 when unknown
}

// key is the model's id for clients, which is OpenCode's own form.
func (m *model) key() string { return m.provider + "/" + m.id }

// mode is an agent of OpenCode's that people can talk to.
type mode struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	Mode        string `json:"mode"`
	Hidden      bool   `json:"hidden"`
}

// command is what a prompt may begin with.
type command struct {
	Name        string   `json:"name"`
	Description string   `json:"description"`
	Source      string   `json:"source"` // command, mcp, skill
	Hints       []string `json:"hints"`
}

// catalog is what there is to choose in a directory.
type catalog struct {
	models   []model
	fallback string // the model that is used when nobody chose one
	modes    []mode
	first    string // the mode that is used when nobody chose one
	commands []command
}

// catalog asks for what there is in a directory. The first question about a
// directory makes the server look at it, which takes seconds.
func (s *server) catalog(ctx context.Context, dir string) (*catalog, error) {
	var list providerList
	var agents []mode
	c := new(catalog)
	var config struct {
		Model string `json:"model"`
		Agent string `json:"default_agent"`
	}
	questions := []struct {
		path   string
		result any
	}{{"/config/providers", &list}, {"/agent", &agents}, {"/command", &c.commands}, {"/config", &config}}
	errs := make([]error, len(questions))
	var all sync.WaitGroup
	for i, q := range questions {
		all.Go(func() { errs[i] = s.call(ctx, "GET", at(q.path, dir), nil, q.result) })
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	for _, p := range list.Providers {
		for _, id := range slices.Sorted(maps.Keys(p.Models)) {
			one := p.Models[id]
			m := model{provider: p.ID, id: id, name: one.Name, window: one.Limit.Context}
			if p.Name != "" && one.Name != "" {
				m.name = p.Name + "/" + one.Name
			}
			for _, v := range slices.Sorted(maps.Keys(one.Variants)) {
				if !one.Variants[v].Disabled {
					m.variants = append(m.variants, v)
				}
			}
			c.models = append(c.models, m)
		}
		if id := list.Default[p.ID]; c.fallback == "" && id != "" {
			c.fallback = p.ID + "/" + id
		}
	}
	if config.Model != "" && c.find(config.Model) != nil {
		c.fallback = config.Model
	}
	if c.fallback == "" && len(c.models) > 0 {
		c.fallback = c.models[0].key()
	}
	for _, one := range agents {
		if one.Mode != "subagent" && !one.Hidden {
			c.modes = append(c.modes, one)
		}
	}
	c.first = config.Agent
	if !slices.ContainsFunc(c.modes, func(m mode) bool { return m.Name == c.first }) && len(c.modes) > 0 {
		c.first = c.modes[0].Name
	}
	return c, nil
}

// find returns a model by its key, nil for one that is not there.
func (c *catalog) find(key string) *model {
	provider, id, _ := strings.Cut(key, "/")
	for i := range c.models {
		if m := &c.models[i]; m.provider == provider && m.id == id {
			return m
		}
	}
	return nil
}

// window is how much a model's context holds, 0 when that is not known.
func (c *catalog) window(provider, id string) uint64 {
	if m := c.find(provider + "/" + id); m != nil {
		return m.window
	}
	return 0
}
