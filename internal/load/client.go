package main

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
)

// answerBound is how long a client waits for an answer.
const answerBound = 60 * time.Second

// client is one connection. It does as little as it can for each message, since it runs on
// the processors of what it measures.
type client struct {
	wire interface {
		send(message []byte, session string) error
		opened(session string) error
		close()
	}
	target *target

	last     atomic.Int64
	mu       sync.RWMutex
	waiting  map[int64]chan []byte
	sessions map[string]*session
}

// session is what a client sees of one.
type session struct {
	id string

	seen  atomic.Int64
	wrong atomic.Int64 // updates that were not the next one
	next  int
	late  []time.Duration // how old updates were; one of each many
	each  int

	deltas *deltas // of a session with a real agent, else nil
}

// expect begins to count anew.
func (s *session) expect(n int) {
	s.next, s.each, s.late = 0, n/10_000+1, s.late[:0]
	s.wrong.Store(0)
	s.seen.Store(0)
}

func (s *session) update(frame []byte) {
	if s.deltas != nil {
		s.deltas.take(frame)
		return
	}
	if at, number, ok := stamped(frame[:min(len(frame), 512)]); ok {
		if number != s.next {
			s.wrong.Add(1)
		}
		if s.next = number + 1; number%s.each == 0 {
			s.late = append(s.late, time.Since(at))
		}
	}
	s.seen.Add(1)
}

func newClient(t *target) *client {
	return &client{target: t, waiting: map[int64]chan []byte{}, sessions: map[string]*session{}}
}

func dial(t *target) (*client, error) {
	c := newClient(t)
	if t.socket {
		ws, err := dialSocket(t, c.take)
		if err != nil {
			return nil, err
		}
		c.wire = ws
	} else {
		c.wire = &overHTTP{t: t, take: c.take}
	}
	return c, c.initialize()
}

// greet is dial over the streams of a program.
func greet(s *streams, t *target) (*client, error) {
	c := newClient(t)
	c.wire = s
	go s.read(c.take) // ends with the program
	return c, c.initialize()
}

// initialize closes the connection if it fails.
func (c *client) initialize() error {
	_, err := c.call("initialize", `{"protocolVersion":1,"clientCapabilities":{},"clientInfo":{"name":"load","version":"1"}`+c.target.meta+`}`, "")
	if err != nil {
		c.wire.close()
	}
	return err
}

func (c *client) open() (*session, error) {
	meta := c.target.meta
	if c.target.durability != "" {
		meta = strings.Replace(meta, `"agent":`, `"durability":"`+c.target.durability+`","agent":`, 1)
	}
	result, err := c.call("session/new", `{"cwd":"`+cmp.Or(c.target.cwd, "/")+`","mcpServers":[]`+meta+`}`, "")
	if err != nil {
		return nil, err
	}
	s := &session{id: member(result, "sessionId"), each: 1}
	if c.target.real {
		s.deltas = &deltas{}
	}
	c.mu.Lock()
	c.sessions[s.id] = s
	c.mu.Unlock()
	return s, c.wire.opened(s.id)
}

func (c *client) prompt(s *session, text string) ([]byte, error) {
	return c.call("session/prompt", `{"sessionId":"`+s.id+`","prompt":[{"type":"text","text":"`+text+`"}]}`, s.id)
}

func (c *client) call(method, params, session string) ([]byte, error) {
	id, answer := c.last.Add(1), make(chan []byte, 1)
	c.mu.Lock()
	c.waiting[id] = answer
	c.mu.Unlock()
	message := fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":"%s","params":%s}`, id, method, params)
	if err := c.wire.send(message, session); err != nil {
		return nil, fmt.Errorf("%s: %w", method, err)
	}
	bound := time.NewTimer(answerBound)
	defer bound.Stop()
	select {
	case frame := <-answer:
		if bytes.Contains(frame[:min(len(frame), 64)], []byte(`"error":`)) {
			return nil, fmt.Errorf("%s: %s", method, frame)
		}
		return frame, nil
	case <-bound.C:
		return nil, fmt.Errorf("%s: no answer in %s", method, answerBound)
	}
}

