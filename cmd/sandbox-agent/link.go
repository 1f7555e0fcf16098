package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/urfave/cli/v2"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/acphttp"
	"sandboxagent.dev/sandbox-agent/acp/lasting"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
)

// link is the client end of one connection to a gateway: it numbers requests
// and finds their responses. Its methods are safe for concurrent use.
type link struct {
	conn acp.Conn
	node string // of a hub, at which sessions are made and opened; "" for none
	// receive takes every message, in order and one at a time, responses before
	// who asked gets them. The message is valid until it returns.
	receive func(l *link, m acp.Message)

	reader sync.WaitGroup
	ended  chan struct{} // closed when nothing more will be read

	mu      sync.Mutex
	last    int64                         // id of the newest request
	waiting map[acp.ID]chan<- acp.Message // capacity 1 each
	err     error                         // why it ended; valid once ended is closed
}

// dial opens a connection. ctx bounds the handshake only.
func (t target) dial(ctx context.Context) (acp.Conn, error) {
	return acphttp.Dial(ctx, t.endpoint, acphttp.DialOptions{Token: t.token})
}

// dialLink connects and starts reading.
func dialLink(ctx context.Context, t target, receive func(*link, acp.Message)) (*link, error) {
	conn, err := cmdline.AtOnce(ctx, t.endpoint, t.dial)
	if err != nil {
		return nil, err
	}
	return newLink(conn, receive), nil
}

// sessionLink connects for a call about one session. The connection names its agent:
// a gateway may have no default.
func sessionLink(ctx context.Context, t target, id string) (*link, error) {
	api, err := t.client()
	if err != nil {
		return nil, err
	}
	s, err := api.Session(ctx, id)
	if err != nil {
		return nil, err
	}
	l, err := dialLink(ctx, t, func(*link, acp.Message) {})
	if err != nil {
		return nil, err
	}
	if _, err := l.initialize(ctx, s.Agent, object{}); err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

// retryFlag says how long a command looks for a gateway that is gone.
func retryFlag(standard time.Duration) cli.Flag {
	return &cli.DurationFlag{Name: "retry", Usage: "look for a gateway that is gone for this time", Value: standard}
}

// linkNews is told of what becomes of a connection that is made again when it breaks.
type linkNews struct {
	changed func(lasting.Link)
	gone    func(session string, why *acp.Error) // of a session that could not be attached to again; may be nil
}

// dialLastingLink is dialLink for commands that go on when the connection breaks, or their session goes to another
// node: no message is lost, and a gateway that is gone is looked for as long as retry says. The first
// connection is tried once.
func dialLastingLink(ctx context.Context, t target, retry time.Duration, news linkNews, receive func(*link, acp.Message)) (*link, error) {
	t = t.ofSessions()
	first, err := cmdline.AtOnce(ctx, t.endpoint, t.dial)
	if err != nil {
		return nil, err
	}
	dial := func(ctx context.Context) (acp.Conn, error) {
		if conn := first; conn != nil {
			first = nil
			return conn, nil
		}
		return t.dial(ctx)
	}
	gone := func(session string, why *acp.Error, _ bool) {
		if news.gone != nil {
			news.gone(session, why)
		}
	}
	l := newLink(lasting.New(lasting.Options{Dial: dial, GiveUp: retry, Gone: gone, Changed: news.changed}), receive)
	l.node = t.node
	return l, nil
}

// linkLine says how the connection is. turn says that somebody waits for a turn of the
// session; how one ended meanwhile is told by its end.
func linkLine(l lasting.Link, session string, turn bool) string {
	if l.Lost != nil {
		return "the connection to the gateway is lost, and is made again"
	}
	line := fmt.Sprintf("the connection to the gateway is there again, after %v", spell(l.For))
	if turn && l.Turns[session] {
		line += "; the turn went on"
	}
	return line
}

// spell is a time as people are told it.
func spell(d time.Duration) time.Duration {
	if d < time.Second {
		return d.Round(time.Millisecond)
	}
	return d.Round(time.Second)
}

func newLink(conn acp.Conn, receive func(*link, acp.Message)) *link {
	l := &link{conn: conn, receive: receive, ended: make(chan struct{}), waiting: map[acp.ID]chan<- acp.Message{}}
	l.reader.Go(l.read)
	return l
}

func (l *link) read() {
	defer close(l.ended)
	for {
		m, err := l.conn.Read(context.Background()) // Close ends it
		if bad, ok := errors.AsType[*acp.ParseError](err); ok && bad != nil {
			continue
		}
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = errConnectionLost
			} else {
				err = fmt.Errorf("%w: %w", errConnectionLost, err)
			}
			l.mu.Lock()
			l.err = err
			l.mu.Unlock()
			return
		}
		l.receive(l, m)
		if !m.IsResponse() {
			continue
		}
		l.mu.Lock()
		answer := l.waiting[m.ID()]
		delete(l.waiting, m.ID())
		l.mu.Unlock()
		if answer != nil {
			answer <- m.Clone()
		}
	}
}

