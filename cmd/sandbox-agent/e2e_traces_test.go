package main_test

import (
	"bytes"
	"compress/gzip"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// A span is one that a collector received.
type span struct {
	name, trace, id, parent, state string
	kind                           string
	attrs                          map[string]string
	failed                         bool
	events                         []string
	resource                       map[string]string
}

// collector receives spans by OTLP over HTTP, as a real one does.
type collector struct {
	t   *testing.T
	url string

	mu       sync.Mutex
	spans    []span
	raw      []byte // all bodies
	requests []http.Header
	paths    []string
	refuse   int           // requests that are answered with 503 first
	hang     chan struct{} // closed when requests may be answered; nil does not wait
}

func newCollector(t *testing.T) *collector {
	c := &collector{t: t}
	srv := httptest.NewServer(c)
	t.Cleanup(srv.Close)
	c.url = srv.URL
	return c
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(body)
		if err != nil {
			c.t.Error(err)
			return
		}
		body = z
	}
	b, err := io.ReadAll(body)
	if err != nil {
		c.t.Error(err)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if hang := c.hang; hang != nil {
		c.mu.Unlock()
		select {
		case <-hang:
		case <-r.Context().Done():
		}
		c.mu.Lock()
		return
	}
	c.requests, c.paths = append(c.requests, r.Header.Clone()), append(c.paths, r.URL.Path)
	if c.refuse > 0 {
		c.refuse--
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	var data tracepb.TracesData
	if err := proto.Unmarshal(b, &data); err != nil {
		c.t.Errorf("what came is no trace: %v", err)
		return
	}
	c.raw = append(c.raw, b...)
	for _, rs := range data.ResourceSpans {
		resource := map[string]string{}
		for _, kv := range rs.GetResource().GetAttributes() {
			resource[kv.GetKey()] = value(kv.GetValue())
		}
		for _, ss := range rs.ScopeSpans {
			for _, s := range ss.Spans {
				out := span{
					name: s.Name, trace: hex.EncodeToString(s.TraceId), id: hex.EncodeToString(s.SpanId), parent: hex.EncodeToString(s.ParentSpanId),
					state: s.TraceState, kind: s.Kind.String(), attrs: map[string]string{}, failed: s.GetStatus().GetCode() == tracepb.Status_STATUS_CODE_ERROR, resource: resource,
				}
				for _, kv := range s.Attributes {
					out.attrs[kv.GetKey()] = value(kv.GetValue())
				}
				for _, e := range s.Events {
					out.events = append(out.events, e.Name)
				}
				if s.EndTimeUnixNano < s.StartTimeUnixNano || s.StartTimeUnixNano == 0 {
					c.t.Errorf("%s has no time", s.Name)
				}
				c.spans = append(c.spans, out)
			}
		}
	}
}

func value(v interface {
	GetStringValue() string
	GetIntValue() int64
},
) string {
	if s := v.GetStringValue(); s != "" {
		return s
	}
	return fmt.Sprint(v.GetIntValue())
}

// delivery is what has come.
type delivery struct {
	spans    []span
	raw      []byte
	requests []http.Header
	paths    []string
}

func (c *collector) received() delivery {
	c.mu.Lock()
	defer c.mu.Unlock()
	return delivery{slices.Clone(c.spans), bytes.Clone(c.raw), slices.Clone(c.requests), slices.Clone(c.paths)}
}

// one returns the only span that matches.
func (c *collector) one(what string, ok func(s span) bool) span {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	var found []span
	for _, s := range c.spans {
		if ok(s) {
			found = append(found, s)
		}
	}
	if len(found) != 1 {
		var all strings.Builder
		for _, s := range c.spans {
			fmt.Fprintf(&all, "%s %s %s<-%s %v\n", s.name, s.trace, s.id, s.parent, s.attrs)
		}
		c.t.Fatalf("%d spans are %s, want one of\n%s", len(found), what, &all)
	}
	return found[0]
}

func (c *collector) named(name, trace string) span {
	c.t.Helper()
	return c.one(name+" of "+trace, func(s span) bool { return s.name == name && (trace == "" || s.trace == trace) })
}

// below returns the child of parent with the name.
func (c *collector) below(parent span, name string) span {
	c.t.Helper()
	return c.one(name+" below "+parent.name, func(s span) bool { return s.name == name && s.parent == parent.id && s.trace == parent.trace })
}

// env is what a gateway needs to send its traces here. They are sent when the
// gateway ends, so that nobody waits for the time of a batch.
func (c *collector) env() []string {
	return []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + c.url, "OTEL_BSP_SCHEDULE_DELAY=3600000"}
}

// headers adds headers to the requests of a client.
type headers struct {
	mu sync.Mutex
	h  http.Header
}

func (h *headers) set(parent, state string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.h = http.Header{}
	if parent != "" {
		h.h["Traceparent"] = []string{parent}
	}
	if state != "" {
		h.h["Tracestate"] = []string{state}
	}
}

func (h *headers) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	h.mu.Lock()
	for name, v := range h.h {
		r.Header[name] = v
	}
	h.mu.Unlock()
	return http.DefaultTransport.RoundTrip(r)
}

