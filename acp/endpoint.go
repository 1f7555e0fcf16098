package acp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"sync"
	"sync/atomic"

	"github.com/sourcegraph/jsonrpc2"

	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
)

// maxNotifications bounds the notifications that wait for an earlier one to be
// handled; at the bound reading waits.
const maxNotifications = 64

// errCancelRequest is the cause of a context that $/cancel_request ended.
var errCancelRequest = errors.New("the request was cancelled")

// ServeAgent serves the agent that newAgent makes to the client behind rw,
// newline-delimited JSON both ways, until the stream or ctx ends. It closes rw,
// whose Close must end a pending Read, and returns after every goroutine it
// started has. A clean end of the stream is not an error.
func ServeAgent(ctx context.Context, rw io.ReadWriteCloser, newAgent func(Peer) Agent) error {
	parent := ctx
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	e := &endpoint{
		stream:        newLineStream(rw),
		running:       make(map[ID]*running),
		notifications: make(chan Message, maxNotifications),
		ready:         make(chan struct{}),
	}
	e.agent = newAgent(e)
	e.conn = jsonrpc2.NewConn(ctx, e.stream, e, jsonrpc2.SetLogger(log.New(io.Discard, "", 0)))
	close(e.ready)
	e.work.Go(func() { e.notify(ctx) })

	<-e.conn.DisconnectNotify()
	cancel()
	closeErr := e.agent.Close()
	<-e.stream.ended // and with it the last call of Handle
	close(e.notifications)
	e.work.Wait()

	switch err := e.stream.readErr; {
	case parent.Err() != nil:
		return context.Cause(parent)
	case err != io.EOF:
		return fmt.Errorf("read from client: %w", err)
	case closeErr != nil:
		return fmt.Errorf("close agent: %w", closeErr)
	}
	return nil
}

// endpoint is one connection of an agent.
type endpoint struct {
	agent  Agent
	stream *lineStream
	conn   *jsonrpc2.Conn
	ready  chan struct{} // closed when conn is set
	work   sync.WaitGroup
	lastID atomic.Int64 // of our own requests

	notifications chan Message

	mu      sync.Mutex
	running map[ID]*running // the client's requests
}

// running is a request of the client that is being handled.
type running struct {
	cancel  context.CancelCauseFunc
	session string        // of a prompt
	turn    chan struct{} // of a prompt; closed by session/cancel; guarded by mu
	stopped bool          // turn is closed
}

var (
	_ Peer             = (*endpoint)(nil)
	_ LineWriter       = (*endpoint)(nil)
	_ jsonrpc2.Handler = (*endpoint)(nil)
)

// Handle takes the frame that was just read. jsonrpc2 calls it from its reading
// goroutine and waits for it.
func (e *endpoint) Handle(ctx context.Context, _ *jsonrpc2.Conn, _ *jsonrpc2.Request) {
	<-e.ready
	switch m := e.stream.current; {
	case m.IsRequest():
		e.start(ctx, m)
	case m.Method() == MethodCancelRequest:
		e.cancelRequest(m)
	default:
		if m.Method() == MethodSessionCancel {
			e.cancelTurns(m.Session())
		}
		select {
		case e.notifications <- m:
		case <-ctx.Done():
		}
	}
}

// start handles a request in a goroutine of its own.
func (e *endpoint) start(ctx context.Context, m Message) {
	id := m.ID()
	ctx, cancel := context.WithCancelCause(ctx)
	r := &running{cancel: cancel}
	if m.Method() == MethodSessionPrompt {
		r.session, r.turn = m.Session(), make(chan struct{})
		ctx = context.WithValue(ctx, turnKey{}, r.turn)
	}
	e.mu.Lock()
	_, taken := e.running[id]
	if !taken {
		e.running[id] = r
	}
	e.mu.Unlock()
	if taken {
		cancel(nil)
		e.reply(NewError(id, Errorf(CodeInvalidRequest, "a request with this id is still being handled")))
		return
	}
	e.work.Go(func() {
		result, err := e.call(ctx, m.Method(), m.Params())
		e.mu.Lock()
		delete(e.running, id)
		e.mu.Unlock()
		reply := e.response(ctx, id, result, err)
		cancel(nil)
		e.reply(reply)
	})
}

