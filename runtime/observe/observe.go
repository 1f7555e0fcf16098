// Package observe is what the runtime tells of its work to whoever measures it:
// spans of work, how it ended, what it cost. It is told nothing of single messages.
package observe

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/adapters"
)

// Observer is told what the runtime does, while it does it, and before a client can see
// it: who has a turn's answer finds the turn counted. It is told nothing of single
// messages: those are counted, see Census of package runtime. Its methods are safe for
// concurrent use. They are called with locks held, so they do not wait and do not use the
// runtime.
type Observer interface {
	// Begin says that work begins. ctx has the values of the request or the work
	// that it is part of; its end means nothing.
	Begin(ctx context.Context, w Work) Span
	// Charged says that an agent's sessions have cost that much more.
	Charged(agent, currency string, amount float64)
	// ProcessEnded says that an agent process has ended.
	ProcessEnded(agent string, how Exit)
	// Forwarded says how long messages of an agent took from when the first of
	// them was read until all were in the log. It is told of some.
	Forwarded(d time.Duration)
	// Synced says how long it took to make a log durable.
	Synced(d time.Duration, err error)
}

// Span is work that has begun. Its methods are safe for concurrent use.
type Span interface {
	// Context has the values for work that is part of this.
	Context() context.Context
	// Trace returns what an agent is told of the trace that it works for, in
	// the form of W3C Trace Context; "" when it is told nothing.
	Trace() (parent, state string)
	// FirstUpdate says that the agent has begun to show its work.
	FirstUpdate()
	// End says that the work is over. It is called once.
	End(o Outcome)
}

// Names of work that is no method of ACP.
const (
	WorkStart      = "agent/start"      // of a process, its installation and initialize included
	WorkInitialize = "agent/initialize" // the agent's answer to it
)

// Work is what a span is about.
type Work struct {
	Name    string // a method, or one of the Work constants
	Agent   string // "" when it is nobody's yet
	Session string // "" for none
	// ToAgent says that the gateway asks the agent, of its own accord.
	ToAgent bool
	// Meta is the _meta of the request, which lives as long as the call of Begin.
	Meta json.RawMessage
}

// Outcome is how work ended.
type Outcome struct {
	// Result is one word: a stop reason, what was chosen, [Failed].
	Result string
	// Error is the class of the error, "" for none. It never has parts of
	// messages.
	Error string
	Usage Usage // of a turn
}

// Results of work that are no words of ACP.
const (
	Done      = "ok"
	Failed    = "failed"
	Cancelled = "cancelled"
	Withdrawn = "withdrawn" // by the agent that asked
	Dropped   = "dropped"   // with the turn or the process it was part of
)

// Usage is the tokens that an agent says a turn has taken.
type Usage struct {
	Total      uint64 `json:"totalTokens"`
	Input      uint64 `json:"inputTokens"`
	Output     uint64 `json:"outputTokens"`
	Thought    uint64 `json:"thoughtTokens"`
	CacheRead  uint64 `json:"cachedReadTokens"`
	CacheWrite uint64 `json:"cachedWriteTokens"`
}

// Exit says how a process ended.
type Exit string

// The ways in which a process ends.
const (
	ExitClean  Exit = "clean"  // the gateway ended it, or it ended by itself with code 0
	ExitCrash  Exit = "crash"  // with another code, or because it could not be understood
	ExitKilled Exit = "killed" // by a signal that is not the gateway's
)

// OutcomeOf is the outcome of work that either failed or did not.
func OutcomeOf(err error) Outcome {
	if err == nil {
		return Outcome{Result: Done}
	}
	return Outcome{Result: Failed, Error: classOf(err)}
}

// OutcomeOfTurn is how a turn ended that the agent answered, with its tokens.
func OutcomeOfTurn(res *acp.Message) Outcome {
	if e := res.Err(); e != nil {
		return OutcomeOf(e)
	}
	o := Outcome{Result: rawjson.MemberString(res.Result(), "stopReason")}
	if usage, ok := rawjson.Member(res.Result(), "usage"); ok {
		_ = json.Unmarshal(usage, &o.Usage) // what an agent says wrongly counts as nothing
	}
	return o
}

// classOf names the kind of an error. Texts of errors quote what agents say.
func classOf(err error) string {
	if p, ok := errors.AsType[*problem.Error](err); ok {
		return string(p.Kind)
	}
	if _, ok := errors.AsType[*adapters.ExitError](err); ok {
		return string(problem.AgentProcessExited)
	}
	if e, ok := errors.AsType[*acp.Error](err); ok {
		return strconv.FormatInt(e.Code, 10)
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return string(problem.Timeout)
	case errors.Is(err, context.Canceled):
		return Cancelled
	}
	return string(problem.Internal)
}

// Within returns a context that ends as life does and has the values of from:
// work goes on when the request that asked for it is gone.
func Within(life, from context.Context) context.Context {
	return carrier{life, context.WithoutCancel(from)}
}

type carrier struct {
	context.Context
	values context.Context
}

// Value implements context.Context.
func (c carrier) Value(key any) any {
	if v := c.values.Value(key); v != nil {
		return v
	}
	return c.Context.Value(key)
}

// WithTrace adds the trace that a request belongs to to its _meta, for whoever is asked: an
// agent, or the node of a hub. It takes the place of the client's, which it continues; the
// rest of the message keeps its bytes.
func WithTrace(m acp.Message, span Span) acp.Message {
	parent, state := span.Trace()
	if parent == "" {
		return m
	}
	frame := rawjson.SetMember(m.Frame(), rawjson.AppendQuoted(nil, parent), "params", "_meta", "traceparent")
	if state != "" {
		frame = rawjson.SetMember(frame, rawjson.AppendQuoted(nil, state), "params", "_meta", "tracestate")
	}
	return acp.MustParse(frame)
}

// Nobody is an [Observer] that ignores what it is told.
type Nobody struct{}

// Begin implements [Observer].
func (Nobody) Begin(context.Context, Work) Span { return NoSpan{} }

// Charged implements [Observer].
func (Nobody) Charged(string, string, float64) {}

// ProcessEnded implements [Observer].
func (Nobody) ProcessEnded(string, Exit) {}

// Forwarded implements [Observer].
func (Nobody) Forwarded(time.Duration) {}

// Synced implements [Observer].
func (Nobody) Synced(time.Duration, error) {}

// NoSpan is the [Span] of work that nobody observes.
type NoSpan struct{}

// Context implements [Span].
func (NoSpan) Context() context.Context { return context.Background() }

// Trace implements [Span].
func (NoSpan) Trace() (parent, state string) { return "", "" }

// FirstUpdate implements [Span].
func (NoSpan) FirstUpdate() {}

// End implements [Span].
func (NoSpan) End(Outcome) {}
