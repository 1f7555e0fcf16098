package codex

import (
	"sandboxagent.dev/sandbox-agent/acp/schema"
)

// usageState knows how full the context is and what a turn cost.
type usageState struct {
	total  tokens // of the thread
	before tokens // of the thread when the turn began
	shown  schema.UsageUpdate
}

func (u *usageState) begin() { u.before = u.total }

func (u *usageState) take(now *tokenUsage) []schema.SessionUpdate {
	if now == nil {
		return nil
	}
	if u.total == (tokens{}) && u.before == (tokens{}) && now.Total.Total >= now.Last.Total {
		// The thread is older than this process.
		u.before = now.Total.minus(now.Last)
	}
	u.total = now.Total
	if now.Window == nil || *now.Window == 0 {
		return nil
	}
	out := schema.UsageUpdate{Used: now.Last.Total, Size: *now.Window}
	if out.Used == u.shown.Used && out.Size == u.shown.Size {
		return nil
	}
	u.shown = out
	return []schema.SessionUpdate{{UsageUpdate: &out}}
}

func (t tokens) minus(o tokens) tokens {
	less := func(a, b uint64) uint64 {
		if b > a {
			return a // it counts from 0 again
		}
		return a - b
	}
	return tokens{
		less(t.Total, o.Total), less(t.Input, o.Input), less(t.Cached, o.Cached), less(t.Written, o.Written),
		less(t.Output, o.Output), less(t.Reasoning, o.Reasoning),
	}
}

// ofTurn is the usage of the turn that began last.
func (u *usageState) ofTurn() *schema.Usage {
	d := u.total.minus(u.before)
	if d.Total == 0 {
		return nil
	}
	fresh := d.Input - min(d.Input, d.Cached)
	return &schema.Usage{
		InputTokens: fresh, OutputTokens: d.Output, TotalTokens: d.Total,
		CachedReadTokens: &d.Cached, CachedWriteTokens: &d.Written, ThoughtTokens: &d.Reasoning,
	}
}
