package lasting

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/ndjson"
	"sandboxagent.dev/sandbox-agent/acp/problem"
)

// gateway answers connections by scripts, one after another; there is none for
// connections without one. The whole package's behaviour with the real gateway
// is proven by the end-to-end tests of the commands; here are answers that a
// real one gives once in a year.
type gateway struct {
	scripts []func(g *peer)
	dials   int
	work    sync.WaitGroup
}

// peer is the gateway's end of one connection.
type peer struct {
	conn *ndjson.Conn
	t    *testing.T
}

func (g *gateway) dial(t *testing.T) func(context.Context) (acp.Conn, error) {
	return func(context.Context) (acp.Conn, error) {
		n := g.dials
		g.dials++
		if n >= len(g.scripts) {
			return nil, errors.New("nobody is there")
		}
		near, far := net.Pipe()
		p := &peer{ndjson.New(far, far, far.Close, 0), t}
		g.work.Go(func() {
			g.scripts[n](p)
			_ = p.conn.Close()
		})
		return ndjson.New(near, near, near.Close, 0), nil
	}
}

// takes reads the next message of a method.
func (p *peer) takes(method string) acp.Message {
	p.t.Helper()
	m, err := p.conn.Read(context.Background())
	if err != nil || m.Method() != method {
		p.t.Errorf("%s came in place of %s: %v", m.Frame(), method, err)
	}
	return m.Clone()
}

func (p *peer) says(m acp.Message) {
	p.t.Helper()
	if err := p.conn.Write(context.Background(), m); err != nil {
		p.t.Error(err)
	}
}

// welcome answers initialize.
func (p *peer) welcome() {
	p.t.Helper()
	m := p.takes("initialize")
	p.says(acp.NewResult(m.ID(), []byte(`{"protocolVersion":1}`)))
}

// refuse answers initialize with an error.
func (p *peer) refuse() {
	p.t.Helper()
	m := p.takes("initialize")
	p.says(acp.NewError(m.ID(), acp.Errorf(acp.CodeAuthRequired, "log in first")))
}

var hello = acp.NewRequest(acp.IntID(1), "initialize", []byte(`{"protocolVersion":1,"clientCapabilities":{}}`))

// everything reads a connection to its end.
func everything(c *Conn) (frames []string, err error) {
	for {
		m, err := c.Read(context.Background())
		if err != nil {
			return frames, err
		}
		frames = append(frames, string(m.Frame()))
	}
}

func write(t *testing.T, c *Conn, m acp.Message) {
	t.Helper()
	if err := c.Write(t.Context(), m); err != nil {
		t.Error(err)
	}
}

func TestConn_TheFirstInitializeIsRefused(t *testing.T) {
	g := &gateway{scripts: []func(*peer){(*peer).refuse, (*peer).welcome}}
	c := New(Options{Dial: g.dial(t)})
	write(t, c, hello)
	frames, err := everything(c)
	if len(frames) != 1 || !strings.Contains(frames[0], "log in first") || err == nil || !strings.Contains(err.Error(), "refuses the connection") {
		t.Errorf("%q, %v", frames, err)
	}
	_ = c.Close()
	if g.work.Wait(); g.dials != 1 {
		t.Errorf("%d connections were opened", g.dials)
	}
}

func TestConn_ALaterInitializeIsRefused(t *testing.T) {
	g := &gateway{scripts: []func(*peer){
		func(p *peer) {
			p.welcome()
			p.takes("session/new")
		},
		(*peer).refuse,
	}}
	c := New(Options{Dial: g.dial(t)})
	write(t, c, hello)
	if m, err := c.Read(t.Context()); err != nil || m.Err() != nil {
		t.Fatalf("%s, %v", m.Frame(), err)
	}
	write(t, c, acp.NewRequest(acp.IntID(2), "session/new", []byte(`{"cwd":"/","mcpServers":[]}`)))
	frames, err := everything(c)
	if len(frames) != 1 || !strings.Contains(frames[0], `"id":2`) || !strings.Contains(frames[0], "log in first") || err == nil {
		t.Errorf("%q, %v", frames, err)
	}
	_ = c.Close()
	g.work.Wait()
}

// A gateway that does not come back is given up, with an error that says what
// kind of error it is.
func TestConn_GivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gateway{scripts: []func(*peer){(*peer).welcome}}
		c := New(Options{Dial: g.dial(t), GiveUp: time.Minute})
		began := time.Now()
		write(t, c, hello)
		if m, err := c.Read(t.Context()); err != nil || m.Err() != nil {
			t.Fatalf("%s, %v", m.Frame(), err)
		}
		write(t, c, acp.NewRequest(acp.IntID(2), "session/list", []byte(`{}`)))
		frames, err := everything(c)
		if len(frames) != 1 || !strings.Contains(frames[0], problem.Unavailable.Type()) || !errors.Is(err, errGivenUp) {
			t.Errorf("%q, %v", frames, err)
		}
		if took := time.Since(began); took > time.Minute || took < 45*time.Second {
			t.Errorf("it was given up after %v", took)
		}
		_ = c.Close()
		g.work.Wait()
	})
}

