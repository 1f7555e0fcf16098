package acphttp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"sandboxagent.dev/sandbox-agent/acp"
)

const wait = time.Minute

// fakeGateway has one client, which answers requests when it is told to.
type fakeGateway struct{ c *fakeClient }

func (g fakeGateway) Connect(_ context.Context, m acp.Message, o acp.ConnectOptions) (acp.Client, acp.Reply, error) {
	g.c.id = o.ID
	r := acp.NewResult(m.ID(), []byte(`{"protocolVersion":1}`))
	return g.c, acp.Reply{Frame: r.Frame()}, nil
}

type fakeClient struct {
	id      string
	replies chan acp.Reply
	sent    chan acp.Message
	stream  *fakeStream
	done    chan struct{}
	once    sync.Once
}

func newFakeClient() *fakeClient {
	return &fakeClient{
		replies: make(chan acp.Reply, 1), sent: make(chan acp.Message, 64), done: make(chan struct{}),
		stream: &fakeStream{wake: make(chan struct{}, 1), done: make(chan struct{})},
	}
}

func (c *fakeClient) ID() string               { return c.id }
func (c *fakeClient) SetShape(acp.Shape) error { return nil }
func (c *fakeClient) Send(_ context.Context, m acp.Message) error {
	c.sent <- m.Clone()
	return nil
}

func (c *fakeClient) Call(context.Context, acp.Message) (<-chan acp.Reply, error) {
	return c.replies, nil
}

func (c *fakeClient) Deliver(m acp.Message)                                         { c.stream.put(m.Frame()) }
func (c *fakeClient) AwaitWritten(context.Context, acp.Reply, time.Duration) uint64 { return 7 }
func (c *fakeClient) Stream(string, *uint64) (acp.Stream, error)                    { return c.stream, nil }

func (c *fakeClient) Close()                { c.once.Do(func() { close(c.done) }) }
func (c *fakeClient) Done() <-chan struct{} { return c.done }

type fakeStream struct {
	mu     sync.Mutex
	events []acp.Event
	n      uint64
	wake   chan struct{}
	done   chan struct{}
}

func (s *fakeStream) put(frame []byte) {
	s.mu.Lock()
	s.n++
	s.events = append(s.events, acp.Event{ID: s.n, Frame: frame})
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *fakeStream) Wake() <-chan struct{} { return s.wake }
func (s *fakeStream) Poll(int) ([]acp.Event, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.events
	s.events = nil
	return out, nil
}
func (s *fakeStream) Room(func(int) error) {}
func (s *fakeStream) Written()             {}
func (s *fakeStream) Push(func() bool)     {}
func (s *fakeStream) PollSmall(int) ([]acp.Event, bool, error) {
	return nil, true, nil
}
func (s *fakeStream) Done() <-chan struct{} { return s.done }
func (s *fakeStream) Close()                {}

func serve(t testing.TB, o Options) (*fakeClient, *Handler, string) {
	t.Helper()
	c := newFakeClient()
	h := New(fakeGateway{c}, o)
	srv := httptest.NewServer(h)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), wait)
		defer cancel()
		c.Close()
		if err := h.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		srv.Close()
		http.DefaultClient.CloseIdleConnections()
	})
	return c, h, srv.URL
}

func request(t *testing.T, method, url, body string, header ...string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = res.Body.Close() })
	return res
}

const (
	initialize = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1}}`
	promptBody = `{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":"s","prompt":[]}}`
)

func TestHold_ALongTurnGetsHeadersThenBlanksThenTheResponse(t *testing.T) {
	c, _, url := serve(t, Options{HoldHeaders: 10 * time.Millisecond, Heartbeat: 5 * time.Millisecond})
	id := request(t, "POST", url, initialize).Header.Get(HeaderInlineConnection)
	res := request(t, "POST", url, promptBody, HeaderInlineConnection, id) // returns with the headers
	if res.StatusCode != 200 {
		t.Fatalf("status %d", res.StatusCode)
	}
	blanks := make([]byte, 3)
	if _, err := io.ReadFull(res.Body, blanks); err != nil || string(blanks) != "   " {
		t.Fatalf("got %q, %v", blanks, err)
	}
	c.replies <- acp.Reply{Frame: []byte(`{"jsonrpc":"2.0","id":1,"result":{"stopReason":"end_turn"}}`), TimedOut: true}
	rest, err := io.ReadAll(res.Body)
	if err != nil || !json.Valid(rest) || !bytes.Contains(rest, []byte("end_turn")) {
		t.Errorf("body ends %q, %v", rest, err)
	}
}

