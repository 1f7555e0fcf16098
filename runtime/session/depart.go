package session

import (
	"context"
	"encoding/json"
	"strings"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
)

// movedTo is the member of a session's metadata that says at which gateway it goes on.
const movedTo = "movedTo"

// nodeScheme begins the address of a gateway that a hub names: the rest is the name of a node.
const nodeScheme = "node://"

// Depart closes a session that goes on at another gateway, and notes which in its
// metadata, both in one step. It refuses one that works, and one in which something was
// said behind the event last, or of which clients have changed what no event tells since it was edited so often: that
// would be lost. Edits is nil when that may be. To depart to the same gateway again changes nothing.
func (s *Session) Depart(ctx context.Context, last uint64, edits *uint64, to string) error {
	if err := s.Readable(); err != nil {
		return err
	}
	s.EndLostCalls()
	s.Log()
	s.mu.Lock()
	if s.m.life == stopping && s.m.goal == deleted { // there is nothing to go on with, unless its agent keeps it
		s.mu.Unlock()
		if _, err := s.Delete(ctx); err != nil {
			return err
		}
		return notFound(s.id)
	}
	went := rawjson.MemberString(s.rec.Metadata, movedTo)
	var refusal error
	switch newest := s.Log().Appended(); {
	case s.m.life == deleted:
		refusal = notFound(s.id)
	case s.m.life == ended:
		refusal = problem.New(problem.Conflict, "session %s has ended (%s)", s.id, s.rec.Ended.Reason)
	case newest != last:
		refusal = problem.New(problem.Conflict, "session %s has event %d, and what has left it ends with event %d: take all of it", s.id, newest, last)
	case s.m.life == closed && went != "" && went != to:
		refusal = problem.New(problem.Conflict, "session %s went to %s already", s.id, went)
	case edits != nil && *edits < s.rec.Edits && (s.m.life != closed || went == ""):
		refusal = problem.New(problem.Conflict, "session %s was edited while it was taken along, as its title can be, or closed: take it again", s.id)
	case s.m.busy():
		refusal = problem.New(problem.Conflict, "session %s is working: cancel what it does, or wait for its end, and try again", s.id)
	}
	if refusal != nil {
		s.mu.Unlock()
		return refusal
	}
	if s.m.life == closed && len(s.m.copies) == 0 {
		s.departing = to
		s.noteDepartureLocked()
		s.announceLocked()
		s.mu.Unlock()
		return s.saved()
	}
	done := make(chan error, 1)
	s.departing = to
	s.handleLocked(event{kind: stopped, goal: closed, done: func(_ bool, err error) { done <- err }})
	select {
	case err := <-done:
		if err != nil {
			return err
		}
		return s.saved()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// noteDepartureLocked writes into the record where the session goes on.
func (s *Session) noteDepartureLocked() {
	if s.departing == "" {
		return
	}
	s.rec.Metadata = rawjson.SetMember(metadataOf(s.rec.Metadata), rawjson.AppendQuoted(nil, s.departing), movedTo)
	s.departing, s.unsaved = "", true
}

// saved writes the record, and says when that cannot be done.
func (s *Session) saved() error {
	if s.save() != nil {
		return problem.New(problem.Unavailable, "where session %s went cannot be written down now", s.id)
	}
	return nil
}

// metadataOf returns a session's metadata, an empty object where there is none.
func metadataOf(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 || raw[0] != '{' {
		return json.RawMessage("{}")
	}
	return raw
}

// placeOf names the place to which a session went for people.
func placeOf(went string) string {
	if node, ok := strings.CutPrefix(went, nodeScheme); ok {
		return "the node " + node + " of the same hub"
	}
	return went
}

// Went returns where the session goes on, "" for here.
func (s *Session) Went() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.wentLocked()
}

// wentLocked is Went, also while the agent here still ends.
func (s *Session) wentLocked() string {
	switch {
	case s.m.life == closed:
		return rawjson.MemberString(s.rec.Metadata, movedTo)
	case s.m.life == stopping && s.m.goal == closed:
		return s.departing
	}
	return ""
}

// departedLocked refuses to open a session that goes on elsewhere.
func (s *Session) departedLocked() error {
	went := s.wentLocked()
	if went == "" {
		return nil
	}
	about := problem.New(problem.Conflict, "session %s went to %s", s.id, went).With("sessionId", s.id).With(movedTo, went)
	if node, ok := strings.CutPrefix(went, nodeScheme); ok {
		return acp.Errorf(acp.CodeResourceNotFound, "session %s went to the node %s of the same hub: go on there, or move it back with `sandbox-hub session move`. Only if that one is lost take %s out of its metadata with _sandboxagent/session/set_metadata, and it opens here", s.id, node, movedTo).WithData(about)
	}
	return acp.Errorf(acp.CodeResourceNotFound, "session %s went to %s: go on there, or bring it back with `sandbox-agent teleport --from %s`. Only if that one is lost take %s out of its metadata with _sandboxagent/session/set_metadata, and it opens here", s.id, went, went, movedTo).
		WithData(about)
}