// A gateway may install and start an agent before it answers initialize. That
// is its business: it is not taken for gone. On a later connection the agent is
// there and has to be started only.
func TestConn_InitializeTakesLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slowly := func(p *peer, d time.Duration) {
			m := p.takes("initialize")
			time.Sleep(d) // of the test's own clock
			p.says(acp.NewResult(m.ID(), []byte(`{"protocolVersion":1}`)))
		}
		done := make(chan struct{})
		g := &gateway{scripts: []func(*peer){func(p *peer) { slowly(p, time.Hour) }, func(p *peer) {
			slowly(p, 4*time.Minute)
			p.takes("x/note")
			close(done)
			_, _ = p.conn.Read(context.Background()) // its end
		}}}
		c := New(Options{Dial: g.dial(t), GiveUp: time.Minute})
		write(t, c, hello)
		if m, err := c.Read(t.Context()); err != nil || m.Err() != nil || m.ID() != acp.IntID(1) {
			t.Fatalf("%s, %v", m.Frame(), err)
		}
		write(t, c, acp.NewNotification("x/note", []byte(`{}`)))
		<-done
		_ = c.Close()
		g.work.Wait()
		if g.dials != 2 {
			t.Errorf("%d connections were opened", g.dials)
		}
	})
}

// What is written while there is no connection is sent in its order, once.
func TestConn_WhatWaitsIsSentOnce(t *testing.T) {
	const n = 50
	down := make(chan struct{})
	g := &gateway{scripts: []func(*peer){
		func(p *peer) {
			p.welcome()
			<-down
		},
		func(p *peer) {
			p.welcome()
			for i := range n {
				if m := p.takes("x/note"); string(m.Params()) != fmt.Sprintf(`{"n":%d}`, i) {
					p.t.Errorf("%s came as number %d", m.Params(), i)
				}
			}
			p.says(acp.NewNotification("x/done", []byte(`{}`)))
			if m, err := p.conn.Read(context.Background()); !errors.Is(err, io.EOF) {
				p.t.Errorf("%s, %v", m.Frame(), err)
			}
		},
	}}
	c := New(Options{Dial: g.dial(t)})
	write(t, c, hello)
	if m, err := c.Read(t.Context()); err != nil || m.Err() != nil {
		t.Fatalf("%s, %v", m.Frame(), err)
	}
	close(down)
	for i := range n {
		write(t, c, acp.NewNotification("x/note", fmt.Appendf(nil, `{"n":%d}`, i)))
	}
	if m, err := c.Read(t.Context()); err != nil || m.Method() != "x/done" {
		t.Errorf("%s, %v", m.Frame(), err)
	}
	_ = c.Close()
	g.work.Wait()
}

// A gateway that is ending refuses new connections, until the next one is there.
func TestConn_AGatewayThatIsEnding(t *testing.T) {
	ending := func(p *peer) {
		m := p.takes("initialize")
		p.says(acp.NewError(m.ID(), acp.Errorf(acp.CodeInternal, "over").WithData(problem.New(problem.Unavailable, "it is shutting down"))))
	}
	synctest.Test(t, func(t *testing.T) {
		g := &gateway{scripts: []func(*peer){
			(*peer).welcome, ending, ending,
			func(p *peer) {
				p.welcome()
				m := p.takes("session/new")
				p.says(acp.NewResult(m.ID(), []byte(`{"sessionId":"s"}`)))
			},
		}}
		c := New(Options{Dial: g.dial(t), GiveUp: time.Minute})
		write(t, c, hello)
		if m, err := c.Read(t.Context()); err != nil || m.Err() != nil {
			t.Fatalf("%s, %v", m.Frame(), err)
		}
		synctest.Wait()
		write(t, c, acp.NewRequest(acp.IntID(2), "session/new", []byte(`{"cwd":"/","mcpServers":[]}`)))
		if m, err := c.Read(t.Context()); err != nil || m.ID() != "2" || m.Err() != nil {
			t.Errorf("the session was answered with %s, %v", m.Frame(), err)
		}
		_ = c.Close()
		g.work.Wait()
	})
}

// One that does not take the token any more, or lets it do less, is not asked for minutes.
func TestConn_TheTokenIsNotTakenAnyMore(t *testing.T) {
	for _, kind := range []problem.Kind{problem.TokenInvalid, problem.PermissionDenied} {
		synctest.Test(t, func(t *testing.T) {
			g := &gateway{scripts: []func(*peer){(*peer).welcome}}
			first := g.dial(t)
			refused := false
			c := New(Options{GiveUp: time.Minute, Dial: func(ctx context.Context) (acp.Conn, error) {
				if refused {
					return nil, problem.New(kind, "another one is needed")
				}
				refused = true
				return first(ctx)
			}})
			write(t, c, hello)
			began := time.Now()
			_, err := everything(c)
			if p, ok := errors.AsType[*problem.Error](err); !ok || p.Kind != kind || time.Since(began) > firstPause {
				t.Errorf("%s: it ended after %v with %v", kind, time.Since(began), err)
			}
			_ = c.Close()
			g.work.Wait()
		})
	}
}