func TestHold_ShortOnesKeepTheirStatus(t *testing.T) {
	c, _, url := serve(t, Options{})
	id := request(t, "POST", url, initialize).Header.Get(HeaderInlineConnection)
	c.replies <- acp.Reply{Frame: []byte(`{"jsonrpc":"2.0","id":1,"result":{}}`)}
	res := request(t, "POST", url, promptBody, HeaderInlineConnection, id)
	if res.StatusCode != 200 || res.Header.Get(HeaderLastEvent) != "7" || res.Header.Get(HeaderInlineConnection) != id {
		t.Errorf("%d %v", res.StatusCode, res.Header)
	}
	c.replies <- acp.Reply{Frame: []byte(`{}`), TimedOut: true}
	if res := request(t, "POST", url, promptBody, HeaderInlineConnection, id); res.StatusCode != 504 || !strings.HasPrefix(res.Header.Get("Content-Type"), "application/problem+json") {
		t.Errorf("timed out: %d %v", res.StatusCode, res.Header)
	}
	go c.Close()
	if res := request(t, "POST", url, promptBody, HeaderInlineConnection, id); res.StatusCode != 404 {
		t.Errorf("connection ended: %d", res.StatusCode)
	}
}

func TestEvents_HeartbeatWhenSilentAndEndAtShutdown(t *testing.T) {
	c, h, url := serve(t, Options{Heartbeat: 5 * time.Millisecond})
	id := request(t, "POST", url, initialize).Header.Get(HeaderConnection)
	res := request(t, "GET", url, "", HeaderConnection, id, "Accept", "text/event-stream")
	beat := make([]byte, 3)
	if _, err := io.ReadFull(res.Body, beat); err != nil || string(beat) != ":\n\n" {
		t.Fatalf("got %q, %v", beat, err)
	}
	c.stream.put([]byte(`{"a":1}`))
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	var got []byte
	for !bytes.Contains(got, []byte("id: 1\ndata: {\"a\":1}\n\n")) {
		b := make([]byte, 64)
		n, err := res.Body.Read(b)
		if err != nil {
			t.Fatalf("after %q: %v", got, err)
		}
		got = append(got, b[:n]...)
	}
	if err := h.Shutdown(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		t.Errorf("the stream did not end well: %v", err)
	}
	if res := request(t, "POST", url, initialize); res.StatusCode != 503 {
		t.Errorf("after shutdown: %d", res.StatusCode)
	}
}

func TestPost_BodiesOverTheLimitAreRefusedReadably(t *testing.T) {
	_, _, url := serve(t, Options{MaxBody: 1 << 20})
	for range 20 {
		if res := request(t, "POST", url, strings.Repeat("x", 4<<20)); res.StatusCode != 413 {
			t.Fatalf("status %d", res.StatusCode)
		}
	}
	req, err := http.NewRequestWithContext(t.Context(), "POST", url, io.MultiReader(strings.NewReader(strings.Repeat(" ", 2<<20))))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req) // chunked
	if err != nil || res.StatusCode != 413 {
		t.Fatalf("%v %v", res, err)
	}
	_ = res.Body.Close()
}

