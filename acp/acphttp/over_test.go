package acphttp

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
)

var errTokenOver = problem.New(problem.TokenInvalid, "the token is over")

// overServer serves a client until end is called.
func overServer(t *testing.T, gw acp.Gateway, o Options) (url string, end func()) {
	t.Helper()
	over, cancel := context.WithCancelCause(t.Context())
	o.Over = func(context.Context) context.Context { return over }
	h := New(gw, o)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, stop := context.WithCancelCause(r.Context())
		defer context.AfterFunc(over, func() { stop(context.Cause(over)) })()
		h.ServeHTTP(w, r.WithContext(ctx))
	}))
	t.Cleanup(srv.Close)
	return srv.URL, func() { cancel(errTokenOver) }
}

// heldClient tells of requests, and answers none.
type heldClient struct {
	*fakeClient
	called chan struct{}
}

func (c heldClient) Call(context.Context, acp.Message) (<-chan acp.Reply, error) {
	close(c.called)
	return c.replies, nil
}

func (c heldClient) Connect(ctx context.Context, m acp.Message, o acp.ConnectOptions) (acp.Client, acp.Reply, error) {
	_, reply, err := fakeGateway{c.fakeClient}.Connect(ctx, m, o)
	return c, reply, err
}

// A request that is held is told why it ends, whatever is noticed first: that it may not go on, or that
// its connection has ended.
func TestOver_HeldRequest(t *testing.T) {
	rows := []struct {
		name   string
		o      Options
		closes bool
		status int
	}{
		{"it may not go on", Options{}, false, http.StatusUnauthorized},
		{"its connection has ended", Options{}, true, http.StatusUnauthorized},
		{"headers were sent", Options{HoldHeaders: time.Nanosecond}, false, http.StatusOK},
		{"headers were sent, its connection has ended", Options{HoldHeaders: time.Nanosecond}, true, http.StatusOK},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			client := heldClient{newFakeClient(), make(chan struct{})}
			url, end := overServer(t, client, row.o)
			post := func(body, connection string) *http.Response {
				req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
				if err != nil {
					t.Error(err)
					return nil
				}
				req.Header.Set("Content-Type", "application/json")
				req.Header.Set(HeaderInlineConnection, connection)
				res, err := http.DefaultClient.Do(req)
				if err != nil {
					t.Error(err)
				}
				return res
			}
			_ = post(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}`, "").Body.Close()
			answered := make(chan *http.Response, 1)
			go func() {
				answered <- post(`{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{}}`, client.ID())
			}()
			<-client.called
			var res *http.Response
			if row.status == http.StatusOK {
				res = <-answered
			}
			end()
			if row.closes {
				client.Close()
			}
			if res == nil {
				res = <-answered
			}
			b, err := io.ReadAll(res.Body)
			_ = res.Body.Close()
			if err != nil || res.StatusCode != row.status || !strings.Contains(string(b), "the token is over") {
				t.Errorf("%s %q, %v", res.Status, b, err)
			}
		})
	}
}

// A WebSocket is told why it ends, before initialize, too.
func TestOver_WebSocket(t *testing.T) {
	for _, greeted := range []bool{false, true} {
		client := newFakeClient()
		url, end := overServer(t, fakeGateway{client}, Options{})
		ws, _, err := websocket.Dial(t.Context(), "ws"+strings.TrimPrefix(url, "http"), nil)
		if err != nil {
			t.Fatal(err)
		}
		if greeted {
			if err := ws.Write(t.Context(), websocket.MessageText, []byte(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}`)); err != nil {
				t.Fatal(err)
			}
			if _, _, err := ws.Read(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		end()
		if greeted {
			client.Close()
		}
		_, _, err = ws.Read(t.Context())
		if closed, ok := errors.AsType[websocket.CloseError](err); !ok || closed.Code != websocket.StatusGoingAway || closed.Reason != "the token is over" {
			t.Errorf("greeted %v: it ended with %v", greeted, err)
		}
	}
}