// Traces and spans of the client.
const (
	traceA, traceB, traceC, traceD = "0af7651916cd43dd8448eb211c80319c", "1bf7651916cd43dd8448eb211c80319c", "2cf7651916cd43dd8448eb211c80319c", "3df7651916cd43dd8448eb211c80319c"
	spanA, spanB                   = "b7ad6b7169203331", "c7ad6b7169203331"
)

func parentOf(trace, span string) string { return "00-" + trace + "-" + span + "-01" }

func TestTraces(t *testing.T) {
	received := filepath.Join(t.TempDir(), "received")
	col := newCollector(t)
	g := newGateway(t, meteredFlags(t)...)
	g.env = append(
		col.env(), "METERED_LOG="+received, "OTEL_EXPORTER_OTLP_HEADERS=x-key=a%20secret%2Cvalue,other=1", "OTEL_EXPORTER_OTLP_COMPRESSION=gzip",
		"OTEL_RESOURCE_ATTRIBUTES=deployment.environment.name=test", "OTEL_SERVICE_NAME=my-gateway",
	)
	g.start()
	h := &headers{}
	c := connect(t, g, inline, options{agent: "metered", client: &http.Client{Transport: h}})
	s := c.newSession()

	// The trace of the request's headers.
	h.set(parentOf(traceA, spanA), "vendor=1")
	c.prompt(s, "one")
	// The trace of the message counts for more, and its other members stay.
	h.set(parentOf(traceA, spanA), "")
	const meta = `{"z": 1.50,"traceparent":"00-` + traceB + `-` + spanB + `-01", "a" : "\u0041\/","sandboxagent.dev":{"promptId":"p"}}`
	if m := c.response(c.start("session/prompt", json.RawMessage(`{"sessionId":"`+s+`","prompt":[{"type":"text","text":"two"}],"_meta":`+meta+`}`))); m.Error != nil {
		t.Fatal(m.Error)
	}
	// An agent that has died is started again for the turn.
	h.set(parentOf(traceC, spanA), "")
	if _, err := c.call("session/prompt", promptParams(s, "die")); err == nil {
		t.Error("the turn did not fail")
	}
	h.set(parentOf(traceD, spanA), "")
	c.prompt(s, "three")
	h.set("", "")
	if _, err := c.call("session/set_mode", map[string]any{"sessionId": "nobody", "modeId": "x"}); err == nil {
		t.Error("an unknown session has a mode")
	}
	g.get("/v2/ready", nil)
	g.kill(syscall.SIGTERM)

	turn := col.named("session/prompt", traceA)
	post := col.one("the request of the turn", func(s span) bool { return s.id == turn.parent })
	if post.name != "POST /v2/rpc" || post.parent != spanA || turn.parent != post.id || post.state != "vendor=1" || post.kind != "SPAN_KIND_SERVER" || post.attrs["http.route"] != "/v2/rpc" ||
		post.attrs["http.response.status_code"] != "200" || post.attrs["sandbox_agent.request_id"] == "" {
		t.Errorf("the request is %+v", post)
	}
	want := map[string]string{
		"sandbox_agent.agent": "metered", "sandbox_agent.session": s, "sandbox_agent.result": "end_turn",
		"gen_ai.usage.input_tokens": "100", "gen_ai.usage.output_tokens": "20", "gen_ai.usage.thought_tokens": "1", "gen_ai.usage.cache_read_tokens": "60", "gen_ai.usage.cache_write_tokens": "5",
	}
	if fmt.Sprint(turn.attrs) != fmt.Sprint(want) || !slices.Equal(turn.events, []string{"first update"}) || turn.failed {
		t.Errorf("the turn is %+v", turn)
	}
	if turn.resource["service.name"] != "my-gateway" || turn.resource["deployment.environment.name"] != "test" || turn.resource["service.version"] == "" || turn.resource["telemetry.sdk.language"] != "go" {
		t.Errorf("the program is %v", turn.resource)
	}
	second := col.named("session/prompt", traceB)
	if second.parent != spanB {
		t.Errorf("the second turn is %+v", second)
	}
	died := col.named("session/prompt", traceC)
	if !died.failed || died.attrs["sandbox_agent.result"] != "failed" || died.attrs["error.type"] != "agent_process_exited" {
		t.Errorf("the failed turn is %+v", died)
	}
	third := col.named("session/prompt", traceD)
	again := col.below(third, "agent/start")
	if init := col.below(again, "agent/initialize"); init.kind != "SPAN_KIND_CLIENT" {
		t.Errorf("initialize is %+v", init)
	}
	if resume := col.below(third, "session/resume"); resume.kind != "SPAN_KIND_CLIENT" || resume.attrs["sandbox_agent.session"] != s {
		t.Errorf("resume is %+v", resume)
	}
	made := col.named("session/new", "")
	if parent := col.one("the parent of session/new", func(s span) bool { return s.id == made.parent }); parent.name != "POST /v2/rpc" || parent.parent != "" {
		t.Errorf("session/new is below %+v", parent)
	}
	if first := col.one("the first start", func(s span) bool { return s.name == "agent/start" && s.trace != traceD }); first.parent == "" {
		t.Errorf("the first start is %+v", first)
	}
	if mode := col.named("session/set_mode", ""); !mode.failed || mode.attrs["error.type"] != "-32002" {
		t.Errorf("the failed request is %+v", mode)
	}
	all := col.received()
	for _, s := range all.spans {
		if strings.Contains(s.name, "health") || strings.Contains(s.name, "ready") {
			t.Errorf("a probe is traced: %+v", s)
		}
	}
	if req := all.requests[0]; req.Get("X-Key") != "a secret,value" || req.Get("Other") != "1" || req.Get("Content-Type") != "application/x-protobuf" || all.paths[0] != "/v1/traces" {
		t.Errorf("the collector was asked with %v for %s", req, all.paths[0])
	}

	// What the agent was told.
	prompts := meteredFrames(t, received, "session/prompt")
	if len(prompts) != 4 {
		t.Fatalf("the agent got %d prompts: %q", len(prompts), prompts)
	}
	if !strings.Contains(prompts[0], `"_meta":{"traceparent":"`+parentOf(traceA, turn.id)+`","tracestate":"vendor=1"}`) {
		t.Errorf("the agent got %s, want the turn %s", prompts[0], turn.id)
	}
	if want := strings.Replace(meta, spanB, second.id, 1); !strings.Contains(prompts[1], `"_meta":`+want) {
		t.Errorf("the agent got %s, want %s", prompts[1], want)
	}
	if env, err := os.ReadFile(received + ".env"); err != nil || len(env) > 0 {
		t.Errorf("the agent inherits %s, %v", env, err)
	}
	// What the client sent is in the log as it was.
	if b, err := g.journals(); err != nil || !bytes.Contains(b, []byte(meta)) {
		t.Error("the log has not what the client sent")
	}
}

