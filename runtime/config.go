package runtime

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"slices"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
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
	own, ok := rawjson.Member(meta, acp.MetaKey)
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
		want := rawjson.MemberString(own, c.field)
		if want == "" || slices.Contains(takes, c.field) {
			continue
		}
		if reason := s.setOption(ctx, p, c.category, want); reason != "" {
			out = append(out, unsupported{c.field, reason})
		}
	}
	for _, f := range setupFields {
		v, given := rawjson.Member(own, f)
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
	for _, o := range rawjson.Elements(options) {
		if rawjson.MemberString(o, "category") == category {
			if rawjson.MemberString(o, "currentValue") == want {
				return ""
			}
			id = rawjson.MemberString(o, "id")
		}
	}
	native := rawjson.AppendQuoted(nil, s.native())
	var method string
	var params []byte
	switch {
	case id != "":
		method = "session/set_config_option"
		params = bytes.Join([][]byte{[]byte(`{"sessionId":`), native, []byte(`,"configId":`), rawjson.AppendQuoted(nil, id), []byte(`,"value":`), rawjson.AppendQuoted(nil, want), {'}'}}, nil)
	case category == "mode" && len(modes) > 0:
		method = "session/set_mode"
		params = bytes.Join([][]byte{[]byte(`{"sessionId":`), native, []byte(`,"modeId":`), rawjson.AppendQuoted(nil, want), {'}'}}, nil)
	default:
		return "agent " + p.agent.id + " offers no option for it"
	}
	res, err := p.ask(ctx, method, params)
	if err != nil {
		return callError(err).Message
	}
	quoted := rawjson.AppendQuoted(nil, want)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.chosenLocked(method, quoted, id, quoted)
	if v, ok := rawjson.Member(res, "configOptions"); ok {
		s.rec.ConfigOptions = v
	}
	if method == "session/set_mode" {
		s.rec.Modes = rawjson.SetMember(s.rec.Modes, rawjson.AppendQuoted(nil, want), "currentModeId")
	}
	s.unsaved = true
	return ""
}

// chosenLocked remembers what somebody set; mu is held. A map that was saved may
// be read elsewhere, so it is replaced and not changed.
func (s *Session) chosenLocked(method string, mode json.RawMessage, option string, value json.RawMessage) {
	switch {
	case method == "session/set_mode":
		var id string
		if json.Unmarshal(mode, &id) == nil {
			s.rec.ChosenMode = id
		}
	case method == "session/set_config_option" && option != "" && len(value) > 0:
		chosen := maps.Clone(s.rec.Chosen)
		if chosen == nil {
			chosen = map[string]json.RawMessage{}
		}
		chosen[option] = value
		s.rec.Chosen = chosen
	}
}

// chooseAgain sets at an agent that was started anew what was chosen before, as
// far as the agent has not kept it. What the agent refuses stays as the agent
// has it, and clients see that in its options.
func (s *Session) chooseAgain(ctx context.Context, p *proc) {
	s.mu.Lock()
	chosen, mode := s.rec.Chosen, s.rec.ChosenMode
	options, modes := s.rec.ConfigOptions, s.rec.Modes
	s.mu.Unlock()
	native := rawjson.AppendQuoted(nil, s.native())
	now := map[string]json.RawMessage{}
	for _, o := range rawjson.Elements(options) {
		now[rawjson.MemberString(o, "id")], _ = rawjson.Member(o, "currentValue")
	}
	tell := func(method string, params []byte) {
		res, err := p.ask(ctx, method, params)
		if err != nil {
			s.r.log.Warn("agent did not take a choice again", "session", s.id, "method", method, "err", err)
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if v, ok := rawjson.Member(res, "configOptions"); ok {
			s.rec.ConfigOptions = v
		}
		s.unsaved = true
	}
	if mode != "" && len(modes) > 0 && rawjson.MemberString(modes, "currentModeId") != mode {
		quoted := rawjson.AppendQuoted(nil, mode)
		tell("session/set_mode", bytes.Join([][]byte{[]byte(`{"sessionId":`), native, []byte(`,"modeId":`), quoted, {'}'}}, nil))
		s.mu.Lock()
		s.rec.Modes = rawjson.SetMember(s.rec.Modes, quoted, "currentModeId")
		s.mu.Unlock()
	}
	for _, id := range slices.Sorted(maps.Keys(chosen)) {
		if current, there := now[id]; there && string(current) != string(chosen[id]) {
			tell("session/set_config_option", bytes.Join([][]byte{[]byte(`{"sessionId":`), native, []byte(`,"configId":`), rawjson.AppendQuoted(nil, id), []byte(`,"value":`), chosen[id], {'}'}}, nil))
		}
	}
	s.save()
}