// take is given each frame that arrives.
func (c *client) take(frame []byte) {
	if bytes.Contains(frame[:min(len(frame), 96)], []byte(`"session/update"`)) {
		c.mu.RLock()
		s := c.sessions[member(frame[:min(len(frame), 256)], "sessionId")]
		c.mu.RUnlock()
		if s != nil {
			s.update(frame)
		}
		return
	}
	m, err := acp.Parse(bytes.Clone(frame))
	if err != nil {
		return
	}
	switch {
	case m.IsRequest(): // it asks for a permission
		answer := fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"result":{"outcome":{"outcome":"selected","optionId":"allow"}}}`, m.ID())
		go func() { _ = c.wire.send(answer, m.Session()) }()
	case m.IsResponse():
		n, _ := m.ID().Int()
		c.mu.Lock()
		answer := c.waiting[n]
		delete(c.waiting, n)
		c.mu.Unlock()
		if answer != nil {
			answer <- m.Frame()
		}
	}
}

// member returns the first string with this key.
func member(frame []byte, key string) string {
	_, rest, _ := bytes.Cut(frame, []byte(`"`+key+`":"`))
	value, _, _ := bytes.Cut(rest, []byte(`"`))
	return string(value)
}

// overHTTP is a connection of requests and event streams. A gateway's is one of the standard
// dialect, the bridge answers requests at once.
type overHTTP struct {
	t    *target
	take func(frame []byte)

	mu      sync.Mutex
	id      string
	idle    []*requests
	streams []net.Conn
}

// requests is a TCP connection for one request after another.
type requests struct {
	net.Conn
	in *bufio.Reader
}

func (o *overHTTP) header() string {
	switch {
	case o.id == "":
		return o.t.auth
	case o.t.bridge:
		return bridgeHeader + ": " + o.id + "\r\n"
	}
	return "Acp-Connection-Id: " + o.id + "\r\n" + o.t.auth
}

func (o *overHTTP) do(method, header string, body []byte) (*http.Response, []byte, error) {
	o.mu.Lock()
	var c *requests
	if n := len(o.idle); n > 0 {
		c, o.idle = o.idle[n-1], o.idle[:n-1]
	}
	o.mu.Unlock()
	if c == nil {
		conn, err := net.Dial("tcp", o.t.addr)
		if err != nil {
			return nil, nil, err
		}
		c = &requests{conn, bufio.NewReaderSize(conn, 4<<10)}
	}
	request := append(fmt.Appendf(nil, "%s %s/v2/rpc HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\nContent-Type: application/json\r\nAccept: application/json\r\n%s%s\r\n", method, o.t.base, o.t.addr, len(body), o.header(), header), body...)
	_ = c.SetDeadline(time.Now().Add(answerBound))
	_, err := c.Write(request)
	if err != nil {
		return nil, nil, errors.Join(err, c.Close())
	}
	answer, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return nil, nil, errors.Join(err, c.Close())
	}
	got, err := io.ReadAll(answer.Body)
	if err != nil || answer.Close {
		return answer, got, errors.Join(err, c.Close())
	}
	o.mu.Lock()
	o.idle = append(o.idle, c)
	o.mu.Unlock()
	return answer, got, nil
}

func (o *overHTTP) send(message []byte, session string) error {
	header := ""
	if session != "" && !o.t.bridge {
		header = "Acp-Session-Id: " + session + "\r\n"
	}
	answer, body, err := o.do("POST", header, message)
	if err != nil {
		return err
	}
	if answer.StatusCode >= 300 {
		return fmt.Errorf("%s: %s", answer.Status, body)
	}
	if o.id == "" {
		if o.id = answer.Header.Get(bridgeHeader); o.id == "" {
			o.id = answer.Header.Get("Acp-Connection-Id")
		}
		if err := o.stream(""); err != nil {
			return err
		}
	}
	if len(body) > 0 {
		o.take(body)
	}
	return nil
}

func (o *overHTTP) opened(session string) error {
	if o.t.bridge {
		return nil
	}
	return o.stream("Acp-Session-Id: " + session + "\r\n")
}

