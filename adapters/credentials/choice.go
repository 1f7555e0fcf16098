package credentials

import (
	"cmp"
	"slices"
	"time"
)

// Choice says which of several credentials for one provider an agent takes.
type Choice struct {
	Agent    string   `json:"agent"`
	Provider string   `json:"provider"`
	Takes    string   `json:"takes"`   // where it is: a variable, or a file
	Instead  []string `json:"instead"` // where the others are, that it does not look at
}

// habit is what an agent was seen to do where it finds several: it was given a different
// key in each place, and a server that wrote down which one came.
type habit struct {
	provider  string   // the only one that it takes keys of, "" for any
	variables []string // that it takes, in its order; nil is all of the provider, in an order that is not known
	envFirst  bool     // variables go before its files
}

var habits = map[string]habit{
	"claude":   {"anthropic", []string{"ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN"}, true},
	"codex":    {"openai", nil, false},
	"amp":      {"amp", nil, true},
	"opencode": {"", nil, false},
	"pi":       {"", nil, false},
}

// Choices says of each agent that finds several credentials for one provider which one it
// takes. found is what [Find] returns; what nobody can use at the moment now is left out.
func Choices(found []Credential, now time.Time) []Choice {
	var out []Choice
	for _, agent := range Agents() {
		h := habits[agent]
		places := map[string][]string{} // by provider
		var providers []string
		take := func(c *Credential) {
			if !c.Usable(now) || h.provider != "" && c.Provider != h.provider || slices.Contains(places[c.Provider], c.Source) {
				return
			}
			if places[c.Provider] == nil {
				providers = append(providers, c.Provider)
			}
			places[c.Provider] = append(places[c.Provider], c.Source)
		}
		variables := func() {
			ordered := slices.Clone(found)
			slices.SortStableFunc(ordered, func(a, b Credential) int {
				return cmp.Compare(slices.Index(h.variables, a.Source), slices.Index(h.variables, b.Source))
			})
			for _, c := range ordered {
				if c.Agent == "" && (h.variables == nil || slices.Contains(h.variables, c.Source)) {
					take(&c)
				}
			}
		}
		if h.envFirst {
			variables()
		}
		kept := map[string]bool{} // providers of which it has something in its files
		for _, c := range found {
			if c.Agent == agent {
				kept[c.Provider] = true
				take(&c)
			}
		}
		if !h.envFirst {
			variables()
		}
		for _, p := range providers {
			if len(places[p]) > 1 && (kept[p] || h.variables != nil) {
				out = append(out, Choice{agent, p, places[p][0], places[p][1:]})
			}
		}
	}
	return out
}
