package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/coder/websocket"
)

// bridge is what a gateway is compared with: the least that carries an agent's lines to a client and
// back. It keeps nothing, looks at no message but for ids, and knows no sessions. Over HTTP a
// response comes with its request, over WebSocket each line is a message.
type bridge struct {
	agent []string
	conns sync.Map // id to *bridged
	last  atomic.Int64
}

func runBridge(addr string, agent []string) error {
	b := &bridge{agent: agent}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v2/health", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /ws", b.webSocket)
	mux.HandleFunc("POST /v2/rpc", b.post)
	mux.HandleFunc("GET /v2/rpc", b.stream)
	mux.HandleFunc("DELETE /v2/rpc", b.remove)
	mux.HandleFunc("PUT /v2/fs/file", putFile)
	mux.HandleFunc("GET /v2/fs/file", getFile)
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	return http.Serve(ln, mux) //nolint:gosec // it serves one client on loopback
}

// putFile and getFile are what Go itself does with a file: it is copied, and can be seen half written.
func putFile(w http.ResponseWriter, r *http.Request) {
	f, err := os.Create(r.FormValue("path"))
	if err == nil {
		_, err = io.Copy(f, r.Body)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

func getFile(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, r.FormValue("path")) }

// child is an agent's process.
type child struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
	long []byte // a line that is longer than the buffer
}

func (b *bridge) start() (*child, error) {
	cmd := exec.Command(b.agent[0], b.agent[1:]...)
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	return &child{cmd: cmd, in: in, out: bufio.NewReaderSize(out, 64<<10)}, cmd.Start()
}

func (c *child) stop() {
	_ = c.in.Close()
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
}

func (c *child) say(message []byte) error {
	_, err := c.in.Write(append(message, '\n'))
	return err
}

// line returns the next line, which is valid until the next call.
func (c *child) line() ([]byte, error) {
	part, err := c.out.ReadSlice('\n')
	if !errors.Is(err, bufio.ErrBufferFull) {
		return bytes.TrimSuffix(part, []byte("\n")), err
	}
	c.long = append(c.long[:0], part...)
	for errors.Is(err, bufio.ErrBufferFull) {
		part, err = c.out.ReadSlice('\n')
		c.long = append(c.long, part...)
	}
	return bytes.TrimSuffix(c.long, []byte("\n")), err
}

// more reports whether the next line is here already.
func (c *child) more() bool {
	b, _ := c.out.Peek(c.out.Buffered())
	return bytes.IndexByte(b, '\n') >= 0
}

func (b *bridge) webSocket(w http.ResponseWriter, r *http.Request) {
	ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{CompressionMode: websocket.CompressionDisabled})
	if err != nil {
		return
	}
	defer func() { _ = ws.CloseNow() }()
	ws.SetReadLimit(-1)
	c, err := b.start()
	if err != nil {
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	var reading sync.WaitGroup
	reading.Go(func() {
		defer cancel()
		for {
			line, err := c.line()
			if err != nil || ws.Write(ctx, websocket.MessageText, line) != nil {
				return
			}
		}
	})
	defer reading.Wait()
	defer c.stop()
	defer cancel()
	for {
		_, message, err := ws.Read(ctx)
		if err != nil || c.say(message) != nil {
			return
		}
	}
}

// bridged is a connection over HTTP.
type bridged struct {
	c *child

	mu      sync.Mutex
	ready   *sync.Cond // there is a stream
	streams []*bridgedStream
	waiting map[string]chan []byte // by id of a request
}

type bridgedStream struct {
	w     *bufio.Writer
	flush http.Flusher
}

func (s *bridgedStream) write(line []byte, more bool) {
	_, _ = s.w.WriteString("data: ")
	_, _ = s.w.Write(line)
	_, _ = s.w.WriteString("\n\n")
	if !more {
		s.send()
	}
}

func (s *bridgedStream) send() {
	if s.w.Buffered() > 0 && s.w.Flush() == nil {
		s.flush.Flush()
	}
}

// pass gives the agent's lines to who waits for them.
func (d *bridged) pass() {
	for {
		line, err := d.c.line()
		if err != nil {
			return
		}
		head, more := line[:min(len(line), 120)], d.c.more()
		d.mu.Lock()
		if !bytes.Contains(head, []byte(`"method":`)) {
			if answer := d.waiting[idOf(head)]; answer != nil {
				delete(d.waiting, idOf(head))
				for _, s := range d.streams {
					s.send() // a response comes behind its updates
				}
				answer <- bytes.Clone(line)
				d.mu.Unlock()
				continue
			}
		}
		for len(d.streams) == 0 {
			d.ready.Wait()
		}
		for _, s := range d.streams {
			s.write(line, more)
		}
		d.mu.Unlock()
	}
}

// idOf returns the id of a message, as it is written.
func idOf(head []byte) string {
	_, rest, ok := bytes.Cut(head, []byte(`"id":`))
	if !ok {
		return ""
	}
	return string(rest[:max(bytes.IndexAny(rest, ",}"), 0)])
}

const bridgeHeader = "X-Acp-Connection-Id"

func (b *bridge) find(w http.ResponseWriter, r *http.Request) *bridged {
	d, ok := b.conns.Load(r.Header.Get(bridgeHeader))
	if !ok {
		http.Error(w, "no such connection", http.StatusNotFound)
		return nil
	}
	return d.(*bridged)
}

func (b *bridge) post(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	if r.Header.Get(bridgeHeader) == "" {
		c, err := b.start()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		d := &bridged{c: c, waiting: map[string]chan []byte{}}
		d.ready = sync.NewCond(&d.mu)
		r.Header.Set(bridgeHeader, strconv.FormatInt(b.last.Add(1), 10))
		b.conns.Store(r.Header.Get(bridgeHeader), d)
		go d.pass()
	}
	d := b.find(w, r)
	if d == nil {
		return
	}
	w.Header().Set(bridgeHeader, r.Header.Get(bridgeHeader))
	head := body[:min(len(body), 120)]
	var answer chan []byte
	d.mu.Lock()
	if bytes.Contains(head, []byte(`"method":`)) && idOf(head) != "" {
		answer = make(chan []byte, 1)
		d.waiting[idOf(head)] = answer
	}
	err = d.c.say(body)
	d.mu.Unlock()
	if err != nil || answer == nil {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	select {
	case frame := <-answer:
		_, _ = w.Write(frame)
	case <-r.Context().Done():
	}
}

func (b *bridge) stream(w http.ResponseWriter, r *http.Request) {
	d := b.find(w, r)
	if d == nil {
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	s := &bridgedStream{w: bufio.NewWriterSize(w, 128<<10), flush: w.(http.Flusher)}
	s.flush.Flush()
	d.mu.Lock()
	d.streams = append(d.streams, s)
	d.ready.Broadcast()
	d.mu.Unlock()
	<-r.Context().Done()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.streams = slices.DeleteFunc(d.streams, func(other *bridgedStream) bool { return other == s })
}

func (b *bridge) remove(w http.ResponseWriter, r *http.Request) {
	if d, ok := b.conns.LoadAndDelete(r.Header.Get(bridgeHeader)); ok {
		d.(*bridged).c.stop()
	}
	w.WriteHeader(http.StatusAccepted)
}
