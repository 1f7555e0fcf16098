package session

import (
	"context"
	"slices"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/version"
	"sandboxagent.dev/sandbox-agent/runtime/agents"
)

// maxChildren bounds the children of a session that clients can name. Of more, those that
// come later can be seen, and not be cancelled.
const maxChildren = 1024

// maxListed bounds the children that are listed with a session: the newest.
const maxListed = 256

// Child is a subagent that a session has, as it is listed.
type Child struct {
	ID     string `json:"sessionId"`
	Parent string `json:"parentSessionId"` // the session, or another child of it
	Call   string `json:"toolCallId"`      // the call in the session's log that shows it
	Title  string `json:"title,omitempty"`
	State  State  `json:"state"` // running, waiting or idle
}

// noteSubagentLocked takes an update of a call, which may show a subagent, and reports whether it shows a new one.
func (s *Session) noteSubagentLocked(m *acp.Message) (isNew bool) {
	if s.subagents == nil {
		if len(s.rec.Subagents) == 0 && !version.SaysSubagent(m.Update()) {
			return false
		}
		s.subagents = version.NewSubagents(s.id, s.rec.Subagents)
	}
	if !s.subagents.Note(m) {
		return false
	}
	list := s.subagents.List()
	list = list[max(0, len(list)-maxListed):]
	n := len(list)
	isNew = n > 0 && s.subagentLocked(list[n-1].ID) == nil
	s.rec.Subagents, s.unsaved = list, true
	s.announceLocked()
	return isNew
}

// restSubagentsLocked notes that no subagent works: nobody works for the session.
func (s *Session) restSubagentsLocked() {
	if !slices.ContainsFunc(s.rec.Subagents, func(one version.Subagent) bool { return one.Working }) {
		return
	}
	rested := slices.Clone(s.rec.Subagents)
	for i := range rested {
		rested[i].Working = false
	}
	s.rec.Subagents, s.subagents, s.unsaved = rested, nil, true
}

func (s *Session) noteSubagent(m *acp.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noteSubagentLocked(m)
}

// childrenLocked lists the session's children.
func (s *Session) childrenLocked() []Child {
	if len(s.rec.Subagents) == 0 {
		return nil
	}
	waits := map[string]bool{}
	for _, a := range s.asks {
		if s.subagents != nil && a.ForPerson() {
			waits[s.subagents.Asks(a.Params)] = true
		}
	}
	out := make([]Child, 0, len(s.rec.Subagents))
	for _, one := range s.rec.Subagents {
		c := Child{one.ID, one.Parent, one.Call, one.Title, StateIdle}
		switch {
		case s.m.hosting != serving: // nobody is there to do it
		case one.Working && waits[one.ID]:
			c.State = StateWaiting
		case one.Working:
			c.State = StateRunning
		}
		out = append(out, c)
	}
	return out
}

// noteChildLocked notes a session that the agent has begun within the link's session. The
// session's mu is held.
func (l *link) noteChildLocked(token []byte) {
	if _, known := l.children[string(token)]; known || len(l.children) >= maxChildren {
		return
	}
	if l.children == nil {
		l.children = map[string]struct{}{}
	}
	l.children[string(token)] = struct{}{}
}

// hasLocked reports whether the agent that works for the session knows the id as that of a
// session of its own within it.
func (s *Session) hasLocked(child string) bool {
	if s.m.hosting != serving {
		return false
	}
	_, found := s.m.link.children[string(rawjson.AppendQuoted(nil, child))]
	return found
}

// Parent returns the session that has a child with the id, nil when none has. A fork has the
// children of what it was made from: of several it is the one in which the child works.
func (set *Set) Parent(child string) *Session {
	var parent *Session
	for _, s := range set.All() {
		s.mu.Lock()
		shown := s.subagentLocked(child)
		works := s.hasLocked(child) || shown != nil && shown.Working
		s.mu.Unlock()
		if works {
			return s
		}
		if shown != nil {
			parent = s
		}
	}
	return parent
}

func (s *Session) subagentLocked(id string) *version.Subagent {
	i := slices.IndexFunc(s.rec.Subagents, func(one version.Subagent) bool { return one.ID == id })
	if i < 0 {
		return nil
	}
	return &s.rec.Subagents[i]
}

// CancelChild has the agent cancel what a child does, as a client's session/cancel asks. An
// agent that shows the child as a call is asked to cancel that, if it can.
func (s *Session) CancelChild(ctx context.Context, m *acp.Message) {
	s.mu.Lock()
	var p *agents.Process
	native := ""
	if s.m.hosting == serving {
		p, native = s.m.link.p, s.m.link.native
	}
	own, shown := s.hasLocked(m.Session()), s.subagentLocked(m.Session())
	call := ""
	if shown != nil && shown.Working && shown.Cancel {
		call = shown.Call
	}
	s.mu.Unlock()
	switch {
	case p == nil:
	case own:
		_ = p.Send(ctx, m.Clone())
	case call != "":
		params := rawjson.Object{}.String("sessionId", native).String("toolCallId", call).End()
		p.Tell(version.MethodToolCallCancel, params)
	default:
		s.logger().Debug("a subagent that cannot be cancelled by itself, or does nothing", "subagent", m.Session())
	}
}