// call sends a request and waits for its response. A response that is an error
// is returned as an *acp.Error.
func (l *link) call(ctx context.Context, method string, params any) (json.RawMessage, error) {
	return l.callAs(ctx, l.number(), method, params)
}

// number is the id of the next request.
func (l *link) number() acp.ID {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last++
	return acp.IntID(l.last)
}

// callAs is call with an id that number has given: who asks knows the response when it comes.
func (l *link) callAs(ctx context.Context, id acp.ID, method string, params any) (json.RawMessage, error) {
	wait, err := l.send(ctx, id, method, params)
	if err != nil {
		return nil, err
	}
	return wait(ctx)
}

// send sends a request with an id that number has given. The returned function waits for its response,
// as call does; it is to be called once.
func (l *link) send(ctx context.Context, id acp.ID, method string, params any) (wait func(context.Context) (json.RawMessage, error), err error) {
	raw, err := schema.Encode(params)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", method, err)
	}
	answer := make(chan acp.Message, 1)
	l.mu.Lock()
	l.waiting[id] = answer
	l.mu.Unlock()
	if err := l.conn.Write(ctx, acp.NewRequest(id, method, raw)); err != nil {
		return nil, fmt.Errorf("%w: %w", errConnectionLost, err)
	}
	return func(ctx context.Context) (json.RawMessage, error) {
		select {
		case m := <-answer:
			return result(m)
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for the answer to %s: %w", method, context.Cause(ctx))
		case <-l.ended:
		}
		select {
		case m := <-answer: // it came before the end
			return result(m)
		default:
			return nil, fmt.Errorf("wait for the answer to %s: %w", method, l.err)
		}
	}, nil
}

func result(m acp.Message) (json.RawMessage, error) {
	if e := m.Err(); e != nil {
		return nil, e
	}
	return m.Result(), nil
}

// notify sends a notification.
func (l *link) notify(ctx context.Context, method string, params any) error {
	raw, err := schema.Encode(params)
	if err != nil {
		return fmt.Errorf("encode %s: %w", method, err)
	}
	return l.conn.Write(ctx, acp.NewNotification(method, raw))
}

// reply answers a request of the other side.
func (l *link) reply(ctx context.Context, id acp.ID, result any) error {
	raw, err := schema.Encode(result)
	if err != nil {
		return fmt.Errorf("encode answer: %w", err)
	}
	return l.conn.Write(ctx, acp.NewResult(id, raw))
}

// refuse answers a request of the other side that this client does not know.
func (l *link) refuse(ctx context.Context, id acp.ID, method string) error {
	return l.conn.Write(ctx, acp.NewError(id, acp.Errorf(acp.CodeMethodNotFound, "this client does not offer %s", method)))
}

// close ends the connection and waits until nothing is read any more.
func (l *link) close() {
	_ = l.conn.Close() // a goodbye that fails changes nothing
	l.reader.Wait()
}

// closeWithin is close, but leaves a gateway that does not take the goodbye in
// this time: the end of the process ends the connection as well.
func (l *link) closeWithin(d time.Duration) {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		l.close()
	}()
	select {
	case <-closed:
	case <-time.After(d):
	}
}
