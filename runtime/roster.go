package runtime

import (
	"encoding/json"
	"time"

	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/adapters"
)

// Agents describes every agent: those that were configured, in their order, and
// then what the catalog knows.
func (r *Runtime) Agents() []AgentInfo {
	list := r.agentList()
	newest := map[string]*Session{}
	for _, s := range r.allSessions() {
		s.mu.Lock()
		known := len(s.rec.ConfigOptions) > 0 || len(s.rec.Modes) > 0
		name, made := s.rec.Agent, s.rec.CreatedAt
		s.mu.Unlock()
		if old := newest[name]; known && (old == nil || made.After(old.created())) {
			newest[name] = s
		}
	}
	out := make([]AgentInfo, 0, len(list))
	for _, a := range list {
		row := a.describe()
		row.Default = a.id == r.o.DefaultAgent
		if s := newest[a.id]; s != nil {
			s.offers(&row)
		}
		out = append(out, row)
	}
	return out
}

func (s *Session) created() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rec.CreatedAt
}

// offers adds what the agent offered in the session.
func (s *Session) offers(row *AgentInfo) {
	s.mu.Lock()
	options, modes := s.rec.ConfigOptions, s.rec.Modes
	s.mu.Unlock()
	for _, o := range rawjson.Elements(options) {
		var to *[]Choice
		switch rawjson.MemberString(o, "category") {
		case "model":
			to = &row.Models
		case "mode":
			to = &row.Modes
		case "thought_level":
			to = &row.ThoughtLevels
		default:
			continue
		}
		for _, v := range choices(o) {
			*to = append(*to, choice(v, "value"))
		}
	}
	if row.Modes == nil {
		available, _ := rawjson.Member(modes, "availableModes")
		for _, v := range rawjson.Elements(available) {
			row.Modes = append(row.Modes, choice(v, "id"))
		}
	}
}

func choice(v json.RawMessage, id string) Choice {
	return Choice{ID: rawjson.MemberString(v, id), Name: rawjson.MemberString(v, "name"), Description: rawjson.MemberString(v, "description")}
}

// describe says what is known of the agent, without asking it.
func (a *agent) describe() AgentInfo {
	info := a.adapter.Info()
	row := AgentInfo{
		ID: info.ID, Name: info.Name, Kind: string(info.Kind),
		Description: info.Description, Website: info.Website, License: info.License, Icon: info.Icon,
		CredentialsAvailable: loginFound(info.ID, info.Login), Capabilities: info.Features, Processes: []ProcessInfo{},
	}
	if p, ok := a.locate(""); ok {
		row.Installed, row.Version, row.Path, row.Source = true, p.Version, p.Path, p.Source
	}
	a.mu.Lock()
	restarts, lastErr := a.restarts, a.lastErr
	row.AuthState = a.auth
	a.mu.Unlock()
	if row.AuthState == "" {
		row.AuthState = AuthUnknown
	}
	for _, p := range a.live() {
		pi := ProcessInfo{Restarts: restarts, LastError: lastErr, StartedAt: p.started.UTC(), UptimeMS: time.Since(p.started).Milliseconds()}
		p.mu.Lock()
		pi.Sessions = len(p.sessions)
		p.mu.Unlock()
		if os, ok := p.conn.(adapters.Process); ok {
			if pi.PID, pi.RSSBytes = os.PID(), os.RSS(); pi.PID == 0 {
				continue // a bridge that has started nothing
			}
			if said := os.Stderr(); said.TotalLines > 0 {
				pi.Stderr = stderrInfo(said)
			}
		}
		row.Processes = append(row.Processes, pi)
	}
	return row
}
