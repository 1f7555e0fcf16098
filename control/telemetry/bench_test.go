package telemetry

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/sse"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/runtime"
)

// burst is an agent that answers a prompt with n updates; every batch-th read
// finds nothing behind it.
type burst struct{ n, batch int }

func (burst) Info() adapters.Info { return adapters.Info{ID: "burst", Kind: adapters.Bridge} }

func (b burst) Open(context.Context, adapters.Options) (acp.Conn, error) {
	return &burstConn{burst: b, in: make(chan acp.Message, 4), end: make(chan struct{})}, nil
}

type burstConn struct {
	burst
	in     chan acp.Message
	end    chan struct{}
	prompt acp.ID
	left   int
}

var update = acp.MustParse([]byte(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"` + strings.Repeat("x", 50) + `"}}}}`))

func (c *burstConn) Buffered() bool { return c.left > 0 && c.left%c.batch != 0 }

func (c *burstConn) Close() error {
	select {
	case <-c.end:
	default:
		close(c.end)
	}
	return nil
}

func (c *burstConn) Write(_ context.Context, m acp.Message) error {
	c.in <- m.Clone()
	return nil
}

func (c *burstConn) Read(context.Context) (acp.Message, error) {
	if c.left > 0 {
		if c.left--; c.left == 0 {
			return acp.NewResult(c.prompt, []byte(`{"stopReason":"end_turn"}`)), nil
		}
		return update, nil
	}
	select {
	case m := <-c.in:
		switch m.Method() {
		case "session/cancel":
			return c.Read(context.Background())
		case prompt:
			c.left, c.prompt = c.n+1, m.ID()
			return c.Read(context.Background())
		case "session/new":
			return acp.NewResult(m.ID(), []byte(`{"sessionId":"s"}`)), nil
		}
		return acp.NewResult(m.ID(), []byte(`{"protocolVersion":1}`)), nil
	case <-c.end:
		return acp.Message{}, io.EOF
	}
}

// BenchmarkForward measures an update's way through the runtime to the bytes of
// an event, unobserved and observed, in large batches and one by one.
func BenchmarkForward(b *testing.B) {
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
	b.Cleanup(srv.Close)
	for _, batch := range []int{512, 1} {
		for _, kind := range []string{"off", "metrics", "traces"} {
			b.Run(fmt.Sprintf("batch=%d/%s", batch, kind), func(b *testing.B) {
				if kind == "traces" {
					b.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", srv.URL)
				}
				tel, err := New(b.Context(), Options{Metrics: kind != "off", Traces: kind == "traces"})
				if err != nil {
					b.Fatal(err)
				}
				defer tel.Shutdown(context.Background())
				forward(b, tel, batch)
			})
		}
	}
}

func forward(b *testing.B, tel *Telemetry, batch int) {
	r, err := runtime.New(runtime.Options{DataDir: b.TempDir(), DefaultAgent: "burst", Adapters: []adapters.Adapter{burst{b.N, batch}}, Observer: tel.Runtime()})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = r.Shutdown(context.Background()) }()
	c, _, err := r.Connect(b.Context(), acp.NewRequest("1", "initialize", []byte(`{"protocolVersion":1}`)), acp.ConnectOptions{Shape: acp.Inline})
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	made, err := c.Call(b.Context(), acp.NewRequest("2", "session/new", []byte(`{"cwd":"/tmp","mcpServers":[]}`)))
	if err != nil {
		b.Fatal(err)
	}
	<-made
	st, err := c.Stream("", nil)
	if err != nil {
		b.Fatal(err)
	}
	defer st.Close()
	b.ReportAllocs()
	b.ResetTimer()
	if _, err := c.Call(b.Context(), acp.NewRequest("3", prompt, []byte(`{"sessionId":"s","prompt":[{"type":"text","text":"go"}]}`))); err != nil {
		b.Fatal(err)
	}
	var buf []byte
	for got := 0; got < b.N; {
		<-st.Wake()
		events, err := st.Poll(64 << 10)
		if err != nil {
			b.Fatal(err)
		}
		buf = buf[:0]
		for _, e := range events {
			buf = sse.AppendEvent(buf, e.ID, e.Frame)
		}
		got += len(events)
		st.Written()
	}
	b.StopTimer()
}