func (e *endpoint) response(ctx context.Context, id ID, result any, err error) Message {
	if err == nil {
		var b []byte
		if b, err = schema.Encode(result); err == nil {
			return NewResult(id, b)
		}
		err = fmt.Errorf("encode result: %w", err)
	}
	var typed *Error
	switch {
	case context.Cause(ctx) == errCancelRequest:
		return NewError(id, Errorf(CodeCancelled, "%v", errCancelRequest))
	case errors.As(err, &typed):
		return NewError(id, typed)
	}
	return NewError(id, Errorf(CodeInternal, "%v", err))
}

// reply writes a response. A failure to write shows in the stream's end.
func (e *endpoint) reply(m Message) { _ = e.stream.writeFrame(m.Frame()) }

func (e *endpoint) cancelRequest(m Message) {
	id, _ := rawjson.Member(m.Params(), "requestId")
	e.mu.Lock()
	defer e.mu.Unlock()
	if r := e.running[ID(id)]; r != nil {
		r.cancel(errCancelRequest)
	}
}

func (e *endpoint) cancelTurns(session string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, r := range e.running {
		if r.turn != nil && !r.stopped && r.session == session {
			r.stopped = true
			close(r.turn)
		}
	}
}

// notify handles notifications in order, until the queue is closed.
func (e *endpoint) notify(ctx context.Context) {
	for m := range e.notifications {
		if m.Method() == MethodSessionCancel {
			n := new(schema.CancelNotification)
			if n.UnmarshalJSON(m.Params()) == nil {
				_ = e.agent.Cancel(ctx, n) // a notification has no answer
			}
		} else if x, ok := e.agent.(ExtNotifier); ok {
			_ = x.ExtNotification(ctx, m.Method(), m.Params())
		}
	}
}

// Update implements [Peer].
func (e *endpoint) Update(_ context.Context, session schema.SessionID, update any) error {
	b := append([]byte(nil), `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":`...)
	b = append(rawjson.AppendQuoted(b, string(session)), `,"update":`...)
	b, err := schema.Append(b, update)
	if err != nil {
		return fmt.Errorf("encode update: %w", err)
	}
	return e.stream.writeFrame(append(b, `}}`...))
}

// Notify implements [Peer].
func (e *endpoint) Notify(_ context.Context, method string, params any) error {
	b, err := encodeParams(params)
	if err != nil {
		return fmt.Errorf("encode params of %s: %w", method, err)
	}
	return e.stream.writeFrame(appendCall(nil, "", method, b))
}

// WriteLines implements [LineWriter].
func (e *endpoint) WriteLines(lines []byte) error { return e.stream.writeLines(lines) }

// Ask implements [Peer].
func (e *endpoint) Ask(ctx context.Context, method string, params, result any) error {
	<-e.ready
	b, err := encodeParams(params)
	if err != nil {
		return fmt.Errorf("encode params of %s: %w", method, err)
	}
	n := e.lastID.Add(1)
	e.stream.prepare(n, appendCall(nil, IntID(n), method, b))
	call, err := e.conn.DispatchCall(ctx, method, nil, jsonrpc2.PickID(jsonrpc2.ID{Num: uint64(n)}))
	if err != nil {
		e.stream.forget(n)
		return askError(method, err)
	}
	err = call.Wait(ctx, result)
	if err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		_ = e.Notify(ctx, MethodCancelRequest, &schema.CancelRequestNotification{RequestID: json.RawMessage(IntID(n))})
	}
	return askError(method, err)
}

func askError(method string, err error) error {
	var typed *jsonrpc2.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &typed):
		e := &Error{Code: typed.Code, Message: typed.Message}
		if typed.Data != nil {
			e.Data = *typed.Data
		}
		return e
	case errors.Is(err, jsonrpc2.ErrClosed):
		err = io.ErrClosedPipe
	}
	return fmt.Errorf("ask %s: %w", method, err)
}

func encodeParams(params any) ([]byte, error) {
	if params == nil {
		return nil, nil
	}
	return schema.Encode(params)
}
