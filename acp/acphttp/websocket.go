package acphttp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/coder/websocket"
	"github.com/google/uuid"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/version"
	"sandboxagent.dev/sandbox-agent/internal/frames"
	"sandboxagent.dev/sandbox-agent/internal/memory"
)

// Subprotocol is what the server selects when a browser offers it beside the
// one that carries its token.
const Subprotocol = "acp.sandboxagent.dev"

const memoryFull = "the messages of clients take all the memory that they may have"

// websocket serves a connection over WebSocket: one ordered stream both ways. It returns when the
// connection is taken over: the stack and the buffers of a request would be kept for as long as
// the client stays.
func (h *Handler) websocket(w http.ResponseWriter, r *http.Request) error {
	if r.Header.Get(HeaderConnection) != "" || r.Header.Get(HeaderInlineConnection) != "" {
		return problem.New(problem.InvalidRequest, "a WebSocket is a connection of its own: open it without a connection id")
	}
	hj := &frames.Hijacker{ResponseWriter: w, Within: h.o.WriteTimeout}
	id := uuid.NewString()
	w.Header().Set(HeaderConnection, id)
	ws, err := websocket.Accept(hj, r, &websocket.AcceptOptions{
		// Hosts and origins were checked before this handler.
		InsecureSkipVerify: true,
		Subprotocols:       []string{Subprotocol},
		CompressionMode:    websocket.CompressionDisabled,
	})
	if err != nil {
		h.log.Debug("websocket handshake", "err", err)
		return nil // answered by Accept
	}
	ws.SetReadLimit(drainFactor * h.o.MaxBody)
	s := &socket{h: h, ws: ws, conn: hj.Conn, id: id, agent: r.URL.Query().Get("agent")}
	s.over = h.o.Over(r.Context())
	ctx := context.WithoutCancel(r.Context())
	h.open.add(1)
	go s.run(ctx)
	return nil
}

// socket is one WebSocket connection. The library does the handshake, reads,
// and answers pings and closes; data frames are written here, many per write.
type socket struct {
	h     *Handler
	ws    *websocket.Conn
	conn  *frames.Conn
	id    string          // of the connection
	agent string          // that the address names
	over  context.Context // see Options.Over

	in, out *memory.Share // of what arrives, and of what is being written

	greeted bool // initialize was answered
}

// run serves the socket to its end.
func (s *socket) run(ctx context.Context) {
	defer s.h.open.add(-1)
	defer s.h.survive(s.conn)
	defer func() {
		_ = s.ws.CloseNow()
		s.conn.Wait()
	}()
	defer context.AfterFunc(s.h.cut, func() { s.conn.Hurry(farewell, s.h.last) })()
	drop := func() { s.conn.Drop(int(websocket.StatusTryAgainLater), memoryFull) }
	s.in, s.out = s.h.memory.Open(drop), s.h.memory.Open(drop)
	defer s.in.Close()
	defer s.out.Close()
	s.serve(ctx)
}

func (s *socket) serve(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	client := s.handshake(ctx)
	if client == nil {
		return
	}
	defer client.Close()
	s.greeted = true
	st, err := client.Stream("", nil)
	if err != nil {
		_ = s.ws.Close(websocket.StatusInternalError, "no stream")
		return
	}
	written := make(chan struct{})
	go func() {
		defer close(written)
		defer cancel()
		s.write(ctx, client, st)
	}()
	s.read(ctx, client)
	cancel()
	<-written
	st.Close()
}

// handshake reads messages until one is a valid initialize. nil means that the
// socket was closed.
func (s *socket) handshake(ctx context.Context) acp.Client {
	late := time.AfterFunc(s.h.o.Handshake, func() { _ = s.ws.CloseNow() })
	defer late.Stop()
	for _, end := range []context.Context{s.over, s.h.closing} {
		said := make(chan struct{})
		unsaid := context.AfterFunc(end, func() {
			defer close(said)
			s.sayOver()
		})
		defer func() {
			if !unsaid() {
				<-said
			}
		}()
	}
	for {
		m, ok, err := s.next(ctx)
		switch {
		case err != nil:
			return nil
		case !ok || m.IsResponse():
			continue
		case m.Method() != acp.MethodInitialize || !m.IsRequest():
			_ = s.ws.Close(websocket.StatusProtocolError, "the first message must be an initialize request")
			return nil
		}
		late.Stop() // agents may take longer to start
		client, reply, err := s.h.gw.Connect(ctx, m, acp.ConnectOptions{
			ID: s.id, Shape: acp.OneStream, Agent: s.agent,
			Notify: func(frame []byte) { _ = s.send(frame) }, // a dead socket shows at the reply
		})
		if refused, ok := errors.AsType[*acp.Error](err); ok {
			answer := version.Refusal(&m, refused)
			if s.send(answer.Frame()) != nil {
				return nil
			}
			late.Reset(s.h.o.Handshake)
			continue
		}
		if err != nil {
			p := problem.From(err)
			e := acp.NewError(m.ID(), acp.Errorf(acp.CodeInternal, "%s", p.Error()).WithData(p))
			_ = s.send(e.Frame())
			_ = s.ws.Close(websocket.StatusInternalError, "initialize failed")
			return nil
		}
		if s.send(reply.Frame) != nil {
			client.Close()
			return nil
		}
		return client
	}
}

const firstFrame = 512 // bytes, before more of a message came