// stream opens an event stream and reads it until it ends.
func (o *overHTTP) stream(header string) error {
	conn, err := net.Dial("tcp", o.t.addr)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(conn, "GET %s/v2/rpc HTTP/1.1\r\nHost: %s\r\nAccept: text/event-stream\r\n%s%s\r\n", o.t.base, o.t.addr, o.header(), header); err != nil {
		return err
	}
	in := bufio.NewReaderSize(conn, 4<<10)
	answer, err := http.ReadResponse(in, nil)
	if err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("event stream: %s", answer.Status)
	}
	o.mu.Lock()
	o.streams = append(o.streams, conn)
	o.mu.Unlock()
	go func() { // ends with the connection
		eachLine(answer.Body, func(line []byte) {
			if data, ok := bytes.CutPrefix(line, []byte("data: ")); ok {
				o.take(data)
			}
		})
	}()
	return nil
}

func (o *overHTTP) close() {
	_, _, _ = o.do("DELETE", "", nil)
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, c := range o.streams {
		_ = c.Close()
	}
	for _, c := range o.idle {
		_ = c.Close()
	}
}

// overSocket is a WebSocket.
type overSocket struct {
	net.Conn
	mu sync.Mutex // of writes
}

func dialSocket(t *target, take func(frame []byte)) (*overSocket, error) {
	conn, err := net.Dial("tcp", t.addr)
	if err != nil {
		return nil, err
	}
	var key [16]byte
	_, _ = rand.Read(key[:])
	path := t.base + "/v2/rpc"
	if t.bridge {
		path = "/ws"
	}
	_, err = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %s\r\n%s\r\n", path, t.addr, base64.StdEncoding.EncodeToString(key[:]), t.auth)
	if err != nil {
		return nil, err
	}
	in := bufio.NewReaderSize(conn, 256<<10)
	answer, err := http.ReadResponse(in, nil)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusSwitchingProtocols {
		return nil, fmt.Errorf("upgrade: %s", answer.Status)
	}
	o := &overSocket{Conn: conn}
	go o.read(in, take) // ends with the connection
	return o, nil
}

func (o *overSocket) read(in *bufio.Reader, take func(frame []byte)) {
	var message []byte
	for {
		var head [2]byte
		if _, err := io.ReadFull(in, head[:]); err != nil {
			return
		}
		length := uint64(head[1] & 127)
		if more := map[uint64]int{126: 2, 127: 8}[length]; more > 0 {
			var b [8]byte
			if _, err := io.ReadFull(in, b[8-more:]); err != nil {
				return
			}
			length = binary.BigEndian.Uint64(b[:])
		}
		begin := len(message)
		message = append(message, make([]byte, length)...)
		if _, err := io.ReadFull(in, message[begin:]); err != nil {
			return
		}
		switch kind := head[0] & 15; {
		case kind == 9:
			_ = o.frame(10, message[begin:])
			message = message[:begin]
		case kind > 2:
			message = message[:begin]
		case head[0]&0x80 != 0:
			take(message)
			message = message[:0]
		}
	}
}

// frame writes one, with a mask of zeros, which changes nothing.
func (o *overSocket) frame(kind byte, message []byte) error {
	b := []byte{0x80 | kind}
	switch n := len(message); {
	case n < 126:
		b = append(b, 0x80|byte(n))
	case n < 1<<16:
		b = binary.BigEndian.AppendUint16(append(b, 0x80|126), uint16(n))
	default:
		b = binary.BigEndian.AppendUint64(append(b, 0x80|127), uint64(n))
	}
	b = append(append(b, 0, 0, 0, 0), message...)
	o.mu.Lock()
	defer o.mu.Unlock()
	_, err := o.Write(b)
	return err
}

func (o *overSocket) send(message []byte, _ string) error { return o.frame(1, message) }
func (o *overSocket) opened(string) error                 { return nil }
func (o *overSocket) close() {
	_ = o.frame(8, []byte{3, 0xe8})
	_ = o.Close()
}
