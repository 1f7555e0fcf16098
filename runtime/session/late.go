package session

import (
	"bytes"
	"encoding/json"
	"slices"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/runtime/journal"
)

// This file is what an agent that serves a session is set to late: behind its start, or by an answer that nobody waited for any more.

// chosenInstead is what is chosen by now of what a choice was of.
func (s *Session) chosenInstead(c choice) []choice {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(s.rec.list(), func(now choice) bool { return now.field(&s.rec) != c.field(&s.rec) })
}

// carryLateLocked sets at an agent that serves the session what it was not set to as it was started, since it had no options then, and has by
// now, or what it has left again. What somebody has chosen since counts for more. Where a
// session must only read and its agent cannot be held to that, it strays: see [machine.stray]. Where a prompt waits for the agent to be set
// back, it is set to all that counts, whatever else it is being set to: what waits for that is behind the prompt. To the mode of a session that
// must only read it is set back without waiting for anything, see readsLocked.
func (s *Session) carryLateLocked() {
	l := s.m.link
	if l == nil || s.m.hosting != serving || l.carrying || !s.m.setting && (len(l.waiting) == 0 || s.choosing > 0 && !slices.ContainsFunc(l.waiting, l.readsLocked)) {
		return
	}
	list, rest := s.lateLocked(l)
	l.waiting = rest
	if len(list) == 0 && !s.m.setting {
		return
	}
	s.choosing++
	l.carrying = true
	all := s.m.setting
	s.set.o.Tasks.Go(func() {
		defer s.EndChoosing()
		missing, err := s.carry(s.set.o.Life, l, list, true)
		if all && err == nil {
			err = s.modeless(l)
		}
		astray := err != nil && endedAt(l.p) == nil && s.set.o.Life.Err() == nil
		if astray {
			missing = append(missing, Unsupported{permissionMode, reasonOf(err)})
		}
		s.tellUnsupported(missing)
		s.mu.Lock()
		l.carrying = false
		switch caps := l.p.Capabilities(); {
		case astray:
			s.handleLocked(event{kind: strayed, link: l, err: err, stays: !caps.Resume && !caps.Load})
		case all:
			s.handleLocked(event{kind: setBack, link: l})
		default:
			s.carryLateLocked() // a prompt may wait for it by now
			s.mu.Unlock()
		}
		_ = s.save()
	})
}

// lateLocked is what the agent is to be set to late, and what waits on: all that counts, where the agent gets no prompt before that.
func (s *Session) lateLocked(l *link) (list, rest []choice) {
	if s.m.setting {
		return append(s.rec.list(), l.heldLocked()...), nil
	}
	options := len(rawjson.Elements(s.rec.ConfigOptions)) > 0
	for _, c := range l.waiting {
		switch {
		case s.choosing > 0 && !l.readsLocked(c), !options && (c.option != "" || c.method == acp.MethodSessionSetMode && len(s.rec.Modes) == 0):
			rest = append(rest, c)
		case l.countsLocked(c):
			list = append(list, c)
		}
	}
	return list, rest
}

// modeless says why there was nothing to set an agent to that holds the session to reading: it may offer its modes no more. It is nil where
// there was something.
func (s *Session) modeless(l *link) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rec.heldTo() != "readonly" || s.rec.chosenMode() != "" || len(l.heldLocked()) > 0 {
		return nil
	}
	reason := " offers no mode for it now"
	if len(s.rec.modes()) == 0 {
		reason = " offers no modes now"
	}
	return unheld("readonly", "agent "+l.p.Agent().Info().ID+reason)
}

// countsLocked reports whether the agent is to be set to a choice: it is chosen, or it is the mode that holds the session to its permissionMode
// and no other one is chosen.
func (l *link) countsLocked(c choice) bool {
	rec := &l.s.rec
	return rec.chooses(c) || c.field(rec) == "mode" && slices.ContainsFunc(l.heldLocked(), func(holds choice) bool { return holds.text() == c.text() })
}

// readsLocked reports whether a choice is the mode in which the agent must be for a session that must only read. It waits for nothing else
// that the agent is asked for, and has not answered: what clients choose of the mode meanwhile counts for more.
func (l *link) readsLocked(c choice) bool {
	rec := &l.s.rec
	return rec.heldTo() == "readonly" && c.field(rec) == "mode" && l.countsLocked(c)
}

// heldLocked is the mode that holds the session to its permissionMode where no mode is chosen: none, or one.
func (l *link) heldLocked() []choice {
	rec, info := &l.s.rec, l.p.Agent().Info()
	if rec.heldTo() == "" || rec.ModeOver || rec.chosenMode() != "" {
		return nil
	}
	holds, option := rec.holds(l, info, rec.heldTo()), rec.option("mode")
	switch {
	case option != "" && holds[1] != "":
		return []choice{{method: acp.MethodSessionSetConfigOption, option: option, value: rawjson.AppendQuoted(nil, holds[1])}}
	case len(rec.Modes) > 0 && holds[0] != "":
		return []choice{{method: acp.MethodSessionSetMode, id: holds[0], value: rawjson.AppendQuoted(nil, holds[0])}}
	}
	return nil
}

