package telemetry

import (
	"context"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/runtime/observe"
)

// Names of attributes of spans.
const (
	attrAgent   = attribute.Key("sandbox_agent.agent")
	attrSession = attribute.Key("sandbox_agent.session")
	attrNode    = attribute.Key("sandbox_agent.node")
	attrResult  = attribute.Key("sandbox_agent.result")
	attrRequest = attribute.Key("sandbox_agent.request_id")
	attrError   = attribute.Key("error.type")
)

const prompt = acp.MethodSessionPrompt

// asks are the methods by which agents ask people, and their names in labels.
var asks = map[string]string{
	acp.MethodSessionRequestPermission:       "permission",
	acp.MethodElicitationCreate:              "elicitation",
	"_sandboxagent/session/request_question": "question",
}

// Outcomes that labels may have.
var (
	stopReasons = []string{"end_turn", "max_tokens", "max_turn_requests", "refusal", observe.Cancelled, observe.Failed}
	decisions   = []string{
		"allow_once", "allow_always", "reject_once", "reject_always", "answered", "rejected", "accept", "decline", "cancel",
		observe.Cancelled, observe.Withdrawn, observe.Dropped, observe.Failed,
	}
)

// known returns word when it is one of words, else that it is another.
func known(words []string, word string) string {
	if slices.Contains(words, word) {
		return word
	}
	return other
}

// work is what the runtime does. It implements [observe.Span].
type work struct {
	t     *Telemetry
	what  observe.Work // without Meta
	begun time.Time
	ctx   context.Context
	span  trace.Span // nil without traces
}

// Begin implements [observe.Observer].
func (t *Telemetry) Begin(ctx context.Context, w observe.Work) observe.Span {
	s := &work{t: t, what: w, begun: time.Now(), ctx: ctx}
	s.what.Meta = nil
	if t.tracer != nil {
		s.ctx, s.span = t.startWork(ctx, w)
	}
	m := t.metrics
	if m == nil {
		return s
	}
	if w.Name == prompt {
		m.turnsStarted.WithLabelValues(w.Agent).Inc()
		m.turnsOpen.WithLabelValues(w.Agent).Inc()
	} else if kind := asks[w.Name]; kind != "" {
		m.asked.WithLabelValues(w.Agent, kind).Inc()
		m.asksOpen.WithLabelValues(w.Agent, kind).Inc()
	}
	return s
}

// startWork begins the span. What a request says of its trace counts for more
// than what its transport does.
func (t *Telemetry) startWork(ctx context.Context, w observe.Work) (context.Context, trace.Span) {
	ctx = t.continued(ctx, w.Meta)
	kind := trace.SpanKindInternal
	if w.ToAgent {
		kind = trace.SpanKindClient
	}
	attrs := make([]attribute.KeyValue, 0, 2)
	if w.Agent != "" {
		attrs = append(attrs, attrAgent.String(w.Agent))
	}
	if w.Session != "" {
		attrs = append(attrs, attrSession.String(w.Session))
	}
	return t.tracer.Start(ctx, w.Name, trace.WithSpanKind(kind), trace.WithAttributes(attrs...))
}

// Context implements [observe.Span].
func (s *work) Context() context.Context { return s.ctx }

// Trace implements [observe.Span].
func (s *work) Trace() (parent, state string) {
	if s.span == nil {
		return "", ""
	}
	return s.t.passedOn(s.ctx)
}

// At says which node of a hub does the work.
func (s *work) At(node string) {
	if s.span != nil {
		s.span.SetAttributes(attrNode.String(node))
	}
}

// FirstUpdate implements [observe.Span].
func (s *work) FirstUpdate() {
	if m := s.t.metrics; m != nil {
		m.firstUpdate.WithLabelValues(s.what.Agent).Observe(time.Since(s.begun).Seconds())
	}
	if s.span != nil {
		s.span.AddEvent("first update")
	}
}

// End implements [observe.Span].
func (s *work) End(o observe.Outcome) {
	if m := s.t.metrics; m != nil {
		s.count(m, o)
	}
	if s.span == nil {
		return
	}
	attrs := make([]attribute.KeyValue, 0, 8)
	attrs = append(attrs, attrResult.String(o.Result))
	if o.Error != "" {
		attrs = append(attrs, attrError.String(o.Error))
		s.span.SetStatus(codes.Error, "")
	}
	for _, k := range kinds(o.Usage) {
		if k.n > 0 {
			attrs = append(attrs, attribute.Int64("gen_ai.usage."+k.name+"_tokens", int64(min(k.n, 1<<62))))
		}
	}
	s.span.SetAttributes(attrs...)
	s.span.End()
}

// count adds the work to the metrics.
func (s *work) count(m *metrics, o observe.Outcome) {
	took, agent := time.Since(s.begun).Seconds(), s.what.Agent
	switch kind := asks[s.what.Name]; {
	case s.what.Name == prompt:
		m.turnsOpen.WithLabelValues(agent).Dec()
		m.turnsEnded.WithLabelValues(agent, known(stopReasons, o.Result)).Inc()
		m.turnDuration.WithLabelValues(agent).Observe(took)
		for _, k := range kinds(o.Usage) {
			if k.n > 0 {
				m.tokens.WithLabelValues(agent, k.name).Add(float64(k.n))
			}
		}
	case kind != "":
		m.asksOpen.WithLabelValues(agent, kind).Dec()
		m.decided.WithLabelValues(agent, kind, known(decisions, o.Result)).Inc()
		m.askWait.WithLabelValues(kind).Observe(took)
	case s.what.Name == observe.WorkStart:
		m.agentStart.WithLabelValues(agent, o.Result).Observe(took)
	case !s.what.ToAgent:
		m.rpc.WithLabelValues(s.what.Name, o.Result).Inc()
	}
}

// tokenKind is a number of tokens and what it counts.
type tokenKind struct {
	name string
	n    uint64
}

func kinds(u observe.Usage) [5]tokenKind {
	return [...]tokenKind{{"input", u.Input}, {"output", u.Output}, {"thought", u.Thought}, {"cache_read", u.CacheRead}, {"cache_write", u.CacheWrite}}
}

// Charged implements [observe.Observer].
func (t *Telemetry) Charged(agent, currency string, amount float64) {
	if m := t.metrics; m != nil {
		m.cost.WithLabelValues(agent, m.currency(currency)).Add(amount)
	}
}

// ProcessEnded implements [observe.Observer].
func (t *Telemetry) ProcessEnded(agent string, how observe.Exit) {
	if m := t.metrics; m != nil {
		m.agentExits.WithLabelValues(agent, string(how)).Inc()
	}
}

// Forwarded implements [observe.Observer].
func (t *Telemetry) Forwarded(d time.Duration) {
	if m := t.metrics; m != nil {
		m.forward.Observe(d.Seconds())
	}
}

// Synced implements [observe.Observer].
func (t *Telemetry) Synced(d time.Duration, err error) {
	m := t.metrics
	if m == nil {
		return
	}
	m.syncs.Observe(d.Seconds())
	if err != nil {
		m.syncErrors.Inc()
	}
}