// next reads one message. What is no message is answered, and ok is false.
func (s *socket) next(ctx context.Context) (m acp.Message, ok bool, err error) {
	kind, src, err := s.ws.Reader(ctx)
	var data []byte
	if err == nil {
		data, err = s.h.gather(ctx, s.in, io.LimitReader(src, s.h.o.MaxBody+1), firstFrame)
	}
	if errors.Is(err, errMemory) {
		_ = s.ws.Close(websocket.StatusTryAgainLater, memoryFull)
	}
	if err != nil {
		if websocket.CloseStatus(err) == -1 && strings.Contains(err.Error(), "unmasked frame") { // it says nothing to the client
			_ = s.ws.Close(websocket.StatusProtocolError, "frames of clients must be masked")
		}
		return m, false, err
	}
	if int64(len(data)) > s.h.o.MaxBody {
		return s.tooLarge(data, src)
	}
	if kind != websocket.MessageText {
		return m, false, nil
	}
	m, err = acp.Parse(data)
	if err != nil {
		if err.Error() == acp.ErrInvalidUTF8 {
			return m, false, s.ws.Close(websocket.StatusInvalidFramePayloadData, "text frames must be UTF-8")
		}
		refusal := acp.Refusal(err)
		return m, false, s.send(refusal.Frame())
	}
	return m, true, nil
}

// tooLarge reads a message over the limit to its end. A request is answered, and of an answer the
// agent is told that it was too large. What does not say at its beginning what it is ends the socket.
func (s *socket) tooLarge(data []byte, src io.Reader) (m acp.Message, ok bool, err error) {
	id, answer := headOf(data[:min(len(data), headBytes)])
	over := problem.New(problem.PayloadTooLarge, "the message is over the limit of %d bytes: raise it with --max-body", s.h.o.MaxBody)
	if id == "" || !s.greeted {
		return m, false, errors.Join(over, s.ws.Close(websocket.StatusMessageTooBig, over.Detail))
	}
	data = nil // the rest may take long
	if _, err := io.Copy(io.Discard, src); err != nil {
		return m, false, err
	}
	m = acp.NewError(id, acp.Errorf(acp.CodeInvalidRequest, "%s", over.Detail).WithData(over))
	if answer {
		return m, true, nil
	}
	return m, false, s.send(m.Frame())
}

const headBytes = 64 << 10 // of a message that is too large, in which it says what it is

// headOf returns the id of the message that begins with head, and whether it is an answer; "" if
// it is not known.
func headOf(head []byte) (id acp.ID, answer bool) {
	d := json.NewDecoder(bytes.NewReader(head))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return "", false
	}
	for {
		key, err := d.Token()
		if err != nil || key == "params" {
			return id, false
		}
		if key == "result" || key == "error" {
			return id, true
		}
		var value json.RawMessage
		if d.Decode(&value) != nil {
			return "", false
		}
		if key == "id" {
			m, err := acp.Parse(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"method":"x"}`, value))
			if err != nil {
				return "", false
			}
			id = m.ID()
		}
	}
}

func (s *socket) read(ctx context.Context, client acp.Client) {
	for {
		m, ok, err := s.next(ctx)
		if err != nil {
			return
		}
		if ok {
			_ = client.Send(ctx, m) // its errors are responses on the stream
		}
	}
}

// write sends events, several frames per write, and pings.
func (s *socket) write(ctx context.Context, client acp.Client, st acp.Stream) {
	ping := time.NewTicker(s.h.o.PingInterval)
	defer ping.Stop()
	st.Room(roomIn(ctx, s.out))
	p := own(st, s.conn.Conn, s.events)
	defer p.end()
	for {
		select {
		case <-st.Wake():
			var lost error
			err := roomIn(ctx, s.out)(batchBytes)
			if err == nil {
				lost, err = p.next()
			}
			if err != nil {
				s.h.log.Warn("event stream ended", "err", err)
				switch {
				case problem.From(err).Kind == problem.EventsExpired:
					_ = s.ws.Close(websocket.StatusPolicyViolation, "events expired")
				case errors.Is(err, errMemory):
					_ = s.ws.Close(websocket.StatusTryAgainLater, memoryFull)
				default:
					_ = s.ws.Close(websocket.StatusInternalError, "the events cannot be read")
				}
				return
			}
			if lost != nil {
				_ = s.ws.CloseNow()
				return
			}
			s.out.GiveAll()
		case <-ping.C:
			if !s.conn.Ping() {
				_ = s.ws.CloseNow()
				return
			}
		case <-ctx.Done():
			return
		case <-client.Done():
			s.sayOver()
			return
		case <-s.h.closing.Done():
			_ = s.ws.Close(websocket.StatusGoingAway, "the gateway is shutting down")
			return
		}
	}
}

// sayOver ends the socket, and says why.
func (s *socket) sayOver() {
	reason := "the server is shutting down"
	if why := context.Cause(s.over); why != nil {
		reason = problem.From(why).Detail
	}
	_ = s.ws.Close(websocket.StatusGoingAway, reason)
}

// send writes one text frame.
func (s *socket) send(frame []byte) error {
	b := frames.AppendHeader(make([]byte, 0, len(frame)+10), frames.Text, len(frame))
	return s.conn.Send(nil, append(b, frame...))
}

// events writes a batch of events.
func (s *socket) events(events []acp.Event) error {
	buf := buffers.Get().(*[]byte)
	defer giveBack(buf)
	for _, e := range events {
		*buf = frames.AppendHeader(*buf, frames.Text, len(e.Frame))
		if len(e.Frame) <= largeFrame {
			*buf = append(*buf, e.Frame...)
			continue
		}
		if err := s.conn.Send(s.out, *buf, e.Frame); err != nil {
			return err
		}
		*buf = (*buf)[:0]
	}
	return s.conn.Send(s.out, *buf)
}
