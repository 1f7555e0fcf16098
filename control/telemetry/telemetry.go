package telemetry

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"

	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"sandboxagent.dev/sandbox-agent/control"
	"sandboxagent.dev/sandbox-agent/runtime/observe"
)

// Options configure a Telemetry.
type Options struct {
	Metrics bool   // keep metrics
	Traces  bool   // send traces, if the OTEL_ variables say where
	Service string // that spans are of, "" is sandbox-agent
	Version string
	Logger  *slog.Logger // nil discards
}

// Telemetry is the metrics and traces of one gateway. The zero value observes
// nothing. Its methods are safe for
// concurrent use.
type Telemetry struct {
	log     *slog.Logger
	metrics *metrics // nil when none are kept

	// All nil when no traces are sent.
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
	sender   *sender

	propagator propagation.TextMapPropagator // nil when traces are not passed on
}

var (
	_ observe.Observer = (*Telemetry)(nil)
	_ control.Observer = (*Telemetry)(nil)
)

// New returns a Telemetry that observes nothing yet. What it starts ends with
// Shutdown. Variables it cannot obey are reported and leave traces off.
func New(ctx context.Context, o Options) (*Telemetry, error) {
	t := &Telemetry{log: o.Logger}
	if t.log == nil {
		t.log = slog.New(slog.DiscardHandler)
	}
	if o.Metrics {
		t.metrics = newMetrics(o.Version)
	}
	if o.Traces {
		if err := t.openTraces(ctx, cmp.Or(o.Service, "sandbox-agent"), o.Version); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// on reports whether anything is observed.
func (t *Telemetry) on() bool { return t.metrics != nil || t.tracer != nil }

// Traces reports whether traces are sent.
func (t *Telemetry) Traces() bool { return t.tracer != nil }

// Runtime returns t as the runtime's observer, nil when nothing is observed.
func (t *Telemetry) Runtime() observe.Observer {
	if !t.on() {
		return nil
	}
	return t
}

// HTTP returns t as the server's observer, nil when nothing is observed.
func (t *Telemetry) HTTP() control.Observer {
	if !t.on() {
		return nil
	}
	return t
}

// Handler serves the metrics; nil without any.
func (t *Telemetry) Handler() http.Handler {
	if t.metrics == nil {
		return nil
	}
	return t.metrics.handler()
}

// Watch makes the metrics show what the sources have when they are asked for.
// Call it once, before Handler is served. Sources may be nil.
func (t *Telemetry) Watch(sessions Sessions, processes Processes) {
	if t.metrics != nil {
		t.metrics.watch(sessions, processes)
	}
}

// Shutdown sends the traces that are left, as long as ctx allows.
func (t *Telemetry) Shutdown(ctx context.Context) {
	if t.provider == nil {
		return
	}
	defer context.AfterFunc(ctx, t.sender.abort)()
	if err := t.provider.Shutdown(ctx); err != nil {
		t.log.Warn("traces were not all sent", "err", err)
	}
	t.sender.abort()
	t.sender.http.CloseIdleConnections()
}
