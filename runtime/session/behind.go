package session

import (
	"bytes"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/runtime/journal"
)

const (
	// listTail is how many events behind its record are read of a log for a list. A turn that ran for hours when
	// its gateway was killed has more: they are read when the session is used.
	listTail = 1024

	gistBytes   = 16 << 10 // of the log's beginning, in which the first prompt is looked for
	costEntries = 64       // of its end, in which the cost is
)

// catchUp has the record say what the log says behind it: it is written a moment after the log, and a gateway that
// was killed has not written it. Where more than most events are behind it, nothing is done.
//
// It is called before anything is shown of the record, or changes it, and not with the session's lock.
func (s *Session) catchUp(most uint64) {
	if !s.behind.Load() {
		return
	}
	s.catching.Lock()
	defer s.catching.Unlock()
	if !s.behind.Load() {
		return
	}
	log, err := s.openLog()
	if err != nil {
		return // as it was, until it can be read
	}
	s.mu.Lock()
	cur := log.Whole(max(s.rec.NotedSeq, log.Oldest()-1))
	s.mu.Unlock()
	if last := log.Saved(); last > cur.After() && last-cur.After() > most {
		return
	}
	for {
		batch, err := cur.Next(nil, 256<<10)
		if err != nil {
			s.logger().Error("read what the session's record has not", "err", err)
			return
		}
		if len(batch) == 0 {
			break
		}
		s.mu.Lock()
		for _, e := range batch {
			s.noteAgainLocked(e)
		}
		s.mu.Unlock()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.recallLocked(log)
	s.behind.Store(false)
	s.announceLocked()
	log.Release(0) // a list of sessions opens the logs of all of them
}

// noteAgainLocked gives the record what an event means for it.
func (s *Session) noteAgainLocked(e journal.Entry) {
	if !e.Kind.IsUpdate() {
		return
	}
	m, err := acp.Parse(e.Frame)
	if err != nil {
		return
	}
	switch string(m.UpdateKind()) {
	case "tool_call", "tool_call_update":
		s.noteSubagentLocked(&m)
		s.unsure = s.unsure || bytes.Contains(m.Update(), []byte(acp.MetaKey))
	case "usage_update":
		s.noteCostLocked(m.Update(), e.Time())
	case "session_info_update", "current_mode_update", "config_option_update":
		s.noteSettingsLocked(&m)
	}
}

// recallLocked looks in the log for what the records of earlier versions do not say.
func (s *Session) recallLocked(log *journal.Log) {
	if s.rec.Gist == "" {
		first, _ := log.Whole(log.Oldest()-1).Next(nil, gistBytes)
		for _, e := range first {
			if m, err := acp.Parse(e.Frame); err == nil {
				switch {
				case e.Kind == journal.Client && m.Method() == acp.MethodSessionPrompt:
					blocks, _ := rawjson.Member(m.Params(), "prompt")
					s.gistLocked(gistOf(blocks))
				case string(m.UpdateKind()) == "user_message_chunk":
					s.noteGistLocked(m.Update())
				}
			}
		}
	}
	if s.rec.Cost != nil {
		return
	}
	end := log.Whole(max(log.Oldest()-1, log.Saved()-min(log.Saved(), costEntries)))
	for {
		batch, err := end.Next(nil, gistBytes)
		if err != nil || len(batch) == 0 {
			return
		}
		for _, e := range batch {
			if m, err := acp.Parse(e.Frame); err == nil && e.Kind.IsUpdate() && string(m.UpdateKind()) == "usage_update" {
				if amount, currency, ok := costIn(m.Update()); ok {
					s.rec.Cost, s.rec.CostSaid, s.unsaved = &Cost{amount, currency}, amount, true
				}
			}
		}
	}
}
