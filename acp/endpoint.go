package acp

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"

	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
)

// maxNotifications bounds the notifications that wait for an earlier one to be
// handled; at the bound reading waits.
const maxNotifications = 64

// errCancelRequest is the cause of a context that $/cancel_request ended.
var errCancelRequest = errors.New("the request was cancelled")

// ServeAgent serves the agent that newAgent makes to the client behind conn until
// that or ctx ends. It closes conn, and returns after every goroutine it started
// has. A clean end of the connection is not an error.
func ServeAgent(ctx context.Context, conn AgentConn, newAgent func(Peer) Agent) error {
	parent := ctx
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	e := &endpoint{
		conn:          conn,
		running:       make(map[ID]*running),
		setting:       make(map[string]chan struct{}),
		calls:         make(map[ID]chan<- Message),
		ended:         make(chan struct{}),
		notifications: make(chan Message, maxNotifications),
	}
	e.agent = newAgent(e)
	e.work.Go(func() { e.notify(ctx) })
	release := context.AfterFunc(ctx, func() { _ = conn.Close() })

	readErr := e.read(ctx)
	close(e.ended)
	cancel()
	if release() {
		_ = conn.Close()
	}
	closeErr := e.agent.Close()
	close(e.notifications)
	e.work.Wait()

	switch {
	case parent.Err() != nil:
		return context.Cause(parent)
	case readErr != io.EOF:
		return fmt.Errorf("read from client: %w", readErr)
	case closeErr != nil:
		return fmt.Errorf("close agent: %w", closeErr)
	}
	return nil
}

// endpoint is one connection of an agent.
type endpoint struct {
	agent  Agent
	conn   AgentConn
	ended  chan struct{} // closed when nothing more is read
	work   sync.WaitGroup
	lastID atomic.Int64 // of our own requests

	notifications chan Message

	mu      sync.Mutex
	running map[ID]*running          // the client's requests
	setting map[string]chan struct{} // by session: closed when the newest request of those in order there was handled, a prompt when it has begun
	calls   map[ID]chan<- Message    // our own; each has room for the answer
	came    int                      // how many requests of the client there were
}

// running is a request of the client that is being handled.
type running struct {
	cancel  context.CancelCauseFunc
	place   int           // among the client's requests, in the order in which they came
	session string        // of a prompt
	turn    chan struct{} // of a prompt; closed by session/cancel; guarded by mu
	stopped bool          // turn is closed
}

var (
	_ Peer       = (*endpoint)(nil)
	_ LineWriter = (*endpoint)(nil)
)

