package credentials

import (
	"cmp"
	"os"
	"slices"
	"strings"
	"time"
)

// Kind says how a credential is used.
type Kind string

// The kinds of credentials.
const (
	APIKey Kind = "api_key"
	OAuth  Kind = "oauth" // of a login: it expires, and agents renew it
)

// Credential is one that was found.
type Credential struct {
	Provider  string     `json:"provider"`        // whom it is for, such as anthropic
	Agent     string     `json:"agent,omitempty"` // whose file it is in; "" for the environment
	Kind      Kind       `json:"kind"`
	Source    string     `json:"source"` // a variable, or a file
	ExpiresAt *time.Time `json:"expiresAt,omitempty"`
	// Renewable says that the agent can renew it when it has expired.
	Renewable bool   `json:"renewable,omitempty"`
	Value     string `json:"value"`
}

// Expired reports whether the credential has run out at a moment.
func (c *Credential) Expired(now time.Time) bool {
	return c.ExpiresAt != nil && !now.Before(*c.ExpiresAt)
}

// Usable reports whether its agent can use it at a moment.
func (c *Credential) Usable(now time.Time) bool { return c.Renewable || !c.Expired(now) }

// Redacted is the value as it may be shown: enough to tell two apart.
func (c *Credential) Redacted() string {
	v := c.Value
	if len(v) < 20 {
		return "****"
	}
	return v[:min(7, len(v)/4)] + "…" + v[len(v)-4:]
}

// Problem is a file that could not be used.
type Problem struct {
	Agent  string `json:"agent"`
	File   string `json:"file"`
	Reason string `json:"reason"`
}

// Options say where to look.
type Options struct {
	Home      string                   // "" is the user's
	Getenv    func(name string) string // nil is the program's own environment
	Agents    []string                 // only these agents' files; the environment counts for all. nil is all
	Providers []string                 // only credentials for these; nil is all
	NoOAuth   bool                     // leave out those of logins
}

// Find returns what there is, the environment first, then agents in the order of
// [Agents]. Several may hold the same value.
func Find(o Options) ([]Credential, []Problem) {
	if o.Getenv == nil {
		o.Getenv = os.Getenv
	}
	var found []Credential
	var problems []Problem
	for _, v := range variables {
		if value := strings.TrimSpace(o.Getenv(v.name)); value != "" {
			found = append(found, Credential{Provider: v.provider, Kind: v.kind, Source: v.name, Value: value})
		}
	}
	home, getenv := o.Home, o.Getenv
	if home != "" {
		getenv = func(string) string { return "" } // the variables are of another home
	} else {
		var err error
		if home, err = os.UserHomeDir(); err != nil {
			problems = append(problems, Problem{Reason: err.Error()})
		}
	}
	for _, f := range files {
		if o.Agents != nil && !slices.Contains(o.Agents, f.agent) {
			continue
		}
		path := f.in(home, getenv)
		here, err := f.find(path)
		if err != nil {
			problems = append(problems, Problem{Agent: f.agent, File: path, Reason: err.Error()})
		}
		found = append(found, here...)
	}
	found = slices.DeleteFunc(found, func(c Credential) bool {
		return o.NoOAuth && c.Kind == OAuth || o.Providers != nil && !slices.Contains(o.Providers, c.Provider)
	})
	return found, problems
}

// Agents are the agents whose files are known, in the order in which they are
// read.
func Agents() []string {
	var out []string
	for _, f := range files {
		if !slices.Contains(out, f.agent) {
			out = append(out, f.agent)
		}
	}
	return out
}

// Available reports whether an agent's files hold a credential that it can use
// now.
func Available(agent, home string) bool {
	getenv := func(string) string { return "" } // of another home
	if home == "" {
		home, _ = os.UserHomeDir()
		getenv = os.Getenv
	}
	now := time.Now()
	for _, f := range files {
		if f.agent != agent {
			continue
		}
		found, _ := f.find(f.in(home, getenv))
		if slices.ContainsFunc(found, func(c Credential) bool { return c.Usable(now) }) {
			return true
		}
	}
	return false
}

// Known reports whether an agent's files are known.
func Known(agent string) bool { return slices.Contains(Agents(), agent) }

// Variable is an environment variable with a credential.
type Variable struct {
	Name, Value string
	From        *Credential
}

// Environment returns the variables that give what was found to agents: the first
// of each provider and kind that has not expired. left are those that no variable
// can carry.
func Environment(found []Credential, now time.Time) (out []Variable, left []Credential) {
	taken := map[string]bool{}
	for i := range found {
		c := &found[i]
		name := variableOf(c)
		switch {
		case name == "" || c.Expired(now):
			left = append(left, *c)
		case !taken[name]:
			taken[name] = true
			out = append(out, Variable{name, c.Value, c})
		}
	}
	slices.SortFunc(out, func(a, b Variable) int { return cmp.Compare(a.Name, b.Name) })
	return out, left
}

// variableOf is the variable that carries the credential, "" when none does.
func variableOf(c *Credential) string {
	if c.Agent == "" {
		return c.Source // where it is already
	}
	for _, v := range variables {
		if v.provider == c.Provider && v.kind == c.Kind {
			return v.name
		}
	}
	if c.Kind != APIKey || !plainName(c.Provider) {
		return ""
	}
	return strings.ToUpper(strings.NewReplacer("-", "_", ".", "_").Replace(c.Provider)) + "_API_KEY"
}

func plainName(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return r != '-' && r != '.' && r != '_' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	}) && (s[0] < '0' || s[0] > '9')
}

// variables are where agents look, the usual name of each provider and kind
// first.
var variables = []struct {
	name, provider string
	kind           Kind
}{
	{"ANTHROPIC_API_KEY", "anthropic", APIKey},
	{"CLAUDE_CODE_OAUTH_TOKEN", "anthropic", OAuth},
	{"ANTHROPIC_AUTH_TOKEN", "anthropic", OAuth},
	{"OPENAI_API_KEY", "openai", APIKey},
	{"CODEX_API_KEY", "openai", APIKey},
	{"GEMINI_API_KEY", "google", APIKey},
	{"GOOGLE_GENERATIVE_AI_API_KEY", "google", APIKey},
	{"GOOGLE_API_KEY", "google", APIKey},
	{"AMP_API_KEY", "amp", APIKey},
	{"OPENROUTER_API_KEY", "openrouter", APIKey},
	{"GROQ_API_KEY", "groq", APIKey},
	{"MISTRAL_API_KEY", "mistral", APIKey},
	{"DEEPSEEK_API_KEY", "deepseek", APIKey},
	{"XAI_API_KEY", "xai", APIKey},
	{"CEREBRAS_API_KEY", "cerebras", APIKey},
	{"OPENCODE_API_KEY", "opencode", APIKey},
	{"CURSOR_API_KEY", "cursor", APIKey},
	{"FACTORY_API_KEY", "factory", APIKey},
	{"KIMI_API_KEY", "kimi", APIKey},
	{"DASHSCOPE_API_KEY", "dashscope", APIKey},
	{"COPILOT_GITHUB_TOKEN", "github", OAuth},
	{"GH_TOKEN", "github", OAuth},
	{"GITHUB_TOKEN", "github", OAuth},
}
