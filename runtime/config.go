package runtime

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"

	"sandboxagent.dev/sandbox-agent/acp"
)

// unsupported names a field of _meta["sandboxagent.dev"] that had no effect.
type unsupported struct {
	Field  string `json:"field"`
	Reason string `json:"reason"`
}

// configFields are those that an agent's config options can take, and the
// category of the option.
var configFields = []struct{ field, category string }{
	{"model", "model"}, {"variant", "thought_level"}, {"mode", "mode"},
}

// setupFields are those that only an agent's adapter can take.
var setupFields = []string{
	"permissionMode", "instructions", "appendSystemPrompt", "skills", "mcp", "additionalDirectories",
	"credentials", "agentVersion", "agentSpecific",
}

// configureNew sets what session/new asked for by the agent's own config
// options, and returns what nobody acted on. Nothing is dropped in silence.
func (s *Session) configureNew(ctx context.Context, p *proc, meta json.RawMessage) []unsupported {
	own, ok := acp.Member(meta, acp.MetaKey)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.r.o.RequestTimeout)
	defer cancel()
	info := p.agent.adapter.Info()
	takes := info.Takes
	if info.Program != "" {
		takes = append(slices.Clip(takes), "agentVersion")
	}
	var out []unsupported
	for _, c := range configFields {
		want := acp.MemberString(own, c.field)
		if want == "" || slices.Contains(takes, c.field) {
			continue
		}
		if reason := s.setOption(ctx, p, c.category, want); reason != "" {
			out = append(out, unsupported{c.field, reason})
		}
	}
	for _, f := range setupFields {
		v, given := acp.Member(own, f)
		if !given || slices.Contains(takes, f) || f == "permissionMode" && string(v) == `"default"` {
			continue
		}
		out = append(out, unsupported{f, "agent " + p.agent.id + " does not take it from the gateway"})
	}
	return out
}

// setOption sets the session's option of a category and returns why it could
// not.
func (s *Session) setOption(ctx context.Context, p *proc, category, want string) (reason string) {
	s.mu.Lock()
	options, modes := s.rec.ConfigOptions, s.rec.Modes
	s.mu.Unlock()
	id := ""
	for _, o := range acp.Elements(options) {
		if acp.MemberString(o, "category") == category {
			if acp.MemberString(o, "currentValue") == want {
				return ""
			}
			id = acp.MemberString(o, "id")
		}
	}
	native := acp.AppendQuoted(nil, s.native())
	var method string
	var params []byte
	switch {
	case id != "":
		method = "session/set_config_option"
		params = bytes.Join([][]byte{[]byte(`{"sessionId":`), native, []byte(`,"configId":`), acp.AppendQuoted(nil, id), []byte(`,"value":`), acp.AppendQuoted(nil, want), {'}'}}, nil)
	case category == "mode" && len(modes) > 0:
		method = "session/set_mode"
		params = bytes.Join([][]byte{[]byte(`{"sessionId":`), native, []byte(`,"modeId":`), acp.AppendQuoted(nil, want), {'}'}}, nil)
	default:
		return "agent " + p.agent.id + " offers no option for it"
	}
	res, err := p.ask(ctx, method, params)
	if err != nil {
		return callError(err).Message
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if v, ok := acp.Member(res, "configOptions"); ok {
		s.rec.ConfigOptions = v
	}
	if method == "session/set_mode" {
		s.rec.Modes = acp.SetMember(s.rec.Modes, acp.AppendQuoted(nil, want), "currentModeId")
	}
	s.unsaved = true
	return ""
}
