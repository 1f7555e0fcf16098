package session

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/runtime/viewer"
)

// Unsupported names a field of _meta["sandboxagent.dev"] that had no effect.
type Unsupported struct {
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
	"permissionMode", "instructions", "appendSystemPrompt", "skills", "additionalDirectories",
	"agentVersion", "agentSpecific",
}

// knownFields are all fields of _meta["sandboxagent.dev"] that a request that sets up a
// session can have.
var knownFields = slices.Concat(setupFields, []string{
	"agent", "requestedSessionId", "after", "title", "model", "variant", "mode", "mcp", "env", "credentials", "isolation", "handover", "durability", includeRaw,
})

// unknownFields lists those that there are not, with the nearest that there is.
func unknownFields(own map[string]json.RawMessage) []Unsupported {
	var out []Unsupported
	for _, name := range slices.Sorted(maps.Keys(own)) {
		if slices.Contains(knownFields, name) {
			continue
		}
		reason := "there is no such field"
		if near := nearest(name, knownFields); near != "" {
			reason += "; is " + near + " meant?"
		}
		out = append(out, Unsupported{name, reason})
	}
	return out
}

// nearest returns the name that differs least from the given one, "" when all of them
// differ in more than a third of their letters.
func nearest(name string, names []string) string {
	best, least := "", 1+len(name)/3
	for _, one := range names {
		if d := distance(strings.ToLower(name), strings.ToLower(one)); d < least || d == least && best == "" {
			best, least = one, d
		}
	}
	return best
}

// distance counts the letters that must be added, left out or replaced.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		last := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := last
			if a[i] != b[j] {
				cost++
			}
			last = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// configure sets what session/new asked for by the agent's own config
// options, and returns what nobody acted on. Nothing is dropped in silence. The error
// is why the session must not be used.
func (s *Session) configure(ctx context.Context, l *link, meta json.RawMessage) ([]Unsupported, error) {
	own, ok := rawjson.Member(meta, acp.MetaKey)
	if !ok {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.set.o.RequestTimeout)
	defer cancel()
	takes := taken(l.p.Agent().Info())
	var out []Unsupported
	for _, c := range configFields {
		wish := rawjson.MemberString(own, c.field)
		if wish == "" || slices.Contains(takes, c.field) {
			continue
		}
		if reason := s.setOption(ctx, l, c.category, wish); reason != "" {
			out = append(out, Unsupported{c.field, reason})
		}
	}
	for _, f := range setupFields {
		v, given := rawjson.Member(own, f)
		switch {
		case !given || takesField(takes, f, v):
		case f == permissionMode: // behind the mode, so that it counts
			wish := textOf(v)
			reason := s.permit(ctx, l, wish)
			if err := unheld(wish, reason); err != nil {
				return nil, err
			}
			if reason != "" {
				out = append(out, Unsupported{f, reason})
			}
		default:
			out = append(out, notTaken(l.p.Agent().ID(), f))
		}
	}
	if s.set.store.dir == "" && rawjson.MemberBool(own, includeRaw) {
		out = append(out, Unsupported{includeRaw, noFiles})
	}
	return append(out, unknownFields(members(own))...), nil
}

// taken names the fields that an agent's adapter takes.
func taken(info adapters.Info) []string {
	if info.Program != "" {
		return append(slices.Clip(info.Takes), "agentVersion")
	}
	return info.Takes
}

// takesField reports whether one of setupFields, with a value, is among what an adapter
// takes, or asks for nothing.
func takesField(takes []string, field string, v json.RawMessage) bool {
	return slices.Contains(takes, field) || field == "permissionMode" && string(v) == `"default"`
}

func notTaken(agent, field string) Unsupported {
	return Unsupported{field, "agent " + agent + " does not take it from the gateway"}
}

// setOption sets the session's option of a category and returns why it could
// not.
func (s *Session) setOption(ctx context.Context, l *link, category, wish string) (reason string) {
	s.mu.Lock()
	options, modes := s.rec.ConfigOptions, s.rec.Modes
	s.mu.Unlock()
	id := ""
	for _, o := range rawjson.Elements(options) {
		if rawjson.MemberString(o, "category") == category {
			if rawjson.MemberString(o, "currentValue") == wish {
				return ""
			}
			id = rawjson.MemberString(o, "id")
		}
	}
	var method string
	var params json.RawMessage
	switch {
	case id != "":
		method = acp.MethodSessionSetConfigOption
		params = optionParams(l, id, rawjson.AppendQuoted(nil, wish))
	case category == "mode" && len(modes) > 0:
		method = acp.MethodSessionSetMode
		params = rawjson.Object{}.String("sessionId", l.native).String("modeId", wish).End()
	default:
		return "agent " + l.p.Agent().ID() + " offers no option for it"
	}
	res, err := l.p.Ask(ctx, method, params)
	if err != nil {
		return viewer.ErrorOf(err).Message
	}
	quoted := rawjson.AppendQuoted(nil, wish)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.chosenLocked(method, quoted, id, quoted)
	if v, ok := rawjson.Member(res, "configOptions"); ok {
		s.rec.ConfigOptions = v
	}
	if method == acp.MethodSessionSetMode {
		s.rec.Modes = rawjson.SetMember(s.rec.Modes, rawjson.AppendQuoted(nil, wish), "currentModeId")
	}
	s.unsaved = true
	return ""
}

