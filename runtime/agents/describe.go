package agents

import (
	"time"

	"sandboxagent.dev/sandbox-agent/adapters"
)

// AuthState is what is known of an agent's login. An agent's adapter may say it
// in initialize's _meta["sandboxagent.dev"].authState.
type AuthState string

// The states of an agent's login.
const (
	AuthUnknown       AuthState = "unknown"       // nobody has asked the agent yet
	AuthAuthenticated AuthState = "authenticated" // the agent said so, or has made a session
	AuthRequired      AuthState = "required"      // the agent refused to work without
)

// Info describes one agent that sessions can use.
type Info struct {
	ID          string `json:"id"`
	Name        string `json:"name"`
	Kind        string `json:"kind"` // bridge, native, custom
	Description string `json:"description,omitempty"`
	Website     string `json:"website,omitempty"`
	License     string `json:"license,omitempty"`
	Icon        string `json:"icon,omitempty"`
	Installed   bool   `json:"installed"`
	Version     string `json:"version,omitempty"` // of the program, when known
	Path        string `json:"path,omitempty"`    // of the program
	Source      string `json:"source,omitempty"`  // where the program came from
	// Verified says how the program was verified when it was installed.
	Verified string `json:"verified,omitempty"`
	Default  bool   `json:"default"`
	// CredentialsAvailable says that the gateway's environment or home
	// directory holds credentials for the agent; they may be wrong.
	CredentialsAvailable bool      `json:"credentialsAvailable"`
	AuthState            AuthState `json:"authState"`
	// Capabilities is the agent's row of the feature matrix; absent when
	// nobody has looked.
	Capabilities adapters.Features `json:"capabilities,omitempty"`
	// Models, Modes and ThoughtLevels are what the agent itself offered in its
	// newest session; absent before.
	Models        []Choice      `json:"models,omitempty"`
	Modes         []Choice      `json:"modes,omitempty"`
	ThoughtLevels []Choice      `json:"thoughtLevels,omitempty"`
	Processes     []ProcessInfo `json:"processes"`
	// LastError is why the newest process that failed did so: it did not start, or died.
	LastError string `json:"lastError,omitempty"`
}

// Choice is one value of something an agent lets choose.
type Choice struct {
	ID          string `json:"id"`
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
}

// ProcessInfo describes one live agent process.
type ProcessInfo struct {
	PID       int       `json:"pid"`
	StartedAt time.Time `json:"startedAt"`
	UptimeMS  int64     `json:"uptimeMs"`
	Sessions  int       `json:"sessions"`
	Restarts  int       `json:"restarts"`
	LastError string    `json:"lastError,omitempty"`
	RSSBytes  int64     `json:"rssBytes"`
	// Stderr is what it has written there; nil when that is nothing.
	Stderr *Stderr `json:"stderr,omitempty"`
}

// Stderr quotes what a process wrote to stderr.
type Stderr struct {
	Head       string `json:"head"`
	Tail       string `json:"tail"`
	Truncated  bool   `json:"truncated"`
	TotalLines int    `json:"totalLines"`
}

// QuoteStderr is what a process wrote to stderr, for those who ask.
func QuoteStderr(s adapters.Stderr) *Stderr {
	return &Stderr{Head: s.Head, Tail: s.Tail, Truncated: s.Truncated, TotalLines: s.TotalLines}
}

// Describe says what is known of the agent, without asking it.
func (a *Agent) Describe() Info {
	about := a.adapter.Info()
	row := Info{
		ID: about.ID, Name: about.Name, Kind: string(about.Kind),
		Description: about.Description, Website: about.Website, License: about.License, Icon: about.Icon,
		CredentialsAvailable: loginFound(about.ID, about.Login), Capabilities: about.Features, Processes: []ProcessInfo{},
	}
	if p, ok := a.locate(""); ok {
		row.Installed, row.Version, row.Path, row.Source, row.Verified = true, p.Version, p.Path, p.Source, p.Verified
	}
	a.mu.Lock()
	restarts, lastErr := a.restarts, a.lastErr
	row.AuthState, row.LastError = a.auth, lastErr
	a.mu.Unlock()
	if row.AuthState == "" {
		row.AuthState = AuthUnknown
	}
	for _, p := range a.Processes() {
		pi := ProcessInfo{Restarts: restarts, LastError: lastErr, StartedAt: p.since.UTC(), UptimeMS: time.Since(p.since).Milliseconds()}
		p.mu.Lock()
		pi.Sessions = len(p.routes)
		p.mu.Unlock()
		if os, ok := p.conn.(adapters.Process); ok {
			if pi.PID, pi.RSSBytes = os.PID(), os.RSS(); pi.PID == 0 {
				continue // a bridge that has started nothing
			}
			if said := os.Stderr(); said.TotalLines > 0 {
				pi.Stderr = QuoteStderr(said)
			}
		}
		row.Processes = append(row.Processes, pi)
	}
	return row
}
