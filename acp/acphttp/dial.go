package acphttp

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/coder/websocket"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/internal/frames"
	"sandboxagent.dev/sandbox-agent/internal/secret"
	sockets "sandboxagent.dev/sandbox-agent/internal/socket"
)

const (
	dialPath        = "/v2/rpc"
	dialSubprotocol = "acp.sandboxagent.dev"

	// dialMaxMessage bounds one received message, far above what a gateway
	// sends. At the limit the connection is closed.
	dialMaxMessage = 256 << 20

	problemMax = 64 << 10 // of a refusal's body, the rest is ignored
	keepRead   = 1 << 20  // a larger read buffer is given up after its message
)

// DialOptions configure Dial. The zero value dials without token.
type DialOptions struct {
	Token  string      // sent as Authorization: Bearer
	Agent  string      // ?agent=, for when initialize does not name one
	Header http.Header // further headers of the handshake
	TLS    *tls.Config // nil is the platform's
	// Transport makes the connection, in place of one that is made of TLS and the
	// environment. It must speak HTTP/1.1.
	Transport  http.RoundTripper
	MaxMessage int64 // bytes; a larger one ends the connection. 0 is 256 MiB
}

// Dial opens a connection to the gateway at endpoint, an http, https, ws or wss
// address; without a path of its own, /v2/rpc is added. ctx bounds the
// handshake only. When the gateway refuses, the error has a *problem.Error in
// its chain.
//
// The Conn's Read returns io.EOF when the gateway ended the connection in good
// order; a frame that is no message is an *acp.ParseError, after which Read may
// go on. A context that ends during a Read or Write closes the connection.
func Dial(ctx context.Context, endpoint string, o DialOptions) (acp.Conn, error) {
	u, err := dialURL(endpoint, o.Agent)
	if err != nil {
		return nil, err
	}
	h := http.Header{}
	maps.Copy(h, o.Header)
	if o.Token != "" {
		h.Set("Authorization", "Bearer "+o.Token)
	}
	transport, release := o.Transport, func() {}
	if transport == nil {
		protocols := new(http.Protocols)
		protocols.SetHTTP1(true) // an HTTP/2 connection cannot become a WebSocket
		own := &http.Transport{Proxy: sockets.Proxy, TLSClientConfig: o.TLS, Protocols: protocols, DialContext: sockets.Dialer(sockets.Silence).DialContext}
		transport, release = own, own.CloseIdleConnections
	}
	below, own := &inbound{}, &frames.Client{}
	ws, resp, err := websocket.Dial(ctx, u, &websocket.DialOptions{
		HTTPClient: &http.Client{
			Transport: &refusals{transport, below},
			// A redirect would carry the token to where it does not belong.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		HTTPHeader:      h,
		Subprotocols:    []string{dialSubprotocol},
		CompressionMode: websocket.CompressionDisabled,
		OnPingReceived:  own.Answers,
	})
	if err != nil {
		if resp != nil && resp.Body != nil {
			_ = resp.Body.Close()
		}
		if request, ok := errors.AsType[*url.Error](err); ok { // what is around it has the address in its text
			request.URL = secret.Address(request.URL)
			err = request
		}
		return nil, fmt.Errorf("connect to %s: %w", secret.Address(endpoint), err)
	}
	below.longest = cmp.Or(o.MaxMessage, dialMaxMessage)
	ws.SetReadLimit(below.longest)
	return &dialed{ws: ws, frames: own, below: below, release: release}, nil
}

// dialURL returns the WebSocket's address.
func dialURL(endpoint, agent string) (string, error) {
	u, err := url.Parse(endpoint)
	if err != nil { // which says parts of the address
		return "", fmt.Errorf("parse endpoint: %q is no address", secret.Address(endpoint))
	}
	switch u.Scheme {
	case "http", "ws":
		u.Scheme = "ws"
	case "https", "wss":
		u.Scheme = "wss"
	default:
		return "", fmt.Errorf("parse endpoint: %q is not an http or https address", secret.Address(endpoint))
	}
	if u.Host == "" {
		return "", fmt.Errorf("parse endpoint: %q names no host", secret.Address(endpoint))
	}
	if p := strings.TrimRight(u.Path, "/"); !strings.HasSuffix(p, dialPath) {
		u.Path = p + dialPath
	}
	if agent != "" {
		q := u.Query()
		q.Set("agent", agent)
		u.RawQuery = q.Encode()
	}
	u.Fragment = ""
	return u.String(), nil
}

// refusals turns every answer to a handshake but 101 into an error that says
// what the gateway said.
type refusals struct {
	next  http.RoundTripper
	below *inbound // gets the connection of 101
}

// RoundTrip implements http.RoundTripper.
func (t *refusals) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusSwitchingProtocols {
		if conn, ok := resp.Body.(io.ReadWriteCloser); ok {
			t.below.ReadWriteCloser, resp.Body = conn, t.below
		}
		return resp, nil
	}
	defer resp.Body.Close()
	return nil, ReadProblem(resp)
}

// ErrForeign is in the chain of errors of servers that do not speak this API.
var ErrForeign = errors.New("this is no Sandbox Agent gateway or hub")

// ErrUnexplained is in the chain of errors of answers with which a proxy says that it has none of the server behind it.
var ErrUnexplained = errors.New("it does not say why")