// journals returns the logs of all sessions.
func (g *gateway) journals() ([]byte, error) {
	paths, err := filepath.Glob(filepath.Join(g.dir, "sessions", "*", "log.journal"))
	if err != nil {
		return nil, err
	}
	var all []byte
	for _, p := range paths {
		b, err := os.ReadFile(p)
		if err != nil {
			return nil, err
		}
		all = append(all, b...)
	}
	return all, nil
}

func TestTraces_OtherTransports(t *testing.T) {
	col := newCollector(t)
	g := newGateway(t)
	g.env = col.env()
	g.start()
	// Over the standard dialect the message outlives its request.
	h := &headers{}
	c := connect(t, g, standard, options{client: &http.Client{Transport: h}})
	s := c.newSession()
	h.set(parentOf(traceA, spanA), "")
	turn := c.start("session/prompt", promptParams(s, "permission"))
	ask := c.findMethod("session/request_permission")
	c.answer(ask, map[string]any{"outcome": map[string]any{"outcome": "selected", "optionId": "allow_always"}})
	if _, err := c.wait(turn); err != nil {
		t.Fatal(err)
	}
	// On a WebSocket a turn without a trace begins one: its socket's never ends.
	w := connect(t, g, wsocket, options{})
	ws := w.newSession()
	w.prompt(ws, "hello")
	var res struct {
		Meta struct{ Traceparent string } `json:"_meta"`
	}
	b := w.must("session/prompt", map[string]any{"sessionId": ws, "prompt": []any{}, "_meta": map[string]any{"traceparent": parentOf(traceB, spanB)}})
	if err := json.Unmarshal(b, &res); err != nil {
		t.Fatal(err)
	}
	w.close()
	g.kill(syscall.SIGTERM)

	prompt := col.named("session/prompt", traceA)
	if post := col.one("the request", func(s span) bool { return s.id == prompt.parent }); post.parent != spanA || post.attrs["http.response.status_code"] != "202" {
		t.Errorf("the request is %+v", post)
	}
	if asked := col.below(prompt, "session/request_permission"); asked.attrs["sandbox_agent.result"] != "allow_always" {
		t.Errorf("the permission is %+v", asked)
	}
	if own := col.one("the turn on the socket", func(s span) bool {
		return s.name == "session/prompt" && s.attrs["sandbox_agent.session"] == ws && s.trace != traceB
	}); own.parent != "" {
		t.Errorf("it is %+v", own)
	}
	told := col.named("session/prompt", traceB)
	if told.parent != spanB || res.Meta.Traceparent != parentOf(traceB, told.id) {
		t.Errorf("the turn is %+v, the agent was told %q", told, res.Meta.Traceparent)
	}
	col.one("the socket", func(s span) bool {
		return s.name == "GET /v2/rpc" && s.attrs["http.response.status_code"] == "101" && s.parent == ""
	})
}

