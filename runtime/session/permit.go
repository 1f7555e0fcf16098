package session

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/adapters"
)

// permissionMode is how much a session may do without asking. Adapters that do not take
// it leave it to the modes that their agent announces.
const permissionMode = "permissionMode"

// permissionModes are its values.
var permissionModes = []string{"default", "readonly", "write", "bypass"}

// permissionMode is the one that the session was given, "" for none.
func (rec *record) permissionMode() string {
	v, _ := rawjson.Member(rec.Setup, "_meta", acp.MetaKey, permissionMode)
	return permits(v)
}

// permits is a permissionMode that is asked for, "" for one that leaves the agent in its own mode.
func permits(asked json.RawMessage) string {
	if wish := textOf(asked); wish != "default" {
		return wish
	}
	return ""
}

// modes are those that the session's agent has announced.
func (rec *record) modes() []adapters.Mode {
	var out []adapters.Mode
	add := func(list []json.RawMessage, id string) {
		for _, m := range list {
			out = append(out, adapters.Mode{
				ID: rawjson.MemberString(m, id), Name: rawjson.MemberString(m, "name"), Description: rawjson.MemberString(m, "description"),
			})
		}
	}
	for _, o := range rawjson.Elements(rec.ConfigOptions) {
		if rawjson.MemberString(o, "category") == "mode" {
			add(Choices(o), "value")
		}
	}
	if len(out) == 0 {
		available, _ := rawjson.Member(rec.Modes, "availableModes")
		add(rawjson.Elements(available), "id")
	}
	return out
}

// modeFor returns the agent's mode for a permissionMode, "" for one that asks for
// nothing. Without such a mode it says why there is none.
func (s *Session) modeFor(info adapters.Info, wish string) (mode, reason string) {
	if wish == "" {
		return "", ""
	}
	if !slices.Contains(permissionModes, wish) {
		return "", noPermissionMode(wish)
	}
	s.mu.Lock()
	offered := s.rec.modes()
	s.mu.Unlock()
	if mode := info.ModeFor(wish, offered); mode != "" {
		return mode, ""
	}
	if len(offered) == 0 {
		return "", "agent " + info.ID + " offers no modes"
	}
	var names []string
	for _, m := range offered {
		names = append(names, m.ID)
	}
	return "", fmt.Sprintf("none of the modes of agent %s is known to do that: it has %s, and mode chooses one", info.ID, strings.Join(names, ", "))
}

// strays returns the mode in which a session is that has a permissionMode, when that is another one than it stands for: a client
// has chosen it since, or the agent has gone over to it. It is "" for one that is held. l serves the session, nil if nobody does.
func (rec *record) strays(l *link, info adapters.Info, wish string) (mode string) {
	held := rec.holds(l, info, wish)
	if chosen := rec.chosenMode(); chosen != "" && !slices.Contains(held[:], chosen) {
		return chosen
	}
	for i, is := range rec.inModes() {
		if l != nil && is != "" && held[i] != "" && is != held[i] {
			return is
		}
	}
	return ""
}

// holds are the modes that a permissionMode stands for, as [record.inModes] has them. l serves the session, nil if nobody does.
func (rec *record) holds(l *link, info adapters.Info, wish string) [2]string {
	switch {
	case !slices.Contains(info.Takes, permissionMode):
		stands := info.ModeFor(wish, rec.modes())
		return [2]string{stands, stands}
	case l != nil: // which it is only an agent says that has opened the session with it
		return l.at
	}
	return [2]string{}
}

// tellsLocked notes the mode of a permissionMode, which the adapter takes, where the agent tells of its modes, or of its option for them, only
// behind its answer: it may have been set to another one by then.
func (l *link) tellsLocked(modes, options bool) {
	rec := &l.s.rec
	stands := cmp.Or(l.at[0], l.at[1], l.p.Agent().Info().ModeFor(rec.permissionMode(), rec.modes()))
	for i, tells := range []bool{modes && len(rec.Modes) > 0, options && rec.option("mode") != ""} {
		if tells && l.at[i] == "" {
			l.at[i] = stands
		}
	}
}

// permit sets the agent's mode for a permissionMode. One that asks for nothing takes the agent back out of the mode of the one that the
// session has, unless another one was chosen since. It returns why it could not.
func (s *Session) permit(ctx context.Context, l *link, info adapters.Info, wish string) (reason string) {
	mode, reason := s.modeFor(info, wish)
	s.mu.Lock()
	if unknown := s.rec.Imported && len(s.rec.modes()) == 0; unknown && wish == "readonly" && l == nil {
		reason = "" // it tells of them as it is started: see chooseAgain
	}
	if s.mu.Unlock(); reason != "" || mode == "" && wish != "" {
		return reason
	}
	s.mu.Lock()
	was, own, chosen := s.rec.permissionMode(), s.rec.OwnMode, s.rec.chosenMode()
	stands, is := info.ModeFor(was, s.rec.modes()), s.rec.inModes()
	s.mu.Unlock()
	switch now := cmp.Or(is[1], is[0]); {
	case mode != "":
		if known := l == nil || l.modes || l.options; known && now != mode && (own == "" || stands == "") {
			own = now
		}
	case was == "" || stands == "" || chosen != stands:
		return ""
	case own == "":
		return "agent " + info.ID + " stays in mode " + stands + ", which is for " + was + ", since its own is not known: choose one with mode"
	default:
		mode, own = own, ""
	}
	if reason := s.setOption(ctx, l, "mode", mode); reason != "" {
		return reason
	}
	s.change(func(rec *record) { rec.OwnMode = own })
	return ""
}

// hold begins what asks for a session that only reads, and of which the record does not say so yet. What release returns is called when it does, or
// when the session does not come to that.
func (s *Session) hold() (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holding = true
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.holding, s.rec.held = false, false
	}
}

// readsOnlyLocked reports whether the session must only read, or that is asked for now.
func (s *Session) readsOnlyLocked() bool { return s.rec.heldTo() == "readonly" || s.holding }

// heldTo is the permissionMode, also where the session was set to the mode of one, and the rest of what was asked for with that is not done.
func (rec *record) heldTo() string {
	if rec.held {
		return "readonly"
	}
	return rec.permissionMode()
}

// noPermissionMode is why an unknown permissionMode has no effect.
func noPermissionMode(wish string) string {
	return fmt.Sprintf("there is no %q: it is %s", wish, strings.Join(permissionModes, ", "))
}

// refusal is why the agent has not taken a field as it opened the session, "" if it has.
func (l *link) refusal(field string) (reason string) {
	for _, r := range l.refused {
		if r.Field == field {
			return r.Reason
		}
	}
	return ""
}

// unheld is the refusal of a session that must only read, whose agent cannot be held to
// that; nil for other wishes.
func unheld(wish, reason string) error {
	if wish != "readonly" || reason == "" {
		return nil
	}
	return acp.Errorf(acp.CodeInvalidParams, "permissionMode readonly cannot be kept: %s", reason).
		WithData(problem.New(problem.ModeNotSupported, "permissionMode readonly cannot be kept: %s", reason))
}
