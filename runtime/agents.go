package runtime

import (
	"encoding/json"

	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/runtime/session"
)

// AgentNames returns the ids of the agents that were configured.
func (r *Runtime) AgentNames() []string { return r.agents.Names() }

// Agents describes every agent: those that were configured, in their order, and
// then what the catalog knows.
func (r *Runtime) Agents() []AgentInfo {
	list := r.agents.List()
	newest := map[string]session.About{}
	for _, s := range r.sessions.All() {
		about := s.About()
		if known := len(about.ConfigOptions) > 0 || len(about.Modes) > 0; known && about.CreatedAt.After(newest[about.Agent].CreatedAt) {
			newest[about.Agent] = about
		}
	}
	out := make([]AgentInfo, 0, len(list))
	for _, a := range list {
		row := a.Describe()
		row.Default = a.ID() == r.o.DefaultAgent
		addChoices(&row, newest[a.ID()])
		out = append(out, row)
	}
	return out
}

// addChoices adds what the agent offered in a session.
func addChoices(row *AgentInfo, s session.About) {
	for _, o := range rawjson.Elements(s.ConfigOptions) {
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
		for _, v := range session.Choices(o) {
			*to = append(*to, choice(v, "value"))
		}
	}
	if row.Modes == nil {
		available, _ := rawjson.Member(s.Modes, "availableModes")
		for _, v := range rawjson.Elements(available) {
			row.Modes = append(row.Modes, choice(v, "id"))
		}
	}
}

func choice(v json.RawMessage, id string) Choice {
	return Choice{ID: rawjson.MemberString(v, id), Name: rawjson.MemberString(v, "name"), Description: rawjson.MemberString(v, "description")}
}
