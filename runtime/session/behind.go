package session

import (
	"bytes"
	"cmp"
	"math"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/runtime/journal"
)

const (
	// partBytes is how much of a log is read at one time.
	partBytes = 256 << 10
	// listParts is how many parts are read for a list. A turn that ran for hours when its gateway was killed has more:
	// they are read for the next list, and all of them when the session is used.
	listParts  = 4
	everything = math.MaxInt

	gistBytes   = 16 << 10 // of the log's beginning, in which the first prompt is looked for
	costEntries = 64       // of its end, in which the cost is
)

// catchUp gives the record what the log says and the record does not know, so many parts of it at most: it is written a
// moment after the log, and a gateway that was killed has not written it.
//
// It runs before the session's agent can say anything new, and without Session.mu. As long as the log cannot be read,
// the record goes on to say from which event on it knows nothing.
func (s *Session) catchUp(parts int) {
	if !s.behind.Load() {
		return
	}
	switch {
	case parts == everything:
		s.catching.Lock()
	case !s.catching.TryLock(): // a list does not wait for a long log
		return
	}
	defer s.catching.Unlock()
	if !s.behind.Load() {
		return
	}
	log, err := s.openLog()
	if err != nil {
		return // who uses the session is told
	}
	defer log.Release(0) // a list of sessions opens the logs of all of them
	s.mu.Lock()
	noted := cmp.Or(s.rec.NotedSeq, s.rec.LastSeq)
	earlier := s.rec.NotedSeq == 0 && noted > 0 // version: it knows more of the costs than it says
	s.mu.Unlock()
	s.doubtOpen(log)
	cur := log.Whole(max(noted, log.Oldest()-1))
	for ; ; parts-- {
		if parts == 0 {
			return
		}
		batch, err := cur.Next(nil, partBytes)
		if err != nil {
			s.logger().Error("read the events that the session's record does not know", "err", err)
			return
		}
		if len(batch) == 0 {
			break
		}
		s.mu.Lock()
		for _, e := range batch {
			s.noteAgainLocked(e, noted > 0, !earlier)
		}
		s.rec.NotedSeq, s.unsaved = cur.After(), true
		s.mu.Unlock()
	}
	first, end := s.lackingOf(log)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gistLocked(first)
	if earlier && s.rec.Cost == nil && end != nil {
		s.rec.Cost, s.rec.CostSaid, s.unsaved = end, end.Amount, true
	}
	s.behind.Store(false)
	s.announceLocked()
}

// doubtOpen forgets from where on the log shows what is open, if the log has not got the event up to which the record knew that: the
// record may be on the disk, and the end of the log not, in which that what was open had ended. The numbers go on at
// a higher one then. It is called before the record is given more of the log.
func (s *Session) doubtOpen(log *journal.Log) {
	s.mu.Lock()
	noted, from := s.rec.NotedSeq, s.rec.OpenFrom
	s.mu.Unlock()
	if from <= 1 {
		return
	}
	batch, err := log.Whole(noted-1).Next(nil, 1)
	if err == nil && len(batch) > 0 && batch[0].Seq == noted && batch[0].Kind != journal.Damage {
		return
	}
	s.mu.Lock()
	s.rec.OpenFrom, s.unsaved = 0, true
	s.mu.Unlock()
}

// caughtUp has the record know the log from here on: the agent goes on now, and what could not be read is not counted
// behind what it says.
func (s *Session) caughtUp() {
	s.EndLostCalls()
	s.catching.Lock()
	defer s.catching.Unlock()
	if !s.behind.Load() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rec.Unsure = true
	s.behind.Store(false)
}

// noteAgainLocked gives the record what an event means for it. Of an event in the middle of the log it is not known what
// the calls before it were.
func (s *Session) noteAgainLocked(e journal.Entry, inMiddle, costs bool) {
	if !e.Kind.IsUpdate() && e.Kind != journal.Notice {
		return
	}
	m, err := acp.Parse(e.Frame)
	if err != nil {
		return
	}
	switch given, _ := rawjson.Member(m.Update(), "_meta", acp.MetaKey, givenTitle); string(given) {
	case "true":
		s.rec.noteTitle(rawjson.MemberString(m.Update(), "title"))
		return
	case "false":
		s.rec.noteTitle("")
		return
	}
	if !e.Kind.IsUpdate() {
		return
	}
	switch string(m.UpdateKind()) {
	case "tool_call", "tool_call_update":
		s.noteSubagentLocked(&m)
		s.rec.Unsure = s.rec.Unsure || inMiddle && bytes.Contains(m.Update(), []byte(acp.MetaKey))
	case "usage_update":
		if costs {
			s.noteCostLocked(m.Update(), e.Time())
		}
	case "session_info_update":
		if own, left := s.untitledLocked(&m); left {
			s.noteSettingsLocked(own, !s.rec.Opening)
		}
	case "current_mode_update", "config_option_update":
		s.noteSettingsLocked(&m, !s.rec.Opening)
	}
}

// lackingOf looks in the log for what records of earlier versions do not say: how the first prompt begins, and what the
// session has cost. They are empty where the record knows it.
func (s *Session) lackingOf(log *journal.Log) (gist string, cost *Cost) {
	s.mu.Lock()
	told, costs := s.rec.Gist != "", s.rec.Cost != nil
	s.mu.Unlock()
	if !told {
		first, _ := log.Whole(log.Oldest()-1).Next(nil, gistBytes)
		for _, e := range first {
			if m, err := acp.Parse(e.Frame); err == nil && gist == "" {
				switch {
				case e.Kind == journal.Client && m.Method() == acp.MethodSessionPrompt:
					blocks, _ := rawjson.Member(m.Params(), "prompt")
					gist = gistOf(blocks)
				case string(m.UpdateKind()) == "user_message_chunk":
					gist = gistOfChunk(m.Update())
				}
			}
		}
	}
	if costs {
		return gist, nil
	}
	end := log.Whole(max(log.Oldest()-1, log.Saved()-min(log.Saved(), costEntries)))
	for {
		batch, err := end.Next(nil, gistBytes)
		if err != nil || len(batch) == 0 {
			return gist, cost
		}
		for _, e := range batch {
			if m, err := acp.Parse(e.Frame); err == nil && e.Kind.IsUpdate() && string(m.UpdateKind()) == "usage_update" {
				if amount, currency, ok := costIn(m.Update()); ok {
					cost = &Cost{amount, currency}
				}
			}
		}
	}
}