func TestStandard_AcceptsInOrderWithoutWaitingForTheClient(t *testing.T) {
	c, _, url := serve(t, Options{})
	id := request(t, "POST", url, initialize).Header.Get(HeaderConnection)
	for i := range 50 {
		body := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"session/list","params":{}}`, i)
		if res := request(t, "POST", url, body, HeaderConnection, id); res.StatusCode != 202 || res.ContentLength != 0 {
			t.Fatalf("status %d, length %d", res.StatusCode, res.ContentLength)
		}
	}
	for i := range 50 {
		if m := <-c.sent; m.ID() != acp.IntID(int64(i)) {
			t.Fatalf("message %d has id %s", i, m.ID())
		}
	}
}

func TestWebSocket_ManyFramesPerWriteAndGoingAway(t *testing.T) {
	c, h, url := serve(t, Options{PingInterval: 2 * time.Second})
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	ws, res, err := websocket.Dial(ctx, url, &websocket.DialOptions{Subprotocols: []string{"bearer.eA", Subprotocol}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ws.CloseNow() }()
	if res.Header.Get(HeaderConnection) == "" || ws.Subprotocol() != Subprotocol {
		t.Errorf("handshake: %v, subprotocol %q", res.Header, ws.Subprotocol())
	}
	ws.SetReadLimit(-1)
	if err := ws.Write(ctx, websocket.MessageText, []byte(initialize)); err != nil {
		t.Fatal(err)
	}
	read := func() string {
		_, b, err := ws.Read(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	if got := read(); !strings.Contains(got, "protocolVersion") {
		t.Fatalf("got %s", got)
	}
	var want []string
	for _, n := range []int{0, 100, 125, 126, 200, 65535, 65536, 300_000} {
		want = append(want, `{"s":"`+strings.Repeat("x", n)+`"}`)
	}
	for _, w := range want {
		c.stream.put([]byte(w))
	}
	for i, w := range want {
		if got := read(); got != w {
			t.Fatalf("frame %d: %d bytes, want %d", i, len(got), len(w))
		}
	}
	for frame, code := range map[string]string{"{": "-32700", "[]": "-32600", `{"jsonrpc":"2.0","id":null,"method":"x"}`: "-32600"} {
		if err := ws.Write(ctx, websocket.MessageText, []byte(frame)); err != nil {
			t.Fatal(err)
		}
		if got := read(); !strings.Contains(got, code) || !strings.Contains(got, `"id":null`) {
			t.Errorf("%s: %s", frame, got)
		}
	}
	go func() { _ = h.Shutdown(ctx) }()
	if _, _, err := ws.Read(ctx); websocket.CloseStatus(err) != websocket.StatusGoingAway {
		t.Errorf("ended with %v", err)
	}
}

// What a WebSocket must not carry ends it with the code that its standard asks for.
func TestWebSocket_BrokenFramesAreNamed(t *testing.T) {
	for name, tt := range map[string]struct {
		frame []byte
		want  websocket.StatusCode
	}{
		"text that is not UTF-8":  {[]byte{0x81, 0x82, 0, 0, 0, 0, 0xc3, 0x28}, websocket.StatusInvalidFramePayloadData},
		"a frame without a mask":  {[]byte{0x81, 0x02, '{', '}'}, websocket.StatusProtocolError},
		"a frame with RSV2":       {[]byte{0xa1, 0x80, 0, 0, 0, 0}, websocket.StatusProtocolError},
		"an unknown kind":         {[]byte{0x83, 0x80, 0, 0, 0, 0}, websocket.StatusProtocolError},
		"a continuation of none":  {[]byte{0x80, 0x80, 0, 0, 0, 0}, websocket.StatusProtocolError},
		"a ping of 126 bytes":     {append([]byte{0x89, 0xfe, 0, 126, 0, 0, 0, 0}, make([]byte, 126)...), websocket.StatusProtocolError},
		"UTF-8 behind initialize": {append(masked(initialize), 0x81, 0x81, 0, 0, 0, 0, 0xff), websocket.StatusInvalidFramePayloadData},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, url := serve(t, Options{})
			conn, err := net.Dial("tcp", strings.TrimSuffix(strings.TrimPrefix(url, "http://"), "/v2/rpc"))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if err := conn.SetDeadline(time.Now().Add(wait)); err != nil {
				t.Fatal(err)
			}
			req, err := http.NewRequest(http.MethodGet, url, nil)
			if err != nil {
				t.Fatal(err)
			}
			for k, v := range map[string]string{"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA=="} {
				req.Header.Set(k, v)
			}
			if err := req.Write(conn); err != nil {
				t.Fatal(err)
			}
			r := bufio.NewReader(conn)
			if res, err := http.ReadResponse(r, req); err != nil || res.StatusCode != http.StatusSwitchingProtocols {
				t.Fatalf("%+v, %v", res, err)
			}
			if _, err := conn.Write(tt.frame); err != nil {
				t.Fatal(err)
			}
			for {
				head := make([]byte, 2)
				if _, err := io.ReadFull(r, head); err != nil {
					t.Fatalf("it ended without a close frame: %v", err)
				}
				n := int(head[1])
				if n == 126 {
					var long [2]byte
					if _, err := io.ReadFull(r, long[:]); err != nil {
						t.Fatal(err)
					}
					n = int(binary.BigEndian.Uint16(long[:]))
				}
				payload := make([]byte, n)
				if _, err := io.ReadFull(r, payload); err != nil {
					t.Fatal(err)
				}
				if head[0] != 0x88 {
					continue
				}
				if got := websocket.StatusCode(binary.BigEndian.Uint16(payload)); got != tt.want {
					t.Errorf("closed with %d %s, want %d", got, payload[2:], tt.want)
				}
				return
			}
		})
	}
}

// masked is a text frame of a client, with a mask of zeros.
func masked(text string) []byte {
	return append([]byte{0x81, 0xfe, byte(len(text) >> 8), byte(len(text)), 0, 0, 0, 0}, text...)
}

// panicking is a gateway that breaks when it is asked for an agent that does not exist.
type panicking struct{ fakeGateway }

func (g panicking) Connect(ctx context.Context, m acp.Message, o acp.ConnectOptions) (acp.Client, acp.Reply, error) {
	if o.Agent == "broken" {
		panic("broken")
	}
	return g.fakeGateway.Connect(ctx, m, o)
}

// A panic ends the socket in which it is, and nothing else: not the next one, and no shutdown waits
// for it.
func TestWebSocket_PanicEndsItAlone(t *testing.T) {
	h := New(panicking{fakeGateway{newFakeClient()}}, Options{})
	srv := httptest.NewServer(h)
	defer srv.Close()
	for _, agent := range []string{"broken", "", "broken"} {
		ws, _, err := websocket.Dial(t.Context(), srv.URL+"?agent="+agent, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := ws.Write(t.Context(), websocket.MessageText, []byte(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}`)); err != nil {
			t.Fatal(err)
		}
		if _, b, err := ws.Read(t.Context()); (err != nil) != (agent == "broken") {
			t.Errorf("%q: %s, %v", agent, b, err)
		}
		_ = ws.CloseNow()
	}
	if err := h.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}
