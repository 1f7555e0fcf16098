package claude

import (
	"reflect"
	"strings"

	"sandboxagent.dev/sandbox-agent/acp/schema"
)

// usageState knows how full the context is and what the session cost.
type usageState struct {
	model  string // of the main thread's last call
	input  uint64 // tokens that it read
	used   uint64 // tokens of context after it
	size   uint64 // of the context; 0 until the first turn has ended
	cost   *float64
	before float64 // what earlier processes of the session cost
	last   float64 // what this process said last
	turnIn usage   // of the last turn, summed over its calls
	shown  schema.UsageUpdate
}

func (s *usage) context() uint64 { return s.Input + s.CacheRead + s.CacheWrite }

// begin takes the start of a call of the main thread.
func (u *usageState) begin(m *apiMessage) {
	if m.Usage != nil && m.Model != synthetic {
		u.input = m.Usage.context()
	}
}

// delta takes the end of a call of the main thread.
func (u *usageState) delta(d *usage) []schema.SessionUpdate {
	if d == nil {
		return nil
	}
	if in := d.context(); in > 0 {
		u.input = in
	}
	u.used = u.input + d.Output
	return u.update()
}

// result takes the end of a turn.
func (u *usageState) result(e *event) []schema.SessionUpdate {
	// The model's name here may have a suffix that the init line has as well,
	// and calls have not.
	for name, use := range e.ModelUsage {
		own := name == u.model || u.model == "" || strings.TrimSuffix(name, "[1m]") == strings.TrimSuffix(u.model, "[1m]")
		if use.ContextWindow > 0 && (own || u.size == 0) {
			u.size = use.ContextWindow
		}
	}
	if e.Cost != nil {
		if *e.Cost < u.last { // it counts from 0 again
			u.before += u.last
		}
		u.last = *e.Cost
		u.cost = new(u.before + u.last)
	}
	if e.Usage != nil {
		u.turnIn = *e.Usage
	}
	return u.update()
}

func (u *usageState) update() []schema.SessionUpdate {
	if u.size == 0 || u.used == 0 {
		return nil
	}
	out := &schema.UsageUpdate{Used: u.used, Size: u.size}
	if u.cost != nil {
		out.Cost = &schema.Cost{Amount: *u.cost, Currency: "USD"}
	}
	if reflect.DeepEqual(*out, u.shown) {
		return nil
	}
	u.shown = *out
	return []schema.SessionUpdate{{UsageUpdate: out}}
}

// ofTurn is the usage of the turn that has just ended.
func (u *usageState) ofTurn() *schema.Usage {
	t := u.turnIn
	return &schema.Usage{
		InputTokens: t.Input, OutputTokens: t.Output, CachedReadTokens: &t.CacheRead, CachedWriteTokens: &t.CacheWrite,
		TotalTokens: t.context() + t.Output,
	}
}
