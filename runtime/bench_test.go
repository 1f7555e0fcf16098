package runtime

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/sse"
	"sandboxagent.dev/sandbox-agent/adapters"
)

// burst is an agent that answers a prompt with n updates, 64 KiB to a read.
type burst struct {
	n, size int
}

func (burst) Info() adapters.Info {
	return adapters.Info{ID: "burst", Name: "burst", Kind: adapters.Bridge}
}

func (b burst) Open(context.Context, adapters.Options) (acp.Conn, error) {
	return &burstConn{burst: b, in: make(chan acp.Message, 4), end: make(chan struct{})}, nil
}

type burstConn struct {
	burst
	in     chan acp.Message
	end    chan struct{}
	update acp.Message
	left   int
	prompt acp.ID
}

func (c *burstConn) Write(_ context.Context, m acp.Message) error {
	c.in <- m.Clone()
	return nil
}

func (c *burstConn) Close() error {
	select {
	case <-c.end:
	default:
		close(c.end)
	}
	return nil
}

// Buffered says no where a real pipe would have been emptied.
func (c *burstConn) Buffered() bool {
	return c.left > 0 && c.left%max(1, 65536/len(c.update.Frame())) != 0
}

func (c *burstConn) Read(context.Context) (acp.Message, error) {
	if c.left > 0 {
		if c.left--; c.left == 0 {
			return acp.NewResult(c.prompt, []byte(`{"stopReason":"end_turn"}`)), nil
		}
		return c.update, nil
	}
	select {
	case m := <-c.in:
		switch m.Method() {
		case "session/prompt":
			c.left, c.prompt = c.n+1, m.ID()
			c.update = acp.MustParse(fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"%s"}}}}`, strings.Repeat("x", c.size)))
			return c.Read(context.Background())
		case "session/new":
			return acp.NewResult(m.ID(), []byte(`{"sessionId":"s"}`)), nil
		}
		return acp.NewResult(m.ID(), []byte(`{"protocolVersion":1}`)), nil
	case <-c.end:
		return acp.Message{}, context.Canceled
	}
}

// BenchmarkForward measures an update from the agent's message to the bytes of
// an event, with the log on disk.
func BenchmarkForward(b *testing.B) {
	for _, size := range []int{50, 1024, 65536} {
		b.Run(fmt.Sprintf("size=%d", size), func(b *testing.B) {
			r, err := New(Options{DataDir: b.TempDir(), DefaultAgent: "burst", Adapters: []adapters.Adapter{burst{b.N, size}}})
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = r.Shutdown(context.Background()) }()
			c, _, err := r.Connect(b.Context(), acp.NewRequest("1", "initialize", []byte(`{"protocolVersion":1}`)), acp.ConnectOptions{Shape: acp.Inline})
			if err != nil {
				b.Fatal(err)
			}
			done, err := c.Call(b.Context(), acp.NewRequest("2", "session/new", []byte(`{"cwd":"/tmp","mcpServers":[]}`)))
			if err != nil {
				b.Fatal(err)
			}
			<-done
			st, err := c.Stream("", nil)
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(size))
			b.ReportAllocs()
			b.ResetTimer()
			if _, err := c.Call(b.Context(), acp.NewRequest("3", "session/prompt", []byte(prompt("s", "go")))); err != nil {
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
			st.Close()
			c.Close()
		})
	}
}

// BenchmarkTurn measures a prompt that the agent answers at once, from the client's
// message to its response.
func BenchmarkTurn(b *testing.B) {
	r, err := New(Options{DataDir: b.TempDir(), DefaultAgent: "burst", Fsync: "never", Adapters: []adapters.Adapter{burst{0, 1}}})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = r.Shutdown(context.Background()) }()
	c, _, err := r.Connect(b.Context(), acp.NewRequest("1", "initialize", []byte(`{"protocolVersion":1}`)), acp.ConnectOptions{Shape: acp.Inline})
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	call := func(method, params string) {
		done, err := c.Call(b.Context(), acp.NewRequest("2", method, []byte(params)))
		if err != nil {
			b.Fatal(err)
		}
		<-done
	}
	call("session/new", `{"cwd":"/tmp","mcpServers":[]}`)
	params := prompt("s", "go")
	b.ReportAllocs()
	for b.Loop() {
		call("session/prompt", params)
	}
}

// BenchmarkVersions measures the same stream as clients of either version are given it:
// what the translation costs, and what a replay does.
func BenchmarkVersions(b *testing.B) {
	for _, version := range []int{1, 2} {
		for _, replay := range []bool{false, true} {
			b.Run(fmt.Sprintf("version=%d/replay=%v", version, replay), func(b *testing.B) {
				r, err := New(Options{DataDir: b.TempDir(), DefaultAgent: "burst", Fsync: "never", Adapters: []adapters.Adapter{burst{b.N, 50}}})
				if err != nil {
					b.Fatal(err)
				}
				defer func() { _ = r.Shutdown(context.Background()) }()
				// What is around the updates: in version 2 the prompt, states and answers.
				around := map[int]int{1: 1, 2: 4}[version]
				initialize := map[int]string{1: `{"protocolVersion":1}`, 2: `{"protocolVersion":2,"info":{"name":"b","version":"1"}}`}[version]
				open := func() (acp.Client, acp.Stream) {
					c, _, err := r.Connect(b.Context(), acp.NewRequest("1", "initialize", []byte(initialize)), acp.ConnectOptions{Shape: acp.OneStream})
					if err != nil {
						b.Fatal(err)
					}
					st, err := c.Stream("", nil)
					if err != nil {
						b.Fatal(err)
					}
					return c, st
				}
				read := func(st acp.Stream, n int) {
					for got := 0; got < n; {
						<-st.Wake()
						events, err := st.Poll(64 << 10)
						if err != nil {
							b.Fatal(err)
						}
						got += len(events)
						st.Written()
					}
				}
				send := func(c acp.Client, id, method, params string) {
					if err := c.Send(b.Context(), acp.NewRequest(acp.ID(id), method, []byte(params))); err != nil {
						b.Fatal(err)
					}
				}
				c, st := open()
				defer c.Close()
				send(c, "2", "session/new", `{"cwd":"/tmp","mcpServers":[]}`)
				read(st, 1)
				b.ReportAllocs()
				if !replay {
					b.ResetTimer()
				}
				send(c, "3", "session/prompt", prompt("s", "go"))
				read(st, b.N+around)
				if replay {
					again, st := open()
					defer again.Close()
					b.ResetTimer()
					method, from := "session/load", `,"mcpServers":[]}`
					if version == 2 {
						method, from = "session/resume", `,"replayFrom":{"type":"start"}}`
					}
					send(again, "2", method, `{"sessionId":"s","cwd":"/tmp"`+from)
					read(st, b.N+max(around, 2))
				}
				b.StopTimer()
			})
		}
	}
}
