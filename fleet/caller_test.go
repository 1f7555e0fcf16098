package fleet_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/acphttp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
)

// client is one ACP client. What comes is kept in its order.
type client struct {
	t    testing.TB
	conn acp.Conn
	stop func()

	mu   sync.Mutex
	got  []acp.Message
	more chan struct{} // closed and replaced with each message, and at the end
	end  error
	last int
}

func dial(t testing.TB, url, token string) *client {
	t.Helper()
	conn, err := acphttp.Dial(t.Context(), url, acphttp.DialOptions{Token: token})
	if err != nil {
		t.Fatal(err)
	}
	c := &client{t: t, conn: conn, more: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			m, err := conn.Read(ctx)
			c.mu.Lock()
			if c.end = err; err == nil {
				c.got = append(c.got, m.Clone())
			}
			close(c.more)
			c.more = make(chan struct{})
			c.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	c.stop = sync.OnceFunc(func() {
		_ = conn.Close()
		cancel()
		<-done
	})
	t.Cleanup(c.stop)
	return c
}

func (c *client) send(frame string) {
	c.t.Helper()
	if err := c.conn.Write(c.t.Context(), acp.MustParse([]byte(frame))); err != nil {
		c.t.Fatal(err)
	}
}

// next returns the first message behind position from that ok accepts, and its position.
func (c *client) next(from int, what string, ok func(m *acp.Message) bool) (*acp.Message, int) {
	c.t.Helper()
	deadline := time.After(patience)
	for i := from; ; {
		c.mu.Lock()
		for ; i < len(c.got); i++ {
			if ok(&c.got[i]) {
				m := c.got[i]
				c.mu.Unlock()
				return &m, i
			}
		}
		more, end, n := c.more, c.end, len(c.got)
		c.mu.Unlock()
		if end != nil {
			c.t.Fatalf("%s: the connection ended after %d messages: %v", what, n, end)
		}
		select {
		case <-more:
		case <-deadline:
			c.t.Fatalf("%s did not come; %d messages did", what, n)
		}
	}
}

func (c *client) response(id string) *acp.Message {
	c.t.Helper()
	m, _ := c.next(0, "the response to "+id, func(m *acp.Message) bool { return m.IsResponse() && string(m.ID()) == id })
	return m
}

// call sends a request and returns its response.
func (c *client) call(method, params string) *acp.Message {
	c.t.Helper()
	c.last++
	id := fmt.Sprint(1000 + c.last)
	c.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":%s}`, id, method, params))
	return c.response(id)
}

// must is call for a request that must not fail.
func (c *client) must(method, params string) json.RawMessage {
	c.t.Helper()
	m := c.call(method, params)
	if m.Err() != nil {
		c.t.Fatalf("%s: %s", method, m.Frame())
	}
	return m.Result()
}

// hello initializes a connection.
func (h *hub) hello(token string) *client {
	h.t.Helper()
	c := dial(h.t, h.url, token)
	c.must("initialize", `{"protocolVersion":1,"clientCapabilities":{"_meta":{"sandboxagent.dev":{"notices":true}}}}`)
	return c
}

// session makes one at a node.
func (c *client) session(node string) string {
	c.t.Helper()
	res := c.must("session/new", fmt.Sprintf(`{"cwd":"/tmp","mcpServers":[],"_meta":{"sandboxagent.dev":{"node":%q}}}`, node))
	if at := rawjson.MemberString(res, "_meta", acp.MetaKey, "node"); at != node {
		c.t.Errorf("a session for %s was made at %q", node, at)
	}
	return rawjson.MemberString(res, "sessionId")
}

func prompt(session, text string) string {
	return fmt.Sprintf(`{"sessionId":%q,"prompt":[{"type":"text","text":%q}]}`, session, text)
}

// errorKind is the kind of problem of an error, "" for none.
func errorKind(m *acp.Message) string {
	if m.Err() == nil {
		return ""
	}
	kind := rawjson.MemberString(m.Err().Data, "type")
	return kind[strings.LastIndex(kind, ":")+1:]
}