// read takes messages until the connection ends.
func (e *endpoint) read(ctx context.Context) error {
	for {
		m, err := e.conn.Read()
		if err != nil {
			return err
		}
		switch {
		case m.IsRequest():
			e.start(ctx, m)
		case m.IsResponse():
			e.mu.Lock()
			if answer := e.calls[m.ID()]; answer != nil {
				delete(e.calls, m.ID())
				answer <- m
			}
			e.mu.Unlock()
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
}

// sets are the methods that set something of a session: what is asked for last counts.
var sets = map[string]bool{MethodSessionSetMode: true, MethodSessionSetConfigOption: true, MethodSessionSetModel: true, MethodSessionSetTitle: true}

// inOrder returns what waits until what was asked before in the session of a request is set, or has begun, or the request is
// cancelled, and what is to be called when the request is answered, of a prompt when it is given to the agent. A prompt begins
// with what was set before it, and not with what is set behind it.
func (e *endpoint) inOrder(m *Message) (wait func(context.Context) error, over func()) {
	if !sets[m.Method()] && m.Method() != MethodSessionPrompt {
		return func(context.Context) error { return nil }, func() {}
	}
	id, done := m.Session(), make(chan struct{})
	e.mu.Lock()
	defer e.mu.Unlock()
	before := e.setting[id]
	if before == nil {
		before = closed
	}
	wait = func(ctx context.Context) error {
		select {
		case <-before:
			return nil
		case <-TurnCancelled(ctx): // the agent says that of the turn
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	e.setting[id] = done
	return wait, func() {
		<-before // it ends, at the latest with the connection: what comes behind both waits for both
		e.mu.Lock()
		defer e.mu.Unlock()
		if close(done); e.setting[id] == done {
			delete(e.setting, id)
		}
	}
}

var closed = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

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
		e.came++
		r.place, e.running[id] = e.came, r
	}
	e.mu.Unlock()
	if taken {
		cancel(nil)
		e.reply(NewError(id, Errorf(CodeInvalidRequest, "a request with this id is still being handled")))
		return
	}
	wait, over := e.inOrder(&m)
	e.work.Go(func() {
		err := wait(ctx)
		if r.turn == nil {
			defer over()
		} else { // in a moment: the agent keeps it until the turn ends
			e.work.Go(over)
		}
		var result any
		if err == nil {
			result, err = e.call(ctx, m.Method(), m.Params())
		}
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
	failure := Errorf(CodeInternal, "%v", err)
	if errors.Is(err, context.DeadlineExceeded) {
		failure.Data = rawjson.Object{}.String("type", typePrefix+"timeout").End()
	}
	return NewError(id, failure)
}

// reply writes a response. A failure to write shows in the stream's end.
func (e *endpoint) reply(m Message) { _ = e.writeFrame(m.Frame()) }

// writeFrame writes a frame and its newline. frame may be appended to.
func (e *endpoint) writeFrame(frame []byte) error { return e.conn.WriteLines(append(frame, '\n')) }

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
	var all []*running
	for _, r := range e.running {
		if r.turn != nil && !r.stopped && r.session == session {
			all = append(all, r)
		}
	}
	// The newest first: one that waits would begin when that before it has ended, otherwise.
	slices.SortFunc(all, func(a, b *running) int { return cmp.Compare(b.place, a.place) })
	for _, r := range all {
		r.stopped = true
		close(r.turn)
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

// AppendUpdateHead appends the frame of a session/update up to its update, which
// [UpdateTail] follows. session is the id's JSON string.
func AppendUpdateHead(dst, session []byte) []byte {
	dst = append(dst, `{"jsonrpc":"2.0","method":"`+MethodSessionUpdate+`","params":{"sessionId":`...)
	return append(append(dst, session...), `,"update":`...)
}

// UpdateTail ends the frame of a session/update.
const UpdateTail = "}}"

// Update implements [Peer].
func (e *endpoint) Update(_ context.Context, session schema.SessionID, update any) error {
	b, err := schema.Append(AppendUpdateHead(nil, rawjson.AppendQuoted(nil, string(session))), update)
	if err != nil {
		return fmt.Errorf("encode update: %w", err)
	}
	return e.writeFrame(append(b, UpdateTail...))
}

// Notify implements [Peer].
func (e *endpoint) Notify(_ context.Context, method string, params any) error {
	b, err := encodeParams(params)
	if err != nil {
		return fmt.Errorf("encode params of %s: %w", method, err)
	}
	return e.writeFrame(appendCall(nil, "", method, b))
}

// WriteLines implements [LineWriter].
func (e *endpoint) WriteLines(lines []byte) error { return e.conn.WriteLines(lines) }

// Ask implements [Peer].
func (e *endpoint) Ask(ctx context.Context, method string, params, result any) error {
	b, err := encodeParams(params)
	if err != nil {
		return fmt.Errorf("encode params of %s: %w", method, err)
	}
	id := IntID(e.lastID.Add(1))
	answer := make(chan Message, 1)
	e.mu.Lock()
	e.calls[id] = answer
	e.mu.Unlock()
	defer func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.calls, id)
	}()
	if err := e.writeFrame(appendCall(nil, id, method, b)); err != nil {
		return fmt.Errorf("ask %s: %w", method, err)
	}
	select {
	case m := <-answer:
		return answered(method, m, result)
	case <-ctx.Done():
		_ = e.Notify(ctx, MethodCancelRequest, &schema.CancelRequestNotification{RequestID: json.RawMessage(id)})
		return fmt.Errorf("ask %s: %w", method, ctx.Err())
	case <-e.ended:
	}
	select {
	case m := <-answer: // it came together with the end
		return answered(method, m, result)
	default:
		return fmt.Errorf("ask %s: %w", method, io.ErrClosedPipe)
	}
}

// answered decodes the answer to a request of our own.
func answered(method string, m Message, result any) error {
	if e := m.Err(); e != nil {
		return e
	}
	if result == nil {
		return nil
	}
	if err := json.Unmarshal(m.Result(), result); err != nil {
		return fmt.Errorf("decode the answer to %s: %w", method, err)
	}
	return nil
}

func encodeParams(params any) ([]byte, error) {
	if params == nil {
		return nil, nil
	}
	return schema.Encode(params)
}