// unheeded is handle for the event of that name.
func (s *Session) unheeded(w *straying) {
	s.Log() // is opened without the lock
	s.mu.Lock()
	s.handleLocked(event{kind: unheeded, watch: w, still: s.m.link != nil && s.m.link.astrayLocked()})
}

// astrayLocked reports whether the agent is not known to be in the mode in which it must be for a session that must only read: nobody has
// set it back, or chosen that it may do more.
func (l *link) astrayLocked() bool {
	rec := &l.s.rec
	if rec.heldTo() != "readonly" {
		return false
	}
	must := rec.holds(l, l.p.Agent().Info(), "readonly")
	if chosen := rec.chosenMode(); chosen != "" {
		must = [2]string{chosen, chosen}
	}
	known := false
	for i, is := range rec.inModes() {
		if is != "" && must[i] != "" {
			if is != must[i] {
				return true
			}
			known = true
		}
	}
	return !known
}

// mayNotWorkLocked is mayNotWork of the machine, unless somebody has allowed it meanwhile.
func (l *link) mayNotWorkLocked() bool {
	m := &l.s.m
	return m.link == l && m.life == open && m.mayNotWork() && l.astrayLocked()
}

// ChoseLate is Chose for an answer that has come behind its time limit.
func (s *Session) ChoseLate(at At, asked uint64, of Choice, res *acp.Message) {
	c := of.choice
	if c.method == acp.MethodSessionSetTitle { // the title is the gateway's
		return
	}
	s.mu.Lock()
	s.takenLateLocked(at, asked, c, res.Result(), false)
	s.mu.Unlock()
	s.saveSoon()
}

// takenLateLocked is what follows where an agent has taken what it was set to, by the request of a number, when nobody waited for that any more.
// Whoever has set it was told that it was not taken, and is told now that it was, as all are. Where the agent serves the session there no more,
// it counts for nothing: the session is opened with what was asked for since. Where that was asked of the same agent, as over says for who
// knows, it is set to that again. It is followed by save.
func (s *Session) takenLateLocked(at At, asked uint64, c choice, res json.RawMessage, over bool) {
	l := at.link
	if !l.servesLocked() {
		return
	}
	was, modes, options, field := s.rec.choices, s.rec.Modes, s.rec.ConfigOptions, c.field(&s.rec)
	over = over || s.setBy[field] > asked
	now := s.setLocked(at, true, c, bytes.Clone(res))
	if over {
		s.rec.choices = was // what the answer says of the options is no choice of the agent's own
		counts := s.rec.list()
		if field == "mode" {
			counts = append(counts, l.heldLocked()...)
		}
		for _, c := range counts {
			if c.field(&s.rec) == field {
				l.waiting = slices.Insert(l.waiting, 0, c)
			}
		}
		s.carryLateLocked()
	} else if s.rec.heldTo() != "readonly" || s.rec.inAnother(&c) == "" {
		s.chooseLocked(asked, now)
	}
	s.chosenLocked(was, func(err error) {
		s.showSettings(modes, options)
		if err != nil && !over {
			s.tellUnsupported([]Unsupported{{field, reasonOf(unkept(err))}})
		}
	})
}

// setSinceLocked reports whether the agent is set to something else since.
func (s *Session) setSinceLocked(modes, options json.RawMessage) bool {
	return !bytes.Equal(modes, s.rec.Modes) || !bytes.Equal(options, s.rec.ConfigOptions)
}

// showSettings shows everybody how the agent is set, as far as that is not as it was.
func (s *Session) showSettings(modes, options json.RawMessage) {
	s.mu.Lock()
	if mode, _ := rawjson.Member(s.rec.Modes, "currentModeId"); !bytes.Equal(modes, s.rec.Modes) {
		s.showLocked(rawjson.Object{}.String("sessionUpdate", "current_mode_update").Raw("currentModeId", mode).End())
	}
	if !bytes.Equal(options, s.rec.ConfigOptions) {
		s.showLocked(rawjson.Object{}.String("sessionUpdate", "config_option_update").Raw("configOptions", s.rec.ConfigOptions).End())
	}
	s.mu.Unlock()
	s.Flush()
}

// showLocked shows everybody an update that the agent might have said itself.
func (s *Session) showLocked(update []byte) {
	n := acp.NewNotification(acp.MethodSessionUpdate, rawjson.Object{}.Raw("sessionId", s.quoted).Raw("update", update).End())
	s.Log().Append(journal.Update, journal.Everyone, n.Frame())
}