// ReadProblem returns what an HTTP answer that is an error says. It reads the
// body and leaves closing it to the caller. For an answer that is no problem
// document, as of a proxy, it chooses the kind by the status; a status that
// proxies do not make up is that of another server, see [ErrForeign].
func ReadProblem(resp *http.Response) *problem.Error {
	body, _ := io.ReadAll(io.LimitReader(resp.Body, problemMax)) // a part of it may do
	mediaType, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if mediaType == problem.ContentType {
		if p := DecodeProblem(body); p != nil {
			return p
		}
	}
	kind := problem.Internal
	for of, k := range map[int]problem.Kind{
		http.StatusBadRequest:         problem.InvalidRequest,
		http.StatusUnauthorized:       problem.TokenInvalid,
		http.StatusForbidden:          problem.PermissionDenied,
		http.StatusNotFound:           problem.NotFound,
		http.StatusBadGateway:         problem.Unavailable,
		http.StatusServiceUnavailable: problem.Unavailable,
		http.StatusGatewayTimeout:     problem.Timeout,
	} {
		if of == resp.StatusCode {
			kind = k
		}
	}
	if to := resp.Header.Get("Location"); to != "" && resp.StatusCode/100 == 3 {
		return problem.New(kind, "the server redirects to %s, to which a token is not sent: give the address itself", to)
	}
	switch resp.StatusCode {
	case http.StatusBadRequest:
		if bytes.Contains(body, []byte("HTTP request to an HTTPS server")) {
			return problem.New(kind, "the server speaks TLS: use https:// in its address")
		}
	case http.StatusOK, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotImplemented:
		return problem.Wrap(kind, ErrForeign, "the server answered %s", resp.Status)
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return problem.Wrap(kind, ErrUnexplained, "the server answered %s", resp.Status)
	}
	return problem.New(kind, "the server answered %s without saying why", resp.Status)
}

// DecodeProblem returns the problem that a document holds, nil when it is none
// of the known ones.
func DecodeProblem(b []byte) *problem.Error {
	var doc map[string]any
	if json.Unmarshal(b, &doc) != nil {
		return nil
	}
	name, _ := doc["type"].(string)
	kind := problem.Kind(strings.TrimPrefix(name, problem.Prefix))
	if kind.Status() == 0 {
		return nil
	}
	detail, _ := doc["detail"].(string)
	for _, member := range []string{"type", "title", "status", "detail"} {
		delete(doc, member)
	}
	if len(doc) == 0 {
		doc = nil
	}
	return &problem.Error{Kind: kind, Detail: detail, Extensions: doc}
}

// dialed is the client's end of a connection.
type dialed struct {
	ws      *websocket.Conn
	frames  *frames.Client
	below   *inbound
	release func() // of what made the connection
	buf     []byte // of the message that was read last

	once     sync.Once
	closeErr error
}

var _ acp.Conn = (*dialed)(nil)

// Read implements acp.Conn. Pings are answered meanwhile, but for those that come while something is written.
func (c *dialed) Read(ctx context.Context) (acp.Message, error) {
	c.below.during(ctx)
	defer c.below.done()
	m, err := c.read(ctx)
	if _, bad := errors.AsType[*acp.ParseError](err); err != nil && !bad && ctx.Err() != nil {
		_ = c.ws.CloseNow()
		err = fmt.Errorf("read message: %w", ctx.Err())
	}
	return m, err
}

func (c *dialed) read(ctx context.Context) (acp.Message, error) {
	for {
		if err := ctx.Err(); err != nil {
			return acp.Message{}, err
		}
		if cap(c.buf) > keepRead {
			c.buf = nil
		}
		var ok bool
		if c.buf, ok = c.below.message(c.buf[:0]); ok {
			return acp.Parse(c.buf)
		}
		kind, r, err := c.ws.Reader(context.Background()) // below watches
		if err != nil {
			return acp.Message{}, readError(err)
		}
		c.buf, err = readAll(r, c.buf[:0])
		if err != nil {
			return acp.Message{}, readError(err)
		}
		if kind != websocket.MessageText {
			continue // the protocol has no binary frames
		}
		return acp.Parse(c.buf)
	}
}

func readError(err error) error {
	switch websocket.CloseStatus(err) {
	case websocket.StatusNormalClosure, websocket.StatusGoingAway:
		return io.EOF
	}
	return fmt.Errorf("read message: %w", err)
}

// readAll is io.ReadAll into a buffer that is used again.
func readAll(r io.Reader, b []byte) ([]byte, error) {
	for {
		if len(b) == cap(b) {
			b = append(b, 0)[:len(b)]
		}
		n, err := r.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		if errors.Is(err, io.EOF) {
			return b, nil
		}
		if err != nil {
			return b, err
		}
	}
}

// Write implements acp.Conn.
func (c *dialed) Write(ctx context.Context, m acp.Message) error {
	defer c.frames.Sending()()
	if err := c.ws.Write(ctx, websocket.MessageText, m.Frame()); err != nil {
		return fmt.Errorf("write message: %w", err)
	}
	return nil
}

// Close implements acp.Conn. It says goodbye and waits a few seconds at most
// for the gateway's own; that the gateway was gone already is no error.
func (c *dialed) Close() error {
	c.once.Do(func() {
		c.below.leaving.Store(true)
		err := c.ws.Close(websocket.StatusNormalClosure, "")
		var ended websocket.CloseError
		if err != nil && !errors.As(err, &ended) && !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
			c.closeErr = fmt.Errorf("close connection: %w", err)
		}
		c.release()
	})
	return c.closeErr
}
