package opencode

import (
	"math"

	"sandboxagent.dev/sandbox-agent/acp/schema"
)

// usage knows how full the context is and what the session and its turns cost.
type usage struct {
	costs map[string]float64 // by session, of subagents too
	now   schema.UsageUpdate // used and size of the newest answer
	shown schema.UsageUpdate
	price float64 // that was shown
	turn  tokens  // of the turn that runs
	seen  string  // the newest message that was counted
	past  bool    // messages are of the past: their cost is the session's already
}

// begin starts the count of a turn.
func (u *usage) begin() { u.turn = tokens{} }

// cost takes what a session has cost so far.
func (u *usage) cost(session string, amount float64) []schema.SessionUpdate {
	if u.costs[session] == amount {
		return nil
	}
	u.costs[session] = amount
	return u.show()
}

// take counts an answer of the model.
func (u *usage) take(m *message, window uint64) []schema.SessionUpdate {
	if m.Tokens.sum() == 0 {
		return nil
	}
	if m.ID != u.seen && !u.past {
		u.seen = m.ID
		u.costs[m.Session] += m.Cost // the session's own report follows
		u.turn.Input += m.Tokens.Input
		u.turn.Output += m.Tokens.Output
		u.turn.Reasoning += m.Tokens.Reasoning
		u.turn.Cache.Read += m.Tokens.Cache.Read
		u.turn.Cache.Write += m.Tokens.Cache.Write
	}
	if window == 0 {
		return nil
	}
	u.now.Used, u.now.Size = m.Tokens.sum(), window
	if u.past {
		return nil
	}
	return u.show()
}

func (u *usage) show() []schema.SessionUpdate {
	price := 0.0
	for _, c := range u.costs {
		price += c
	}
	price = math.Round(price*1e9) / 1e9 // without the noise of sums
	if u.now.Size == 0 || u.now.Used == u.shown.Used && u.now.Size == u.shown.Size && price == u.price {
		return nil
	}
	u.shown, u.price = u.now, price
	out := u.now
	out.Cost = &schema.Cost{Amount: price, Currency: "USD"}
	return []schema.SessionUpdate{{UsageUpdate: &out}}
}

// ofTurn is the usage of the turn that began last.
func (u *usage) ofTurn() *schema.Usage {
	t := u.turn
	if t.sum() == 0 {
		return nil
	}
	return &schema.Usage{
		InputTokens: t.Input, OutputTokens: t.Output, TotalTokens: t.sum(),
		CachedReadTokens: &t.Cache.Read, CachedWriteTokens: &t.Cache.Write, ThoughtTokens: &t.Reasoning,
	}
}
