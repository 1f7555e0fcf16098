package version

import (
	"bytes"
	"encoding/json"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
)

// Subagent is a subagent of a session: a session of its own, which lives in the other's log.
type Subagent struct {
	ID      string `json:"sessionId"`
	Parent  string `json:"parentSessionId"` // the session, or another subagent of it
	Call    string `json:"toolCallId"`      // the call that shows it to who does not know subagents
	Title   string `json:"title,omitempty"`
	Working bool   `json:"working,omitempty"`
	Cancel  bool   `json:"cancel,omitempty"` // it can be cancelled by itself
}

// Subagents follows the subagents of a session, as a [View] of its log does. The zero value
// has none. It is used by one goroutine at a time.
type Subagents struct {
	view *View
	none Frames
}

// NewSubagents goes on with the subagents that a session had.
func NewSubagents(session string, had []Subagent) *Subagents {
	s := &Subagents{view: NewView(About{Session: session, One: true})}
	kids := &s.view.kids
	byID := map[string]*child{}
	for _, one := range had {
		if len(kids.order) >= maxChildren {
			break
		}
		c := &child{
			id: one.ID, token: rawjson.AppendQuoted(nil, one.ID), call: one.Call, within: byID[one.Parent],
			title: one.Title, cancel: one.Cancel, announced: true, told: true, work: "idle",
		}
		if one.Working {
			c.work = "running"
		}
		kids.byCall[one.Call], byID[one.ID] = c, c
		kids.order = append(kids.order, c)
	}
	return s
}

// SaysSubagent reports whether an update of a call may say something of a subagent that
// nothing was said of.
func SaysSubagent(update json.RawMessage) bool {
	return bytes.Contains(update, []byte(`"subagent"`)) && bytes.Contains(update, ownKey)
}

// Note takes an update of a call of version 1, and reports whether it changes what List
// returns.
func (s *Subagents) Note(m *acp.Message) bool {
	s.none.Reset()
	s.view.call(Entry{}, m, false, &s.none, func(*acp.Message, *child) {})
	for i := range s.none.Len() {
		if bytes.Contains(s.none.At(i), []byte(`"subagent_update"`)) {
			return true
		}
	}
	return false
}

// List returns the subagents, in the order in which they came.
func (s *Subagents) List() []Subagent {
	out := []Subagent{}
	for _, c := range s.view.kids.order {
		if !c.announced {
			continue
		}
		parent := s.view.id
		if c.within != nil {
			parent = c.within.id
		}
		out = append(out, Subagent{c.id, parent, c.call, c.title, c.work == "running", c.cancel})
	}
	return out
}

// Asks returns the id of the subagent that asks with the params of a request, "" when the
// session itself does.
func (s *Subagents) Asks(params json.RawMessage) string {
	if c := s.view.asker(params); c != nil && c.announced {
		return c.id
	}
	return ""
}
