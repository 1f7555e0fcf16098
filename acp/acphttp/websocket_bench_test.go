package acphttp

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp"
)

// BenchmarkWebSocket_Write measures what a batch of updates costs from the
// stream of events to a client that only reads bytes. One op is one batch.
func BenchmarkWebSocket_Write(b *testing.B) {
	for _, batch := range []int{1, 16, 256} {
		for _, size := range []int{200, 4096} {
			b.Run(fmt.Sprintf("batch=%d/size=%d", batch, size), func(b *testing.B) {
				benchWebSocket(b, batch, size)
			})
		}
	}
}

func benchWebSocket(b *testing.B, batch, size int) {
	c, _, endpoint := serve(b, Options{})
	u, err := url.Parse(endpoint)
	if err != nil {
		b.Fatal(err)
	}
	conn, err := net.Dial("tcp", u.Host)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_, err = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: "+u.Host+"\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n")
	if err != nil {
		b.Fatal(err)
	}
	r := bufio.NewReaderSize(conn, 256<<10)
	res, err := http.ReadResponse(r, nil)
	if err != nil || res.StatusCode != http.StatusSwitchingProtocols {
		b.Fatal(res, err)
	}
	defer func() { _ = res.Body.Close() }()
	// A masked text frame; the mask is zero.
	first := append([]byte{0x81, 0x80 | byte(len(initialize)), 0, 0, 0, 0}, initialize...)
	if _, err := conn.Write(first); err != nil {
		b.Fatal(err)
	}
	head, err := r.Peek(2)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := r.Discard(2 + int(head[1])); err != nil {
		b.Fatal(err)
	}
	frame := []byte(`{"x":"` + strings.Repeat("a", size-8) + `"}`)
	want := batch * (len(frame) + 4) // with their headers
	b.SetBytes(int64(want))
	b.ReportAllocs()
	for b.Loop() {
		c.stream.mu.Lock()
		for range batch {
			c.stream.n++
			c.stream.events = append(c.stream.events, acp.Event{ID: c.stream.n, Frame: frame})
		}
		c.stream.mu.Unlock()
		c.stream.wake <- struct{}{}
		if _, err := r.Discard(want); err != nil {
			b.Fatal(err)
		}
	}
}
