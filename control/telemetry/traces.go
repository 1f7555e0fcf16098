package telemetry

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"slices"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"sandboxagent.dev/sandbox-agent/acp/rawjson"
)

const (
	scope = "sandboxagent.dev/sandbox-agent"

	// maxTraceHeader bounds what is taken of a client's traceparent or
	// tracestate.
	maxTraceHeader = 1024
)

// variable returns the first of the environment variables that has a value.
func variable(names ...string) string {
	for _, name := range names {
		if v := strings.TrimSpace(os.Getenv(name)); v != "" {
			return v
		}
	}
	return ""
}

// wanted reports whether the environment asks for traces. What it asks for and
// cannot have is reported: the variables are often another program's.
func (t *Telemetry) wanted() bool {
	if strings.EqualFold(variable("OTEL_SDK_DISABLED"), "true") {
		return false
	}
	exporter := variable("OTEL_TRACES_EXPORTER")
	switch exporter {
	case "none":
		return false
	case "otlp":
	case "":
		if variable("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT") == "" {
			return false
		}
	default:
		t.log.Warn("no traces are sent: this program has only the exporter otlp", "OTEL_TRACES_EXPORTER", exporter)
		return false
	}
	if p := variable("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"); p != "" && p != "http/protobuf" {
		t.log.Warn("no traces are sent: this program speaks only http/protobuf", "OTEL_EXPORTER_OTLP_PROTOCOL", p)
		return false
	}
	return true
}

// openTraces sets up sending traces, if the environment asks for it. Samplers,
// limits and batches are read from the environment by the SDK.
func (t *Telemetry) openTraces(ctx context.Context, service, version string) error {
	if !t.wanted() {
		return nil
	}
	s, err := newSender(t.log, t.exported)
	if err != nil {
		return err
	}
	exporter, err := otlptrace.New(ctx, s)
	if err != nil {
		return err
	}
	// Nothing of the command line: it may hold the token.
	res, err := resource.New(ctx,
		resource.WithAttributes(attribute.String("service.name", service), attribute.String("service.version", version), attribute.Int("process.pid", os.Getpid())),
		resource.WithTelemetrySDK(), resource.WithHost(), resource.WithFromEnv())
	if err != nil {
		t.log.Warn("what traces say of this program is not complete", "err", err)
	}
	t.sender = s
	t.provider = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(newQueue(exporter, t.dropped)), sdktrace.WithResource(res))
	t.tracer = t.provider.Tracer(scope, trace.WithInstrumentationVersion(version))
	if p := variable("OTEL_PROPAGATORS"); p == "" || slices.Contains(strings.Split(p, ","), "tracecontext") {
		t.propagator = propagation.TraceContext{}
	}
	t.log.Info("traces are sent", "collector", s.shown())
	return nil
}

// exported counts the spans that were sent, or that nobody took.
func (t *Telemetry) exported(n int, err error) {
	if t.metrics == nil {
		return
	}
	outcome := "sent"
	if err != nil {
		outcome = "failed"
	}
	t.metrics.spans.WithLabelValues(outcome).Add(float64(n))
}

// dropped counts a span for which there was no room.
func (t *Telemetry) dropped() {
	if t.metrics != nil {
		t.metrics.spans.WithLabelValues("dropped").Inc()
	}
}

// continued returns ctx in the trace that the _meta of a request names, or ctx
// itself.
func (t *Telemetry) continued(ctx context.Context, meta json.RawMessage) context.Context {
	if t.propagator == nil || len(meta) == 0 {
		return ctx
	}
	parent, state := rawjson.MemberString(meta, "traceparent"), rawjson.MemberString(meta, "tracestate")
	if parent == "" || len(parent) > maxTraceHeader || len(state) > maxTraceHeader {
		return ctx
	}
	return t.propagator.Extract(ctx, propagation.MapCarrier{"traceparent": parent, "tracestate": state})
}

// PassOn puts the trace of ctx into the headers of a request that is passed on. Without traces
// those of the client stay as they are.
func (t *Telemetry) PassOn(ctx context.Context, h http.Header) {
	parent, state := t.passedOn(ctx)
	if parent == "" {
		return
	}
	h.Set("traceparent", parent)
	if h.Del("tracestate"); state != "" {
		h.Set("tracestate", state)
	}
}

// passedOn is what others are told of the trace of ctx.
func (t *Telemetry) passedOn(ctx context.Context) (parent, state string) {
	if t.propagator == nil {
		return "", ""
	}
	carrier := propagation.MapCarrier{}
	t.propagator.Inject(ctx, carrier)
	return carrier["traceparent"], carrier["tracestate"]
}
