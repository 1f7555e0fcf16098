package session

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"sandboxagent.dev/sandbox-agent/acp/rawjson"
)

// maxGist bounds how much of a prompt's first line is told with a session, in characters.
const maxGist = 80

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
	if s.rec.Gist == "" && gist != "" {
		s.rec.Gist, s.unsaved = gist, true
	}
}

// noteGistLocked is gistLocked for the words of a user in an agent's replay.
func (s *Session) noteGistLocked(update json.RawMessage) {
	if s.rec.Gist == "" {
		s.gistLocked(gistOfChunk(update))
	}
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

// noteCostLocked adds what an update says of the cost, which came at a time. Agents tell a sum; one that
// shrinks has begun anew, with a new process.
func (s *Session) noteCostLocked(update json.RawMessage, at time.Time) {
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
	s.rec.noteCost(at, Cost{Amount: more, Currency: currency})
	s.rec.Cost, s.rec.CostSaid, s.unsaved = &now, said, true
}
