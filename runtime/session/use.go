package session

import (
	"slices"
	"time"

	"sandboxagent.dev/sandbox-agent/runtime/observe"
)

// Use is what turns of one day have used with one model.
type Use struct {
	Day               string `json:"day"` // as 2006-01-02, of UTC
	Model             string `json:"model,omitempty"`
	Turns             uint64 `json:"turns"`
	InputTokens       uint64 `json:"inputTokens"` // these and the others as the agent counts them
	OutputTokens      uint64 `json:"outputTokens"`
	CachedReadTokens  uint64 `json:"cachedReadTokens,omitempty"`
	CachedWriteTokens uint64 `json:"cachedWriteTokens,omitempty"`
	ThoughtTokens     uint64 `json:"thoughtTokens,omitempty"`
	Cost              *Cost  `json:"cost,omitempty"` // absent when the agent has not said
}

// maxUse is how many days and models are kept of a session. The oldest are added to those
// behind them of the same model, so that sums stay true.
const maxUse = 60

// noteTurn adds a turn that the agent has ended.
func (rec *record) noteTurn(now time.Time, said observe.Usage) {
	u := rec.use(now, "")
	u.Turns++
	u.InputTokens += said.Input
	u.OutputTokens += said.Output
	u.CachedReadTokens += said.CacheRead
	u.CachedWriteTokens += said.CacheWrite
	u.ThoughtTokens += said.Thought
}

// noteCost adds what turns have cost.
func (rec *record) noteCost(now time.Time, more Cost) {
	if more.Amount <= 0 {
		return
	}
	u := rec.use(now, more.Currency)
	if u.Cost != nil {
		more.Amount += u.Cost.Amount
	}
	u.Cost = &more // another one: who was told of the old one keeps it
}

// use returns the day's use of the model that the session works with, with room for a
// currency, "" for any. It is one of a list of its own: who was given the one before, as
// who writes the record down, keeps that.
func (rec *record) use(now time.Time, currency string) *Use {
	rec.Usage = slices.Clone(rec.Usage)
	day, model := now.UTC().Format(time.DateOnly), ModelsOf(rec.ConfigOptions).Current
	for i := range rec.Usage {
		u := &rec.Usage[i]
		if u.Day == day && u.Model == model && (currency == "" || u.Cost == nil || u.Cost.Currency == currency) {
			return u
		}
	}
	if len(rec.Usage) >= maxUse {
		rec.foldUse()
	}
	rec.Usage = append(rec.Usage, Use{Day: day, Model: model})
	return &rec.Usage[len(rec.Usage)-1]
}

// foldUse adds the oldest use to the next one of the same model, else to the next one,
// whose model is then not known. Amounts of different currencies cannot be added: the
// session's own cost has the sum.
func (rec *record) foldUse() {
	old, rest := rec.Usage[0], slices.Clone(rec.Usage[1:])
	i := slices.IndexFunc(rest, func(u Use) bool { return u.Model == old.Model })
	if i < 0 {
		i = 0
		rest[i].Model = ""
	}
	u := &rest[i]
	u.Turns += old.Turns
	u.InputTokens += old.InputTokens
	u.OutputTokens += old.OutputTokens
	u.CachedReadTokens += old.CachedReadTokens
	u.CachedWriteTokens += old.CachedWriteTokens
	u.ThoughtTokens += old.ThoughtTokens
	switch {
	case u.Cost == nil:
		u.Cost = old.Cost
	case old.Cost != nil && old.Cost.Currency == u.Cost.Currency:
		u.Cost = &Cost{Amount: old.Cost.Amount + u.Cost.Amount, Currency: u.Cost.Currency}
	}
	rec.Usage = rest
}
