package opencode

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"strconv"
	"sync"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/sse"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridgetest"
)

// probe is the adapter; it tells a test of the agent that it opened last, whose
// connections to the server a test can cut.
type probe struct {
	adapters.Adapter
	agent *agent

	mu     sync.Mutex
	open   []net.Conn
	closed bool // new connections are refused
}

func (c *probe) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c.mu.Lock()
	closed := c.closed
	c.mu.Unlock()
	if closed {
		return nil, net.ErrClosed
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err == nil {
		c.mu.Lock()
		c.open = append(c.open, conn)
		c.mu.Unlock()
	}
	return conn, err
}

// cut breaks all connections; those that come are refused until mend is called.
func (c *probe) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for _, conn := range c.open {
		_ = conn.Close()
	}
	c.open = nil
}

func (c *probe) mend() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = false
}

func (c *probe) Open(_ context.Context, o adapters.Options) (acp.Conn, error) {
	return bridge.New(func(p acp.Peer, conn *bridge.Conn) acp.Agent {
		c.agent = newAgent(o, p, conn)
		c.agent.dial = c.dial
		return c.agent
	}), nil
}

// kill kills the process of a connection.
func kill(t *testing.T, c *client) {
	t.Helper()
	pid := c.Conn.(adapters.Process).PID()
	if err := bridgetest.Kill(pid); pid == 0 || err != nil {
		t.Fatalf("kill process %d: %v", pid, err)
	}
}

func itoa(n int) string { return strconv.Itoa(n) }

// watchEvents tells of directories that the server forgets, until ctx ends. What
// it returns is closed then.
func watchEvents(ctx context.Context, t *testing.T, srv *server, disposed chan<- struct{}) <-chan struct{} {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, srv.base+"/global/event", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.SetBasicAuth(user, srv.pass)
	resp, err := srv.http.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer resp.Body.Close()
		in := sse.NewDecoder(resp.Body, maxEvent)
		for {
			e, err := in.Next()
			if err != nil {
				return
			}
			if bytes.Contains(e.Data, []byte(`"server.instance.disposed"`)) {
				disposed <- struct{}{}
			}
		}
	}()
	return done
}