// chosenLocked remembers what somebody set; mu is held. A map that was saved may
// be read elsewhere, so it is replaced and not changed.
func (s *Session) chosenLocked(method string, mode json.RawMessage, option string, value json.RawMessage) {
	switch {
	case method == acp.MethodSessionSetMode:
		var id string
		if json.Unmarshal(mode, &id) == nil {
			s.rec.ChosenMode = id
		}
	case method == acp.MethodSessionSetConfigOption && option != "" && len(value) > 0:
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
// has it, and clients are told. The error is that a session which must only read
// cannot be held to that: nothing is done in another mode.
func (s *Session) chooseAgain(ctx context.Context, l *link) error {
	s.mu.Lock()
	chosen, mode, wish := s.rec.Chosen, s.rec.ChosenMode, s.rec.permissionMode()
	options, modes, offered := s.rec.ConfigOptions, s.rec.Modes, s.rec.modes()
	s.mu.Unlock()
	info := l.p.Agent().Info()
	reads := wish == "readonly" && !slices.Contains(info.Takes, permissionMode)
	now, modeOption := map[string]json.RawMessage{}, ""
	for _, o := range rawjson.Elements(options) {
		id := rawjson.MemberString(o, "id")
		if now[id], _ = rawjson.Member(o, "currentValue"); rawjson.MemberString(o, "category") == "mode" {
			modeOption = id
		}
	}
	if reads && mode == "" && chosen[modeOption] == nil {
		// Nobody has chosen another mode, and the agent's is not known any more.
		if err := unheld(wish, s.permit(ctx, l, wish)); err != nil {
			return err
		}
	}
	var missing []Unsupported
	var broken error
	tell := func(field, value, method string, params json.RawMessage) (taken bool) {
		res, err := l.p.Ask(ctx, method, params)
		if err != nil {
			s.logger().Warn("agent did not take a choice again", "method", method, "err", err)
			reason := "agent " + info.ID + " was started anew and refuses " + value + ": " + viewer.ErrorOf(err).Message
			missing = append(missing, Unsupported{field, reason})
			there := slices.ContainsFunc(offered, func(m adapters.Mode) bool { return m.ID == value })
			if reads && field == "mode" && (!there || value == info.ModeFor(wish, offered)) {
				broken = unheld(wish, reason)
			}
			return false
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if v, ok := rawjson.Member(res, "configOptions"); ok {
			s.rec.ConfigOptions = v
		}
		s.unsaved = true
		return true
	}
	if mode != "" && len(modes) > 0 && rawjson.MemberString(modes, "currentModeId") != mode {
		quoted := rawjson.AppendQuoted(nil, mode)
		if tell("mode", mode, acp.MethodSessionSetMode, rawjson.Object{}.String("sessionId", l.native).Raw("modeId", quoted).End()) {
			s.mu.Lock()
			s.rec.Modes = rawjson.SetMember(s.rec.Modes, quoted, "currentModeId")
			s.mu.Unlock()
		}
	}
	for _, id := range slices.Sorted(maps.Keys(chosen)) {
		if current, there := now[id]; there && string(current) != string(chosen[id]) {
			field := id
			if id == modeOption {
				field = "mode"
			}
			tell(field, textOf(chosen[id]), acp.MethodSessionSetConfigOption, optionParams(l, id, chosen[id]))
		}
	}
	s.save()
	if broken == nil {
		s.tellUnsupported(missing)
	}
	return broken
}

func optionParams(l *link, id string, value json.RawMessage) json.RawMessage {
	return rawjson.Object{}.String("sessionId", l.native).String("configId", id).Raw("value", value).End()
}

// Chose notes what a client has set and the agent has taken.
func (s *Session) Chose(method string, params, result json.RawMessage) {
	mode, _ := rawjson.Member(params, "modeId")
	value, _ := rawjson.Member(params, "value")
	options, _ := rawjson.Member(result, "configOptions")
	s.mu.Lock()
	if len(options) > 0 {
		s.rec.ConfigOptions = bytes.Clone(options)
	}
	if method == acp.MethodSessionSetMode && len(mode) > 0 && len(s.rec.Modes) > 0 {
		s.rec.Modes = rawjson.SetMember(s.rec.Modes, mode, "currentModeId")
	}
	s.chosenLocked(method, mode, rawjson.MemberString(params, "configId"), bytes.Clone(value))
	s.unsaved = true
	s.mu.Unlock()
	s.set.o.Tasks.Go(s.save)
}

// untitledLocked returns the agent's session_info_update without its title if a client
// has given the session another one, and whether anything is left of it.
func (s *Session) untitledLocked(m *acp.Message) (_ *acp.Message, left bool) {
	title, given := rawjson.Member(m.Update(), "title")
	if !s.rec.Titled || !given || textOf(title) == s.rec.Title {
		return m, true
	}
	rest := rawjson.DeleteMember(m.Params(), "update", "title")
	update, _ := rawjson.Member(rest, "update")
	if len(members(update)) <= 1 {
		return nil, false
	}
	own := acp.NewNotification(m.Method(), rest)
	return &own, true
}

// noteSettingsLocked keeps what a later client is told at once.
func (s *Session) noteSettingsLocked(m *acp.Message) {
	u := m.Update()
	switch string(m.UpdateKind()) {
	case "current_mode_update":
		if mode, ok := rawjson.Member(u, "currentModeId"); ok && len(s.rec.Modes) > 0 {
			s.rec.Modes = rawjson.SetMember(s.rec.Modes, mode, "currentModeId")
		}
	case "config_option_update":
		if opts, ok := rawjson.Member(u, "configOptions"); ok {
			s.rec.ConfigOptions = bytes.Clone(opts)
		}
	case "session_info_update":
		if t := rawjson.MemberString(u, "title"); t != "" {
			s.rec.Title = t
		}
	}
	s.unsaved = true
}
