package telemetry

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"sandboxagent.dev/sandbox-agent/control"
	"sandboxagent.dev/sandbox-agent/runtime/observe"
)

func TestMain(m *testing.M) {
	for _, kv := range os.Environ() { // those of the machine are not the tests'
		if name, _, _ := strings.Cut(kv, "="); strings.HasPrefix(name, "OTEL_") {
			_ = os.Unsetenv(name)
		}
	}
	goleak.VerifyTestMain(m)
}

func text(t *testing.T, o *Telemetry) string {
	t.Helper()
	w := httptest.NewRecorder()
	o.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	b, err := io.ReadAll(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func open(t *testing.T, o Options) *Telemetry {
	t.Helper()
	tel, err := New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		tel.Shutdown(ctx)
	})
	return tel
}

func TestNew_Unconfigured(t *testing.T) {
	before := goleak.IgnoreCurrent()
	off := open(t, Options{Traces: true})
	if off.Runtime() != nil || off.HTTP() != nil || off.Handler() != nil || off.Traces() {
		t.Error("something is observed")
	}
	if (&Telemetry{}).Runtime() != nil {
		t.Error("the zero value observes")
	}
	metrics := open(t, Options{Traces: true, Metrics: true})
	if metrics.Runtime() == nil || metrics.HTTP() == nil || metrics.Handler() == nil || metrics.Traces() {
		t.Error("metrics are not kept")
	}
	if parent, state := metrics.Begin(t.Context(), observe.Work{Name: prompt}).Trace(); parent+state != "" {
		t.Errorf("an agent is told of a trace: %q %q", parent, state)
	}
	if err := goleak.Find(before); err != nil {
		t.Error(err)
	}
}

// A collector that never answers does not keep the end waiting, and leaves
// nothing behind.
func TestShutdown_HangingCollector(t *testing.T) {
	end := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		select {
		case <-r.Context().Done():
		case <-end:
		}
	}))
	t.Cleanup(srv.Close)
	t.Cleanup(func() { close(end) })
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", srv.URL)
	tel := open(t, Options{Traces: true, Metrics: true})
	tel.Begin(t.Context(), observe.Work{Name: prompt, Agent: "a"}).End(observe.Outcome{Result: "end_turn"})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	start := time.Now()
	tel.Shutdown(ctx)
	if took := time.Since(start); took > 20*time.Second {
		t.Errorf("it took %v", took)
	}
}

// Spans that a collector refuses in an answer that is good otherwise are counted and logged; what is no such answer refuses none.
func TestTraces_PartlyRefused(t *testing.T) {
	for answer, want := range map[string]struct {
		sent, failed int
		log          string
	}{
		"":                                {sent: 3},
		"\x0a\x00":                        {sent: 3},
		"\x0a\x06\x12\x04mind":            {sent: 3},
		"\x0a\x0b\x08\x02\x12\x07too":     {sent: 3}, // it is cut short
		"\x0a\x0b\x08\x02\x12\x07too old": {sent: 1, failed: 2, log: "refused 2 of 3 spans: \\\"too old\\\""},
		"\x0a\x02\x08\x63":                {failed: 3, log: "refused 3 of 3 spans"}, // more than there were
		"<html>thanks</html>":             {sent: 3},
	} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			_, _ = io.WriteString(w, answer)
		}))
		t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", srv.URL)
		var log bytes.Buffer
		tel := open(t, Options{Traces: true, Metrics: true, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		for range 3 {
			tel.Begin(t.Context(), observe.Work{Name: prompt, Agent: "a"}).End(observe.Outcome{Result: "end_turn"})
		}
		tel.Shutdown(t.Context())
		srv.Close()
		all := text(t, tel)
		for outcome, n := range map[string]int{"sent": want.sent, "failed": want.failed} {
			line := fmt.Sprintf("trace_spans_total{outcome=%q} %d\n", outcome, n)
			if n > 0 && !strings.Contains(all, line) || n == 0 && strings.Contains(all, fmt.Sprintf("trace_spans_total{outcome=%q} ", outcome)) && !strings.Contains(all, line) {
				t.Errorf("%q: no line %s in\n%s", answer, line, all)
			}
		}
		if got := log.String(); !strings.Contains(got, want.log) || want.log == "" && strings.Contains(got, "cannot send") {
			t.Errorf("%q: the log says %s", answer, got)
		}
	}
}

// No span is lost without being counted: what a slow collector has no time for is dropped, and the metric says so.
func TestTraces_EachIsCounted(t *testing.T) {
	taking := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-taking
	}))
	t.Cleanup(srv.Close)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", srv.URL)
	tel := open(t, Options{Traces: true, Metrics: true})
	const ended = 5000
	for range ended {
		tel.Begin(t.Context(), observe.Work{Name: prompt, Agent: "a"}).End(observe.Outcome{Result: "end_turn"})
	}
	close(taking)
	tel.Shutdown(t.Context())
	all, counted := text(t, tel), 0
	outcomes := map[string]int{}
	for line := range strings.Lines(all) {
		var n int
		_, rest, ok := strings.Cut(line, "trace_spans_total{outcome=")
		outcome, number, _ := strings.Cut(rest, "} ")
		if _, err := fmt.Sscan(number, &n); !ok || err != nil {
			continue
		}
		outcomes[outcome] = n
		counted += n
	}
	if counted != ended || outcomes[`"dropped"`] == 0 || outcomes[`"sent"`] < 2048 {
		t.Errorf("of %d spans %d were counted: %v", ended, counted, outcomes)
	}
}

// Whatever agents and clients say, the number of labels is bounded.
func TestMetrics_Labels(t *testing.T) {
	tel := open(t, Options{Metrics: true})
	for i := range 1000 {
		strange := fmt.Sprintf("word-%d", i)
		tel.Begin(t.Context(), observe.Work{Name: prompt, Agent: "a"}).End(observe.Outcome{Result: strange})
		tel.Begin(t.Context(), observe.Work{Name: "session/request_permission", Agent: "a"}).End(observe.Outcome{Result: strange})
		tel.Charged("a", strange, 1)
		tel.Charged("a", strings.Repeat(string(rune('A'+i%26)), 1+i%12), 1)
		_, end := tel.Request(httptest.NewRequest(strange, "/x", nil), "id")
		end(control.Answer{Route: "other", Status: 404})
	}
	all := text(t, tel)
	if n := strings.Count(all, "\nsandbox_agent_"); n > 200 {
		t.Errorf("%d lines", n)
	}
	for _, want := range []string{
		`turns_ended_total{agent="a",outcome="other"} 1000`, `asks_answered_total{agent="a",kind="permission",outcome="other"} 1000`,
		`http_requests_total{method="other",route="other",status="404"} 1000`,
	} {
		if !strings.Contains(all, "\nsandbox_agent_"+want+"\n") {
			t.Errorf("no line %s in\n%s", want, all)
		}
	}
	if strings.Contains(all, "word-") {
		t.Error("a strange word is a label")
	}
	if n := strings.Count(all, "\nsandbox_agent_cost_total{"); n != maxCurrencies+1 {
		t.Errorf("%d currencies", n)
	}
}
