package session

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/runtime/journal"
)

// maxGist bounds how much of a prompt's first line is told with a session, in characters.
const maxGist = 80

// summary is what a log says of its session, for those whose record does not have it:
// it was written by an earlier version, or lost with the gateway.
type summary struct {
	gist string
	cost *Cost
}

const (
	summaryBytes   = 16 << 10 // of the log's beginning that are looked at for it
	summaryEntries = 64       // likewise, of its end
)

// summarize looks at the beginning and the end of a log.
func summarize(l *journal.Log) *summary {
	sum := new(summary)
	first, _ := l.Whole(l.Oldest()-1).Next(nil, summaryBytes)
	for _, e := range first {
		if m, err := acp.Parse(e.Frame); err == nil && sum.gist == "" {
			switch {
			case e.Kind == journal.Client && m.Method() == acp.MethodSessionPrompt:
				blocks, _ := rawjson.Member(m.Params(), "prompt")
				sum.gist = gistOf(blocks)
			case string(m.UpdateKind()) == "user_message_chunk":
				sum.gist = gistOfChunk(m.Update())
			}
		}
	}
	end := l.Whole(max(l.Oldest()-1, l.Saved()-min(l.Saved(), summaryEntries)))
	for {
		batch, err := end.Next(nil, summaryBytes)
		if err != nil || len(batch) == 0 {
			return sum
		}
		for _, e := range batch {
			if m, err := acp.Parse(e.Frame); err == nil && e.Kind.IsUpdate() && string(m.UpdateKind()) == "usage_update" {
				if amount, currency, ok := costIn(m.Update()); ok {
					sum.cost = &Cost{amount, currency}
				}
			}
		}
	}
}

// gistOf returns how a prompt begins: the first line of its text.
func gistOf(blocks json.RawMessage) string {
	for _, block := range rawjson.Elements(blocks) {
		if rawjson.MemberString(block, "type") != "text" {
			continue
		}
		line, _, _ := strings.Cut(strings.TrimSpace(rawjson.MemberString(block, "text")), "\n")
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		n := 0
		for i := range line {
			if n++; n > maxGist {
				return line[:i]
			}
		}
		return line
	}
	return ""
}

func gistOfChunk(update json.RawMessage) string {
	content, _ := rawjson.Member(update, "content")
	return gistOf(append(append([]byte{'['}, content...), ']'))
}

// gistLocked keeps how the first prompt begins.
func (s *Session) gistLocked(gist string) {
	if s.untoldLocked() && gist != "" {
		s.rec.Gist, s.unsaved = gist, true
	}
}

// noteGistLocked is gistLocked for the words of a user in an agent's replay.
func (s *Session) noteGistLocked(update json.RawMessage) {
	if s.untoldLocked() {
		s.gistLocked(gistOfChunk(update))
	}
}

// untoldLocked reports whether it is not known how the first prompt begins.
func (s *Session) untoldLocked() bool {
	early := s.early.Load()
	return s.rec.Gist == "" && (early == nil || early.gist == "")
}

// costIn returns what an update says that the session has cost.
func costIn(update json.RawMessage) (amount float64, currency string, ok bool) {
	said, ok := rawjson.Member(update, "cost")
	if !ok {
		return 0, "", false
	}
	raw, _ := rawjson.Member(said, "amount")
	amount, err := strconv.ParseFloat(string(raw), 64)
	currency = rawjson.MemberString(said, "currency")
	return amount, currency, err == nil && amount >= 0 && currency != ""
}

// noteCostLocked adds what an update says of the cost. Agents tell a sum; one that
// shrinks has begun anew, with a new process.
func (s *Session) noteCostLocked(update json.RawMessage) {
	said, currency, ok := costIn(update)
	if !ok {
		return
	}
	now, more := Cost{Amount: said, Currency: currency}, said
	if was := s.rec.Cost; was != nil && was.Currency == currency {
		if more = said - s.rec.CostSaid; more < 0 {
			more = said
		}
		now.Amount = was.Amount + more
	}
	s.rec.noteCost(time.Now(), Cost{Amount: more, Currency: currency})
	s.rec.Cost, s.rec.CostSaid, s.unsaved = &now, said, true
}