func TestTraces_Off(t *testing.T) {
	for name, env := range map[string][]string{
		"nothing is set":   nil,
		"the SDK disabled": {"OTEL_SDK_DISABLED=true", "OTEL_TRACES_EXPORTER=otlp"},
		"no exporter":      {"OTEL_TRACES_EXPORTER=none"},
		"another exporter": {"OTEL_TRACES_EXPORTER=zipkin"},
		"another protocol": {"OTEL_TRACES_EXPORTER=otlp", "OTEL_EXPORTER_OTLP_PROTOCOL=grpc"},
	} {
		t.Run(name, func(t *testing.T) {
			received := filepath.Join(t.TempDir(), "received")
			col := newCollector(t)
			g := newGateway(t, meteredFlags(t)...)
			g.env = append([]string{"METERED_LOG=" + received}, env...)
			if env != nil {
				g.env = append(g.env, col.env()...)
			}
			g.start()
			c := connect(t, g, inline, options{agent: "metered"})
			s := c.newSession()
			meta := `{"traceparent":"` + parentOf(traceA, spanA) + `","b" :1.0}`
			if m := c.response(c.start("session/prompt", json.RawMessage(`{"sessionId":"`+s+`","prompt":[],"_meta":`+meta+`}`))); m.Error != nil {
				t.Fatal(m.Error)
			}
			c.prompt(s, "plain")
			g.kill(syscall.SIGTERM)
			if n := len(col.received().requests); n > 0 {
				t.Errorf("the collector got %d requests", n)
			}
			prompts := meteredFrames(t, received, "session/prompt")
			if len(prompts) != 2 || !strings.Contains(prompts[0], `"_meta":`+meta) || strings.Contains(prompts[1], "_meta") {
				t.Errorf("the agent got %q", prompts)
			}
			// Variables that the gateway does not use may be for agents.
			if inherited, err := os.ReadFile(received + ".env"); err != nil || (env != nil) != bytes.Contains(inherited, []byte("OTEL_EXPORTER_OTLP_ENDPOINT="+col.url)) {
				t.Errorf("the agent inherits %s, %v", inherited, err)
			}
			if log := g.stderr.String(); strings.Contains(name, "another") != strings.Contains(log, "no traces are sent") {
				t.Errorf("the log says %s", log)
			}
		})
	}
}

