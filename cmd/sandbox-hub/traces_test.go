package main_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// hop is a span that a collector received.
type hop struct{ name, service, trace, id, parent, node string }

// collector receives spans by OTLP over HTTP.
type collector struct {
	t    *testing.T
	url  string
	mu   sync.Mutex
	hops []hop
}

func newCollector(t *testing.T) *collector {
	c := &collector{t: t}
	srv := httptest.NewServer(c)
	t.Cleanup(srv.Close)
	c.url = srv.URL
	return c
}

func (c *collector) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	b, err := io.ReadAll(r.Body)
	var data tracepb.TracesData
	if err == nil {
		err = proto.Unmarshal(b, &data)
	}
	if err != nil {
		c.t.Error(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, rs := range data.ResourceSpans {
		service := ""
		for _, kv := range rs.GetResource().GetAttributes() {
			if kv.Key == "service.name" {
				service = kv.GetValue().GetStringValue()
			}
		}
		for _, ss := range rs.ScopeSpans {
			for _, s := range ss.Spans {
				h := hop{name: s.Name, service: service, trace: hex.EncodeToString(s.TraceId), id: hex.EncodeToString(s.SpanId), parent: hex.EncodeToString(s.ParentSpanId)}
				for _, kv := range s.Attributes {
					if kv.Key == "sandbox_agent.node" {
						h.node = kv.GetValue().GetStringValue()
					}
				}
				c.hops = append(c.hops, h)
			}
		}
	}
}

// below returns the one span below another.
func (c *collector) below(trace, parent, service, name string) hop {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	var found []hop
	for _, h := range c.hops {
		if h.trace == trace && h.parent == parent && h.service == service && h.name == name {
			found = append(found, h)
		}
	}
	if len(found) != 1 {
		var all strings.Builder
		for _, h := range c.hops {
			fmt.Fprintf(&all, "%+v\n", h)
		}
		c.t.Fatalf("%d spans %s of %s are below %s, want one of\n%s", len(found), name, service, parent, &all)
	}
	return found[0]
}

// One trace has the client, the hub that it asked, the hub of the node, and the node. The hubs have TLS,
// also between them.
func TestTraces_GoThroughHubs(t *testing.T) {
	const requests, messages, client = "0af7651916cd43dd8448eb211c80319c", "1bf7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	col := newCollector(t)
	// They are sent when a program ends, so that nobody waits for the time of a batch.
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", col.url)
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "3600000")
	cert, key := selfSigned(t, "hub.example")
	t.Setenv("SSL_CERT_FILE", cert) // of clients, and of the node
	nats, admin := natsServer(t), filepath.Join(t.TempDir(), "admin")
	if err := os.WriteFile(admin, []byte("admin-token-of-both-hubs"), 0o600); err != nil {
		t.Fatal(err)
	}
	hub := func() *fleet {
		p := startProgram(t, "sandbox-hub", "serve", "--port", "0", "--nats", nats, "--admin-token-file", admin, "--tls-cert", cert, "--tls-key", key, "--peer-ca", cert)
		return &fleet{program: p, admin: "admin-token-of-both-hubs"}
	}
	one, two := hub(), hub()
	node := two.startNode("box", "")

	e := startEditor(t, one.url, one.admin)
	session := e.session()
	e.request("session/prompt", fmt.Sprintf(`{"sessionId":%q,"prompt":[{"type":"text","text":"echo traced"}],"_meta":{"a":1.50,"traceparent":"00-%s-%s-01","tracestate":"vendor=1"}}`, session, messages, client))
	if end := e.must(); end.Result.StopReason != "end_turn" {
		t.Fatalf("%+v", end)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, one.node("box")+"/v2/sessions", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+one.admin)
	req.Header.Set("traceparent", "00-"+requests+"-"+client+"-01")
	text, err := os.ReadFile(cert)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(text)
	own := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}
	defer own.CloseIdleConnections()
	resp, err := own.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %v", resp.Status, err)
	}
	resp.Body.Close()
	for _, p := range []*program{one.program, two.program, node} {
		p.kill(syscall.SIGTERM)
	}

	asked := col.below(requests, client, "sandbox-hub", "GET /nodes/{name}/{rest...}")
	passed := col.below(requests, asked.id, "sandbox-hub", "GET /v2/peer/nodes/{name}/{rest...}")
	col.below(requests, passed.id, "sandbox-agent", "GET /v2/sessions")
	turn := col.below(messages, client, "sandbox-hub", "session/prompt")
	col.below(messages, turn.id, "sandbox-agent", "session/prompt")
	for _, h := range []hop{asked, passed, turn} {
		if h.node != "box" {
			t.Errorf("a span does not say the node: %+v", h)
		}
	}
}
