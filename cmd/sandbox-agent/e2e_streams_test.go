package main_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"strings"
	"testing"

	"github.com/coder/websocket"
)

// stream opens the event stream of a session, or the connection's own for "",
// once, and keeps it open across breaks: with Last-Event-ID.
func (c *client) stream(session string) {
	c.t.Helper()
	c.mu.Lock()
	if c.streams[session] {
		c.mu.Unlock()
		return
	}
	c.streams[session] = true
	var cuts []int
	if session != "" || c.kind == inline {
		cuts, c.opts.cuts = c.opts.cuts, nil
	}
	c.mu.Unlock()
	cut := pop(&cuts)
	body, err := c.get(session, "", cut)
	if err != nil {
		c.t.Fatalf("GET of session %q: %v", session, err)
	}
	c.wg.Go(func() {
		var last uint64
		for {
			err := c.read(body, &last)
			body.Close()
			if c.ctx.Err() != nil {
				return
			}
			c.mu.Lock()
			once := c.once
			c.mu.Unlock()
			if err == nil || cut == 0 || once {
				c.fail(fmt.Errorf("the stream of session %q ended: %w", session, errors.Join(err, io.EOF)))
				return
			}
			c.drops.Add(1)
			cut = pop(&cuts)
			if body, err = c.get(session, strconv.FormatUint(last, 10), cut); err != nil {
				c.fail(fmt.Errorf("open the stream again after event %d: %w", last, err))
				return
			}
		}
	})
}

func pop(cuts *[]int) int {
	if len(*cuts) == 0 {
		return 0
	}
	n := (*cuts)[0]
	*cuts = (*cuts)[1:]
	return n
}

// get opens one event stream on a TCP connection of its own.
func (c *client) get(session, lastEventID string, cut int) (io.ReadCloser, error) {
	tr := &http.Transport{DisableKeepAlives: true, DisableCompression: true, DialContext: cutDialer(cut)}
	req, err := http.NewRequestWithContext(c.ctx, http.MethodGet, c.g.url+"/v2/rpc", nil)
	if err != nil {
		return nil, err
	}
	c.g.authorize(req.Header)
	req.Header.Set("Accept", "text/event-stream")
	req.Header.Set(c.kind.header(), c.id)
	if session != "" && c.kind == standard {
		req.Header.Set("Acp-Session-Id", session)
	}
	if lastEventID != "" {
		req.Header.Set("Last-Event-ID", lastEventID)
	}
	resp, err := (&http.Client{Transport: tr}).Do(req)
	if err != nil {
		return nil, err
	}
	if ct := resp.Header.Get("Content-Type"); resp.StatusCode != http.StatusOK || !strings.HasPrefix(ct, "text/event-stream") {
		b, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		return nil, fmt.Errorf("%s, content type %q: %s", resp.Status, ct, b)
	}
	return resp.Body, nil
}

// read delivers a stream's events until it ends; last is the id of the last
// complete one.
func (c *client) read(r io.Reader, last *uint64) error {
	br := bufio.NewReaderSize(r, 256<<10)
	var data []byte
	var id uint64
	for {
		line, err := br.ReadBytes('\n')
		if errors.Is(err, io.EOF) && len(line) == 0 && data == nil {
			return nil
		}
		if err != nil {
			return err
		}
		line = bytes.TrimRight(line, "\r\n")
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(name) {
		case "": // a comment, or the end of an event
			if len(line) > 0 || data == nil {
				continue
			}
			if id <= *last {
				c.t.Errorf("%s: event id %d follows %d", c.kind, id, *last)
			}
			*last = id
			c.deliver(data, id)
			data, id = nil, 0
		case "data":
			if data != nil {
				c.t.Errorf("%s: an event has two data lines", c.kind)
			}
			data = value
		case "id":
			if id, err = strconv.ParseUint(string(value), 10, 64); err != nil {
				c.t.Errorf("%s: event id %q", c.kind, value)
			}
		case "event":
			if string(value) != "message" {
				c.t.Errorf("%s: event type %q", c.kind, value)
			}
		}
	}
}

// dial opens the WebSocket.
func (c *client) dial() {
	c.t.Helper()
	h := http.Header{}
	c.g.authorize(h)
	ws, resp, err := websocket.Dial(c.ctx, "ws"+strings.TrimPrefix(c.g.url, "http")+"/v2/rpc", &websocket.DialOptions{
		HTTPHeader: h,
		HTTPClient: &http.Client{Transport: &http.Transport{DialContext: cutDialer(pop(&c.opts.cuts))}},
	})
	if err != nil {
		c.t.Fatalf("websocket: %v", err)
	}
	c.id = resp.Header.Get("Acp-Connection-Id")
	if c.id == "" {
		c.t.Error("the upgrade's answer carries no Acp-Connection-Id")
	}
	ws.SetReadLimit(-1)
	c.ws = ws
	c.wg.Go(func() {
		for {
			kind, b, err := ws.Read(c.ctx)
			if err != nil {
				c.fail(err)
				return
			}
			if kind != websocket.MessageText {
				c.t.Error("a binary frame arrived")
			}
			c.deliver(b, 0)
		}
	})
}

// cutDialer dials connections that break after n bytes were read; 0 is never.
func cutDialer(n int) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		if err != nil || n == 0 {
			return conn, err
		}
		return &cutConn{Conn: conn, left: n}, nil
	}
}

type cutConn struct {
	net.Conn
	left int
}

func (c *cutConn) Read(p []byte) (int, error) {
	if c.left <= 0 {
		// Reset instead of an orderly end, as when a network dies.
		if tcp, ok := c.Conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		_ = c.Close()
		return 0, errCut
	}
	n, err := c.Conn.Read(p[:min(len(p), c.left)])
	c.left -= n
	return n, err
}

// randomCuts returns n places to break connections at, spread over total bytes.
func randomCuts(t testing.TB, n, total int) []int {
	t.Helper()
	seed := rand.Uint64()
	t.Logf("seed of the cuts: %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	cuts := make([]int, n)
	for i := range cuts {
		cuts[i] = 600 + r.IntN(2*total/(n+2))
	}
	return cuts
}

// rawStream opens an event stream and reads nothing of it but the headers.
func (c *client) rawStream(session string) {
	c.t.Helper()
	var conn net.Conn
	trace := &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { conn = i.Conn }}
	tr := &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetReadBuffer(4 << 10)
		}
		return conn, err
	}}
	req, err := http.NewRequestWithContext(httptrace.WithClientTrace(c.ctx, trace), http.MethodGet, c.g.url+"/v2/rpc", nil)
	if err != nil {
		c.t.Fatal(err)
	}
	c.g.authorize(req.Header)
	req.Header.Set("Accept", "text/event-stream")
	req.Header.Set(c.kind.header(), c.id)
	if session != "" && c.kind == standard {
		req.Header.Set("Acp-Session-Id", session)
	}
	resp, err := (&http.Client{Transport: tr}).Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = resp.Body.Close() })
	if resp.StatusCode != http.StatusOK || conn == nil {
		c.t.Fatalf("GET: %s", resp.Status)
	}
}