func TestTraces_TroubledCollector(t *testing.T) {
	t.Run("busy", func(t *testing.T) {
		col := newCollector(t)
		col.refuse = 1
		g := newGateway(t)
		g.env = append(col.env(), "OTEL_BSP_SCHEDULE_DELAY=10")
		g.start()
		c := connect(t, g, inline, options{})
		c.prompt(c.newSession(), "hello")
		g.until("spans were taken", func() bool { return g.scrape()[`sandbox_agent_trace_spans_total{outcome="sent"}`] > 0 })
		if n := g.scrape()[`sandbox_agent_trace_spans_total{outcome="failed"}`]; n != 0 {
			t.Errorf("%v spans are lost", n)
		}
	})
	t.Run("refusing", func(t *testing.T) {
		g := newGateway(t)
		srv := httptest.NewServer(http.NotFoundHandler())
		defer srv.Close()
		g.env = []string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=" + srv.URL + "/spans?key=in-the-query", "OTEL_BSP_SCHEDULE_DELAY=10"}
		g.start()
		c := connect(t, g, inline, options{})
		c.prompt(c.newSession(), "hello")
		g.until("spans were lost", func() bool { return g.scrape()[`sandbox_agent_trace_spans_total{outcome="failed"}`] > 0 })
		g.until("it was logged", func() bool { return strings.Contains(g.stderr.String(), "cannot send traces") })
		if log := g.stderr.String(); !strings.Contains(log, "404") || strings.Contains(log, "in-the-query") {
			t.Errorf("the log says %s", log)
		}
	})
	t.Run("shared with agents", func(t *testing.T) {
		received := filepath.Join(t.TempDir(), "received")
		col := newCollector(t)
		g := newGateway(t, slices.Concat(meteredFlags(t), []string{"--share-otel"})...)
		g.env = append(col.env(), "METERED_LOG="+received)
		g.start()
		connect(t, g, inline, options{agent: "metered"})
		if inherited, err := os.ReadFile(received + ".env"); err != nil || !bytes.Contains(inherited, []byte("OTEL_EXPORTER_OTLP_ENDPOINT="+col.url)) {
			t.Errorf("the agent inherits %s, %v", inherited, err)
		}
	})
	t.Run("hanging", func(t *testing.T) {
		col := newCollector(t)
		col.hang = make(chan struct{})
		defer close(col.hang)
		g := newGateway(t)
		g.env = col.env()
		g.start()
		c := connect(t, g, inline, options{})
		c.prompt(c.newSession(), "hello")
		if took := g.kill(syscall.SIGTERM); took > 10*time.Second {
			t.Errorf("the gateway took %v to end", took)
		}
		if code := g.cmd.ProcessState.ExitCode(); code != 0 {
			t.Errorf("exit %d", code)
		}
	})
	t.Run("misconfigured", func(t *testing.T) {
		for env, want := range map[string]string{
			"OTEL_EXPORTER_OTLP_ENDPOINT=localhost:4318":   "OTEL_EXPORTER_OTLP_ENDPOINT must be an http or https URL",
			"OTEL_EXPORTER_OTLP_TIMEOUT=soon":              "OTEL_EXPORTER_OTLP_TIMEOUT",
			"OTEL_EXPORTER_OTLP_HEADERS=no-value-s3cret":   "OTEL_EXPORTER_OTLP_HEADERS must be name=value pairs",
			"OTEL_EXPORTER_OTLP_CERTIFICATE=/no/such/file": "OTEL_EXPORTER_OTLP_CERTIFICATE",
		} {
			cl := &commandLine{t: t, env: []string{"PATH=/bin", "HOME=" + t.TempDir(), "OTEL_TRACES_EXPORTER=otlp", env}}
			code, _, errOut := cl.run("server", "--port", "0", "--data-dir", t.TempDir())
			if code == 0 || !strings.Contains(errOut, want) || strings.Contains(errOut, "s3cret") {
				t.Errorf("%s: exit %d, %s", env, code, errOut)
			}
		}
	})
}
