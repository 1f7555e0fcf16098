package telemetry

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"sandboxagent.dev/sandbox-agent/control"
)

// methods are those of HTTP that labels may have.
var methods = []string{
	http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions,
}

// Request implements [control.Observer].
func (t *Telemetry) Request(r *http.Request, id string) (context.Context, func(control.Answer)) {
	ctx, method, begun := r.Context(), known(methods, r.Method), time.Now()
	var span trace.Span
	if t.tracer != nil && !untraced(r.URL.Path) {
		ctx, span = t.startRequest(ctx, r, method, id)
	}
	if m := t.metrics; m != nil {
		m.requestsOpen.Inc()
	}
	return ctx, func(a control.Answer) {
		if m := t.metrics; m != nil {
			m.requestsOpen.Dec()
			m.requests.WithLabelValues(method, a.Route, strconv.Itoa(a.Status)).Inc()
			m.requestDuration.WithLabelValues(method, a.Route).Observe(time.Since(begun).Seconds())
			if a.Problem != "" {
				m.problems.WithLabelValues(string(a.Problem)).Inc()
			}
			if a.Uploaded > 0 {
				m.transfers.WithLabelValues("upload").Add(float64(a.Uploaded))
			}
			if a.Downloaded > 0 {
				m.transfers.WithLabelValues("download").Add(float64(a.Downloaded))
			}
		}
		if span != nil {
			endRequest(span, method, a)
		}
	}
}

// untraced reports whether requests for path come again and again and say
// nothing: probes, scrapes, files of the page.
func untraced(path string) bool {
	switch path {
	case "/v2/health", "/v2/ready", "/metrics":
		return true
	}
	return strings.HasPrefix(path, "/ui")
}

func (t *Telemetry) startRequest(ctx context.Context, r *http.Request, method, id string) (context.Context, trace.Span) {
	if t.propagator != nil {
		ctx = t.propagator.Extract(ctx, propagation.HeaderCarrier(r.Header))
	}
	within, span := t.tracer.Start(ctx, method, trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(
		attribute.String("http.request.method", method), attribute.String("url.path", r.URL.Path),
		attribute.String("network.protocol.version", strings.TrimPrefix(r.Proto, "HTTP/")), attrRequest.String(id),
	))
	if slices.ContainsFunc(r.Header["Upgrade"], func(v string) bool { return strings.EqualFold(v, "websocket") }) {
		// It lives as long as its client. What the client asks for belongs to the
		// client's own trace, or begins one.
		return ctx, span
	}
	return within, span
}

func endRequest(span trace.Span, method string, a control.Answer) {
	span.SetName(method + " " + a.Route)
	span.SetAttributes(attribute.String("http.route", a.Route), attribute.Int("http.response.status_code", a.Status))
	if a.Node != "" {
		span.SetAttributes(attrNode.String(a.Node))
	}
	if a.Problem != "" {
		span.SetAttributes(attrError.String(string(a.Problem)))
	}
	if a.Status >= http.StatusInternalServerError {
		span.SetStatus(codes.Error, "")
	}
	span.End()
}
